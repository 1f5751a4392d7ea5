"""The fields of a Plan that each operation reads: a class of nothing else, so that compiled code reads them without asking Python."""

from __future__ import annotations

from typing import Any


class PlanFields:
    """See Plan."""

    __slots__ = ("saves", "inputs", "node_class", "vjp", "passes", "undefined", "single", "avals", "frees", "lists", "known_apart")
    saves: tuple[int, ...]
    inputs: tuple[int, ...]
    node_class: Any
    vjp: Any  # the backward operation where all results have gradients, once `vjp_of` has been asked for it
    passes: bool
    undefined: bool
    single: bool
    avals: tuple[Any, ...]
    frees: bool
    lists: bool  # whether an argument is a list of tensors
    known_apart: list[tuple[Any, tuple[int, ...]]] | None  # what `apart` has found
