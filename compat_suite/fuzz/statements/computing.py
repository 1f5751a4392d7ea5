"""Statements that make new tensors: leaves, results of operators, copies."""

from __future__ import annotations

import torch

from compat_suite.fuzz.author import Author, memory

SHAPES = [(), (4,), (2, 3), (2, 3), (2, 2, 2), (1, 3)]
FEWER = [(), (2,), (4,), (2, 2), (2, 2)]  # for programs that keep to less


def _shape(author: Author) -> tuple[int, ...]:
    return author.pick(SHAPES if author.shapes is None or (2, 3) in author.shapes else FEWER)


def leaf(author: Author) -> str | None:
    shape = _shape(author)
    dtype = author.dtype()
    kind = "" if dtype == "float64" else f", dtype='{dtype}'"
    flag = author.pick(["", "", ", requires_grad=False"]) if dtype.startswith("float") else ""
    return f"{author.fresh()} = leaf({''.join(f'{n}, ' for n in shape)}seed={author.count % 8}{kind}{flag})"


def special(author: Author) -> str | None:
    """NaN, infinities and zeros."""
    shape, dtype = _shape(author), author.dtype()
    if not dtype.startswith("float"):
        return None
    kind = "" if dtype == "float64" else f", dtype='{dtype}'"
    return f"{author.fresh()} = special({''.join(f'{n}, ' for n in shape)}seed={author.count % 8}{kind}{author.pick(['', ', requires_grad=False'])})"


def arithmetic(author: Author) -> str | None:
    a = author.some()
    other = author.pick([author.some, lambda: author.some(lambda x: x.shape == author.of(a).shape), author.number])()
    operation = author.pick(["+", "-", "*", "*", "/"])
    return f"{author.fresh()} = {author.pick([f'{a} {operation} {other}', f'{a} {operation} {other}', f'{other} {operation} {a}'])}"


def function(author: Author) -> str | None:
    functions = ["tanh()", "exp()", "clone()", "sum()", "mean()", "sin()", "neg()", "square()", "abs()", "relu()", "sigmoid()", "sqrt()", "log()"]
    more = ["reciprocal()", "sign()", "clamp(-1, 1)", "clamp(min=0.5)", "floor()", "nan_to_num(0.5)", "prod()", "max()", "cos()", "isnan()"]
    return f"{author.fresh()} = {author.some()}.{author.pick(functions + functions + more)}"


def reduction(author: Author) -> str | None:
    a = author.some()
    kind = author.pick(["sum", "sum", "sum", "mean", "amax", "prod", "logsumexp", "cumsum", "all", "argmax", "softmax", "flip"])
    keep = "" if kind in ("cumsum", "softmax", "flip") else author.pick(["", ", keepdim=True"])
    return f"{author.fresh()} = {a}.{kind}({author.dim(a)}{keep})"


def ordered(author: Author) -> str | None:
    """Of operators with several results. Equal elements may come in any order: there are none in a leaf."""
    a = author.some(lambda x: x.dim() and len(set(x.detach().flatten().tolist())) == x.numel())
    return a and f"{author.fresh()}, {author.fresh()} = {a}.{author.pick(['max', 'min', 'sort', 'cummax'])}({author.dim(a)})"


def joined(author: Author) -> str | None:
    a, b = author.some(), author.some()
    other = author.some(lambda x: x.shape == author.of(a).shape)
    b = author.pick([other, other, b])
    name, dim = author.pick([("cat", author.dim(a)), ("cat", author.dim(a)), ("stack", author.dim(a, 1))])
    return f"{author.fresh()} = torch.{name}([{a}, {b}], {dim})"


def chosen(author: Author) -> str | None:
    """Operators of two or three tensors."""
    a = author.some()
    b = author.some(lambda x: x.shape == author.of(a).shape)
    kinds = [
        f"where({a} > 0, {a}, {b})",
        f"where({a} > {author.number()}, {b}, {author.number()})",
        f"maximum({a}, {b})",
        f"minimum({a}, {b})",
        f"addcmul({a}, {a}, {b}, value=0.5)",
        f"lerp({a}, {b}, 0.25)",
        f"pow({a}, 2)",
    ]
    if author.of(b).dtype != torch.bool:  # of booleans, PyTorch has no derivative
        kinds.append(f"pow({a}, {b})")
    if author.of(a).is_floating_point() and author.of(b).is_floating_point():
        kinds.append(f"atan2({a}, {b})")
    return f"{author.fresh()} = torch.{author.pick(kinds)}"


def product(author: Author) -> str | None:
    a, b = author.some(lambda x: x.dim() == 2), author.some(lambda x: x.dim() == 2)
    if a is None or b is None or author.of(a).shape[1] != author.of(b).shape[0]:
        return None
    return f"{author.fresh()} = {a} @ {b}"


def gather(author: Author) -> str | None:
    a = author.target(lambda x: x.dim() and x.shape[0] > 1)
    if a is None:
        return None
    key = author.pick(["[0, 1, 0]", "torch.tensor([1, -1])", f"{a} > 0.1", "torch.tensor([[0, 1]]), ...", "None, [1, 0]"])
    return author.pick([f"{author.fresh()} = {a}[{key}]", f"{a}[{key}] = {author.number()}", f"{a}[{key}] *= 2"])


def taken(author: Author) -> str | None:
    """Elements by operators that take an index."""
    a = author.some(lambda x: x.dim() and x.shape[0] > 1)
    if a is None:
        return None
    index = "torch.tensor([1, 0, 1])"
    full = f"torch.zeros({tuple(author.of(a).shape)}, dtype=torch.int64)"
    kinds = [f"index_select(0, {index})", f"gather({author.dim(a)}, {full})", f"take({index})", f"masked_select({a} > 0.25)",
             f"index_add(0, torch.tensor([1, 1]), {a}[:2])", f"scatter({author.dim(a)}, {full}, {author.number()})",
             f"scatter_add({author.dim(a)}, {full}, {a})", f"index_fill(0, torch.tensor([1]), {author.number()})"]  # fmt: skip
    kind = author.pick(kinds)
    if "[:2]" in kind:  # a view without a name is saved: see `twinnable`
        if memory(author.of(a)) in author.twinned:
            return None
        author.mark(author.viewed, author.of(a))
    return f"{author.fresh()} = {a}.{kind}"


def cast(author: Author) -> str | None:
    """To another dtype. What no integer can hold is left out: a processor makes of it what it likes."""
    a = author.some()
    made = author.pick(["double()", "float()", "to(torch.float64)", f"to({author.some()}.dtype)" if author.of(a).is_floating_point() else "float()",
                        "nan_to_num(0.5, 2.0, -2.0).clamp(-9, 9).long()", "bool()", "type_as(torch.ones(1))"])  # fmt: skip
    if ".dtype)" in made and not author.of(made[3 : made.index(".dtype")]).is_floating_point():
        return None
    return f"{author.fresh()} = {a}.{made}"


def compared(author: Author) -> str | None:
    a = author.some()
    b = author.pick([author.number(), author.some(lambda x: x.shape == author.of(a).shape)])
    return f"{author.fresh()} = {a} {author.pick(['>', '<=', '==', '!='])} {b}"


def integers(author: Author) -> str | None:
    """Operators of integers and booleans."""
    a = author.some(lambda x: x.dtype in (torch.int64, torch.bool))
    if a is None:
        return f"{author.fresh()} = leaf(4, seed={author.count % 8}, dtype='{author.pick(['int64', 'bool'])}')"
    b = author.some(lambda x: x.dtype in (torch.int64, torch.bool))
    kinds = [f"{a} // 2", f"{a} % 3", f"{a} << 2", f"{a} & {b}", f"{a} | {b}", f"{a} ^ {b}", f"~{a}", f"{a} ** 3", f"{a} / {b}", f"{a}.sum()",
             f"{a}.bitwise_and(5)", f"{a} * 0.5", f"{a} // -2", f"{a}.cumsum(-1)", f"{a}.float().mean()", f"{a} * {author.some()}",
             f"torch.where({a} > 0, {author.some()}, 0.0)", f"({a} > 0) * {author.some()}"]  # fmt: skip
    return f"{author.fresh()} = {author.pick(kinds)}"


def twin(author: Author) -> str | None:
    made = author.pick(["detach()", "detach()", "data", "contiguous()", "clone()"])
    a = author.twinnable(lambda x: x.is_floating_point()) if made == "data" else author.some()  # integers may be indices that a node has saved
    return a and f"{author.fresh()} = {a}.{made}"


def name(author: Author) -> str | None:
    a = author.some()
    return author.pick([f"{author.fresh()} = {a}", f"del {a}"]) if len(author.run.tensors()) > 3 else None
