"""`torch.xpu`: Intel's GPUs, of which JAX has none here."""


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


def manual_seed_all(seed: int) -> None:
    """Does nothing: there is no such device."""


def synchronize(device: object = None) -> None:
    """AssertionError: there is no such device."""
    raise AssertionError("torch.xpu: JAX has no such device in this process")
