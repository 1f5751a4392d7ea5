"""`to_jax`: derivatives that operators refuse, and writes that graphs know nothing of."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import torchgrad_jax as torch
from torchgrad_jax.nn import functional as F

pytestmark = pytest.mark.operators


def array(*shape, seed=0):
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


X, Y, W, LABELS = array(3, 4), np.abs(array(3, 4, seed=1)), np.abs(array(4, seed=2)), np.array([0, 2, 3])
P = 1 / (1 + np.exp(-X))


class Fivefold(torch.autograd.Function):
    """Its gradient is not that of its operations, so that the function as a whole has the engine's."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 5


# By name: a function of two arrays, them, and what PyTorch says of the second.
REFUSED = {
    "nll_loss": (lambda x, w: F.nll_loss(x.log_softmax(1), torch.tensor(LABELS), w), X, W, "'nll_loss_forward' is not differentiable"),
    "nll_loss2d": (
        lambda x, w: F.nll_loss(x[:, :, None, None], torch.tensor(LABELS)[:, None, None], w), X, W, "'nll_loss2d_forward' is not differentiable",
    ),
    "cross_entropy": (lambda x, w: F.cross_entropy(x, torch.tensor(LABELS), w), X, W, "'nll_loss_forward' is not differentiable"),
    "multi_margin_loss": (
        lambda x, w: F.multi_margin_loss(x, torch.tensor(LABELS), weight=w), X, W, "'multi_margin_loss' is not differentiable with .* 'weight'",
    ),
    "binary_cross_entropy": (
        lambda x, w: F.binary_cross_entropy(x, torch.tensor(P), w), P, W, "'binary_cross_entropy' is not differentiable with .* 'weight'",
    ),
    "with_logits": (
        lambda x, w: F.binary_cross_entropy_with_logits(x, torch.tensor(P), w), X, W, "'binary_cross_entropy_with_logits' is not differentiable",
    ),
    "soft_margin_loss": (F.soft_margin_loss, X, np.sign(array(3, 4, seed=3)), "'soft_margin_loss' is not differentiable with .* 'target'"),
    "batch_norm": (
        lambda x, m: F.batch_norm(x, m, torch.ones(4)).exp().sum(), X, W, "'native_batch_norm' is not differentiable with .* 'running_mean'",
    ),
    "through a Function": (
        lambda x, w: F.cross_entropy(Fivefold.apply(x), torch.tensor(LABELS), w * w), X, W, "'nll_loss_forward' is not differentiable",
    ),
    "by its formula": (lambda q, x: torch.special.zeta(x, q).sum(), Y + 1, Y + 2, "the derivative for 'zeta' is not implemented"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_derivative_may_be_an_argument(name):
    function, a, b, _ = REFUSED[name]
    t = torch.tensor(a, requires_grad=True)
    out = function(t, torch.tensor(b))
    out.backward()
    pure = torch.to_jax(function)
    np.testing.assert_allclose(pure(a, b), out.item(), rtol=1e-5)
    for gradient in (jax.grad(pure), jax.jit(jax.grad(pure))):
        np.testing.assert_allclose(gradient(a, b), t.grad.numpy(), rtol=1e-4, atol=1e-6)
    stacked = jax.vmap(jax.grad(pure), (0, None))(np.stack([a, a]), b)
    np.testing.assert_allclose(stacked[1], t.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(jax.config.jax_check_tracer_leaks, reason="an exception in a rule becomes another one of JAX's where it looks for leaks")
@pytest.mark.parametrize("name", REFUSED)
def test_its_derivative_is_refused_in_pytorchs_words(name):
    function, a, b, text = REFUSED[name]
    pure = torch.to_jax(function)
    with pytest.raises(RuntimeError, match=text):
        jax.grad(pure, 1)(a, b)
    with pytest.raises(RuntimeError, match=text):
        jax.jit(jax.grad(pure, (0, 1)))(a, b)
    with pytest.raises(RuntimeError, match=text):
        jax.grad(lambda x, w: jax.grad(pure)(x, w).sum(), 1)(a, b)


def test_what_is_refused_and_detached_is_a_constant():
    def function(x, w):
        return F.cross_entropy(x * w, torch.tensor(LABELS), w.detach())

    x, w = torch.tensor(X, requires_grad=True), torch.tensor(W, requires_grad=True)
    function(x, w).backward()
    found = jax.grad(torch.to_jax(function), (0, 1))(X, W)
    np.testing.assert_allclose(found[0], x.grad.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[1], w.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_second_derivatives_beside_what_is_refused():
    pure = torch.to_jax(lambda x, w: F.cross_entropy(x, torch.tensor(LABELS), w))
    plain = torch.func.hessian(lambda x: F.cross_entropy(x, torch.tensor(LABELS), torch.tensor(W)))(torch.tensor(X))
    np.testing.assert_allclose(jax.hessian(pure)(X, W), plain.numpy(), rtol=1e-3, atol=1e-6)


def test_outside_of_to_jax_it_is_refused_at_the_call():
    with pytest.raises(RuntimeError, match="'nll_loss_forward' is not differentiable"):
        F.cross_entropy(torch.tensor(X), torch.tensor(LABELS), torch.tensor(W, requires_grad=True))
    with pytest.raises(RuntimeError, match="'native_batch_norm' is not differentiable"):
        F.batch_norm(torch.tensor(X), torch.zeros(4, requires_grad=True), torch.ones(4))
    with torch.no_grad():
        F.batch_norm(torch.tensor(X), torch.zeros(4, requires_grad=True), torch.ones(4))


# ---------------------------------------------------------------------- writes


def under_no_grad(x):
    y = x * x
    with torch.no_grad():
        y.mul_(3)
    return (y * x).sum()


def part_under_no_grad(x):
    y = x * x
    with torch.no_grad():
        y[0] = 0
    return (y * y).sum()


def detached(x):
    y = x * x
    y.detach().clamp_(0, 0.5)
    return (y * x).sum()


def data(x):
    y = x * x
    y.data[1:].mul_(3)
    return (y * x).sum()


def view_made_before(x):
    y = x * x
    v = y[:2]
    with torch.no_grad():
        v.add_(3)
    return (y * x).sum()


def through_a_view(x):
    y = x * x
    z = y.view(2, 2)
    with torch.no_grad():
        y.clamp_(0, 0.5)
    return (z * z).sum() + (y * x).sum()


def argument(x):
    with torch.no_grad():
        x.mul_(2)
    return (x * x).sum()


@pytest.mark.parametrize("function", [under_no_grad, part_under_no_grad, detached, data, view_made_before, through_a_view, argument])
def test_writes_outside_of_the_graph(function):
    a = array(4)
    t = torch.tensor(a, requires_grad=True)
    out = function(t * 1)
    out.backward()
    pure = torch.to_jax(function)
    np.testing.assert_allclose(pure(a), out.item(), rtol=1e-5)
    np.testing.assert_allclose(jax.grad(pure)(a), t.grad.numpy(), rtol=1e-5)


def test_writes_to_what_has_no_graph_are_operations_like_others():
    def function(x):
        b = torch.zeros(4)
        b[0] = 3.0
        with torch.no_grad():
            b.mul_(2)
        copy = (x * x).detach().clone()
        copy.mul_(2)
        layer = F.batch_norm(x.view(2, 2), torch.zeros(2), torch.ones(2), training=True)
        return (b * x * copy).sum() + (layer**3).sum()

    a = array(4)
    t = torch.tensor(a, requires_grad=True)
    function(t).backward()
    pure = torch.to_jax(function)
    _, tangent = jax.jvp(pure, (jnp.asarray(a),), (jnp.ones(4, jnp.float32),))
    np.testing.assert_allclose(tangent, t.grad.numpy().sum(), rtol=1e-3)


def test_cosine_similarity_in_both_directions():
    pure = torch.to_jax(lambda x, y: F.cosine_similarity(x, y).sum())
    x = torch.tensor(X, requires_grad=True)
    F.cosine_similarity(x, torch.tensor(Y)).sum().backward()
    np.testing.assert_allclose(jax.grad(pure)(X, Y), x.grad.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(jax.jacfwd(pure)(X, Y), x.grad.numpy(), rtol=1e-4, atol=1e-6)
