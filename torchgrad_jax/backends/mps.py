"""`torch.backends.mps`: Apple's GPUs."""


def is_available() -> bool:
    """False: JAX's platforms here are the CPU, CUDA and TPU."""
    return False


def is_built() -> bool:
    """False."""
    return False
