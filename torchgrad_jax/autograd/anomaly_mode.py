"""`torch.autograd.anomaly_mode`: find the line of the forward pass whose derivative failed or gave NaN. See `core/anomaly.py`."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.runtime.recorder import ANOMALY, CHECK_FORWARD, CHECK_NAN, set_anomaly
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["detect_anomaly", "set_detect_anomaly"]

ENABLED = "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging."


class _State:
    """What holds in the whole process. It is kept while the mode is off, too."""

    enabled = check_forward = False
    check_nan = True


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on."""
    return _State.enabled


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode, where it is on, looks for NaN in gradients."""
    return _State.check_nan


def set_anomaly_enabled(enabled: bool, check_nan: bool = True, *, check_forward: bool = False) -> None:
    """Turn anomaly mode on or off, for all threads. The arguments are those of `set_detect_anomaly`. TypeError where one is no bool."""
    for name, given, place in (
        ("enabled", enabled, " (position 1)"),
        ("check_nan", check_nan, " (position 2)"),
        ("check_forward", check_forward, ""),
    ):
        if not isinstance(given, bool):
            raise TypeError(f"set_anomaly_enabled(): argument '{name}'{place} must be bool, not {type(given).__name__}")
    _State.enabled, _State.check_nan, _State.check_forward = enabled, check_nan, check_forward
    set_anomaly(ANOMALY | CHECK_NAN * check_nan | CHECK_FORWARD * check_forward if enabled else 0)


class _Restoring:
    """Puts back, at the end of its block, what held when it was made."""

    def __init__(self) -> None:
        self.prev, self.prev_check_nan = is_anomaly_enabled(), is_anomaly_check_nan_enabled()
        self._prev_check_forward = _State.check_forward

    def __exit__(self, *exc: Any) -> None:
        set_anomaly_enabled(self.prev, self.prev_check_nan, check_forward=self._prev_check_forward)


class detect_anomaly(_Restoring):
    """Context manager in which anomaly mode is on, for all threads.

    Each node of the graph notes by which line it was made. When a node fails in the backward pass, a warning shows that line; where the node was made
    by a backward pass itself (`create_graph`), further ones show the lines that led to that. check_nan: a backward pass also looks at each gradient,
    and raises a RuntimeError at the first node that gives NaN. check_forward (not in PyTorch): an operation raises a RuntimeError where NaN is among
    its results and none among its operands. It works inside `jit` too.

    To look at a value it must be computed, so what would be one program runs node by node: for debugging only, as a warning says. TypeError where an
    argument is no bool.

        >>> x = torch.zeros(2, requires_grad=True)
        >>> with torch.autograd.detect_anomaly():
        ...     (x.sqrt() * 0).sum().backward()
        RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.
    """

    def __init__(self, check_nan: bool = True, *, check_forward: bool = False) -> None:
        super().__init__()
        self.check_nan, self._check_forward = check_nan, check_forward
        warn_user(ENABLED)

    def __enter__(self) -> None:
        set_anomaly_enabled(True, self.check_nan, check_forward=self._check_forward)


class set_detect_anomaly(_Restoring):
    """Turn anomaly mode on or off for all threads: at once when called, until the end of the block when used as context manager. The arguments are
    those of `detect_anomaly`, after `mode`. TypeError where one is no bool."""

    def __init__(self, mode: bool, check_nan: bool = True, *, check_forward: bool = False) -> None:
        super().__init__()
        set_anomaly_enabled(mode, check_nan, check_forward=check_forward)

    def __enter__(self) -> None:
        """It holds already."""
