"""Statements of several lines: loops whose structure changes from turn to turn, and grad modes around several statements."""

from __future__ import annotations

from compat_suite.fuzz.author import Author
from compat_suite.fuzz.observation import asked

INDENT = "    "


def _expression(author: Author, x: str, w: str) -> str:
    kinds = [f"{x} * {w}", f"{x}.sin() + {w}", f"({x} - {w}).square()", f"{x}.tanh()", f"{x} * 0.5", f"{x} * i + {w}", f"{x} + i * {w}.exp()"]
    return author.pick(kinds)


def _condition(author: Author) -> str:
    return author.pick(["i % 2", "i == 2", "i < 2", "i in (1, 3)", "i > 2"])


def _pair(author: Author) -> tuple[str, str] | None:
    """A leaf that requires a gradient, and a tensor of its shape."""
    w = author.floating(lambda x: asked(lambda: x.is_leaf) is True and x.requires_grad and not x.is_inference() and x._base is None)
    return None if w is None else (w, author.floating(lambda x: x.shape == author.of(w).shape and not x.is_inference()))


def training(author: Author) -> str | None:
    """A backward pass and an update in each turn, of a graph that changes."""
    pair = _pair(author)
    if pair is None:
        return None
    w, x = pair
    y = author.fresh()
    x = author.pick([x, f"{x}.detach()"])
    update = author.pick([f"{w} -= 0.1 * {w}.grad", f"{w}.sub_({w}.grad, alpha=0.1)", f"{w}.add_({w}.grad * -0.1)", "pass"])
    clear = author.pick([f"{w}.grad = None", f"{w}.grad.zero_()", "pass"])
    look = author.pick(["pass", "pass", f"calls.append(contents({y}))", f"if i == 1: calls.append(contents({w}))"])
    return "\n".join([
        f"for i in range({author.pick([2, 3, 4, 5])}):",
        f"{INDENT}if {_condition(author)}: {y} = {_expression(author, w, x)}",
        f"{INDENT}else: {y} = {_expression(author, w, x)}",
        f"{INDENT}{y}.sum().backward()",
        f"{INDENT}with torch.no_grad(): {update}",
        f"{INDENT}{look}",
        f"{INDENT}{clear}",
    ])  # fmt: skip


def unrolled(author: Author) -> str | None:
    """A value that goes around a loop, with views, writes and ends that depend on values."""
    pair = _pair(author)
    if pair is None:
        return None
    w, x = pair
    y = author.fresh()
    write = author.pick(["pass", f"{y}[..., :1] = i", f"{y}.mul_(0.5)", f"{y}[..., -1:].add_({w}[..., :1])", f"{y} = {y}.clone(); {y}.zero_()"])
    stop = author.pick(["pass", "pass", f"if {y}.sum() > 2: break", f"if float({y}.sum()) < 0: continue"])
    return "\n".join([
        f"{y} = {x}.clone()",
        f"for i in range({author.pick([2, 3, 5])}):",
        f"{INDENT}{stop}",
        f"{INDENT}{y} = {_expression(author, y, w)} if {_condition(author)} else {_expression(author, y, w)}",
        f"{INDENT}if {_condition(author)}: {write}",
    ])  # fmt: skip


def accumulated(author: Author) -> str | None:
    """Parts gathered in a list, as many as a loop has turns."""
    pair = _pair(author)
    if pair is None or not author.of(pair[0]).dim():
        return None
    w, x = pair
    y, n = author.fresh(), author.pick([1, 2, 3])
    part = author.pick([f"{w}[i % {author.of(w).shape[0]}].sum()", f"({w} * i).sum()", f"({x} * {w}).mean() if i % 2 else {w}.max()"])
    return "\n".join([
        "parts = []",
        f"for i in range({n + 1}): parts.append({part})",
        f"{y} = torch.stack(parts)",
    ])  # fmt: skip
