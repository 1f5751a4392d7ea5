"""torch.linalg's decompositions, solutions and functions of matrices, and their older names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.calling.generate import function_of
from torchgrad_jax.calling.out import with_out
from torchgrad_jax.calling.public import public
from torchgrad_jax.calling.recalled import recalling
from torchgrad_jax.calling.return_types import return_type
from torchgrad_jax.core.duals import followed
from torchgrad_jax.core.level import in_transform
from torchgrad_jax.core.made import created
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.converting import broadcast_shapes
from torchgrad_jax.functions import overloads, views
from torchgrad_jax.functions.creation import from_data
from torchgrad_jax.functions.gathering import call, nobody_asks
from torchgrad_jax.functions.indexing import copy_
from torchgrad_jax.functions.matrices.phases import of_eigenvectors, of_singular_vectors
from torchgrad_jax.functions.shaping import flip
from torchgrad_jax.operators import (
    registry,
    spectral,  # noqa: F401 - declares the operators
)
from torchgrad_jax.operators.kernels.linalg_errors import check_float, check_square
from torchgrad_jax.runtime.passing_through import refused
from torchgrad_jax.runtime.user_code import warn_once

# ---------------------------------------------------------------------- solving, inverting


def _named(name: str, *fields: str) -> Any:
    return return_type(name, fields)


def _info(t: Tensor) -> Tensor:
    """LAPACK's success."""
    return created(from_data(np.zeros(t._aval.shape[:-2], np.int32), dtypes.int32, t.device))


@public("torch.linalg")
def cholesky(A: Tensor, *, upper: bool = False, out: Any = None) -> Tensor:
    """L with A = L L^H, A being read by one triangle. LinAlgError where A is not positive definite."""
    return with_out("linalg_cholesky", out, call("linalg_cholesky", A, bool(upper)))


def _warn_of(name: str, instead: str, gap: str, *replaced: str) -> None:
    """Warn that PyTorch will drop the function: each second line of `replaced` is what to write for the one before it."""
    lines = "\nand\n".join(f"{old}\nshould be replaced with\n{new}" for old, new in zip(replaced[::2], replaced[1::2], strict=True))
    warn_once(f"torch.{name} is deprecated in favor of torch.{instead}{gap}and will be removed in a future PyTorch release.\n{lines}")


@public("torch.cholesky", "torch.Tensor.cholesky")
def torch_cholesky(input: Tensor, upper: bool = False, *, out: Any = None) -> Tensor:
    """As linalg.cholesky, with the gradient's older name."""
    _warn_of("cholesky", "linalg.cholesky", " ", "L = torch.cholesky(A)", "L = torch.linalg.cholesky(A)", "U = torch.cholesky(A, upper=True)",
             "U = torch.linalg.cholesky(A).mH")  # fmt: skip
    return with_out("cholesky", out, call("cholesky", input, bool(upper)))


_CHOLESKY_EX, _INV_EX, _SOLVE_EX = _named("linalg_cholesky_ex", "L", "info"), _named("linalg_inv_ex", "inverse", "info"), _named(
    "linalg_solve_ex", "result", "info"
)  # fmt: skip


@public("torch.linalg")
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """(L, info): info is the order of the leading minor that is not positive, 0 for success."""
    if check_errors:
        made: Any = (call("linalg_cholesky_ex_checked", A, bool(upper)), _info(A))
    else:
        made = call("linalg_cholesky_ex", A, bool(upper))
    return with_out("linalg_cholesky_ex", out, _CHOLESKY_EX(made))


@public("torch", "torch.Tensor")
def cholesky_solve(input: Tensor, L: Tensor, upper: bool = False, *, out: Any = None) -> Tensor:
    """The solution X of A X = input, A given by its Cholesky factor."""
    return with_out("cholesky_solve", out, call("cholesky_solve", input, L, bool(upper)))


@public("torch.linalg")
def inv(A: Tensor, *, out: Any = None) -> Tensor:
    """The inverse. LinAlgError for a singular matrix."""
    return with_out("linalg_inv", out, call("linalg_inv", A))


@public("torch", "torch.Tensor")
def inverse(input: Tensor, *, out: Any = None) -> Tensor:
    """As linalg.inv."""
    return inv(input, out=out)


@public("torch.linalg")
def inv_ex(A: Tensor, *, check_errors: bool = False, out: Any = None) -> Any:
    """(inverse, info): info is the number of the zero pivot, 0 for success."""
    made: Any = (call("linalg_inv_ex_checked", A), _info(A)) if check_errors else call("linalg_inv_ex", A)
    return with_out("linalg_inv_ex", out, _INV_EX(made))


@public("torch.linalg")
def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Any = None) -> Tensor:
    """X with A X = B (X A = B unless left). LinAlgError for a singular matrix."""
    return with_out("linalg_solve", out, call("linalg_solve", A, B, bool(left))[0])


@public("torch.linalg")
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """(X, info)."""
    if check_errors:
        return _SOLVE_EX((solve(A, B, left=left), _info(A)))
    made: Any = call("linalg_solve_ex", A, B, bool(left))
    return with_out("linalg_solve_ex", out, _SOLVE_EX((made[0], made[3])))


_SOLVE_TRIANGULAR = function_of(registry["linalg_solve_triangular"])
_LU_SOLVE = function_of(registry["linalg_lu_solve"])


@public("torch.linalg")
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False, out: Any = None) -> Tensor:
    """X with A X = B (X A = B unless left), A being triangular."""
    return _SOLVE_TRIANGULAR(A, B, upper=upper, left=left, unitriangular=unitriangular, out=out)


_TRIANGULAR = _named("triangular_solve", "solution", "cloned_coefficient")


@public("torch", "torch.Tensor")
def triangular_solve(b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False, *, out: Any = None) -> Any:
    """(X, a copy of A) with A X = b, A being triangular; A^T if transpose."""
    _warn_of("triangular_solve", "linalg.solve_triangular", "", "X = torch.triangular_solve(B, A).solution",
             "X = torch.linalg.solve_triangular(A, B, upper=True)")  # fmt: skip
    made = _TRIANGULAR(call("_triangular_solve", b, A, bool(upper), bool(transpose), bool(unitriangular)))
    return with_out("triangular_solve", out, made)


# ---------------------------------------------------------------------- determinants


@public("torch", "torch.Tensor", "torch.linalg")
def det(A: Tensor, *, out: Any = None) -> Tensor:
    """The determinant."""
    return with_out("linalg_det", out, call("linalg_det", A)[0])


def _slogdet(name: str) -> Callable[..., Any]:
    named = _named(name, "sign", "logabsdet")

    def slogdet(A: Tensor, *, out: Any = None) -> Any:
        """(sign, logabsdet) of the determinant."""
        return with_out(name, out, named(call("linalg_slogdet", A)[:2]))

    return slogdet


linalg_slogdet, torch_slogdet = _slogdet("linalg_slogdet"), _slogdet("slogdet")
public("torch.slogdet", "torch.Tensor.slogdet")(torch_slogdet)
public("torch.linalg.slogdet")(linalg_slogdet)


@public("torch", "torch.Tensor")
def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant; NaN where it is negative."""
    check_square("logdet", input._aval)
    check_float("logdet", input._aval)
    sign, logabsdet = torch_slogdet(input)
    if input.is_complex():
        return sign.log() + logabsdet
    return overloads.where(sign == -1, math.nan, logabsdet)


# ---------------------------------------------------------------------- decompositions

_EIGH, _EIG = _named("linalg_eigh", "eigenvalues", "eigenvectors"), _named("linalg_eig", "eigenvalues", "eigenvectors")
_SVD, _OLD_SVD = _named("linalg_svd", "U", "S", "Vh"), _named("svd", "U", "S", "V")
_LU, _LU_FACTOR = _named("linalg_lu", "P", "L", "U"), _named("linalg_lu_factor", "LU", "pivots")
_LU_FACTOR_EX, _UNPACKED = _named("linalg_lu_factor_ex", "LU", "pivots", "info"), _named("lu_unpack", "P", "L", "U")
_LSTSQ = _named("linalg_lstsq", "solution", "residuals", "rank", "singular_values")


def _upper(uplo: str) -> bool:
    if not uplo or uplo[0] not in "LUlu":
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {uplo}")
    return uplo[0] in "Uu"


@public("torch.linalg")
def eigh(A: Tensor, UPLO: str = "L", *, out: Any = None) -> Any:
    """(eigenvalues, eigenvectors) of Hermitian matrices read by one triangle, ascending."""
    check_square("linalg.eigh", A._aval)
    return with_out("linalg_eigh", out, _EIGH(of_eigenvectors("eigh", call("linalg_eigh", A, _upper(UPLO)))))


@public("torch.linalg")
def eigvalsh(A: Tensor, UPLO: str = "L", *, out: Any = None) -> Tensor:
    """The eigenvalues of Hermitian matrices, ascending."""
    check_square("linalg.eigh", A._aval)
    made = call("linalg_eigh", A, _upper(UPLO))[0] if followed(A) else call("linalg_eigvalsh", A, _upper(UPLO))
    return with_out("linalg_eigvalsh", out, made)


def _complex_of(A: Tensor) -> None:
    """RuntimeError for what has no complex dtype of its precision."""
    if not dtypes.is_float(A._aval.dtype):
        raise RuntimeError(f"Unknown Complex ScalarType for {dtypes.of(A._aval.dtype).title}")


@public("torch.linalg")
def eig(A: Tensor, *, out: Any = None) -> Any:
    """(eigenvalues, eigenvectors), complex. On the host only."""
    _complex_of(A)
    return with_out("linalg_eig", out, _EIG(of_eigenvectors("eig", call("linalg_eig", A))))


@public("torch.linalg")
def eigvals(A: Tensor, *, out: Any = None) -> Tensor:
    """The eigenvalues, complex. On the host only."""
    _complex_of(A)
    check_square("linalg.eigvals", A._aval)
    return with_out("linalg_eigvals", out, call("linalg_eig", A)[0])


def _check_driver(driver: str | None) -> None:
    if driver is not None:
        raise RuntimeError("torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend.")


@public("torch.linalg")
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None, out: Any = None) -> Any:
    """(U, S, Vh) with A = U S Vh. RuntimeError for a `driver`: XLA has one algorithm."""
    _check_driver(driver)
    return with_out("linalg_svd", out, _SVD(of_singular_vectors(call("linalg_svd", A, bool(full_matrices)))))


@public("torch.svd", "torch.Tensor.svd")
def torch_svd(input: Tensor, some: bool = True, compute_uv: bool = True, *, out: Any = None) -> Any:
    """(U, S, V) with input = U S V^H; reduced if `some`."""
    if input._aval.ndim < 2:
        raise RuntimeError(f"linalg.svd: input should have at least 2 dimensions, but has {input._aval.ndim} dimensions instead")
    if not compute_uv:
        m, n = input._aval.shape[-2:]
        zeros = [created(from_data(np.zeros((*input._aval.shape[:-2], k, k)), input.dtype, input.device)) for k in (m, n)]
        return _OLD_SVD((zeros[0], svdvals(input), zeros[1]))
    u, s, vh = of_singular_vectors(call("linalg_svd", input, not some))
    return with_out("svd", out, _OLD_SVD((u, s, _adjoint(vh))))


@public("torch.linalg")
def svdvals(A: Tensor, *, driver: str | None = None, out: Any = None) -> Tensor:
    """The singular values, descending. RuntimeError for a `driver`."""
    _check_driver(driver)
    made = call("linalg_svd", A, False)[1] if followed(A) else call("linalg_svdvals", A)
    return with_out("linalg_svdvals", out, made)


def _qr(name: str) -> Callable[..., Any]:
    named = _named(name, "Q", "R")

    def qr(A: Tensor, mode: str = "reduced", *, out: Any = None) -> Any:
        """(Q, R) with A = Q R; Q empty for mode "r"."""
        if mode not in ("reduced", "complete", "r"):
            raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'")
        return with_out(name, out, named(call("linalg_qr", A, mode)))

    return qr


linalg_qr, _plain_qr = _qr("linalg_qr"), _qr("qr")
public("torch.linalg.qr")(linalg_qr)


@public("torch.qr", "torch.Tensor.qr")
def torch_qr(input: Tensor, some: bool = True, *, out: Any = None) -> Any:
    """As linalg.qr: reduced if `some`, else complete."""
    _warn_of("qr", "linalg.qr", " ", "Q, R = torch.qr(A, some)", "Q, R = torch.linalg.qr(A, 'reduced' if some else 'complete')")
    return _plain_qr(input, "reduced" if some else "complete", out=out)


def _pivoting(name: str, pivot: bool) -> None:
    if not pivot:
        raise RuntimeError(f"{name}: LU without pivoting is not implemented on the CPU")


@public("torch.linalg")
def lu(A: Tensor, *, pivot: bool = True, out: Any = None) -> Any:
    """(P, L, U) with A = P L U."""
    _pivoting("linalg.lu", pivot)
    lower, upper, permutation = call("linalg_lu", A)
    return with_out("linalg_lu", out, _LU((call("permutation_matrix", permutation, A._aval.dtype), lower, upper)))


@public("torch.linalg")
def lu_factor(A: Tensor, *, pivot: bool = True, out: Any = None) -> Any:
    """(L and U in one matrix, pivots counted from 1). RuntimeError for a zero on U's diagonal."""
    _pivoting("linalg.lu_factor", pivot)
    return with_out("linalg_lu_factor", out, _LU_FACTOR(call("linalg_lu_factor", A)))


@public("torch.linalg")
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """(L and U in one matrix, pivots, info)."""
    _pivoting("linalg.lu_factor", pivot)
    made: Any = (*call("linalg_lu_factor", A), _info(A)) if check_errors else call("linalg_lu_factor_ex", A)
    return with_out("linalg_lu_factor_ex", out, _LU_FACTOR_EX(made))


_LDL_FACTOR, _LDL_FACTOR_EX = _named("linalg_ldl_factor", "LD", "pivots"), _named("linalg_ldl_factor_ex", "LD", "pivots", "info")


@public("torch.linalg")
def ldl_factor(A: Tensor, *, hermitian: bool = False, out: Any = None) -> Any:
    """(L and D in one matrix, pivots counted from 1) with A = L D L^T (hermitian: L D L^H), A being read by its lower triangle. RuntimeError for a
    zero on D's diagonal."""
    return with_out("linalg_ldl_factor", out, _LDL_FACTOR(call("linalg_ldl_factor", A, bool(hermitian))))


@public("torch.linalg")
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """(L and D in one matrix, pivots, info): info is where D's first zero is, counted from 1."""
    made: Any = (*call("linalg_ldl_factor", A, bool(hermitian)), _info(A)) if check_errors else call("linalg_ldl_factor_ex", A, bool(hermitian))
    return with_out("linalg_ldl_factor_ex", out, _LDL_FACTOR_EX(made))


@public("torch.linalg")
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False, out: Any = None) -> Tensor:
    """X with A X = B, by what `ldl_factor` gave for A."""
    return with_out("linalg_ldl_solve", out, call("linalg_ldl_solve", LD, pivots, B, bool(hermitian)))


@public("torch.lu", "torch.Tensor.lu")
def torch_lu(A: Tensor, pivot: bool = True, get_infos: bool = False, *, out: Any = None) -> Any:
    """(L and U in one matrix, pivots), and info if asked."""
    _warn_of("lu", "linalg.lu_factor / torch.linalg.lu_factor_ex", " ", "LU, pivots = torch.lu(A, compute_pivots)",
             "LU, pivots = torch.linalg.lu_factor(A, compute_pivots)", "LU, pivots, info = torch.lu(A, compute_pivots, get_infos=True)",
             "LU, pivots, info = torch.linalg.lu_factor_ex(A, compute_pivots)")  # fmt: skip
    made = lu_factor_ex(A, pivot=pivot) if get_infos else lu_factor_ex(A, pivot=pivot)[:2]
    return with_out("lu", out, tuple(made))


@public("torch")
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True, *, out: Any = None) -> Any:
    """(P, L, U) of what lu_factor gave; those not asked for are empty."""
    lower, upper, permutation = call("lu_unpack", LU_data, LU_pivots)
    empty = created(from_data(np.zeros(0), LU_data.dtype, LU_data.device))
    matrix = call("permutation_matrix", permutation, LU_data._aval.dtype) if unpack_pivots else empty
    return with_out("lu_unpack", out, _UNPACKED((matrix, lower if unpack_data else empty, upper if unpack_data else empty)))


@public("torch.linalg")
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False, out: Any = None) -> Tensor:
    """X with A X = B (X A = B unless left; A^H for `adjoint`) by A's LU decomposition."""
    return _LU_SOLVE(LU, pivots, B, left=left, adjoint=adjoint, out=out)


@public("torch.lu_solve", "torch.Tensor.lu_solve")
def torch_lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Any = None) -> Tensor:
    """As linalg.lu_solve, the right side first."""
    _warn_of("lu_solve", "linalg.lu_solve", "", "X = torch.lu_solve(B, LU, pivots)", "X = torch.linalg.lu_solve(LU, pivots, B)")
    return lu_solve(LU_data, LU_pivots, b, out=out)


# ---------------------------------------------------------------------- pseudo-inverse, rank, least squares, functions


def _number(x: Any) -> Any:
    return float(x.item()) if isinstance(x, Tensor) else None if x is None else float(x)


def _check_tolerances(name: str, **tolerances: Any) -> None:
    """RuntimeError for complex tensors."""
    for which, x in tolerances.items():
        if isinstance(x, Tensor) and x.is_complex():
            raise RuntimeError(f"torch.linalg.{name}: {which} tensor of complex type is not supported. Got {x.dtype.title}")


@public("torch.linalg")
def pinv(A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None, out: Any = None) -> Tensor:
    """The Moore-Penrose inverse; singular values below max(atol, rtol * largest) count as zero."""
    _check_tolerances("pinv", rcond=rcond)
    spectral.check_pinv(A._aval)
    _check_tolerances("pinv", atol=atol, rtol=rtol)
    rtol = rcond if rtol is None else rtol
    return with_out("linalg_pinv", out, call("linalg_pinv", A, _number(atol), _number(rtol), bool(hermitian)))


@public("torch", "torch.Tensor")
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """As linalg.pinv."""
    return pinv(input, rcond)


@public("torch.linalg")
def matrix_rank(A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None, out: Any = None) -> Tensor:
    """The number of singular values above max(atol, rtol * largest)."""
    if A._aval.ndim < 2:
        raise RuntimeError("torch.linalg.matrix_rank: The input tensor input must have at least 2 dimensions.")
    atol, rtol = (tol, 0.0) if tol is not None else (atol, rtol)
    _check_tolerances("matrix_rank", atol=atol, rtol=rtol)
    if any(isinstance(t, Tensor) and (t._aval.size != 1 or not t._content().readable) for t in (atol, rtol)):
        return with_out("linalg_matrix_rank", out, _rank_by_tensors(A.detach(), hermitian, atol, rtol))
    return with_out("linalg_matrix_rank", out, call("linalg_matrix_rank", A, _number(atol), _number(rtol), bool(hermitian)))


def _rank_by_tensors(a: Tensor, hermitian: bool, atol: Any, rtol: Any) -> Tensor:
    """`matrix_rank` with tolerances of their own for the matrices of a batch."""
    if rtol is None:
        spectral.check_default_tolerance(a._aval.dtype)
    s = eigvalsh(a).abs() if hermitian else svdvals(a)
    if not s._aval.shape[-1]:
        return (s > 0).sum(-1)
    smallest = 0.0 if atol is None else atol
    if rtol is None:
        default = float(np.finfo(s._aval.dtype).eps) * max(a._aval.shape[-2:])
        rtol = (smallest <= 0).to(s.dtype) * default if isinstance(smallest, Tensor) else 0.0 if smallest else default
    limit = (s.amax(-1) * rtol).maximum(smallest if isinstance(smallest, Tensor) else s.new_tensor(smallest))
    return (s > views.unsqueeze(limit, -1)).sum(-1)


@public("torch", "torch.Tensor", "torch.linalg")
def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of a matrix."""
    return call("linalg_matrix_exp", A)


@public("torch.linalg")
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None, out: Any = None) -> Any:
    """(solution, residuals, rank, singular_values) of least squares; which of the last three are empty depends on the driver. From "gelsd" and
    "gelss" there are no residuals where a matrix has not full rank, which is looked at where there could be some; in transforms all are taken to have
    it."""
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError("torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    a, b = A._aval.shape, B._aval.shape
    for x, name, least in ((a, "input", 2), (b, "other", 1)):
        if len(x) < least:
            raise RuntimeError(f"torch.linalg.lstsq: {name} must have at least {least} dimension{'s' if least > 1 else ''}.")
    vector = len(b) == len(a) - 1 and (len(b) == 1 or b == a[:-1])
    if vector:
        if b[-1] != a[-2]:
            raise RuntimeError("torch.linalg.lstsq: input.size(-2) should match other.size(-1)")
        B = views.unsqueeze(B, -1)
    elif len(b) == len(a) - 1 and B._aval.shape[-2] == a[-2]:  # vectors to PyTorch, where it comes to batches
        B = views.expand(B, (*broadcast_shapes(a[:-2], b[:-1]), *b[-2:]))
    solution, residuals, rank, values = call("linalg_lstsq_full_rank" if driver == "gels" else "linalg_lstsq", A, B, rcond, driver or "gelsy")[:4]
    if driver in ("gelsd", "gelss") and residuals._aval.size and not in_transform() and bool((rank < a[-1]).any()):
        residuals = views.narrow(views.reshape(residuals, (-1,)), 0, 0, 0)
    return with_out("linalg_lstsq", out, _LSTSQ((views.squeeze(solution, -1) if vector else solution, residuals, rank, views.detach(values))))


_powers = recalling(lambda x, count, increasing: call("_vander", x, count, bool(increasing)))


@public("torch.linalg")
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0, 1 ... of the elements, as columns."""
    kind = x.dtype
    if kind is dtypes.bool_ or kind in (dtypes.float16, dtypes.bfloat16):
        raise RuntimeError(f"linalg.vander supports floating point, complex, and integer tensors, but got {kind.title}")
    if N is None and x._aval.shape[-1:] in ((), (0,), (1,)) or N is not None and N <= 1:
        raise RuntimeError("N must be greater than 1.")
    if not x._aval.ndim:
        return vander(views.reshape(x, (1,)), N=N)
    count = (x._aval.shape[-1] if N is None else N) - 1
    if x._aval.dtype.char in "fd" and nobody_asks(x):
        return _powers(x, count + 1, True)
    wide = views.expand(views.unsqueeze(x, -1), (*x._aval.shape, count))
    return call("cat", [x.new_ones((*x._aval.shape, 1)), wide.cumprod(-1)], x._aval.ndim)


@public("torch.vander")
def torch_vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of a vector's elements as columns, descending unless `increasing`."""
    if x._aval.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    rows = x._aval.shape[0]
    count = rows if N is None else N
    if count < 0:
        raise RuntimeError("N must be non-negative.")
    if x._aval.dtype.char in "fdil" and nobody_asks(x):
        return _powers(x, count, increasing)
    made = x.new_ones((rows, count), dtype=x.dtype if dtypes.is_float(x._aval.dtype) else dtypes.int64)
    if count > 1:
        powers = views.narrow(made, 1, 1, count - 1)
        copy_(powers, views.unsqueeze(x, 1))
        copy_(powers, views.narrow(made, 1, 1, count - 1).cumprod(1))
    return made if increasing else flip(made, 1)


@public("torch.linalg")
def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of two dimensions, the last two unless told, as a view."""
    return views.diagonal(A, offset, dim1, dim2)


@public("torch.linalg")
def tensorsolve(A: Tensor, B: Tensor, dims: Any = None, *, out: Any = None) -> Tensor:
    """X with tensordot(A, X) = B."""
    a = A if dims is None else views.permute(A, (*(d for d in range(A._aval.ndim) if d not in dims), *dims))
    shape = a._aval.shape[B._aval.ndim :]
    size = B._aval.size
    if math.prod(shape) != size:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but got "
            f"{math.prod(shape)} != {size}"
        )
    return with_out("linalg_tensorsolve", out, views.reshape(solve(views.reshape(a, (size, size)), views.flatten(B)), shape))


@public("torch.linalg")
def tensorinv(A: Tensor, ind: int = 2, *, out: Any = None) -> Tensor:
    """X with tensordot(X, A, ind) the identity: the inverse of A as a matrix whose rows are its first `ind` dimensions."""
    if not isinstance(ind, int) or isinstance(ind, bool):
        raise TypeError(f"linalg_tensorinv(): argument 'ind' (position 2) must be int, not {type(ind).__name__}")
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    shape = A._aval.shape
    if ind > len(shape):
        raise RuntimeError(f"ArrayRef: invalid slice, N = {ind}; size = {len(shape)}")
    rows, columns = math.prod(shape[:ind]), math.prod(shape[ind:])
    if rows != columns:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            f"{columns} != {rows}"
        )  # fmt: skip
    return with_out("linalg_tensorinv", out, views.reshape(inv(views.reshape(A, (rows, columns))), shape[ind:] + shape[:ind]))


_HOUSEHOLDER = function_of(registry["linalg_householder_product"])


@public("torch.orgqr", "torch.Tensor.orgqr", "torch.linalg")
def householder_product(input: Tensor, tau: Tensor, *, out: Any = None) -> Tensor:
    """The first columns of the product of the reflections that `geqrf` leaves. RuntimeError for shapes that do not fit."""
    return _HOUSEHOLDER(input, tau, out=out)


# ---------------------------------------------------------------------- adjoint


def _adjoint(t: Tensor) -> Tensor:
    turned = views.transpose(t, -2, -1)
    return turned.conj() if t.is_complex() else turned


@public("torch", "torch.Tensor")
def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged, and conjugated. RuntimeError for fewer than 2 dimensions."""
    if not input._aval.ndim:
        warn_once("adjoint() is deprecated on 0-D tensors. Consider using x.conj().")
        return views.conj(input)
    if input._aval.ndim < 2:
        raise RuntimeError(f"tensor.adjoint() is only supported on matrices or batches of matrices. Got {input._aval.ndim}-D tensor.")
    return _adjoint(input)


def _mH(self: Tensor) -> Tensor:
    if not self._aval.ndim:
        warn_once("Tensor.mH is deprecated on 0-D tensors. Consider using x.conj().")
        return views.conj(self)
    if self._aval.ndim < 2:
        raise RuntimeError(f"tensor.mH is only supported on matrices or batches of matrices. Got {self._aval.ndim}-D tensor.")
    return _adjoint(self)


def _H(self: Tensor) -> Tensor:
    ndim = self._aval.ndim
    if ndim != 2 and ndim != 0:
        tail = " For batches of matrices, consider using tensor.mH" if ndim > 2 else ""
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {ndim}-D tensor.{tail}")
    if not ndim:
        warn_once("Tensor.H is deprecated on 0-D tensors. Consider using x.conj().")
        return views.conj(self)
    return _adjoint(self)


public("torch.Tensor.mH")(property(_mH, doc="The adjoint of matrices."))
public("torch.Tensor.H")(property(_H, doc="The adjoint of a matrix."))

_NO_LOBPCG = refused("torch.lobpcg", "torch.linalg.eigh gives all eigenvalues; jax.experimental.sparse.linalg.lobpcg_standard iterates, see from_jax")


@public("torch")
def lobpcg(
    A: Tensor, k: Any = None, B: Any = None, X: Any = None, n: Any = None, iK: Any = None, niter: Any = None, tol: Any = None, largest: Any = None,
    method: Any = None, tracker: Any = None, ortho_iparams: Any = None, ortho_fparams: Any = None, ortho_bparams: Any = None,
) -> Any:  # fmt: skip
    """NotImplementedError, always: `torch.linalg.eigh` gives all eigenvalues."""
    return _NO_LOBPCG()
