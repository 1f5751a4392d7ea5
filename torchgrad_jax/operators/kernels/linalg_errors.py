"""What linear algebra refuses: arguments that do not fit, at the call, and matrices without the decomposition, when their values are known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.converting import broadcast_shapes
from torchgrad_jax.declaration.refusals import unsupported
from torchgrad_jax.runtime.pickles import in_pickles
from torchgrad_jax.runtime.value import Aval


class LinAlgError(RuntimeError):
    """A decomposition that does not exist, or did not converge."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, self.args


LinAlgError.__name__ = LinAlgError.__qualname__ = "_LinAlgError"
LinAlgError.__module__ = "torch._C"


@in_pickles("_rebuild_linalg_error")
def _again(*args: Any) -> LinAlgError:
    """What pickle calls: the class goes by PyTorch's name."""
    return LinAlgError(*args)


# ---------------------------------------------------------------------- arguments


def check_matrix(name: str, a: Any, what: str = "A") -> None:
    """RuntimeError for fewer than 2 dimensions."""
    if a.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor {what} must have at least 2 dimensions.")


def check_square(name: str, a: Any) -> None:
    """RuntimeError for what is not a batch of square matrices."""
    check_matrix(name, a)
    if a.shape[-1] != a.shape[-2]:
        raise RuntimeError(f"{name}: A must be batches of square matrices, but they are {a.shape[-2]} by {a.shape[-1]} matrices")


def check_float(name: str, a: Any, low_precision: bool = False) -> None:
    """RuntimeError for integers and for 16 bit floats."""
    kind = dtypes.of(np.dtype(a.dtype))
    if not dtypes.is_float(np.dtype(a.dtype)):
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {kind.title}")
    if kind.name in ("float16", "bfloat16") and not low_precision:
        raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {kind.title}")


def has_routine(dtype: Any) -> bool:
    """Whether LAPACK computes in this dtype: single and double precision, real and complex."""
    return dtypes.is_float(np.dtype(dtype)) and dtype.itemsize >= 4


def check_kernel(kernel: str, a: Any) -> None:
    """NotImplementedError, with the name of PyTorch's kernel, for a dtype that LAPACK has no routines for."""
    if not has_routine(a.dtype):
        raise unsupported(kernel, a.dtype)


def check_routine(kernel: str, a: Any) -> None:
    """The same where PyTorch's kernel is not called for nothing."""
    if a.size:
        check_kernel(kernel, a)


def check_equal_dtypes(a: Any, b: Any, name: str = "", first: str = "b", second: str = "A") -> None:
    """RuntimeError for matrices of two dtypes in one equation."""
    if a.dtype != b.dtype:
        kinds = dtypes.of(np.dtype(a.dtype)).title, dtypes.of(np.dtype(b.dtype)).title
        raise RuntimeError(
            f"{name + ': ' if name else ''}Expected {first} and {second} to have the same dtype, but found {first} of type {kinds[0]} and {second} "
            f"of type {kinds[1]} instead{'' if name else '.'}"
        )


def check_pair(name: str, b: Any, a: Any) -> None:
    """RuntimeError where A X = b has no meaning, in the words of PyTorch's older functions."""
    check_equal_dtypes(b, a)
    if a.shape[-1] != a.shape[-2]:
        raise RuntimeError(f"A must be batches of square matrices, but they are {a.shape[-2]} by {a.shape[-1]} matrices")
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(
            f"Incompatible matrix sizes for {name}: each A matrix is {a.shape[-1]} by {a.shape[-1]} but each b matrix is {b.shape[-2]} by "
            f"{b.shape[-1]}"
        )
    broadcast_shapes(b.shape[:-2], a.shape[:-2])


def square_float(name: str, kernel: str = "") -> Callable[..., None]:
    """A `validate` for batches of square matrices. 16 bit floats are refused by PyTorch's kernel where there is one of that name: it is not
    asked for no matrices."""

    def validate(a: Aval, *rest: Any, **statics: Any) -> None:
        check_square(name, a)
        check_float(name, a, low_precision=bool(kernel))
        if kernel:
            check_routine(kernel, a)

    return validate


def matrix_float(name: str, check: Callable[[str, Any], None], kernel: str) -> Callable[..., None]:
    """A `validate` for matrices, `check` being check_kernel or check_routine."""

    def validate(a: Aval, *rest: Any, **statics: Any) -> None:
        check_matrix(name, a)
        check_float(name, a, low_precision=True)
        check(kernel, a)

    return validate


def in_single(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which takes the dtypes that LAPACK has routines for; arrays of others, which are empty, go through float32."""

    @functools.wraps(function)
    def computed(*arrays: Any, **statics: Any) -> Any:
        dtype = arrays[0].dtype
        if has_routine(dtype):
            return function(*arrays, **statics)
        outs = function(*(x.astype(jnp.float32) if x.dtype == dtype else x for x in arrays), **statics)
        back = [x.astype(dtype) if x.dtype == jnp.float32 else x for x in (outs if isinstance(outs, tuple) else (outs,))]
        return tuple(back) if isinstance(outs, tuple) else back[0]

    return computed


# ---------------------------------------------------------------------- errors that depend on values
# The offending number is info + 2**32 * (element of the batch + 1), the element being -1 without a batch.


def first_failure(info: Any) -> Any:
    """The check of `info`, nonzero where a matrix of the batch failed."""
    if not info.ndim:
        number = info.astype(jnp.int64)
        return jnp.stack([(number != 0).astype(jnp.int64), number])
    flat = info.reshape(-1).astype(jnp.int64)
    if not flat.size:
        return jnp.zeros(2, jnp.int64)
    where = jnp.argmax(flat != 0)
    found = flat.at[where].get(mode="promise_in_bounds")
    return jnp.stack([(found != 0).astype(jnp.int64), found + ((where + 1).astype(jnp.int64) << 32)])


def failure(name: str, text: str, error: type[Exception] = LinAlgError) -> Callable[[int], Exception]:
    def make(offender: int) -> Exception:
        element, info = (offender >> 32) - 1, offender & 0xFFFFFFFF
        where = "" if element < 0 else f"(Batch element {element}): "
        return error(f"{name}: {where}" + text.format(info=info))

    make.often = True  # such errors are looked out for: see `recording.expecting`
    return make


NOT_POSITIVE = (
    "The factorization could not be completed because the input is not positive-definite "
    "(the leading minor of order {info} is not positive-definite)."
)
SINGULAR_INVERSE = "The diagonal element {info} is zero, the inversion could not be completed because the input matrix is singular."
ZERO_PIVOT = (
    "U[{info},{info}] is zero and using it on lu_solve would result in a division by zero. If you still want to perform the factorization, "
    "consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
)
ZERO_IN_D = "D[{info},{info}] is zero and using it on ldl_solve would result in a division by zero."
NOT_FINITE = "The algorithm failed to converge because the input matrix contained non-finite values."
ILL_CONDITIONED = (
    "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated eigenvalues (error code: {info})."
)

DEFICIENT = "The least squares solution could not be computed because the input matrix does not have full rank (error code: {info})."


def checked_by_info(function: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """The results of `function` without its last, info, and the check of info."""

    def checked(*arrays: Any, **statics: Any) -> tuple[Any, ...]:
        *outs, info = function(*arrays, **statics)
        return (*outs, first_failure(info))

    return checked
