"""`functorch.experimental`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax.func.forward import jvp
from torchgrad_jax.func.functionalizing import functionalize
from torchgrad_jax.func.jacobians import hessian, jacfwd
from torchgrad_jax.func.modules import replace_all_batch_norm_modules_
from torchgrad_jax.func.vmapping import Dims, vmap_in_chunks

__all__ = ["chunk_vmap", "functionalize", "hessian", "jacfwd", "jvp", "replace_all_batch_norm_modules_"]


def chunk_vmap(func: Callable[..., Any], in_dims: Dims = 0, out_dims: Dims = 0, randomness: str = "error", chunks: int = 2) -> Callable[..., Any]:
    """`vmap` in so many chunks. What `vmap` raises; ValueError for less than one chunk."""
    if chunks < 1:
        raise ValueError(f"chunk_vmap: chunks should be 1 or more. (got {chunks})")
    return vmap_in_chunks(func, in_dims, out_dims, randomness, None, chunks)
