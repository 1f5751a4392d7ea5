"""`torch.autocast` and gradient scaling: switched off they do what PyTorch's do; switched on they say that there is no such thing yet."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any

from torchgrad_jax.declaration import dtypes
from torchgrad_jax.runtime.device import device, gpus

__all__ = [
    "GradScaler", "autocast", "custom_bwd", "custom_fwd", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype",
    "is_autocast_available", "is_autocast_cache_enabled", "is_autocast_cpu_enabled", "is_autocast_enabled",
]  # fmt: skip

_DTYPES = {"cpu": dtypes.bfloat16, "cuda": dtypes.float16, "xla": dtypes.bfloat16, "mps": dtypes.float16, "xpu": dtypes.float16}
_MISSING = "torchgrad_jax does not choose dtypes by itself; pass enabled=False, and convert the model and its inputs, say by .to(torch.bfloat16)"


class autocast:
    """Context manager and decorator of mixed precision. Only `enabled=False` does anything, namely nothing.

    For CUDA without a GPU it warns and is off, as in PyTorch. NotImplementedError where it would be on.
    """

    def __init__(self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device = device(device_type).type
        self.fast_dtype = get_autocast_dtype(self.device) if dtype is None else dtype
        if enabled and self.device == "cuda" and not gpus():
            warnings.warn("CUDA is not available or torch_xla is imported. Disabling autocast.", stacklevel=2)
            enabled = False
        if enabled:
            raise NotImplementedError(f"autocast({device_type!r}): {_MISSING}")
        self._enabled = False

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            return func(*args, **kwargs)

        return call


class GradScaler:
    """Scales losses so that gradients of half precision do not vanish. Only `enabled=False`, with which it hands everything on.

    For CUDA without a GPU it warns and is off, as in PyTorch. NotImplementedError where it would be on.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if enabled and device == "cuda" and not gpus():
            warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
            enabled = False
        if enabled:
            raise NotImplementedError(f"GradScaler({device!r}): {_MISSING}")

    def scale(self, outputs: Any) -> Any:
        """What it is given."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Does nothing."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(...)`."""
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Does nothing."""

    def get_scale(self) -> float:
        """1."""
        return 1.0

    def is_enabled(self) -> bool:
        """False."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Does nothing."""


def custom_fwd(fwd: Any = None, *, device_type: str, cast_inputs: Any = None) -> Any:
    """Decorator of the `forward` of a Function: as it is, since there is no autocast that it would have to cast for."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    return fwd


def custom_bwd(bwd: Any = None, *, device_type: str) -> Any:
    """Decorator of the `backward` of a Function: as it is."""
    return functools.partial(custom_bwd, device_type=device_type) if bwd is None else bwd


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast can be switched on for a type of device: for none."""
    device(device_type)
    return False


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is on: it never is."""
    device(device_type)
    return False


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled("cpu")`."""
    return is_autocast_enabled("cpu")


def is_autocast_cache_enabled() -> bool:
    """Whether conversions of weights would be kept, as PyTorch has it from the start."""
    return True


def get_autocast_dtype(device_type: str) -> dtypes.dtype:
    """The dtype that PyTorch's autocast chooses by itself. RuntimeError for a type of device that it knows none of."""
    found = _DTYPES.get(device(device_type).type)
    if found is None:
        raise RuntimeError(f"unsupported scalarType: autocast has no dtype for {device_type!r}")
    return found


def get_autocast_cpu_dtype() -> dtypes.dtype:
    """`get_autocast_dtype("cpu")`."""
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> dtypes.dtype:
    """`get_autocast_dtype("cuda")`."""
    return get_autocast_dtype("cuda")
