"""`torch.fx.experimental.proxy_tensor`: the tracer of operators below autograd. It is not here, and so never at work."""

from __future__ import annotations

__all__ = ["get_proxy_mode"]


def get_proxy_mode() -> None:
    """None: no tracer is at work."""
    return None
