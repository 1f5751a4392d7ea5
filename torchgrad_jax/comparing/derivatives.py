"""A function's values, gradients and second derivatives, by the means that both libraries have."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.comparing.figures import array_of

# What is measured, in the order in which one makes the other.
ORDERS = ("value", "gradient", "second derivative")


def leaves_of(torch: Any, result: Any) -> Iterator[Any]:
    """The tensors and Python numbers in a result, which may be a tensor, a number, or containers of them; None where a result has a gap."""
    if isinstance(result, torch.Tensor) or result is None or isinstance(result, (bool, int, float, complex)):
        yield result
    elif isinstance(result, dict):
        for value in result.values():
            yield from leaves_of(torch, value)
    elif isinstance(result, (list, tuple)):
        for value in result:
            yield from leaves_of(torch, value)


def can_have_gradient(torch: Any, x: Any) -> bool:
    """Whether it is a tensor of real or complex numbers."""
    return isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex())


def cotangents(shapes: Sequence[tuple[tuple[int, ...], bool]], round: int) -> list[np.ndarray]:
    """Numbers to multiply results with, the same wherever this is called. shapes: with each whether it is of complex numbers."""
    draw = np.random.default_rng([14, round])
    made = []
    for shape, is_complex in shapes:
        numbers = draw.standard_normal(shape)
        made.append(numbers + 1j * draw.standard_normal(shape) if is_complex else numbers)
    return made


def tensor_like(torch: Any, array: np.ndarray, dtype: Any) -> Any:
    """A tensor of these elements in a dtype."""
    return torch.tensor(np.asarray(array)).to(dtype)


def _pulled(torch: Any, outs: list[Any], inputs: list[Any], round: int, create_graph: bool) -> list[Any]:
    """The gradients of `inputs` for `cotangents` of the outputs."""
    used = [out for out in outs if can_have_gradient(torch, out) and out.requires_grad]
    if not used or not inputs:
        return [None] * len(inputs)
    given = cotangents([(tuple(out.shape), out.is_complex()) for out in used], round)
    given = [tensor_like(torch, g, out.dtype) for g, out in zip(given, used, strict=True)]
    return list(torch.autograd.grad(used, inputs, given, create_graph=create_graph, allow_unused=True))


def derive(torch: Any, function: Callable[[], Any], inputs: list[Any], order: int = 1) -> dict[str, list[Any]]:
    """What `function` returns, the gradients of `inputs` in it, and of those once more: by the names of `ORDERS`, as lists of tensors, numbers, None.

    inputs: the leaves that it computes with. order: how often it is differentiated.
    """
    found = {"value": list(leaves_of(torch, function()))}
    sources = [x for x in inputs if x.requires_grad]
    last = found["value"]
    for n in range(order):
        last = _pulled(torch, last, sources, n, create_graph=n + 1 < order)
        found[ORDERS[n + 1]] = last
    return found


def measured(torch: Any, found: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The same with arrays in place of tensors, each as (dtype's name, array); None stays None."""
    return {order: [_measured(torch, x) for x in results] for order, results in found.items()}


def _measured(torch: Any, x: Any) -> Any:
    if x is None:
        return None
    if not isinstance(x, torch.Tensor):
        return (type(x).__name__, np.asarray(x))
    return (str(x.dtype).removeprefix("torch."), array_of(torch, x))


@contextlib.contextmanager
def on_the_side(torch: Any, state: Any = None) -> Iterator[None]:
    """In the block gradients are recorded, whatever the program has switched off, and random numbers are drawn as they were at `state`; after it the
    program draws as if the block had not been."""
    before = torch.get_rng_state()
    if state is not None:
        torch.set_rng_state(state)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_rng_state(before)
