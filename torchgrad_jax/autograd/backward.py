"""`backward` and `grad`: from what the user asks to a run of the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from operator import index
from typing import Any

from torchgrad_jax.autograd.batched import run_batched
from torchgrad_jax.autograd.engine import run_backward
from torchgrad_jax.autograd.graph import GradientEdge
from torchgrad_jax.core.duals import seen_tangent
from torchgrad_jax.core.level import in_transform, meet
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.node import Edge, HookList, Node, Nowhere
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import zeros_like
from torchgrad_jax.memory.filled import full_value
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.user_code import warn_user
from torchgrad_jax.runtime.value import Aval

NO_GRAPH = "element {} of tensors does not require grad and does not have a grad_fn"
UNUSED = "The differentiated Tensor at index {} appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior."
CYCLE = (
    "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient which can cause a memory leak. "
    "We recommend using autograd.grad when creating the graph to avoid this. If you have to use this function, make sure to reset the .grad "
    "fields of your parameters to None after use to break the cycle and avoid the leak."
)
Target = Tensor | GradientEdge


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Add the gradients of `tensors` to the `.grad` of the graph's leaves, or of `inputs` where given.

    tensors, inputs: Tensors or GradientEdges, one or several. grad_tensors: the gradient of each tensor, of its shape; may be None for a scalar.
    RuntimeError where a tensor has no graph, a gradient does not fit, or the graph was freed by an earlier call without `retain_graph`.
    """
    _refuse_in_transform()
    if grad_variables is not None:
        warn_user("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning)
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please only use `grad_tensors`."
            )
        grad_tensors = grad_variables
    if isinstance(inputs, Mapping):
        inputs = tuple(_only_dict("backward", inputs).values())
    wanted: tuple[Target, ...] = () if inputs is None else _several(inputs)
    if inputs is not None and not wanted:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    outputs = _several(tensors)
    grads = _output_grads(outputs, _gradients(grad_tensors, len(outputs)))
    roots = _roots(outputs)
    captures = None
    if inputs is not None:
        _check_inputs(wanted)
        captures = []
        for t in wanted:
            if isinstance(t, Tensor):
                retain_grad(t)
            captures.append(_input_edge(t))
    retain, create_graph = _keeps(retain_graph, create_graph)
    if create_graph:
        _warn_of_cycle()
    run_backward(roots, grads, retain_graph=retain, create_graph=create_graph, captures=captures)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """The gradients of `outputs` with respect to `inputs`, one for each input; no `.grad` is touched. Of a dict of inputs they are a dict.

    outputs, inputs: Tensors or GradientEdges, one or several. An input that the outputs do not depend on is an error, None under `allow_unused`,
    zeros under `materialize_grads`. is_grads_batched: the first dimension of each of `grad_outputs` is a batch, and so it is in the results.
    """
    if isinstance(inputs, Mapping):
        _only_dict("grad", inputs)
        options = (grad_outputs, retain_graph, create_graph, only_inputs, allow_unused, is_grads_batched, materialize_grads)
        return dict(zip(inputs, grad(outputs, tuple(inputs.values()), *options), strict=True))
    if not only_inputs:
        warn_user(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for other parts of the graph, please "
            "use torch.autograd.backward.",
            FutureWarning,
        )
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False.")
    outs, wanted = _several(outputs), _several(inputs)
    if not wanted:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    _check_inputs(wanted)
    grads = _output_grads(outs, _gradients(grad_outputs, len(outs)), is_grads_batched)
    roots = _roots(outs)
    captures = [_input_edge(t) for t in wanted]
    run = run_batched if is_grads_batched else run_backward
    retain, create_graph = _keeps(retain_graph, create_graph)
    materialize_grads, allow_unused = _flag(materialize_grads), allow_unused is not None and _flag(allow_unused)
    found = run(roots, grads, retain_graph=retain, create_graph=create_graph, captures=captures, accumulate=False)
    if len(captures) > 1:  # an input asked for twice gives one tensor twice
        first: dict[Edge, Any] = {}
        found = [first.setdefault(edge, g) for edge, g in zip(captures, found, strict=True)]
    if materialize_grads:
        return tuple(_zeros_for(t, create_graph) if g is None else g for t, g in zip(wanted, found, strict=True))
    if not allow_unused:
        for i, g in enumerate(found):
            if g is None:
                raise RuntimeError(UNUSED.format(i))
    return tuple(found)


def _only_dict(function: str, inputs: Mapping[Any, Any]) -> Mapping[Any, Any]:
    if type(inputs) is not dict:
        raise TypeError(f"`inputs` argument to `{function}()` must be a dict, not {type(inputs).__name__}. Other Mapping types are not supported.")
    return inputs


def _flag(given: Any) -> bool:
    """What is said by a bool or an integer. TypeError for anything else."""
    return given if type(given) is bool else bool(index(given))


def _keeps(retain_graph: bool | None, create_graph: bool) -> tuple[bool, bool]:
    """Whether a pass keeps the graph, and whether it makes one."""
    creates = _flag(create_graph)
    return creates if retain_graph is None else _flag(retain_graph), creates


def _zeros_for(t: Target, requires_grad: bool) -> Tensor:
    if not isinstance(t, Tensor):
        raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
    return zeros_like(t, requires_grad=requires_grad)


def _refuse_in_transform() -> None:
    if in_transform():
        raise RuntimeError(
            "backward() called inside a functorch transform. This is not supported, please use functorch.grad or functorch.vjp instead or call "
            "backward() outside of functorch transforms."
        )


@cache
def _warn_of_cycle() -> None:
    """Warn once that `.grad` and its tensor will hold each other."""
    warn_user(CYCLE, UserWarning)


def _several(x: Any) -> tuple[Any, ...]:
    return (x,) if isinstance(x, Target) else tuple(x)


def _gradients(given: Any, count: int) -> tuple[Any, ...]:
    return (None,) * count if given is None else _several(given)


def _roots(outputs: Sequence[Target]) -> list[Edge]:
    for i, t in enumerate(outputs):
        if isinstance(t, Tensor) and not t.requires_grad:
            raise RuntimeError(NO_GRAPH.format(i))
    edges = [t._edge() if isinstance(t, Tensor) else (t.node, t.output_nr) for t in outputs]
    for i, (node, _) in enumerate(edges):
        if type(node) is Nowhere:
            raise RuntimeError(NO_GRAPH.format(i))
    return edges


def _check_inputs(inputs: Sequence[Any]) -> None:
    for t in inputs:
        if not isinstance(t, Target):
            raise RuntimeError(f"all inputs have to be Tensors or GradientEdges, but got {type(t).__name__}")
        if isinstance(t, GradientEdge) and not isinstance(t.node, Node):
            raise RuntimeError(f"GradientEdge's first object must be an autograd.graph.Node but got {type(t.node).__name__}")


def _input_edge(t: Target) -> Edge:
    if not isinstance(t, Tensor):
        return t.node, t.output_nr
    if not t.requires_grad:
        raise RuntimeError("One of the differentiated Tensors does not require grad")
    return t._edge()


def _output_grads(outputs: Sequence[Any], grads: Sequence[Any], batched: bool = False) -> list[Tensor]:
    """The gradients to begin with, checked against their outputs. RuntimeError, TypeError with PyTorch's text."""
    for out in outputs:
        if not isinstance(out, Target):
            raise AssertionError("Expected output to be a torch.Tensor")
    if len(grads) < len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(grads)} gradients")
    found = []
    for i, (out, g) in enumerate(zip(outputs, grads, strict=False)):  # PyTorch ignores gradients that are too many
        if g is None:
            found.append(_implicit(out, i))
            continue
        if not isinstance(g, Tensor):
            raise TypeError("gradients can be either Tensors or None, but got " + type(g).__name__)
        aval = out._aval if isinstance(out, Tensor) else out.node.output_avals[out.output_nr]
        shape, kind = Size(aval.shape), dtypes.of(aval.dtype)
        if batched and not g._aval.ndim:
            raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a 0-dim tensor "
                             "to a number")  # fmt: skip
        if batched and not len(g):
            raise IndexError("index 0 is out of bounds for dimension 0 with size 0")
        if (given := g.shape[1:] if batched else g.shape) != shape:
            raise RuntimeError(_mismatch(i, given, shape, batched))
        if kind.is_complex != g.is_complex():
            raise RuntimeError(
                f"For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: grad_output[{i}] has a "
                f"dtype of {g.dtype} and output[{i}] has a dtype of {kind}."
            )
        found.append(g if g._aval.dtype == aval.dtype else g.to(kind))
    return found


def _mismatch(i: int, given: Size, shape: Size, batched: bool) -> str:
    if not batched:
        return f"Mismatch in shape: grad_output[{i}] has a shape of {given} and output[{i}] has a shape of {shape}."
    return (
        "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. The sizes of the remaining "
        f"dimensions are expected to match the shape of corresponding output, but a mismatch was detected: grad_output[{i}] has a shape of "
        f"{given[1:]} and output[{i}] has a shape of {shape}. If you only want some tensors in `grad_output` to be considered batched, consider "
        "using vmap."
    )


def _implicit(out: Target, i: int) -> Tensor:
    if isinstance(out, Tensor):
        if not out.requires_grad:
            raise RuntimeError(NO_GRAPH.format(i))
        aval = out._aval
    else:
        aval = out.node.output_avals[out.output_nr]
    return _one(aval)


def _one(aval: Aval) -> Tensor:
    """The gradient that a number begins with. RuntimeError for what is none."""
    if aval.size != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    if aval.dtype.kind == "c":
        raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {dtypes.of(aval.dtype)}")
    return wrap(full_value(aval.shape, 1, aval.dtype, aval.device))


# ---------------------------------------------------------------------- Tensor's methods


def tensor_backward(self: Tensor, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None) -> None:
    """Add the gradients of this tensor to the `.grad` of the graph's leaves. See `torch.autograd.backward`."""
    _refuse_in_transform()
    if gradient is None and inputs is None and self.requires_grad:
        retain, create_graph = _keeps(retain_graph, create_graph)
        if create_graph:
            _warn_of_cycle()
        edge = self._edge()
        if type(edge[0]) is Nowhere:
            raise RuntimeError(NO_GRAPH.format(0))
        run_backward((edge,), (_one(self._aval),), retain_graph=retain, create_graph=create_graph)
    else:
        backward((self,), gradient, retain_graph, create_graph, inputs=inputs)


def register_hook(self: Tensor, hook: Any) -> Any:
    """Call ``hook(grad)`` when this tensor's gradient is computed; what it returns replaces the gradient. Returns a handle."""
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    level = per_thread.recorder.level
    if level is not None:
        level.departs()
    node = self.grad_fn
    if node is not None:
        extra = self._extra
        node, nr = (node, self._nr) if extra is None or extra.hooked is None else extra.hooked
        return node.own_hooks().tensor.setdefault(nr, HookList()).add(hook)
    extra = self._own_extra()
    if extra.hooks is None:
        extra.hooks = HookList()
    return extra.hooks.add(hook)


def register_post_accumulate_grad_hook(self: Tensor, hook: Any) -> Any:
    """Call ``hook(tensor)`` after a gradient was accumulated into this leaf. Returns a handle."""
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self.grad_fn is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    extra = self._own_extra()
    if extra.post_hooks is None:
        extra.post_hooks = HookList()
    return extra.post_hooks.add(hook)


def retain_grad(self: Tensor) -> None:
    """Keep this non-leaf tensor's gradient in its `.grad`."""
    import weakref

    if not self.requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if in_transform():
        raise RuntimeError(
            "You are attempting to call Tensor.retain_grad() inside of a function being transformed by a functorch transform. This is unsupported, "
            "please attempt to use the functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or call retain_grad() outside of a function "
            "being transformed instead."
        )
    extra = self._own_extra()
    if extra.retains_grad or self._node is None:  # a view that has not asked for its grad_fn yet is a leaf here
        return
    node = self.grad_fn
    assert node is not None
    extra.retains_grad = True
    reference = weakref.ref(self)

    def keep(g: Tensor) -> None:
        t = reference()
        if t is not None:
            kept = t._own_extra()
            if kept.grad is not None:
                kept.grad = kept.grad + g
            else:
                kept.grad = wrap(g._read()) if g._node is None and seen_tangent(g) is None else g

    node.own_hooks().retain[self._nr] = keep


def _get_grad(self: Tensor) -> Tensor | None:
    if per_thread.recorder.level is not None:
        meet(self, "read")
    extra = self._extra
    found = None if extra is None else extra.grad
    if found is None and self._node is not None and not (extra is not None and extra.retains_grad):
        warn_user(
            "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be populated during "
            "autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, use .retain_grad() on the non-leaf "
            "Tensor. If you access the non-leaf Tensor by mistake, make sure you access the leaf Tensor instead. See "
            "github.com/pytorch/pytorch/pull/30531 for more information.",
            UserWarning,
        )
    return found


def set_grad(self: Tensor, grad: Tensor | None) -> None:
    """Let `grad` be the gradient of `self`, or none. TypeError, RuntimeError for what cannot be one."""
    if grad is None:
        if per_thread.recorder.level is not None:
            meet(self, "written")
        if self._extra is not None:
            self._extra.grad = None
        return
    check_grad(self, grad)
    meet(self, "written")
    meet(grad)
    self._own_extra().grad = grad


def check_grad(self: Tensor, grad: Any) -> None:
    """TypeError, RuntimeError for what cannot be the gradient of `self`: a number, or a tensor of another dtype, device or shape."""
    if not isinstance(grad, Tensor):
        raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type(grad).__name__}")
    if grad is self:
        raise RuntimeError("can't assign Variable as its own grad")
    a, b = self._aval, grad._aval
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"attempting to assign a gradient with dtype '{grad.dtype.word}' to a tensor with grad_dtype "
            f"'{self.dtype.title}'. The gradient must match the tensor's grad_dtype (defaults to the tensor's dtype). You can set the tensor's "
            "grad_dtype attribute with a specific dtype, or None to allow any dtype. Set grad_dtype with caution. Diverging the dtypes of a tensor "
            "and its gradient may break downstream systems that assume they match."
        )
    if a.device.type != b.device.type:
        raise RuntimeError(
            f"attempting to assign a gradient with device type '{b.device.type}' to a tensor with device type '{a.device.type}'. Please ensure that "
            "the gradient and the tensor are on the same device"
        )
    if a.device is not b.device:
        raise RuntimeError(f"assigned grad has data located on a different device: expected {a.device} but got {b.device}")
    if a.shape != b.shape:
        raise RuntimeError(
            f"attempting to assign a gradient of size '{list(b.shape)}' to a tensor of size '{list(a.shape)}'. Please ensure that the gradient and "
            "the tensor are the same size"
        )


grad_property = property(_get_grad, set_grad, lambda self: set_grad(self, None), "The accumulated gradient; None before the first.")


def attach() -> None:
    """Give Tensor the methods that run the engine or register hooks with it."""
    for name, method in {
        "backward": tensor_backward, "register_hook": register_hook, "retain_grad": retain_grad, "grad": grad_property,
        "register_post_accumulate_grad_hook": register_post_accumulate_grad_hook,
        "retains_grad": property(lambda self: self._extra is not None and self._extra.retains_grad, doc="Whether `.grad` of a non-leaf is kept."),
    }.items():  # fmt: skip
        if callable(method):
            method.__name__, method.__qualname__ = name, f"Tensor.{name}"  # errors about arguments name it
        setattr(Tensor, name, method)
