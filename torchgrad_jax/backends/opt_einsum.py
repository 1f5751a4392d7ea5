"""`torch.backends.opt_einsum`: it finds the order of the products in `torch.einsum`."""

# Remembered; opt_einsum is asked either way.
enabled = True
strategy = "auto"


def is_available() -> bool:
    """True: JAX brings it."""
    return True
