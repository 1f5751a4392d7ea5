"""``out=``: results written into given tensors, and which dtypes, sizes and memories those may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.calling.return_types import ReturnType, return_type
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.duals import passes, tangents_of
from torchgrad_jax.core.history import REPEATED, repeats
from torchgrad_jax.core.level import stands_for_batch
from torchgrad_jax.core.replacing import take_size
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import OVERLAP, overlaps, overwrite, rewrite
from torchgrad_jax.declaration import dtypes, promotion
from torchgrad_jax.operators import registry
from torchgrad_jax.operators.pointwise import cast_to
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.user_code import warn_user

# Functions that PyTorch knows no derivative of at all, so that `out=` may require grad.
_WITHOUT_DERIVATIVE = frozenset((
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "histc",
    *(name for name, operator in registry.items() if name.startswith("special_") and not operator.differentiable),
))  # fmt: skip


def check_out(name: str, tensors: Any) -> None:
    """RuntimeError where autograd would have to follow a write into an `out=` tensor."""
    if per_thread.recorder.grad_enabled and name not in _WITHOUT_DERIVATIVE and any(isinstance(t, Tensor) and t.requires_grad for t in tensors):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad."
        )


def check_same_dtype(out: Any, made: Tensor) -> None:
    if out.dtype is not made.dtype:
        raise RuntimeError(f"Found dtype {out.dtype.title} but expected {made.dtype.title}")


_LOOK_FIRST = frozenset(("diff", "index_select", "scatter", "scatter_add", "take", "where", "pow", "div", "floor_divide", "float_power"))


# What PyTorch says of an `out=` tensor that has not the result's own dtype, by functions that convert nothing.
_EXPECTED = "Expected out tensor to have dtype {0.word}, but got {1.word} instead"
_SAME = "{2}(): self and result must have the same scalar type"
_MATCHING = "Expected the dtype for input and out to match, but got {0.title} for input's dtype and {1.title} for out's dtype."
_FOUND = "Found dtype {1.title} but expected {0.title}"
_UNCONVERTED: dict[str, str] = {
    **dict.fromkeys((
        "addmv", "mv", "argsort", "index_add", "index_copy", "index_reduce", "isin", "linalg_cholesky", "linalg_cross", "linalg_det",
        "linalg_eigvalsh", "linalg_inv", "linalg_lu_solve", "linalg_solve", "linalg_svdvals",
        "linalg.vector_norm", "log_softmax", "softmax", "msort", "avg_pool2d", "avg_pool3d", "linear", "norm", "renorm", "scatter", "scatter_add",
        "scatter_reduce", "linalg_cholesky_ex", "linalg_inv_ex",
        "linalg_lu_factor", "linalg_lu_factor_ex", "linalg_ldl_factor", "linalg_ldl_factor_ex", "linalg_ldl_solve",
        "linalg_solve_ex", "slice_scatter", "triangular_solve", "cross",
    ), _EXPECTED),
    **dict.fromkeys((f"{name}_copy" for name in (
        "alias", "as_strided", "detach", "diagonal", "expand", "permute", "select", "slice", "squeeze", "t", "transpose", "unfold", "unsqueeze",
        "view", "view_as_complex", "view_as_real", "narrow",
    )), _EXPECTED),
    **dict.fromkeys((
        "bitwise_not", "clamp", "clamp_max", "clamp_min", "conj_physical", "hardshrink", "lerp.Tensor", "gelu", "softplus", "softshrink",
        "special_round",
    ), _FOUND),
    **dict.fromkeys(("logcumsumexp", "linalg_solve_triangular", "log_sigmoid"), "expected scalar type {0.title} but found {1.title}"),
    **dict.fromkeys(("dot", "vdot"), "result dtype {1.title} does not match input dtype {0.title}"),
    **dict.fromkeys(("median", "nanmedian", "median_dim", "nanmedian_dim"),
        "Expected tensor for argument #1 'indices' to have scalar type {0.title}; but got torch.{1.title}Tensor instead (while checking arguments "
        "for median_out)"),
    **dict.fromkeys(("linalg.norm", "linalg.matrix_norm"), "{2} expected out tensor dtype {0.title} but got: {1.title}"),
    "all": "all only supports bool tensor for result, got: {1.title}", "any": "any only supports bool tensor for result, got: {1.title}",
    "frexp": "torch.frexp() expects exponent to have int dtype but got {1.word}",
    "heaviside": "heaviside is not yet implemented for tensors with different dtypes.",
    "histc": "torch.histogram: input tensor and hist tensor should have the same dtype, but got input {0.word} and hist {1.word}",
    "vecdot": "linalg.vecdot: Expected out of dtype{0.title} but found {1.title}",
    "mode": "expected scalar type '{0.title}' but got '{1.title}' for indices output",
    "multi_dot": "multi_dot(): expected out tensor to have dtype {0.word} but got {1.word}",
    "nan_to_num": "nan_to_num: dtype of out: {1.title} should be same as input: {0.title}",
    "take": "take(): self and out expected to have the same dtype, but got self.dtype = {0.title} and out.dtype = {1.title}",
    "tensordot": "tensordot: Expected the output tensor to have dtype {0.title}, but got an output tensor with dtype {1.title}",
    "inner": "tensordot: Expected the output tensor to have dtype {0.title}, but got an output tensor with dtype {1.title}",
    **dict.fromkeys(("mm", "matmul", "addmm", "bmm", "baddbmm"), _EXPECTED),
    **dict.fromkeys(("signbit", "isposinf", "isneginf"), "{2} does not support non-boolean outputs."),
    **dict.fromkeys(("gather", "take_along_dim", "argmax", "argmin", "max_dim", "min_dim"), _EXPECTED),
    **dict.fromkeys(("sort", "topk", "aminmax", "diag", "tril", "triu"), _EXPECTED),
    **dict.fromkeys(("index_select", "masked_select"), _SAME),
    **dict.fromkeys(("amax", "amin"), _MATCHING),
    "kthvalue": "output values must be of same type as input",
    "cummax": "expected scalar_type {0.title} but found {1.title}",
    "cummin": "expected scalar_type {0.title} but found {1.title}",
    "nonzero": "nonzero: Expected out tensor to have scalar type {0.title} but got scalar type{1.title}",
    "quantile": "quantile() out tensor must be same dtype as the input tensor",
    "nanquantile": "quantile() out tensor must be same dtype as the input tensor",
    "searchsorted": "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or Long(int64) depending on whether out_int32 "
    "flag is True, but we got output tensor's dtype {1.title} and out_int32 flag is {3}",
}  # fmt: skip


def _check_dtype(name: str, made: Any, target: Any) -> None:
    """RuntimeError where results of `made`'s dtype are not written to `target`'s; cat's is a TypeError."""
    a, b = dtypes.of(made.dtype), dtypes.of(target.dtype)
    if name in _UNCONVERTED and a is not b and not (b is dtypes.uint8 and name in ("all", "any")):
        raise RuntimeError(_UNCONVERTED[name].format(a, b, name, a is dtypes.int32))
    if not promotion.can_cast(made.dtype, target.dtype):
        if name in ("cat", "stack"):
            raise TypeError(f"torch.cat(): input types can't be cast to the desired output type {b.title}")
        raise RuntimeError(f"result type {a.title} can't be cast to the desired output type {b.title}")


def write_out(name: str, out: Any, outs: Any, apart: Sequence[Any] = (), inputs: Sequence[Any] = ()) -> Any:
    """``out=``: the results written into given tensors. RuntimeError where autograd, the dtype or shared memory forbids it. name: with `.Tensor` for
    an overload that has rules of its own. apart: what may share
    none with a result, since it is read while that is written. inputs: of a function of each element by itself, which may be written to, but have the
    result's shape then."""
    targets = out if isinstance(out, (tuple, list)) else (out,)
    results = outs if isinstance(outs, tuple) else (outs,)
    overload, name = name, name.removesuffix(".Tensor")
    _check_count(name, targets, outs)
    check_out(name, (*targets, *results))
    for target, made in zip(targets, results, strict=True):
        a, b = made._aval, target._aval
        if a.shape != b.shape and any(t is target for t in inputs):
            raise RuntimeError(f"output with shape {list(b.shape)} doesn't match the broadcast shape {list(a.shape)}")
        _check_dtype(overload, a, b)
        if any(t is target or overlaps(target, t) for t in apart):
            raise RuntimeError(OVERLAP)
        if target._view is not None and (a.shape == b.shape or _looks_first(name)) and repeats(target._view, b):
            raise RuntimeError(REPEATED)
        if stands_for_batch(made) or stands_for_batch(target):
            raise RuntimeError(f"Batching rule not implemented for aten::{name}.out; the fallback path doesn't work on out= or view ops.")
        value = made._read()
        if a.dtype != b.dtype:
            value = apply(cast_to(b.dtype), (made,))._read()
        if a.shape != b.shape:
            resize(target, value)
        else:
            rewrite(target, value, name)
    _refuse_tangents(name, (*targets, *results))
    return return_type(f"{type(outs).__name__}_out", outs.__match_args__)(targets) if isinstance(outs, ReturnType) else out


def _looks_first(name: str) -> bool:
    """Whether PyTorch's function asks which memory is written before it resizes that."""
    return name in _LOOK_FIRST or (name in registry and registry[name].elementwise)


def _check_count(name: str, targets: Sequence[Any], outs: Any) -> None:
    """TypeError for another number of tensors than there are results; of the functions that copy views a RuntimeError."""
    if not isinstance(outs, tuple) or len(targets) == len(outs):
        return
    if not isinstance(outs, ReturnType):
        if name.endswith("_copy"):
            raise RuntimeError(f"{name}_out expected an out= argument of size {len(outs)}, got size {len(targets)}")
        return
    raise TypeError(f"expected tuple of {len(outs)} elements but got {len(targets)}")


def _refuse_tangents(name: str, tensors: Any) -> None:
    """NotImplementedError where a result that was written, as PyTorch does first, should have a tangent."""
    if passes(per_thread.recorder) and tangents_of(tensors):
        raise NotImplementedError(f"Trying to use forward AD with {name}_out that does not support it because it is an out= function")


def with_out(name: str, out: Any, made: Any, apart: Sequence[Any] = ()) -> Any:
    """`made`, or `out` with it written there. apart: see `write_out`."""
    return made if out is None else write_out(name, out, made, apart)


def resize(target: Tensor, value: Any) -> None:
    """An `out=` tensor takes the shape of the result."""
    if target._aval.size:
        warn_user(
            f"An output with one or more elements was resized since it had shape {list(target._aval.shape)}, which does not match the required "
            f"output shape {list(value.aval.shape)}. This behavior is deprecated, and in a future PyTorch release outputs will not be resized unless "
            "they have zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero elements with t.resize_(0).",
            UserWarning,
        )
    version = target._version
    if target._view is not None:
        take_size(target, value.aval.shape)
    overwrite(target, value)
    storage: Any = target._storage
    storage.set_version(version + 1)  # it was written to once
    target._content().version = version + 1
