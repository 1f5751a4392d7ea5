"""Reverse mode over a jaxpr: the results of `jax.vjp`, bit by bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import torchgrad_jax as torch
from torchgrad_jax.declaration import pulling
from torchgrad_jax.declaration.operator import forget_signatures
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime._jax_compat import trace

pytestmark = pytest.mark.operators

RNG = np.random.default_rng(0)
FUNCTIONS = {
    "products": lambda x, y: (x @ y.T @ x,),
    "a value used thrice": lambda x, y: (x * jnp.tanh(x) + x * y,),
    "several results": lambda x, y: (jnp.sin(x), y.sum(), x[0] * y[1]),
    "a result that is an operand": lambda x, y: (x, y * 2),
    "a result twice": lambda x, y: (z := x * y, z),
    "a constant result": lambda x, y: (jnp.ones((2,), np.float32), x - y),
    "one operand is not read": lambda x, y: (jnp.exp(x),),
    "slices": lambda x, y: (x[1:] * y[:-1], x[::2, 1:4:2]),
    "empty slices": lambda x, y: (x[2:2] * 2.0, y.sum()),
    "a slice where values tell": lambda x, y: (lax.dynamic_slice(x, (np.int32(1), lax.argmax(y[0], 0, np.int32)), (2, 2)),),
    "gathering and scattering": lambda x, y: (x[jnp.array([0, 0, 2])], y.at[jnp.array([1, 1])].add(x[:2]), y.at[0].set(x[1])),
    "selecting": lambda x, y: (jnp.where(x > y, x * x, -y), jnp.maximum(x, 0.1)),
    "reducing": lambda x, y: (x.max(axis=0), jnp.sort(y, axis=1), jnp.cumsum(x, axis=1), x.prod(axis=1)),
    "another form": lambda x, y: (jnp.concatenate([x, y * x], 0).reshape(2, -1).T, jnp.pad(x, ((1, 0), (0, 2))), x[:, ::-1]),
    "convolving": lambda x, y: (jnp.convolve(x[0], y[0]),),
    "decomposing": lambda x, y: (jnp.linalg.cholesky(x @ x.T + 4 * jnp.eye(3, dtype=np.float32)),),
    "numbers beside what moves": lambda x, y: (lax.add(x[0, 0], np.float32(0)), jnp.stack([y[0, 0], np.float32(0)]), lax.max(y, np.float32(0))),
    "whole numbers": lambda x, y: (lax.argmax(x, 1, np.int32), x * lax.iota(np.int32, 5).astype(np.float32)),
}  # fmt: skip


def of(name):
    arrays = [RNG.standard_normal((3, 5)).astype(np.float32) for _ in range(2)]
    return trace(FUNCTIONS[name], name, [(a.shape, a.dtype) for a in arrays]), arrays


@pytest.mark.parametrize("inputs", [(0, 1), (1,), (0,)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_vjp(name, inputs):
    closed, arrays = of(name)
    assert pulling.can_pull(closed)

    def chosen(*some):
        filled = [jnp.asarray(a) for a in arrays]
        for i, x in zip(inputs, some, strict=True):
            filled[i] = x
        return [o for o in FUNCTIONS[name](*filled) if o.dtype == np.float32]

    outs, back = jax.vjp(chosen, *[arrays[i] for i in inputs])
    given = [RNG.standard_normal(o.shape).astype(np.float32) for o in outs]
    floats = iter(given)
    cotangents = [next(floats) if a.dtype == np.float32 else None for a in closed.out_avals]
    for ours, expected in zip(pulling.pull(closed, inputs, arrays, cotangents), back(given), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_a_result_without_a_cotangent_sends_nothing():
    closed = trace(lambda x: (x * 2, jnp.log(x)), "two", [((2,), np.dtype(np.float32))])
    (found,) = pulling.pull(closed, [0], [np.zeros(2, np.float32)], [np.ones(2, np.float32), None])
    np.testing.assert_array_equal(found, [2, 2])  # where infinity times 0 were added, it would not be a number


def test_gradients_of_complex_operands():
    kind = np.dtype(np.complex128)
    x, y, g = RNG.standard_normal((3, 2, 2)) + 1j * RNG.standard_normal((3, 2, 2))

    def function(x, y):
        return (x @ y * jnp.exp(x) + jnp.abs(y),)

    with jax.enable_x64(True):
        found = pulling.pull(trace(function, "complex", [((2, 2), kind)] * 2), (0, 1), [x, y], [g])
        for ours, expected in zip(found, jax.vjp(function, x, y)[1]((jnp.asarray(g),)), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-14)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (lax.fori_loop(0, 3, lambda i, y: y * x, x),),
        lambda x: (lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),),
        lambda x: (jax.nn.relu(x),),  # has a derivative of its own
        lambda x: (lax.associative_scan(jnp.multiply, x), jax.debug.callback(lambda: None))[:1],
    ],
    ids=["loop", "branch", "own derivative", "effect"],
)
def test_what_is_left_to_vjp(function):
    assert not pulling.can_pull(jax.make_jaxpr(function)(np.ones(3, np.float32)))


def test_operators_are_differentiated_by_it(monkeypatch):
    calls = []
    own = pulling.pull
    monkeypatch.setattr(pulling, "pull", lambda closed, *rest: calls.append(1) or own(closed, *rest))
    monkeypatch.setattr(modes, "table", False)
    forget_signatures()
    x = torch.linspace(0.1, 0.9, 11, requires_grad=True)  # a size no other test has
    (first,) = torch.autograd.grad(torch.atan(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    x = x.detach().numpy()
    np.testing.assert_allclose(second.numpy(), -2 * x / (1 + x * x) ** 2, rtol=1e-5)
    assert calls
