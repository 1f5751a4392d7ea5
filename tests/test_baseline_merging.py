"""What becomes of views and of products with a bias where a program is one list of calls: fewer calls, and the same results."""

from __future__ import annotations

import math
from operator import itemgetter, methodcaller
from types import FunctionType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.runtime.baseline import Forms, Merged, NumPyForm, Part, blocks
from torchgrad_jax.runtime.baseline.carrying import RESHAPED, Added, Batches, Product
from torchgrad_jax.runtime.baseline.loops import LAYER_GRAD
from torchgrad_jax.runtime.baseline.products import of_matrices
from torchgrad_jax.runtime.native import handlers

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("interpreted")]
compiled = not isinstance(blocks.Chain.__call__, FunctionType)


@pytest.fixture(autouse=True, scope="module")
def made_everywhere():
    """Where the core is not compiled nothing is looked for, as it would gain nothing; here it is then."""
    before, blocks.by_numbers = blocks.by_numbers, True
    yield
    blocks.by_numbers = before


def merged(steps, inputs, outputs):
    """A program of (function, operands, result)."""
    return Merged([Part(NumPyForm(Forms(f), True, 0, 0), operands, [result]) for f, operands, result in steps], inputs, outputs)


def by_itself(steps, values):
    values = dict(values)
    for function, operands, result in steps:
        values[result] = function(*[values[o] for o in operands])
    return values


@st.composite
def programs(draw):
    """Views of views of one array, some of them added up: reshaped, turned, with dimensions of size 1 more or less, cut, and reversed."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 1, 2, 3, 4]), min_size=1, max_size=4)))
    shapes, steps = {"x": shape}, []
    for i in range(draw(st.integers(1, 8))):
        of = draw(st.sampled_from(list(shapes)))
        own = shapes[of]
        kind = draw(st.sampled_from(["reshape", "flat", "transpose", "unsqueeze", "cut", "reverse", "sum"]))
        if kind == "reshape":
            new = (*own[::-1],)
            step = methodcaller("reshape", new)
        elif kind == "flat":
            new = (math.prod(own),)
            step = lambda a: a.reshape(-1)  # noqa: E731 - as a program has it
        elif kind == "transpose":
            order = tuple(draw(st.permutations(range(len(own)))))
            new = tuple([own[d] for d in order])
            step = methodcaller("transpose", order)
        elif kind == "unsqueeze":
            new = (1, *own)
            step = lambda a: a[None]  # noqa: E731
        elif kind == "cut":
            new = (max(own[0] - 1, 1), *own[1:])
            step = itemgetter(slice(new[0]))
        elif kind == "reverse":
            new = own
            step = lambda a: a[::-1]  # noqa: E731
        else:
            new = own
            step = lambda a: a + 1  # noqa: E731
        shapes[f"v{i}"] = new
        steps.append((step, [of], f"v{i}"))
    outputs = draw(st.lists(st.sampled_from(list(shapes)[1:]), min_size=1, max_size=3, unique=True))
    return shape, steps, outputs, draw(st.booleans()), draw(st.booleans())


@settings(max_examples=300, deadline=None)
@given(programs())
def test_views_of_views(given):
    """Wherever the first array lies, at the run at which the program is looked at and at later ones."""
    shape, steps, outputs, strided, strided_later = given
    program = merged(steps, ["x"], outputs)
    for turned in (strided, strided_later, not strided_later):
        x = (
            np.arange(math.prod(shape), dtype=np.float32).reshape(shape[::-1]).T
            if turned
            else np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
        )
        before = x.copy()
        expected = by_itself(steps, {"x": x})
        for found, name in zip(program([x]), outputs, strict=True):
            assert found.shape == expected[name].shape
            np.testing.assert_array_equal(found, expected[name])
        np.testing.assert_array_equal(x, before)


def test_views_that_give_all_elements_are_one_call():
    """And what nobody reads is not made."""
    steps = [
        (lambda a: a * 2, ["x"], "y"), (lambda a: a.reshape(1, 4, 6), ["y"], "a"), (lambda a: a.transpose(1, 0, 2), ["a"], "b"),
        (lambda a: a.reshape(4, 6), ["b"], "c"), (lambda a: a.reshape(2, 12), ["c"], "d"), (lambda a: a.transpose(1, 0), ["d"], "e"),
    ]  # fmt: skip
    program = merged(steps, ["x"], ["e"])
    x = np.arange(24, dtype=np.float32)
    (found,) = program([x])
    np.testing.assert_array_equal(found, (x * 2).reshape(2, 12).T)
    assert program.final and len(program.ready[0]) == 3


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("read_elsewhere", [False, True])
def test_heads_are_multiplied_where_they_lie(dtype, read_elsewhere):
    """Of heads that lie between one another, as attention has them: no copy that has them in one batch, unless it is asked for."""
    product = of_matrices(False, True, np.dtype(dtype))
    heads, flat = methodcaller("transpose", 0, 2, 1, 3), methodcaller("reshape", 6, 5, 4)
    steps = [(heads, ["q"], "a"), (heads, ["k"], "b"), (flat, ["a"], "c"), (flat, ["b"], "d"), (product, ["c", "d"], "s"), (product, ["s", "e"], "t")]
    outputs = ["s", "t", "c"] if read_elsewhere else ["s", "t"]
    program = merged(steps, ["q", "k", "e"], outputs)
    random = np.random.default_rng(0)
    q, k, e = (random.standard_normal(shape).astype(dtype) for shape in ((2, 5, 3, 4), (2, 5, 3, 4), (6, 7, 5)))
    wanted = by_itself(steps, {"q": q, "k": k, "e": e})
    for _ in range(2):
        for name, found in zip(outputs, program([q, k, e]), strict=True):
            assert found.shape == wanted[name].shape and found.dtype == wanted[name].dtype
            np.testing.assert_allclose(found, wanted[name], rtol=1e-5, atol=1e-5)
    if compiled:
        functions = [call[0] for call in program.ready[0]]
        assert sum([type(f) is Batches for f in functions]) == 1 and functions.count(flat) == read_elsewhere


@pytest.mark.parametrize("read_elsewhere", [None, "copy", "turned", "output"])
def test_heads_that_were_one_dimension_for_a_while_are_read_where_they_lie(read_elsewhere):
    """As `nn.MultiheadAttention` has them, whose queries, keys and values are next to each other: none are copied, if nothing else reads the copy."""
    times, batch, heads, width = 16, 8, 4, 16
    product = of_matrices(False, True, np.dtype("f"))
    joined = methodcaller("reshape", times, batch * heads, width)
    turned, apart = methodcaller("transpose", 1, 0, 2), methodcaller("reshape", batch, heads, times, width)
    steps = []
    for i, name in enumerate("qk"):
        cut = itemgetter((..., slice(i * heads * width, (i + 1) * heads * width)))
        steps += [(cut, ["x"], name), (joined, [name], name + "1"), (turned, [name + "1"], name + "2"), (apart, [name + "2"], name + "4")]
    steps.append((product, ["q4", "k4"], "s"))
    if read_elsewhere in ("copy", "turned"):
        steps.append((np.negative, ["q1" if read_elsewhere == "copy" else "q2"], "n"))
    outputs = {None: ["s"], "output": ["s", "q4"]}.get(read_elsewhere, ["s", "n"])
    program = merged(steps, ["x"], outputs)
    x = np.random.default_rng(0).standard_normal((times, batch, 2 * heads * width)).astype("f")
    wanted = by_itself(steps, {"x": x})
    for _ in range(2):
        for name, found in zip(outputs, program([x]), strict=True):
            assert found.shape == wanted[name].shape
            np.testing.assert_allclose(found, wanted[name], rtol=1e-5, atol=1e-5)
    if compiled:
        assert [call[0] for call in program.ready[0]].count(joined) == (read_elsewhere is not None)


def test_batches_that_are_not_multiplied_where_they_lie():
    """Elements that are apart in memory are NumPy's."""
    product = Product(False, True, lambda a, b: np.matmul(a, b.mT))
    turned = np.random.default_rng(0).standard_normal((2, 5, 3, 8)).astype(np.float32)[..., ::2].transpose(0, 2, 1, 3)
    found, flat = Batches(product, (6, 5, 4), (6, 5, 4))(turned, turned), turned.reshape(6, 5, 4)
    np.testing.assert_allclose(found, np.matmul(flat, flat.mT), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not compiled, reason="products are NumPy's then")
@pytest.mark.parametrize("dtype", "fd")
@pytest.mark.parametrize("read_elsewhere", [None, "s1", "p2", "given"])
@pytest.mark.parametrize("shape", [(16, 12), (3, 40)])
def test_products_are_added_to_the_sum_of_others(dtype, read_elsewhere, shape):
    """As gradients of a weight that is used again and again. What is read elsewhere, and what was given, is not written over."""
    product = of_matrices(True, False, np.dtype(dtype))
    random = np.random.default_rng(0)
    m, n = shape
    xs, ys = [random.standard_normal((4, 9, size)).astype(dtype) for size in shape]
    given = random.standard_normal(shape).astype(dtype)
    steps = [(product, [f"x{i}", f"y{i}"], f"p{i}") for i in range(4)]
    steps += [(np.add, ["p0", "p1"], "s1"), (np.add, ["p2", "s1"], "s2"), (np.add, ["s2", "p3"], "s3"), (np.add, ["given", "s3"], "sum")]
    inputs = [*[f"x{i}" for i in range(4)], *[f"y{i}" for i in range(4)], "given"]
    outputs = ["sum", *([] if read_elsewhere is None else [read_elsewhere])]
    program = Merged([Part(NumPyForm(Forms(f, fresh=True), True, 0, 0), operands, [made]) for f, operands, made in steps], inputs, outputs)
    arrays = [*xs, *ys, given]
    wanted = by_itself(steps, zip(inputs, arrays, strict=True))
    before = given.copy()
    for _ in range(3):
        for name, found in zip(outputs, program([*arrays]), strict=True):
            np.testing.assert_array_equal(found, wanted[name])
    np.testing.assert_array_equal(given, before)
    added = [call for call in program.ready[0] if isinstance(getattr(call[0], "__self__", call[0]), Added)]
    assert len(added) == (0 if min(shape) < 9 else {None: 3, "s1": 1, "p2": 1, "given": 3}[read_elsewhere])


def test_a_recurrent_weight_has_the_gradient_of_all_its_uses():
    torch.manual_seed(0)
    w, xs = torch.randn(12, 12, requires_grad=True), torch.randn(7, 10, 12)
    found = []
    for _ in range(6):
        h = torch.zeros(10, 12)
        for x in xs:
            h = torch.tanh(x @ w + h @ w)
        w.grad = None
        h.sum().backward()
        found.append(w.grad.tolist())
    assert all([f == found[0] for f in found])


@pytest.mark.skipif(not compiled, reason="products are NumPy's then")
@pytest.mark.parametrize("bias", [(5,), (1,), (1, 5), (3, 5)])
def test_a_bias_is_added_where_its_product_is_made(bias):
    product, dtype = of_matrices(False, True, np.dtype(np.float32)), np.float32
    random = np.random.default_rng(0)
    x, y, b = (random.standard_normal(shape).astype(dtype) for shape in ((3, 4), (5, 4), bias))
    steps = [(product, ["x", "y"], "p"), (np.add, ["b", "p"], "s"), (np.tanh, ["s"], "t")]
    program = merged(steps, ["x", "y", "b"], ["t"])
    for _ in range(2):
        (found,) = program([x, y, b])
        np.testing.assert_allclose(found, np.tanh(x @ y.T + b), rtol=1e-5, atol=1e-6)
    assert [len(call[5]) for call in program.ready[0] if type(call[0]) is Product] == [3 if bias == (5,) else 2]


@pytest.mark.skipif(not compiled, reason="products are NumPy's then")
@pytest.mark.parametrize(("shape", "bias", "calls"), [((2, 3, 5), (5,), 2), ((3, 2, 5), (5,), 2), ((6, 5, 1), (1,), 3), ((3, 10), (10,), 3)])
def test_a_bias_is_added_to_what_is_looked_at_otherwise(shape, bias, calls):
    """As a recurrent layer's is, to the products of all its steps. The vector comes after the product, too."""
    product = of_matrices(False, True, np.dtype("f"))
    random = np.random.default_rng(0)
    x, y, b = (random.standard_normal(s).astype("f") for s in ((6, 4), (5, 4), bias))
    steps = [
        (product, ["x", "y"], "p"), (lambda a: a.reshape(shape), ["p"], "q"), (np.negative, ["b"], "c"), (np.add, ["q", "c"], "r"),
        (np.exp, ["r"], "s"),
    ]  # fmt: skip
    program = merged(steps, ["x", "y", "b"], ["r", "s"])
    first = program([x, y, b])
    for found, before in zip(program([x, y, b]), first, strict=True):
        assert found.tobytes() == before.tobytes()
    kinds = [call[0] for call in program.ready[0] if type(call[0]) is Product or call[0] is np.add or call[1] == RESHAPED]
    assert len(kinds) == calls


@pytest.mark.skipif(not compiled, reason="products are NumPy's then")
def test_two_biases():
    """The second one is added to the first one's sum: of an affine map, too, which has one of its own."""
    product = of_matrices(False, False, np.dtype(np.float32))
    x, b, c = np.ones((2, 2), np.float32), np.ones(2, np.float32), np.arange(2, dtype=np.float32)
    for first in ([(product, ["x", "x"], "p"), (np.add, ["p", "b"], "s")], [(product, ["x", "x", "b"], "s")]):
        program = merged([*first, (np.add, ["s", "c"], "t")], ["x", "b", "c"], ["t"])
        for _ in range(2):
            np.testing.assert_array_equal(program([x, b, c])[0], x @ x + b + c)
    m, v = torch.nn.Linear(3, 4), torch.ones(4)
    y = torch.ones(2, 3)
    found = [(m(y) + v).tolist() for _ in range(5)]
    assert all([f == found[0] for f in found])


def test_a_product_of_what_is_one_number_again_and_again():
    """As the first state of a recurrent net: no rows or columns lie in one piece, so that it is copied first."""
    product = of_matrices(False, True, np.dtype(np.float32))
    x, y, b = np.broadcast_to(np.float32(2), (3, 4)), np.arange(20, dtype=np.float32).reshape(5, 4), np.ones(5, np.float32)
    for operands, wanted in (((x, y), x @ y.T), ((x, y, b), x @ y.T + b), ((x, y[:, ::2].repeat(2, 1)[:, ::-1]), x @ y[:, ::2].repeat(2, 1).T)):
        np.testing.assert_array_equal(product(*operands) if len(operands) == 2 or compiled else product(*operands[:2]) + b, wanted)


@pytest.mark.skipif(not compiled, reason="products are NumPy's then")
def test_a_view_that_changes_nothing_is_no_step():
    """As a layer has it between its product and its bias: what is read, or wanted, of it is the array itself."""
    product = of_matrices(False, False, np.dtype("f"))
    x, y, b = (np.random.default_rng(0).standard_normal(shape).astype("f") for shape in ((2, 9, 5), (2, 5, 7), (7,)))
    as_it_is = lambda a: a.reshape(2, 9, 7)  # noqa: E731
    steps = [(product, ["x", "y"], "p"), (as_it_is, ["p"], "q"), (np.add, ["q", "b"], "r"), (as_it_is, ["r"], "s"), (np.exp, ["r"], "t")]
    program = merged(steps, ["x", "y", "b"], ["s", "t"])
    first = program([x, y, b])
    for found, before in zip(program([x, y, b]), first, strict=True):
        assert found.tobytes() == before.tobytes()
    assert len(program.ready[0]) == 3


@pytest.mark.skipif(not compiled, reason="products are NumPy's then")
@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize(("left", "right"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("m", "k", "n"), [(12, 7, 9), (40, 300, 70), (3, 5, 9), (9, 5, 2)])
def test_a_transposed_product_is_multiplied_the_other_way_round(m, k, n, left, right, dtype):
    product = of_matrices(left, right, np.dtype(dtype))
    random = np.random.default_rng(0)
    x, y, w = (random.standard_normal(shape).astype(dtype) for shape in ((k, m) if left else (m, k), (n, k) if right else (k, n), (n, m)))
    steps = [(product, ["x", "y"], "p"), (np.transpose, ["p"], "t"), (np.multiply, ["w", "t"], "a"), (np.subtract, ["a", "w"], "s")]
    program = merged(steps, ["x", "y", "w"], ["t", "s"])
    first = program([x, y, w])
    for found, before in zip(program([x, y, w]), first, strict=True):
        if handlers.vector_bits():
            assert found.tobytes() == before.tobytes()
        else:  # BLAS, which may sum otherwise
            np.testing.assert_allclose(found, before, rtol=1e-4, atol=1e-4)
    turned_round = min(m, n) > 8
    assert program([x, y, w])[0].flags.c_contiguous == turned_round
    assert [call[0] for call in program.ready[0] if call[0] is product] == [product] * (not turned_round)


def test_a_product_whose_transpose_is_not_all_that_is_read_stays():
    product = of_matrices(False, False, np.dtype(np.float32))
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    steps = [(product, ["x", "x"], "p"), (np.transpose, ["p"], "t"), (np.subtract, ["p", "t"], "s")]
    for outputs in (["s"], ["p", "s"]):
        program = merged(steps, ["x"], outputs)
        for _ in range(3):
            np.testing.assert_array_equal(program([x])[-1], x @ x - (x @ x).T)


def test_a_product_that_is_read_elsewhere_too_stays():
    product = of_matrices(False, False, np.dtype(np.float32))
    x, b = np.ones((2, 2), np.float32), np.ones(2, np.float32)
    program = merged([(product, ["x", "x"], "p"), (np.add, ["p", "b"], "s")], ["x", "b"], ["p", "s"])
    for _ in range(2):
        p, s = program([x, b])
        assert (p == 2).all() and (s == 3).all()


def test_a_loop_of_such_a_program():
    """An attention of one head, of which nothing is compiled: the same at each turn as at the first."""
    torch.manual_seed(0)
    q, k = torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)
    x, found = torch.randn(1, 3, 8), []
    with torch.no_grad():
        for _ in range(6):
            a, b, c = [z.view(1, 3, 2, 4).transpose(1, 2) for z in q(x).chunk(3, -1)]
            y = (torch.softmax(a @ b.transpose(-2, -1) / 2, -1) @ c).transpose(1, 2).reshape(1, 3, 8)
            found.append(k(y).flatten().tolist())
    assert all([np.allclose(each, found[0], rtol=1e-5, atol=1e-6) for each in found])


@pytest.mark.skipif(not compiled, reason="products are NumPy's then")
@pytest.mark.parametrize("dtype", "fd")
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("looked", [False, True])
@pytest.mark.parametrize(
    "what", ["given", "made before", "read twice", "read elsewhere", "output", "by a chain", "itself", "turned", "another shape"]
)
def test_a_product_is_added_to_a_rest(dtype, biased, looked, what):
    """As residual connections have it. Where the product or what it is added to is needed by itself, or by a chain, it is there, too."""
    product, (samples, times, inner, width) = of_matrices(False, True, np.dtype(dtype)), (4, 16, 24, 80)
    shape = (samples, times, width) if looked else (samples * times, width)
    steps, end = [(product, ["x", "w"], "p")], "p"
    if biased:
        steps, end = [*steps, (np.add, ["p", "b"], "pb")], "pb"
    if looked:
        steps, end = [*steps, (methodcaller("reshape", shape), [end], "l")], "l"
    rest = {"made before": "r1", "by a chain": "r2", "read twice": "r2", "itself": end, "turned": "rt", "another shape": "row"}.get(what, "r")
    before = {"r1": [(np.copy, ["r"], "r1")], "r2": [(np.negative, ["r"], "r2")], "rt": [(methodcaller("transpose"), ["t"], "rt")]}.get(rest, [])
    steps = [*before, *steps, (np.add, [rest, end], "sum")]
    outputs = ["sum"]
    if what == "read twice":
        steps.append((np.cumsum, ["r2"], "other"))
        outputs.append("other")
    if what == "read elsewhere":
        steps.append((np.cumsum, [end], "other"))
        outputs.append("other")
    if what == "output":
        outputs.append(end)
    random = np.random.default_rng(0)
    sizes = {"x": (samples * times, inner), "w": (width, inner), "b": (width,), "r": shape, "t": shape[::-1], "row": (1, width)}
    arrays = {name: random.standard_normal(size).astype(dtype) for name, size in sizes.items()}
    program = merged(steps, list(arrays), outputs)
    wanted = by_itself(steps, arrays)
    for _ in range(3):
        for name, found in zip(outputs, program(list(arrays.values())), strict=True):
            np.testing.assert_array_equal(found, wanted[name])
            assert found.shape == wanted[name].shape
    added = [call for call in program.ready[0] if type(call[0]) is Added]
    assert len(added) == (what in ("given", "made before", "read twice"))


@pytest.mark.skipif(not compiled, reason="rows are NumPy's then")
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_residual_connection_around_a_normalization(affine, where, monkeypatch):
    """What has been added to the normalization's gradient is added by its loop, and the same to the bit."""
    said, by_rows = [], handlers.by_rows
    monkeypatch.setattr(handlers, "by_rows", lambda given, made, how: (said.append(how.tolist()), by_rows(given, made, how))[1])
    torch.manual_seed(0)
    norm, layer = torch.nn.LayerNorm(64, elementwise_affine=affine), torch.nn.Linear(64, 64)
    x = torch.randn(8, 16, 64, requires_grad=True)

    def step():
        x.grad = None
        y = x * 2
        found = y + layer(norm(y)) if where == "before" else norm(y + layer(y))
        (found**3).sum().backward()
        return x.grad.numpy().copy()

    first = step()
    for _ in range(24):
        said.clear()
        last = step()
    np.testing.assert_array_equal(first, last)
    # A layer after the other reads the gradient for its own product: there is nothing to be added to it.
    assert any([how[0] == LAYER_GRAD and how[4] & 4 for how in said]) == (where == "before")
