"""The nodes of declared operators: how they run, and what they have saved."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.core.fields import OpNodeFields
from torchgrad_jax.core.level import in_transform
from torchgrad_jax.core.made import created, result, wrap
from torchgrad_jax.core.messages import DETACHED_MESSAGE, FREED_MESSAGE, MODIFIED_INDIRECTLY, modified_message, untracked
from torchgrad_jax.core.node import AccumulateGrad, Calculus, Edge, Node, Saved, WithSaved, shown
from torchgrad_jax.core.refusal import DelayedError
from torchgrad_jax.core.saved import SavedTensor, blank, is_of_view, name_since_write, readable, save, with_history, written_itself
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.whereabouts import holder_of, shown_again
from torchgrad_jax.declaration.derivative import Plan
from torchgrad_jax.memory.filled import full_value
from torchgrad_jax.memory.storage import Detached, counted_on, cut_off, has_moved, outdated, present
from torchgrad_jax.operators import registry
from torchgrad_jax.operators.pointwise import cast_to
from torchgrad_jax.runtime.recorder import Recorder, call_values, per_thread
from torchgrad_jax.runtime.value import Aval, Value, constant


def _converted(calculus: Calculus, grad: Any, aval: Aval) -> Any:
    """A gradient of what was written in place into a tensor of another dtype than the operation's own."""
    return calculus.call(cast_to(aval.dtype), (grad,))


class OpNode(Node, OpNodeFields):  # type: ignore[misc] # beside its dict and its references Node adds no fields
    """The node of a declared operator. Its class is made for each name, so that ``type(grad_fn).__name__`` is PyTorch's.

    saved: Values and numbers, or where somebody asked for it `Saved` objects and numbers; None once freed."""

    __slots__ = ()
    plan: Plan
    saved: tuple[Any, ...] | None
    skips_unneeded = True

    def used(self, edges: list[bool]) -> list[bool]:
        """See Node."""
        return self.plan.used(edges)

    def name(self) -> str:
        """See Node."""
        return self.plan.name

    @property
    def is_view(self) -> bool:
        """See Node."""
        return self.plan.name in VIEW_NODES

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """See Node."""
        found: list[tuple[Node | None, int]] = [(None, 0)] * self.plan.arity
        for i, e in zip(self.plan.places, self.next, strict=True):
            found[i] = shown(e)
        return tuple(found)

    @property
    def edge_places(self) -> Sequence[int]:
        """See Node."""
        return self.plan.places

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """See Node."""
        return self.plan.output_avals

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        return run_operator(self, calculus, grads)

    def _run_apart(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """The gradients one by one, so that each depends in the new graph on nothing but what it is made of; only those that are needed."""
        plan, needed = self.plan, calculus.needed
        saved = calculus.unpack(self)
        grads = grads + [None] * (len(plan.avals) - len(grads))
        defined = None if plan.single else tuple([g is not None for g in grads])
        given = [g for g in grads if g is not None]
        used = [needed is None or target in needed for target, _ in self.next]
        if plan.lists:
            used = plan.used(used)
        outs = []
        for (one, places), there in zip(plan.known_apart or plan.apart(), used, strict=True):
            if not there:
                outs.append(None)
            elif one.passes:
                outs.append(grads[0])
            elif one.zeros:
                outs.append(zeros_of(one))
            else:
                kept = saved if one is plan else [saved[i] for i in places]
                found = calculus.call(one.vjp or one.vjp_of(_ALONE) if defined is None else one.vjp_of(defined), (*given, *kept))
                outs.append(found if plan.once is None else _refusing(one, found, kept))
        return tuple(outs)

    def place(self, values: Sequence[Any]) -> dict[Node, Any]:
        """See Node."""
        return {self: tuple(values)}

    def content(self) -> Any:
        """See Node."""
        return self.saved

    def put_back(self, content: Any) -> None:
        """See Node."""
        if type(content) is not WithSaved:
            self.saved = content

    def release(self) -> None:
        """See Node."""
        if self.plan.frees:
            saved, self.saved = self.saved, None
            if type(saved) is WithSaved:
                for v in saved:
                    if isinstance(v, Saved):
                        v.release()

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_saved_", "_raw_saved_")):
            raw = name.startswith("_raw")
            found = raw_saved(self, name[11:]) if raw else saved_attribute(self, name[7:])
            if found is not NotImplemented:
                return found
        raise AttributeError(f"'{self.name()}' object has no attribute '{name}'")

    def __dir__(self) -> list[str]:
        plan = self.plan
        tensors = [n for n in plan.attributes if plan.attributes[n]]
        return [*super().__dir__(), *(f"_saved_{n}" for n in plan.attributes), *(f"_raw_saved_{n}" for n in tensors)]


def run_operator(node: Any, calculus: Any, grads: list[Any]) -> tuple[Any, ...]:
    """`Node.run` of an OpNode."""
    plan: Any = node.plan
    edges: tuple[Edge, ...] = node.next
    saved = node.saved if calculus.placed is None else calculus.placed[node]
    if saved is None:
        # Of what is for no gradient that leads anywhere PyTorch saves nothing, and so misses nothing.
        if all([target.hidden for target, _ in edges]) and not plan.reads_tensors([False] * len(edges)):
            return (None,) * len(edges)
        raise RuntimeError(FREED_MESSAGE)
    grad = grads[0]
    if plan.single and grad is not None:
        given = grad._aval if calculus.tensors else grad.aval
        if given is not plan.avals[0] and given.dtype != plan.avals[0].dtype:
            grad = _converted(calculus, grad, plan.avals[0])
            grads = [grad]
    if plan.passes:
        if saved:
            saved_values(node)  # PyTorch looks at what it has saved, whether or not a gradient is made of it
        return (None if plan.undefined else grad,) * len(edges)
    if calculus.tensors:
        return node._run_apart(calculus, grads)
    if type(saved) is not tuple:
        saved = saved_values(node)
    else:
        for v in saved:
            if type(v) is Value:
                value: Value = v
                if value.counter is not None and value.counter.version != value.version:
                    saved = saved_values(node)
                    break
    if plan.single:
        outs = calculus.call(plan.vjp or plan.vjp_of(_ALONE), (grad, *saved))
    else:
        if len(grads) < len(plan.avals):
            grads = grads + [None] * (len(plan.avals) - len(grads))
        defined = tuple([g is not None for g in grads])
        outs = calculus.call(plan.vjp_of(defined), (*[g for g in grads if g is not None], *saved))
    return outs if type(outs) is tuple else (outs,)


def zeros_of(plan: Plan) -> Any:
    """A gradient of zeros that no graph leads to, for the only input of `plan`."""
    aval: Any = plan.input_avals[0]
    return created(full_value(aval.shape, 0, aval.dtype, aval.device))


def _refusing(plan: Plan, grad: Any, saved: Sequence[Any]) -> Any:
    """The only gradient of `plan`, whose own derivative is refused if what was saved makes it so."""
    if not (grad.requires_grad and all([s._content().readable for s in saved])):  # inside vmap values do not tell: it has one
        return grad
    text = plan.only_once(plan.inputs[0], [s._concrete() for s in saved])
    return grad if text is None else DelayedError.outputs([grad], text)[0]


def saved_values(node: OpNode) -> tuple[Any, ...]:
    """What `node` saved, as Values and numbers. RuntimeError where a tensor was written to, or detached in place."""
    assert node.saved is not None
    found: list[Any] = list(node.saved)
    for i in node.plan.unpacking:
        kept = found[i]
        if isinstance(kept, Saved):
            found[i] = kept.tensor_for(node)
        elif type(kept) is Value:
            if is_detached(node, i, kept):
                raise RuntimeError(DETACHED_MESSAGE)
            found[i] = unchanged(node, i)
    # What one unpack hook writes to may be what another returned.
    return tuple(t._read() if isinstance(kept, Saved) else t for kept, t in zip(node.saved, found, strict=True))


def is_detached(node: OpNode, i: int, kept: Value) -> bool:
    """Whether the operand whose value `node` saved at place `i` was cut off from its graph in place, and PyTorch has saved it too."""
    edge, plan = edge_of_saved(node, i), node.plan
    if edge is None or not edge[0].next or plan.keeps_name(i) or is_of_view(kept, edge) or not cut_off(kept, edge):
        return False
    return plan.reads(i, [not target.hidden for target, _ in node.next])


def unchanged(node: OpNode, i: int) -> Any:
    """What `node` saved at place `i`. RuntimeError where it was written to since."""
    assert node.saved is not None
    value = node.saved[i]
    if type(value) is Value and outdated(value):
        edge = edge_of_saved(node, i)
        value = present(value, edge)
        if has_moved(value):
            value = counted_on(value, viewed_again(value, edge))
        # What no gradient needs that goes anywhere, PyTorch has not saved.
        if outdated(value) and node.plan.reads(i, [not target.hidden for target, _ in node.next]):
            raise_modified(node, i, value)
    return value


def viewed_again(value: Value, edge: Edge | None) -> Value | None:
    """What a saved view shows now, after a write that its counter did not count: its operations, which nodes tell, on the tensor that they lead to.
    None where they lead to none whose memory it is, as to a tensor that is no leaf."""
    node, operations = None if edge is None else edge[0], []
    while isinstance(node, OpNode) and node.is_view and node.saved is not None and len(node.next) == 1:
        operations.append((node.plan._sig.bop, node.saved))
        node = node.next[0][0]
    base = node.variable if isinstance(node, AccumulateGrad) else None
    if not operations or base is None or base._view is not None or base._storage is not value.counter.moved():
        return None
    found = base._read()
    for operation, numbers in reversed(operations):
        found = call_values(operation, (found, *numbers))
    return found if found.aval is value.aval else None


def edge_of_saved(node: OpNode, i: int) -> Edge | None:
    """Where the gradient of what `node` saved at place `i` goes; None where nowhere, and for the node's own result."""
    operand = node.plan.saves[i]
    return node.next[node.plan.inputs.index(operand)] if operand in node.plan.inputs else None


def raise_modified(node: OpNode, i: int, value: Value) -> None:
    """PyTorch's error for a saved value whose tensor was written to since."""
    operand = node.plan.saves[i]
    origin = edge_of_saved(node, i) if operand >= 0 else (node, -1 - operand) if node.plan.outputs[-1 - operand] else None
    name, nr = ("", 0) if origin is None else origin[0].told(origin[1])
    # PyTorch names the node that the tensor has now; a leaf was written to by way of a twin.
    if not node.plan.keeps_name(i) and (origin is None or origin[0].next) and written_itself(value, origin is not None):
        name, nr = name_since_write(value), 0
        made_in = getattr(value, "made_in", None)
        if origin is None and made_in is not None:
            raise RuntimeError(untracked(made_in, None, 0, MODIFIED_INDIRECTLY))
    if operand >= 0 and origin is not None and (origin[0].hidden or origin[0].is_view):
        made_in = _view_made_in(origin[0])
        if made_in != "default":  # to name the tensor, PyTorch asks for its present node
            raise RuntimeError(untracked(made_in, None if origin[0].hidden else origin[0], origin[1], MODIFIED_INDIRECTLY))
        name, nr, origin = "AsStridedBackward0", 0, None if origin[0].hidden else origin
    shape = value.aval.shape
    if operand >= 0 and origin is not None and not origin[0].next:
        avals: Any = origin[0].output_avals
        shape = avals[0].shape
    relaid: Any = getattr(value.counter, "relaid", ())
    had: list[tuple[int, ...]] = [s for version, s in relaid if version <= value.version]
    if had and shape == had[-1] and (operand >= 0 or origin is None):  # PyTorch has kept the tensor itself
        shape = relaid[-1][1]
    raise RuntimeError(modified_message(value, name, nr, shape))


def _view_made_in(node: Node) -> str:
    """How a view was made, as `View` says, told by its node and those of the views that it is a view of."""
    while node.is_view:
        if node.name() in SEVERAL_VIEWS:  # be it that there is but one
            return "several"
        node = node.next[0][0]
    return node.made_in


_ALONE = (True,)  # the only result has a gradient
SEVERAL_VIEWS = frozenset(operator.node for operator in registry.values() if operator.gives_views)
VIEW_NODES = SEVERAL_VIEWS | {operator.node for operator in registry.values() if operator.view is not None and operator.by_strides}
_classes: dict[str, type[OpNode]] = {}


def node_class(name: str) -> type[OpNode]:
    """The class of operator nodes of this name."""
    found = _classes.get(name)
    if found is None:
        short = name.rpartition("::")[2]
        found = _classes[name] = type(short, (OpNode,), {"__slots__": (), "__module__": "torch.autograd.graph", "__qualname__": short})
    return found


# ---------------------------------------------------------------------- saved tensors given to hooks


def pack_operands(rec: Recorder, node: OpNode, operands: Sequence[Any], copied: Callable[[], Tensor] | None = None) -> None:
    """Give what `node` saved of its operands to the hooks that are active, if any. copied: makes a copy of
    the first, which is about to be written to."""
    if not rec.flags.packing:
        return
    saves = node.plan.saves
    saved: list[Any] = list(node.saved or ())
    for i in node.plan.unpacking:
        t = operands[saves[i]] if saves[i] >= 0 else None
        if isinstance(t, Tensor) and not node.plan.is_part(i):
            if copied is not None and saves[i] == 0:
                t = copied()
            saved[i] = save(rec, t, node, False, False)
    node.saved = WithSaved(saved)


def pack_results(rec: Recorder, node: OpNode, results: Any) -> None:
    """Give what `node` saved of its results to the hooks that are active, if any."""
    if not rec.flags.packing:
        return
    outs = results if isinstance(results, tuple) else (results,)
    saves = node.plan.saves
    saved: list[Any] = list(node.saved or ())
    for i in node.plan.unpacking:
        if saves[i] < 0:
            t = outs[-1 - saves[i]]
            saved[i] = save(rec, t, node, t._rg, True)
    node.saved = WithSaved(saved)


# ---------------------------------------------------------------------- the saved tensors of an operator's node


def saved_attribute(node: OpNode, name: str) -> Any:
    """``grad_fn._saved_<name>``: a tensor, a number, None where it was not needed. NotImplemented where there is no such attribute."""
    plan = node.plan
    if name not in plan.attributes:
        return NotImplemented
    if not plan.attributes[name]:
        return plan.static(name) if name not in plan.saved_names else _saved_number(node, plan.saved_names.index(name))
    if node.saved is None:
        raise RuntimeError(FREED_MESSAGE)
    places = [i for i, n in enumerate(plan.saved_names) if n == name]
    if plan.is_list(name):
        return tuple(None if i is None else unpack_saved(node, i, True) for i in plan.list_places(name))
    if not places:
        return None
    if name == "other" and type(node.saved[places[0]]) in (int, float, complex, bool):
        return wrap(_of_number(node.saved[places[0]]))
    return unpack_saved(node, places[0], True)


def _saved_number(node: OpNode, i: int) -> Any:
    if node.saved is None:
        raise RuntimeError(FREED_MESSAGE)
    return node.saved[i]


def raw_saved(node: OpNode, name: str) -> Any:
    """``grad_fn._raw_saved_<name>``: a SavedTensor, or a tuple of them. NotImplemented where there is no such attribute."""
    plan = node.plan
    if not plan.attributes.get(name):
        return NotImplemented
    places = [i for i, n in enumerate(plan.saved_names) if n == name]
    if not places or node.saved is None:
        made = blank()
        made.freed = node.saved is None
        return made
    saved = list(node.saved)
    for i, kept in enumerate(saved):
        if type(kept) is Value:
            saved[i] = made = _from_value(node, i, kept)
            unknown = made.kept is None and not (made.own or in_transform())
            if unknown and (t := holder_of(node, kept, made.source, made.nr)) is not None:
                made.kept = weakref.ref(t)
        elif i in places and not isinstance(kept, Saved):
            if name != "other":
                return NotImplemented
            saved[i] = blank()
            saved[i].value = _of_number(kept)
    node.saved = WithSaved(saved)
    return tuple(blank() if i is None else saved[i] for i in plan.list_places(name)) if plan.is_list(name) else saved[places[0]]


def keep_as_saved(node: OpNode, i: int) -> Saved:
    """What `node` saved at place `i`, a tensor, as a Saved."""
    assert node.saved is not None
    kept = node.saved[i]
    return kept if isinstance(kept, Saved) else _from_value(node, i, kept)


def _of_number(number: Any) -> Value:
    return constant(np.asarray(number))


def _from_value(node: OpNode, i: int, value: Value) -> SavedTensor:
    made = blank()
    made.value = value
    source, made.nr = _origin(node, i)
    made.own = source is node
    if type(source) is AccumulateGrad:
        made.kept = source.variable
    if not made.own:
        made.source = source
    return made


def _origin(node: OpNode, i: int) -> tuple[Node | None, int]:
    """The edge of what `node` saved at place `i`; (None, 0) if it has no gradient."""
    origin = node.plan.origins[i]
    if origin is None:
        return None, 0
    if origin < 0:
        return (node, -1 - origin) if node.plan.outputs[-1 - origin] else (None, 0)
    return node.next[origin]


def unpack_saved(node: OpNode, i: int, itself: bool = False) -> Any:
    """What `node` saved at place `i`, as a Tensor like it (with its history) or the number. itself: as the Tensor that it was, if that is there."""
    assert node.saved is not None
    kept = node.saved[i]
    if isinstance(kept, Saved):
        return kept.tensor_for(node)
    if type(kept) is not Value:
        return kept
    source, nr = _origin(node, i)
    value = unchanged(node, i)
    if source is None and (leaf := _later_leaf(value)) is not None:
        return leaf
    if type(kept.counter) is Detached and source is not node:
        source = None
    if isinstance(source, AccumulateGrad):
        return source.variable
    if itself and not in_transform():
        return shown_again(node, value, source, nr)
    if value.counter is None:  # the first storage that this one belongs to is to be that of the tensor that was saved
        value = per_thread.recorder.alias(value)
    return with_history(wrap(value), source, nr)


def unpack_all(node: OpNode) -> tuple[Any, ...]:
    """What `node` saved, as Tensors and numbers, for a pass that is itself differentiated. RuntimeError where it was freed."""
    if node.saved is None:
        raise RuntimeError(FREED_MESSAGE)
    found: list[Any] = []
    for kept, origin in zip(node.saved, node.plan.origins, strict=True):
        if type(kept) is not Value:
            if isinstance(kept, Saved):
                return _unpack_in_order(node, node.saved)
            found.append(kept)
        elif kept.counter is not None:
            if outdated(kept):  # which of several is told first depends on the order
                return _unpack_in_order(node, node.saved)
            found.append(unpack_saved(node, len(found)))
        elif origin is None:
            leaf = _later_leaf(kept)
            found.append(wrap(kept) if leaf is None else leaf)
        elif origin < 0:
            made = result(kept, node, -1 - origin)
            found.append(made if node.face is None else with_history(made, node, 0))
        else:
            source, nr = node.next[origin]
            found.append(source.variable if type(source) is AccumulateGrad else result(kept, source, nr))
    return _with_constants(node, found) if node.plan.constant else tuple(found)


def _later_leaf(value: Value) -> Tensor | None:
    """The tensor that was saved when it required no gradient, if it is a leaf that does now: PyTorch has saved the tensor itself."""
    t: Tensor | None = leaf() if (leaf := getattr(value, "leaf", None)) is not None else None
    if t is None or not t.requires_grad or t._node is not None:
        return None
    counter = value.counter
    same = t._content() is value or (counter is not None and counter is t._content().counter and counter.version == value.version)
    return t if same else None


def _with_constants(node: OpNode, found: list[Any]) -> tuple[Any, ...]:
    """What was unpacked, without the history of what gradients do not depend on, or by steps alone."""
    for i in node.plan.constant:
        if isinstance(found[i], Tensor):
            found[i] = wrap(readable(found[i]._content()))
    return tuple(found)


def _unpack_in_order(node: OpNode, saved: tuple[Any, ...]) -> tuple[Any, ...]:
    found: list[Any] = list(saved)
    for i in node.plan.unpacking:
        kept = saved[i]
        if type(kept) is Value and is_detached(node, i, kept):
            raise RuntimeError(DETACHED_MESSAGE)
        found[i] = unpack_saved(node, i)
    return _with_constants(node, found)
