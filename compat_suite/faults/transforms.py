"""The transforms of a function, with PyTorch or with ours, and what only ours has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]


def _vjp(t: Any, v: Any) -> Call:
    def call() -> Any:
        out, pull = t.func.vjp(v.f, v.x)
        return out, pull(t.ones_like(out))

    return call


def _linearize(t: Any, v: Any) -> Call:
    def call() -> Any:
        out, push = t.func.linearize(v.f, v.x)
        return out, push(v.x)

    return call


def _functional_call(t: Any, v: Any) -> Call:
    class Whole(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.m = v.m

        def forward(self, x: Any) -> Any:
            return v.f(x)

    whole = Whole()
    return lambda: t.func.functional_call(whole, {"m.weight": v.d * 2}, (v.x,))


def _checkpoint(t: Any, v: Any, reentrant: bool) -> Call:
    def call() -> Any:
        x = v.x.clone().requires_grad_()
        # A function that writes to its argument is given what is no leaf.
        out = t.utils.checkpoint.checkpoint(v.f, x * 1, use_reentrant=reentrant)
        out.backward()
        return out, x.grad

    return call


def _functional(name: str, *, vector: bool = False, **options: Any) -> Callable[[Any, Any], Call]:
    def made(t: Any, v: Any) -> Call:
        function = getattr(t.autograd.functional, name)
        return lambda: function(v.f, v.x, *([t.tensor([1.0, 2.0, 3.0])] if vector else []), **options)

    return made


def _backward(t: Any, v: Any) -> Call:
    def call() -> Any:
        x = v.x.clone().requires_grad_()
        out = v.f(x * 1)
        (g,) = t.autograd.grad(out, x, create_graph=True)
        g.sum().backward()
        return out, g, x.grad

    return call


# Each gives, for a library and a world, a call of its own accord of the world's function, transformed.
TRANSFORMS: dict[str, Callable[[Any, Any], Call]] = {
    "called": lambda t, v: lambda: v.f(v.x),
    "backward": _backward,
    "grad": lambda t, v: _of(t.func.grad(v.f), v),
    "grad_and_value": lambda t, v: _of(t.func.grad_and_value(v.f), v),
    "vjp": _vjp,
    "jvp": lambda t, v: lambda: t.func.jvp(v.f, (v.x,), (v.d,)),
    "jacrev": lambda t, v: _of(t.func.jacrev(v.f), v),
    "jacrev by rows": lambda t, v: _of(t.func.jacrev(v.f, chunk_size=1), v),
    "jacfwd": lambda t, v: _of(t.func.jacfwd(v.f, randomness="same"), v),
    "hessian": lambda t, v: _of(t.func.hessian(v.f), v),
    "vmap": lambda t, v: _batched(t, t.func.vmap(v.f, randomness="different"), v),
    "vmap in chunks": lambda t, v: _batched(t, t.func.vmap(v.f, randomness="different", chunk_size=1), v),
    "vmap of grad": lambda t, v: _batched(t, t.func.vmap(t.func.grad(v.f), randomness="different"), v),
    "grad of vmap": lambda t, v: _batched(t, t.func.grad(lambda x: t.func.vmap(v.f, randomness="same")(x).sum()), v),
    "grad of grad": lambda t, v: _of(t.func.grad(lambda x: t.func.grad(v.f)(x).sum()), v),
    "jvp of grad": lambda t, v: lambda: t.func.jvp(t.func.grad(v.f), (v.x,), (v.d,)),
    "linearize": _linearize,
    "functionalize": lambda t, v: _of(t.func.functionalize(v.f), v),
    "functional_call": _functional_call,
    "functional.jacobian": _functional("jacobian"),
    "functional.jacobian, vectorized": _functional("jacobian", vectorize=True),
    "functional.jacobian, forward": _functional("jacobian", vectorize=True, strategy="forward-mode"),
    "functional.hessian": _functional("hessian"),
    "functional.hessian, forward": _functional("hessian", vectorize=True, outer_jacobian_strategy="forward-mode"),
    "functional.vjp": _functional("vjp"),
    "functional.jvp": _functional("jvp", vector=True),
    "functional.hvp": _functional("hvp", vector=True),
    "functional.vhp": _functional("vhp", vector=True),
    "checkpoint": lambda t, v: _checkpoint(t, v, False),
    "checkpoint with reentry": lambda t, v: _checkpoint(t, v, True),
}  # fmt: skip


def _of(function: Any, v: Any) -> Call:
    return lambda: function(v.x)


def _batched(t: Any, function: Any, v: Any) -> Call:
    return lambda: function(t.stack([v.x, v.d]))


def _to_jax(t: Any, v: Any, transform: Callable[[Any, Any], Any]) -> Call:
    import jax

    function = transform(jax, t.to_jax(v.f))
    return lambda: function(jax.numpy.asarray([0.1, 0.7, -0.4]))


# What a traced function does is taken back where it throws: nothing is changed then.
TRACED: dict[str, Callable[[Any, Any], Call]] = {
    "jit": lambda t, v: _of(t.jit(v.f), v),
    "jit, whole": lambda t, v: _of(t.jit(v.f, fullgraph=True), v),
    "compile": lambda t, v: _of(t.compile(v.f), v),
    "to_jax": lambda t, v: _to_jax(t, v, lambda jax, f: f),
    "jax.grad of to_jax": lambda t, v: _to_jax(t, v, lambda jax, f: jax.grad(f)),
    "jax.jit of to_jax": lambda t, v: _to_jax(t, v, lambda jax, f: jax.jit(f)),
    "jax.hessian of to_jax": lambda t, v: _to_jax(t, v, lambda jax, f: jax.hessian(f)),
}  # fmt: skip
