"""`torch._tensor_str`: how tensors are printed."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.functions import formatting
from torchgrad_jax.functions.formatting import get_printoptions, printoptions, set_printoptions

__all__ = ["PRINT_OPTS", "get_printoptions", "printoptions", "set_printoptions"]


class _Options:
    """The options that hold, as attributes, which may be set."""

    def __getattr__(self, name: str) -> Any:
        try:
            return formatting.get_printoptions()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        formatting.set_printoptions(**{name: value})


PRINT_OPTS = _Options()
