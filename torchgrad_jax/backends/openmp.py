"""`torch.backends.openmp`: OpenMP."""


def is_available() -> bool:
    """False: XLA has threads of its own."""
    return False
