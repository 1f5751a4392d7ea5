"""What PyTorch's nodes show as ``grad_fn._saved_*`` though no derivative of ours needs it: arguments of the operation, shapes of its operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torchgrad_jax.declaration.operator import BoundOperator
from torchgrad_jax.runtime.operation import Signature
from torchgrad_jax.runtime.value import Aval

_CONSTANTS = {"True": True, "False": False, "None": None, "1": 1}
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def names_shown(bound: BoundOperator) -> list[str]:
    """The names beyond those that formulas ask for."""
    return [entry.partition("=")[0] for entry in _entries(bound)]


def _entries(bound: BoundOperator) -> list[str]:
    return bound.operator.attributes.split()


def shown_value(sig: Signature, name: str) -> Any:
    """An argument of the operation, or the shape of an operand, by its name. PyTorch's integers have no sign here."""
    bound: Any = sig.bop
    constants = dict(entry.split("=") for entry in _entries(bound) if "=" in entry)
    if name in constants:
        return _CONSTANTS[constants[name]]
    if name in bound.statics and name not in _DERIVED:
        kind, value = bound.operator.schema.by_name[name].type, bound.given(name)
        return _REDUCTIONS[value] if name == "reduction" else _unsigned(value) if kind.startswith("int") else value
    if name in _DERIVED:
        argument, derive = _DERIVED[name]
        given = bound.statics[argument]
        return None if given is None else derive(given)
    shapes = sizes(sig)
    if (shape := shapes.get(f"{name.removesuffix('_dim')}_sym_sizes")) is not None:
        return len(shape)
    return _from_shape(shapes, *name.split("_sym_"))


# By name: the argument that an attribute is made from, and how, unless that is None.
_DERIVED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "split_size": ("parts", lambda parts: parts[0][1]),
    "split_sizes": ("parts", lambda parts: tuple(length for _, length in parts)),
    "scales": ("scales", lambda factors: factors[0]),
    "scales_d": ("scales", lambda factors: factors[-3]),
    "scales_h": ("scales", lambda factors: factors[-2]),
    "scales_w": ("scales", lambda factors: factors[-1]),
}


def _unsigned(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_unsigned, value))
    return value + (1 << 64) if isinstance(value, int) and value < 0 else value


def _from_shape(shapes: dict[str, tuple[int, ...]], operand: str, what: str = "") -> Any:
    """``sizes``, ``numel``, ``argsize_1`` or ``argsize_minus_1`` of an operand; ``sizes_opt`` of one that may be missing. None for anything else."""
    shape = shapes.get(f"{operand}_sym_sizes")
    if what == "sizes_opt":
        return (0,) if shape is None else shape
    if shape is None or not what:
        return None
    if what.startswith("argsize_"):
        return shape[int(what.removeprefix("argsize_").replace("minus_", "-"))]
    return math.prod(shape) if what == "numel" else shape


def sizes(sig: Signature) -> dict[str, tuple[int, ...]]:
    """The operands' shapes, by the names under which formulas ask for them: a formula that needs no more saves no more."""
    bound: Any = sig.bop
    return {f"{n}_sym_sizes": spec.shape for n, spec in zip(bound.names, sig.specs, strict=True) if isinstance(spec, Aval)}
