"""`torch._C._nn`: how classes that define `to` themselves read its arguments."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.functions.conversion import parse_to


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """The device, the dtype, whether a move may be asynchronous, and the memory format that the arguments of ``to`` mean."""
    return parse_to(args, kwargs)
