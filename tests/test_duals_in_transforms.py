"""A user's dual level inside of a transform, and Functions whose arguments belong to a graph outside of one."""

import pytest

import torchgrad_jax as ours
from torchgrad_jax.lifting.basis import mapped
from torchgrad_jax.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

pytestmark = [pytest.mark.operators, pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")]


def _cube(m):
    class Cube(m.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x * x * g

        @staticmethod
        def jvp(ctx, t):
            (x,) = ctx.saved_tensors
            return 3 * x * x * t

    return Cube


def _both_graphs(m, result, y):
    return [result, *m.autograd.grad(result.sum(), y, retain_graph=True)]


def duals_with_a_captured_tensor(m):
    y = m.tensor([2.0, 3.0], requires_grad=True)

    def f(x):
        with m.autograd.forward_ad.dual_level():
            dual = m.autograd.forward_ad.make_dual(x, y * 2)
            primal, tangent = m.autograd.forward_ad.unpack_dual(dual.sin() * y + y * 3)
            return (tangent * x).sum() + primal.sum()

    return _both_graphs(m, m.func.grad(f)(m.tensor([1.0, 2.0])), y)


def duals_of_a_captured_tensor(m):
    y = m.tensor([2.0, 3.0], requires_grad=True)

    def f(x):
        with m.autograd.forward_ad.dual_level():
            dual = m.autograd.forward_ad.make_dual(y, x)
            memory = m.zeros(2)
            memory[0] = (dual * dual * x)[1]
            return m.autograd.forward_ad.unpack_dual(memory).tangent.sum() + m.autograd.forward_ad.unpack_dual(dual[1:].exp()).tangent.sum()

    return _both_graphs(m, m.func.grad(f)(m.tensor([1.0, 2.0])), y)


def functions_of_duals(m):
    y = m.tensor([2.0, 3.0], requires_grad=True)

    def f(x):
        with m.autograd.forward_ad.dual_level():
            dual = m.autograd.forward_ad.make_dual(y, x * y)
            return m.autograd.forward_ad.unpack_dual(_cube(m).apply(dual) * x).tangent.sum()

    return _both_graphs(m, m.func.grad(f)(m.tensor([1.0, 2.0])), y)


def tangents_switched_off(m):
    def f(x):
        with m.autograd.forward_ad.dual_level():
            dual = m.autograd.forward_ad.make_dual(x, x * 2)
            with m.autograd.forward_ad._set_fwd_grad_enabled(False):
                hidden = dual * dual
            return (m.autograd.forward_ad.unpack_dual(hidden * dual).tangent).sum()

    return [m.func.grad(f)(m.tensor([1.0, 2.0]))]


def functions_in_vjp(m):
    y = m.tensor([2.0, 3.0], requires_grad=True)
    return _both_graphs(m, m.func.vjp(lambda x: _cube(m).apply(x * y), m.tensor([1.0, 2.0]))[0], y)


def functions_in_jvp(m):
    y = m.tensor([2.0, 3.0], requires_grad=True)
    primal, tangent = m.func.jvp(lambda x: _cube(m).apply(x * y), (m.tensor([1.0, 2.0]),), (m.tensor([3.0, 1.0]),))
    return _both_graphs(m, primal, y) + _both_graphs(m, tangent, y)


def functions_in_two_gradients(m):
    y = m.tensor([2.0, 3.0], requires_grad=True)
    inner = m.func.grad(lambda x: (_cube(m).apply(x * y) + x * y).sum())
    return _both_graphs(m, m.func.grad(lambda x: (inner(x) * y).sum())(m.tensor([1.0, 2.0])), y)


def functions_without_a_graph(m):
    y = m.tensor([2.0, 3.0], requires_grad=True)

    def f(x):
        with m.no_grad():
            still = _cube(m).apply(x * y)
        return (still * x).sum()

    return [m.func.grad(f)(m.tensor([1.0, 2.0]))]


PROGRAMS = [
    duals_with_a_captured_tensor,
    duals_of_a_captured_tensor,
    functions_of_duals,
    tangents_switched_off,
    functions_in_vjp,
    functions_in_jvp,
    functions_in_two_gradients,
    functions_without_a_graph,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_belongs_to_a_graph_outside_is_differentiated_there_as_by_pytorch(program):
    torch = pytest.importorskip("torch")
    found, wanted = program(ours), program(torch)
    for g, w in zip(found, wanted, strict=True):
        assert g.detach().tolist() == pytest.approx(w.detach().tolist(), rel=1e-5)
        assert g.requires_grad == w.requires_grad


def test_the_gradient_of_a_function_whose_argument_has_a_graph_outside():
    found = functions_in_vjp(ours)
    assert found[0].tolist() == [8, 216]
    assert found[1].tolist() == [12, 216]


@pytest.mark.parametrize("name", ["torchgrad_jax", "torch"])
def test_a_dual_level_within_jvp_is_refused(name):
    m = pytest.importorskip(name)

    def f(x):
        with m.autograd.forward_ad.dual_level():
            return x

    with pytest.raises(RuntimeError, match="Nested forward mode AD is not supported at the moment"):
        m.func.jvp(f, (m.ones(2),), (m.ones(2),))
    assert m.func.jvp(lambda x: x * x, (m.ones(2),), (m.ones(2),))[1].tolist() == [2, 2]


def test_a_batch_of_tangents_where_the_primal_is_none():
    tangents = ours.tensor([[1.0, 2.0], [3.0, 4.0]])

    def push(t):
        with ours.autograd.forward_ad.dual_level():
            dual = ours.autograd.forward_ad.make_dual(ours.tensor([1.0, 2.0]), t)
            memory = ours.zeros(3)
            memory[:2].copy_(_cube(ours).apply(dual))
            return [ours.autograd.forward_ad.unpack_dual(memory).tangent]

    assert mapped(push, [tangents], [0])[0].tolist() == [[3, 24, 0], [9, 48, 0]]
    assert ours.func.vmap(lambda t: push(t)[0])(tangents).tolist() == [[3, 24, 0], [9, 48, 0]]


def test_random_numbers_in_a_selective_checkpoint_within_vmap():
    def kept(ctx, op, *args, **kwargs):
        return False

    def f(x):
        return checkpoint(
            lambda z: z * ours.rand(2),
            x,
            use_reentrant=False,
            context_fn=lambda: create_selective_checkpoint_contexts(kept),
            preserve_rng_state=False,
        )

    def plain(x):
        return x * ours.rand(2)

    for randomness in ("different", "same"):
        ours.manual_seed(3)
        wanted = ours.func.vmap(plain, randomness=randomness)(ours.ones(3, 2))
        ours.manual_seed(3)
        assert ours.func.vmap(f, randomness=randomness)(ours.ones(3, 2)).tolist() == wanted.tolist()
    with pytest.raises(RuntimeError, match="randomness error mode"):
        ours.func.vmap(f)(ours.ones(3, 2))


def test_the_hessian_within_jit_is_few_operations():
    x = ours.linspace(-1, 1, 30)

    def f(x):
        return ((x[1:] - x[:-1] ** 2) ** 2).sum()

    compiled = ours.compile(lambda: ours.autograd.functional.hessian(f, x), fullgraph=True)
    wanted = ours.autograd.functional.hessian(f, x)
    assert ours.allclose(compiled(), wanted)
    assert ours.allclose(compiled(), wanted)


def test_hooks_of_saved_tensors_within_vmap_see_the_whole_batch():
    shapes = []

    def pack(t):
        shapes.append(tuple(t.shape))
        return t * 2

    def f(x):
        with ours.autograd.graph.saved_tensors_hooks(pack, lambda t: t / 2):
            inner = ours.autograd.grad((captured * captured).sum(), captured)[0]
            return (x * x).sin() + inner

    captured = ours.tensor(3.0, requires_grad=True)
    x = ours.ones(3, 2, requires_grad=True)
    found = ours.func.vmap(f)(x)
    assert shapes == [(), (), (3, 2), (3, 2), (3, 2)]
    found.sum().backward()
    assert x.grad.flatten().tolist() == pytest.approx([2 * ours.tensor(1.0).cos().item()] * 6)
    (x * x).sum()
    assert len(shapes) == 5
