"""`torch.__future__`: whether a conversion of a module (`Module.to`, `Module.double` ...) gives it other Parameters."""

from __future__ import annotations

__all__ = [
    "get_overwrite_module_params_on_conversion", "get_swap_module_params_on_conversion", "set_overwrite_module_params_on_conversion",
    "set_swap_module_params_on_conversion",
]  # fmt: skip

_overwrite = False
_swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Say whether a conversion of a module gives it new Parameters; otherwise its Parameters are given new content."""
    global _overwrite
    _overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """Whether a conversion of a module gives it new Parameters."""
    return _overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Say whether a conversion of a module, and `load_state_dict` with ``assign=True``, swaps the content of Parameters with that of the tensors they
    are given, so that a Parameter stays the same object. What `torch.__future__.set_overwrite_module_params_on_conversion` says counts less."""
    global _swap
    _swap = value


def get_swap_module_params_on_conversion() -> bool:
    """Whether Parameters stay the same objects in any case."""
    return _swap
