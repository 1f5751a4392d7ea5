"""`torch.utils.deterministic`: what memory of `torch.empty` holds under `use_deterministic_algorithms`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

__all__ = ["fill_uninitialized_memory"]

# Remembered. There is no uninitialized memory: XLA's arrays begin with zeros.
fill_uninitialized_memory = True


class _Checked(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        if name == "fill_uninitialized_memory" and not isinstance(value, bool):
            raise RuntimeError(f"expected a bool, but got {type(value).__name__}")
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Checked
