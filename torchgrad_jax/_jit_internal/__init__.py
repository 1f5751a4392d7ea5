"""`torch._jit_internal`: what modules that were written for TorchScript take from there; none of it compiles anything."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, Optional, TypeVar, Union

from torchgrad_jax.futures import Future
from torchgrad_jax.jit import export, ignore, is_scripting, unused

# The names of old annotations.
Dict, List, Tuple = dict, list, tuple
BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = List

__all__ = [
    "Any", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "BroadcastingList4", "BroadcastingList5", "BroadcastingList6", "Dict",
    "Final", "Future", "List", "Optional", "Tuple", "Union", "boolean_dispatch", "export", "ignore", "is_scripting", "unused",
]  # fmt: skip

_F = TypeVar("_F", bound=Callable[..., Any])


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Callable[..., Any], if_false: Callable[..., Any], module_name: str, func_name: str
) -> Callable[..., Any]:
    """A function that calls `if_true` or `if_false`, as its argument `arg_name` (at `arg_index`) says, or `default` where it is not given."""

    @functools.wraps(if_true, assigned=("__doc__",), updated=())
    def chosen(*args: Any, **kwargs: Any) -> Any:
        flag = kwargs.get(arg_name, args[arg_index] if len(args) > arg_index else default)
        return (if_true if flag else if_false)(*args, **kwargs)

    chosen.__module__, chosen.__name__ = module_name or chosen.__module__, func_name or chosen.__name__
    return chosen


def _the_same(function: _F) -> _F:
    """The function itself."""
    return function


_overload = _overload_method = _copy_to_script_wrapper = _the_same
