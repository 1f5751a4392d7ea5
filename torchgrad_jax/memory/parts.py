"""Views of views that are one part of a tensor."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.operators import registry
from torchgrad_jax.operators.filling import MOST_PARTS, PUT_KINDS


def writer_of_part(reads: tuple[Any, ...], aval: Any) -> tuple[Any, Any]:
    """The operation that writes to the part that views of a tensor lead to, and of which of their numbers, times what, it begins in each dimension.
    (None, None) where there is none."""
    left, parts = list(range(aval.ndim)), dict[int, tuple[tuple[tuple[int, int], ...], int, int]]()
    for place, read in enumerate(reads):
        name, how = read.operator.name, read.statics
        if name not in ("select", "slice"):
            return None, None
        dim = left[how["dim"]]
        terms, _, step = parts.get(dim, ((), 0, 1))
        if name == "select":
            left.remove(dim)
            parts[dim] = (*terms, (place, step)), -1, 1
        else:
            parts[dim] = (*terms, (place, step)), how["length"], step * how["step"]
    lengths = [parts[dim][1] for dim in sorted(parts)]
    if 0 in lengths or len(parts) > MOST_PARTS or aval.dtype.char not in PUT_KINDS:
        return None, None
    statics = (tuple(sorted(parts)), tuple(lengths), tuple([parts[dim][2] for dim in sorted(parts)]))
    bound = registry[f"put_part{len(parts)}"].bind((*(ARRAY,) * (2 + len(parts)), *map(Static, statics)))
    return bound, tuple([parts[dim][0] for dim in sorted(parts)])
