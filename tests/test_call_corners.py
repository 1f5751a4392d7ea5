"""Calls at the edge of what is allowed, and beyond: results, or the class and the first line of errors, as PyTorch's."""

import math
import warnings

import numpy as np
import pytest

from tests.side_by_side import error_of, like_pytorch

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.operators


def first_line(call):
    raised = error_of(call)
    return raised and (raised[0], raised[1].partition("\n")[0])


def test_indices_of_other_kinds():
    keys = [
        np.bool_(True), np.bool_(False), slice(1.0, 2), slice("a", None), slice(None, None, 1.5), slice(np.float64(1), None), np.array(True),
        np.float64(1), 2**70, -(2**70), slice(np.int64(1), None), slice(True, None), 1.5, {1}, object, np.int64(1), True, None,
    ]  # fmt: skip

    def program(m):
        x = m.arange(4.0)
        found = []
        for key in keys:
            got = []
            found.append((first_line(lambda key=key, got=got: got.append(x[key])), got))
            y = x.clone()
            found.append((first_line(lambda key=key, y=y: y.__setitem__(key, 9)), y))
        return found

    like_pytorch(program)()


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "bool", "float32"])
@pytest.mark.filterwarnings("ignore")
def test_index_tensors_by_dtype(dtype):
    def program(m):
        index, x, got = m.tensor([1, 0, 1, 0], dtype=getattr(m, dtype)), m.arange(4.0), []
        y, z = x.clone(), x.clone()
        whole = m.tensor(1, dtype=getattr(m, dtype))
        raised = [
            first_line(lambda: got.append(x[index])), first_line(lambda: y.__setitem__(index, 9)), first_line(lambda: got.append(x[whole])),
            first_line(lambda: z.__setitem__(index, m.tensor([5.0, 6.0]))), first_line(lambda: x.index_put((index,), m.tensor(5.0))),
        ]  # fmt: skip
        return raised, got, y, z

    like_pytorch(program)()


CALLS = [
    lambda m: m.tensor(3.0).chunk(2), lambda m: m.tensor(3.0).chunk(0), lambda m: m.tensor(3.0).unflatten(0, (1, 1)),
    lambda m: m.arange(4.0).unflatten(0, ()), lambda m: m.arange(4.0).unflatten(0, (7,)), lambda m: m.arange(4.0).unflatten(0, (-1, -1)),
    lambda m: m.arange(4.0).unflatten(0, (2, -1)), lambda m: m.arange(4.0).flip(), lambda m: m.arange(4.0).flip(()),
    lambda m: m.arange(4.0).prod([0, 1]), lambda m: m.arange(4.0).prod((0,)), lambda m: m.arange(4.0).tensor_split(m.tensor(2.0)),
    lambda m: m.arange(4.0).tensor_split(m.tensor([1.0])), lambda m: m.arange(4.0).tensor_split(m.tensor([[1]])),
    lambda m: m.arange(4.0).tensor_split(m.tensor([1, 3])), lambda m: m.ones(2).resize_(2**62, 8), lambda m: m.ones(2).resize_(2**62),
    lambda m: m.Size([1]) + [2], lambda m: m.Size([1]) + 2, lambda m: [1] + m.Size([2]), lambda m: 1 + m.Size([2]), lambda m: m.Size([1]) * 2.0,
    lambda m: [type(s).__name__ for s in (m.Size([1]) + (2,), (2,) + m.Size([1]), m.Size([1]) * 2, 2 * m.Size([1]))],
    lambda m: m.ones([1] * 65).sum([0, 1]),
    lambda m: m.tensor(3.0).adjoint(), lambda m: m.tensor(3j).mH, lambda m: m.tensor(3j).H,
    lambda m: m.nn.functional.embedding_bag(m.tensor([0]), m.ones(3, 2), m.tensor([0]), padding_idx=5),
    lambda m: m.nn.functional.embedding_bag(m.tensor([0]), m.ones(3, 2), m.tensor([0]), padding_idx=-4),
    lambda m: m.nn.functional.embedding_bag(m.tensor([0]), m.ones(3, 2), m.tensor([0]), padding_idx=-3),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(CALLS)))
@pytest.mark.filterwarnings("ignore")
def test_a_call(place):
    def program(m):
        got = []
        return first_line(lambda: got.append(CALLS[place](m))), got

    like_pytorch(program)()


@pytest.mark.parametrize("part", ["real", "imag"])
@pytest.mark.parametrize("value", [3, lambda m: m.tensor([1.0, 2.0]), lambda m: m.tensor(3.0), lambda m: m.tensor([1.0, 2.0], dtype=m.float64)])
def test_a_part_of_complex_numbers_can_be_assigned(part, value):
    def program(m):
        x = m.zeros(2, dtype=m.complex64, requires_grad=True)
        y = x + (1 + 1j)
        given = value(m) if callable(value) else value
        setattr(y, part, given)
        y.abs().sum().backward()
        z = m.zeros(2, dtype=m.complex64)
        z.imag += 1
        real = m.zeros(2)
        return y, y._version, x.grad, z, first_line(lambda: setattr(real, part, given)), real

    like_pytorch(program)()


@pytest.mark.parametrize("size", [(2,), (1,), (2, 2), (3,), (0,), (2, 3)])
@pytest.mark.parametrize("view", [lambda x: x[:, 1], lambda x: x.t(), lambda x: x[1:, :2], lambda x: x.t()[1:], lambda x: x[1], lambda x: x])
def test_a_view_takes_another_size_from_its_beginning_in_memory_on(view, size):
    def program(m):
        x = m.arange(6.0).view(2, 3)
        y = view(x)
        fits = y.storage_offset() + math.prod(size) <= 6
        y.resize_(size)
        if fits:
            y.add_(10)
        # What lies beyond the memory is not initialised.
        return (y, x, y.stride(), y.storage_offset()) if fits else y.shape

    like_pytorch(program)()


def test_memory_taken_over_with_its_history():
    def program(m):
        found = []
        for make in (lambda w: w, lambda w: w * 2, lambda w: w.detach()):
            x, w = m.ones(3), m.ones(2, requires_grad=True)
            x.set_(make(w))
            found.append((x.detach(), x.requires_grad, x._version, x.requires_grad and first_line(x.sum().backward)))
        y = m.ones(3)
        y.set_(y)
        z = m.ones(3, requires_grad=True)
        return found, y, y._version, first_line(lambda: z.set_(m.ones(2))), first_line(lambda: z.view(3).set_(m.ones(2)))

    like_pytorch(program)()


def test_what_is_public_is_public_in_pytorch_too():
    import torchgrad_jax as tj

    own = {
        "calling", "cli", "comparing", "core", "declaration", "determinism", "explain", "from_jax", "functions", "interop", "lifting",
        "load_ipython_extension", "memory", "namespace", "operators", "runtime", "saving", "to_jax", "viz",
    }  # fmt: skip
    for ours, theirs in ((tj, torch), (tj.Tensor, torch.Tensor), (tj.linalg, torch.linalg), (tj.special, torch.special), (tj.fft, torch.fft)):
        assert {name for name in dir(ours) if not name.startswith("_") and not hasattr(theirs, name)} <= own


def test_where_of_tensors_and_numbers_that_are_alike_and_of_others():
    def program(m):
        c = m.tensor([[True, False], [False, True]])
        f = m.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        numbers = (0.0, 1, -1, True, 2.5, float("nan"), -math.inf, 300, 6e4, 1e9, 2**63)
        found = []
        for x in (f, f.half(), f.bfloat16(), f.double(), f.long(), f.to(m.uint8), m.tensor(1.0), c, f.t(), f[0]):
            for n in (*numbers, f, f.double(), f.detach()[:, :1]):
                for pair in ((x, n), (n, x)):
                    if n is numbers[-1] and not x.is_floating_point() or x.dtype == m.uint8 and n == 300:
                        continue  # an error, which names the dtype otherwise
                    made = m.where(c, *pair)
                    found += [str(made.dtype), made.detach().double().numpy(), made.requires_grad]
                    if made.requires_grad:
                        found.append(m.autograd.grad(made.double().sum(), f)[0].numpy())
        return found

    like_pytorch(program)


@pytest.mark.parametrize("made", ["leaf", "view of a leaf", "result"])
def test_set_of_another_dtype_is_told_before_what_may_not_be_written_to(made):
    @like_pytorch
    def program(m):
        x = m.ones(2, requires_grad=True)
        {"leaf": lambda: x, "view of a leaf": lambda: x[:1], "result": lambda: x * 1}[made]().set_(m.ones(2, dtype=m.float64))

    program()


def test_a_tensor_of_one_element_is_the_size_of_splits():
    def program(m):
        x, found = m.arange(6).view(3, 2), []
        for by in (m.tensor(2), m.tensor([1]), m.tensor(2.0), [m.tensor(2), 1], m.tensor(-1), m.tensor([1, 2])):
            for split in (x.split, lambda by: m.split(x, by, dim=m.tensor(1))):
                found.append(first_line(lambda by=by, split=split: found.append(split(by))))
        return found

    like_pytorch(program)()


@like_pytorch
def test_what_is_no_integer_is_no_size(m):
    given = [
        m.tensor([1, 2]), [m.tensor(3), 2], [m.tensor(3.0), 2], [2.0], [np.int64(2), True], "ab", [m.tensor([1, 2])], [None], 3, (), range(3),
        m.Size([4]),
    ]  # fmt: skip
    found = []

    def sized(sizes):
        size = m.Size(sizes)
        found.append((type(size).__name__, repr(size), [type(n).__name__ for n in size], size.numel()))

    x = m.arange(4.0)
    calls = [
        lambda: m.split(x, [1, 1.0, 2]), lambda: m.split_with_sizes(x, [1, 3.0]), lambda: x.unflatten(0, (2, 2.0)), lambda: m.atleast_1d(3),
        lambda: m.atleast_2d("a"), lambda: m.atleast_3d([x, 3]), lambda: m.atleast_1d(x, 3),
    ]  # fmt: skip
    return [first_line(lambda sizes=sizes: sized(sizes)) for sizes in given], found, [first_line(call) for call in calls]


@like_pytorch
def test_what_is_told_of_tensors_without_dimensions_and_of_padding(m):
    before = m.is_warn_always_enabled()
    m.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            x = m.tensor(3j)
            x.adjoint(), x.mH, x.H, x.T, x.mT
            m.nn.functional.conv1d(m.ones(1, 1, 8), m.ones(1, 1, 4), padding="same")
    finally:
        m.set_warn_always(before)
    return [[w.category.__name__, str(w.message).partition(" (Triggered internally")[0]] for w in caught]


@pytest.mark.parametrize("kind", [list, tuple])
def test_sequences_that_have_no_truth_value(kind):
    """A list of tensors that calculates element by element, as some packages have one, refuses to be a condition."""

    class Several(kind):
        def __bool__(self):
            raise RuntimeError("ambiguous")

    def program(m):
        x = m.arange(6.0).reshape(2, 3)
        sizes, pair = Several([1, 2]), Several([x, x + 1])
        return [
            m._foreach_div(pair, pair), m._foreach_add(pair, Several([1.0, 2.0])), m._foreach_norm(pair),
            x.view(Several([3, 2])), x.sum(Several([0, 1])), x.split(sizes, 1), m.zeros(sizes), m.full(sizes, 2.0),
            m.tensor(Several([1.0, 2.0])), m.tensor(Several([Several([1.0]), Several([2.0])])), m.nn.functional.pad(x, sizes),
            m.gradient(x, dim=Several([0, 1]), spacing=Several([1.0, 2.0])), m.where(m.tensor(Several([True, False, True])), x, -x),
        ]  # fmt: skip

    like_pytorch(program)()


DATA = (
    [1, 2], [1.5, 2], [0.1, -0.7, 1e-50], [True, False], [True, 1], [1, 2.5], [], [[1, 2], [3, 4]], [[0.1], [2]], [1e40, 1.0], [1e17, -1e18],
    [[1], [2, 3]], [[], []], [[1, True]], [[0.5, math.nan]], [[-1, 1e40]], [[1], (2,)],
    [math.nan, 1.0], [1.0, math.nan], [1.0, math.inf], [2**62, 1], [16_777_217, -3], [2**63], (1, 2), (0.1, 3.0), [1j, 2], [1.9, -1.9], [300, 1],
)  # fmt: skip


@pytest.mark.parametrize("default", ["float32", "float64", "float16"])
@pytest.mark.parametrize("dtype", [None, "float32", "float64", "int64", "int32", "uint8", "bool", "float16", "complex64"])
def test_tensors_of_lists(dtype, default):
    def made(m, data):
        try:
            t = m.tensor(data) if dtype is None else m.tensor(data, dtype=getattr(m, dtype))
        except (RuntimeError, ValueError, TypeError, OverflowError) as error:
            return type(error)
        return str(t.dtype), tuple(t.shape), t.tolist()

    @like_pytorch
    def program(m):
        m.set_default_dtype(getattr(m, default))
        try:
            return [repr(made(m, data)) for data in DATA if default != "float16" or 1j not in data]  # there is no complex32
        finally:
            m.set_default_dtype(m.float32)

    program()


@like_pytorch
def test_tensors_of_arrays_of_numpy(m):
    array = np.arange(6.0).reshape(2, 3)
    given = (array, array.T, array[:, ::2], array.astype(np.int32), array > 2, np.zeros((0, 3)), np.array(1.5), array.astype(np.complex64))
    made = [m.from_numpy(a) for a in given]
    errors = [error_of(lambda bad=bad: m.from_numpy(bad)) for bad in (array[::-1], array.astype(object), array.astype("U1"), [1.0])]
    return [(str(t.dtype), tuple(t.shape), t.tolist()) for t in made], [e and e[0] for e in errors]
