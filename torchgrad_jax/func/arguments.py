"""What the transforms that differentiate ask of arguments and results: which arguments, tensors only, what is auxiliary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torchgrad_jax.autograd.grad_mode import inference_mode, is_inference_mode_enabled, no_grad
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.lifting.trees import tree_leaves, tree_map
from torchgrad_jax.runtime.recorder import per_thread

ArgNums = int | tuple[int, ...]


def checked_argnums(argnums: Any, count: int) -> ArgNums:
    """Which of `count` positional arguments are meant, counted from the front. RuntimeError where there are no such."""
    if isinstance(argnums, int):
        return _checked(argnums, count)
    if not isinstance(argnums, tuple):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    if not argnums:
        raise RuntimeError("argnums must be non-empty")
    found = tuple(_checked(argnum, count) for argnum in argnums)
    if len(set(found)) != len(found):
        raise RuntimeError(f"argnums elements must be unique, got {found}")
    return found


def _checked(argnum: Any, count: int) -> int:
    if not isinstance(argnum, int):
        raise RuntimeError(f"argnum must be int, got: {type(argnum)}")
    if not -count <= argnum < count:
        raise RuntimeError(f"Got argnum={argnum}, but only {count} positional inputs")
    return argnum % count


def chosen(args: tuple[Any, ...], argnums: ArgNums) -> Any:
    """The argument that `argnums` names, or a tuple of those."""
    return args[argnums] if isinstance(argnums, int) else tuple(args[i] for i in argnums)


def of_chosen(func: Callable[..., Any], args: tuple[Any, ...], argnums: ArgNums) -> Callable[..., Any]:
    """`func` as a function of the chosen arguments alone. The others are given to the level in which it is called: they may be written to."""
    places = (argnums,) if isinstance(argnums, int) else argnums

    def function(*values: Any) -> Any:
        level: Any = per_thread.recorder.level

        def given(t: Tensor) -> Tensor:
            return level.argument(level.lift(t), t)

        filled = [a if i in places else map_tensors(given, a) for i, a in enumerate(args)]
        for place, value in zip(places, values, strict=True):
            filled[place] = value
        return func(*filled)

    return function


def differentiating() -> AbstractContextManager[Any]:
    """Inside of inference mode too, what a transform differentiates has a graph and tangents."""
    return _out_of_inference() if is_inference_mode_enabled() else nullcontext()


@contextmanager
def _out_of_inference() -> Iterator[None]:
    """Levels may have graphs, and what is outside of them has none."""
    flags = per_thread.recorder.flags
    with inference_mode(False), no_grad():
        before, flags.around_inference = flags.around_inference, True
        try:
            yield
        finally:
            flags.around_inference = before


def map_tensors(func: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """The tree with `func` of each tensor; what is none stays as it is."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, Tensor) else leaf, tree)


def differentiable_leaves(tree: Any) -> list[Tensor]:
    """The leaves of the tree. ValueError where one is no tensor, RuntimeError where it has no floating point or complex dtype."""
    leaves = tree_leaves(tree)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(leaf)}")
        if not (leaf.is_floating_point() or leaf.is_complex()):
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
    return leaves


def split_aux(transform: str, function: str, found: Any) -> tuple[Any, Any]:
    """What a function returned under `has_aux`. RuntimeError where it is no pair."""
    if not (isinstance(found, tuple) and len(found) == 2):
        raise RuntimeError(f"{transform}: output of function {function} should be a tuple: (output, aux) if has_aux is True")
    return found


def map_aux(func: Callable[[Tensor], Tensor], aux: Any) -> Any:
    """The auxiliary results with `func` of each tensor. RuntimeError where one is no tensor."""
    for leaf in tree_leaves(aux):
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"Expected tensors, got unsupported type {type(leaf)}")
    return tree_map(func, aux)


def check_outputs(transform: str, outs: list[Any]) -> None:
    """RuntimeError where a function returned nothing, or not only tensors."""
    if not outs or (len(outs) == 1 and outs[0] is None):
        raise RuntimeError(f"{transform}: Expected f to be a function that has non-empty output (got output = {outs})")
    for out in outs:
        if not isinstance(out, Tensor):
            raise RuntimeError(f"{transform}: expected f(*primals) to return only tensors, got unsupported type {type(out)}")


def refuse_complex(transform: str, what: str, leaves: list[Tensor]) -> None:
    """RuntimeError where a Jacobian would be one of complex numbers."""
    for i, leaf in enumerate(leaves):
        if leaf.is_complex():
            raise RuntimeError(f"{transform}: Expected all {what} to be real but received complex tensor at flattened input idx: {i}")
