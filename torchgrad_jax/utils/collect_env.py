"""`torch.utils.collect_env`: what a report of a fault should say of the machine and of what is installed."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import NamedTuple

import torchgrad_jax
from torchgrad_jax.runtime.device import gpus

__all__ = [
    "SystemEnv", "get_clang_version", "get_cmake_version", "get_cpu_info", "get_env_info", "get_gcc_version", "get_gpu_info", "get_libc_version",
    "get_nvidia_driver_version", "get_os", "get_pip_packages", "get_platform", "get_pretty_env_info", "get_python_platform", "main", "run",
    "run_and_parse_first_match", "run_and_read_all", "run_and_return_first_line",
]  # fmt: skip

Run = Callable[[str], tuple[int, str, str]]


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


def _installed(names: Sequence[str] = _PACKAGES) -> str:
    found = []
    for name in names:
        try:
            found.append(f"{name}=={metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return "\n".join(f"[pip3] {line}" for line in found)


def run(command: str | Sequence[str]) -> tuple[int, str, str]:
    """The exit status, output and errors of a command, which the shell reads if it is a string; 127 where there is no such command."""
    try:
        done = subprocess.run(command, shell=isinstance(command, str), capture_output=True, text=True, errors="replace")
    except FileNotFoundError as error:
        return 127, "", str(error)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def run_and_read_all(run_lambda: Run, command: str) -> str | None:
    """The output of a command; None if it fails."""
    status, out, _ = run_lambda(command)
    return out if status == 0 else None


def run_and_parse_first_match(run_lambda: Run, command: str, regex: str) -> str | None:
    """The first group of the first match in the output of a command; None if it fails or nothing matches."""
    found = re.search(regex, run_and_read_all(run_lambda, command) or "")
    return found and found.group(1)


def run_and_return_first_line(run_lambda: Run, command: str) -> str | None:
    """The first line of the output of a command; None if it fails."""
    out = run_and_read_all(run_lambda, command)
    return None if out is None else out.split("\n")[0]


def get_gcc_version(run_lambda: Run) -> str | None:
    """Of the C compiler gcc; None where there is none."""
    return run_and_parse_first_match(run_lambda, "gcc --version", r"gcc (.*)")


def get_clang_version(run_lambda: Run) -> str | None:
    """Of the C compiler clang; None where there is none."""
    return run_and_parse_first_match(run_lambda, "clang --version", r"clang version (.*)")


def get_cmake_version(run_lambda: Run) -> str | None:
    """Of cmake; None where there is none."""
    return run_and_parse_first_match(run_lambda, "cmake --version", r"cmake (.*)")


def get_nvidia_driver_version(run_lambda: Run) -> str | None:
    """Of the driver of NVIDIA's GPUs; None where there is none."""
    return run_and_parse_first_match(run_lambda, "nvidia-smi --query-gpu=driver_version --format=csv,noheader", r"(\S+)")


def get_gpu_info(run_lambda: Run) -> str | None:
    """The GPUs, one a line; None where there are none. Does not start JAX's backend."""
    out = run_and_read_all(run_lambda, "nvidia-smi -L")
    return None if out is None else re.sub(r" \(UUID: .+?\)", "", out)


def get_cpu_info(run_lambda: Run) -> str:
    """What the system says of its processors, or else their name."""
    return run_and_read_all(run_lambda, "lscpu" if sys.platform == "linux" else "sysctl -n machdep.cpu.brand_string") or platform.processor()


def get_platform() -> str:
    """The kind of system: "linux", "darwin", "win32"."""
    return sys.platform


def get_os(run_lambda: Run) -> str:
    """The system and its version."""
    return f"{platform.system()} {platform.release()} ({platform.machine()})"


def get_libc_version() -> str:
    """Of the C library; "N/A" where it is not known."""
    return "-".join(platform.libc_ver()).strip("-") or "N/A"


def get_python_platform() -> str:
    """What Python says of the machine."""
    return platform.platform()


def get_pip_packages(run_lambda: Run, patterns: Sequence[str] | None = None) -> tuple[str, str]:
    """ "pip3", and the installed packages that matter or, with patterns, whose name contains one of these."""
    names = _PACKAGES if patterns is None else sorted({str(d.name) for d in metadata.distributions() if any(p in str(d.name) for p in patterns)})
    return "pip3", _installed(names).replace("[pip3] ", "")


def get_env_info() -> SystemEnv:
    """The machine, Python and the packages that matter; starts JAX's backend."""
    found = gpus()
    return SystemEnv(
        str(torchgrad_jax.__version__), torchgrad_jax.version.torchgrad_jax, "False", torchgrad_jax.version.cuda,
        get_os(run), get_libc_version(),
        f"{sys.version} ({sys.maxsize.bit_length() + 1}-bit runtime)".replace("\n", ""), get_python_platform(), str(bool(found)),
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
