"""Samples put together to a batch, and NumPy arrays in a sample turned into tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.calling.overrides import guarded
from torchgrad_jax.core.made import created
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.arrays import as_tensor
from torchgrad_jax.functions.creation import tensor
from torchgrad_jax.functions.shaping import stack
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import constant

CollateMap = dict[type | tuple[type, ...], Callable[..., Any]]

default_collate_err_msg_format = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"

# The one that users call, which asks subclasses of Tensor.
_stack = guarded("torch", {"stack": stack})["stack"]


def as_constant(array: np.ndarray) -> Tensor:
    """A tensor that holds an array which nobody else writes to."""
    array.flags.writeable = False
    return created(constant(array))


# ---------------------------------------------------------------------- a batch of samples


def collate(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """A batch of samples as one object of their structure.

    collate_fn_map: what is done with samples of a type, or of several: of their own if there is one, else of the first that they are instances of.
    Mappings, named tuples and other sequences are gone through; a plain tuple becomes a list.
    RuntimeError for sequences of unequal lengths; TypeError for what is none of these.
    """
    first = batch[0]
    kind = type(first)
    found = _function_for(kind, collate_fn_map or {})
    if found is not None:
        return found(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        return rebuilt_mapping(first, {key: collate([sample[key] for sample in batch], collate_fn_map=collate_fn_map) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*[collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=False)])
    if isinstance(first, Sequence):
        size = len(first)
        if not all(len(sample) == size for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=True)]
        return columns if isinstance(first, tuple) else rebuilt_sequence(first, columns)
    raise TypeError(default_collate_err_msg_format.format(kind))


def _function_for(kind: type, functions: CollateMap) -> Callable[..., Any] | None:
    if kind in functions:
        return functions[kind]
    return next((function for kinds, function in functions.items() if issubclass(kind, kinds)), None)


def rebuilt_mapping(like: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """A mapping of the class of `like`, with what else that has, or a dict where the class cannot be made of one."""
    try:
        if isinstance(like, MutableMapping):
            made = copy.copy(like)
            made.update(items)
            return made
        return type(like)(items)  # type: ignore[call-arg] - the class is the user's
    except TypeError:
        return items


def rebuilt_sequence(like: Sequence[Any], items: list[Any]) -> Any:
    """A sequence of the class of `like`, or a list where the class cannot be made of one."""
    try:
        if isinstance(like, MutableSequence):
            made = copy.copy(like)
            for i, item in enumerate(items):
                made[i] = item
            return made
        return type(like)(items)  # type: ignore[call-arg] - the class is the user's
    except TypeError:
        return items


# ---------------------------------------------------------------------- the functions by type


def collate_tensor_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """The tensors along a new first dimension. Where all of them are on the host already that is done at once, else recorded."""
    arrays = _at_hand(batch)
    return _stack(batch, 0) if arrays is None else as_constant(np.stack(arrays))


def _at_hand(batch: Any) -> list[np.ndarray] | None:
    """The contents of plain tensors of one shape and dtype that nothing is recorded of; None if there is anything else among them."""
    if not isinstance(batch, (list, tuple)) or per_thread.recorder.rare:
        return None
    found = []
    for t in batch:
        if type(t) is not Tensor or t.requires_grad or t._aval is not batch[0]._aval:
            return None
        array = t._content().at_hand()
        if array is None:
            return None
        found.append(array)
    return found


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """The arrays as a tensor, along a new first dimension. TypeError for arrays of strings and objects."""
    first = batch[0]
    if first.dtype.kind in "SUOamM":
        raise TypeError(default_collate_err_msg_format.format(first.dtype))
    if all(type(a) is np.ndarray and a.dtype == first.dtype and a.shape == first.shape for a in batch) and _has_dtype(first):
        return as_constant(np.stack(batch))
    return collate([as_tensor(a) for a in batch], collate_fn_map=collate_fn_map)


def _has_dtype(array: np.ndarray) -> bool:
    if not array.dtype.isnative:
        return False
    try:
        dtypes.of(array.dtype)
    except TypeError:
        return False
    return True


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """NumPy's numbers as a tensor."""
    return as_tensor(batch)


def collate_float_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """Floats as a tensor of float64."""
    return tensor(batch, dtype=dtypes.of(np.dtype(np.float64)))


def collate_int_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """Integers as a tensor."""
    return tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """Strings as they are."""
    return batch


default_collate_fn_map: CollateMap = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def default_collate(batch: Any) -> Any:
    """Samples as one batch: tensors, NumPy arrays and numbers along a new first dimension, strings in a list, what contains them gone through.

    What other types become is said by `default_collate_fn_map`, which may be changed in place. TypeError for what is not in it, RuntimeError where
    samples do not fit together.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


# ---------------------------------------------------------------------- a sample by itself


def default_convert(data: Any) -> Any:
    """A sample with its NumPy arrays and numbers as tensors; mappings, named tuples and sequences are gone through (a tuple becomes a list), all else
    stays as it is."""
    kind = type(data)
    if isinstance(data, Tensor):
        return data
    if isinstance(data, (np.ndarray, np.generic)) and not isinstance(data, (str, bytes)):
        return data if data.dtype.kind in "SUOamM" else as_tensor(data)
    if isinstance(data, Mapping):
        return rebuilt_mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return kind(*[default_convert(item) for item in data])
    if isinstance(data, tuple):
        return [default_convert(item) for item in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return rebuilt_sequence(data, [default_convert(item) for item in data])
    return data
