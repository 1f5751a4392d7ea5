"""`torch.backends`: what there is below, and the switches that programs set. Everything is compiled by XLA."""

from collections.abc import Iterator as _Iterator
from contextlib import contextmanager as _contextmanager

from torchgrad_jax.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]


@_contextmanager
def __allow_nonbracketed_mutation() -> _Iterator[None]:
    """A block in which switches may be set by assignment; here they always may."""
    yield
