"""`torch.backends.cuda`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from torchgrad_jax.nn.dot_product import kernels
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.device import gpus


def is_built() -> bool:
    """Whether JAX has a GPU in this process."""
    return bool(gpus())


class _MatrixProducts:
    """How matrices are multiplied on a GPU."""

    # XLA accumulates in float32 whatever these say.
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False

    @property
    def fp32_precision(self) -> str:
        """`allow_tf32` under its newer name: "tf32" or "ieee"."""
        return "tf32" if self.allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        if precision not in ("ieee", "tf32", "none"):
            raise RuntimeError(f"Invalid precision: {precision}")
        self.allow_tf32 = precision == "tf32"

    def __setattr__(self, name: str, value: object) -> None:
        if not hasattr(type(self), name):
            raise AttributeError(f"Unknown attribute {name}")
        object.__setattr__(self, name, value)

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 may be multiplied as TF32: the same as `torch.set_float32_matmul_precision` says."""
        return modes.matmul_precision != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        modes.set_matmul_precision("high" if allowed else "highest")


matmul = _MatrixProducts()

# The kernels that `scaled_dot_product_attention` may choose. XLA compiles each; that the others are off means that it must be of the kind that is on.
_attention = kernels


def flash_sdp_enabled() -> bool:
    """What `enable_flash_sdp` was told."""
    return _attention["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    """Whether attention may be one operator, of the kind that this kernel would be."""
    _attention["flash"] = enabled


def mem_efficient_sdp_enabled() -> bool:
    """What `enable_mem_efficient_sdp` was told."""
    return _attention["mem_efficient"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Whether attention may be one operator, of the kind that this kernel would be."""
    _attention["mem_efficient"] = enabled


def math_sdp_enabled() -> bool:
    """What `enable_math_sdp` was told."""
    return _attention["math"]


def enable_math_sdp(enabled: bool) -> None:
    """Whether attention may be composed of products and a softmax."""
    _attention["math"] = enabled


def cudnn_sdp_enabled() -> bool:
    """What `enable_cudnn_sdp` was told."""
    return _attention["cudnn"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Whether attention may be one operator, of the kind that this kernel would be."""
    _attention["cudnn"] = enabled


@contextmanager
def sdp_kernel(enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True) -> Iterator[None]:
    """The switches of attention for a block, under a deprecated name."""
    warnings.warn(
        "`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this context manager will be removed. Please see "
        "`torch.nn.attention.sdpa_kernel()` for the new context manager, with updated signature.",
        FutureWarning,
        stacklevel=3,
    )
    before = dict(_attention)
    _attention.update(flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn)
    try:
        yield
    finally:
        _attention.update(before)


def is_flash_attention_available() -> bool:
    """False: attention is compiled by XLA."""
    return False


def preferred_linalg_library(backend: str | None = None) -> str:
    """Changes nothing: XLA chooses. Returns "default"."""
    return "default"


preferred_blas_library = preferred_linalg_library
