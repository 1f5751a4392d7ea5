"""Statements that make views."""

from __future__ import annotations

import torch

from compat_suite.fuzz.author import Author
from compat_suite.fuzz.observation import asked


def item(author: Author) -> str | None:
    a = author.viewable()
    if a is None:
        return None
    return f"{author.fresh()} = {a}[{author.key(a)}]"


def part(author: Author) -> str | None:
    a = author.viewable(lambda x: x.dim())
    if a is None:
        return None
    dim = author.dim(a)
    n = author.of(a).shape[dim]
    start = author.pick(range(n + 1))
    selected = f"select({dim}, {author.pick(range(-n, n))})" if n else "narrow(0, 0, 0)"
    return f"{author.fresh()} = {a}.{author.pick([selected, f'narrow({dim}, {start}, {author.pick(range(n - start + 1))})'])}"


def reorder(author: Author) -> str | None:
    a = author.viewable()
    if a is None:
        return None
    order = list(range(author.of(a).dim()))
    order = [order.pop(author.pick(range(len(order)))) for _ in order[:]]
    transposed = f"transpose({author.dim(a)}, {author.dim(a)})"
    made = author.pick([transposed, "t()", "T", f"permute({tuple(order)})", "movedim(0, -1)", "mT", like(author, a, "view_as")])
    return f"{author.fresh()} = {a}.{made}"


def like(author: Author, a: str, name: str) -> str | None:
    """`view_as` or `expand_as` of a tensor that fits."""
    fits = author.some(lambda x: asked(lambda: getattr(author.of(a).detach(), name)(x).shape) == x.shape)
    return "T" if fits is None else f"{name}({fits})"


def sizes(author: Author, a: str) -> str | None:
    n = author.of(a).numel()
    return author.pick([(n,), (-1,), (n, 1), (1, n), tuple(author.of(a).shape[::-1])] + [(m, n // m) for m in (2, 3, 4) if n and n % m == 0])


def reshape(author: Author) -> str | None:
    a = author.viewable()
    if a is None:
        return None
    return f"{author.fresh()} = {a}.{author.pick(['view', 'reshape'])}({sizes(author, a)})"


def stretch(author: Author) -> str | None:
    a = author.viewable(lambda x: x.numel() < 20 and x.dim() < 3)
    if a is None:
        return None
    size = tuple(author.pick([-1, 2, 3]) if n == 1 else author.pick([-1, n]) for n in author.of(a).shape)
    made = author.pick([f"expand({author.pick([(), (), (2,), (1,)]) + size})", f"unsqueeze({author.dim(a, 1)})", like(author, a, "expand_as")])
    return f"{author.fresh()} = {a}.{made}"


def shrink(author: Author) -> str | None:
    a = author.viewable()
    if a is None:
        return None
    diagonal = f"diagonal({author.pick(['', 1, -1])})"
    made = author.pick(["squeeze()", f"squeeze({author.dim(a)})", diagonal, diagonal, "flatten()", "unfold(0, 2, 1)"])
    return f"{author.fresh()} = {a}.{made}"


def strided(author: Author) -> str | None:
    a = author.viewable(lambda x: x.numel())
    size, stride = author.pick([((2,), (1,)), ((2,), (2,)), ((2, 2), (1, 2)), ((4,), (1,)), ((3,), (0,))])
    return None if a is None else f"{author.fresh()} = {a}.as_strided({size}, {stride}{author.pick(['', '', ', 0'])})"


def several(author: Author) -> str | None:
    a = author.viewable(lambda x: x.dim())
    if a is None:
        return None
    dim = author.dim(a)
    n = author.of(a).shape[dim]
    made = author.pick([f"unbind({dim})", f"split(2, {dim})", f"chunk(2, {dim})", f"split([1, {n - 1}], {dim})", "split(9)"])
    count = len(eval(f"a.{made}", {"a": torch.zeros(author.of(a).shape)})) if n else 0
    return "".join(f"{author.fresh()}, " for _ in range(count)) + f"= {a}.{made}" if count else None
