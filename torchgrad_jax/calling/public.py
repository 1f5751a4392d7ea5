"""What is public: functions name the places where users find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")
# By namespace, in PyTorch's words, what is found there: `torch.X`, `Tensor.X`, `torch.linalg.X` ...
published: dict[str, dict[str, Any]] = {space: {} for space in ("torch", "torch.Tensor", "torch.linalg", "torch.special", "torch.fft")}


def public(*places: str) -> Callable[[_T], _T]:
    """Publish what is decorated. places: namespaces, where it is found by its own name, or dotted names.

    ``@public("torch", "torch.Tensor.mv")`` above ``def matvec`` makes `torch.matvec` and `Tensor.mv`. A declared operator is published by its
    declaration; a function written by hand takes its place. Called as ``public(place)(attribute)`` it takes properties and the like. ValueError
    where a place is taken.
    """

    def publish(found: _T) -> _T:
        for place in places:
            space, name = (place, found.__name__) if place in published else place.rsplit(".", 1)  # type: ignore[attr-defined] - a function
            if name in published[space]:
                raise ValueError(f"{space}.{name} is published twice: {published[space][name]!r} and {found!r}")
            published[space][name] = found
        return found

    return publish
