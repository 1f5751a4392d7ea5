"""A function of tensors computed in every way that there is: by PyTorch, by plain JAX, and by this package eagerly, fused and by `jit`."""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from torchgrad_jax.comparing.derivatives import ORDERS, cotangents, derive, measured, tensor_like
from torchgrad_jax.comparing.figures import WIDER
from torchgrad_jax.lifting.jitting import jit
from torchgrad_jax.runtime.execution import execution_mode

PYTORCH, JAX = "pytorch", "jax"
OURS = ("eager", "fused", "jit")
# An argument as every library takes it: (dtype's name, elements), or a number of Python's.
Input = Any


class Outcome:
    """What one way gave. results: by order, as `derivatives.measured`; errors: of the orders that raised one, its text."""

    def __init__(self, results: dict[str, list[Any]], errors: dict[str, str]) -> None:
        self.results, self.errors = results, errors


def input_of(x: Any) -> Input:
    """An argument of the user's. TypeError for what is no tensor of PyTorch's or ours, array or number."""
    if isinstance(x, (bool, int, float, complex)):
        return x
    if isinstance(x, (np.ndarray, np.generic, jax.Array)):
        array = np.asarray(x)
        is_half = str(array.dtype) in ("bfloat16", "float16")
        return (str(array.dtype), np.array(array.astype(np.float32) if is_half else array))
    if hasattr(x, "detach") and hasattr(x, "dtype"):
        return (str(x.dtype).removeprefix("torch."), _elements(x))
    raise TypeError(f"compare takes tensors, arrays and numbers as inputs, but got a {type(x).__name__}")


def _elements(x: Any) -> np.ndarray:
    t = x.detach().cpu()
    name = str(t.dtype).removeprefix("torch.")
    t = t.float() if name in ("bfloat16", "float16") else t.resolve_conj().resolve_neg()
    return np.array(t.numpy())


def generated(shapes: Sequence[Sequence[int]], dtypes: Sequence[str], seed: int, sample: int = 0) -> list[Input]:
    """Random inputs. The samples after the first have numbers where mistakes hide: whole ones with zeros and ties, large ones, small ones."""
    draw = np.random.default_rng([seed, sample])
    return [_drawn(draw, tuple(shape), dtype, sample % 4) for shape, dtype in zip(shapes, dtypes, strict=True)]


def _drawn(draw: np.random.Generator, shape: tuple[int, ...], dtype: str, kind: int) -> Input:
    if dtype == "bool":
        return (dtype, draw.integers(0, 2, shape).astype(bool))
    if dtype in ("int8", "int16", "int32", "int64", "uint8"):
        return (dtype, draw.integers(0, 5, shape).astype(dtype))
    is_complex = dtype.startswith("complex")
    numbers = draw.standard_normal(shape) + (1j * draw.standard_normal(shape) if is_complex else 0)
    if kind == 1:
        numbers = np.round(2 * numbers)
    numbers = numbers * (1, 1, 100, 1e-3)[kind]
    return (dtype, np.asarray(numbers).astype("float32" if dtype in ("bfloat16", "float16") else dtype))


def tensors_of(torch: Any, inputs: Sequence[Input], differentiated: bool) -> list[Any]:
    """The inputs as tensors of a library; those that can have a gradient require one, if it is differentiated."""
    made = []
    for x in inputs:
        if isinstance(x, tuple):
            t = tensor_like(torch, x[1], getattr(torch, x[0]))
            x = t.requires_grad_(differentiated and (t.is_floating_point() or t.is_complex()))
        made.append(x)
    return made


def computed(torch: Any, function: Callable[..., Any], inputs: Sequence[Input], order: int, seed: int) -> Outcome:
    """What a function of tensors of the library `torch` gives, with as many of its derivatives as are asked for and there are.

    What the function itself raises passes.
    """
    errors: dict[str, str] = {}
    for n in range(order, -1, -1):
        torch.manual_seed(seed)
        leaves = tensors_of(torch, inputs, n > 0)
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        try:
            return Outcome(measured(torch, derive(torch, lambda: function(*leaves), tensors, n)), errors)  # noqa: B023 - called at once
        except (RuntimeError, NotImplementedError) as error:
            if n == 0:
                raise
            errors[ORDERS[n]] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    raise AssertionError("unreachable")


def widened(inputs: Sequence[Input]) -> list[Input] | None:
    """The inputs in the next wider dtypes; None where there is none wider."""
    if not any(isinstance(x, tuple) and x[0] in WIDER for x in inputs):
        return None
    return [(WIDER[x[0]], x[1].astype(WIDER[x[0]])) if isinstance(x, tuple) and x[0] in WIDER else x for x in inputs]


def ours(torch: Any, function: Callable[..., Any], inputs: Sequence[Input], order: int, seed: int, ways: Sequence[str] = OURS) -> dict[str, Outcome]:
    """What this package, `torch`, gives in each of the ways."""
    found = {}
    for way in ways:
        with execution_mode("eager" if way == "eager" else "fused"):
            if way != "jit":
                found[way] = computed(torch, function, inputs, order, seed)
            else:
                compiled, first = jit(function), min(order, 1)  # its gradients cannot be differentiated from outside
                computed(torch, compiled, inputs, first, seed)  # what is called a second time is run as one program
                found[way] = computed(torch, compiled, inputs, first, seed)
    return found


def through_jax(function: Callable[..., Any], inputs: Sequence[Input], order: int) -> Outcome:
    """What a function of JAX's arrays gives, with gradients in PyTorch's convention for complex numbers."""
    wide = any(isinstance(x, tuple) and x[0] in ("float64", "complex128", "int64") for x in inputs)
    with jax.enable_x64(True) if wide else contextlib.nullcontext():
        arrays = [jax.numpy.asarray(x[1], dtype=x[0]) if isinstance(x, tuple) else x for x in inputs]
        places = [i for i, a in enumerate(arrays) if isinstance(a, jax.Array) and jax.numpy.issubdtype(a.dtype, jax.numpy.inexact)]

        def of(*chosen: Any) -> list[Any]:
            full = list(arrays)
            for i, a in zip(places, chosen, strict=True):
                full[i] = a
            return jax.tree_util.tree_leaves(function(*full))

        chosen, last = [arrays[i] for i in places], of
        results = {ORDERS[0]: [_of_jax(x) for x in of(*chosen)]}
        for n in range(order if places else 0):
            last = _pullback(last, n)
            results[ORDERS[n + 1]] = [_of_jax(x) for x in last(*chosen)]
        return Outcome(results, {})


def _pullback(function: Callable[..., list[Any]], round: int) -> Callable[..., list[Any]]:
    def pulled(*chosen: Any) -> list[Any]:
        def inexact(*xs: Any) -> list[Any]:
            return [out for out in function(*xs) if jax.numpy.issubdtype(out.dtype, jax.numpy.inexact)]

        outs, back = jax.vjp(inexact, *chosen)
        given = cotangents([(out.shape, jax.numpy.iscomplexobj(out)) for out in outs], round)
        # PyTorch's gradient is the conjugate of JAX's.
        return [jax.numpy.conj(g) for g in back([jax.numpy.conj(jax.numpy.asarray(g, out.dtype)) for g, out in zip(given, outs, strict=True)])]

    return pulled


def _of_jax(x: Any) -> Any:
    array = np.asarray(x)
    name = str(array.dtype)
    return (name, array.astype(np.float32) if name in ("bfloat16", "float16") else array)


# ---------------------------------------------------------------------- which functions


def with_library(function: Callable[..., Any]) -> Callable[[Any], Callable[..., Any]]:
    """What gives the function of tensors for a library: `function` itself, which takes the library as its parameter `torch`, or calls nothing but
    operators and methods. TypeError for one that belongs to a library."""
    if not callable(function):
        raise TypeError(f"compare takes a function, but got a {type(function).__name__}")
    if takes_library(function):
        return lambda torch: lambda *inputs: function(torch, *inputs)
    code = getattr(function, "__code__", None)
    if code is not None:
        for name in _names(code):
            value = function.__globals__.get(name)
            if _belongs(value) is not None:
                raise TypeError(
                    f"{function.__name__} uses {name}, which belongs to {_belongs(value)}, so it cannot be run through another library. Let it take "
                    f"the library as its first parameter, def {function.__name__}(torch, ...), or compare it by: torchgrad-jax diff "
                    f"{function.__module__}:{function.__qualname__}"
                )
    return lambda torch: function


def takes_library(function: Callable[..., Any]) -> bool:
    """Whether its first parameter is called `torch`."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return False
    return names[:1] == ["torch"]


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _belongs(value: Any) -> str | None:
    home = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or type(value).__module__
    top = str(home).partition(".")[0]
    return {"torch": "torch", "torchgrad_jax": "torchgrad_jax"}.get(top)
