"""Arguments in the form that our implementations expect: PyTorch's binding takes more than one type for many parameters."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from torchgrad_jax.calling.signature import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes


def converted(p: Parameter, value: Any) -> Any:
    """The argument as the implementation wants it: the same object where it is in that form."""
    kind = p.kind
    if value is None:
        return None if p.default in (None, "None") else default_of(p, value)
    if kind in ("Tensor", "Tensor[]", "any") or kind[0] == ".":
        return value
    if kind == "dtype":
        return dtypes.PYTHON[value] if isinstance(value, type) else value
    if kind in ("int", "float", "Scalar", "Tensor|Scalar", "device"):
        return _number(kind, value)
    if kind in ("int[]", "float[]", "Scalar[]"):
        if isinstance(value, (list, tuple)):
            return type(value)(map(_element, value)) if any(isinstance(v, (Tensor, np.generic)) for v in value) else value
        return _element(value)
    return value


def default_of(p: Parameter, otherwise: Any = None) -> Any:
    """The default, which PyTorch writes with braces where it is a tuple; `otherwise` where it is no literal."""
    try:
        return ast.literal_eval((p.default or "None").replace("{", "(").replace("}", ")"))
    except (ValueError, SyntaxError):
        return otherwise


def _number(kind: str, value: Any) -> Any:
    if kind == "Tensor|Scalar":
        return value.item() if isinstance(value, np.generic) else value
    value = _element(value)
    return float(value) if kind == "float" and isinstance(value, bool) else value


def _element(value: Any) -> Any:
    return value.item() if isinstance(value, (Tensor, np.generic)) else value
