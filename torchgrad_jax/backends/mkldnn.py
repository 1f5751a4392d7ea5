"""`torch.backends.mkldnn`: oneDNN."""


def is_available() -> bool:
    """False: nothing is computed by it."""
    return False


# Remembered; changes nothing.
enabled = True
deterministic = False
allow_tf32 = True
