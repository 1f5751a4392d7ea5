"""`torch.return_types`: the classes of results that have names."""

from typing import Any

from torchgrad_jax.calling.return_types import known

__all__ = sorted(known)
globals().update(known)


def __getattr__(name: str) -> Any:
    """Those that were made since."""
    if name in known:
        return known[name]
    raise AttributeError(f"module 'torch.return_types' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *known})
