"""`torch.autograd.function`: operations whose backward is the user's."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.autograd.function_forward import push_function
from torchgrad_jax.autograd.function_outputs import Marks, settle_outputs
from torchgrad_jax.autograd.once_differentiable import once_differentiable
from torchgrad_jax.core.anomaly import note_node
from torchgrad_jax.core.dispatch import refuse_inference, turn
from torchgrad_jax.core.duals import SavedDual, tangents_of, without_duals
from torchgrad_jax.core.fields import FunctionFields, TensorFields
from torchgrad_jax.core.history import CopySlices
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.messages import FREED_MESSAGE
from torchgrad_jax.core.node import Calculus, Edge, Hooks, Node, Saved, shown
from torchgrad_jax.core.saved import save
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.memory.filled import full_value
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Aval

__all__ = ["FunctionCtx", "BackwardCFunction", "FunctionMeta", "Function", "once_differentiable", "InplaceFunction", "NestedIOFunction"]


NOT_SEPARATE = (
    "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must override the setup_context staticmethod. "
    "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"
)


READ_ONCE = (
    "saved_tensors can only be accessed once when clear_saved_tensors_on_access=True is set on the autograd.Function. Either access saved_tensors "
    "only once, or set clear_saved_tensors_on_access=False."
)


class FunctionCtx:
    """What `forward` and `backward` of a Function share: saved tensors and the user's own attributes."""

    needs_input_grad: tuple[bool, ...] = ()
    to_save: tuple[Any, ...] | None = None
    saved_for_forward: tuple[Any, ...] | None = None
    dirty_tensors: tuple[Any, ...] | None = None
    non_differentiable: tuple[Any, ...] | None = None
    materialize_grads = True
    # Whether outputs that carry no gradient get zeros in backward too.
    _materialize_non_diff_grads = True

    def save_for_backward(self, *tensors: Any) -> None:
        """Save tensors (or None) for backward, where `saved_tensors` gives them. To be called once, in forward."""
        self.to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Save tensors for `jvp`."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise AssertionError("save_for_forward expects all arguments to be tensors; you should save non-tensors as attributes on ctx.")
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Any) -> None:
        """Say which inputs forward has written to."""
        self.dirty_tensors = args

    def mark_shared_storage(self, *pairs: Any) -> None:
        """Deprecated: shared memory is known without it."""
        warnings.warn(
            "`mark_shared_storage` is deprecated. Tensors with shared storages are automatically tracked. Note that calls to `set_()` are not "
            "tracked",
            FutureWarning,
            stacklevel=2,
        )

    def mark_non_differentiable(self, *args: Any) -> None:
        """Say which outputs carry no gradient."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (the default) or None for outputs without a gradient."""
        self.materialize_grads = value


# What the engine reads of a node beside `next`, `seq` and `hooks`: the user may set attributes of these names.
_ENGINE_NAMES = frozenset(name for name in vars(Node) if name[0] != "_") - {"next", "seq", "hooks", "next_functions", "metadata"}


class _Call:
    """One call of a Function: its tensor inputs and its outputs, None for an output that is no tensor.

    needs: which of the tensor inputs need a gradient; `edges` are those of the ones that do. carries: which outputs carry a gradient.
    others: see `Node.for_others`. users: the user's attributes that have names which the engine reads, while the user's code is not running.
    """

    __slots__ = ("is_tensor", "needs", "inputs", "outputs", "carries", "edges", "seq", "others", "users")

    def __init__(self, is_tensor: tuple[bool, ...], needs: tuple[bool, ...], inputs: tuple[Aval, ...], edges: tuple[Edge, ...], seq: int) -> None:
        self.is_tensor, self.needs, self.inputs, self.edges, self.seq = is_tensor, needs, inputs, edges, seq
        self.outputs: tuple[Aval | None, ...] = ()
        self.carries: tuple[bool, ...] = ()
        self.others: dict[int, Any] = {}
        self.users: dict[str, Any] = {}


class _Computed:
    """A property that an instance's own attribute of the same name hides."""

    def __init__(self, compute: Any) -> None:
        self.compute = compute

    def __get__(self, node: Any, owner: Any) -> Any:
        return self if node is None else self.compute(node)


class BackwardCFunction(FunctionCtx, Node, FunctionFields):  # type: ignore[misc] # beside its dict and its references Node adds no fields
    """The node of a Function call, and its `ctx`."""

    __slots__ = ()
    runs_without_gradient = True
    _recorded_saved: tuple[Saved, ...] | None
    _forward_cls: type[Function]
    _recorded_call: _Call
    output_avals: Any = _Computed(lambda self: self._recorded_call.outputs)
    edge_places: Any = _Computed(lambda self: tuple([i for i, needs in enumerate(self._recorded_call.needs) if needs]))
    __repr__ = object.__repr__

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """See Node."""
        edges = iter(self._recorded_call.edges)
        return tuple([shown(next(edges)) if needs else (None, 0) for needs in self._recorded_call.needs])

    def _sequence_nr(self) -> int:
        return self._recorded_call.seq

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` was given. RuntimeError after the graph was freed or a tensor was written to."""
        if self.saved_for_forward is not None:  # while the Function is applied: jvp reads it so
            return self.saved_for_forward
        if self._recorded_saved is None:
            raise RuntimeError(READ_ONCE if self._forward_cls.clear_saved_tensors_on_access else FREED_MESSAGE)
        found = tuple([s.tensor_for(self) for s in self._recorded_saved])
        if self._forward_cls.clear_saved_tensors_on_access:
            self.release()
        return found

    def maybe_clear_saved_tensors(self) -> None:
        """Let go of what was saved, unless the pass that runs keeps the graph."""
        task = per_thread.recorder.flags.task
        if task is None or not task.retain_graph:
            self.release()

    @property
    def _raw_saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` was given, as hooks can be registered on it. RuntimeError after the graph was freed."""
        if self._recorded_saved is None:
            raise RuntimeError(FREED_MESSAGE)
        return tuple([s.inner if isinstance(s, SavedDual) else s for s in self._recorded_saved])

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """Deprecated name of `saved_tensors`."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    def set_materialize_grads(self, value: bool) -> None:
        """See FunctionCtx."""
        if not isinstance(value, bool):
            raise TypeError("set_materialize_grads received an invalid combination of arguments - got (), but expected (bool)")
        self.materialize_grads = value

    def apply(self, *grads: Any) -> Any:
        """What the user's backward returns for these gradients, as it is."""
        function = self._forward_cls
        backward, vjp = function.backward, function.vjp
        if vjp is not Function.vjp:
            if backward is not Function.backward:
                raise RuntimeError(
                    "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one of them."
                )
            backward = vjp
        return backward(self, list(grads)) if function.boxed_grads_call else backward(self, *grads)

    def apply_jvp(self, *tangents: Any) -> Any:
        """What the user's jvp returns for these tangents."""
        return self._forward_cls.jvp(self, *tangents)

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        return _run(self, calculus, grads)

    def for_others(self) -> dict[int, Any]:
        """See Node."""
        found, self._recorded_call.others = self._recorded_call.others, {}
        return found

    def release(self) -> None:
        """See Node."""
        saved, self._recorded_saved = self._recorded_saved, None
        for s in saved or ():
            s.release()


_NEEDED = (True,)


def _run(node: BackwardCFunction, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
    """See `BackwardCFunction.run`."""
    ctx: Any = node
    call, hooks = ctx._recorded_call, ctx.hooks
    lifted = _lift(node, calculus, grads)
    if call.users:
        for name, value in call.users.items():
            setattr(node, name, value)
    try:
        found = BackwardCFunction.apply(node, *lifted)
    finally:
        _put_aside_users(node, hooks)
    given = found if isinstance(found, tuple) else (found,)
    expected = len(call.is_tensor)
    if expected == 1 and len(given) == 1 and type(given[0]) is Tensor and call.needs == _NEEDED:
        return (_fitting(node, calculus, given[0], 0),)
    if len(given) > expected and all(g is None for g in given[expected:]):
        given = given[:expected]
    if len(given) != expected:
        raise RuntimeError(
            f"function {type(node).__name__} returned an incorrect number of gradients (expected {expected}, got {len(given)})"
        )  # fmt: skip
    for i, (g, is_tensor) in enumerate(zip(given, call.is_tensor, strict=True)):
        if g is not None and not is_tensor:
            raise RuntimeError(
                f"function {type(node).__name__} returned a gradient different than None at position {i + 1}, but the corresponding forward "
                "input was not a Variable"
            )
    tensors = [g for g, is_tensor in zip(given, call.is_tensor, strict=True) if is_tensor]
    for g in tensors:
        if g is not None and not isinstance(g, Tensor):
            raise RuntimeError(f"expected Variable or None (got {type(g).__name__})")
    outs = []
    hooked = hooks is not None and len(hooks.post) > 0
    for i, (g, needs) in enumerate(zip(tensors, call.needs, strict=True)):
        if needs:
            outs.append(None if g is None else _fitting(node, calculus, g, i))
        elif hooked and g is not None:
            call.others[i] = g if calculus.tensors else g._read()
    return tuple(outs)


def _put_aside_users(node: BackwardCFunction, hooks: Hooks | None) -> None:
    """After the user's code: its attributes that have names of the engine's make way for those."""
    ctx: Any = node
    call, own = ctx._recorded_call, node.__dict__
    if own and not _ENGINE_NAMES.isdisjoint(own):
        call.users.update({name: own.pop(name) for name in _ENGINE_NAMES.intersection(own)})
    if ctx.next is not call.edges:
        call.users["next"], ctx.next = ctx.next, call.edges
    if ctx.seq is not call.seq:
        call.users["seq"], ctx.seq = ctx.seq, call.seq
    if not (ctx.hooks is None or isinstance(ctx.hooks, Hooks)):
        call.users["hooks"], ctx.hooks = ctx.hooks, hooks


def _lift(node: BackwardCFunction, calculus: Calculus, grads: list[Any]) -> list[Any]:
    """The gradients as the user's backward gets them, one for each output."""
    ctx: Any = node
    call = ctx._recorded_call
    if len(grads) == 1 and len(call.outputs) == 1 and grads[0] is not None:
        return grads if calculus.tensors else [wrap(calculus.recorder.alias(grads[0]))]
    grads = grads + [None] * (len(call.outputs) - len(grads))
    lifted = []
    for g, aval, carries in zip(grads, call.outputs, call.carries, strict=True):
        if g is None and aval is not None and node.materialize_grads and (carries or node._materialize_non_diff_grads):
            lifted.append(wrap(full_value(aval.shape, 0, aval.dtype, aval.device)))
        else:
            lifted.append(g if g is None or calculus.tensors else wrap(calculus.recorder.alias(g)))
    return lifted


def _fitting(node: BackwardCFunction, calculus: Calculus, g: Tensor, i: int) -> Any:
    """What the user's backward gave for the `i`-th tensor input, as the pass computes on it."""
    aval = node._recorded_call.inputs[i]
    if g._aval is not aval:
        g = _fit_gradient(node, g, aval, i)
    return g if calculus.tensors else g._read()


COMPLEX_MISMATCH = (
    "Expected isFloatingType(grad.scalar_type()) || (input_is_complex == grad_is_complex) to be true, but got false.  (Could this error message be "
    "improved?  If so, please report an enhancement request to PyTorch.)"
)


def _fit_gradient(node: Node, g: Tensor, aval: Aval, i: int) -> Tensor:
    """The gradient in the input's shape and dtype. RuntimeError with PyTorch's text where it does not fit."""
    shape = g._aval.shape
    if shape != aval.shape:
        extra = len(shape) - len(aval.shape)
        fits = extra >= 0 and all(m in (1, n) for n, m in zip(shape[extra:], aval.shape, strict=True))
        if not fits:
            raise RuntimeError(
                f"Function {type(node).__name__} returned an invalid gradient at index {i} - got {list(shape)} but expected shape compatible with "
                f"{list(aval.shape)}"
            )
        g = g.sum_to_size(aval.shape)
    if g._aval.dtype != aval.dtype:
        if not g.is_floating_point() and g.is_complex() != (aval.dtype.kind == "c"):
            raise RuntimeError(COMPLEX_MISMATCH)
        g = g.to(dtypes.of(aval.dtype))
    return g


class FunctionMeta(type):
    """Makes the node class of each Function, named as its `grad_fn` is."""

    _backward_cls: type[BackwardCFunction]

    def __init__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> None:
        super().__init__(name, bases, attributes)
        cls._backward_cls = type(name + "Backward", (BackwardCFunction,), {"_forward_cls": cls, "__module__": "torch.autograd.function"})


class Function(FunctionCtx, metaclass=FunctionMeta):
    """Base of the user's own differentiable operations: static methods `forward(ctx, ...)` and `backward(ctx, *grads)`, called by `apply`."""

    # Whether `vmap` makes its rule from forward and backward.
    generate_vmap_rule = False
    # Whether backward gets all gradients as one list, from which it may take them; whether what was saved is let go as soon as it is read.
    boxed_grads_call = False
    clear_saved_tensors_on_access = False
    # A call's node, which is its ctx, has these; PyTorch's class shows them, too.
    name, register_hook, register_prehook = BackwardCFunction.name, BackwardCFunction.register_hook, BackwardCFunction.register_prehook
    metadata, next_functions, requires_grad = (inspect.getattr_static(BackwardCFunction, n) for n in ("metadata", "next_functions", "requires_grad"))
    saved_tensors, saved_variables = BackwardCFunction.saved_tensors, BackwardCFunction.saved_variables
    maybe_clear_saved_tensors = BackwardCFunction.maybe_clear_saved_tensors

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should invoke them on the class itself. "
            "Instantiating an autograd function will raise an error in a future version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd function with static forward "
            "method. (Example: https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The operation, as ordinary code that is not recorded in the graph."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Where `forward` takes no ctx: save here what backward needs."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """One gradient (or None) for each argument of forward, given those of its outputs."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with backward mode AD."
        )

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """Another name of `backward`."""
        return Function.backward(ctx, *grad_outputs)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """One tangent for each output of forward, given those of its arguments."""
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """The operation on batches: its outputs, and where their batch dimensions are."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run the operation and record it. Arguments given by name are put at their places in forward's signature."""
        separate = cls.setup_context is not Function.setup_context
        if separate:
            args = _with_defaults(cls.forward, args, kwargs)
        elif kwargs:
            args = _in_order(cls.forward, args, kwargs)
        rec = per_thread.recorder
        if rec.rare:
            if rec.level is not None and rec.level.transforms:
                if not separate:
                    raise RuntimeError(NOT_SEPARATE)
                return rec.level.function(cls, args)
            if rec.flags.watch is not None:
                return rec.flags.watch.function(cls, args, lambda: record_call(cls, args, cls.forward, separate))
        return record_call(cls, args, cls.forward, separate)


def record_call(cls: type[Function], args: tuple[Any, ...], forward: Callable[..., Any], separate: bool) -> Any:
    """Run `forward`, and record it. separate: whether it takes no ctx, which `setup_context` then gets."""
    rec: Any = per_thread.recorder
    recording, level = rec.grad_enabled, rec.level
    is_tensor = tuple([isinstance(a, TensorFields) for a in args])
    tensors: Any = args if False not in is_tensor else tuple([a for a in args if isinstance(a, TensorFields)])
    if level is not None:
        level.departs()
    needs_input_grad, needs, avals, edges, differentiable = _described(args, tensors, level, recording)
    tangents = {} if level is None else tangents_of(tensors)
    if differentiable and rec.turned:
        turn(rec)
    made = cls._backward_cls()
    ctx: Any = made
    own = made.__dict__
    own["needs_input_grad"] = needs_input_grad
    ctx.next, ctx.seq, ctx.hooks, ctx._recorded_saved = edges, rec.sequence, None, ()
    rec.sequence += 1
    if differentiable and rec.rare:
        note_node(rec, made)
    call = _Call(is_tensor, needs, avals, edges, ctx.seq)
    ctx._recorded_call = call
    rec.grad_enabled = False
    try:
        if tangents:
            with without_duals(rec):
                found = _called(cls, made, args, forward, separate)
        else:
            found = _called(cls, made, args, forward, separate)
        _put_aside_users(made, None)
        several = isinstance(found, tuple)
        if made.dirty_tensors is None and made.non_differentiable is None and _is_new(found, tensors):
            outs: Any = (found,)
            first: Any = found
            call.outputs, call.carries = (first._value.aval,), (differentiable,)
            if differentiable:
                first._rg, first._node, first._nr = True, made, 0
        else:
            marks = Marks(tensors, made.dirty_tensors, made.non_differentiable)
            outs, call.carries = settle_outputs(made, found if several else (found,), marks, differentiable)
            call.outputs = tuple([t._aval if isinstance(t, Tensor) else None for t in outs])
    finally:
        rec.grad_enabled = recording
    if differentiable and made.to_save:
        _check_saved(made.to_save)
        refuse_inference(made.to_save)
        ctx._recorded_saved = tuple([save(rec, t, made, t is not None and t._node is made, _refers_to(t, made)) for t in made.to_save])
    if tangents:
        made.saved_for_forward = made.saved_for_forward or ()  # jvp sees nothing of what was saved for backward
        push_function(made, args, found if several else (found,), outs, tangents)
    for name in _FOR_FORWARD:
        own.pop(name, None)
    return tuple(outs) if several else outs[0]


# What `forward` says, which is over with it.
_FOR_FORWARD = ("to_save", "saved_for_forward", "dirty_tensors", "non_differentiable")


def _described(args: tuple[Any, ...], tensors: tuple[Any, ...], level: Any, recording: bool) -> tuple[Any, ...]:
    """Which arguments require a gradient, which of the tensors get one, the tensors' avals, where gradients go, and whether any does."""
    needs, avals, edges = [], [], []
    for a in tensors:
        t: Any = a
        if level is not None:
            level.meets(a)
        if t._storage is not None:
            a._read()
        needed = recording and t._rg
        needs.append(needed)
        avals.append(t._value.aval if t._storage is None else a._aval)
        if needed:
            edges.append(a._edge())
    if len(args) == len(tensors) and (recording or True not in [a._rg for a in tensors]):
        wanted = tuple(needs)
    else:
        wanted = tuple([isinstance(a, TensorFields) and a._rg for a in args])
    return wanted, tuple(needs), tuple(avals), tuple(edges), True in needs


def _called(cls: type[Function], ctx: Any, args: tuple[Any, ...], forward: Callable[..., Any], separate: bool) -> Any:
    """What `forward` returns."""
    if not separate:
        return forward(ctx, *args)
    found = forward(*args)
    cls.setup_context(ctx, args, found)
    return found


def _with_defaults(forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments in forward's order, with those that have defaults: a separate `setup_context` sees them too. TypeError where they do not fit."""
    code = getattr(forward, "__code__", None)
    if not kwargs and code is not None and code.co_argcount == len(args) and not (code.co_kwonlyargcount or code.co_flags & inspect.CO_VARARGS):
        return args
    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    for name in bound.kwargs:
        raise TypeError(f"forward() got an unexpected keyword argument '{name}'")
    return bound.args


def _in_order(forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments in the order of a forward that takes ctx first. TypeError with PyTorch's text where one given by name has no place."""
    _, *own = inspect.signature(forward).parameters.values()
    names = [p.name for p in own if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for name in kwargs:
        if name not in names:
            raise TypeError(f"forward() got an unexpected keyword argument '{name}'")
        if names.index(name) < len(args):
            raise TypeError(f"forward() got multiple values for argument '{name}'")
    found = list(args)
    for place, name in enumerate(names[len(args) : len(args) + len(kwargs)], len(args)):
        if name not in kwargs:
            raise TypeError(f"forward() missing required argument: '{name}' (position {place})")
        found.append(kwargs[name])
    return tuple(found)


def _refers_to(t: Tensor | None, node: Node) -> bool:
    """Whether `t` is a result of `node` or a view of one: then the node must not hold it."""
    if t is None:
        return False
    if t._node is node:
        return True
    base = t if t._view is None or t._view.base is None else t._view.base
    return base._node is node or (type(base._node) is CopySlices and base._node.inner is node)


def _check_saved(to_save: tuple[Any, ...]) -> None:
    for i, t in enumerate(to_save):
        if t is not None and not isinstance(t, Tensor):
            raise TypeError(f"save_for_backward can only save variables, but argument {i} is of type {type(t).__name__}")


class InplaceFunction(Function):
    """A Function with an `inplace` flag on its instances. Subclasses have static methods like any other."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class NestedIOFunction(Function):
    """Legacy base of Functions with nested inputs. As in PyTorch 2, nobody fills `_nested_input`, so that `apply` raises AttributeError."""

    _nested_input: tuple[Any, ...]
    _nested_output: tuple[Any, ...]

    def forward(self, *args: Any) -> Any:
        """See Function."""
        given = self._nested_input
        return self.forward_extended(*given)

    def backward(self, *gradients: Any) -> Any:
        """See Function."""
        given = self._nested_output
        return self.backward_extended(*given)

    def forward_extended(self, *input: Any) -> Any:
        """The operation on nested inputs."""
        raise NotImplementedError

    def backward_extended(self, *grad_output: Any) -> Any:
        """The gradients of nested outputs."""
        raise NotImplementedError


def _is_new(out: Any, inputs: Sequence[Any]) -> bool:
    """Whether `out` is a tensor that forward has just computed: of a floating dtype, on memory of its own, without history."""
    if not (type(out) is Tensor and out._storage is None and out._node is None and not out._rg and out._value.aval.dtype.kind in "fc"):
        return False
    return not [t for t in inputs if t is out]  # by `in` they would be compared
