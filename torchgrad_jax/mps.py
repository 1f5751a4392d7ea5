"""`torch.mps`: Apple's GPUs, of which JAX has none here."""


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """None."""
    return 0


def manual_seed(seed: int) -> None:
    """Does nothing: there is no such device. torch.manual_seed seeds all that there are."""


def empty_cache() -> None:
    """Does nothing: there is no such device."""


def synchronize(device: object = None) -> None:
    """AssertionError: there is no such device."""
    raise AssertionError("torch.mps: JAX has no such device in this process")


def current_allocated_memory() -> int:
    """None."""
    return 0


driver_allocated_memory = current_allocated_memory
