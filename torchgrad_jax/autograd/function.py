"""`torch.autograd.Function`: operations whose backward is the user's."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Aval, Value
from torchgrad_jax.tensor.dispatch import turn
from torchgrad_jax.tensor.inplace import detached, rebase
from torchgrad_jax.tensor.node import FREED_MESSAGE, Calculus, Node
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
        rec = calculus.recorder
        found = self._function.backward(self, *lifted)
        given = found if isinstance(found, tuple) else (found,)
        expected = len(self.needs_input_grad)
        if len(given) > expected and all(g is None for g in given[expected:]):
            given = given[:expected]
        if len(given) != expected:
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {expected}, got {len(given)})"
            )  # fmt: skip
        del rec
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
            raise TypeError(f"function {self.name()} returned a gradient of type {type(g).__name__} at index {i}, but expected a Tensor or None")
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
                f"Function {node.name()} returned an invalid gradient at index {i} - got {list(shape)} but expected shape compatible with {list(aval.shape)}"
            )
        g = g.sum_to_size(aval.shape)
    if g._aval.dtype != aval.dtype:
        from torchgrad_jax.ops import dtypes

        g = g.to(dtypes.of(aval.dtype))
    return g


class _Saved:
    """A tensor saved by a Function: its Value and where its gradient goes. An output of the node itself is kept without the node,
    or the two would hold each other."""

    __slots__ = ("value", "source", "nr", "own")

    def __init__(self, t: Tensor, node: Node) -> None:
        self.value = t._read()
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
        from torchgrad_jax.ops import dtypes

        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"[torch.{dtypes.of(value.aval.dtype).title}Tensor {list(value.aval.shape)}] is at version {value.counter.version}; expected version "
            f"{value.version} instead. Hint: enable anomaly detection to find the operation that failed to compute its gradient, "
            "with torch.autograd.set_detect_anomaly(True)."
        )
    if isinstance(saved.source, Tensor):
        return saved.source
    t = wrap(value if value.counter is None else per_thread.recorder.alias(value))
    source = node if saved.own else saved.source
    if source is not None:
        t._node, t._nr, t._rg = source, saved.nr, True
    return t


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

    vjp = backward

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run the operation and record it."""
        rec = per_thread.recorder
        recording = rec.grad_enabled
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
            if cls.setup_context is Function.setup_context:
                found = cls.forward(node, *args)
            else:
                found = cls.forward(*args)
                cls.setup_context(node, args, found)
        finally:
            rec.grad_enabled = recording
        return _outputs(node, found, tensors, differentiable)


def _outputs(node: FunctionNode, found: Any, tensors: list[Tensor], differentiable: bool) -> Any:
    several = isinstance(found, tuple)
    outs = list(found) if several else [found]
    dirty = {id(t) for t in node._dirty}
    constant = {id(t) for t in node._non_differentiable}
    inputs = {id(t) for t in tensors}
    avals = []
    for i, out in enumerate(outs):
        if not isinstance(out, Tensor):
            avals.append(None)
            if out is not None and several is False:
                raise TypeError(f"{node.name()}.forward: expected to get tensor outputs, but got {type(out).__name__}")
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
    node._avals = tuple(avals)  # type: ignore[assignment]
    if differentiable:
        node._saved = tuple([_Saved(t, node) if isinstance(t, Tensor) else t for t in node._to_save])
    node._to_save = node._dirty = node._non_differentiable = ()
    return tuple(outs) if several else outs[0]


def _rebase_dirty(node: FunctionNode, out: Tensor, i: int) -> None:
    if out._rg and out._node is None and out._view is None:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    rebase(out, node)
    out._nr = i


