"""`torch.backends.mkl`: Intel's MKL."""


def is_available() -> bool:
    """False: XLA has its own kernels, and NumPy's library is not ours to name."""
    return False
