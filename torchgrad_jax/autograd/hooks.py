"""Calling the user's hooks: they see Tensors, whatever the pass computes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.autograd.sparse_gradients import gradient
from torchgrad_jax.core.node import Calculus, Node, Nowhere
from torchgrad_jax.core.op_node import OpNode
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.conversion import type_


def lifted(calculus: Calculus, grad: Any) -> Any:
    """A gradient as a Tensor; None as it is."""
    return grad if calculus.tensors or grad is None else gradient(calculus.recorder, calculus.recorder.alias(grad))


def lowered(calculus: Calculus, grad: Any) -> Any:
    """What a hook left, as the pass computes on it."""
    return grad if calculus.tensors or grad is None else grad._read()


def call_tensor_hooks(calculus: Calculus, hooks: Any, grad: Any) -> Any:
    """`Tensor.register_hook`: each hook may replace the gradient by one of the same type and size. TypeError, RuntimeError as PyTorch."""
    value = lifted(calculus, grad)
    for hook in list(hooks.values()):
        replaced = hook(value)
        if replaced is not None:
            _check_tensor(replaced)
            value = _checked(hook, value, replaced)
    return lowered(calculus, value)


def tensor_pre_hooks(calculus: Calculus, node: Node, received: list[Any]) -> list[Any]:
    """Hooks of the node's output tensors, then tensors that retain their gradient."""
    hooks = node.hooks
    assert hooks is not None
    received = _padded(node, received)
    for nr, registered in list(hooks.tensor.items()):
        if registered:
            received[nr] = call_tensor_hooks(calculus, registered, received[nr])
    for nr, keep in list(hooks.retain.items()):
        if received[nr] is not None:
            keep(lifted(calculus, received[nr]))
    return received


def node_pre_hooks(calculus: Calculus, node: Node, received: list[Any]) -> list[Any]:
    """`Node.register_prehook`."""
    assert node.hooks is not None
    received = _padded(node, received)
    for hook in list(node.hooks.pre.values()):
        given = tuple([lifted(calculus, g) for g in received])
        replaced = hook(given)
        if replaced is not None:
            received = [lowered(calculus, g) for g in _replacement(hook, given, replaced)]
    return received


def node_post_hooks(calculus: Calculus, node: Node, outs: tuple[Any, ...], received: list[Any]) -> tuple[Any, ...]:
    """`Node.register_hook`: hooks see and may replace the gradients laid out as `next_functions` is."""
    assert node.hooks is not None
    outputs = tuple([lifted(calculus, g) for g in _padded(node, received)])
    if node.skips_unneeded:
        needed = calculus.needed
        used = node.used([type(to) is not Nowhere and (needed is None or to in needed) for to, _ in node.next])
        outs = tuple([g if there else None for g, there in zip(outs, used, strict=True)])
    inputs, places = laid_out(calculus, node, outs, received)
    given: tuple[Any, ...] = tuple([lifted(calculus, g) for g in inputs])
    for hook in list(node.hooks.post.values()):
        replaced = hook(given, outputs)
        if replaced is not None:
            given = _replacement(hook, given, replaced)
    return tuple([lowered(calculus, given[i]) for i in places])


def _padded(node: Node, received: list[Any]) -> list[Any]:
    missing = len(node.output_avals) - len(received)
    return received + [None] * missing if missing > 0 else list(received)


def laid_out(calculus: Calculus, node: Node, outs: tuple[Any, ...], received: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """The gradients laid out as `next_functions` is, and where each edge's stands in it."""
    places = node.edge_places
    laid: list[Any] = [None] * len(node.next_functions)
    for i, g in zip(places, outs, strict=True):
        laid[i] = g
    others = node.plan.others() if isinstance(node, OpNode) and len(outs) < len(laid) and outs.count(None) < len(outs) else None
    if others is not None:
        found = calculus.call(others.vjp_of((True,)), (received[0],))
        for i, g in zip(others.places, found if type(found) is tuple else (found,), strict=True):
            laid[i] = g
    for i, g in node.for_others().items():
        laid[i] = g
    return laid, list(places)


# ---------------------------------------------------------------------- what a hook may return


def _replacement(hook: Any, given: tuple[Any, ...], replaced: Any) -> tuple[Any, ...]:
    if not isinstance(replaced, tuple):
        raise TypeError(f"expected tuple, but hook returned '{type(replaced).__name__}'")
    if len(replaced) != len(given):
        raise RuntimeError(f"hook '{_name(hook)}' has returned an incorrect number of values (got {len(replaced)}, but expected {len(given)})")
    for old, new in zip(given, replaced, strict=True):
        if new is not None:
            _check_tensor(new)
            _checked(hook, old, new)
    return replaced


def check_returned_none(returned: Any, leaf: Tensor) -> None:
    """PyTorch's refusal of what a post accumulate grad hook returned. RuntimeError for another Tensor, TypeError for anything else but None."""
    if returned is not None and returned is not leaf:
        _check_tensor(returned)
        raise RuntimeError("Tensor post accumulate grad hooks should return None.")


def _check_tensor(replaced: Any) -> None:
    if not isinstance(replaced, Tensor):
        raise TypeError(f"expected Variable, but hook returned '{type(replaced).__name__}'")


def _checked(hook: Any, old: Tensor | None, new: Tensor) -> Tensor:
    if old is None:
        raise RuntimeError("can't replace a None gradient with a non-None value")
    if old._aval.dtype != new._aval.dtype:
        raise RuntimeError(f"hook '{_name(hook)}' has changed the type of value (was {_type_text(old)} got {_type_text(new)})")
    if old._aval.shape != new._aval.shape:
        raise RuntimeError(f"hook '{_name(hook)}' has changed the size of value")
    return new


def _type_text(t: Tensor) -> str:
    return f"CPU{t.dtype.title}Type" if t.is_complex() and t.is_cpu else type_(t)


def _name(hook: Any) -> str:
    return getattr(hook, "__name__", "<unknown>")
