"""No tracer of JAX's outlives the trace that it belongs to: JAX checks that itself (`jax.check_tracer_leaks`), and raises where one does."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import torchgrad_jax as torch

X = [0.1, 0.7, -0.4]
W = torch.tensor([1.0, 2.0, -0.5])


def f(x):
    y = x * W
    y[0] = 2.0
    return (y.sin() * x).sum()


CALLS = {
    "grad": lambda: torch.func.grad(f)(torch.tensor(X)),
    "vmap of grad": lambda: torch.func.vmap(torch.func.grad(f))(torch.tensor([X, X])),
    "hessian": lambda: torch.func.hessian(f)(torch.tensor(X)),
    "functional.hessian": lambda: torch.autograd.functional.hessian(f, torch.tensor(X)),
    "checkpoint": lambda: torch.utils.checkpoint.checkpoint(f, torch.tensor(X, requires_grad=True) * 1, use_reentrant=False).backward(),
    "jit": lambda: torch.jit(f)(torch.tensor(X)),
    "to_jax": lambda: torch.to_jax(f)(np.array(X, np.float32)),
    "to_jax, differentiated": lambda: jax.jit(jax.grad(torch.to_jax(f)))(np.array(X, np.float32)),
    "to_jax, mapped": lambda: jax.vmap(torch.to_jax(f))(np.array([X, X], np.float32)),
    "from_jax": lambda: torch.from_jax(lambda a: jax.numpy.sin(a) * a)(torch.tensor(X, requires_grad=True)).sum().backward(),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_tracer_outlives_its_trace(name, leaks_are_checked):
    for _ in range(3):
        CALLS[name]()
