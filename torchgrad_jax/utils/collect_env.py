"""`torch.utils.collect_env`: what a report of a fault should say of the machine and of what is installed."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from typing import NamedTuple

import torchgrad_jax
from torchgrad_jax.runtime.device import gpus

__all__ = ["SystemEnv", "get_env_info", "get_pretty_env_info", "main"]


class SystemEnv(NamedTuple):
    """What is known of the machine; None for what is not."""

    torch_version: str
    torchgrad_jax_version: str
    is_debug_build: str
    cuda_compiled_version: str | None
    os: str
    libc_version: str
    python_version: str
    python_platform: str
    is_cuda_available: str
    nvidia_gpu_models: str | None
    cpu_info: str
    xla_flags: str
    pip_packages: str


_PACKAGES = ("torchgrad_jax", "jax", "jaxlib", "numpy", "scipy", "ml_dtypes", "torch", "tensorboardX", "safetensors")


def _installed() -> str:
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name}=={metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return "\n".join(f"[pip3] {line}" for line in found)


def get_env_info() -> SystemEnv:
    """The machine, Python and the packages that matter; starts JAX's backend."""
    found = gpus()
    return SystemEnv(
        str(torchgrad_jax.__version__), torchgrad_jax.version.torchgrad_jax, "False", torchgrad_jax.version.cuda,
        f"{platform.system()} {platform.release()} ({platform.machine()})", "-".join(platform.libc_ver()) or "N/A",
        f"{sys.version} ({sys.maxsize.bit_length() + 1}-bit runtime)".replace("\n", ""), platform.platform(), str(bool(found)),
        "\n".join(f"GPU {i}: {gpu.device_kind}" for i, gpu in enumerate(found)) or None,
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors", os.environ.get("XLA_FLAGS", ""), _installed(),
    )  # fmt: skip


def get_pretty_env_info() -> str:
    """`get_env_info` as lines of text."""
    e = get_env_info()
    return "\n".join([
        f"PyTorch version: {e.torch_version}", f"torchgrad_jax version: {e.torchgrad_jax_version}", f"JAX version: {metadata.version('jax')}",
        f"Is debug build: {e.is_debug_build}", f"CUDA used by JAX: {e.cuda_compiled_version or 'N/A'}", "", f"OS: {e.os}",
        f"Libc version: {e.libc_version}", "", f"Python version: {e.python_version}", f"Python platform: {e.python_platform}",
        f"Is CUDA available: {e.is_cuda_available}", f"GPU models and configuration: {e.nvidia_gpu_models or 'No GPU'}", f"XLA_FLAGS: {e.xla_flags}",
        "", "CPU:", e.cpu_info, "", "Versions of relevant libraries:", e.pip_packages,
    ])  # fmt: skip


def main() -> None:
    """Print `get_pretty_env_info`."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
