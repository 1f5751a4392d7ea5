"""Matrix products beyond mm, einsum, and torch.linalg."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.ops import dtypes
from torchgrad_jax.ops.declare import registry
from torchgrad_jax.ops.linalg import LinAlgError, check_square
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.tensor import functions, views
from torchgrad_jax.tensor.creation import from_data
from torchgrad_jax.tensor.gathering import call, with_out
from torchgrad_jax.tensor.generate import function_of
from torchgrad_jax.tensor.shaping import flip
from torchgrad_jax.tensor.tensor import Tensor, wrap, wrap_dim

# ---------------------------------------------------------------------- products of tensors


def outer(input: Tensor, vec2: Tensor, *, out: Any = None) -> Tensor:
    """The products of all pairs of elements of two vectors. RuntimeError for what is not a vector."""
    for name, v in (("self", input), ("vec2", vec2)):
        if v._aval.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {v._aval.ndim}-D")
    return with_out("outer", out, views.reshape(input, (-1, 1)) * vec2)


def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Any = None) -> Tensor:
    """The sum of products over the last `dims` dimensions of a and the first of b, or over two lists of dimensions."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, (tuple, list)):
        left, right = (list(d) if isinstance(d, (tuple, list)) else [d] for d in dims)
    else:
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a._aval.ndim, b._aval.ndim):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        left, right = list(range(-dims, 0)), list(range(dims))
    return with_out("tensordot", out, _contract(a, b, left, right))


def _contract(a: Tensor, b: Tensor, left: list[int], right: list[int]) -> Tensor:
    if len(left) != len(right):
        raise RuntimeError("both dimension lists should have same length")
    if a._aval.dtype != b._aval.dtype:
        raise RuntimeError("both inputs should have same dtype")
    m, n = a._aval.shape, b._aval.shape
    for i, j in zip(left, right, strict=True):
        p, q = m[wrap_dim(i, len(m))], n[wrap_dim(j, len(n))]
        if p != q and 1 not in (p, q):
            raise RuntimeError(f"contracted dimensions need to match, but first has size {p} in dim {i} and second has size {q} in dim {j}")
        if p == 1 != q:
            b = b.sum(j, keepdim=True)
        elif q == 1 != p:
            a = a.sum(i, keepdim=True)
    m, n = a._aval.shape, b._aval.shape
    left, right = [wrap_dim(i, len(m)) for i in left], [wrap_dim(j, len(n)) for j in right]
    rows, columns = [d for d in range(len(m)) if d not in left], [d for d in range(len(n)) if d not in right]
    inner = math.prod(m[d] for d in left)
    outer_a, outer_b = tuple(m[d] for d in rows), tuple(n[d] for d in columns)
    x = views.reshape(views.permute(a, (*rows, *left)), (math.prod(outer_a), inner))
    y = views.reshape(views.permute(b, (*right, *columns)), (inner, math.prod(outer_b)))
    return views.reshape(_mm(x, y), outer_a + outer_b)


_mm = function_of(registry["mm"])


def inner(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The sum of products over the last dimensions; with a number, its multiple."""
    a, b = input._aval, other._aval
    if not a.ndim or not b.ndim:
        return with_out("inner", out, input * other)
    if a.shape[-1] != b.shape[-1]:
        raise RuntimeError(f"inner() the last dimension must match on both input tensors but got shapes {list(a.shape)} and {list(b.shape)}")
    return with_out("inner", out, _contract(input, other, [-1], [-1]))


def kron(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The Kronecker product: each element of input times the whole of other."""
    ndim = max(input._aval.ndim, other._aval.ndim)
    a = (1,) * (ndim - input._aval.ndim) + input._aval.shape
    b = (1,) * (ndim - other._aval.ndim) + other._aval.shape
    x = views.reshape(input, [n for m in a for n in (m, 1)])
    y = views.reshape(other, [n for m in b for n in (1, m)])
    return with_out("kron", out, call("_unsafe_view", x * y, tuple(m * n for m, n in zip(a, b, strict=True))))


def multi_dot(tensors: Any, *, out: Any = None) -> Tensor:
    """The product of several matrices in the cheapest order; the first and the last may be vectors."""
    found = list(tensors)
    if len(found) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(found)}")
    for place, t, at in (("first", found[0], 0), ("last", found[-1], len(found) - 1)):
        if t._aval.ndim not in (1, 2):
            raise RuntimeError(f"multi_dot(): the {place} tensor must be 1D or 2D but got {t._aval.ndim}D")
        if t._aval.ndim == 1:
            found[at] = views.unsqueeze(t, 0 if at == 0 else -1)
    for i, t in enumerate(found[1:-1], 1):
        if t._aval.ndim != 2:
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {t._aval.ndim}D")
    for i, (a, b) in enumerate(zip(found, found[1:], strict=False)):
        if a._aval.shape[1] != b._aval.shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(a._aval.shape)} and {list(b._aval.shape)} cannot be multiplied"
            )  # fmt: skip
    product = _chain(found, _cheapest_order([t._aval.shape[0] for t in found] + [found[-1]._aval.shape[1]]), 0, len(found) - 1)
    shape = found[0]._aval.shape[:1] * (tensors[0]._aval.ndim == 2) + found[-1]._aval.shape[1:] * (tensors[-1]._aval.ndim == 2)
    return with_out("multi_dot", out, views.reshape(product, shape))


def _cheapest_order(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to cut each part of a chain of matrices (Cormen et al., "Introduction to Algorithms", matrix-chain order)."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    cut: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            options = {k: cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)}
            cut[i, j] = min(options, key=options.__getitem__)
            cost[i, j] = options[cut[i, j]]
    return cut


def _chain(tensors: list[Tensor], cut: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if i == j:
        return tensors[i]
    k = cut[i, j]
    return _mm(_chain(tensors, cut, i, k), _chain(tensors, cut, k + 1, j))


def chain_matmul(*matrices: Any, out: Any = None) -> Tensor:
    """The product of several matrices in the cheapest order."""
    found = list(matrices[0]) if len(matrices) == 1 and isinstance(matrices[0], (tuple, list)) else list(matrices)
    for t in found:
        if t._aval.ndim != 2:
            raise RuntimeError(f"Tensor dimension is {t._aval.ndim}, expected 2 instead.")
    return found[0] if len(found) == 1 else multi_dot(found, out=out)


def matrix_power(input: Tensor, n: int, *, out: Any = None) -> Tensor:
    """The n-th power of square matrices; of the inverse for negative n."""
    check_square("linalg.matrix_power", input._aval)
    return with_out("matrix_power", out, _power(input, n))


def _power(a: Tensor, n: int) -> Tensor:
    if n == 0:
        return call("matrix_power_zero", a)
    if n < 0:
        return _power(inv(a), -n) if n < -1 else inv(a)
    if n == 1:
        return views.clone(a)
    made, square = None, a
    if n == 3:
        return functions.matmul(functions.matmul(a, a), a)
    while True:
        if n & 1:
            made = square if made is None else functions.matmul(made, square)
        n >>= 1
        if not n:
            return made  # type: ignore[return-value]
        square = functions.matmul(square, square)


def cross(input: Tensor, other: Tensor, dim: int | None = None, *, out: Any = None) -> Tensor:
    """The vector product along a dimension of size 3: the first such without dim."""
    if dim is None:
        sizes = input._aval.shape
        if 3 not in sizes:
            raise RuntimeError("no dimension of size 3 in input")
        dim = sizes.index(3)
    return _linalg_cross(input, other, dim=dim, out=out)


def _linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Any = None) -> Tensor:
    """The vector product along a dimension of size 3."""
    return with_out("linalg_cross", out, call("linalg_cross", input, other, dim))


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Any = None) -> Tensor:
    """The sum over `dim` of the products, x being conjugated."""
    left = x.conj() if x.is_complex() else x
    return with_out("vecdot", out, (left * y).sum(dim))


# ---------------------------------------------------------------------- einsum

_ELLIPSIS = -1


def _subscript(text: str, operand: int | None) -> list[int]:
    """The labels of one operand (of the output where it is None), `_ELLIPSIS` for ``...``."""
    where = "the output" if operand is None else f"operand {operand}"
    found: list[int] = []
    i = 0
    while i < len(text):
        c = text[i]
        if c == ".":
            if text[i : i + 3] != "...":
                raise RuntimeError(f"einsum(): found '.' for {where} that is not part of any ellipsis")
            if _ELLIPSIS in found:
                raise RuntimeError(f"einsum(): found '.' for {where} for which an ellipsis was already found")
            found.append(_ELLIPSIS)
            i += 3
            continue
        if c != " ":
            if not (c.isascii() and c.isalpha()):
                raise RuntimeError(f"einsum(): invalid subscript given at index {i} in the equation string, subscripts must be in [a-zA-Z]")
            found.append(ord(c) - ord("A") if c.isupper() else 26 + ord(c) - ord("a"))
        i += 1
    return found


def _equation(args: tuple[Any, ...]) -> tuple[list[Tensor], list[list[int]], list[int] | None]:
    """Operands, their labels, the output's labels (None where they are implied)."""
    if isinstance(args[0], str):
        operands = list(args[1]) if len(args) == 2 and isinstance(args[1], (tuple, list)) else list(args[1:])
        left, arrow, right = args[0].partition("->")
        texts = left.split(",")
        if len(texts) > len(operands):
            raise RuntimeError("einsum(): fewer operands were provided than specified in the equation")
        if len(texts) < len(operands):
            raise RuntimeError("einsum(): more operands were provided than specified in the equation")
        return operands, [_subscript(t, i) for i, t in enumerate(texts)], _subscript(right, None) if arrow else None
    lists = [[_ELLIPSIS if s is Ellipsis else int(s) for s in a] for a in args[1::2]]
    for s in (s for labels in lists for s in labels):
        if not _ELLIPSIS <= s < 52:
            raise ValueError("einsum(): subscripts in subscript list are not within the valid range [0, 52)")
    output = [_ELLIPSIS if s is Ellipsis else int(s) for s in args[-1]] if len(args) % 2 else None
    return list(args[: 2 * (len(args) // 2) : 2]), lists, output


def _name(label: int) -> str:
    return chr(ord("A") + label) if label < 26 else chr(ord("a") + label - 26)


def _resolve(operands: list[Tensor], lists: list[list[int]], output: list[int] | None) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """All labels written out, those of an ellipsis as numbers from 52 on."""
    widest = 0
    for i, (t, labels) in enumerate(zip(operands, lists, strict=True)):
        ndim, named = t._aval.ndim, sum(s != _ELLIPSIS for s in labels)
        if _ELLIPSIS in labels:
            if named > ndim:
                raise RuntimeError(
                    f"einsum(): the number of subscripts in the equation ({named}) is more than the number of dimensions ({ndim}) for operand {i}"
                )
            widest = max(widest, ndim - named)
        elif named != ndim:
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({named}) does not match the number of dimensions ({ndim}) for operand {i} "
                "and no ellipsis was given"
            )
    dots = list(range(52, 52 + widest))
    full = []
    for t, labels in zip(operands, lists, strict=True):
        covered = t._aval.ndim - sum(s != _ELLIPSIS for s in labels)
        full.append(tuple(d for s in labels for d in (dots[widest - covered :] if s == _ELLIPSIS else [s])))
    counts: dict[int, int] = {}
    for s in (s for labels in full for s in labels):
        counts[s] = counts.get(s, 0) + 1
    if output is None:
        return tuple(full), (*dots, *sorted(s for s, n in counts.items() if n == 1 and s < 52))
    for s in output:
        if s != _ELLIPSIS and output.count(s) > 1:
            raise RuntimeError(f"einsum(): output subscript {_name(s)} appears more than once in the output")
        if s != _ELLIPSIS and s not in counts:
            raise RuntimeError(f"einsum(): output subscript {_name(s)} does not appear in the equation for any input operand")
    return tuple(full), tuple(d for s in output for d in (dots if s == _ELLIPSIS else [s]))


def _check_sizes(operands: list[Tensor], subscripts: tuple[tuple[int, ...], ...]) -> None:
    seen: dict[int, int] = {}
    for i, (t, labels) in enumerate(zip(operands, subscripts, strict=True)):
        own: dict[int, int] = {}
        for n, s in zip(t._aval.shape, labels, strict=True):
            if own.setdefault(s, n) != n:
                raise RuntimeError(f"einsum(): subscript {_name(s)} is repeated for operand {i} but the sizes don't match, {n} != {own[s]}")
        for s, n in own.items():
            if 1 not in (n, seen.get(s, 1)) and n != seen[s]:
                what = f"subscript {_name(s)}" if s < 52 else "dimension covered by ellipsis"
                raise RuntimeError(f"einsum(): {what} has size {n} for operand {i} which does not broadcast with previously seen size {seen[s]}")
            seen[s] = n if seen.get(s, 1) == 1 else seen[s]


_equations: dict[Any, Any] = {}


def einsum(*args: Any) -> Tensor:
    """Sums of products by labels of dimensions: ``einsum("ij,jk->ik", a, b)`` or ``einsum(a, [0, 1], b, [1, 2], [0, 2])``.

    RuntimeError with PyTorch's text for labels that do not fit. One operation, where PyTorch records its permutations and products.
    """
    if len(args) < 2:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts list"
        )  # fmt: skip
    if isinstance(args[0], str):
        operands = list(args[1]) if len(args) == 2 and isinstance(args[1], (tuple, list)) else list(args[1:])
        key = (args[0], *[t._aval for t in operands])
        found = _equations.get(key)
        if found is None:
            _, lists, output = _equation(args)
            found = _equations[key] = _resolve(operands, lists, output)
            _check_sizes(operands, found[0])
    else:
        operands, lists, output = _equation(args)
        found = _resolve(operands, lists, output)
        _check_sizes(operands, found[0])
    return call("einsum", operands, *found)


# ---------------------------------------------------------------------- solving, inverting


def _named(name: str, *fields: str) -> Any:
    return namedtuple(name, fields)  # type: ignore[misc]  # noqa: PYI024 - made from data


def _info(t: Tensor) -> Tensor:
    """LAPACK's success."""
    return wrap(from_data(np.zeros(t._aval.shape[:-2], np.int32), dtypes.int32, t.device))


def cholesky(A: Tensor, *, upper: bool = False, out: Any = None) -> Tensor:
    """L with A = L L^H, A being read by one triangle. LinAlgError where A is not positive definite."""
    return with_out("linalg_cholesky", out, call("linalg_cholesky", A, bool(upper)))


def torch_cholesky(input: Tensor, upper: bool = False, *, out: Any = None) -> Tensor:
    """As linalg.cholesky, with the gradient's older name."""
    return with_out("cholesky", out, call("cholesky", input, bool(upper)))


_CHOLESKY_EX, _INV_EX, _SOLVE_EX = _named("linalg_cholesky_ex", "L", "info"), _named("linalg_inv_ex", "inverse", "info"), _named(
    "linalg_solve_ex", "result", "info"
)  # fmt: skip


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """(L, info): info is the order of the leading minor that is not positive, 0 for success."""
    if check_errors:
        made: Any = (call("linalg_cholesky_ex_checked", A, bool(upper)), _info(A))
    else:
        made = call("linalg_cholesky_ex", A, bool(upper))
    return with_out("linalg_cholesky_ex", out, _CHOLESKY_EX(*made))


def cholesky_solve(input: Tensor, L: Tensor, upper: bool = False, *, out: Any = None) -> Tensor:
    """The solution X of A X = input, A given by its Cholesky factor."""
    b, a = input._aval.shape, L._aval.shape
    if len(b) < 2 or len(a) < 2:
        which, n = ("b", len(b)) if len(b) < 2 else ("u", len(a))
        raise RuntimeError(f"{which} should have at least 2 dimensions, but has {n} dimensions instead")
    if a[-1] != a[-2]:
        raise RuntimeError(f"A must be batches of square matrices, but they are {a[-2]} by {a[-1]} matrices")
    if a[-1] != b[-2]:
        raise RuntimeError(
            f"Incompatible matrix sizes for cholesky_solve: each A matrix is {a[-1]} by {a[-1]} but each b matrix is {b[-2]} by {b[-1]}"
        )
    return with_out("cholesky_solve", out, call("cholesky_solve", input, L, bool(upper)))


def inv(A: Tensor, *, out: Any = None) -> Tensor:
    """The inverse. LinAlgError for a singular matrix."""
    return with_out("linalg_inv", out, call("linalg_inv", A))


def inverse(input: Tensor, *, out: Any = None) -> Tensor:
    """As linalg.inv."""
    return inv(input, out=out)


def inv_ex(A: Tensor, *, check_errors: bool = False, out: Any = None) -> Any:
    """(inverse, info): info is the number of the zero pivot, 0 for success."""
    made: Any = (call("linalg_inv_ex_checked", A), _info(A)) if check_errors else call("linalg_inv_ex", A)
    return with_out("linalg_inv_ex", out, _INV_EX(*made))


def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Any = None) -> Tensor:
    """X with A X = B (X A = B unless left). LinAlgError for a singular matrix."""
    return with_out("linalg_solve", out, call("linalg_solve", A, B, bool(left))[0])  # type: ignore[index]


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """(X, info)."""
    if check_errors:
        return _SOLVE_EX(solve(A, B, left=left), _info(A))
    made: Any = call("linalg_solve_ex", A, B, bool(left))
    return with_out("linalg_solve_ex", out, _SOLVE_EX(made[0], made[3]))


_SOLVE_TRIANGULAR = function_of(registry["linalg_solve_triangular"])
_LU_SOLVE = function_of(registry["linalg_lu_solve"])


def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False, out: Any = None) -> Tensor:
    """X with A X = B (X A = B unless left), A being triangular."""
    return _SOLVE_TRIANGULAR(A, B, upper=upper, left=left, unitriangular=unitriangular, out=out)


_TRIANGULAR = _named("triangular_solve", "solution", "cloned_coefficient")


def triangular_solve(b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    """(X, a copy of A) with A X = b, A being triangular; A^T if transpose."""
    a = views.transpose(A, -2, -1) if transpose else A
    return _TRIANGULAR(solve_triangular(a, b, upper=upper != transpose, unitriangular=unitriangular), views.clone(A))


# ---------------------------------------------------------------------- determinants


def det(A: Tensor, *, out: Any = None) -> Tensor:
    """The determinant."""
    return with_out("linalg_det", out, call("linalg_det", A)[0])  # type: ignore[index]


def _slogdet(name: str) -> Callable[..., Any]:
    named = _named(name, "sign", "logabsdet")

    def slogdet(A: Tensor, *, out: Any = None) -> Any:
        """(sign, logabsdet) of the determinant."""
        return with_out(name, out, named(*call("linalg_slogdet", A)[:2]))  # type: ignore[index]

    return slogdet


linalg_slogdet, torch_slogdet = _slogdet("linalg_slogdet"), _slogdet("slogdet")


def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant; NaN where it is negative."""
    check_square("logdet", input._aval)
    sign, logabsdet = torch_slogdet(input)
    if input.is_complex():
        return sign.log() + logabsdet
    return functions.where(sign == -1, math.nan, logabsdet)


# ---------------------------------------------------------------------- decompositions

_EIGH, _EIG = _named("linalg_eigh", "eigenvalues", "eigenvectors"), _named("linalg_eig", "eigenvalues", "eigenvectors")
_SVD, _OLD_SVD = _named("linalg_svd", "U", "S", "Vh"), _named("svd", "U", "S", "V")
_LU, _LU_FACTOR = _named("linalg_lu", "P", "L", "U"), _named("linalg_lu_factor", "LU", "pivots")
_LU_FACTOR_EX, _UNPACKED = _named("linalg_lu_factor_ex", "LU", "pivots", "info"), _named("lu_unpack", "P", "L", "U")
_LSTSQ = _named("linalg_lstsq", "solution", "residuals", "rank", "singular_values")


def _wants_gradient(t: Tensor) -> bool:
    return t._rg and per_thread.recorder.grad_enabled


def _upper(uplo: str) -> bool:
    if not uplo or uplo[0] not in "LUlu":
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {uplo}")
    return uplo[0] in "Uu"


def eigh(A: Tensor, UPLO: str = "L", *, out: Any = None) -> Any:
    """(eigenvalues, eigenvectors) of Hermitian matrices read by one triangle, ascending."""
    check_square("linalg.eigh", A._aval)
    return with_out("linalg_eigh", out, _EIGH(*call("linalg_eigh", A, _upper(UPLO))))


def eigvalsh(A: Tensor, UPLO: str = "L", *, out: Any = None) -> Tensor:
    """The eigenvalues of Hermitian matrices, ascending."""
    check_square("linalg.eigvalsh", A._aval)
    made = call("linalg_eigh", A, _upper(UPLO))[0] if _wants_gradient(A) else call("linalg_eigvalsh", A, _upper(UPLO))  # type: ignore[index]
    return with_out("linalg_eigvalsh", out, made)


def eig(A: Tensor, *, out: Any = None) -> Any:
    """(eigenvalues, eigenvectors), complex. On the host only."""
    return with_out("linalg_eig", out, _EIG(*call("linalg_eig", A)))


def eigvals(A: Tensor, *, out: Any = None) -> Tensor:
    """The eigenvalues, complex. On the host only."""
    return with_out("linalg_eigvals", out, call("linalg_eig", A)[0])  # type: ignore[index]


def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None, out: Any = None) -> Any:
    """(U, S, Vh) with A = U S Vh."""
    return with_out("linalg_svd", out, _SVD(*call("linalg_svd", A, bool(full_matrices))))


def torch_svd(input: Tensor, some: bool = True, compute_uv: bool = True, *, out: Any = None) -> Any:
    """(U, S, V) with input = U S V^H; reduced if `some`."""
    if not compute_uv:
        m, n = input._aval.shape[-2:]
        zeros = [wrap(from_data(np.zeros((*input._aval.shape[:-2], k, k)), input.dtype, input.device)) for k in (m, n)]
        return _OLD_SVD(zeros[0], svdvals(input), zeros[1])
    u, s, vh = call("linalg_svd", input, not some)  # type: ignore[misc]
    return with_out("svd", out, _OLD_SVD(u, s, _adjoint(vh)))


def svdvals(A: Tensor, *, driver: str | None = None, out: Any = None) -> Tensor:
    """The singular values, descending."""
    made = call("linalg_svd", A, False)[1] if _wants_gradient(A) else call("linalg_svdvals", A)  # type: ignore[index]
    return with_out("linalg_svdvals", out, made)


def _qr(name: str) -> Callable[..., Any]:
    named = _named(name, "Q", "R")

    def qr(A: Tensor, mode: str = "reduced", *, out: Any = None) -> Any:
        """(Q, R) with A = Q R; Q empty for mode "r"."""
        if mode not in ("reduced", "complete", "r"):
            raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'")
        return with_out(name, out, named(*call("linalg_qr", A, mode)))

    return qr


linalg_qr, _plain_qr = _qr("linalg_qr"), _qr("qr")


def torch_qr(input: Tensor, some: bool = True, *, out: Any = None) -> Any:
    """As linalg.qr: reduced if `some`, else complete."""
    return _plain_qr(input, "reduced" if some else "complete", out=out)


def _pivoting(name: str, pivot: bool) -> None:
    if not pivot:
        raise RuntimeError(f"{name}: LU without pivoting is not implemented on the CPU")


def lu(A: Tensor, *, pivot: bool = True, out: Any = None) -> Any:
    """(P, L, U) with A = P L U."""
    _pivoting("linalg.lu", pivot)
    permutation, lower, upper = call("linalg_lu", A)  # type: ignore[misc]
    return with_out("linalg_lu", out, _LU(call("permutation_matrix", permutation, A._aval.dtype), lower, upper))


def lu_factor(A: Tensor, *, pivot: bool = True, out: Any = None) -> Any:
    """(L and U in one matrix, pivots counted from 1). RuntimeError for a zero on U's diagonal."""
    _pivoting("linalg.lu_factor", pivot)
    return with_out("linalg_lu_factor", out, _LU_FACTOR(*call("linalg_lu_factor", A)))


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """(L and U in one matrix, pivots, info)."""
    _pivoting("linalg.lu_factor", pivot)
    made: Any = (*call("linalg_lu_factor", A), _info(A)) if check_errors else call("linalg_lu_factor_ex", A)
    return with_out("linalg_lu_factor_ex", out, _LU_FACTOR_EX(*made))


def torch_lu(A: Tensor, pivot: bool = True, get_infos: bool = False, *, out: Any = None) -> Any:
    """(L and U in one matrix, pivots), and info if asked."""
    made = lu_factor_ex(A, pivot=pivot) if get_infos else lu_factor_ex(A, pivot=pivot)[:2]
    return with_out("lu", out, tuple(made))


def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    """(P, L, U) of what lu_factor gave; those not asked for are empty."""
    permutation, lower, upper = call("lu_unpack", LU_data, LU_pivots)  # type: ignore[misc]
    empty = wrap(from_data(np.zeros(0), LU_data.dtype, LU_data.device))
    matrix = call("permutation_matrix", permutation, LU_data._aval.dtype) if unpack_pivots else empty
    return _UNPACKED(matrix, lower if unpack_data else empty, upper if unpack_data else empty)


def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False, out: Any = None) -> Tensor:
    """X with A X = B (X A = B unless left; A^H for `adjoint`) by A's LU decomposition."""
    return _LU_SOLVE(LU, pivots, B, left=left, adjoint=adjoint, out=out)


def torch_lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Any = None) -> Tensor:
    """As linalg.lu_solve, the right side first."""
    return lu_solve(LU_data, LU_pivots, b, out=out)


# ---------------------------------------------------------------------- pseudo-inverse, rank, least squares, functions


def _number(x: Any) -> Any:
    return float(x.item()) if isinstance(x, Tensor) else None if x is None else float(x)


def pinv(A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None, out: Any = None) -> Tensor:
    """The Moore-Penrose inverse; singular values below max(atol, rtol * largest) count as zero."""
    rtol = rcond if rtol is None else rtol
    return with_out("linalg_pinv", out, call("linalg_pinv", A, _number(atol), _number(rtol), bool(hermitian)))


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """As linalg.pinv."""
    return pinv(input, rcond)


def matrix_rank(A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None, out: Any = None) -> Tensor:
    """The number of singular values above max(atol, rtol * largest)."""
    if A._aval.ndim < 2:
        raise RuntimeError("torch.linalg.matrix_rank: The input tensor input must have at least 2 dimensions.")
    atol, rtol = (tol, 0.0) if tol is not None else (atol, rtol)
    return with_out("linalg_matrix_rank", out, call("linalg_matrix_rank", A, _number(atol), _number(rtol), bool(hermitian)))


def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of a matrix."""
    return call("linalg_matrix_exp", A)


def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """(solution, residuals, rank, singular_values) of least squares; which of the last three are empty depends on the driver."""
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError("torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    vector = B._aval.ndim == 1 or (B._aval.ndim == A._aval.ndim - 1 and B._aval.shape == A._aval.shape[:-1])
    if vector:
        B = views.unsqueeze(B, -1)
    made = call("linalg_lstsq", A, B, rcond, driver or "gelsy")[:4]  # type: ignore[index]
    return _LSTSQ(views.squeeze(made[0], -1) if vector else made[0], *made[1:])


_ORDS = (1, -1, 2, -2, math.inf, -math.inf, "fro", "nuc")


def cond(A: Tensor, p: Any = None, *, out: Any = None) -> Tensor:
    """The ratio of the largest and the smallest singular value, or the product of the norms of a matrix and its inverse."""
    if A._aval.ndim < 2:
        raise RuntimeError("linalg.cond: The input tensor must have at least 2 dimensions.")
    p = 2 if p is None else p
    if p not in _ORDS:
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    if p in (2, -2):
        s = svdvals(A)
        first, last = views.narrow(s, -1, 0, 1), views.narrow(s, -1, s._aval.shape[-1] - 1, 1)
        made = views.squeeze(first / last if p == 2 else last / first, -1)
    else:
        check_square(f"linalg.cond(ord={p})", A._aval)
        made = call("linalg_cond", A, p)
    return with_out("linalg_cond", out, made)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0, 1 ... of the elements, as columns."""
    if not x._aval.ndim or (N is not None and N <= 1):
        raise RuntimeError("N must be greater than 1.")
    return call("vander", x, x._aval.shape[-1] if N is None else N, True)


def torch_vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of a vector's elements as columns, descending unless `increasing`."""
    if x._aval.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    made = call("vander", x, x._aval.shape[0] if N is None else N, True)
    return made if increasing else flip(made, 1)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of two dimensions, the last two unless told, as a view."""
    return views.diagonal(A, offset, dim1, dim2)


def tensorsolve(A: Tensor, B: Tensor, dims: Any = None, *, out: Any = None) -> Tensor:
    """X with tensordot(A, X) = B."""
    order = tuple(d for d in range(A._aval.ndim) if d not in dims) + tuple(dims) if dims is not None else tuple(range(A._aval.ndim))
    a = views.permute(A, order)
    shape = a._aval.shape[B._aval.ndim :]
    size = B._aval.size
    if math.prod(shape) != size:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but got "
            f"{math.prod(shape)} != {size}"
        )
    return with_out("linalg_tensorsolve", out, views.reshape(solve(views.reshape(a, (size, size)), views.reshape(B, (size,))), shape))


# ---------------------------------------------------------------------- adjoint


def _adjoint(t: Tensor) -> Tensor:
    turned = views.transpose(t, -2, -1)
    return turned.conj() if t.is_complex() else turned


def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged, and conjugated. RuntimeError for fewer than 2 dimensions."""
    if input._aval.ndim < 2:
        raise RuntimeError(f"tensor.adjoint() is only supported on matrices or batches of matrices. Got {input._aval.ndim}-D tensor.")
    return _adjoint(input)


def _mH(self: Tensor) -> Tensor:
    if self._aval.ndim < 2:
        raise RuntimeError(f"tensor.mH is only supported on matrices or batches of matrices. Got {self._aval.ndim}-D tensor.")
    return _adjoint(self)


def _H(self: Tensor) -> Tensor:
    ndim = self._aval.ndim
    if ndim != 2 and ndim != 0:
        tail = " For batches of matrices, consider using tensor.mH" if ndim > 2 else ""
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {ndim}-D tensor.{tail}")
    return _adjoint(self) if ndim else self


_SHARED = {
    "outer": outer, "ger": outer, "inner": inner, "kron": kron, "matrix_power": matrix_power, "cross": cross, "cholesky": torch_cholesky,
    "cholesky_solve": cholesky_solve, "inverse": inverse, "det": det, "slogdet": torch_slogdet, "logdet": logdet, "svd": torch_svd,
    "qr": torch_qr, "lu_solve": torch_lu_solve, "pinverse": pinverse, "matrix_exp": matrix_exp, "adjoint": adjoint,
    "triangular_solve": triangular_solve,
}  # fmt: skip
TOPLEVEL = {
    **_SHARED, "tensordot": tensordot, "chain_matmul": chain_matmul, "einsum": einsum, "vander": torch_vander, "lu": torch_lu, "lu_unpack": lu_unpack,
}  # fmt: skip
METHODS = {
    **_SHARED, "lu": torch_lu, "mH": property(_mH, doc="The adjoint of matrices."), "H": property(_H, doc="The adjoint of a matrix."),
}  # fmt: skip
LINALG = {
    "LinAlgError": LinAlgError, "cholesky": cholesky, "cholesky_ex": cholesky_ex, "inv": inv, "inv_ex": inv_ex, "solve": solve, "solve_ex": solve_ex,
    "solve_triangular": solve_triangular, "det": det, "slogdet": linalg_slogdet, "eigh": eigh, "eigvalsh": eigvalsh, "eig": eig, "eigvals": eigvals,
    "svd": svd, "svdvals": svdvals, "qr": linalg_qr, "lu": lu, "lu_factor": lu_factor, "lu_factor_ex": lu_factor_ex, "lu_solve": lu_solve,
    "pinv": pinv, "matrix_rank": matrix_rank, "matrix_exp": matrix_exp, "matrix_power": matrix_power, "lstsq": lstsq, "cond": cond, "vander": vander,
    "diagonal": diagonal, "tensorsolve": tensorsolve, "multi_dot": multi_dot, "cross": _linalg_cross, "vecdot": vecdot, "matmul": functions.matmul,
}  # fmt: skip
