"""`torch.autograd.function`: operations whose backward is the user's."""

from __future__ import annotations

import inspect
import re
import warnings
import weakref
from functools import cached_property
from typing import Any

from torchgrad_jax.autograd.function_outputs import Marks, settle_outputs
from torchgrad_jax.autograd.once_differentiable import once_differentiable
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Aval, Value
from torchgrad_jax.tensor.creation import full_value
from torchgrad_jax.tensor.dispatch import turn
from torchgrad_jax.tensor.node import FREED_MESSAGE, Calculus, Edge, Hooks, Node
from torchgrad_jax.tensor.storage import present
from torchgrad_jax.tensor.tensor import Tensor, wrap

__all__ = ["FunctionCtx", "BackwardCFunction", "FunctionMeta", "Function", "once_differentiable", "InplaceFunction", "NestedIOFunction"]


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


# Attributes of a node that the engine reads. A ctx on which the user has set one of them is not the node itself.
_ENGINE_NAMES = frozenset(
    ("run", "release", "describe", "place", "own_hooks", "name", "output_avals", "edge_places", "runs_without_gradient", "is_view")
)  # fmt: skip


class _Call:
    """One call of a Function: its tensor inputs and its outputs, None for an output that is no tensor.

    needs: which of the tensor inputs need a gradient; `edges` are those of the ones that do. carries: which outputs carry a gradient.
    node: the node, where it is not the ctx itself.
    """

    __slots__ = ("is_tensor", "needs", "inputs", "outputs", "carries", "edges", "seq", "node")

    def __init__(self, is_tensor: tuple[bool, ...], needs: tuple[bool, ...], inputs: tuple[Aval, ...], edges: tuple[Edge, ...], seq: int) -> None:
        self.is_tensor, self.needs, self.inputs, self.edges, self.seq = is_tensor, needs, inputs, edges, seq
        self.outputs: tuple[Aval | None, ...] = ()
        self.carries: tuple[bool, ...] = ()
        self.node: weakref.ref[BackwardCFunction] | None = None


class BackwardCFunction(FunctionCtx, Node):
    """The node of a Function call, and its `ctx`."""

    __slots__ = ("_call", "_user")
    runs_without_gradient = True
    _saved: tuple[Any, ...] | None = ()
    _forward_cls: type[Function]
    _call: _Call
    # Set only in a node that stands in for a ctx whose attributes have names that the engine reads: that ctx.
    _user: BackwardCFunction
    __repr__ = object.__repr__

    @cached_property
    def output_avals(self) -> tuple[Aval, ...]:
        """See Node."""
        return self._call.outputs  # pyright: ignore[reportReturnType] - as long as the outputs, which is all that hooks ask

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """See Node."""
        edges = iter(self._call.edges)
        return tuple([next(edges) if needs else (None, 0) for needs in self._call.needs])

    @property
    def edge_places(self) -> tuple[int, ...]:
        """See Node."""
        return tuple([i for i, needs in enumerate(self._call.needs) if needs])

    def _sequence_nr(self) -> int:
        return self._call.seq

    def own_hooks(self) -> Hooks:
        """See Node."""
        return Node.own_hooks(self._standing())

    def _ctx(self) -> BackwardCFunction:
        """What the user's methods are given."""
        return self if self._call.node is None else getattr(self, "_user", self)

    def _standing(self) -> BackwardCFunction:
        """What stands in the graph."""
        return self if self._call.node is None else self._call.node() or self

    def __getattr__(self, name: str) -> Any:
        if name != "_user" and hasattr(self, "_user"):
            return getattr(self._user, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` was given. RuntimeError after the graph was freed or a tensor was written to."""
        node = self._standing()
        if node._saved is None:
            raise RuntimeError(FREED_MESSAGE)
        return tuple(_unpack(node, s) for s in node._saved)

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
        return backward(self._ctx(), *grads)

    def apply_jvp(self, *tangents: Any) -> Any:
        """What the user's jvp returns for these tangents."""
        return self._forward_cls.jvp(self._ctx(), *tangents)

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        found = BackwardCFunction.apply(self, *self._lift(calculus, grads))
        call = self._call
        given = found if isinstance(found, tuple) else (found,)
        expected = len(call.is_tensor)
        if len(given) > expected and all(g is None for g in given[expected:]):
            given = given[:expected]
        if len(given) != expected:
            raise RuntimeError(
                f"function {type(self).__name__} returned an incorrect number of gradients (expected {expected}, got {len(given)})"
            )  # fmt: skip
        for i, (g, is_tensor) in enumerate(zip(given, call.is_tensor, strict=True)):
            if g is not None and not is_tensor:
                raise RuntimeError(
                    f"function {type(self).__name__} returned a gradient different than None at position {i + 1}, but the corresponding forward "
                    "input was not a Variable"
                )
        tensors = [g for g, is_tensor in zip(given, call.is_tensor, strict=True) if is_tensor]
        for g in tensors:
            if g is not None and not isinstance(g, Tensor):
                raise RuntimeError(f"expected Variable or None (got {type(g).__name__})")
        outs = []
        for i, (g, needs) in enumerate(zip(tensors, call.needs, strict=True)):
            if needs:
                outs.append(None if g is None else self._fitting(calculus, g, i))
        return tuple(outs)

    def _lift(self, calculus: Calculus, grads: list[Any]) -> list[Any]:
        call = self._call
        ctx = self._ctx()
        grads = grads + [None] * (len(call.outputs) - len(grads))
        lifted = []
        for g, aval, carries in zip(grads, call.outputs, call.carries, strict=True):
            if g is None and aval is not None and ctx.materialize_grads and (carries or ctx._materialize_non_diff_grads):
                lifted.append(wrap(full_value(aval.shape, 0, aval.dtype, aval.device)))
            else:
                lifted.append(g if g is None or calculus.tensors else wrap(calculus.recorder.alias(g)))
        return lifted

    def _fitting(self, calculus: Calculus, g: Tensor, i: int) -> Any:
        aval = self._call.inputs[i]
        if g._aval is not aval:
            g = _fit_gradient(self, g, aval, i)
        return g if calculus.tensors else g._read()

    def release(self) -> None:
        """See Node."""
        if self._saved:
            self._saved = None


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
        from torchgrad_jax.ops import dtypes

        if not g.is_floating_point() and g.is_complex() != (aval.dtype.kind == "c"):
            raise RuntimeError(COMPLEX_MISMATCH)
        g = g.to(dtypes.of(aval.dtype))
    return g


class _Saved:
    """A tensor saved by a Function: its Value and where its gradient goes. An output of the node itself is kept without the node,
    or the two would hold each other. `tensor` says who wrote to it, if somebody did."""

    __slots__ = ("value", "source", "nr", "own", "tensor")

    def __init__(self, t: Tensor, node: Node) -> None:
        self.value = t._read()
        self.tensor = weakref.ref(t)
        self.own = t._node is node
        self.nr = t._nr
        self.source = None
        if t._rg and not self.own:
            self.source = t if t._node is None else t._node


def _unpack(node: BackwardCFunction, saved: Any) -> Any:
    if not isinstance(saved, _Saved):
        return saved
    value: Value = saved.value
    if value.counter is not None and value.counter.version != value.version:
        value = present(value)
        if value.counter.version != value.version:
            _raise_modified(node, saved)
    if isinstance(saved.source, Tensor):
        return saved.source
    t = wrap(value if value.counter is None else per_thread.recorder.alias(value))
    source = node if saved.own else saved.source
    if source is not None:
        t._node, t._nr, t._rg = source, saved.nr, True
    return t


def _raise_modified(node: BackwardCFunction, saved: _Saved) -> None:
    from torchgrad_jax.ops import dtypes

    t = saved.tensor()
    origin = node if saved.own else t.grad_fn if t is not None else saved.source
    by = f", which is output {saved.nr} of {re.sub('Backward[0-9]*$', '', origin.name())}," if isinstance(origin, Node) else ""
    value = saved.value
    kind = f"torch.{'cuda.' if value.aval.device.type == 'cuda' else ''}{dtypes.of(value.aval.dtype).title}Tensor"
    raise RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{kind} {list(value.aval.shape)}]{by} is at version {value.counter.version}; expected version {value.version} instead. "
        "Hint: enable anomaly detection to find the operation that failed to compute its gradient, "
        "with torch.autograd.set_detect_anomaly(True, check_nan=False)."
    )


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
        if separate or kwargs:
            args = _positional(cls.forward, separate, args, kwargs)
        rec = per_thread.recorder
        recording = rec.grad_enabled
        tensors = [a for a in args if isinstance(a, Tensor)]
        for t in tensors:
            t._read()
        needs = tuple([recording and t._rg for t in tensors])
        differentiable = True in needs
        if differentiable and rec.turned:
            turn(rec)
        ctx = cls._backward_cls()
        ctx.needs_input_grad = tuple([isinstance(a, Tensor) and a._rg for a in args])
        ctx.next = tuple([t._edge() for t in tensors if t._rg]) if differentiable else ()
        ctx.seq, ctx.hooks = rec.sequence, None
        rec.sequence += 1
        ctx._call = call = _Call(tuple([isinstance(a, Tensor) for a in args]), needs, tuple([t._aval for t in tensors]), ctx.next, ctx.seq)
        rec.grad_enabled = False
        try:
            if separate:
                found = cls.forward(*args)
                cls.setup_context(ctx, args, found)
            else:
                found = cls.forward(ctx, *args)
            node = _settled(ctx)
            several = isinstance(found, tuple)
            marks = Marks(tensors, ctx.dirty_tensors, ctx.non_differentiable)
            outs, call.carries = settle_outputs(node, found if several else (found,), marks, differentiable)
        finally:
            rec.grad_enabled = recording
        call.outputs = tuple([t._aval if isinstance(t, Tensor) else None for t in outs])
        if differentiable:
            to_save = ctx.to_save or ()
            _check_saved(to_save)
            node._saved = tuple([_Saved(t, node) if isinstance(t, Tensor) else t for t in to_save])
        ctx.to_save = ctx.saved_for_forward = ctx.dirty_tensors = ctx.non_differentiable = None
        return tuple(outs) if several else outs[0]


def _positional(forward: Any, separate: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments in forward's order; with a separate `setup_context`, which sees them too, also the defaults. TypeError where they do not fit."""
    code = getattr(forward, "__code__", None)
    if separate and not kwargs and code is not None and code.co_argcount == len(args) and not (code.co_kwonlyargcount or code.co_flags & 4):
        return args
    signature = inspect.signature(forward)
    if not separate:
        _, *own = signature.parameters.values()  # ctx is not among the arguments
        signature = signature.replace(parameters=own)
    bound = signature.bind(*args, **kwargs)
    if separate:
        bound.apply_defaults()
    for name in bound.kwargs:
        raise TypeError(f"forward() got an unexpected keyword argument '{name}'")
    return bound.args


def _settled(ctx: BackwardCFunction) -> BackwardCFunction:
    """The node that stands in the graph for a ctx after forward: ctx itself, or one that stands in for it where names collide."""
    call = ctx._call
    own = ctx.next is call.edges and ctx.seq is call.seq and (ctx.hooks is None or isinstance(ctx.hooks, Hooks))
    if own and _ENGINE_NAMES.isdisjoint(ctx.__dict__):
        return ctx
    node = type(ctx)()
    node._call, node._user = call, ctx
    call.node = weakref.ref(node)
    node.next, node.seq, node.hooks = call.edges, call.seq, None
    return node


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
