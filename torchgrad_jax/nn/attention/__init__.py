"""`torch.nn.attention`: which kernels `scaled_dot_product_attention` may choose from."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torchgrad_jax.nn.dot_product import kernels
from torchgrad_jax.runtime.lazy import module_elsewhere
from torchgrad_jax.runtime.user_code import warn_user

module_elsewhere(__name__, "flex_attention", "func/flex_attention.py")

__all__ = [
    "SDPBackend", "WARN_FOR_UNFUSED_KERNELS", "activate_flash_attention_impl", "current_flash_attention_impl", "list_flash_attention_impls",
    "register_flash_attention_impl", "restore_flash_attention_impl", "sdpa_kernel",
]  # fmt: skip

# PyTorch says why a kernel on a GPU was not taken where this is true. XLA has no such kernels to take.
WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.Enum):
    """The kinds of kernels of attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __int__(self) -> int:
        return self.value


_SWITCHES = {
    SDPBackend.MATH: "math",
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "mem_efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}


@contextmanager
def sdpa_kernel(backends: Sequence[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[None]:
    """Within, and in a function decorated with it, `scaled_dot_product_attention` takes none but these kinds of kernels, in all threads. MATH
    composes it of products and a softmax; the others are one operator, on the CPU FLASH_ATTENTION alone, and XLA compiles both.

    set_priority: whether the order of backends is one of preference. There is never a choice between two of one kind, so it decides nothing.
    AssertionError where backends is something else; RuntimeError by attention where no kernel is left.
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError(f"Backend must be an instance of SDPBackend or a list of SDPBackend instances, got {type(backends).__name__}")
    wanted = {_SWITCHES.get(b) for b in ([backends] if isinstance(backends, SDPBackend) else backends)}
    before = dict(kernels)
    kernels.update({name: name in wanted for name in kernels})
    try:
        yield
    finally:
        kernels.update(before)


# ---------------------------------------------------------------------- implementations of flash attention


_implementations: dict[str, Callable[..., Any]] = {}
# What is active: its name, and what ends it.
_active: list[tuple[str, Any]] = []


def _refuse(name: str) -> Callable[[], Any]:
    def activate() -> Any:
        raise NotImplementedError(
            f"{name} is a package of CUDA kernels for PyTorch, which cannot run JAX's arrays: leave it out, XLA compiles attention for the device"
        )  # fmt: skip

    return activate


for _name in ("FA3", "FA4"):
    _implementations[_name] = _refuse(_name)


def register_flash_attention_impl(impl: str, *, register_fn: Callable[..., Any]) -> None:
    """Keep a function that makes an implementation take effect, for `activate_flash_attention_impl`."""
    _implementations[impl] = register_fn


def activate_flash_attention_impl(impl: str) -> None:
    """Call what was registered under a name; it is active where that returns something, whose `remove()` ends it. ValueError for an unknown name,
    NotImplementedError for PyTorch's own."""
    if impl not in _implementations:
        raise ValueError(f"Unknown flash attention impl '{impl}'. Available implementations: {list_flash_attention_impls()}")
    if current_flash_attention_impl() == impl:
        return
    handle = _implementations[impl]()
    if handle is not None:
        _active[:] = [(impl, handle)]


def list_flash_attention_impls() -> list[str]:
    """The names of what is registered."""
    return sorted(_implementations)


def current_flash_attention_impl() -> str | None:
    """The name of what is active; None for nothing."""
    return _active[0][0] if _active else None


def restore_flash_attention_impl(_raise_warn: bool = True) -> None:
    """Let nothing be active. A warning where nothing was."""
    if not _active and _raise_warn:
        warn_user("Trying to restore default FA2 impl when no custom impl was activated")
    for _, handle in _active:
        handle.remove()
    _active.clear()
