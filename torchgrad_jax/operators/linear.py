"""The affine map and the bilinear one."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, numpy_products
from torchgrad_jax.declaration.converting import broadcast_to, check_expands, where
from torchgrad_jax.declaration.operator import SAME, op
from torchgrad_jax.declaration.refusals import refusing
from torchgrad_jax.operators.matrix import PRECISION, adjoint, dot


def _check_addmm(bias: Any, a: Any, b: Any) -> None:
    addmm_shapes(bias, a, b)
    if a.size and b.size:  # PyTorch's kernel is not called for nothing
        refusing("addmm_impl_cpu_", "b")(a)


def addmm_shapes(bias: Any, a: Any, b: Any) -> None:
    """RuntimeError in PyTorch's words where a @ b + bias is none."""
    if b.ndim != 2:
        raise RuntimeError(f"mat2 must be a matrix, got {b.ndim}-D tensor")
    for x, name in ((bias, "self"), (a, "mat1")):
        if x.dtype != b.dtype:
            raise RuntimeError(f"{name} and mat2 must have the same dtype, but got {dtypes.of(x.dtype).title} and {dtypes.of(b.dtype).title}")
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})")
    check_expands(bias, (a.shape[0], b.shape[1]))


@op("linear_addmm(Tensor self, Tensor mat1, Tensor mat2)", method=False, toplevel=False, node="AddmmBackward0", validate=_check_addmm,
    grads={"self": SAME, "mat1": lambda grad, mat2: dot(grad, adjoint(mat2)),
           "mat2": lambda grad, mat1: dot(adjoint(mat1), grad)}, attributes="mat1_sym_sizes mat2_sym_sizes alpha=1 beta=1",
    numpy=numpy_products.affine, numpy_grads=numpy_products.gradients_of_affine)  # fmt: skip
def linear_addmm(bias: Any, a: Any, b: Any) -> Any:
    """mat1 @ mat2 + self."""
    if a.dtype.itemsize == 2 and a.dtype.kind not in "iu":  # rounded once
        return (lax.dot(a, b, precision=PRECISION, preferred_element_type=np.float32) + bias.astype(np.float32)).astype(a.dtype)
    product = dot(a, b)
    return product | bias if product.dtype == np.bool_ else lax.add(product, broadcast_to(bias, product.shape))


def _check_trilinear(a: Any, weight: Any, b: Any) -> None:
    if 0 not in (*a.shape, *weight.shape):  # PyTorch's kernel is not called for nothing
        refusing("bmm", "b")(a)


@op("_trilinear(Tensor i1, Tensor i2, Tensor i3)", method=False, toplevel=False, promote="same", validate=_check_trilinear)
def trilinear(a: Any, weight: Any, b: Any) -> Any:
    """For each row and each k, i1 @ i2[k] @ i3."""
    return jnp.einsum("ni,kij,nj->nk", a, weight, b, precision=PRECISION)


@op("_grouped_mm(Tensor self, Tensor mat2, Tensor? offs)", multilinear=True, method=False, toplevel=False, node="GroupedMmBackward0")
def grouped_mm(a: Any, b: Any, offs: Any) -> Any:
    """The products of groups: of rows of a (M, K) with their own b (G, K, N); of a (G, M, K) with their own columns of b (K, N); of columns of a (M,
    K) with rows of b (K, N), (G, M, N); or of (G, M, K) and (G, K, N). offs: (G,), where each group ends."""
    wide = a.dtype if a.dtype.itemsize > 2 else np.dtype(np.float32)
    options: Any = {"precision": PRECISION, "preferred_element_type": wide}
    if offs is None:
        made = jnp.matmul(a, b, **options)
    elif a.ndim == b.ndim == 2:
        place, starts = jnp.arange(a.shape[1]), jnp.concatenate([jnp.zeros(1, offs.dtype), offs[:-1]])
        in_group = (place >= starts[:, None]) & (place < offs[:, None])
        made = jnp.matmul(where(in_group[:, None], a, jnp.zeros((), a.dtype)), b, **options)
    else:
        sizes = jnp.maximum(jnp.diff(offs, prepend=0), 0).astype(np.int32)
        rows, of_groups = (a, b) if a.ndim == 2 else (b.T, jnp.swapaxes(a, 1, 2))
        made = lax.ragged_dot(rows, of_groups, sizes, **options)
        made = made if a.ndim == 2 else made.T
    return made.astype(a.dtype)
