"""`functionalize`, and `debug_unwrap`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torchgrad_jax.core.history import before_write, unwrite
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.lifting.levels import held_tensor
from torchgrad_jax.lifting.trees import tree_leaves


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """`func` with its mutations (remove="mutations"), or mutations and views ("mutations_and_views"), taken out.

    Here that is always so: arrays are immutable, and what a program writes in place or views is recorded as new values. The function that is given
    back therefore calls `func`; what it writes to its arguments is written, as in PyTorch, unless it raises. RuntimeError for another `remove`.

        >>> torch.func.functionalize(lambda x: x.clone().mul_(2))(torch.ones(2))
        tensor([2., 2.])
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid options are:\n     remove='mutations': all "
            "inplace and out= operators will be removed from the program, and replaced with their out-of-place equivalents.\n     "
            "remove='mutations_and_views': In addition to the above, all aliasing operators {view} will be replaced with their non-aliasing "
            "counterparts, {view}_copy.\n"
        )

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        before = [(t, before_write(t)) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        try:
            return func(*args, **kwargs)
        except BaseException:
            for t, content in reversed(before):
                unwrite(t, content)
            raise

    return wrapped


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """What a tensor inside a transform holds, for a debugger to show: the tensor that is no transform's, or that of the next level (recurse=False). A
    mapped tensor holds all of its batch. Other tensors are given back. TypeError for what is no tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"debug_unwrap(): argument 'tensor' must be Tensor, not {type(tensor).__name__}")
    inner = held_tensor(tensor)
    while recurse and inner is not None:
        tensor, inner = inner, held_tensor(inner)
    return tensor if inner is None else inner
