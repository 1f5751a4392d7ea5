"""`torch.backends.cuda`."""

from __future__ import annotations

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

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 may be multiplied as TF32: the same as `torch.set_float32_matmul_precision` says."""
        return modes.matmul_precision != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        modes.set_matmul_precision("high" if allowed else "highest")


matmul = _MatrixProducts()

# The kernels of attention that PyTorch would choose from. There is one way here; the switches are remembered.
_attention = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def flash_sdp_enabled() -> bool:
    """What `enable_flash_sdp` was told. Attention is compiled by XLA either way."""
    return _attention["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    """Remembered; changes nothing."""
    _attention["flash"] = enabled


def mem_efficient_sdp_enabled() -> bool:
    """What `enable_mem_efficient_sdp` was told."""
    return _attention["mem_efficient"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Remembered; changes nothing."""
    _attention["mem_efficient"] = enabled


def math_sdp_enabled() -> bool:
    """What `enable_math_sdp` was told."""
    return _attention["math"]


def enable_math_sdp(enabled: bool) -> None:
    """Remembered; changes nothing."""
    _attention["math"] = enabled


def cudnn_sdp_enabled() -> bool:
    """What `enable_cudnn_sdp` was told."""
    return _attention["cudnn"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Remembered; changes nothing."""
    _attention["cudnn"] = enabled
