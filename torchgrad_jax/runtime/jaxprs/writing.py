"""From a jaxpr to a line of the table."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

import numpy as np

from torchgrad_jax.runtime._jax_compat import function_of
from torchgrad_jax.runtime.baseline.inlining import WHOLE
from torchgrad_jax.runtime.jaxprs.reading import SIZES, dtype_text
from torchgrad_jax.runtime.vectors import LENGTH

# The most elements of an array that a jaxpr has in it.
_MOST = 8
_PLAIN = (bool, int, float, str)
# What a parameter is where nothing is asked for, and those that say nothing about what is computed.
_IRRELEVANT = {"sharding", "out_sharding", "name", "weak_type", "memory_space", "accuracy", "symbolic_zeros", "jvp_jaxpr_fun"}


class NotWritten(Exception):
    """Something in a jaxpr that the table has no words for."""


def written(closed: Any, single: bool, sizes: dict[int, str]) -> str:
    """A jaxpr in one line. single: whether the function gives one result that is no tuple. sizes: the letters that stand for sizes. NotWritten where
    something in it cannot be."""
    return json.dumps([int(single), _body(closed.jaxpr, closed.consts, function_of(closed), sizes)], separators=(",", ":"))


def _body(jaxpr: Any, consts: Any, name: str, sizes: dict[int, str]) -> list[Any]:
    if jaxpr.effects:
        raise NotWritten("effects")
    places: dict[Any, Any] = {v: i for i, v in enumerate(jaxpr.invars)}
    places.update({v: _literal(c, np.asarray(c).dtype) for v, c in zip(jaxpr.constvars, consts, strict=True)})
    count, equations = len(jaxpr.invars), []

    def atom(a: Any) -> Any:
        return _literal(a.val, a.aval.dtype) if hasattr(a, "val") else places[a]

    for eqn in jaxpr.eqns:
        results = [_kind(v, sizes) for v in eqn.outvars]
        parts = [eqn.primitive.name, [atom(a) for a in eqn.invars], results if eqn.primitive.multiple_results else results[0]]
        params = {name: _param(name, value, sizes) for name, value in eqn.params.items() if _counts(name, value)}
        if eqn.primitive.name == "convert_element_type":  # the result says it
            del params["new_dtype"]
        equations.append([*parts, params] if params else parts)
        places.update({v: count + i for i, v in enumerate(eqn.outvars)})
        count += len(eqn.outvars)
    about = name if name.startswith(WHOLE) else ""
    return [about, [_kind(v, sizes) for v in jaxpr.invars], equations, [atom(v) for v in jaxpr.outvars]]


def _counts(name: str, value: Any) -> bool:
    return name not in _IRRELEVANT and value is not None and (not callable(value) or isinstance(value, (np.dtype, Enum)))


def _kind(variable: Any, sizes: dict[int, str]) -> str:
    shape, dtype = variable.aval.shape, dtype_text(variable.aval.dtype)
    return dtype + ("*" if shape == (LENGTH,) else f"[{_sizes(shape, sizes)}]" if shape else "")


def _sizes(shape: tuple[int, ...], sizes: dict[int, str]) -> str:
    return ",".join([sizes.get(n, str(n)) for n in shape])


def _literal(value: Any, dtype: Any) -> list[Any]:
    array = np.asarray(value, dtype)
    if array.size > _MOST or (array.dtype.kind == "c" and array.ndim):
        raise NotWritten("a large constant")
    if array.dtype.kind == "c":
        number = complex(array[()])
        return [dtype_text(array.dtype), [number.real, number.imag]]
    return [dtype_text(array.dtype), array.astype(np.float64).tolist() if array.dtype.kind == "V" else array.tolist()]


def _param(name: str, value: Any, sizes: dict[int, str]) -> Any:
    if isinstance(value, Enum):
        return int(value.value)
    if isinstance(value, np.dtype):
        return {"dtype": dtype_text(value)}
    if name in SIZES:
        return _sizes(value, sizes)
    if isinstance(value, (tuple, list)):
        return [_param(name, v, sizes) for v in value]
    if hasattr(value, "jaxpr") and hasattr(value, "consts"):
        return {"jaxpr": _body(value.jaxpr, value.consts, function_of(value), sizes)}
    if isinstance(value, _PLAIN):
        return value
    raise NotWritten(f"{name}={value!r}")
