"""Orthogonal polynomials by their recurrences. The order `n` is a tensor or a number; its fraction is cut off, and below 0 the value is 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration.converting import where
from torchgrad_jax.declaration.operator import op
from torchgrad_jax.declaration.refusals import kernel
from torchgrad_jax.operators.kernels.loops import while_loop
from torchgrad_jax.operators.kernels.whole import by_c


class Family(NamedTuple):
    """The polynomial of order 1, the one of order k from those of k - 1 and k - 2, and where there is one the form by the angle between -1 and 1,
    which is used for orders above `above`: it is exacter than many steps."""

    first: Callable[[Any], Any]
    next: Callable[[Any, Any, Any, Any], Any]
    by_angle: Callable[[Any, Any], Any] | None = None
    above: int = 0


def _chebyshev(first: Callable[[Any], Any], by_angle: Callable[[Any, Any], Any], above: int = 8) -> Family:
    return Family(first, lambda x, k, last, before: 2 * x * last - before, by_angle, above)


_FAMILIES = {
    "chebyshev_polynomial_t": _chebyshev(lambda x: x, lambda n, angle: lax.cos(n * angle), 6),
    "chebyshev_polynomial_u": _chebyshev(lambda x: 2 * x, lambda n, angle: lax.sin((n + 1) * angle) / lax.sin(angle)),
    "chebyshev_polynomial_v": _chebyshev(lambda x: 2 * x - 1, lambda n, angle: lax.cos((n + 0.5) * angle) / lax.cos(angle / 2)),
    "chebyshev_polynomial_w": _chebyshev(lambda x: 2 * x + 1, lambda n, angle: lax.sin((n + 0.5) * angle) / lax.sin(angle / 2)),
    "hermite_polynomial_h": Family(lambda x: 2 * x, lambda x, k, last, before: 2 * x * last - 2 * (k - 1) * before),
    "hermite_polynomial_he": Family(lambda x: x, lambda x, k, last, before: x * last - (k - 1) * before),
    "laguerre_polynomial_l": Family(lambda x: 1 - x, lambda x, k, last, before: ((2 * k - 1 - x) * last - (k - 1) * before) / k),
    "legendre_polynomial_p": Family(lambda x: x, lambda x, k, last, before: ((2 * k - 1) * x * last - (k - 1) * before) / k),
}


def _by_recurrence(family: Family, x: Any, n: Any) -> Any:
    """The polynomials of orders `n`, of one shape with x. An order below 0 gives 0."""

    def going_on(state: tuple[Any, Any, Any]) -> Any:
        k, last, _ = state
        return jnp.any((k <= n) & (last == last))

    def step(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        k, last, before = state
        more = k <= n
        return k + 1, where(more, family.next(x, k.astype(x.dtype), last, before), last), where(more, last, before)

    one = jnp.ones_like(x)
    start = where(n < 0, 0, where(n == 0, 1, family.first(x))).astype(x.dtype)
    return while_loop(going_on, step, (jnp.full((), 2, n.dtype), start, one))[1]


def _polynomial(name: str, family: Family, shifted: bool) -> Callable[[Any, Any], Any]:
    @kernel(f"{name}_cpu", "ch")
    @by_c(name)
    def polynomial(x: Any, n: Any) -> Any:
        x, n = jnp.broadcast_arrays(x, n)
        n = where(abs(n) < 2.0**31, n, -1).astype(np.int64)  # as PyTorch's conversion, NaN is below 0
        if shifted:
            x = 2 * x - 1
        if family.by_angle is None:
            return _by_recurrence(family, x, n)
        turned = (abs(x) < 1) & (n > family.above)
        angle = jnp.arccos(where(turned, x, 0))
        return where(turned, family.by_angle(n.astype(x.dtype), angle), _by_recurrence(family, x, where(turned, 0, n))).astype(x.dtype)

    return polynomial


_NAMES = {**{name: (family, False) for name, family in _FAMILIES.items()},
          **{f"shifted_{name}": (family, True) for name, family in _FAMILIES.items() if name.startswith("chebyshev")}}  # fmt: skip
for _name, (_family, _shifted) in _NAMES.items():
    _function = _polynomial(_name, _family, _shifted)
    _title = _name.rpartition("_polynomial_")[0].replace("_", " ").title().replace("Shifted", "shifted")
    _function.__doc__ = f"The {_title} polynomial {_name[-2:].lstrip('_').title()} of order n at x{', of 2 x - 1' if _shifted else ''}."
    op(f"special_{_name}(Tensor|Scalar x, Tensor|Scalar n)", promote="float", method=False, toplevel=False, differentiable=False)(_function)
