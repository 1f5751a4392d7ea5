"""Datasets, samplers and collation of `torch.utils.data`, against PyTorch's."""

from __future__ import annotations

import collections
import itertools
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from side_by_side import plain, programs, shown  # noqa: E402

import torchgrad_jax as tj  # noqa: E402

pytestmark = pytest.mark.operators
program, test_like_pytorch = programs()
Point = collections.namedtuple("Point", "x y")


def errors(*calls):
    """What each call returns, or raises."""
    found = []
    for call in calls:
        try:
            found.append(plain(call()))
        except Exception as error:
            found.append([type(error).__name__, str(error)])
    return found


def stream(m, count, length=None):
    def __iter__(self):
        return iter(range(count))

    extra = {} if length is None else {"__len__": lambda self: length}
    return type("Stream", (m.utils.data.IterableDataset,), {"__iter__": __iter__, **extra})()


# ---------------------------------------------------------------------- datasets


@program
def plain_datasets(m):
    d = m.utils.data
    return errors(
        lambda: d.Dataset()[0], lambda: len(d.Dataset()), lambda: d.IterableDataset(), lambda: len(d.TensorDataset(m.arange(3))),
        lambda: d.TensorDataset(m.arange(3), m.ones(3, 2))[1], lambda: d.TensorDataset(m.arange(3))[1:], lambda: d.TensorDataset([1]),
        lambda: d.TensorDataset(m.zeros(2), m.zeros(3)), lambda: d.TensorDataset(m.arange(3))[7],
    )  # fmt: skip


@program
def stacked(m):
    d = m.utils.data
    fetched = type("Fetched", (d.Dataset,), {"__len__": lambda self: 2, "__getitems__": lambda self, keys: [k * 10 for k in keys][:2]})()
    return errors(
        lambda: d.StackDataset(), lambda: d.StackDataset([1], a=[1]), lambda: d.StackDataset([1], [1, 2]), lambda: d.StackDataset(a=[1], b=[1, 2]),
        lambda: d.StackDataset([1, 2], [3, 4])[1], lambda: shown(d.StackDataset(a=[1, 2], b=[3, 4])[1]), lambda: len(d.StackDataset([1, 2])),
        lambda: d.StackDataset([1, 2], fetched).__getitems__([1, 0]), lambda: d.StackDataset(fetched).__getitems__([0, 1, 0]),
        lambda: [shown(x) for x in d.StackDataset(a=[1, 2], b=fetched).__getitems__([1, 0])],
    )  # fmt: skip


@program
def concatenated(m):
    d = m.utils.data
    both = d.ConcatDataset([[1], [2, 3]])
    sum_ = d.TensorDataset(m.arange(2)) + d.TensorDataset(m.arange(3))
    return errors(
        lambda: d.ConcatDataset([]), lambda: d.ConcatDataset([stream(m, 2)]), lambda: [both[i] for i in (0, 1, 2, -1, -3)], lambda: both[-4],
        lambda: both[9], lambda: both.cumulative_sizes, lambda: both.cummulative_sizes, lambda: d.ConcatDataset.cumsum([[1], [2]]),
        lambda: [type(sum_).__name__, len(sum_), sum_[3]],
    )  # fmt: skip


@program
def chained(m):
    d = m.utils.data
    return errors(
        lambda: list(d.ChainDataset([stream(m, 2), stream(m, 1)])), lambda: len(d.ChainDataset([stream(m, 2, 2), stream(m, 2, 5)])),
        lambda: list(d.ChainDataset([[1]])), lambda: len(d.ChainDataset([[1]])), lambda: len(d.ChainDataset([stream(m, 1)])),
        lambda: type(stream(m, 1) + stream(m, 1)).__name__, lambda: list(stream(m, 2) + stream(m, 1)),
    )  # fmt: skip


@program
def subsets(m):
    d = m.utils.data
    whole = d.TensorDataset(m.arange(10))
    own = type("Own", (d.Subset,), {"__getitem__": lambda self, i: i})
    both = type("Both", (d.Subset,), {"__getitem__": lambda self, i: i, "__getitems__": lambda self, i: i})
    return errors(
        lambda: d.Subset(whole, [1, 2])[0], lambda: d.Subset(whole, [1, 2])[[0, 1]], lambda: len(d.Subset(whole, [1])),
        lambda: d.Subset(whole, [3, 4]).__getitems__([0, 1]), lambda: d.Subset(d.Subset(whole, [3, 4]), [1]).__getitems__([0]),
        lambda: own([1], [0]), lambda: both([5], [0]).__getitems__([3]),
    )  # fmt: skip


@program
def split(m):
    d = m.utils.data

    def parts(size, lengths, seed=42):
        generator = m.Generator().manual_seed(seed)
        return [list(s.indices) for s in d.random_split(range(size), lengths, generator)] + [m.rand(1, generator=generator).item()]

    m.manual_seed(3)
    return errors(
        lambda: parts(10, [3, 7]), lambda: parts(31, [0.3, 0.3, 0.4]), lambda: parts(3, [0.1, 0.9]), lambda: parts(3, [0, 3]),
        lambda: parts(3, [1.0]), lambda: parts(2, [0.2, 0.2, 0.6]), lambda: parts(10, [3, 6]), lambda: parts(10, [0.3, 1.2]),
        lambda: parts(10, [-0.5, 1.5]), lambda: parts(10, [0.3, 0.6]), lambda: [list(s.indices) for s in d.random_split(range(5), [2, 3])],
        lambda: m.rand(1).item(),
    )  # fmt: skip


# ---------------------------------------------------------------------- samplers


@program
def random_orders(m):
    """Keys, and what is left in the generators."""
    d = m.utils.data

    def drawn(make, *seeds):
        m.manual_seed(0)
        given = [m.Generator().manual_seed(s) for s in seeds]
        sampler = make(*given)
        keys = [int(k) for k in sampler]
        return [keys, len(sampler), m.rand(1).item(), *[m.rand(1, generator=g).item() for g in given]]

    return errors(
        lambda: drawn(lambda: d.RandomSampler(range(5))), lambda: drawn(lambda g: d.RandomSampler(range(5), generator=g), 1),
        lambda: drawn(lambda: d.RandomSampler(range(5), num_samples=13)), lambda: drawn(lambda g: d.RandomSampler(range(5), False, 13, g), 2),
        lambda: drawn(lambda: d.RandomSampler(range(5), True, 70)), lambda: drawn(lambda g: d.RandomSampler(range(5), True, 64, g), 2),
        lambda: drawn(lambda g: d.RandomSampler(range(5), True, generator=g), 2), lambda: drawn(lambda: d.SubsetRandomSampler([4, 5, 6, 9])),
        lambda: drawn(lambda g: d.SubsetRandomSampler(np.arange(4), g), 7), lambda: drawn(lambda: d.WeightedRandomSampler([0.1, 0.2, 0.7], 8)),
        lambda: drawn(lambda g: d.WeightedRandomSampler([0.1, 0.2, 0.7], 3, False, g), 7),
        lambda: drawn(lambda g: d.WeightedRandomSampler(m.tensor([1, 2]), 5, generator=g), 7), lambda: drawn(lambda: d.SequentialSampler(range(3))),
    )  # fmt: skip


@program
def bad_samplers(m):
    d = m.utils.data
    return errors(
        lambda: iter(d.Sampler()), lambda: d.Sampler([1]), lambda: d.RandomSampler(range(3), num_samples=0), lambda: d.RandomSampler(range(3), 1),
        lambda: d.RandomSampler([]), lambda: d.RandomSampler(range(3), num_samples=1.5), lambda: d.RandomSampler(range(3), num_samples=-1),
        lambda: d.WeightedRandomSampler([1, 2], 0), lambda: d.WeightedRandomSampler([1, 2], True), lambda: d.WeightedRandomSampler([1, 2], 2, 1),
        lambda: d.WeightedRandomSampler([[1, 2]], 2), lambda: list(d.WeightedRandomSampler([-1, 2], 2)),
        lambda: list(d.WeightedRandomSampler([1, 2], 5, False)), lambda: d.BatchSampler([1], 0, False), lambda: d.BatchSampler([1], 2.0, False),
        lambda: d.BatchSampler([1], 2, 1), lambda: len(d.BatchSampler(iter([1]), 2, True)),
    )  # fmt: skip


@program
def batches_of_keys(m):
    d = m.utils.data
    return [[list(s), len(s)] for n in (0, 4, 5) for last in (False, True) for s in [d.BatchSampler(range(n), 2, last)]]


@program
def distributed(m):
    d = m.utils.data
    options = ({}, {"shuffle": False}, {"drop_last": True, "seed": 5}, {"shuffle": False, "drop_last": True})
    found = [list(d.DistributedSampler(range(n), k, r, **o)) for n, k in ((7, 3), (6, 3), (2, 5)) for r in range(k) for o in options]
    later = d.DistributedSampler(range(7), 3, 0)
    later.set_epoch(3)
    wrong = errors(lambda: d.DistributedSampler(range(5), 2, 3), lambda: d.DistributedSampler(range(5), 2, -1))
    return [found, list(later), len(later), later.total_size, wrong]


def test_a_distributed_sampler_without_process_group_says_what_to_pass():
    with pytest.raises(ValueError, match="Default process group has not been initialized.*\n.*pass num_replicas and rank"):
        tj.utils.data.DistributedSampler(range(5))


# ---------------------------------------------------------------------- collation


class Text(str):
    pass


class Items(list):
    pass


class Table(dict):
    pass


class Whatever:
    pass


@program
def collated(m):
    c = m.utils.data.default_collate
    batches = (
        [1, 2], [True, False], [1.0, 2], [1, 2.0], ["a", "b"], [b"a"], [Text("a")], [np.zeros(2), np.ones(2)], [np.float32(2), np.float32(3)],
        [np.array(1), np.array(2)], [np.int8(2)], [np.bool_(True)], [np.float16(1)], [np.complex64(1)], [np.zeros(2, "u2")], [[1, 2], [3, 4]],
        [(1, "a"), (3, "b")], [m.zeros(2), m.ones(2)], [m.zeros(2), m.ones(2, dtype=m.int64)], [m.ones(2, requires_grad=True)], [range(2), range(2)],
        [[], []], [m.zeros(()), m.ones(())], [np.zeros(2), np.zeros(2, "float32")], [m.ones(3)[::2], m.ones(3)[1:]], [m.ones(2) * 2, m.ones(2)],
        [(Point(1, 2.0), [m.zeros(1)])],
    )  # fmt: skip
    return [c(batch) for batch in batches]


@program
def collated_containers(m):
    c = m.utils.data.default_collate
    batches = (
        [Point(1, 2), Point(3, 4)], [{"a": 1, "b": [1]}, {"a": 2, "b": [2]}], [Table(a=1)], [Items([1]), Items([2])], [collections.OrderedDict(a=1)],
        [collections.defaultdict(list, a=1)], [collections.deque([1])], [types.MappingProxyType({"a": 1})], [{}, {}],
    )  # fmt: skip
    found = [c(batch) for batch in batches]
    return [[type(x).__name__, plain(list(x.values()) if hasattr(x, "values") else list(x))] for x in found]


@program
def not_collated(m):
    c = m.utils.data.default_collate
    batches = (
        [1j], [None], [Whatever()], [], [np.array(["a"])], [np.array([None])], [m.zeros(2), m.ones(3)], [np.zeros(2), np.zeros(3)], [[1, 2], [3]],
        [{"a": 1}, {"b": 2}], [{1}], [m.zeros(1), 1], [1, "a"], [np.datetime64("2020")], [2**70], 5, m.arange(3),
    )  # fmt: skip
    return [text for batch in batches for text in errors(lambda: c(batch))]  # noqa: B023 - called at once


@program
def collated_as_told(m):
    """By a map of one's own, and by an addition to the default one."""
    of = m.utils.data._utils.collate

    def first(batch, *, collate_fn_map=None):
        return batch[0]

    own = of.collate([(1, Whatever()), (2, 3)], collate_fn_map={int: first, object: lambda batch, *, collate_fn_map: len(batch)})
    of.default_collate_fn_map[Whatever] = lambda batch, *, collate_fn_map: len(batch)
    try:
        return [own, m.utils.data.default_collate([{"a": Whatever()}] * 3)["a"]]
    finally:
        del of.default_collate_fn_map[Whatever]


@program
def converted(m):
    v = m.utils.data.default_convert
    data = (0, "ab", b"a", None, np.array([1]), np.array(1), np.float32(1), [np.array(0), 1], (np.array(0), 1), range(2), m.zeros(1))
    held = (Point(np.array(0), "a"), {"a": np.array(1)}, Table(a=1), Items([1]), {1}, collections.deque([1]), types.MappingProxyType({"a": 1}))
    return [v(x) for x in data] + [[type(v(x)).__name__, plain(list(v(x)))] for x in held]


def test_subclasses_of_tensor_are_asked_how_they_are_collated():
    class Own(tj.Tensor):
        pass

    assert type(tj.utils.data.default_collate([tj.zeros(2).as_subclass(Own)])) is Own


def test_tensors_on_the_host_are_collated_at_once():
    samples = [tj.tensor([1.0, 2, 3]), tj.tensor([4.0, 5, 6])]
    batch = tj.utils.data.default_collate(samples)
    assert batch._content().array is not None and batch.tolist() == [[1, 2, 3], [4, 5, 6]]
    batch += 1
    assert samples[0].tolist() == [1, 2, 3]


# ---------------------------------------------------------------------- data pipes


def pipes(m):
    """A source and a pipe for each kind, which registered as a method of a name that nobody else has."""
    d, name = m.utils.data, f"times_{next(_numbers)}"

    @d.functional_datapipe(name)
    class Times(d.IterDataPipe):
        def __init__(self, source, k=2):
            self.source, self.k = source, k

        def __iter__(self):
            for x in self.source:
                yield x * self.k

    @d.functional_datapipe(name)
    class TimesOfMap(d.MapDataPipe):
        def __init__(self, source):
            self.source = source

        def __getitem__(self, i):
            return self.source[i] * 2

        def __len__(self):
            return len(self.source)

    for found in (Times, TimesOfMap):  # PyTorch's loader pickles pipes
        found.__qualname__ = f"{found.__name__}_{name}"
        globals()[found.__qualname__] = found
    source = type("Source", (d.IterDataPipe,), {"__iter__": lambda self: iter(range(4))})()
    of_map = type("SourceOfMap", (d.MapDataPipe,), {"__getitem__": lambda self, i: i, "__len__": lambda self: 4})()
    return source, of_map, name, Times


_numbers = itertools.count()


@program
def data_pipes(m):
    d = m.utils.data
    source, of_map, name, kind = pipes(m)
    times, times_of_map = getattr(source, name), getattr(of_map, name)
    m.manual_seed(0)

    def two_at_a_time():
        first, second = iter(source), iter(source)
        return [next(second), errors(lambda: next(first))]

    def failing():
        def stream(self):
            yield 1
            raise ValueError("boom")

        return list(type("Failing", (d.IterDataPipe,), {"__iter__": stream})())

    found = errors(
        lambda: list(times()), lambda: list(getattr(times(k=5), name)(3)), lambda: [repr(times()).replace(name, ""), str(source)],
        two_at_a_time, failing,
        lambda: [times_of_map()[3], len(times_of_map()), name in dir(source), name in dir(of_map), hasattr(source, "nope")],
        lambda: list(d.DataLoader(kind(range(4)), 2)), lambda: list(d.DataLoader(type(times_of_map())(range(4)), 2, shuffle=True)),
        lambda: list(d.DataLoader(kind(range(4)), 2, num_workers=2)), lambda: len(source), lambda: m.rand(1).item(), lambda: d.MapDataPipe()[0],
        lambda: [d.DataChunk([1, 2]).as_str(" "), list(d.DataChunk([1, 2]).raw_iterator()), d.DFIterDataPipe()._is_dfpipe()],
    )  # fmt: skip
    taken = errors(lambda: d.functional_datapipe(name)(kind))[0]
    return [found, taken[0], taken[1].replace(name, "name")]


@program
def pipes_that_are_not_deterministic(m):
    d = m.utils.data
    sure = d.non_deterministic(lambda k=0: k > 0)(
        type("Sure", (d.IterDataPipe,), {"__init__": lambda self, k=0: None, "__iter__": lambda self: iter([1])})
    )
    unsure = d.non_deterministic(type("Unsure", (d.IterDataPipe,), {"__iter__": lambda self: iter([1])}))
    calls = (lambda: list(unsure()), lambda: list(sure(0)), lambda: list(sure(1)))
    before = errors(*calls)
    with d.guaranteed_datapipes_determinism():
        within = errors(*calls)
    return [before, within, errors(*calls), errors(lambda: d.non_deterministic(3), lambda: d.non_deterministic(int))]


def test_what_pipes_cannot_do_says_what_to_do():
    d = tj.utils.data
    source = pipes(tj)[0]
    with pytest.raises(AttributeError, match=r"decorate it with functional_datapipe\('shuffle'\)"):
        source.shuffle()
    with pytest.raises(NotImplementedError, match="shuffle in your own pipe"):
        d.DataLoader(source, shuffle=True)
    with pytest.raises(NotImplementedError, match="leave it out"):
        d.functional_datapipe("frames", enable_df_api_tracing=True)(type(source))
    with pytest.raises(NotImplementedError, match="check them in `__iter__`"):
        d.runtime_validation(lambda self: None)
