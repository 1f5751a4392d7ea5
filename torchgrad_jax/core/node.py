"""The graph: Nodes and the edges between them. Dispatch builds it; `torchgrad_jax.autograd` runs it.

An edge is ``(node, n)``: the gradient of the n-th output of `node`. A node's gradients are Values while the backward pass
itself is not differentiated, and Tensors under `create_graph`: `run` works on either, by way of `Calculus`.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any

from torchgrad_jax.core.fields import CalculusFields, Extra, LeafFields, NodeFields
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.runtime.pickles import in_pickles
from torchgrad_jax.runtime.recorder import Recorder
from torchgrad_jax.runtime.value import Aval

Edge = tuple["Node", int]


class Calculus(CalculusFields):
    """How a node computes: on Values (`ops` are recorded) or on Tensors (`ops` are dispatched, passing on what Tensors carry).

    records: whether the operations extend the graph.
    placed: while a pass is rehearsed, what each node uses in place of its saved values or links: its numbers are `Placed`.
    needed: the nodes whose gradients the pass uses; None: all.
    """

    __slots__ = ()

    def __init__(self, rec: Recorder, call: Any, add: Any, unpack: Any, tensors: bool, records: bool | None = None) -> None:
        self.recorder: Recorder = rec
        self.call: Callable[[Any, tuple[Any, ...]], Any] = call
        self.add: Callable[[Any, Any], Any] = add
        self.unpack: Callable[[Any], tuple[Any, ...]] = unpack
        self.tensors: bool = tensors
        self.records: bool = tensors if records is None else records
        self.placed: dict[Node, Any] | None = None
        self.needed: Collection[Node] | None = None


class Placed:
    """A Python number that knows which operand of a whole backward pass it is: equal numbers may be one object."""

    __slots__ = ("number", "place")

    def __init__(self, number: Any, place: int) -> None:
        self.number, self.place = number, place


def kind_of(number: Any) -> type:
    """The type of a number, placed or not."""
    return type(number.number) if type(number) is Placed else type(number)


class Saved:
    """A tensor that a node keeps in another form than as its bare Value: what hooks took, what a Function saved, what the user asked to see."""

    __slots__ = ()

    def tensor_for(self, node: Node | None) -> Any:
        """The tensor again, as `node` uses it. RuntimeError where it was written to since."""
        raise NotImplementedError

    def release(self) -> None:
        """Drop the tensor: the node was freed."""
        raise NotImplementedError


class WithSaved(tuple[Any, ...]):
    """What an OpNode keeps, where `Saved` objects are among it: ordinary nodes are told from such by the tuple's type."""

    __slots__ = ()


class Node(NodeFields):
    """One operation in the graph. `next` are its edges, one for each input that needs a gradient."""

    __slots__ = ("__weakref__", "__dict__")
    next: tuple[Edge, ...]
    seq: int
    hooks: Hooks | None
    # A node whose outputs got no gradient passes none on, unless it is the user's own function.
    runs_without_gradient = False
    # Whether it leaves out the gradients that a pass does not need.
    skips_unneeded = False
    # Whether its outputs share memory with its input.
    is_view = False
    # Whether PyTorch has no such node: the edge to it is shown as none. How the view was made at which it ends the graph: see `View`.
    hidden, made_in = False, "default"
    # The node, weakly, that stands for this one in the graph, and which of its outputs this one's is: see `list_node.py`.
    face: tuple[weakref.ref[Node], int] | None = None

    def name(self) -> str:
        """The node's name, such as ``MulBackward0``."""
        return type(self).__name__

    def told(self, nr: int) -> tuple[str, int]:
        """How an error names the tensor whose gradient comes here: its present node's name, "" where it has none, and which of its outputs it is."""
        return (self.name(), nr) if self.next else ("", 0)

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes that this one passes gradients on to, one entry for each tensor input; ``(None, 0)`` where none."""
        return tuple([shown(e) for e in self.next])

    @property
    def edge_places(self) -> Sequence[int]:
        """Where in `next_functions` each of the edges stands."""
        entries = self.next_functions
        return range(len(entries)) if len(entries) == len(self.next) else [i for i, (node, _) in enumerate(entries) if node is not None]

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dict for the user's own notes."""
        return self.__dict__.setdefault("_metadata", {})

    @property
    def requires_grad(self) -> bool:
        """True: there is no node without a gradient to pass on."""
        return True

    def _sequence_nr(self) -> int:
        return self.seq

    def _set_sequence_nr(self, number: int) -> None:
        self.seq = number

    @property
    def _input_metadata(self) -> tuple[InputMetadata, ...]:
        return tuple([InputMetadata(aval) for aval in self.output_avals])

    def __call__(self, *grad_outputs: Any) -> Any:
        """The gradients of the inputs, given those of the outputs. The engine knows how: see `autograd.engine.call_node`, which is put here."""
        raise NotImplementedError

    def used(self, edges: list[bool]) -> list[bool]:
        """Along which edges it gives a gradient where it skips those that are not needed. edges: which are."""
        return edges

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """Shape, dtype and device of each output of the forward operation."""
        raise NotImplementedError

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """The gradients to pass along `next`, given those of the outputs (None: no gradient)."""
        raise NotImplementedError

    def for_others(self) -> dict[int, Any]:
        """What `run` just found for inputs that need no gradient, by their places in `next_functions`: hooks see that too."""
        return {}

    def describe(self) -> tuple[list[Any], Sequence[Any]] | None:
        """What tells this node from others, apart from values, and the values; None where `run` runs the user's Python."""
        return None

    def place(self, values: Sequence[Any]) -> dict[Node, Any]:
        """What `Calculus.placed` holds for this node, given what `describe` gave with its numbers placed."""
        raise NotImplementedError

    def release(self) -> None:
        """Drop what was saved for backward."""

    def content(self) -> Any:
        """What `release` drops, as far as it can be put back."""
        return None

    def put_back(self, content: Any) -> None:
        """Undo `release`."""

    def register_hook(self, fn: Callable[..., Any]) -> Any:
        """Call ``fn(grad_inputs, grad_outputs)`` after this node has run; what it returns replaces grad_inputs."""
        return self.own_hooks().post.add(fn)

    def register_prehook(self, fn: Callable[..., Any]) -> Any:
        """Call ``fn(grad_outputs)`` before this node runs; what it returns replaces grad_outputs."""
        return self.own_hooks().pre.add(fn)

    def own_hooks(self) -> Hooks:
        """The node's hooks, made on first use."""
        if self.hooks is None:
            self.hooks = Hooks()
        return self.hooks

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"


class InputMetadata:
    """What a node knows of one of the gradients that it is given: that of an output of its operation."""

    __slots__ = ("shape", "dtype", "device", "is_nested_tensor", "is_cpp_nested_tensor")

    def __init__(self, aval: Aval) -> None:
        self.shape: list[int] = list(aval.shape)
        self.dtype: dtypes.dtype = dtypes.of(aval.dtype)
        self.device: Any = aval.device
        self.is_nested_tensor = self.is_cpp_nested_tensor = False


def shown(edge: Edge) -> tuple[Node | None, int]:
    """An edge as the user sees it."""
    return (None, 0) if edge[0].hidden else edge


@in_pickles("HookList")
class HookList(dict[int, Callable[..., Any]]):
    """Hooks in the order of their registration."""

    __slots__ = ("__weakref__",)
    _count = 0

    def add(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Append a hook; the handle removes it."""
        handle = RemovableHandle(self)
        self[handle.id] = fn
        return handle


class RemovableHandle:
    """Removes its hook on `remove`, or when a ``with`` block that it opened ends. It has the number `id`, under which whoever made it puts the
    hook into `hooks_dict`; extra_dict: a dictionary, or several, that say more of the hook under the same number."""

    __module__ = "torchgrad_jax.utils.hooks"  # where users find it

    __slots__ = ("id", "hooks_dict_ref", "extra_dict_ref", "__weakref__")
    next_id = 0

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.extra_dict_ref: tuple[Any, ...] = ()
        if extra_dict is not None:
            self.extra_dict_ref = tuple(map(weakref.ref, extra_dict if isinstance(extra_dict, list) else [extra_dict]))

    def remove(self) -> None:
        """Remove the hook; nothing happens if it is gone already."""
        for table in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = table()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self) -> tuple[Any, ...]:
        return self.hooks_dict_ref(), self.id, tuple(table() for table in self.extra_dict_ref)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        hooks, self.id, extra = state
        gone = HookList()  # there is nothing to remove where the hooks were gone
        self.hooks_dict_ref = weakref.ref(gone if hooks is None else hooks)
        self.extra_dict_ref = tuple(weakref.ref(gone if table is None else table) for table in extra)
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def registered(
    hooks: OrderedDict[int, Any], hook: Callable[..., Any], prepend: bool = False, marked: Sequence[OrderedDict[int, bool]] = ()
) -> RemovableHandle:
    """Add a hook at the end of a dictionary, or at its front. marked: those that say how hooks are called; the hook's number is put into each."""
    handle = RemovableHandle(hooks, extra_dict=list(marked) or None)
    hooks[handle.id] = hook
    for table in marked:
        table[handle.id] = True
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


class Hooks:
    """A node's hooks by kind, in the order in which the kinds run.

    tensor: pre-hooks of the outputs (``Tensor.register_hook``), by output number. retain: tensors that keep their gradient,
    by output number. pre, post: hooks of the node itself.
    """

    __slots__ = ("tensor", "retain", "pre", "post")

    def __init__(self) -> None:
        self.tensor: dict[int, HookList] = {}
        self.retain: dict[int, Callable[[Any], None]] = {}
        self.pre, self.post = HookList(), HookList()


class Nowhere(Node):
    """The end of the graph at a view that requires a gradient only because its base does: nobody keeps it. made_in: see `View`."""

    __slots__ = ("made_in",)
    hidden = True

    def __init__(self, made_in: str = "default") -> None:
        self.made_in = made_in
        self.next, self.seq, self.hooks = (), -1, None

    def describe(self) -> tuple[list[Any], list[Any]]:
        """See Node."""
        return [Nowhere], []

    def place(self, values: Sequence[Any]) -> dict[Node, Any]:
        """See Node."""
        return {}

    def run(self, calculus: Any, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        return ()


class AccumulateGrad(Node, LeafFields):  # type: ignore[misc] # beside its dict and its references Node adds no fields
    """The end of the graph at a leaf: adds the gradient to the leaf's `.grad`. The leaf holds it weakly."""

    __slots__ = ()
    variable: Any  # the Tensor

    def name(self) -> str:
        """See Node."""
        return "torch::autograd::AccumulateGrad"

    def told(self, nr: int) -> tuple[str, int]:
        """See Node: what was a leaf may have been cut off and written to since."""
        node = self.variable._node
        return ("", 0) if node is None else (node.name(), self.variable._nr)

    @property
    def made_in(self) -> str:
        """See Node: a leaf may be a view of what requires no gradient."""
        view = self.variable._view
        return "default" if view is None or view.base is None else view.made_in

    def _sequence_nr(self) -> int:
        return (1 << 64) - 1

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """See Node."""
        return (self.variable._aval,)


def end_of_graph(t: Any) -> Edge:
    """Where the gradient of a tensor goes that requires one and has no grad_fn."""
    view = t._view
    if view is not None and view.base is not None and not view.asked:
        return Nowhere(view.made_in), 0
    extra = t._extra
    if extra is None:
        t._extra = extra = Extra()
    found = None if extra.accumulator is None else extra.accumulator()
    if found is None:
        found = AccumulateGrad(t)
        extra.accumulator = weakref.ref(found)
    return found, 0
