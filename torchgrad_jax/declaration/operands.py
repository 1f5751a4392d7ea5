"""How operators' operands are brought together: to one dtype, and to one shape where an operator asks for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.declaration import dtypes, numpy_forms, promotion
from torchgrad_jax.declaration.converting import broadcast_shapes, broadcast_to, convert, is_half
from torchgrad_jax.runtime.operation import ArgSpec
from torchgrad_jax.runtime.value import Aval, aval_of


def _common(bound: Any, specs: Sequence[ArgSpec]) -> Callable[..., list[Any]]:
    target = bound.common_dtype(specs)
    shape = broadcast_shapes(*(s.shape for s in specs if isinstance(s, Aval)))
    # A number stays 0-dim where the function takes it beside the tensors, and is expanded where it stands for one.
    expand = [not isinstance(s, type) or role for s, role in zip(specs, bound.number_roles(), strict=True)]
    opmath = bound.operator.opmath and is_half(target)

    def cast(x: Any) -> Any:
        if opmath:
            return convert(x if x.ndim == 0 and dtypes.category(np.dtype(x.dtype)) == dtypes.FLOAT else convert(x, target), np.dtype(np.float32))
        return convert(x, target)

    def prepare(arrays: Sequence[Any]) -> list[Any]:
        return [broadcast_to(cast(a), shape) if e else cast(a) for a, e in zip(arrays, expand, strict=True)]

    return prepare


def same_dtypes(bound: Any, specs: Sequence[ArgSpec]) -> Callable[..., list[Any]]:
    tensors = [s for s in specs if isinstance(s, Aval)]
    for s in tensors[1:]:
        if s.dtype != tensors[0].dtype:
            a, b = dtypes.of(tensors[0].dtype), dtypes.of(s.dtype)
            raise RuntimeError(bound.operator.unlike.format(a=a, b=b))
    target = tensors[0].dtype
    return lambda arrays: [convert(a, target) if isinstance(s, type) else a for a, s in zip(arrays, specs, strict=True)]


# `unlike` of products of two matrices.
MATRICES_UNLIKE = "expected m1 and m2 to have the same dtype, but got: {a.word} != {b.word}"


def _as_is(bound: Any, specs: Sequence[ArgSpec]) -> Callable[..., Sequence[Any]]:
    """Tensors untouched; a number becomes what `self` is, or its own kind where `self` is of a lower category."""
    targets = number_dtypes(bound, specs)
    return (lambda arrays: _converted(arrays, targets, convert)) if targets else lambda arrays: arrays


def number_dtypes(bound: Any, specs: Sequence[ArgSpec]) -> list[tuple[int, np.dtype]]:
    """Which operands `_as_is` converts, and to what."""
    numbers = [i for i, s in enumerate(specs) if type(s) is type]
    if not numbers:
        return []
    first = next((s for s in specs if isinstance(s, Aval)), None)
    if first is None:
        return []
    index, main = bound.is_index(), aval_of((1,), first.dtype)
    return [(i, promotion.result_type([main, specs[i]])) for i in numbers if not index[i]]


def _converted(arrays: Sequence[Any], targets: Sequence[tuple[int, np.dtype]], convert: Callable[[Any, np.dtype], Any]) -> list[Any]:
    given = list(arrays)
    for i, target in targets:
        given[i] = convert(given[i], target)
    return given


def on_list(function: Callable[..., Any], keywords: dict[str, Any]) -> Callable[..., Any]:
    return lambda *arrays: function(list(arrays), **keywords)


def on_list_of_one(function: Callable[..., Any], keywords: dict[str, Any]) -> Callable[..., Any]:
    return lambda x, one: function(x, (one,), **keywords)


def converting(function: Callable[..., Any], targets: Sequence[tuple[int, np.dtype]]) -> Callable[..., Any]:
    """A function of NumPy arrays that converts some of its operands first."""

    def converting(*arrays: Any) -> Any:
        return function(*_converted(arrays, targets, numpy_forms.converted))

    return converting


PREPARE: dict[str | None, Callable[..., Callable[..., Any]]] = {
    None: _as_is,
    "common": _common,
    "float": _common,
    "same": same_dtypes,
}
