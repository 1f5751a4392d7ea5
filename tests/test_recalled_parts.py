"""Calls that come to several operations are recalled as these: the same results, views and graphs as when the function is called by itself."""

from __future__ import annotations

import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.calling import entries
from torchgrad_jax.core.hot import Called

F = tj.nn.functional
# Each is called with a of (2, 3, 4), b of (4, 4), c of (2, 4, 3), d of (2, 2, 3, 4), v of 4. Those that are several operations with a graph.
CALLS = (
    "a @ b", "a @ v", "v @ b", "a @ c", "d @ c[:, :, 0:3]", "d @ d.transpose(-1, -2)", "b @ c", "a @ b.t()", "c.transpose(1, 2) @ b",
    "tj.einsum('bij,jk->bik', a, b)", "tj.einsum('bhqd,bhkd->bhqk', d, d)", "tj.einsum('bqhd,bkhd->bhqk', d, d)", "tj.einsum('bij,bjk->bk', a, c)",
    "tj.tensordot(a, b, dims=1)", "tj.outer(v, v)", "tj.kron(b, b[:2])", "tj.diff(b)",
    "d.transpose(1, 2).reshape(2, 3, 8)", "d.permute(0, 2, 1, 3).flatten(2)",
    "F.normalize(a, dim=-1)", "F.cosine_similarity(a, a.flip(0), dim=-1)", "F.pairwise_distance(b, b + 1)", "F.rms_norm(a, (4,))",
    "F.kl_div(b, b.detach().abs(), reduction='batchmean')", "tj.matmul(d, b)",
)  # fmt: skip

# One operation of what does not lie in rows, whose result may or may not lie so.
ALONE = (
    "c.transpose(1, 2).contiguous()", "b.t().sum(0)", "b.t().softmax(-1)", "b.t().clone()", "b.t() * b", "b.t().flip(0)",
    "a.permute(2, 0, 1).double()", "b.t().cumsum(0)", "c.mT.norm(dim=1)", "d.permute(0, 2, 1, 3).clone(memory_format=tj.contiguous_format)",
    "tj.cat([b.t(), b], 1)", "b.t().max(1)[0]",
)  # fmt: skip


def operands(seed, tracked, dtype=tj.float32):
    random = np.random.default_rng(seed)
    shapes = ((2, 3, 4), (4, 4), (2, 4, 3), (2, 2, 3, 4), (4,))
    return [tj.tensor(random.normal(size=s), dtype=dtype).requires_grad_(bool(tracked >> i & 1)) for i, s in enumerate(shapes)]


def called(name):
    code = compile(name, name, "eval")
    return lambda given: eval(code, {"tj": tj, "F": F}, dict(zip("abcdv", given, strict=True)))


def nodes(node, leaves):
    """The graph behind a node, all of it: names, what is saved, and at which leaves it ends."""
    if node is None:
        return None
    if hasattr(node, "variable"):
        return [i for i, t in enumerate(leaves) if t is node.variable]
    saved = {n: _saved(getattr(node, n)) for n in dir(node) if n.startswith("_saved_")}
    return node.name(), saved, [(nodes(n, leaves), nr) for n, nr in node.next_functions]


def _saved(value):
    return (value.shape, value.stride(), value.tolist()) if isinstance(value, tj.Tensor) else str(value)


def described(found, leaves):
    base = None if found._base is None else (found._base.shape, found._base.stride())
    return found.dtype, found.shape, found.stride(), found.storage_offset(), base, nodes(found.grad_fn, leaves), found.tolist()


@pytest.fixture(autouse=True)
def _forgotten():
    entries.forget_all()


def with_parts():
    return [e for reference in entries._all if (calls := reference()) is not None for e in calls.kinds() if e.parts is not None]


@pytest.mark.parametrize("tracked", [0, 31, 1, 10, 20])
@pytest.mark.parametrize("name", CALLS + ALONE)
def test_what_is_recalled_is_what_the_function_gives(interpreted, name, tracked):
    call = called(name)
    second = operands(2, tracked)
    wanted = described(call(second), second)
    entries.forget_all()
    for seed in (1, 3, 4):
        call(operands(seed, tracked))
    assert described(call(second), second) == wanted


@pytest.mark.operators  # of programs: in eager mode there are none
@pytest.mark.parametrize("name", (*CALLS, "c.transpose(1, 2).contiguous()", "b.t().sum(0)"))
def test_they_are_learned(interpreted, name):
    call = called(name)
    call(operands(1, 31))
    found = with_parts()
    assert found
    assert all(type(part.called) in (Called, type(None)) for e in found for part in e.parts)
    call(operands(2, 31))
    assert set(map(id, with_parts())) == set(map(id, found))


@pytest.mark.parametrize("name", [name if i % 3 == 0 else pytest.param(name, marks=pytest.mark.operators) for i, name in enumerate(CALLS)])
def test_gradients_are_those_of_the_function(interpreted, name):
    call, grads = called(name), []
    for recalled in (False, True):
        for seed in (1, 2, 3) if recalled else (3,):
            given = operands(seed, 31, tj.float64)
            found = tj.autograd.grad((call(given) ** 3).sum(), given, create_graph=True, allow_unused=True)
            again = tj.autograd.grad(sum([(g**2).sum() for g in found if g is not None]), given, allow_unused=True)
            grads.append([None if g is None else g.tolist() for g in (*found, *again)])
        entries.forget_all()
    assert grads[-1] == grads[0]


def test_writes_to_what_was_saved_as_a_view_are_noticed():
    for _ in range(3):
        a, b = operands(1, 2)[:2]
        y = a @ b  # the rows of `a` are saved, a view of it
        a.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_a_result_may_be_written_to():
    for _ in range(3):
        a, b = operands(1, 3)[:2]
        y = a @ b
        y.mul_(2)
        y.sum().backward()
        assert [y.grad_fn.name(), y.grad_fn.next_functions[0][0].name()] == ["MulBackward0", "UnsafeViewBackward0"]
        np.testing.assert_allclose(a.grad.numpy(), np.broadcast_to(2 * b.detach().numpy().sum(1), (2, 3, 4)), rtol=1e-5)


def test_parts_that_are_not_followed_stay_so():
    """What a function leaves out of the graph is left out again."""
    for _ in range(3):
        a, b = operands(1, 3)[:2]
        with tj.no_grad():
            assert not (a @ b).requires_grad
        assert (a @ b).requires_grad
        assert (a.detach() @ b).grad_fn.next_functions[0][0].next_functions[0][0] is None


def test_the_same_tensor_twice_and_two_tensors_are_told_apart():
    d, e = operands(1, 31)[3], operands(2, 31)[3]
    for _ in range(3):
        np.testing.assert_allclose((d @ d.mT).tolist(), (d.detach().numpy() @ d.detach().numpy().swapaxes(-1, -2)).tolist(), rtol=1e-5)
        np.testing.assert_allclose((d @ e.mT).tolist(), (d.detach().numpy() @ e.detach().numpy().swapaxes(-1, -2)).tolist(), rtol=1e-5)


def test_in_transforms_and_with_tangents_the_function_is_asked():
    a, b = operands(1, 0)[:2]
    for _ in range(3):
        a @ b
    found = tj.func.vmap(lambda x: x @ b)(a)
    np.testing.assert_allclose(found.tolist(), (a @ b).tolist(), rtol=1e-5)
    with tj.autograd.forward_ad.dual_level():
        dual = tj.autograd.forward_ad.make_dual(a, tj.ones_like(a))
        tangent = tj.autograd.forward_ad.unpack_dual(dual @ b).tangent
    np.testing.assert_allclose(tangent.tolist(), (tj.ones_like(a) @ b).tolist(), rtol=1e-5)
    _, tangent = tj.func.jvp(lambda x: x @ b, (a,), (tj.ones_like(a),))
    np.testing.assert_allclose(tangent.tolist(), (tj.ones_like(a) @ b).tolist(), rtol=1e-5)


@pytest.mark.operators
def test_calls_that_are_never_clear_are_looked_at_a_few_times_only(monkeypatch):
    from torchgrad_jax.calling import learning

    looks = []
    read_off = learning._read_off
    monkeypatch.setattr(learning, "_read_off", lambda *args: looks.append(1) or read_off(*args))
    a = tj.randn(40, 40)
    for _ in range(50):
        tj.logdet(a)  # asks for signs
        tj.sin(a)
    assert len(looks) <= 10
