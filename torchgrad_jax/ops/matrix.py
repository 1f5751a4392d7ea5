"""Matrix products."""

from __future__ import annotations

from typing import Any

from jax import lax
from jax import numpy as jnp

from torchgrad_jax.ops.declare import op
from torchgrad_jax.runtime.value import Aval

# XLA multiplies float32 in lower precision on some accelerators; PyTorch does not.
PRECISION = lax.Precision.HIGHEST


def dot(x: Any, y: Any) -> Any:
    """The product of two matrices, in full precision."""
    return lax.dot(x, y, precision=PRECISION)


def _mm_shapes(a: Aval, b: Aval) -> None:
    if a.ndim != 2:
        raise RuntimeError("self must be a matrix")
    if b.ndim != 2:
        raise RuntimeError("mat2 must be a matrix")
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})"
        )  # fmt: skip


@op("mm(Tensor self, Tensor mat2)", promote="same", validate=_mm_shapes,
    grads={"self": lambda grad, mat2: dot(grad, mat2.T.conj()), "mat2": lambda grad, self: dot(self.T.conj(), grad)})  # fmt: skip
def mm(x: Any, y: Any) -> Any:
    """The product of two matrices."""
    return dot(x, y)


def _bmm_shapes(a: Aval, b: Aval) -> None:
    if a.ndim != 3:
        raise RuntimeError("batch1 must be a 3D tensor")
    if b.ndim != 3:
        raise RuntimeError("batch2 must be a 3D tensor")
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{a.shape[0]}, {a.shape[2]}] but got: "
            f"[{b.shape[0]}, {b.shape[1]}]."
        )


def batched_dot(x: Any, y: Any) -> Any:
    """The products of two batches of matrices, in full precision."""
    return jnp.matmul(x, y, precision=PRECISION)


@op("bmm(Tensor self, Tensor mat2)", promote="same", validate=_bmm_shapes,
    grads={"self": lambda grad, mat2: batched_dot(grad, mat2.mT.conj()), "mat2": lambda grad, self: batched_dot(self.mT.conj(), grad)})  # fmt: skip
def bmm(x: Any, y: Any) -> Any:
    """The products of two batches of matrices."""
    return batched_dot(x, y)


def _mv_shapes(a: Aval, b: Aval) -> None:
    if a.ndim != 2 or b.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got {b.ndim}, {a.ndim}, {b.ndim}")
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(f"size mismatch, got input ({a.shape[0]}), mat ({a.shape[0]}x{a.shape[1]}), vec ({b.shape[0]})")


@op("mv(Tensor self, Tensor vec)", promote="same", validate=_mv_shapes,
    grads={"self": lambda grad, vec: jnp.outer(grad, vec.conj()), "vec": lambda grad, self: jnp.matmul(self.T.conj(), grad, precision=PRECISION)})  # fmt: skip
def mv(x: Any, y: Any) -> Any:
    """A matrix times a vector."""
    return jnp.matmul(x, y, precision=PRECISION)


def _dot_shapes(a: Aval, b: Aval) -> None:
    if a.ndim != 1 or b.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {a.ndim}D and {b.ndim}D tensors")
    if a.shape != b.shape:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{a.shape[0]}] and src [{b.shape[0]}] to have the same number of elements, "
            f"but got {a.shape[0]} and {b.shape[0]} elements respectively"
        )


def _check_dot_dtypes(a: Aval, b: Aval) -> None:
    from torchgrad_jax.ops import dtypes

    _dot_shapes(a, b)
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"dot : expected both vectors to have same dtype, but found {dtypes.of(a.dtype).title} and {dtypes.of(b.dtype).title}"
        )


@op("dot(Tensor self, Tensor tensor)", promote=None, validate=_check_dot_dtypes,
    grads={"self": lambda grad, tensor: grad * tensor.conj(), "tensor": lambda grad, self: grad * self.conj()})  # fmt: skip
def dot_(x: Any, y: Any) -> Any:
    """The inner product of two vectors, without conjugation."""
    return jnp.matmul(x, y, precision=PRECISION)
