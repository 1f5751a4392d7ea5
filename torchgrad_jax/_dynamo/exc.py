"""`torch._dynamo.exc`: errors of compiling."""

from __future__ import annotations

from torchgrad_jax.lifting.jitting import InvalidBackend
from torchgrad_jax.lifting.tracing import TracingError

__all__ = ["BackendCompilerFailed", "InvalidBackend", "TorchDynamoException", "TorchRuntimeError", "Unsupported"]


class TorchDynamoException(RuntimeError):
    """Never raised: for `except`."""


class BackendCompilerFailed(TorchDynamoException):
    """Never raised: what XLA does not compile is run without."""


class TorchRuntimeError(TorchDynamoException):
    """Never raised: errors of the program pass as they are."""


# What `fullgraph=True` raises here.
Unsupported = TracingError
