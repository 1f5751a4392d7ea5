"""`DataLoader` in one process and with workers, against PyTorch's: batches, orders, seeds, errors."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import re
import signal
import sys
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from side_by_side import plain, programs  # noqa: E402

import torchgrad_jax as tj  # noqa: E402
from torchgrad_jax.runtime import modes  # noqa: E402
from torchgrad_jax.utils.data import DataLoader  # noqa: E402
from torchgrad_jax.utils.data._utils import processes, transport  # noqa: E402
from torchgrad_jax.utils.data._utils.pin_memory import pinned  # noqa: E402
from torchgrad_jax.utils.data._utils.worker import WITHOUT_XLA  # noqa: E402

pytestmark = [
    pytest.mark.operators,
    pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork"),
    pytest.mark.filterwarnings("ignore:.*pid.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # where there is one processor
]
program, test_like_pytorch = programs()
# Some of its workers do not end by themselves where XLA has threads, and who drops their iterator, later, waits for so many seconds for each.
torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.5


def errors(*calls):
    found = []
    for call in calls:
        try:
            found.append(plain(call()))
        except Exception as error:
            found.append([type(error).__name__, str(error)])
    return found


def mapped(m, length, get):
    """A dataset of this length, whose samples `get` makes."""
    return type("Mapped", (m.utils.data.Dataset,), {"__len__": lambda self: length, "__getitem__": lambda self, i: get(i)})()


def streamed(m, make, length=None):
    extra = {} if length is None else {"__len__": lambda self: length}
    return type("Streamed", (m.utils.data.IterableDataset,), {"__iter__": lambda self: make(), **extra})()


# ---------------------------------------------------------------------- arguments


@program
def refused(m):
    d = m.utils.data
    ten, endless = d.TensorDataset(m.arange(10)), streamed(m, itertools.count)
    cases = [
        (ten, {"num_workers": -1}), (ten, {"timeout": -1}), (ten, {"prefetch_factor": 2}), (ten, {"num_workers": 1, "prefetch_factor": -1}),
        (ten, {"persistent_workers": True}), (endless, {"shuffle": True}), (endless, {"sampler": [1]}), (endless, {"batch_sampler": [[1]]}),
        (ten, {"sampler": [1], "shuffle": True}), (ten, {"batch_sampler": [[1]], "batch_size": 2}), (ten, {"batch_sampler": [[1]], "shuffle": True}),
        (ten, {"batch_size": None, "drop_last": True}), (ten, {"batch_size": 0}), (ten, {"batch_size": 1.5}), (ten, {"batch_size": True}),
        (ten, {"drop_last": 1}), (ten, {"multiprocessing_context": "spawn"}), (ten, {"num_workers": 1, "multiprocessing_context": "bad"}),
        (ten, {"num_workers": 1, "multiprocessing_context": 3}), ([], {"shuffle": True}),
    ]  # fmt: skip
    found = [e for data, options in cases for e in errors(lambda: d.DataLoader(data, **options))]  # noqa: B023 - called at once
    loader = d.DataLoader(ten)
    found += errors(*[lambda name=name: setattr(loader, name, 3) for name in ("batch_size", "sampler", "drop_last", "dataset", "persistent_workers")])
    return found + errors(lambda: len(d.DataLoader(endless)), lambda: list(d.DataLoader(ten, timeout=3)))


@program
def attributes(m):
    d = m.utils.data
    names = (
        "num_workers prefetch_factor pin_memory pin_memory_device timeout worker_init_fn in_order _dataset_kind batch_size drop_last generator "
        "persistent_workers _iterator multiprocessing_context"
    )
    options = ({}, {"batch_size": None}, {"batch_size": 2, "num_workers": 2}, {"batch_sampler": [[1]]})
    loaders = [d.DataLoader(range(5), **o) for o in options]
    kinds = [[type(loader.sampler).__name__, type(loader.batch_sampler).__name__, loader.collate_fn.__name__, len(loader)] for loader in loaders]
    return [[getattr(loader, name) for name in names.split()] for loader in loaders] + kinds


@program
def warned_of(m):
    d = m.utils.data
    told = streamed(m, lambda: iter(range(5)), 2)
    d.DataLoader(range(5), num_workers=1000)
    found = list(d.DataLoader(range(4), 2, pin_memory=True))
    loader = d.DataLoader(streamed(m, lambda: iter(range(5)), 5), 2)
    return [found, len(loader), list(loader)] if told is None else [found, len(loader), list(loader), list(d.DataLoader(told, 2))]


# ---------------------------------------------------------------------- batches and orders


@program
def batches(m):
    d = m.utils.data
    m.manual_seed(0)
    both = d.TensorDataset(m.randn(7, 2), m.arange(7))
    parts = d.random_split(both, [3, 4])
    keyed = type("Keyed", (d.Dataset,), {"__len__": lambda self: 4, "__getitems__": lambda self, keys: [("b", k) for k in keys]})()
    loaders = [
        d.DataLoader(both, 3), d.DataLoader(both, 3, drop_last=True), d.DataLoader(both, 3, shuffle=True), d.DataLoader(both, None, shuffle=True),
        d.DataLoader(parts[1], 2, shuffle=True), d.DataLoader(d.Subset(parts[0], [2, 0]), 2), d.DataLoader(keyed, 3), d.DataLoader({0: 5, 1: 6}, 2),
        d.DataLoader([[1, 2], [3, 4]], None), d.DataLoader(both, batch_sampler=[[0, 5], [-1]]), d.DataLoader(both, 2, sampler=[3, 1, 1]),
        d.DataLoader(range(3), 2, collate_fn=lambda batch: batch), d.DataLoader(both, 2, num_workers=2, shuffle=True),
        d.DataLoader(keyed, 3, num_workers=1), d.DataLoader(d.TensorDataset(m.ones(2, 2, requires_grad=True)), 2),
    ]  # fmt: skip
    found = [[plain(list(loader)), len(loader)] for loader in loaders]
    return [*found, *errors(lambda: list(d.DataLoader(both, sampler=[9]))), m.rand(1).item()]


@program
def orders_and_what_is_left_in_the_generators(m):
    d = m.utils.data
    found = []
    for options in ({}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}):
        for given in (False, True):
            m.manual_seed(3)
            generator = m.Generator().manual_seed(1) if given else None
            loader = d.DataLoader(list(range(6)), 3, shuffle=True, generator=generator, **options)
            for _ in range(2):
                passed = iter(loader)
                begun = m.initial_seed(), m.get_rng_state().sum().item()
                found.append([begun, [x.tolist() for x in passed], m.get_rng_state().sum().item()])
                if generator is not None:
                    found.append(generator.get_state().sum().item())
    return found


@program
def streams(m):
    d = m.utils.data

    def shard():
        info = d.get_worker_info()
        return iter(range(5) if info is None else range(info.id * 10, info.id * 10 + 3 + info.id))

    options = [{"num_workers": n, "batch_size": size, "drop_last": bool(last)} for n in (0, 2) for size in (None, 2) for last in (0, size)]
    found = [list(d.DataLoader(streamed(m, shard), **o)) for o in options]
    lasting = d.DataLoader(streamed(m, shard), 2, num_workers=2, persistent_workers=True)
    return [found, list(lasting), list(lasting)]


@program
def told_lengths_of_streams(m):
    d = m.utils.data
    found = []
    for workers in (0, 2):
        data = streamed(m, lambda: iter(range(3)), 2)
        type(data).__repr__ = lambda self: "stream"
        loader = d.DataLoader(data, 2, num_workers=workers)
        found += [len(loader), list(loader)]
    return found


@program
def out_of_order(m):
    """What is slow does not keep back the others."""
    d = m.utils.data

    def slow(i):
        if i == 0:
            time.sleep(0.3)
        return i

    return [x.item() for x in d.DataLoader(mapped(m, 6, slow), num_workers=2, in_order=False)]


@program
def seeds_of_workers(m):
    d = m.utils.data

    def drawn(i):
        info = d.get_worker_info()
        about = [info.id, info.num_workers, info.seed, len(info.dataset), m.initial_seed(), m.get_num_threads()]
        return [about, random.random(), int(np.random.randint(1 << 30)), m.rand(()).item()]

    m.manual_seed(0)
    found = [list(d.DataLoader(mapped(m, 4, drawn), None, num_workers=2)) for _ in range(2)]
    lasting = d.DataLoader(mapped(m, 2, drawn), None, num_workers=2, persistent_workers=True, generator=m.Generator().manual_seed(5))
    return [found, list(lasting), list(lasting), d.get_worker_info()]


# ---------------------------------------------------------------------- errors


class TwoArguments(Exception):
    def __init__(self, a, b):
        super().__init__(a)


def told(loader):
    """What a loader gives, errors among it: without the lines of files, which are different ones."""
    passed, found = iter(loader), []
    for _ in range(9):
        try:
            found.append(plain(next(passed)))
        except StopIteration:
            break
        except Exception as error:
            lines = str(error).splitlines()
            found.append([type(error).__name__, lines[0], lines[1:2], lines[-1], "in __getitem__" in str(error), repr(error.__cause__)])
    return found


def raising(error, at=1):
    def get(i):
        if i == at:
            raise error
        return i

    return get


@program
def errors_of_workers(m):
    d = m.utils.data
    raised = [ValueError("bad item"), KeyError("zz"), TwoArguments(1, 2), StopIteration("x"), UnicodeDecodeError("utf8", b"a", 0, 1, "why")]
    return [told(d.DataLoader(mapped(m, 5, raising(error)), num_workers=2)) for error in raised]


def test_errors_before_the_first_sample():
    """As PyTorch's, whose worker then takes 5 seconds to end."""

    def fail(*_):
        raise RuntimeError("not ready")

    def stream():
        yield 1
        raise ValueError("dried up")

    (of_init, *_), (of_iter, *_), (first, of_stream, *_) = [
        told(loader) for loader in (
            DataLoader([1, 2], num_workers=1, worker_init_fn=fail), DataLoader(streamed(tj, fail), num_workers=1),
            DataLoader(streamed(tj, stream), None, num_workers=1),
        )
    ]  # fmt: skip
    begin = "Caught {} in DataLoader worker process 0."
    assert first == 1 and of_init[:2] == of_iter[:2] == ["RuntimeError", begin.format("RuntimeError")]
    assert of_init[3] == of_iter[3] == "RuntimeError: not ready"
    assert of_stream[:2] == ["ValueError", begin.format("ValueError")] and of_stream[3] == "ValueError: dried up"


def killed_by(number):
    return lambda i: os.kill(os.getpid(), number) if i == 1 else i


_EXITED = "exited unexpectedly with exit code {}. Details are lost due to multiprocessing. Rerunning with num_workers=0 may give better error trace."


@pytest.mark.parametrize("end, why", [
    (killed_by(signal.SIGKILL), "is killed by signal: Killed. "), (lambda i: os._exit(5) if i == 1 else i, _EXITED.format(5)),
    (lambda i: sys.exit(3) if i == 1 else i, _EXITED.format(3)),
])  # fmt: skip
def test_a_worker_that_is_gone_is_told_as_by_pytorch(end, why):
    """PyTorch's own is not asked: it takes 5 seconds to end the other worker."""
    with pytest.raises(RuntimeError, match=r"^DataLoader worker \(pid\(s\) \d+\) exited unexpectedly$") as raised:
        list(DataLoader(mapped(tj, 4, end), num_workers=2))
    assert re.fullmatch(rf"DataLoader worker \(pid \d+\) {re.escape(why)}", str(raised.value.__cause__))


def test_a_batch_that_takes_too_long_is_told_as_by_pytorch(monkeypatch):
    monkeypatch.setattr(processes, "GRACE", 0.1)
    loader = DataLoader(mapped(tj, 2, lambda i: time.sleep(60)), num_workers=1, timeout=0.2)
    with pytest.raises(RuntimeError, match="^DataLoader timed out after 0.2 seconds$"):
        next(iter(loader))


def test_what_cannot_be_pickled_says_so():
    """PyTorch's loader waits for ever."""
    loader = DataLoader([lambda: 0] * 2, num_workers=1, collate_fn=lambda batch: batch)
    with pytest.raises((AttributeError, RuntimeError), match="in DataLoader worker process 0.\n(.|\n)*[Cc]an't pickle"):
        list(loader)
    graph = DataLoader(mapped(tj, 2, lambda i: tj.ones(1, requires_grad=True) * 2), None, num_workers=1)
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor which requires_grad"):
        list(graph)


# ---------------------------------------------------------------------- what a worker computes with


def test_a_worker_computes_by_numpy_and_starts_no_xla():
    weights = tj.linspace(0, 1, 400).reshape(20, 20)
    for _ in range(30):
        weights = (weights @ weights).sin()  # XLA runs here
    weights.sum().item()

    def sample(i):
        assert modes.without_xla == WITHOUT_XLA
        x = tj.nn.functional.conv2d(tj.ones(1, 1, 8, 8) * i, tj.ones(2, 1, 3, 3)).relu().flip(-1)
        return x, weights[i] * 2, tj.runtime.counters.ran, tj.cuda.is_available(), tj.randn(1 << 20).mean()

    here = [sample_of(weights, i) for i in range(4)]
    for i, (x, row, _ran, cuda, _mean) in enumerate(DataLoader(mapped(tj, 4, sample), None, num_workers=2)):
        assert x.tolist() == here[i][0] and np.allclose(row.tolist(), here[i][1]) and not cuda


def sample_of(weights, i):
    x = tj.nn.functional.conv2d(tj.ones(1, 1, 8, 8) * i, tj.ones(2, 1, 3, 3)).relu().flip(-1)
    return x.tolist(), (weights[i] * 2).tolist()


def test_what_has_no_form_for_numpy_says_what_to_do():
    loader = DataLoader(mapped(tj, 1, lambda i: tj.zeros(0, 0).det()), None, num_workers=1)
    with pytest.raises(RuntimeError, match="cannot run [a-z_]*det here: it has no form for NumPy.*Do it to the batch, in the loop over"):
        list(loader)


def test_random_decisions_of_a_dataset_do_not_become_part_of_the_training_step():
    data = mapped(tj, 8, lambda i: (tj.ones(3) * i).flip(0) if i % 3 else tj.ones(3) + i)
    w = tj.ones(3, requires_grad=True)
    programs = set()
    for x in DataLoader(data, 4):
        assert x._content().array is not None
        (x * w).sum().backward()
        programs.add(w.grad.sum().item())
    assert len(programs) == 2


# ---------------------------------------------------------------------- transport


def test_tensors_come_as_they_were():
    kinds = [getattr(tj, name) for name in ("float32", "bfloat16", "float16", "complex64", "int8", "bool", "uint16")]
    sent = [tj.ones(shape, dtype=dtype) for dtype in kinds for shape in ((), (0,), (3,), (100, 1000))]
    for t, found in zip(sent, DataLoader(sent, None, num_workers=1), strict=True):
        assert found.dtype is t.dtype and found.shape == t.shape and (found == 1).all()
        found.zero_()  # is nobody else's


def test_objects_of_all_kinds_come_as_they_were():
    big = np.arange(300_000.0)
    leaf = tj.ones(5, requires_grad=True)
    leaf.note = "mine"
    objects = ["text" * 50_000, {"a": [big, big[::2], big.reshape(2, -1).T]}, leaf, tj.nn.Parameter(tj.ones(20_000)), [tj.ones(9000)] * 600, None]
    text, arrays, got, parameter, many, nothing = DataLoader(objects, None, num_workers=2, collate_fn=lambda x: x)
    assert text == objects[0] and nothing is None and len(many) == 600 and many[-1].sum() == 9000
    assert all(np.array_equal(a, b) for a, b in zip(arrays["a"], objects[1]["a"], strict=True))
    arrays["a"][0][0] = 5  # can be written to
    assert got.requires_grad and got.note == "mine" and type(parameter) is tj.nn.Parameter and parameter.requires_grad


def test_large_arrays_are_shared_and_small_ones_are_not():
    data, buffers = transport.dumped((tj.ones(100_000), np.ones(100_000), tj.ones(10)))
    assert [b.nbytes for b in buffers] == [400_000, 800_000] and data.nbytes < 2_000


def test_many_tasks_and_large_keys_do_not_block():
    keys = [list(range(3000))] * 300
    loader = DataLoader(range(3000), batch_sampler=keys, num_workers=1, prefetch_factor=300, collate_fn=lambda batch: "x" * 9000)
    assert sum(len(batch) for batch in loader) == 300 * 9000


@pytest.mark.parametrize("mode", ["fused", "eager"])
def test_memory_is_not_used_again_while_anything_refers_to_it(mode):
    """In eager mode XLA is given each batch, which may go on to use its memory."""
    loader = DataLoader(mapped(tj, 24, lambda i: np.full(20_000, float(i))), None, num_workers=1)
    kept = []
    with tj.runtime.execution_mode(mode):
        for i, x in enumerate(loader):
            of = (lambda x: x, lambda x: x.view(2, -1), lambda x: x[5:], lambda x: x.numpy(), lambda x: x + 0, lambda x: tj.stack([x, x]).t())[i % 6]
            kept.append(of(x))
            if i % 6 in (1, 2, 5):
                kept[-1].sum().item()
            del x
    assert [float(k.min()) for k in kept] == [float(k.max()) for k in kept] == [float(i) for i in range(24)]


def test_what_has_pin_memory_is_asked_where_there_is_an_accelerator():
    class Own(list):
        def pin_memory(self):
            return ["pinned", *self]

    batch = {"a": (1, Own([2])), "b": [Own([3]), "text"], "c": tj.ones(1)}
    found = pinned(batch)
    assert found["a"] == [1, ["pinned", 2]] and found["b"] == [["pinned", 3], "text"] and found["c"] is batch["c"]


def test_memory_that_is_dropped_is_used_again_and_not_kept_for_ever():
    lent, borrowed = transport._Lent(), transport._Borrowed()
    data = memoryview(np.arange(5000.0)).cast("B")

    def sent():
        files = {}
        number, size = lent.put(data, files)
        for new, file in files.items():
            borrowed.map(new, file)
        return number, borrowed.read(number, size)

    first, array = sent()
    assert np.array_equal(array.view(float), np.arange(5000.0))
    second, other = sent()
    assert first != second
    del array
    lent.returned([borrowed.done.popleft()])
    assert sent()[0] == first and not lent.surplus()
    many = [sent() for _ in range(40)]
    numbers = [number for number, _ in many]
    del many
    lent.returned(list(borrowed.done))
    borrowed.forget(lent.surplus())
    assert len(lent._pieces) == len(borrowed._pieces) < 20 and numbers and other is not None
