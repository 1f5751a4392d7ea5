"""`torch.compiler`: what runs is compiled by XLA in any case, so its decorators give back what they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax.lifting.jitting import compile
from torchgrad_jax.runtime import passing_through

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling", "is_dynamo_compiling",
    "is_exporting", "list_backends", "reset", "set_stance", "substitute_in_graph",
]  # fmt: skip

is_compiling = is_dynamo_compiling = is_exporting = passing_through.no


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function itself, or a decorator."""
    return passing_through.decorator(fn)


def allow_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


assume_constant_result = allow_in_graph


def substitute_in_graph(original_fn: Any, *args: Any, **kwargs: Any) -> Any:
    """A decorator that gives back the function: nothing is substituted."""
    return passing_through.decorator()


def reset() -> None:
    """Does nothing: what was compiled stays right."""


def cudagraph_mark_step_begin() -> None:
    """Does nothing: XLA's programs own their memory."""


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """The backends that `torch.compile` can be told of; all of them are XLA."""
    return ["inductor"]


class set_stance:
    """Context manager, decorator or plain call that changes nothing."""

    def __init__(self, stance: str = "default", **options: Any) -> None:
        self.stance = stance

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass

    def __call__(self, fn: Any) -> Any:
        return fn
