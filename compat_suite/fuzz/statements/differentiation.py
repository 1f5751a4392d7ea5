"""Statements about graphs: hooks, backward passes, gradients and flags."""

from __future__ import annotations

from functools import partial

import torch

from compat_suite.fuzz.author import Author, memory
from compat_suite.fuzz.observation import asked
from compat_suite.fuzz.rules import UNSHOWN


def flag(author: Author) -> str | None:
    kind = author.pick(["requires_grad_()", "requires_grad_()", "requires_grad_(False)", "detach_()", "retain_grad()", "retain_grad()"])
    # To PyTorch a view keeps the node that it was given when it was written to, to us it has that of its base once it is asked.
    a = author.some(lambda x: kind != "detach_()" or x._base is not None or memory(x) not in author.viewed)
    return a and f"{a}.{kind}"


def scale(author: Author) -> str | None:
    return author.pick(["", "", ", 2.0", ", -0.5"])


def hook(author: Author) -> str | None:
    # PyTorch itself crashes on a hook of a view that requires a gradient only because its base does.
    a = author.some(lambda x: x._base is None or isinstance(asked(lambda: x.grad_fn), torch.autograd.graph.Node))
    if a is None:
        return None
    kind = author.pick([f"register_hook(hook({author.count}{scale(author)}))"] * 3 + [f"register_post_accumulate_grad_hook(after({author.count}))"])
    return f"{author.fresh('h')} = {a}.{kind}"


def node_hook(author: Author) -> str | None:
    a = author.some(lambda x: isinstance(asked(lambda: x.grad_fn), torch.autograd.graph.Node))
    if a is None:
        return None
    kind = author.pick([f"register_hook(hook_of_node({author.count}{scale(author)}))", f"register_prehook(prehook({author.count}{scale(author)}))"])
    return f"{author.fresh('h')} = {a}.grad_fn.{kind}"


def unhook(author: Author) -> str | None:
    handle = author.named(torch.utils.hooks.RemovableHandle)
    return None if handle is None else f"{handle}.remove()"


def scalar(author: Author, a: str) -> str | None:
    return a if author.of(a).dim() == 0 and author.pick([True, False]) else f"{a}{author.pick(['.sum()', '.square().sum()', '.sin().sum()'])}"


def backward(author: Author) -> str | None:
    root = author.some(lambda x: x.requires_grad) if author.pick([True] * 6 + [False]) else author.some()
    if root is None:
        return None
    options = ["", "", "", "retain_graph=True", "retain_graph=True", f"inputs=[{author.some()}, {author.some()}]"]
    return f"{scalar(author, root)}.backward({author.pick(options + second_order(author, 'create_graph=True'))})"


def second_order(author: Author, option: str) -> list[str]:
    """`option`, once in a program: which gradients of gradients require a gradient is not compared."""
    return [] if any("create_graph" in line for line in author.lines) else [option]


def gradient(author: Author) -> str | None:
    out, to = author.some(lambda x: x.requires_grad), author.some(lambda x: x.requires_grad)
    if out is None:
        return None
    to = author.pick([to, to, f"[{to}, {author.some()}]"])
    options = ["", ", allow_unused=True", ", retain_graph=True", ", retain_graph=True, allow_unused=True"]
    options = author.pick(options + second_order(author, ", create_graph=True"))
    names = ", ".join(author.fresh() for _ in to.split(","))
    return f"{names} = second(*grad({scalar(author, out)}, {to}{options}))"


def grad(author: Author) -> str | None:
    a = author.some(lambda x: asked(lambda: x.is_leaf) is True and x.grad is not None)
    if a is None:
        return f"{author.some()}.grad = None"
    return author.pick([f"{a}.grad = None", f"{author.fresh()} = second({a}.grad)", f"{a}.grad.mul_(2)",
                      f"{a}.grad.zero_()", f"{a}.grad = {a}.grad.detach() * 2"])  # fmt: skip


def saved_tensor(author: Author) -> str | None:
    """What a node has saved."""
    a = author.some(lambda x: isinstance(asked(lambda: x.grad_fn), torch.autograd.graph.Node))
    if a is None:
        return None
    node, calls = author.of(a).grad_fn, len(author.run.calls)
    names = [n for n in dir(node) if n.startswith("_saved_") and n not in UNSHOWN and isinstance(asked(partial(getattr, node, n)), torch.Tensor)]
    del author.run.calls[calls:]  # asking has unpacked them
    return f"calls.append(contents({a}.grad_fn.{author.pick(names)}))" if names else None


def saved_hooks(author: Author) -> str | None:
    """Computing under hooks for saved tensors."""
    # What PyTorch packs of a view that was made without a graph and has one since depends on how it was made.
    a = author.floating(lambda x: x._base is None)
    b = a and author.some(lambda x: x.shape == author.of(a).shape and x._base is None)
    made = author.pick([f"{a} * {b}", f"{a}.exp()", f"{a}.tanh() * {b}", f"({a} * {b}).sum()"])
    return a and f"with saved({author.count}): {author.fresh()} = {made}"
