"""`torch.autograd.Function`: operations whose backward is the user's."""

from __future__ import annotations

import inspect
import re
import weakref
from typing import Any

from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Aval, Value
from torchgrad_jax.tensor.dispatch import refuse_inference, turn
from torchgrad_jax.tensor.inplace import VIEW_OF_LEAF, detached, overwrite, rebase
from torchgrad_jax.tensor.node import FREED_MESSAGE, Calculus, Node
from torchgrad_jax.tensor.storage import present
from torchgrad_jax.tensor.tensor import Tensor, wrap

__all__ = ["Function", "FunctionCtx"]


class FunctionCtx:
    """What `forward` and `backward` of a Function share: saved tensors and the user's own attributes."""

    needs_input_grad: tuple[bool, ...] = ()
    _to_save: tuple[Any, ...] = ()
    _dirty: tuple[Any, ...] = ()
    _non_differentiable: tuple[Any, ...] = ()
    _materialize = True

    def save_for_backward(self, *tensors: Any) -> None:
        """Save tensors (or None) for backward, where `saved_tensors` gives them. To be called once, in forward."""
        self._to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Save tensors for `jvp`."""
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Any) -> None:
        """Say which inputs forward has written to."""
        self._dirty = args

    def mark_non_differentiable(self, *args: Any) -> None:
        """Say which outputs carry no gradient."""
        self._non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (the default) or None for outputs without a gradient."""
        self._materialize = value


class FunctionNode(FunctionCtx, Node):
    """The node of a Function call, and its `ctx`."""

    runs_without_gradient = True
    _saved: tuple[Any, ...] | None = ()
    _function: type[Function]
    _inputs: tuple[bool, ...]
    _avals: tuple[Aval, ...] = ()

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """See Node."""
        return self._avals

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """See Node."""
        edges = iter(self.next)
        return tuple(next(edges) if needs else (None, 0) for needs in self._inputs)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` was given. RuntimeError after the graph was freed or a tensor was written to."""
        if self._saved is None:
            raise RuntimeError(FREED_MESSAGE)
        return tuple(_unpack(self, s) for s in self._saved)

    saved_variables = saved_tensors

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        lifted = self._lift(calculus, grads)
        function = self._function
        backward = function.backward
        if function.vjp is not Function.vjp:
            if backward is not Function.backward:
                raise RuntimeError(
                    "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one of them."
                )
            backward = function.vjp
        found = backward(self, *lifted)
        given = found if isinstance(found, tuple) else (found,)
        expected = len(self.needs_input_grad)
        if len(given) > expected and all(g is None for g in given[expected:]):
            given = given[:expected]
        if len(given) != expected:
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {expected}, got {len(given)})"
            )  # fmt: skip
        for i, (g, is_tensor) in enumerate(zip(given, self._is_tensor, strict=True)):
            if g is not None and not is_tensor:
                raise RuntimeError(
                    f"function {self.name()} returned a gradient different than None at position {i + 1}, but the corresponding forward input was "
                    "not a Variable"
                )
        tensors = [g for g, is_tensor in zip(given, self._is_tensor, strict=True) if is_tensor]
        outs = []
        for i, (g, needs) in enumerate(zip(tensors, self._inputs, strict=True)):
            if needs:
                outs.append(None if g is None else self._checked(calculus, g, i))
        return tuple(outs)

    _is_tensor: tuple[bool, ...] = ()
    _input_avals: tuple[Aval, ...] = ()

    def _lift(self, calculus: Calculus, grads: list[Any]) -> list[Any]:
        grads = grads + [None] * (len(self._avals) - len(grads))
        lifted = []
        for g, aval in zip(grads, self._avals, strict=True):
            if g is None and self._materialize and aval is not None:
                from torchgrad_jax.tensor.creation import full_value

                lifted.append(wrap(full_value(aval.shape, 0, aval.dtype, aval.device)))
            else:
                lifted.append(g if g is None or calculus.tensors else wrap(calculus.recorder.alias(g)))
        return lifted

    def _checked(self, calculus: Calculus, g: Any, i: int) -> Any:
        if not isinstance(g, Tensor):
            raise RuntimeError(f"expected Variable or None (got {type(g).__name__})")
        aval = self._input_avals[i]
        if g._aval is not aval:
            g = _fit_gradient(self, g, aval, i)
        return g if calculus.tensors else g._read()

    def release(self) -> None:
        """See Node."""
        if self._saved:
            self._saved = None


def _fit_gradient(node: Node, g: Tensor, aval: Aval, i: int) -> Tensor:
    """The gradient in the input's shape and dtype. RuntimeError with PyTorch's text where it does not fit."""
    shape = g._aval.shape
    if shape != aval.shape:
        extra = len(shape) - len(aval.shape)
        fits = extra >= 0 and all(m in (1, n) for n, m in zip(shape[extra:], aval.shape, strict=True))
        if not fits:
            raise RuntimeError(
                f"Function {node.name()} returned an invalid gradient at index {i} - got {list(shape)} but expected shape compatible with "
                f"{list(aval.shape)}"
            )
        g = g.sum_to_size(aval.shape)
    if g._aval.dtype != aval.dtype:
        from torchgrad_jax.ops import dtypes

        g = g.to(dtypes.of(aval.dtype))
    return g


class _Saved:
    """A tensor saved by a Function: its Value and where its gradient goes. An output of the node itself is kept without the node,
    or the two would hold each other. `tensor` says who wrote to it, if somebody did."""

    __slots__ = ("value", "source", "nr", "own", "tensor")

    def __init__(self, t: Tensor, node: Node) -> None:
        refuse_inference((t,))
        self.value = t._read()
        self.tensor = weakref.ref(t)
        self.own = t._node is node
        self.nr = t._nr
        self.source = None
        if t._rg and not self.own:
            self.source = t if t._node is None else t._node


def _unpack(node: FunctionNode, saved: Any) -> Any:
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


def _raise_modified(node: FunctionNode, saved: _Saved) -> None:
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

    def __init__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> None:
        super().__init__(name, bases, attributes)
        cls._node_class = type(name + "Backward", (FunctionNode,), {"_function": cls, "__module__": attributes.get("__module__")})


class Function(metaclass=FunctionMeta):
    """Base of the user's own differentiable operations: static methods `forward(ctx, ...)` and `backward(ctx, *grads)`, called by `apply`."""

    _node_class: type[FunctionNode]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        import warnings

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

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run the operation and record it."""
        rec = per_thread.recorder
        recording = rec.grad_enabled
        separate = cls.setup_context is not Function.setup_context
        if separate and getattr(cls.forward, "__defaults__", None):  # setup_context sees the defaults too
            bound = inspect.signature(cls.forward).bind(*args)
            bound.apply_defaults()
            args = bound.args
        tensors = [a for a in args if isinstance(a, Tensor)]
        for t in tensors:
            t._read()
        needs = tuple([isinstance(a, Tensor) and recording and a._rg for a in args])
        differentiable = True in needs
        if differentiable and rec.turned:
            turn(rec)
        node = cls._node_class()
        node.needs_input_grad = needs
        node._is_tensor = tuple([isinstance(a, Tensor) for a in args])
        node._inputs = tuple([recording and t._rg for t in tensors])
        node._input_avals = tuple([t._aval for t in tensors])
        node.next = tuple([t._edge() for t in tensors if t._rg]) if differentiable else ()
        node.hooks = None
        node.seq = rec.sequence
        rec.sequence += 1
        rec.grad_enabled = False
        try:
            if separate:
                found = cls.forward(*args)
                cls.setup_context(node, args, found)
            else:
                found = cls.forward(node, *args)
        finally:
            rec.grad_enabled = recording
        return _outputs(node, found, tensors, differentiable)


def _outputs(node: FunctionNode, found: Any, tensors: list[Tensor], differentiable: bool) -> Any:
    several = isinstance(found, tuple)
    outs = list(found) if several else [found]
    _check_marks(node, outs, differentiable)
    dirty = {id(t) for t in node._dirty}
    constant = {id(t) for t in node._non_differentiable}
    inputs = {id(t) for t in tensors}
    avals = []
    for i, out in enumerate(outs):
        if not isinstance(out, Tensor):
            avals.append(None)
            continue
        avals.append(out._aval)
        if id(out) in dirty:
            if differentiable:
                _rebase_dirty(node, out, i)
            continue
        if id(out) in inputs:
            # An input returned as it is: the result is a view of it with a history of its own.
            out = outs[i] = detached(out)
        if differentiable and id(found[i] if several else found) not in constant and out.is_floating_point() | out.is_complex():
            if out._node is not None or out._extra is not None:
                out = outs[i] = detached(out)
            out._rg, out._node, out._nr = True, node, i
    node._avals = tuple(avals)
    if differentiable:
        node._saved = tuple([_Saved(t, node) if isinstance(t, Tensor) else t for t in node._to_save])
    node._to_save = node._dirty = node._non_differentiable = ()
    return tuple(outs) if several else outs[0]


def _check_marks(node: FunctionNode, outs: list[Any], differentiable: bool) -> None:
    """Refuse what cannot be saved or marked. TypeError, RuntimeError with PyTorch's text."""
    if not all(isinstance(t, Tensor) for t in node._dirty):
        raise RuntimeError("mark_dirty can only accept variables, but argument ")
    if not all(isinstance(t, Tensor) for t in node._non_differentiable):
        raise RuntimeError("mark_non_differentiable only accepts variable arguments, but got ")
    if not all(any(t is out for out in outs) for t in node._dirty):
        raise RuntimeError(
            "Some elements marked as dirty during the forward method were not returned as output. The inputs that are modified inplace must all be "
            "outputs of the Function."
        )
    if differentiable:
        for i, t in enumerate(node._to_save):
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"save_for_backward can only save variables, but argument {i} is of type {type(t).__name__}")


def _rebase_dirty(node: FunctionNode, out: Tensor, i: int) -> None:
    if out._rg and out._node is None and out._view is None:
        raise RuntimeError("a leaf Variable that requires grad has been used in an in-place operation.")
    if out._view is not None and out._view.base._rg and out._view.base._node is None:
        raise RuntimeError(VIEW_OF_LEAF)
    overwrite(out, per_thread.recorder.alias(out._read()))  # being marked counts as a write
    rebase(out, node)
    out._nr = i
