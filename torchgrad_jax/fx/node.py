"""`torch.fx.Node`: one step of a graph, linked to those before and after it and to those that use its result."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.strides import layout
from torchgrad_jax.fx.immutable_collections import immutable_dict, immutable_list
from torchgrad_jax.fx.naming import publics, qualified_name, shown_target, shown_type
from torchgrad_jax.fx.operator_schemas import normalize_function, normalize_module
from torchgrad_jax.memory.formats import memory_format
from torchgrad_jax.runtime.device import device

__all__ = ["Argument", "Node", "Target", "base_types", "has_side_effect", "map_aggregate", "map_arg"]

# What a node calls, and what with.
Target: TypeAlias = Callable[..., Any] | str
Argument: TypeAlias = Any
base_types: tuple[type, ...] = (str, int, float, bool, complex, dtypes.dtype, Tensor, device, memory_format, layout)
_legal_ops = dict.fromkeys(("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root"))
_get_qualified_name = qualified_name
_type_repr = shown_type

# Functions that are called for what they do, also where nobody uses what they give.
_side_effectful_functions: set[Any] = {operator.setitem}
_ASSERTS = frozenset(("_assert", "_assert_is_none"))
_RANDOM = frozenset((
    "torch.bernoulli", "torch.multinomial", "torch.normal", "torch.poisson", "torch.rand", "torch.rand_like", "torch.randint",
    "torch.randint_like", "torch.randn", "torch.randn_like", "torch.randperm",
))  # fmt: skip


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Let calls of a function stay in graphs though nobody uses what they give; gives the function back."""
    _side_effectful_functions.add(fn)
    return fn


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """The arguments with `fn` of each node in the place of the node."""
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Argument:
    """The arguments with `fn` of everything within lists, tuples, dictionaries and slices, which become immutable."""
    if isinstance(a, tuple):
        mapped = [map_aggregate(x, fn) for x in a]
        return type(a)(*mapped) if hasattr(a, "_fields") else tuple(mapped)
    if isinstance(a, list):
        return immutable_list([map_aggregate(x, fn) for x in a])
    if isinstance(a, dict):
        return immutable_dict({key: map_aggregate(value, fn) for key, value in a.items()})
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


class Node:
    """One step of a `Graph`.

    op: "placeholder" (an input), "get_attr" (a parameter, buffer or other member of the module), "call_function", "call_method", "call_module" or
    "output". target: what is called or fetched. args, kwargs: what with; other nodes stand for their results. users: the nodes that use the result.
    meta: whatever passes note of it.
    """

    def __init__(
        self,
        graph: Any,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: Any = None,
    ) -> None:
        assert op in _legal_ops, f"op '{op}' is not in _legal_ops"
        if op == "call_function" and not callable(target):
            raise ValueError(f"Node [graph = {graph}, name = {name!r}] target {target} has type {_kind(target)} but a Callable is expected")
        if op != "call_function" and not isinstance(target, str):
            raise ValueError(f"Node [graph = {graph}, name = {name!r}] target {target} has type {_kind(target)} but a str is expected")
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._input_nodes: dict[Node, None] = {}
        self._args: Any = ()
        self._kwargs: Any = immutable_dict()
        self._prev = self._next = self
        self._erased = False
        self._repr_fn: Callable[[Node], str] | None = None
        self._update(map_arg(args, lambda x: x), map_arg(kwargs, lambda x: x))

    # ------------------------------------------------------------------ place in the graph

    @property
    def next(self) -> Node:
        """The node after this one; after the last comes the root."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one; before the first comes the root."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move `x` to the place before this node."""
        assert self.graph is x.graph, "Attempting to move a Node into a different Graph"
        if x is self:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x: Node) -> None:
        """Move `x` to the place after this node."""
        self._next.prepend(x)

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def __lt__(self, other: Node) -> bool:
        """Whether it comes before another node of its graph."""
        node = other._prev
        while node.op != "root":
            if node is self:
                return True
            node = node._prev
        return False

    def __gt__(self, other: Node) -> bool:
        return other < self

    # ------------------------------------------------------------------ arguments

    @property
    def args(self) -> tuple[Argument, ...]:
        """The positional arguments. To change them, assign others."""
        return self._args

    @args.setter
    def args(self, a: tuple[Argument, ...]) -> None:
        self._update(map_arg(a, lambda x: x), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """The arguments by name. To change them, assign others."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Argument]) -> None:
        self._update(self._args, map_arg(k, lambda x: x))

    def _update(self, args: Any, kwargs: Any) -> None:
        for used in self._input_nodes:
            used.users.pop(self, None)
        self._args, self._kwargs = args, kwargs
        self._input_nodes = {}
        map_arg((args, kwargs), self._use)

    def _use(self, used: Node) -> Node:
        self._input_nodes[used] = None
        used.users[self] = None
        return used

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes whose results it uses, each once."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replace the positional argument at an index."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Put another positional argument before the one at an index."""
        if not 0 <= idx <= len(self._args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Replace, or add, the argument of a name."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use the result of `new_input` wherever this node used that of `old_input`."""
        self._replace(old_input, new_input)

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] | None = None, *, propagate_meta: bool = False
    ) -> list[Node]:
        """Let all users of this node use `replace_with`, but for those of which `delete_user_cb` is False; gives the list of those that used this
        one. propagate_meta: let `replace_with`, which must have no `meta`, have this node's."""
        if propagate_meta:
            assert not replace_with.meta, (
                "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but replace_with already has .meta keys"
            )
            replace_with.meta.update(self.meta)
        changed = [user for user in self.users if delete_user_cb is None or delete_user_cb(user)]
        for user in changed:
            user._replace(self, replace_with)
        return changed

    def _replace(self, old: Node, new: Node) -> None:
        for hook in getattr(self.graph.owning_module, "_replace_hooks", ()):
            hook(old=old, new=new.name, user=self)
        swap = lambda x: new if x is old else x  # noqa: E731
        self._update(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    # ------------------------------------------------------------------ what it is

    @property
    def stack_trace(self) -> str | None:
        """Where in the program it was recorded, if the tracer noted that."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it must stay though nobody uses its result: inputs, outputs, assertions, writes to items and, with `impure_random`, random
        numbers."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            if self.target in _side_effectful_functions or getattr(self.target, "__name__", "") in _ASSERTS:
                return True
            public = publics.get(self.target)
            return impure_random and public is not None and public.name in _RANDOM
        if self.op == "call_module":
            module = self._owner().get_submodule(self.target)
            return getattr(module, "is_impure", False)
        return False

    def _owner(self) -> Any:
        assert self.graph.owning_module is not None, "self.graph.owning_module not set for purity check"
        return self.graph.owning_module

    def normalized_arguments(self, root: Any, arg_types: Any = None, kwarg_types: Any = None, normalize_to_only_use_kwargs: bool = False) -> Any:
        """Its arguments as the pair (args, kwargs) that the signature of what it calls makes of them; None where there is no signature. root: the
        module that a "call_module" node is of."""
        if callable(self.target):
            return normalize_function(self.target, self.args, self.kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs)
        if self.op == "call_module":
            return normalize_module(root, str(self.target), self.args, self.kwargs, normalize_to_only_use_kwargs)
        return None

    # ------------------------------------------------------------------ text

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn is not None else self.name

    def _pretty_print_target(self, target: Any) -> str:
        return shown_target(target)

    def format_node(
        self, placeholder_names: list[str] | None = None, maybe_return_typename: list[str] | None = None, *, include_tensor_metadata: bool = False
    ) -> str | None:
        """One line that says what it is. placeholder_names, maybe_return_typename: lists, to which what graphs say of their inputs and results is
        added; given the former, there is no line for an input."""
        users = f"[num_users={len(self.users)}]"
        if self.op == "placeholder":
            if placeholder_names is not None:
                placeholder_names.append(f"{self.target}{f' : {shown_type(self.type)}' if self.type else ''}")
                return None
            default = f"(default={self._args[0]})" if self._args else ""
            return f"{self._head(users)} = placeholder[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"{self._head(users)} = get_attr[target={shown_target(self.target)}]"
        if self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {shown_type(self.type)}"
            return f"return {self._args[0]}"
        shown = shown_target(self.target)
        return f"{self._head(users)} = {self.op}[target={shown}](args = {shown_argument(self._args)}, kwargs = {shown_argument(self._kwargs)})"

    def _head(self, users: str) -> str:
        """The beginning of its line."""
        return f"%{self.name} : {'' if self.type is None else shown_type(self.type) + ' '}{users}"

    def _rename(self, candidate: str) -> None:
        """Take the candidate, or a name like it, as its name."""
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create(candidate)
            self.graph._graph_namespace.give(self.name, self)


def _kind(target: Any) -> str:
    kind = type(target)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def shown_argument(a: Argument) -> str:
    """An argument as graphs print it: nodes with their %."""
    if isinstance(a, Node):
        return f"%{a.name}"
    if isinstance(a, (list, tuple)) and not hasattr(a, "_fields"):
        items = ", ".join(map(shown_argument, a))
        if isinstance(a, list):
            return f"[{items}]"
        return f"({items},)" if len(a) == 1 else f"({items})"
    if isinstance(a, Mapping):
        return "{" + ", ".join(f"{key}: {shown_argument(value)}" for key, value in a.items()) + "}"
    return str(a)
