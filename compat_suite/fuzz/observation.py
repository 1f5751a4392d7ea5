"""All that can be seen of a tensor, as plain data that can be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

State = dict[str, dict[str, Any]]  # by the tensor's name and what was asked of it


class Seen(NamedTuple):
    """What a statement did."""

    statement: str
    raised: Any  # class and text of the exception; at the end of a program, the calls of its hooks
    state: State | None  # None: nobody looked


def seen(x: Any, names: dict[int, str], values: bool, counts: bool) -> dict[str, Any]:
    """What can be seen of a tensor. names: of the tensors by id. values: whether to look at the contents. counts: whether versions count."""
    base, node = x._base, asked(lambda: x.grad_fn)
    version = asked(lambda: x._version)
    found = {
        "shape": tuple(x.shape), "dtype": str(x.dtype), "version": version if counts or isinstance(version, str) else "counted",
        "base": None if base is None else names.get(id(base), "unnamed"),
        "requires_grad": x.requires_grad, "is_leaf": asked(lambda: x.is_leaf),
        "grad_fn": node if isinstance(node, str) else chain(node), "output_nr": x.output_nr,
        "offset": x.storage_offset() if x.numel() else None,
        "strides": tuple(s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1) if x.numel() else None,
        "contiguous": x.is_contiguous(),
    }  # fmt: skip
    if values:
        found["value"] = (found["dtype"], x.tolist())
        found["grad"] = None
        if found["is_leaf"] is True or x.retains_grad:
            g = x.grad
            if g is not None:
                found["grad"] = (str(g.dtype), g.tolist())
                found["grad's"] = (tuple(g.shape), g.requires_grad, g.grad_fn is None)
    return found


def chain(node: Any, depth: int = 4) -> Any:
    """The names of a node and of those that it passes gradients on to."""
    if node is None or not depth or "second order" in node.metadata:
        return None if node is None else "..."
    return node.name(), tuple((chain(n, depth - 1), nr) for n, nr in node.next_functions)


def asked(question: Callable[[], Any]) -> Any:
    """A property's value, or the error it raises."""
    try:
        return question()
    except RuntimeError as error:
        return str(error)
