"""`torch.cond` and `torch.while_loop`: which functions are called, and how often, by values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.overloads import where
from torchgrad_jax.lifting.trees import tree_flatten, tree_leaves, tree_unflatten
from torchgrad_jax.runtime.value import Value, watches


def cond(pred: bool | int | float | Tensor, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """``true_fn(*operands)`` if `pred`, else ``false_fn(*operands)``.

    pred: a boolean or a tensor of one element. Where it stands for several, as inside of `vmap` and of functions that are compiled, both functions
    are called, and each element of the results is that of the one that its own predicate chooses. operands: a tuple of tensors, or of dicts, lists
    and tuples of them.
    RuntimeError for another predicate or other operands, and where both are called and their results are not alike.
    """
    if not isinstance(pred, (bool, int, float, Tensor)):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not isinstance(operands, (tuple, list)) or not all(isinstance(leaf, Tensor) for leaf in tree_leaves(tuple(operands))):
        raise RuntimeError(
            f"Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor leaves, but got {operands}."
        )
    if isinstance(pred, Tensor) and _is_open(pred._content()):
        return _elementwise(pred.reshape(()) != 0, true_fn(*operands), false_fn(*operands))
    return true_fn(*operands) if pred else false_fn(*operands)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any]) -> Any:
    """`carried_inputs`, or what ``body_fn(*carried)`` makes of them over and over, while ``cond_fn(*carried)`` is true.

    Each turn looks at the condition, so what is compiled is what is between two looks, and inside of `vmap` the condition must be the same for all.
    Gradients pass through every turn, which PyTorch's has no gradients of. RuntimeError for what are no functions, and for inputs that are no tuple.
    """
    if not (callable(cond_fn) and callable(body_fn)):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"Expect carried_inputs to be a tuple of possibly nested dict/list/tuple of tensors or ints, but got {carried_inputs}.")
    carried: Any = carried_inputs
    while cond_fn(*carried):
        carried = body_fn(*carried)
    return carried


def _is_open(pred: Value) -> bool:
    """Whether it stands for several values, or for those of all calls of a function that is being compiled."""
    return not pred.readable or any(watch.hides(pred) for watch in watches)


def _elementwise(pred: Tensor, if_true: Any, if_false: Any) -> Any:
    (ones, spec), (others, other_spec) = tree_flatten(if_true), tree_flatten(if_false)
    if spec != other_spec or any(a.shape != b.shape or a.dtype != b.dtype for a, b in zip(ones, others, strict=True)):
        raise RuntimeError(f"Expected the results of true_fn and false_fn to be alike, but got {if_true} and {if_false}.")
    return tree_unflatten([where(pred, a, b) for a, b in zip(ones, others, strict=True)], spec)
