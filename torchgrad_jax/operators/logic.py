"""Comparison, logic and bits: what answers yes or no element by element."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.converting import convert, where, zeros_like_grad
from torchgrad_jax.declaration.operator import op
from torchgrad_jax.declaration.refusals import refusing
from torchgrad_jax.operators.reduction import title


def _comparison(name: str, function: Any, doc: str, ordered: bool = True, **options: Any) -> Any:
    def compare(x: Any, y: Any) -> Any:
        if ordered and x.dtype.kind == "c":
            raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{dtypes.of(np.dtype(x.dtype)).title}'")
        return function(x, y)

    compare.__doc__ = doc
    camel = name.title()

    @op(f"{name}_written(Tensor self, Tensor|Scalar other, Tensor result)", method=False, toplevel=False, out=False, node=f"{camel}Backward1",
        number_node=f"{camel}Backward0", grads={"self": zeros_like_grad, "other": zeros_like_grad})  # fmt: skip
    def write(x: Any, y: Any, result: Any) -> Any:
        """The result as the target holds it."""
        return convert(result, np.dtype(x.dtype))

    schema = f"{name}(Tensor self, Tensor|Scalar other)"
    return op(schema, promote="common", inplace=True, written=write.name, differentiable=False, **options)(compare)


eq = _comparison("eq", lax.eq, "Whether equal, element by element.", ordered=False)
ne = _comparison("ne", lax.ne, "Whether not equal, element by element.", ordered=False, aliases=("not_equal",))
lt = _comparison("lt", lax.lt, "Whether less, element by element.", aliases=("less",))
le = _comparison("le", lax.le, "Whether less or equal, element by element.", aliases=("less_equal",))
gt = _comparison("gt", lax.gt, "Whether greater, element by element.", aliases=("greater",))
ge = _comparison("ge", lax.ge, "Whether greater or equal, element by element.", aliases=("greater_equal",))


def _logical(name: str, function: Any, doc: str) -> None:
    def logical(x: Any, y: Any) -> Any:
        return function(convert(x, np.dtype(bool)), convert(y, np.dtype(bool)))

    logical.__doc__ = doc
    op(f"{name}(Tensor self, Tensor other)", promote="common", inplace=True, differentiable=False)(logical)


_logical("logical_and", lax.bitwise_and, "Whether both are non-zero.")
_logical("logical_or", lax.bitwise_or, "Whether one is non-zero.")
_logical("logical_xor", lax.bitwise_xor, "Whether just one is non-zero.")


@op("logical_not(Tensor self)", elementwise=True, inplace=True, differentiable=False)
def logical_not(x: Any) -> Any:
    """Whether zero."""
    return x == 0


def _bitwise(name: str, function: Any, doc: str) -> None:
    def bitwise(x: Any, y: Any) -> Any:
        if x.dtype.kind not in "biu":
            raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{dtypes.of(np.dtype(x.dtype)).title}'")
        return function(x, y)

    bitwise.__doc__ = doc

    def refuse_numbers(x: Any, y: Any) -> None:
        if isinstance(x, type) and isinstance(y, type):
            raise TypeError(f"{name}() received an invalid combination of arguments - got ({x.__name__}, {y.__name__})")

    op(f"{name}(Tensor|Scalar self, Tensor|Scalar other)", promote="common", inplace=True, differentiable=False, validate=refuse_numbers)(bitwise)


_bitwise("bitwise_and", lax.bitwise_and, "The bits set in both.")
_bitwise("bitwise_or", lax.bitwise_or, "The bits set in one.")
_bitwise("bitwise_xor", lax.bitwise_xor, "The bits set in just one.")


@op("bitwise_not(Tensor self)", elementwise=True, inplace=True, differentiable=False, validate=refusing("bitwise_not_cpu", "fcV"))
def bitwise_not(x: Any) -> Any:
    """The bits inverted. NotImplementedError for floating point."""
    return lax.bitwise_not(x)


@op("isnan(Tensor self)", elementwise=True, differentiable=False, out=False)
def isnan(x: Any) -> Any:
    """Whether nan."""
    return jnp.isnan(x)


@op("isinf(Tensor self)", elementwise=True, differentiable=False, out=False)
def isinf(x: Any) -> Any:
    """Whether infinite."""
    return jnp.isinf(x)


@op("isfinite(Tensor self)", elementwise=True, differentiable=False, out=False)
def isfinite(x: Any) -> Any:
    """Whether neither infinite nor nan."""
    return jnp.isfinite(x)


def _same_type(x: Any, y: Any, rtol: float, atol: float, **_: Any) -> None:
    for label, limit in (("rtol", rtol), ("atol", atol)):
        if limit < 0:
            raise RuntimeError(f"{label} must be greater than or equal to zero, but got {limit:g}")
    if x.dtype != y.dtype:
        raise RuntimeError(f"{title(x)} did not match {title(y)}")


@op("isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False)", elementwise=True, differentiable=False, out=False,
    validate=_same_type)  # fmt: skip
def isclose(x: Any, y: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    """Whether abs(self - other) <= atol + rtol * abs(other), element by element."""
    if x.dtype == np.bool_:
        return x == y
    near = x == y
    if dtypes.is_float(np.dtype(x.dtype)):
        allowed = atol + rtol * jnp.abs(y)
        near = near | (jnp.isfinite(x) & jnp.isfinite(y) & (jnp.abs(x - y) <= allowed))
        return near | (jnp.isnan(x) & jnp.isnan(y)) if equal_nan else near
    return near | (jnp.abs(x - y) <= atol + rtol * jnp.abs(y))


@op("_any_non_finite(Tensor[] tensors)", method=False, toplevel=False, differentiable=False)
def any_non_finite(tensors: list[Any]) -> Any:
    """1 where an element of one of the tensors is infinite or nan, else 0, as float32."""
    return functools.reduce(jnp.maximum, [jnp.any(~jnp.isfinite(x)).astype(np.float32) for x in tensors])


@op("_next_scale(Tensor scale, Tensor growth_tracker, Tensor found_inf, float growth_factor, float backoff_factor, int growth_interval)",
    method=False, toplevel=False, differentiable=False, results=("scale", "growth_tracker"))  # fmt: skip
def next_scale(scale: Any, tracker: Any, found_inf: Any, growth_factor: float, backoff_factor: float, growth_interval: int) -> Any:
    """What becomes of the scale of losses after a step: it grows after `growth_interval` steps without an infinity (unless it would become infinite),
    and is backed off after one with it. growth_tracker: how many there were in a row."""
    found, steps, grown = found_inf.reshape(()) != 0, tracker + 1, scale * growth_factor
    grows = steps == growth_interval
    kept = where(grows & jnp.isfinite(grown), grown, scale)
    return where(found, scale * backoff_factor, kept).astype(scale.dtype), where(found | grows, 0, steps).astype(tracker.dtype)
