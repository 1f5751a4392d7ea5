"""Floating-point operations, by the formulas of PyTorch's profiler: matrix products, 2d convolutions, sums and products element by element.

PyTorch's backward functions consist of such operations. Here they are one program of XLA each, in which the same things are counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import jax


def flops_of(name: str, shapes: Sequence[Sequence[int]], inputs: Sequence[Any]) -> int:
    """How many an operation takes: two for each multiplication that is added. 0 for operations that are not counted."""
    formula = _FORMULAS.get(name)
    if formula is None or not shapes:
        return 0
    try:
        return formula(shapes, inputs)
    except (IndexError, TypeError, ValueError, ZeroDivisionError):  # shapes that the formula is not for
        return 0


_counted: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def flops_of_derivative(sig: Any) -> int:
    """How many an operation takes that no formula is for, counted in what it gives to XLA."""
    found = _counted.get(sig)
    if found is None:
        found = _counted[sig] = _flops_of_jaxpr(jax.make_jaxpr(sig.function)(*[argument_of(spec) for spec in sig.specs]).jaxpr)
    return found


def argument_of(spec: Any) -> Any:
    """What an operation is traced with in place of an operand."""
    return spec() if isinstance(spec, type) else jax.ShapeDtypeStruct(spec.shape, jax.dtypes.canonicalize_dtype(spec.dtype))


def _flops_of_jaxpr(jaxpr: Any) -> int:
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("mul", "add", "add_any"):
            total += math.prod(eqn.outvars[0].aval.shape)
        total += flops_of_product(eqn) + sum(map(_flops_of_jaxpr, inner_jaxprs(eqn)))
    return total


def flops_of_product(eqn: Any) -> int:
    """How many a product of matrices or a convolution takes; 0 for other equations of a jaxpr."""
    name, sizes = eqn.primitive.name, math.prod(eqn.outvars[0].aval.shape) if eqn.outvars else 0
    if name == "dot_general":
        (over, _), _ = eqn.params["dimension_numbers"]
        return 2 * sizes * math.prod([eqn.invars[0].aval.shape[d] for d in over])
    if name == "conv_general_dilated":
        weight, spec = eqn.invars[1].aval.shape, eqn.params["dimension_numbers"].rhs_spec
        return 2 * sizes * math.prod(weight) // weight[spec[0]]
    return 0


def inner_jaxprs(eqn: Any) -> list[Any]:
    """The jaxprs that are called, or are loops and branches."""
    return [getattr(inner, "jaxpr", inner) for inner in eqn.params.values() if hasattr(inner, "eqns") or hasattr(inner, "jaxpr")]


def _product(a: Sequence[int], b: Sequence[int]) -> int:
    return 2 * math.prod(a) * b[-1] if len(a) >= 2 and len(b) >= 2 else 0


def _convolution(shapes: Sequence[Sequence[int]], inputs: Sequence[Any]) -> int:
    x, weight = shapes[0], shapes[1]
    if len(x) != 4 or len(weight) != 4:
        return 0
    stride, padding, dilation = (_pair(inputs[i] if len(inputs) > i else None, default) for i, default in ((3, 1), (4, 0), (5, 1)))
    if padding == "same":
        sizes: Any = x[2:]
    else:
        pads = (0, 0) if padding == "valid" else padding
        sizes = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in zip(x[2:], pads, dilation, weight[2:], stride, strict=True)]
    return 2 * x[0] * weight[0] * math.prod(sizes) * math.prod(weight[1:])


def _pair(given: Any, default: int) -> Any:
    if given is None:
        return default, default
    if isinstance(given, (int, str)):
        return given if isinstance(given, str) else (given, given)
    return tuple(given) if len(given) == 2 else tuple(given) * 2


_FORMULAS = {
    "aten::mm": lambda shapes, _: _product(shapes[0], shapes[1]),
    "aten::bmm": lambda shapes, _: _product(shapes[0], shapes[1]),
    "aten::addmm": lambda shapes, _: _product(shapes[1], shapes[2]),
    "aten::baddbmm": lambda shapes, _: _product(shapes[1], shapes[2]),
    "aten::mul": lambda shapes, _: math.prod(shapes[0]),
    "aten::add": lambda shapes, _: math.prod(shapes[0]),
    "aten::conv2d": _convolution,
}
