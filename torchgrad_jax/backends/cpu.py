"""`torch.backends.cpu`."""

import platform


def get_cpu_capability() -> str:
    """The machine's architecture: XLA compiles for the processor that it finds."""
    return platform.machine()
