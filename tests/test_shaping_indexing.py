"""Joining, rearranging, gathering, scattering: every operator against PyTorch on the same arrays."""

import numpy as np
import pytest

import torchgrad_jax

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.operators


def to_numpy(x):
    return np.asarray(x.detach().resolve_conj() if hasattr(x, "resolve_conj") else x.detach().numpy())


def leaves(library, arrays):
    made = [library.tensor(a) for a in arrays]
    return [t.requires_grad_() if t.is_floating_point() or t.is_complex() else t for t in made]


def flat(out):
    return [x for o in out for x in flat(o)] if isinstance(out, (tuple, list)) else [out]


def equal(mine, theirs, what, tolerance):
    a, b = to_numpy(mine), to_numpy(theirs)
    assert a.shape == b.shape and str(a.dtype) == str(b.dtype), f"{what}: {a.dtype}{a.shape} and {b.dtype}{b.shape}"
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=what)


def run(library, function, arrays, weights, second):
    """The results, the gradients and the second gradients of a weighted sum of the results."""
    inputs = leaves(library, arrays)
    outs = [o for o in flat(function(library, *inputs)) if hasattr(o, "grad_fn")]
    wanted = [t for t in inputs if t.requires_grad]
    carrying = [o for o in outs if o.requires_grad]
    if not weights:
        weights.extend(np.random.default_rng(1).standard_normal(o.shape) for o in carrying)
    if not carrying or not wanted:
        return outs, [], []
    total = weighted(library, carrying, weights)
    first = list(library.autograd.grad(total, wanted, create_graph=second, allow_unused=True))
    if not second:
        return outs, first, []
    kept = [(g, i) for i, g in enumerate(first) if g is not None and g.requires_grad]
    if not kept:
        return outs, first, []
    again = weighted(library, [g for g, _ in kept], [np.random.default_rng(i).standard_normal(g.shape) for g, i in kept])
    return outs, first, list(library.autograd.grad(again, wanted, allow_unused=True))


def weighted(library, outs, weights):
    total = 0
    for o, w in zip(outs, weights, strict=True):
        w = library.tensor(np.asarray(w)).to(library.float64 if not o.is_complex() else o.dtype)
        product = (o * w).sum()
        total = total + ((product * (1 - 0.5j)).real if o.is_complex() else product)
    return total


def compare(mine, theirs, function, arrays, second=True, names=True, tolerance=1e-9):
    weights = []
    expected = run(theirs, function, arrays, weights, second)
    found = run(mine, function, arrays, weights, second)
    assert len(found[0]) == len(expected[0])
    for a, b in zip(found[0], expected[0], strict=True):
        equal(a, b, "value", tolerance)
        assert a.requires_grad == b.requires_grad
        if names:
            assert (a.grad_fn and a.grad_fn.name()) == (b.grad_fn and b.grad_fn.name())
    for what, got, want in (("gradient", found[1], expected[1]), ("second gradient", found[2], expected[2])):
        for a, b in zip(got, want, strict=False):
            if a is None or b is None:
                assert (a is None or not np.any(to_numpy(a))) and (b is None or not np.any(to_numpy(b))), what
            else:
                equal(a, b, what, tolerance * 100)


def compare_inplace(mine, theirs, function, arrays):
    def written(library, *inputs):
        target = inputs[0] * 1
        made = function(library, target, *inputs[1:])
        return target, made

    compare(mine, theirs, written, arrays, second=False)


def raised(library, function, arrays):
    """What the function raises, in full."""
    try:
        for o in flat(function(library, *[library.tensor(a) for a in arrays])):
            to_numpy(o)
    except Exception as error:  # noqa: BLE001 - any is compared
        return error
    pytest.fail(f"{library.__name__} raised nothing")


def compare_errors(mine, theirs, function, arrays):
    expected = raised(theirs, function, arrays)
    found = raised(mine, function, arrays)
    assert str(found) == str(expected)
    base = type(expected) if type(expected).__name__ != "_LinAlgError" else mine.linalg.LinAlgError
    assert type(found) is base


rng = np.random.default_rng(0)


def r(*shape):
    return rng.standard_normal(shape)


M, V, C, Z = r(3, 4), r(5), r(2, 3, 4), np.asarray(1.5)
SQ = r(3, 3)
I2 = np.array([0, 2])
G = np.array([[0, 1, 2, 0], [2, 1, 0, 0]])
MASK = np.array([[True, False, True, True], [False, False, True, False], [True, True, False, False]])

OPERATORS = {
    "cat": (lambda t, a, b: t.cat([a, b], 1), M, r(3, 2)),
    "cat negative": (lambda t, a, b: t.cat((a, b), dim=-1), M, r(3, 2)),
    "cat promotes": (lambda t, a, b: t.cat([a, b], 0), M, r(1, 4).astype(np.float32)),
    "cat integers": (lambda t, a, b: t.cat([a, b], 0), M, np.arange(4).reshape(1, 4)),
    "cat empty vector": (lambda t, a: t.cat([t.zeros(0).double(), a], 0), M),
    "concat": (lambda t, a, b: t.concat([a, b]), V, V),
    "stack": (lambda t, a, b: t.stack([a, b], -1), M, r(3, 4)),
    "hstack": (lambda t, a, b: t.hstack([a, b]), M, r(3, 2)),
    "hstack vectors": (lambda t, a, b: t.hstack((a, b)), V, r(2)),
    "vstack": (lambda t, a, b: t.vstack([a, b]), V, r(2, 5)),
    "row_stack": (lambda t, a: t.row_stack([a, a]), V),
    "dstack": (lambda t, a, b: t.dstack([a, b]), M, r(3, 4)),
    "dstack vectors": (lambda t, a, b: t.dstack([a, b]), V, r(5)),
    "column_stack": (lambda t, a, b: t.column_stack([a, b]), r(3), M),
    "block_diag": (lambda t, a, b, c: t.block_diag(a, b, c), M, V, Z),
    "atleast_1d": (lambda t, a: t.atleast_1d(a), Z),
    "atleast_2d": (lambda t, a, b: t.atleast_2d(a, b), Z, V),
    "atleast_3d": (lambda t, a, b, c: t.atleast_3d((a, b, c)), Z, V, M),
    "split by a tensor": (lambda t, a: a.split(t.tensor(2), 1), M),
    "tensor_split": (lambda t, a: a.tensor_split(3), V),
    "tensor_split places": (lambda t, a: t.tensor_split(a, (1, 3), dim=1), M),
    "hsplit": (lambda t, a: a.hsplit(2), M),
    "vsplit": (lambda t, a: a.vsplit([1]), M),
    "dsplit": (lambda t, a: a.dsplit(2), C),
    "flip": (lambda t, a: a.flip(0, -1), C),
    "flip tuple": (lambda t, a: t.flip(a, (1,)), C),
    "fliplr": (lambda t, a: a.fliplr(), M),
    "flipud": (lambda t, a: a.flipud(), V),
    "roll": (lambda t, a: a.roll(2), M),
    "roll dims": (lambda t, a: t.roll(a, (1, -2), (0, 1)), M),
    "rot90": (lambda t, a: a.rot90(1), M),
    "rot90 back": (lambda t, a: a.rot90(-1, (2, 0)), C),
    "repeat": (lambda t, a: a.repeat(2, 1, 3), M),
    "repeat none": (lambda t, a: a.repeat(0, 1), M),
    "tile": (lambda t, a: a.tile((2,)), M),
    "repeat_interleave": (lambda t, a: a.repeat_interleave(2, 1), M),
    "repeat_interleave flat": (lambda t, a: a.repeat_interleave(3), M),
    "repeat_interleave counts": (lambda t, a: a.repeat_interleave(t.tensor([1, 0, 2]), dim=0), M),
    "tril": (lambda t, a: a.tril(), C),
    "tril diagonal": (lambda t, a: t.tril(a, diagonal=-1), M),
    "triu": (lambda t, a: a.triu(1), M),
    "diag matrix": (lambda t, a: a.diag(1), M),
    "diag vector": (lambda t, a: t.diag(a, -1), V),
    "diag_embed": (lambda t, a: a.diag_embed(1, 0, -1), M),
    "diag_embed below": (lambda t, a: t.diag_embed(a, -2), M),
    "diagflat": (lambda t, a: a.diagflat(1), r(2, 2)),
    "trace": (lambda t, a: a.trace(), M),
    "meshgrid": (lambda t, a, b: t.meshgrid(a, b, indexing="ij"), V, r(3)),
    "meshgrid xy": (lambda t, a, b, c: t.meshgrid([a, b, c], indexing="xy"), V, r(3), Z),
    "broadcast_tensors": (lambda t, a, b: t.broadcast_tensors(a, b), r(3, 1), r(4)),
    "broadcast_to": (lambda t, a: a.broadcast_to((2, 5)), V),
    "ravel": (lambda t, a: a.ravel(), M),
    "ravel transposed": (lambda t, a: a.t().ravel(), M),
    "sum_to_size": (lambda t, a: a.sum_to_size(1, 4), C),
    "sum_to_size keep": (lambda t, a: a.sum_to_size(2, 1, 4), C),
    "cartesian_prod": (lambda t, a, b: t.cartesian_prod(a, b), V, r(2)),
    "combinations": (lambda t, a: t.combinations(a, 3), V),
    "combinations replacement": (lambda t, a: t.combinations(a, with_replacement=True), V),
    "take": (lambda t, a: a.take(t.tensor([[0, 5], [-1, 5]])), M),
    "gather": (lambda t, a: a.gather(0, t.tensor(G)), M),
    "gather narrow": (lambda t, a: t.gather(a, 1, t.tensor(G[:, :2])), M),
    "gather int32": (lambda t, a: t.gather(a, 0, t.tensor(G.astype(np.int32))), M),
    "gather batch": (lambda t, a: a.gather(-1, t.tensor([[[3], [0], [1]]])), C),
    "gather scalar": (lambda t, a: a.gather(0, t.tensor([0])), Z),
    "gather computed index": (lambda t, a: a.gather(0, t.tensor(G) + 0), M),
    "take_along_dim": (lambda t, a: a.take_along_dim(t.tensor([[0, 2, -1]]), 1), M),
    "take_along_dim flat": (lambda t, a: t.take_along_dim(a, t.tensor([1, 7, 7])), M),
    "index_select": (lambda t, a: a.index_select(1, t.tensor(I2)), C),
    "index_select twice": (lambda t, a: a.index_select(0, t.tensor([1, 1, 0])), M),
    "index_select computed": (lambda t, a: a.index_select(0, t.tensor([1, 1, 0]) + 0), M),
    "index_select 0-dim": (lambda t, a: a.index_select(0, t.tensor(1)), V),
    "index_select scalar": (lambda t, a: a.index_select(0, t.tensor([0])), Z),
    "index_add": (lambda t, a, b: a.index_add(0, t.tensor([2, 2]), b), M, r(2, 4)),
    "index_add alpha": (lambda t, a, b: a.index_add(1, t.tensor(I2), b, alpha=2.5), M, r(3, 2)),
    "index_copy": (lambda t, a, b: a.index_copy(1, t.tensor(I2), b), M, r(3, 2)),
    "index_fill": (lambda t, a: a.index_fill(1, t.tensor([0, -1]), 2.0), M),
    "index_fill tensor": (lambda t, a, b: a.index_fill(0, t.tensor(I2), b), M, Z),
    "scatter": (lambda t, a, b: a.scatter(0, t.tensor([[0, 1, 2, 0]]), b), M, r(1, 4)),
    "scatter value": (lambda t, a: a.scatter(1, t.tensor(G[:, :2]), 1.5), M),
    "scatter value keyword": (lambda t, a: a.scatter(1, t.tensor(G[:, :2]), value=2), M),
    "scatter_add": (lambda t, a, b: a.scatter_add(0, t.tensor(G), b), M, r(2, 4)),
    "scatter_add computed": (lambda t, a, b: a.scatter_add(0, t.tensor(G) * 1, b), M, r(2, 4)),
    **{
        f"scatter_reduce {how} {include}": (
            lambda t, a, b, how=how, include=include: a.scatter_reduce(0, t.tensor(G), b, how, include_self=include), M, r(2, 4)
        )
        for how in ("sum", "prod", "mean", "amax", "amin")
        for include in (True, False)
    },
    **{
        f"index_reduce {how} {include}": (
            lambda t, a, b, how=how, include=include: a.index_reduce(0, t.tensor([0, 2, 0]), b, how, include_self=include), M, r(3, 4)
        )
        for how in ("prod", "mean", "amax", "amin")
        for include in (True, False)
    },
    "scatter_reduce ties": (lambda t, a, b: a.scatter_reduce(0, t.tensor(G * 0), b, "amax"), np.ones((3, 4)), np.ones((2, 4))),
    "scatter_reduce prod zero": (lambda t, a, b: a.scatter_reduce(0, t.tensor(G * 0), b, "prod"), np.ones((3, 4)), np.eye(2, 4)),
    "masked_scatter": (lambda t, a, b: a.masked_scatter(t.tensor(MASK), b), M, r(9)),
    "masked_scatter broadcast": (lambda t, a, b: a.masked_scatter(t.tensor(MASK[0]), b), M, r(3, 3)),
    "put": (lambda t, a, b: a.put(t.tensor([0, -1]), b), M, r(2)),
    "put accumulate": (lambda t, a, b: t.put(a, t.tensor([[3, 3]]), b, accumulate=True), M, r(2)),
    "index_put": (lambda t, a, b: a.index_put((t.tensor(I2),), b), M, r(4)),
    "index_put accumulate": (lambda t, a, b: t.index_put(a, (t.tensor([1, 1]), t.tensor([0, 0])), b, accumulate=True), M, r(2)),
    "index_put mask": (lambda t, a, b: a.index_put((t.tensor(MASK),), b), M, Z),
    "narrow_copy": (lambda t, a: a.narrow_copy(1, 1, 2), M),
    "select_scatter": (lambda t, a, b: a.select_scatter(b, 1, -1), M, r(3)),
    "slice_scatter": (lambda t, a, b: t.slice_scatter(a, b, 1, 0, 4, 2), M, r(3, 2)),
    "diagonal_scatter": (lambda t, a, b: a.diagonal_scatter(b, 1), M, r(3)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name):
    function, *arrays = OPERATORS[name]
    compare(torchgrad_jax, torch, function, arrays, second="_reduce" in name and "zero" not in name and "mean" not in name)


INTEGERS = {
    "cat": lambda t: t.cat([t.tensor([1, 2]), t.tensor([1.5])]),
    "cat bool": lambda t: t.cat([t.tensor([True]), t.tensor([2])]),
    "trace": lambda t: t.tensor([[1, 2], [3, 4]], dtype=t.int32).trace(),
    "tril_indices": lambda t: t.tril_indices(3, 4, 1),
    "triu_indices": lambda t: t.triu_indices(4, 3, -1, dtype=t.int32),
    "tril bool": lambda t: t.tensor([[True, True], [True, True]]).tril(),
    "repeat_interleave alone": lambda t: t.repeat_interleave(t.tensor([1, 0, 2])),
    "scatter_reduce mean": lambda t: t.tensor([5, 1]).scatter_reduce(0, t.tensor([0, 0]), t.tensor([3, 1]), "mean"),
    "scatter_reduce amax": lambda t: t.tensor([5, 1]).scatter_reduce(0, t.tensor([0, 0]), t.tensor([3, 9]), "amax", include_self=False),
    "index_add": lambda t: t.tensor([1, 2, 3]).index_add(0, t.tensor([1, 1]), t.tensor([10, 20]), alpha=2),
    "index_add bool": lambda t: t.tensor([True, False]).index_add(0, t.tensor([1, 1]), t.tensor([False, True])),
    "scatter reduce=add": lambda t: t.zeros(3).scatter(0, t.tensor([0, 0]), t.tensor([1.0, 2.0]), reduce="add"),
    "scatter reduce=multiply": lambda t: t.ones(3).scatter(0, t.tensor([0, 0]), 3.0, reduce="multiply"),
    "gather empty": lambda t: t.ones(3, 4).gather(0, t.zeros(0, 4, dtype=t.int64)),
    "gather empty vector": lambda t: t.ones(3, 4).gather(0, t.zeros(0, dtype=t.int64)),
    "index_select empty": lambda t: t.ones(3, 4).index_select(0, t.zeros(0, dtype=t.int64)),
    "roll empty": lambda t: t.ones(0, 4).roll(1, 0),
    "flip empty": lambda t: t.ones(0, 4).flip(0),
    "combinations none": lambda t: t.combinations(t.tensor([1, 2, 3]), 0),
    "half": lambda t: t.ones(2, 2, dtype=t.float16).index_add(0, t.tensor([0, 0]), t.ones(2, 2, dtype=t.float16)),
    "bfloat16": lambda t: t.ones(2, 2, dtype=t.bfloat16).gather(0, t.tensor([[1, 0]])).float(),
    "complex": lambda t: t.tensor([1 + 2j, 3.0]).flip(0).tile(2),
    "tril complex": lambda t: t.tensor([[1 + 2j, 3.0], [1, 1]]).tril(-1),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize("name", INTEGERS)
def test_without_gradient(name):
    compare(torchgrad_jax, torch, lambda t: INTEGERS[name](t), [])


INPLACE = {
    "tril_": (lambda t, a: a.tril_(-1), M),
    "triu_": (lambda t, a: a.triu_(), M),
    "index_add_": (lambda t, a, b: a.index_add_(0, t.tensor(I2), b, alpha=3), M, r(2, 4)),
    "index_copy_": (lambda t, a, b: a.index_copy_(0, t.tensor(I2), b), M, r(2, 4)),
    "index_fill_": (lambda t, a: a.index_fill_(0, t.tensor(I2), -1), M),
    "scatter_": (lambda t, a, b: a.scatter_(0, t.tensor([[0, 1, 2, 0]]), b), M, r(1, 4)),
    "scatter_ value": (lambda t, a: a.scatter_(1, t.tensor([[1], [0], [3]]), 1), M),
    "scatter_add_": (lambda t, a, b: a.scatter_add_(0, t.tensor(G), b), M, r(2, 4)),
    "scatter_reduce_": (lambda t, a, b: a.scatter_reduce_(0, t.tensor(G), b, "amin"), M, r(2, 4)),
    "masked_scatter_": (lambda t, a, b: a.masked_scatter_(t.tensor(MASK), b), M, r(9)),
    "put_": (lambda t, a, b: a.put_(t.tensor([0, 3]), b), M, r(2)),
    "index_put_": (lambda t, a, b: a.index_put_((t.tensor(I2),), b), M, r(2, 4)),
    "view": (lambda t, a, b: a[:, 1:].index_add_(0, t.tensor(I2), b), M, r(2, 3)),
}


@pytest.mark.parametrize("name", INPLACE)
def test_in_place(name):
    function, *arrays = INPLACE[name]
    compare_inplace(torchgrad_jax, torch, function, arrays)


def _long(t, *values):
    return t.tensor(list(values))


ERRORS = {
    "cat none": lambda t, a, v: t.cat([]),
    "cat dim": lambda t, a, v: t.cat([a, a], 5),
    "cat sizes": lambda t, a, v: t.cat([a, t.ones(2, 2)]),
    "cat ndim": lambda t, a, v: t.cat([a, v]),
    "cat 0-dim": lambda t, a, v: t.cat([t.tensor(1.0), t.tensor(2.0)]),
    "cat number": lambda t, a, v: t.cat([a, 1]),
    "cat tensor": lambda t, a, v: t.cat(a),
    "stack none": lambda t, a, v: t.stack([]),
    "stack sizes": lambda t, a, v: t.stack([a, v]),
    "hstack none": lambda t, a, v: t.hstack([]),
    "flip twice": lambda t, a, v: a.flip(0, 0),
    "flip range": lambda t, a, v: a.flip(3),
    "fliplr": lambda t, a, v: v.fliplr(),
    "flipud": lambda t, a, v: t.tensor(1.0).flipud(),
    "roll": lambda t, a, v: a.roll((1, 2)),
    "roll dims": lambda t, a, v: a.roll((1, 2), (0,)),
    "roll none": lambda t, a, v: a.roll(()),
    "rot90 vector": lambda t, a, v: v.rot90(),
    "rot90 same": lambda t, a, v: a.rot90(1, (0, 0)),
    "rot90 one": lambda t, a, v: a.rot90(1, (0,)),
    "rot90 range": lambda t, a, v: a.rot90(1, (0, 4)),
    "repeat few": lambda t, a, v: a.repeat(2),
    "repeat negative": lambda t, a, v: a.repeat(2, -1),
    "repeat_interleave counts": lambda t, a, v: a.repeat_interleave(_long(t, 1, 2), 0),
    "repeat_interleave negative": lambda t, a, v: a.repeat_interleave(-1, 0),
    "repeat_interleave negative count": lambda t, a, v: v.repeat_interleave(_long(t, 1, -2, 1)),
    "repeat_interleave float": lambda t, a, v: v.repeat_interleave(t.tensor([1.0, 2, 1])),
    "repeat_interleave matrix": lambda t, a, v: v.repeat_interleave(t.tensor([[1, 2, 1]])),
    "tril": lambda t, a, v: v.tril(),
    "diag": lambda t, a, v: t.ones(2, 2, 2).diag(),
    "diag_embed": lambda t, a, v: a.diag_embed(0, 1, 1),
    "trace": lambda t, a, v: v.trace(),
    "block_diag": lambda t, a, v: t.block_diag(t.ones(2, 2, 2)),
    "meshgrid dtypes": lambda t, a, v: t.meshgrid(v, v.double(), indexing="ij"),
    "meshgrid indexing": lambda t, a, v: t.meshgrid(v, indexing="zz"),
    "tensor_split": lambda t, a, v: a.tensor_split(0),
    "tensor_split 0-dim": lambda t, a, v: t.tensor(1.0).tensor_split(2),
    "vsplit vector": lambda t, a, v: v.vsplit(2),
    "vsplit": lambda t, a, v: a.vsplit(2),
    "hsplit": lambda t, a, v: a.hsplit(2),
    "dsplit": lambda t, a, v: a.dsplit(2),
    "take": lambda t, a, v: a.take(_long(t, 9)),
    "take negative": lambda t, a, v: a.take(_long(t, -10)),
    "take float": lambda t, a, v: a.take(t.tensor([1.0])),
    "take computed": lambda t, a, v: a.take(_long(t, 9) + 0),
    "take_along_dim ndim": lambda t, a, v: a.take_along_dim(_long(t, 1), 0),
    "take_along_dim float": lambda t, a, v: a.take_along_dim(t.tensor([[1.0]]), 0),
    "gather": lambda t, a, v: a.gather(0, t.tensor([[3]])),
    "gather negative": lambda t, a, v: a.gather(0, t.tensor([[-1]])),
    "gather computed": lambda t, a, v: a.gather(1, t.tensor([[2]]) + 2),
    "gather ndim": lambda t, a, v: a.gather(0, _long(t, 1)),
    "gather size": lambda t, a, v: a.gather(0, t.zeros(2, 4, dtype=t.int64)),
    "gather float": lambda t, a, v: a.gather(0, t.tensor([[1.0]])),
    "gather dim": lambda t, a, v: a.gather(5, t.tensor([[1]])),
    "index_select": lambda t, a, v: a.index_select(0, _long(t, 3)),
    "index_select computed": lambda t, a, v: a.index_select(0, _long(t, 3) * 1),
    "index_select matrix": lambda t, a, v: a.index_select(0, t.tensor([[1]])),
    "index_select float": lambda t, a, v: a.index_select(0, t.tensor([1.0])),
    "index_add": lambda t, a, v: a.index_add(0, _long(t, 3), a[:1]),
    "index_add count": lambda t, a, v: a.index_add(0, _long(t, 0, 1), a),
    "index_add shape": lambda t, a, v: a.index_add(0, _long(t, 0, 1), a[:2, :2]),
    "index_add dtype": lambda t, a, v: a.index_add(0, _long(t, 0, 1), a[:2].double()),
    "index_add float": lambda t, a, v: a.index_add(0, t.tensor([1.0]), a[:1]),
    "index_copy": lambda t, a, v: a.index_copy(0, _long(t, 3), a[:1]),
    "index_copy count": lambda t, a, v: a.index_copy(0, _long(t, 0, 1), a),
    "index_copy shape": lambda t, a, v: a.index_copy(0, _long(t, 0, 1), a[:2, :2]),
    "index_copy dtype": lambda t, a, v: a.index_copy(0, _long(t, 0, 1), a[:2].double()),
    "index_copy int32": lambda t, a, v: a.index_copy(0, _long(t, 0, 1).int(), a[:2]),
    "index_fill": lambda t, a, v: a.index_fill(0, _long(t, 3), 1.0),
    "index_fill negative": lambda t, a, v: a.index_fill(0, _long(t, -4), 1.0),
    "index_fill matrix": lambda t, a, v: a.index_fill(0, t.tensor([[1]]), 1.0),
    "index_fill value": lambda t, a, v: a.index_fill(0, _long(t, 1), v),
    "scatter": lambda t, a, v: a.scatter(0, t.tensor([[3]]), 1.0),
    "scatter negative": lambda t, a, v: a.scatter(0, t.tensor([[-1]]), 1.0),
    "scatter computed": lambda t, a, v: a.scatter(0, t.tensor([[3]]) + 0, 1.0),
    "scatter src size": lambda t, a, v: a.scatter(0, t.zeros(2, 3, dtype=t.int64), a[:1]),
    "scatter size": lambda t, a, v: a.scatter(0, t.zeros(3, 4, dtype=t.int64), 1.0),
    "scatter ndim": lambda t, a, v: a.scatter(0, _long(t, 0), 1.0),
    "scatter dtype": lambda t, a, v: a.scatter(0, t.tensor([[0]]), a.double()),
    "scatter reduce": lambda t, a, v: a.scatter(0, t.tensor([[0]]), 1.0, reduce="foo"),
    "scatter float": lambda t, a, v: a.scatter(0, t.tensor([[0.0]]), 1.0),
    "scatter_add": lambda t, a, v: a.scatter_add(0, t.tensor([[3]]), a[:1, :1]),
    "scatter_reduce": lambda t, a, v: a.scatter_reduce(0, t.tensor([[0]]), a, "foo"),
    "masked_scatter few": lambda t, a, v: a.masked_scatter(a == a, v),
    "masked_scatter dtype": lambda t, a, v: a.masked_scatter(a == a, a.double()),
    "masked_scatter mask": lambda t, a, v: a.masked_scatter(a, a),
    "put": lambda t, a, v: a.put(_long(t, 9), v[:1]),
    "put count": lambda t, a, v: a.put(_long(t, 0, 1), v),
    "put dtype": lambda t, a, v: a.put(_long(t, 0), v[:1].double()),
    "select_scatter": lambda t, a, v: a.select_scatter(v[:2], 0, 0),
    "select_scatter index": lambda t, a, v: a.select_scatter(v, 0, 5),
    "slice_scatter": lambda t, a, v: a.slice_scatter(a[:1], 0, 0, 2),
    "diagonal_scatter": lambda t, a, v: a.diagonal_scatter(v[:2]),
    "sum_to_size": lambda t, a, v: a.sum_to_size(2, 3),
    "narrow_copy": lambda t, a, v: a.narrow_copy(0, 2, 2),
    "broadcast_to": lambda t, a, v: a.broadcast_to((2, 3)),
    "broadcast_tensors": lambda t, a, v: t.broadcast_tensors(a, v[:2]),
    "cartesian_prod": lambda t, a, v: t.cartesian_prod(a),
    "combinations": lambda t, a, v: t.combinations(a),
    "combinations negative": lambda t, a, v: t.combinations(v, -1),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_error(name):
    compare_errors(torchgrad_jax, torch, ERRORS[name], [SQ.astype(np.float32), SQ[0].astype(np.float32)])


def test_meshgrid_asks_for_indexing(monkeypatch):
    monkeypatch.setattr("torchgrad_jax.runtime.user_code._warned", set())
    with pytest.warns(UserWarning, match="it will be required to pass the indexing argument"):
        torchgrad_jax.meshgrid(torchgrad_jax.ones(2), torchgrad_jax.ones(3))


def test_a_split_is_a_view():
    for t in (torchgrad_jax, torch):
        base = t.arange(6.0)
        base.tensor_split(3)[1].fill_(9.0)
        assert base.tolist() == [0, 1, 9, 9, 4, 5]
