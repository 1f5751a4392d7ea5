"""`to_jax`: PyTorch-style code as a pure JAX function, whose derivatives by JAX are those of backward."""

import warnings

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import torchgrad_jax as torch
from torchgrad_jax import nn
from torchgrad_jax.lifting.tracing import TracingError
from torchgrad_jax.nn import functional as F

pytestmark = pytest.mark.operators


@pytest.fixture(autouse=True)
def _strictly():
    before = jax.config.jax_enable_x64
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    assert jax.config.jax_enable_x64 == before


def array(*shape, seed=0):
    return jnp.asarray(np.random.RandomState(seed).randn(*shape).astype(np.float32))


def by_backward(f, *arrays):
    """The result and its gradients, by the engine."""
    tensors = [torch.tensor(np.asarray(a)).requires_grad_(a.dtype.kind == "f") for a in arrays]
    out = f(*tensors)
    if out.requires_grad:
        out.backward()
    return out.item(), [None if t.grad is None else t.grad.numpy() for t in tensors]


def second_by_backward(f, x):
    """The Hessian, row by row, by the engine."""
    t = torch.tensor(np.asarray(x), requires_grad=True)
    (g,) = torch.autograd.grad(f(t), t, create_graph=True)
    rows = []
    for part in g.flatten():
        row = torch.autograd.grad(part, t, retain_graph=True, allow_unused=True)[0] if part.requires_grad else None
        rows.append(np.zeros(t.numel(), np.float32) if row is None else row.numpy().ravel())
    return np.stack(rows)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 4 * g * x  # twice the derivative: whose it is can be seen


def hooked(x):
    y = x * x
    y.register_hook(lambda g: g * 10)
    return y.sum()


def written(x):
    y = x * 2
    z = y.clone()
    z[0] = y[1] * y[2]
    z.mul_(x)
    return (z * z.detach()).sum()


def under_no_grad(x):
    with torch.no_grad():
        scale = x.exp()
    return (x * scale).sum()


def gradient_within(x):
    z = x.detach().requires_grad_()
    (g,) = torch.autograd.grad((z**3).sum(), z)
    return (g * x).sum()


def gradient_of_the_argument(x):
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return (g * g).sum()


# At these points PyTorch's subgradients are not JAX's.
KINKS = {
    "abs": lambda x: x.abs().sum(),
    "relu": lambda x: F.relu(x).sum(),
    "max": lambda x: x.max(),
    "amax": lambda x: x.amax(),
    "maximum": lambda x: torch.maximum(x, torch.zeros(4)).sum(),
    "clamp": lambda x: x.clamp(0, 1).sum(),
    "norm": lambda x: (x * 0).norm(),
    "sort": lambda x: (x.sort().values * torch.arange(4)).sum(),
    "prod": lambda x: x.prod(),
    "where": lambda x: torch.where(x > 0, x * 2, x * 3).sum(),
}
SMOOTH = {
    "detached": lambda x: (torch.tanh(x) * x.detach()).sum(),
    "under_no_grad": under_no_grad,
    "written": written,
    "gradient_within": gradient_within,
    "gradient_of_the_argument": gradient_of_the_argument,
    "softmax": lambda x: (torch.softmax(x, 0) ** 2).sum(),
    "layer_norm": lambda x: (F.layer_norm(x, (4,)) ** 3).sum(),
    "views": lambda x: (x.view(2, 2).t() @ x.view(2, 2)).sum(),
    "polynomial": lambda x: (x**3 + 2 * x).sum(),
}
DEPARTED = {"own_function": lambda x: Doubled.apply(x).sum(), "hooked": hooked}


@pytest.mark.parametrize("name", [*KINKS, *SMOOTH, *DEPARTED])
def test_derivatives_are_those_of_backward(name):
    f = (KINKS | SMOOTH | DEPARTED)[name]
    x = jnp.asarray([0.0, 1.0, -2.0, 1.0], jnp.float32) if name in KINKS else array(4)
    value, (expected,) = by_backward(f, x)
    g = torch.to_jax(f)
    np.testing.assert_allclose(g(x), value, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(g)))(jnp.stack([x, x]))[1], expected, rtol=1e-5, atol=1e-6)
    if name not in DEPARTED:
        np.testing.assert_allclose(jax.jit(jax.jacfwd(g))(x), expected, rtol=1e-5, atol=1e-6)


def test_transformations_without_jit_leak_no_tracers(leaks_are_checked):
    x, g = array(4), torch.to_jax(written)
    _, (expected,) = by_backward(written, x)
    np.testing.assert_allclose(jax.grad(g)(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [*SMOOTH, *DEPARTED])
def test_second_derivatives_are_those_of_backward(name):
    f = (SMOOTH | DEPARTED)[name]
    x = array(4)
    expected, g = second_by_backward(f, x), torch.to_jax(f)
    np.testing.assert_allclose(jax.jit(jax.jacrev(jax.grad(g)))(x), expected, rtol=1e-4, atol=1e-5)
    if name not in DEPARTED:
        np.testing.assert_allclose(jax.jit(jax.hessian(g))(x), expected, rtol=1e-4, atol=1e-5)


def test_forward_mode_of_what_has_a_backward_of_its_own_is_refused():
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jacfwd(torch.to_jax(DEPARTED["own_function"]))(array(4))


def test_pytrees_go_in_and_out():
    @torch.to_jax
    def f(data, *, scale, name):
        assert name == "n" and type(data["x"]) is torch.Tensor
        return {"sum": data["x"] + data["more"][0], "more": (data["more"][1] * scale, 3)}

    out = f({"x": array(2, 3), "more": [array(3), np.ones(2, np.float32)]}, scale=2.0, name="n")
    assert isinstance(out["sum"], jax.Array) and out["sum"].shape == (2, 3)
    np.testing.assert_array_equal(out["more"][0], [2, 2])
    assert out["more"][1] == 3


def test_captured_tensors_are_read_anew():
    w = torch.ones(3)
    f = torch.to_jax(lambda x: (x * w).sum())
    assert f(jnp.ones(3)) == 3
    w.mul_(2)
    assert f(jnp.ones(3)) == 6


def test_a_closure_that_changed_is_traced_again():
    factor = 2.0
    f = torch.to_jax(lambda x: x * factor)
    assert f(jnp.ones(())) == 2
    factor = 5.0
    assert f(jnp.ones(())) == 5


def test_dtypes_without_64_bits():
    f = torch.to_jax(lambda x, i: (x.double() * 2, i + 1, F.embedding(i, x), x > 0))
    a, b, c, d = f(array(3, 1), jnp.asarray([0, 1, 2]))
    wide = jax.config.jax_enable_x64
    assert (a.dtype, b.dtype, c.dtype, d.dtype) == (
        jnp.float64 if wide else jnp.float32, jnp.int64 if wide else jnp.int32, jnp.float32, jnp.bool_,
    )  # fmt: skip


def test_complex_gradients_are_conjugates_of_pytorch_s():
    z = np.asarray([1 + 2j, 3 - 1j], np.complex64)
    t = torch.tensor(z).requires_grad_()
    f = lambda z: (z * z).abs().sum()  # noqa: E731
    f(t).backward()
    np.testing.assert_allclose(jax.grad(torch.to_jax(f))(jnp.asarray(z)), t.grad.numpy().conj(), rtol=1e-5)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def test_a_module_is_a_function_of_its_parameters_and_buffers():
    m = model()
    before = {k: v.clone() for k, v in m.state_dict().items()}
    apply, params, buffers = torch.to_jax(m)
    assert set(params) == {k for k, _ in m.named_parameters()} and set(buffers) == {k for k, _ in m.named_buffers()}
    x, labels = array(5, 3), jnp.asarray([0, 1, 1, 0, 1])
    cross_entropy = torch.to_jax(F.cross_entropy)

    def loss(params, buffers):
        out, buffers = apply(params, buffers, x)
        return cross_entropy(out, labels), buffers

    (value, after), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(params, buffers)
    assert all((m.state_dict()[k] == v).all() for k, v in before.items()) and all(p.grad is None for p in m.parameters())
    expected = F.cross_entropy(m(torch.tensor(np.asarray(x))), torch.tensor(np.asarray(labels).astype(np.int64)))
    expected.backward()
    np.testing.assert_allclose(value, expected.item(), rtol=1e-5)
    for name, p in m.named_parameters():
        np.testing.assert_allclose(grads[name], p.grad.numpy(), rtol=1e-4, atol=1e-6)
    for name, b in m.named_buffers():
        np.testing.assert_allclose(after[name], b.numpy(), rtol=1e-5)


def test_a_module_is_trained_by_jax():
    apply, params, buffers = torch.to_jax(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)))
    x = array(16, 3)
    y = x.sum(1, keepdims=True)

    @jax.jit
    def step(params):
        value, grads = jax.value_and_grad(lambda p: ((apply(p, buffers, x)[0] - y) ** 2).mean())(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    losses = []
    for _ in range(30):
        params, value = step(params)
        losses.append(float(value))
    assert losses[-1] < 0.2 * losses[0]


def test_per_sample_gradients():
    m = nn.Linear(3, 1)
    apply, params, buffers = torch.to_jax(m)
    x = array(4, 3)
    grads = jax.vmap(jax.grad(lambda p, row: (apply(p, buffers, row)[0] ** 2).sum()), (None, 0))(params, x)
    for i in range(4):
        m.zero_grad()
        (m(torch.tensor(np.asarray(x[i]))) ** 2).sum().backward()
        np.testing.assert_allclose(grads["weight"][i], m.weight.grad.numpy(), rtol=1e-5)


def test_modules_refuse_what_does_not_fit():
    apply, params, buffers = torch.to_jax(nn.Linear(2, 2))
    with pytest.raises(KeyError, match="bias"):
        apply({"weight": params["weight"]}, buffers, jnp.ones(2))
    with pytest.raises(ValueError, match="weight has shape"):
        apply(params | {"weight": jnp.ones((3, 2))}, buffers, jnp.ones(2))
    with pytest.raises(TypeError, match="function or a module"):
        torch.to_jax(3)


def test_tied_parameters_are_one():
    m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    m[1].weight = m[0].weight
    apply, params, buffers = torch.to_jax(m)
    assert "1.weight" not in params
    grads = jax.grad(lambda p: apply(p, buffers, jnp.ones(2))[0].sum())(params)
    m(torch.ones(2)).sum().backward()
    np.testing.assert_allclose(grads["0.weight"], m[0].weight.grad.numpy(), rtol=1e-5)


w = torch.ones(3, requires_grad=True)
kept = []


def asks(x):
    return x if x.sum() > 0 else -x


def changes(x):
    with torch.no_grad():
        w.add_(x)
    return x


def draws(x):
    return x * torch.rand(3)


def leaves_a_gradient(x):
    (x * w).sum().backward()
    return x


def has_another_result(x):
    return object()


@pytest.mark.parametrize(
    "f, words",
    [
        (asks, "the value of a tensor was asked for"),
        (changes, "changes a tensor from outside"),
        (draws, "random numbers"),
        (leaves_a_gradient, "changes a tensor from outside"),
        (has_another_result, "object of type object"),
    ],
)
def test_what_is_not_pure_is_refused_and_leaves_nothing(f, words):
    state, before = torch.get_rng_state(), w.tolist()
    with pytest.raises(TracingError, match=words):
        torch.to_jax(f)(jnp.ones(3))
    assert w.tolist() == before and w.grad is None and w.is_leaf and (torch.get_rng_state() == state).all()


def test_what_was_kept_of_a_trace_says_that_it_has_no_value():
    def keeps(x):
        kept.append(x * 2)
        return x

    torch.to_jax(keeps)(jnp.ones(3))
    with pytest.raises(RuntimeError, match="made while a function was traced"):
        kept[0].sum().item()


def test_within_jit_of_the_users_it_is_one_program():
    f = torch.to_jax(lambda x: torch.tanh(x).sum())
    assert "tanh" in jax.jit(f).lower(array(3)).as_text()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["median", "nanmedian", "kthvalue"])
def test_one_element_of_an_order_is_compiled_and_mapped(name, dtype):
    x = np.random.RandomState(0).randn(4, 5).astype(dtype)
    pure = torch.to_jax(lambda x: getattr(x, name)(*[3] * (name == "kthvalue"), dim=-1).values)
    with jax.enable_x64(dtype is np.float64):
        for found in (jax.jit(pure)(x), jax.vmap(pure)(x)):
            np.testing.assert_array_equal(found, np.sort(x)[:, 2])
