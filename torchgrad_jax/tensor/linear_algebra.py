"""Matrix products beyond mm, einsum, and the tables of torch.linalg."""

from __future__ import annotations

import math
from typing import Any

from torchgrad_jax.ops.declare import registry
from torchgrad_jax.ops.linalg import LinAlgError, check_square
from torchgrad_jax.tensor import decompositions, functions, views
from torchgrad_jax.tensor.gathering import call, with_out
from torchgrad_jax.tensor.generate import function_of
from torchgrad_jax.tensor.tensor import Tensor, wrap_dim

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
        return _power(decompositions.inv(a), -n) if n < -1 else decompositions.inv(a)
    if n == 1:
        return views.clone(a)
    made: Any = None
    square = a
    if n == 3:
        return functions.matmul(functions.matmul(a, a), a)
    while True:
        if n & 1:
            made = square if made is None else functions.matmul(made, square)
        n >>= 1
        if not n:
            return made
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


_SHARED = {"outer": outer, "ger": outer, "inner": inner, "kron": kron, "matrix_power": matrix_power, "cross": cross}
TOPLEVEL = {**decompositions.TOPLEVEL, **_SHARED, "tensordot": tensordot, "chain_matmul": chain_matmul, "einsum": einsum}
METHODS = {**decompositions.METHODS, **_SHARED}
LINALG = {
    **decompositions.LINALG, "LinAlgError": LinAlgError, "matrix_power": matrix_power, "multi_dot": multi_dot, "cross": _linalg_cross,
    "vecdot": vecdot, "matmul": functions.matmul,
}  # fmt: skip
