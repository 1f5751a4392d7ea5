"""What a function sees while it is transformed: levels of reverse mode, forward mode and vmap. Expected numbers are PyTorch's, or JAX's."""

import importlib.util
import re

import jax
import pytest

import torchgrad_jax as torch
from compat_suite.compositions import Case, Jax, Torch, compare, differs
from torchgrad_jax.func import grad, jvp, vjp, vmap

HAS_TORCH = importlib.util.find_spec("torch") is not None
OURS, BY_HAND = Torch(torch), Jax()


def vector(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def few_in_eager_mode(*seeds):
    """Most of them only once: what the execution mode concerns shows in few."""
    return [seed if i < 2 else pytest.param(seed, marks=pytest.mark.operators) for i, seed in enumerate(seeds)]


@pytest.mark.parametrize("seed", few_in_eager_mode(*range(100, 112), 20262, 77063, 77066, 77090, 120199))
def test_compositions_of_transforms_are_as_jax_has_them(seed):
    case = Case(seed)
    with jax.enable_x64():
        expected = case.run(BY_HAND)
    assert not differs(expected, case.run(OURS)), case


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", few_in_eager_mode(*range(200, 250)))
def test_compositions_of_transforms_are_as_pytorch_has_them(seed):
    import torch as pytorch

    assert compare(Case(seed), OURS, Torch(pytorch), BY_HAND, False)[0] == ""


def test_a_derivative_that_is_the_same_for_all_of_a_batch_has_the_batch():
    """Where nothing that it is computed from is mapped."""

    def pulled(f):
        def g(x):
            y, pull = vjp(f, x)
            return pull(torch.ones_like(y))[0]

        return g

    def outer(x):
        return x.abs()[:, None] * x

    x = vector(0.3, -0.7, 1.1)
    assert pulled(pulled(torch.func.jacfwd(outer)))(x).tolist() == [0, 0, 0]
    for inner in (torch.func.jacfwd, torch.func.hessian):
        assert torch.func.jacrev(pulled(inner(outer)))(x).tolist() == [[0, 0, 0]] * 3


# ---------------------------------------------------------------------- graphs and modes


def test_captured_tensors_get_gradients_through_any_level():
    p = vector(1, 2, 3).requires_grad_()
    rows = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    vmap(lambda row: (row * p).sum() ** 2)(rows).sum().backward()
    found, p.grad = p.grad, None
    sum((row * p).sum() ** 2 for row in rows).backward()
    assert torch.equal(found, p.grad)
    p.grad = None
    grad(lambda x: (x**2 * p).sum())(vector(1, 1, 1)).sum().backward()
    assert p.grad.tolist() == [2, 2, 2]


def test_grad_records_inside_no_grad_and_not_outside_of_it():
    x = vector(1, 2).requires_grad_()
    with torch.no_grad():
        found = grad(lambda x: (x**3).sum())(x)
    assert found.tolist() == [3, 12] and not found.requires_grad
    assert grad(lambda x: (x**3).sum())(x).requires_grad


def test_no_grad_inside_holds_for_all_levels():
    def f(x):
        with torch.no_grad():
            y = x * x
        return (y * x).sum()

    x = vector(1, 2, 3)
    assert grad(f)(x).tolist() == [1, 4, 9]
    assert grad(lambda x: grad(f)(x).sum())(x).tolist() == [0, 0, 0]


def test_detach_cuts_all_levels():
    x = vector(1, 2, 3)
    assert grad(lambda x: grad(lambda y: (y.detach() * y).sum())(x).sum())(x).tolist() == [0, 0, 0]


def test_hooks_run_inside():
    def f(x):
        x.register_hook(lambda g: g * 10)
        return (x**2).sum()

    assert grad(f)(vector(1, 2)).tolist() == [20, 40]


def test_the_function_of_vjp_can_be_mapped_after_its_level_was_left():
    x = vector(1, 2, 3)
    _, pull = vjp(lambda x: x.sin() * x.sum(), x)
    (rows,) = vmap(pull)(torch.eye(3, dtype=torch.float64))
    expected = torch.stack([pull(row)[0] for row in torch.eye(3, dtype=torch.float64)])
    assert torch.allclose(rows, expected)


# ---------------------------------------------------------------------- writes


def test_what_is_made_inside_may_be_written_to():
    def zeros(x):
        z = torch.zeros(3, dtype=torch.float64)
        z.copy_(x)
        return z.sum()

    def element(x):
        z = torch.zeros_like(x)
        z[0] = x[1]
        return z.sum()

    c = vector(1, 1, 1)

    def of_captured(x):
        d = c * 2
        d.mul_(x)
        return d.sum()

    x = vector(1, 2, 3)
    assert grad(zeros)(x).tolist() == [1, 1, 1]
    assert grad(element)(x).tolist() == [0, 1, 0]
    assert grad(of_captured)(x).tolist() == [2, 2, 2]


@pytest.mark.parametrize("write, name", [(lambda c: c.mul_(2), "mul_.Tensor"), (lambda c: c.sin_(), "sin_"), (lambda c: c.zero_(), "zero_")])
def test_captured_tensors_may_not_be_written_to(write, name):
    c = vector(1, 1, 1)
    with pytest.raises(RuntimeError, match=re.escape(f"in-place operation (aten::{name}) that would mutate a captured")):
        grad(lambda x: (write(c), x.sum())[1])(vector(1, 2, 3))
    assert c.tolist() == [1, 1, 1]


def test_vmap_writes_to_its_arguments():
    x = vector(1, 2, 3)
    assert vmap(lambda x: x.mul_(2))(x).tolist() == [2, 4, 6]
    assert x.tolist() == [2, 4, 6]


def test_what_is_no_batch_cannot_hold_one():
    with pytest.raises(RuntimeError, match="^vmap: inplace arithmetic"):
        vmap(lambda x: torch.ones(3, dtype=torch.float64).add_(x.sum()))(vector(1, 2, 3))


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "look, text",
    [
        (lambda x: x.item(), "vmap: It looks like you're calling .item() on a Tensor."),
        (lambda x: x if x > 0 else -x, "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow."),
        (lambda x: torch.tensor(x.numpy()), "Cannot access data pointer of Tensor that doesn't have storage"),
        (lambda x: x.reshape(1).nonzero(), "vmap: We do not support batching operators that can output dynamic shape"),
        (lambda x: x + torch.rand(()), "vmap: called random operation while in randomness error mode."),
    ],
)
def test_values_of_a_batch_cannot_be_looked_at(look, text):
    with pytest.raises(RuntimeError, match=re.escape(text)):
        vmap(look)(vector(1, 2, 3))


def test_values_can_be_looked_at_inside_of_grad():
    assert grad(lambda x: x * 3 if x > 0 else -x)(torch.tensor(2.0)).item() == 3
    assert grad(lambda x: x * x.item())(torch.tensor(2.0)).item() == 2


def test_backward_and_requires_grad_are_refused_inside():
    x = vector(1, 2)
    with pytest.raises(RuntimeError, match="^backward\\(\\) called inside a functorch transform"):
        grad(lambda x: (x.sum().backward(), x.sum())[1])(x)
    with pytest.raises(RuntimeError, match="^You are attempting to call Tensor.requires_grad_\\(\\)"):
        grad(lambda x: x.requires_grad_().sum())(x)
    with pytest.raises(RuntimeError, match="don't yet support saved tensor hooks"), torch.autograd.graph.saved_tensors_hooks(abs, abs):
        grad(lambda x: x.sum())(x)


def test_tensors_are_dead_after_their_level():
    kept = []
    vmap(lambda x: (kept.append(x * 2), x)[1])(vector(1, 2))
    with pytest.raises(RuntimeError, match="may have escaped from inside a function being vmapped"):
        kept[0] + 1
    grad(lambda x: (kept.append(x.detach() * 2), x.sum())[1])(vector(1, 2))
    assert (kept[1] + 1).tolist() == [3, 5]


THROUGH = {
    "grad": lambda f, x: grad(lambda x: f(x).sum())(x),
    "vjp": lambda f, x: vjp(f, x),
    "jvp": lambda f, x: jvp(f, (x,), (x,)),
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
    "jacfwd": lambda f, x: torch.func.jacfwd(f)(x),
    "hessian": lambda f, x: torch.func.hessian(lambda x: f(x).sum())(x),
}


@pytest.mark.parametrize("turns", [1, 4])
@pytest.mark.parametrize("through", sorted(THROUGH))
def test_a_tensor_kept_from_inside_has_the_graph_that_it_had_outside(through, turns):
    w, kept = torch.tensor([1.0, 2.0], requires_grad=True), []

    def f(x):
        kept[:] = [w * 2, w[1:] * x[1:], (w * 3)[1:], x * 2, (w * 2).detach(), x.detach() * w]
        return x * kept[0] * kept[5]

    for _ in range(turns):
        THROUGH[through](f, vector(5, 7))
    assert [(t * 2).requires_grad for t in kept] == [True, True, True, False, False, True]
    assert [t.detach().requires_grad or (t.detach() * 2).requires_grad for t in kept] == [False] * 6
    for t, expected in zip(kept, [(2, 2), (0, 7), (0, 3), None, None, (5, 7)], strict=True):
        if expected is not None:
            (found,) = torch.autograd.grad(t.sum(), w, allow_unused=True)
            assert found.tolist() == list(expected)


def test_a_tensor_kept_from_inside_is_written_to_with_its_views_and_the_argument():
    kept = []
    x = vector(5, 7)
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    grad(lambda x: (kept.extend([x, w * 2, x * 2]), kept.append(kept[2][1:]), (x * kept[1]).sum())[2])(x)
    kept[3].mul_(10)
    assert kept[2].tolist() == [10, 140]
    kept[0].add_(1)
    assert x.tolist() == [6, 8]
    kept[1].mul_(3).sum().backward()
    assert w.grad.tolist() == [6, 6]


def test_what_a_vjp_was_made_of_stays_its_graph_when_it_is_used_outside():
    kept = []
    x, w = vector(5, 7), torch.tensor([1.0, 2.0], requires_grad=True)
    _, pull = vjp(lambda x: (kept.append(x), kept.append(x * x * w), kept[1])[2], x)
    assert [(t * 2).tolist() for t in kept] == [[10, 14], [50, 196]]
    (found,) = pull(vector(1, 1))
    assert found.tolist() == [10, 28] and torch.autograd.grad(found.sum(), w)[0].tolist() == [10, 14]


def test_what_was_kept_from_an_inner_level_is_of_the_outer_one():
    w, kept = torch.tensor([1.0, 2.0], requires_grad=True), []

    def outer(x):
        grad(lambda z: (kept.append(x * w), (z * x).sum())[1])(vector(1, 1))
        return (kept[-1] * x).sum()

    found = grad(outer)(vector(5, 7))
    assert found.tolist() == [10, 28] and torch.autograd.grad(found.sum(), w)[0].tolist() == [10, 14]


def test_tensors_of_a_level_say_so_when_printed():
    shown = []
    vmap(lambda x: (shown.append(repr(x)), x)[1])(torch.tensor([1.0, 2.0]))
    grad(lambda x: (shown.append(repr(x)), x.sum())[1])(torch.tensor([1.0, 2.0]))
    assert shown == [
        "BatchedTensor(lvl=1, bdim=0, value=\n    tensor([1., 2.])\n)",
        "GradTrackingTensor(lvl=1, value=\n    tensor([1., 2.])\n)",
    ]


def test_an_exception_inside_leaves_the_modes_as_they_were():
    def fails(x):
        raise KeyError("mine")

    for transformed in (grad(fails), vmap(fails), vmap(grad(fails)), lambda x: jvp(fails, (x,), (x,))):
        with pytest.raises(KeyError, match="mine"):
            transformed(vector(1, 2))
    x = vector(1, 2).requires_grad_()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2] and torch.is_grad_enabled()


# ---------------------------------------------------------------------- random numbers


def test_random_numbers_of_a_batch_are_pytorchs():
    x = torch.full((3, 2), 0.5)

    def drawn(f, randomness):
        torch.manual_seed(0)
        return vmap(f, randomness=randomness)(x)

    whole = torch.rand(3, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(drawn(lambda x: torch.rand(2), "different"), whole)
    assert torch.equal(drawn(lambda x: torch.rand_like(x), "different"), whole)
    assert torch.equal(drawn(lambda x: x.clone().uniform_(), "different"), whole)
    assert torch.equal(drawn(lambda x: torch.rand(2), "same"), whole.reshape(-1)[:2].expand(3, 2))
    assert drawn(lambda x: torch.nn.functional.dropout(x, 0.5), "different").tolist() == [[0, 0], [1, 0], [0, 0]]
    assert drawn(lambda x: torch.bernoulli(x), "different").tolist() == [[1, 0], [1, 1], [1, 0]]
    assert drawn(lambda x: torch.randperm(4), "different").tolist() == [[0, 1, 3, 2], [0, 2, 3, 1], [3, 2, 0, 1]]
    with pytest.raises(RuntimeError, match="^Vmap does not currently support same randomness with a batched tensor input"):
        drawn(lambda x: torch.bernoulli(x), "same")
    with pytest.raises(RuntimeError, match="^vmap: Cannot ask for different inplace randomness on an unbatched tensor"):
        drawn(lambda x: torch.ones(2).uniform_(), "different")


# ---------------------------------------------------------------------- autograd Functions


class Square(torch.autograd.Function):
    """Its gradient is wrong, to tell who has computed it."""

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 10

    @staticmethod
    def jvp(ctx, g):
        return g * 7


class Generated(Square):
    generate_vmap_rule = True


class WithRule(Square):
    @staticmethod
    def vmap(info, in_dims, x):
        assert info.batch_size == x.shape[in_dims[0]]
        return WithRule.apply(x), in_dims[0]


@pytest.mark.parametrize("function", [Generated, WithRule])
def test_functions_are_differentiated_by_their_own_backward_at_every_level(function):
    x = vector(1, 2, 3)
    assert vmap(function.apply)(x).tolist() == [1, 4, 9]
    assert vmap(grad(function.apply))(x).tolist() == [10, 20, 30]
    assert grad(lambda x: vmap(function.apply)(x).sum())(x).tolist() == [10, 20, 30]
    assert grad(lambda x: grad(lambda x: function.apply(x).sum())(x).sum())(x).tolist() == [10, 10, 10]
    assert vmap(vmap(function.apply))(x.reshape(1, 3)).tolist() == [[1, 4, 9]]
    assert jvp(vmap(function.apply), (x,), (x,))[1].tolist() == [7, 14, 21]
    leaf = vector(1, 2, 3).requires_grad_()
    vmap(function.apply)(leaf).sum().backward()
    assert leaf.grad.tolist() == [10, 20, 30]


def test_functions_that_cannot_be_transformed_say_so():
    class Combined(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

    class Both(Generated):
        @staticmethod
        def vmap(info, in_dims, x):
            return x, 0

    x = vector(1, 2)
    with pytest.raises(RuntimeError, match="it must override the setup_context staticmethod"):
        grad(lambda x: Combined.apply(x).sum())(x)
    with pytest.raises(RuntimeError, match="You tried to vmap over Square, but it does not have vmap support"):
        vmap(Square.apply)(x)
    with pytest.raises(RuntimeError, match="it has both generate_vmap_rule=True and an overridden vmap"):
        vmap(Both.apply)(x)


def test_a_function_that_writes_to_its_input_may_be_transformed():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.mul_(2)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.mark_dirty(inputs[0])

        @staticmethod
        def backward(ctx, g):
            return g * 3

    assert grad(lambda x: Double.apply(x.clone()).sum())(vector(1, 2)).tolist() == [3, 3]


def test_a_detached_tensor_that_shares_no_memory_may_not_be_written_to():
    def f(x):
        y = x * 1
        y.detach().zero_()
        return y.sum()

    assert grad(f)(vector(1, 2)).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="has a memory of its own"):
        vmap(grad(f))(torch.ones(2, 2))
    assert vmap(grad(lambda x: (x * x.detach().clone().mul_(2)).sum()))(torch.ones(2, 2)).tolist() == [[2, 2], [2, 2]]


def test_a_function_under_vmap_or_jvp_sets_the_grad_mode_of_what_is_outside():
    w, x = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0])

    def recording(x):
        with torch.enable_grad():
            return x * w

    def with_gradient(x):
        with torch.enable_grad():
            return x * torch.autograd.grad((w * w).sum(), w, create_graph=True)[0]

    with torch.no_grad():
        for _ in range(4):
            assert vmap(recording)(x[None]).requires_grad and vmap(vmap(with_gradient))(x[None, None]).requires_grad
            assert [t.requires_grad for t in jvp(recording, (x,), (x,))] == [True, True]
            assert [t.requires_grad for t in jvp(lambda x: recording(x) * x, (x,), (x,))] == [False, False]
            assert not vjp(recording, x)[0].requires_grad and not grad(lambda x: recording(x).sum())(x).requires_grad


def test_in_inference_mode_transforms_record_nothing_outside():
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    with torch.inference_mode():
        x = torch.ones(2)
        for _ in range(4):
            found = grad(lambda x: (x * x * w).sum())(x), vjp(lambda x: x * w, x)[0], *jvp(lambda x: x * w, (x,), (x,))
            assert [t.tolist() for t in found] == [[2, 4], [1, 2], [1, 2], [1, 2]]
            assert not any(t.requires_grad for t in found)
