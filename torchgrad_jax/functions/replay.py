"""A view done again on another base: `Tensor._view_func`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax.calling.expecting import not_a_tensor
from torchgrad_jax.calling.public import public
from torchgrad_jax.core import strided
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.viewing import view_by_name
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.operator import Static
from torchgrad_jax.functions import views
from torchgrad_jax.memory.storage import Asked, Link, links_between
from torchgrad_jax.runtime.recorder import LEAST_INT, MOST_INT

Visitor = Callable[[int], int] | None

# The view operators' arguments that a visitor sees. A slice's length is seen as its end.
_VISITED = {"select": ("index",), "slice": ("start", "length", "step"), "view": ("size",), "_reshape_alias": ("size",), "expand": ("size",)}


@public("torch.Tensor")
def _view_func(self: Tensor, new_base: Tensor, symint_visitor_fn: Visitor = None, tensor_visitor_fn: Any = None) -> Tensor | None:
    """See `_view_func_unsafe`. None where `new_base` is not laid out as the view's base is, too."""
    base = _base("_view_func", self, new_base)
    if base is None or new_base._aval.shape != base._aval.shape or new_base._strides() != base._strides():
        return None
    return _view_func_unsafe(self, new_base, symint_visitor_fn, tensor_visitor_fn)


@public("torch.Tensor")
def _view_func_unsafe(self: Tensor, new_base: Tensor, symint_visitor_fn: Visitor = None, tensor_visitor_fn: Any = None) -> Tensor | None:
    """The view that this one is of its base, of `new_base`; None where this tensor is no view.

    Where the original views are tracked they are done again one by one, with what symint_visitor_fn makes of their indices and sizes, and
    tensor_visitor_fn of tensors that they were given; else memory is told by strides, from its beginning.
    """
    for visitor in (symint_visitor_fn, tensor_visitor_fn):
        if visitor is not None and not callable(visitor):
            raise RuntimeError(f"Object of type '{type(visitor).__name__}' is not an instance of 'function'")
    base = _base("_view_func", self, new_base)
    if base is None:
        return None
    view = self._view
    assert view is not None
    links = links_between(base, view, self._storage)
    not_by_strides = not all(link.read.operator.by_strides for link in links)
    if not (view.replay or not_by_strides):
        return strided.as_strided(new_base, self._aval.shape, view.strides, view.offset)
    visitor = symint_visitor_fn if view.replay else None
    given = _Given(visitor, tensor_visitor_fn if view.replay else None)
    steps: list[Link] = []
    while links:
        steps.append(links[-1])
        links = links[: -links[-1].count if isinstance(links[-1], Asked) else -1]
    t = new_base
    for link in reversed(steps):
        t = link.again(t, given) if isinstance(link, Asked) else _again(t, link, visitor)
    return t


class _Given:
    """What the arguments become with which a view was asked for."""

    def __init__(self, visitor: Visitor, tensor_visitor: Callable[[Tensor], Tensor] | None) -> None:
        self._visitor, self._tensor_visitor = visitor, tensor_visitor

    def __call__(self, n: int) -> int:
        """What an index or a size becomes. ValueError, PyTorch's, where a visitor makes one of it that is too large."""
        found = n if self._visitor is None else self._visitor(n)
        if not LEAST_INT <= found <= MOST_INT:
            raise ValueError("Overflow when unpacking long long")
        return found

    def tensor(self, t: Tensor) -> Tensor:
        """What a tensor becomes. TypeError where a visitor makes none of it."""
        found = t if self._tensor_visitor is None else self._tensor_visitor(t)
        if not isinstance(found, Tensor):
            raise not_a_tensor("_view_func", found, "tensor_visitor_fn", 3)
        return found


# Their offset is counted in elements of another size.
_IN_OTHER_UNITS = {"view_as_real": views.parts, "view_as_complex": views.view_as_complex}


def _again(t: Tensor, link: Link, visitor: Visitor) -> Tensor:
    operator, numbers = link.read.operator, iter(link.numbers)
    if operator.name == "in_memory":  # where the new base is already
        return t
    names = [p.name for p in operator.schema.parameters[1:]]
    given = {n: item.value if type(item) is Static else next(numbers) for n, item in zip(names, link.read.layout[1:], strict=True)}
    visited = _VISITED.get(operator.name, ()) if visitor is not None else ()
    if operator.name == "view_dtype":
        return strided.reinterpreted(t, dtypes.of(given["dtype"]))
    if visitor is None or not visited:
        return _IN_OTHER_UNITS[operator.name](t) if operator.name in _IN_OTHER_UNITS else view_by_name(operator.name, t, *given.values())
    if operator.name == "select":
        return views.select(t, given["dim"], visitor(given["index"]))
    if operator.name == "slice":
        start, step = given["start"], given["step"]
        bounds = [visitor(n) for n in (start, start + given["length"] * step, step)]
        return views.slice_dim(t, given["dim"], *bounds)
    size = tuple([visitor(n) for n in given["size"]])
    return views.expand(t, size) if operator.name == "expand" else views.view(t, size)


@public("torch.Tensor")
def _rev_view_func_unsafe(self: Tensor, *arguments: Any) -> None:
    """None where this tensor is no view. RuntimeError for one: nothing leads from a view to its base."""
    if len(arguments) != 1:
        raise TypeError(f"Tensor._rev_view_func_unsafe() takes exactly one argument ({len(arguments)} given)")
    if not isinstance(arguments[0], Tensor):
        raise RuntimeError("_rev_view_func expect a single argument that is a Tensor")
    if self._base is not None:
        raise RuntimeError("No _rev_view_func() found")


def _base(name: str, t: Tensor, new_base: Any) -> Tensor | None:
    if not isinstance(new_base, Tensor):
        raise not_a_tensor(name, new_base, "new_base", 1)
    return t._base
