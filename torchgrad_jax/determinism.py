"""`torch.use_deterministic_algorithms` and what tells and sets the same thing under other names."""

from __future__ import annotations

from torchgrad_jax.runtime import modes

__all__ = [
    "are_deterministic_algorithms_enabled", "get_deterministic_debug_mode", "is_deterministic_algorithms_warn_only_enabled",
    "set_deterministic_debug_mode", "use_deterministic_algorithms",
]  # fmt: skip

_DEBUG_MODES = ("default", "warn", "error")
_warn_only = False


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Let an operation that is repeated give the same bits each time, not only each time the script is run.

    Every operator here is deterministic, so none raises or warns, and `warn_only` is only remembered. But a program of operations that is
    interpreted while it is new and compiled once it is hot may differ in the last digits before and after. With `mode` True it keeps the tier that it
    began with, which for a long loop is the slower one. TypeError where an argument is no bool.
    """
    global _warn_only
    for name, value, where in (("mode", mode, "(position 1) "), ("warn_only", warn_only, "")):
        if type(value) is not bool:
            raise TypeError(f"_set_deterministic_algorithms(): argument '{name}' {where}must be bool, not {type(value).__name__}")
    modes.set_deterministic(mode)
    _warn_only = warn_only


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms` is on."""
    return modes.deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """What `use_deterministic_algorithms` was told as `warn_only`."""
    return _warn_only


def get_deterministic_debug_mode() -> int:
    """0: off; 1: on, to warn only; 2: on."""
    return (1 if _warn_only else 2) if modes.deterministic else 0


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by number or name: 0 or "default", 1 or "warn", 2 or "error".

    TypeError for what is neither an int nor a str, RuntimeError for another number or name.
    """
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in _DEBUG_MODES:
            raise RuntimeError(f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {debug_mode}")
        debug_mode = _DEBUG_MODES.index(debug_mode)
    if not 0 <= debug_mode < len(_DEBUG_MODES):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    use_deterministic_algorithms(debug_mode > 0, warn_only=debug_mode == 1)
