"""What holds for all checkpoints of the process: early stop, and tracing for error messages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torchgrad_jax.runtime.device import gpus


class _Settings:
    """None: each checkpoint's own argument holds."""

    early_stop: bool | None = None
    debug: bool | None = None


settings = _Settings()


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Whether the recomputation of a non-reentrant checkpoint whose forward runs in this block ends as soon as all that backward needs is there;
    in place of the checkpoint's own `early_stop`.

    Example::

        with set_checkpoint_early_stop(False):
            out = checkpoint(fn, x, use_reentrant=False)
        out.backward()
    """
    before, settings.early_stop = settings.early_stop, enable
    try:
        yield
    finally:
        settings.early_stop = before


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Whether errors of a checkpoint whose forward runs in this block tell the operations that ran; in place of the checkpoint's own `debug`.
    None: that holds."""
    before, settings.debug = settings.debug, enabled
    try:
        yield
    finally:
        settings.debug = before


class DefaultDeviceType:
    """The type of device whose random state is kept where no argument of a checkpoint is on an accelerator: ``"cuda"`` where JAX has a GPU, else
    ``"cpu"``. There is one generator for all devices here, so it makes no difference to what is computed."""

    _type: str | None = None

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Set it."""
        DefaultDeviceType._type = device

    @staticmethod
    def get_device_type() -> str:
        """What it is."""
        return DefaultDeviceType._type or ("cuda" if gpus() else "cpu")
