"""Between PyTorch and torchgrad_jax: values carried from one library to the other, and PyTorch's Python functions made to call ours."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch

import torchgrad_jax as tj

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def array_of(t: Any) -> np.ndarray:
    """The content of a tensor of either library, copied."""
    if isinstance(t, tj.Tensor):
        return np.array(t.detach()._concrete())
    t = torch.zeros(t.shape, dtype=t.dtype) if t._is_zerotensor() else t.detach().resolve_conj().resolve_neg()
    if t.dtype == torch.bfloat16:
        return t.contiguous().view(torch.int16).numpy().view(_BFLOAT16).copy()
    return t.numpy().copy()


def ours(value: Any) -> Any:
    """A value of PyTorch's as one of ours: tensors as leaves that require grad alike, dtypes, devices, formats; containers of such."""
    if isinstance(value, torch.Tensor):
        return tj.tensor(array_of(value)).requires_grad_(value.requires_grad)
    if isinstance(value, torch.dtype | torch.memory_format):
        return getattr(tj, str(value).removeprefix("torch."))
    if isinstance(value, torch.layout):
        return getattr(tj, str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return tj.device(str(value))
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, slice):
        return slice(*map(ours, (value.start, value.stop, value.step)))
    if isinstance(value, list | tuple):
        return type(value)(map(ours, value)) if not hasattr(value, "_fields") else type(value)(*map(ours, value))
    if isinstance(value, dict):
        return {k: ours(v) for k, v in value.items()}
    if isinstance(value, types.FunctionType):
        return rebound(value)
    if isinstance(value, torch.nn.PairwiseDistance):
        return lambda x, y: tj.nn.functional.pairwise_distance(x, y, value.norm, value.eps, value.keepdim)
    return value


def ours_alike(value: Any) -> Any:
    """As `ours`, with tensors that have memory in common, or are no row-major order of theirs, as views of one tensor of ours, and each once."""
    memory: dict[int, Any] = {}
    found: list[torch.Tensor] = []
    known: dict[int, Any] = {}

    def shared(v: torch.Tensor) -> bool:
        if v.requires_grad or not v.numel() or v.layout != torch.strided:
            return False
        return not v.is_contiguous() or sum(t.untyped_storage().data_ptr() == v.untyped_storage().data_ptr() for t in found) > 1

    def walk(v: Any, of_tensor: Any) -> Any:
        if isinstance(v, torch.Tensor):
            return of_tensor(v)
        if isinstance(v, list | tuple) and not hasattr(v, "_fields"):
            return type(v)([walk(x, of_tensor) for x in v])
        return {k: walk(x, of_tensor) for k, x in v.items()} if isinstance(v, dict) else ours(v)

    def carried(v: torch.Tensor) -> Any:
        if not shared(v):
            return known.setdefault(id(v), ours(v))
        storage = v.untyped_storage()
        base = memory.setdefault(storage.data_ptr(), None)
        if base is None:
            base = memory[storage.data_ptr()] = ours(torch.tensor([], dtype=v.dtype).set_(storage))
        return base.as_strided(tuple(v.shape), v.stride(), v.storage_offset())

    walk(value, found.append)
    return walk(value, carried)


def rebound(function: Any, made: dict[Any, Any] | None = None) -> Any:
    """A Python function written for PyTorch, with our library where its module or its closure names PyTorch. `made` has the functions that
    were rebound on the way to this one: functions may call each other."""
    if not isinstance(function, types.FunctionType) or (function.__module__ or "").startswith(tj.__name__):
        return function
    made = {} if made is None else made
    if function in made:
        return made[function]
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    found = made[function] = types.FunctionType(function.__code__, {**function.__globals__}, function.__name__, function.__defaults__, cells)
    found.__kwdefaults__ = function.__kwdefaults__
    for name, value in function.__globals__.items():
        if isinstance(value, types.ModuleType):
            found.__globals__[name] = _library(value)
        elif name in function.__code__.co_names and isinstance(value, types.FunctionType) and _calls_the_library(value, function):
            found.__globals__[name] = rebound(value, made)
    for cell, original in zip(cells, function.__closure__ or (), strict=True):
        cell.cell_contents = _ours_in_cell(original.cell_contents, made)
    return found


def _calls_the_library(helper: types.FunctionType, function: types.FunctionType) -> bool:
    """Whether a helper is rebound with the function that calls it: one of its own module, or one that seeds the generator."""
    return helper.__module__ == function.__module__ or helper.__module__.startswith("torch.testing.")


def _ours_in_cell(value: Any, made: dict[Any, Any]) -> Any:
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType) and (value.__module__ or "").split(".")[0] == "torch":
        return named(f"{value.__module__.removeprefix('torch').lstrip('.')}.{value.__name__}".lstrip("."), value)
    return rebound(value, made) if isinstance(value, types.FunctionType) else ours(value)


def _library(module: types.ModuleType) -> Any:
    if module.__name__ == "torch":
        return tj
    if module.__name__.startswith("torch."):
        return named(module.__name__.removeprefix("torch."), module)
    return module


def named(path: str, otherwise: Any = None) -> Any:
    """What our library has under a dotted name; `otherwise` where it has nothing."""
    found: Any = tj
    for part in path.split("."):
        found = getattr(found, part, None)
        if found is None:
            return otherwise
    return found


def call(function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The call's result, or the exception that it raised."""
    try:
        return function(*arguments, **keywords)
    except Exception as error:
        return error
