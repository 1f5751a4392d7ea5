"""The affine map and the bilinear one."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, numpy_placing, numpy_products
from torchgrad_jax.declaration.converting import broadcast_to, check_expands, where
from torchgrad_jax.declaration.operator import SAME, op
from torchgrad_jax.declaration.refusals import refusing
from torchgrad_jax.operators.matrix import PRECISION, adjoint, dot
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.cost import CHEAP, product
from torchgrad_jax.runtime.baseline.reducing import summing
from torchgrad_jax.runtime.operation import stand_in


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
    made = dot(a, b)
    return made | bias if made.dtype == np.bool_ else lax.add(made, broadcast_to(bias, made.shape))


def _check_trilinear(a: Any, weight: Any, b: Any) -> None:
    if 0 not in (*a.shape, *weight.shape):  # PyTorch's kernel is not called for nothing
        refusing("bmm", "b")(a)


# The formulas of the bilinear map and its gradients, of JAX's and NumPy's arrays alike. dot: multiplies two matrices; total: adds up what is last.


def _trilinear(a: Any, weight: Any, b: Any, dot: Any, total: Any) -> Any:
    k, i, j = weight.shape
    of_first = dot(a, weight.transpose(1, 0, 2).reshape(i, k * j)).reshape(a.shape[0], k, j)
    return total(of_first * b[:, None, :])


def _of_first(grad: Any, weight: Any, b: Any, dot: Any) -> Any:
    k, i, j = weight.shape
    return dot(_each_pair(grad, b), weight.transpose(0, 2, 1).reshape(k * j, i))


def _of_last(grad: Any, a: Any, weight: Any, dot: Any) -> Any:
    k, i, j = weight.shape
    return dot(_each_pair(grad, a), weight.reshape(k * i, j))


def _of_weight(grad: Any, a: Any, b: Any, dot: Any) -> Any:
    return dot(_each_pair(grad, a).T, b).reshape(grad.shape[1], a.shape[1], b.shape[1])


def _each_pair(x: Any, y: Any) -> Any:
    return (x[:, :, None] * y[:, None, :]).reshape(x.shape[0], x.shape[1] * y.shape[1])


def _product_of(x: np.ndarray) -> Any:
    return numpy_products.multiplying(False, False, x.dtype)


def _trilinear_of_arrays(a: np.ndarray, weight: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = summing((2,), a.dtype) if b.shape[1] > 1 else (lambda x: x[:, :, 0])  # a sum would make 0 of -0
    return _trilinear(a, weight, b, _product_of(a), total)


def _trilinear_shape(a: np.ndarray, weight: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    fits = a.dtype.char in "fd" and a.size and weight.size and b.size and a.dtype == weight.dtype == b.dtype
    return stand_in((a.shape[0], weight.shape[0]), a.dtype) if fits and a.ndim == b.ndim == 2 and weight.ndim == 3 else None


def _trilinear_grads(
    wanted: tuple[str, ...], grad: np.ndarray, avals: Any, a: np.ndarray, weight: np.ndarray, b: np.ndarray
) -> dict[str, np.ndarray]:  # fmt: skip
    dot, made = _product_of(grad), {}
    if "i1" in wanted:
        made["i1"] = _of_first(grad, weight, b, dot)
    if "i2" in wanted:
        made["i2"] = _of_weight(grad, a, b, dot)
    if "i3" in wanted:
        made["i3"] = _of_last(grad, a, weight, dot)
    return made


def _takes(a: np.ndarray, weight: np.ndarray, *_: np.ndarray) -> float:
    k, i, j = weight.shape
    return product(1, a.shape[0], i, k * j, a.dtype) + CHEAP * a.shape[0] * k * j


_TRILINEAR = Forms(_trilinear_of_arrays, _trilinear_shape, True, takes=_takes, planned=True)
_TRILINEAR_GRADS = numpy_placing.gradients(
    _trilinear_grads, lambda grad, avals, *saved: _trilinear_shape(*saved) is not None if len(saved) == 3 else False,
    lambda grad, *saved: 3 * _takes(*saved),
)  # fmt: skip


@op("_trilinear(Tensor i1, Tensor i2, Tensor i3)", method=False, toplevel=False, promote="same", validate=_check_trilinear,
    grads={"i1": lambda grad, i1, i2, i3: _of_first(grad, i2.conj(), i3.conj(), dot),
           "i2": lambda grad, i1, i2, i3: _of_weight(grad, i1.conj(), i3.conj(), dot),
           "i3": lambda grad, i1, i2, i3: _of_last(grad, i1.conj(), i2.conj(), dot)},
    numpy=_TRILINEAR, numpy_grads=_TRILINEAR_GRADS)  # fmt: skip
def trilinear(a: Any, weight: Any, b: Any) -> Any:
    """For each row and each k, i1 @ i2[k] @ i3."""
    if a.dtype.char not in "fdFD":  # half precision is rounded once less
        return jnp.einsum("ni,kij,nj->nk", a, weight, b, precision=PRECISION)
    return _trilinear(a, weight, b, dot, lambda x: lax.reduce_sum(x, (2,)))


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
