"""Sums of products by labels of dimensions."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.calling.entries import forget_all
from torchgrad_jax.calling.expecting import elements
from torchgrad_jax.calling.generate import function_of
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions import views
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.keeping import Memo
from torchgrad_jax.runtime.recorder import per_thread

_equations = Memo()
_bmm = function_of(registry["bmm"])


class _Ordering:
    """How the order of products is found, as `torch.backends.opt_einsum` is told: whether opt_einsum is asked, and by which strategy it looks."""

    enabled: bool = True
    strategy: Any = "auto"

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        forget_all()

    def said(self) -> Any:
        """The strategy; None for products from left to right."""
        return (self.strategy or "auto") if self.enabled else None


ordering = _Ordering()


@public("torch")
def einsum(*args: Any) -> Tensor:
    """Sums of products by labels of dimensions: ``einsum("ij,jk->ik", a, b)`` or ``einsum(a, [0, 1], b, [1, 2], [0, 2])``.

    RuntimeError with PyTorch's text for labels that do not fit. Where a graph is recorded, it is that of the permutations and products which
    PyTorch makes of it; so it is under autocast, which casts the products alone; elsewhere it is one operation.
    """
    if len(args) < 2:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts list"
        )  # fmt: skip
    if isinstance(args[0], str):
        operands = _operands(args)
        key = (args[0], *[t._aval for t in operands])
        found = _equations.get(key)
        if found is None:
            _, lists, output = _equation(args)
            found = _resolve(operands, lists, output)
            _check_sizes(operands, found[0])
            _equations.keep(key, found)
    else:
        operands, lists, output = _equation(args)
        found = _resolve(operands, lists, output)
        _check_sizes(operands, found[0])
    apart = any(t._aval.dtype != operands[0]._aval.dtype for t in operands)  # products without a sum bring them together, others refuse
    steps = operands[0]._aval.dtype.kind in "biu" and operands[0]._aval.dtype != np.int64  # they can be seen: sums are of int64
    rec = per_thread.recorder
    products = rec.flags.casting is not None or (rec.grad_enabled and any(t.requires_grad for t in operands))
    told = len(operands) > 2 and ordering.said() != "auto"
    if apart or steps or len(operands) == 1 or products or told:
        return _composed(operands, found[0], found[1])
    return call("einsum", operands, *found)


# ---------------------------------------------------------------------- products of pairs


def _composed(operands: list[Tensor], subscripts: tuple[tuple[int, ...], ...], output: tuple[int, ...]) -> Tensor:
    """Every operand gets a dimension for every label, the output's first; then pairs are multiplied, and summed over labels that no other has."""
    labels = (*output, *sorted({s for own in subscripts for s in own} - set(output)))
    made: list[Any] = [_with_all(t, own, labels) for t, own in zip(operands, subscripts, strict=True)]
    summed = range(len(output), len(labels))
    if len(made) == 1:
        return made[0].sum(tuple(summed)) if summed else made[0]
    for i, j in _path(subscripts, output, tuple(t._aval.shape for t in operands), ordering.said()):
        a, b = made[i], made[j]
        rest = [t for k, t in enumerate(made) if k not in (i, j)]
        done = [d for d in summed if all(t._aval.shape[d] == 1 for t in rest)]
        made = [*rest, _pair(a, b, done, len(operands) == 2)]
    (product,) = made
    return views.view(product, product._aval.shape[: len(output)]) if summed else product


@lru_cache(maxsize=1024)
def _placing(own: tuple[int, ...], labels: tuple[int, ...]) -> tuple[list[tuple[int, int]], list[int], tuple[int, ...]]:
    """How an operand gets the dimensions `labels`: which of its own are equal and become one, where others are put in, and the order of all."""
    held, diagonals, added = list(own), [], []
    at = 0
    while at < len(held):
        if held[at] in held[at + 1 :]:
            diagonals.append((at, held.index(held[at], at + 1)))
            del held[diagonals[-1][1]]
        else:
            at += 1
    for s in labels:
        if s not in held:
            held.append(s)
            added.append(len(held) - 1)
    return diagonals, added, tuple([held.index(s) for s in labels])


def _with_all(t: Tensor, own: tuple[int, ...], labels: tuple[int, ...]) -> Tensor:
    """`t` with the dimensions `labels`, of size 1 where it has none."""
    diagonals, added, order = _placing(own, labels)
    for at, again in diagonals:
        t = views.movedim(views.diagonal(t, 0, at, again), -1, at)
    for d in added:
        t = views.unsqueeze(t, d)
    return views.permute(t, order)


@lru_cache(maxsize=1024)
def _path(
    subscripts: tuple[tuple[int, ...], ...], output: tuple[int, ...], shapes: tuple[tuple[int, ...], ...], strategy: Any
) -> tuple[tuple[int, int], ...]:
    """Which operands to multiply next; a product is appended to those that are left. As PyTorch, we ask opt_einsum for the cheapest order, or go from
    left to right."""
    many = len(subscripts)
    if many == 2 or strategy is None:
        return tuple([(0, left) for left in (1, *range(many - 2, 0, -1))])
    import opt_einsum  # JAX needs it too

    texts = ["".join(map(opt_einsum.get_symbol, own)) for own in (*subscripts, output)]
    path = opt_einsum.contract_path(",".join(texts[:-1]) + "->" + texts[-1], *shapes, shapes=True, optimize=strategy)[0]
    return tuple([(min(pair), max(pair)) for pair in path])


class _Product(NamedTuple):
    """A product of two operands as one of matrices. swaps: whether they are exchanged; the order of each one's dimensions and its shape; the shape of
    the product, and the order of its dimensions."""

    swaps: bool
    left: tuple[tuple[int, ...], tuple[int, ...]]
    right: tuple[tuple[int, ...], tuple[int, ...]]
    made: tuple[tuple[int, ...], tuple[int, ...]]


@lru_cache(maxsize=1024)
def _product(m: tuple[int, ...], n: tuple[int, ...], both: tuple[int, ...], may_swap: bool) -> _Product:
    rows, columns = ([d for d in range(len(m)) if d not in both and x[d] != 1 == y[d]] for x, y in ((m, n), (n, m)))
    swaps = may_swap and bool(rows and columns) and max(columns) < min(rows)  # then the product's dimensions are in order
    if swaps:
        m, n, rows, columns = n, m, columns, rows
    batch = [d for d in range(len(m)) if d not in (*both, *rows, *columns)]
    sizes = [math.prod(m[d] if m[d] != 1 else n[d] for d in dims) for dims in (batch, rows, both, columns)]
    order = [*batch, *rows, *both, *columns]
    shape = tuple([1 if d in both else max(m[d], n[d]) if min(m[d], n[d]) else 0 for d in order])
    return _Product(
        swaps, (tuple(order), (sizes[0], sizes[1], sizes[2])), ((*batch, *both, *columns, *rows), (sizes[0], sizes[2], sizes[3])),
        (shape, tuple([order.index(d) for d in range(len(order))])),
    )  # fmt: skip


def _pair(a: Any, b: Any, done: list[int], may_swap: bool) -> Any:
    """The product of two operands, summed over those of the dimensions `done` that both have; what only one has is summed before."""
    m, n = a._aval.shape, b._aval.shape
    both = tuple([d for d in done if m[d] != 1 and n[d] != 1])
    own = [d for d in done if m[d] != 1 and n[d] == 1], [d for d in done if m[d] == 1 and n[d] != 1]
    a, b = (t.sum(tuple(dims), keepdim=True) if dims else t for t, dims in zip((a, b), own, strict=True))
    if not both:
        return a * b
    how = _product(a._aval.shape, b._aval.shape, both, may_swap)
    a, b = (b, a) if how.swaps else (a, b)
    left, right = (views.reshape(views.permute(t, order), shape) for t, (order, shape) in ((a, how.left), (b, how.right)))
    return views.permute(views.view(_bmm(left, right), how.made[0]), how.made[1])


# ---------------------------------------------------------------------- equations

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
        operands = _operands(args)
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
    return elements(args[: 2 * (len(args) // 2) : 2], 1), lists, output


def _operands(args: tuple[Any, ...]) -> list[Tensor]:
    """What follows the equation, one by one or as one list."""
    return elements(args[1] if len(args) == 2 and isinstance(args[1], (tuple, list)) else args[1:], 1)


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
