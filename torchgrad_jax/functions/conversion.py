"""From tensors to NumPy and text, between dtypes and devices; what type promotion will do. (What loops ask of tensors is in `looking.py`.)"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from torchgrad_jax.calling.convention import convention
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.duals import seen_tangent
from torchgrad_jax.core.made import created
from torchgrad_jax.core.order import lay_out_as
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import warn_of_lost_parts
from torchgrad_jax.declaration import dtypes, promotion
from torchgrad_jax.declaration.operator import NUMBERS
from torchgrad_jax.functions import formatting
from torchgrad_jax.functions.creation import from_data
from torchgrad_jax.functions.devices import move
from torchgrad_jax.functions.legacy import tensortype, type_named
from torchgrad_jax.functions.looking import content, item, numpy, on_host
from torchgrad_jax.memory.formats import preserve_format
from torchgrad_jax.operators.pointwise import cast_to
from torchgrad_jax.runtime.device import CPU, device, settled
from torchgrad_jax.runtime.device import device as device_type
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Contentless, Lifted, is_tracer


@public("torch.Tensor")
def __array__(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    """A NumPy array of the content: a copy that can be written to; with ``copy=False`` one without a copy, which cannot, and which later writes to
    the tensor do not change. ValueError where it would have another dtype."""
    if copy is False:
        array = on_host(self, False).view()
        if dtype is not None and array.dtype != dtype:
            raise ValueError("Unable to avoid copy while creating an array as requested: it is to have another dtype.")
        array.flags.writeable = False
        return array
    array = numpy(self)
    return array if dtype is None else array.astype(dtype, copy=False)


@public("torch.Tensor")
def __array_wrap__(self: Tensor, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Tensor:
    """What a function of NumPy computed from this tensor and others, as a tensor."""
    return created(from_data(np.asarray(array), None, CPU))


@public("torch.Tensor")
def __format__(self: Tensor, spec: str) -> str:
    return format(item(self), spec) if self._aval.ndim == 0 and not self.is_meta and type(self) is Tensor else object.__format__(self, spec)


@public("torch.Tensor")
def __repr__(self: Tensor) -> str:
    held = self._content().array
    if isinstance(held, Lifted) and type(held) is not Contentless:
        return held.shown()
    if is_tracer(held) and type(held) is not Contentless:
        return f"tensor(traced by JAX, size={tuple(self._aval.shape)}, dtype={self.dtype})"
    where = self.device
    try:
        node = self.grad_fn
        made_by = None if node is None else type(node).__name__
    except RuntimeError:  # autograd cannot follow what became of the view
        made_by = "Invalid"
    tangent = None
    if self._extra is not None and self._extra.tangent is not None:
        tangent = seen_tangent(self)
    plain, shown = type(self) is Tensor or type(self) is Parameter, type(held) is not Contentless
    text = formatting.tensor_str(
        np.asarray(content(self, "is_nonzero")) if shown else stand_in(self._aval.shape, self._aval.dtype),
        elements=shown,
        prefix="tensor(" if plain else f"{type(self).__name__}(",
        requires_grad=self.requires_grad,
        grad_fn_name=made_by,
        device_suffix=None if where is CPU else f"device='{where}'",
        tangent=None if tangent is None else format(tangent) if tangent._content().readable else repr(tangent),
        default_dtype=dtypes.get_default_dtype().name,
    )
    return text if plain or not isinstance(self, Parameter) else f"Parameter({text})"


# ---------------------------------------------------------------------- dtype and device


def cast(self: Tensor, dtype: dtypes.dtype) -> Tensor:
    """The tensor as `dtype`: itself if it is that already. Warns once where imaginary parts are lost."""
    if self._aval.dtype == dtype.np:
        return self
    warn_of_lost_parts(self._aval.dtype, dtype.np)
    return apply(cast_to(dtype.np), (self,))


_TYPES = {"cuda": "cuda.", "meta": "meta."}  # of devices, in the names of types of tensors
_convention = functools.cache(convention)


def parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[device | None, dtypes.dtype | None, bool, Any]:
    """What the arguments of ``to`` mean: the device, the dtype, whether a move may be asynchronous, and the memory format. TypeError with PyTorch's
    text where they mean nothing, RuntimeError for `copy`, which modules do not have."""
    convention = _convention("torch.Tensor.to")
    assert convention is not None
    _, found = convention.meant(args, kwargs)
    if found.get("copy"):
        raise RuntimeError(".to() does not accept copy argument")
    where, dtype, like = found.get("device"), found.get("dtype"), found.get("tensor")
    if like is not None:
        where, dtype = like.device, like.dtype
    return None if where is None else device(where), dtype, found.get("non_blocking", False), found.get("memory_format")


@public("torch.Tensor")
def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Another dtype, device, or both: ``to(dtype)``, ``to(device)``, ``to(device, dtype)``, ``to(other)``; `copy=True` always copies, `non_blocking`
    changes nothing."""
    dtype, where, force = kwargs.pop("dtype", None), kwargs.pop("device", None), kwargs.pop("copy", False)
    kwargs.pop("non_blocking", None)  # every copy is asynchronous
    layout = kwargs.pop("memory_format", None)
    if "tensor" in kwargs:
        args = (kwargs.pop("tensor"), *args)
    if kwargs or not (dtype is None or isinstance(dtype, dtypes.dtype)):
        given = {"dtype": dtype, **kwargs}
        named = [f"{name}={type(v).__name__}" for name, v in given.items() if v is not None]
        raise TypeError(f"to() received an invalid combination of arguments - got ({', '.join([*(type(x).__name__ for x in args), *named])})")
    flags = []
    for i, a in enumerate(args):
        if isinstance(a, dtypes.dtype):
            dtype = a
        elif isinstance(a, Tensor):
            dtype, where = a.dtype, a.device
        elif isinstance(a, (str, device)) or (isinstance(a, int) and not isinstance(a, bool) and i == 0):
            where = a
        elif isinstance(a, bool):
            flags.append(a)  # non_blocking, copy
        elif a is not None:
            raise TypeError(f"to() received an invalid combination of arguments - got ({', '.join(type(x).__name__ for x in args)})")
    force = flags[1] if len(flags) > 1 else force
    found = self
    if where is not None:
        found = move(found, settled(device(where)))
    if dtype is not None:
        found = cast(found, dtype)
    in_place = layout is None or layout is preserve_format or self.is_contiguous(memory_format=layout)
    if found is self and (force or not in_place):  # PyTorch's node, and its name, is that of a conversion
        found = apply(cast_to(self._aval.dtype), (self,))
    return found if found is self or layout is None else lay_out_as(found, layout)


@public("torch.Tensor.type")
def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """The tensor's type as text, or the tensor as another dtype; on a GPU or on the host where the type given says so. `Tensor` means the default
    dtype. Every copy is asynchronous, whatever `non_blocking` says."""
    if kwargs:
        raise TypeError(f"type() got an unexpected keyword argument '{next(iter(kwargs))}'")
    if dtype is None:
        return f"torch.{_TYPES.get(self.device.type, '')}{self.dtype.title}Tensor"
    on_gpu = self.is_cuda
    if isinstance(dtype, str):
        dtype, on_gpu = type_named(dtype)
    elif dtype is Tensor:
        dtype, on_gpu = type_named("torch.Tensor")
    elif isinstance(dtype, tensortype):
        dtype, on_gpu = dtype.dtype, dtype.is_cuda
    elif isinstance(dtype, type):
        raise ValueError(f"invalid type: '{dtype.__name__}'")
    elif not isinstance(dtype, dtypes.dtype):
        raise TypeError("dtype must be a type, str, or dtype object")
    if on_gpu != self.is_cuda:
        self = move(self, settled(device_type("cuda")) if on_gpu else CPU)
    return cast(self, dtype)


@public("torch.Tensor")
def cpu(self: Tensor) -> Tensor:
    """The tensor on the host."""
    return move(self, CPU)


@public("torch.Tensor")
def cuda(self: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    """The tensor on a GPU, by default the current one. Every copy is asynchronous, whatever `non_blocking` says.

    RuntimeError for a device of another type.
    """
    chosen = device_type("cuda" if device is None else device)
    if chosen.type != "cuda":
        raise RuntimeError("Invalid device, must be cuda device")
    return move(self, settled(chosen))


# ---------------------------------------------------------------------- what type promotion will do


@public("torch")
def result_type(tensor: Any, other: Any) -> dtypes.dtype:
    """The dtype that an operation of two tensors or numbers has. TypeError for anything else."""
    for operand in (tensor, other):
        if not isinstance(operand, (Tensor, *NUMBERS)):
            given = ", ".join(type(o).__name__ for o in (tensor, other))
            raise TypeError(f"result_type() received an invalid combination of arguments - got ({given}), but expected two tensors or numbers")
    return dtypes.of(promotion.result_type([o._aval if isinstance(o, Tensor) else type(o) for o in (tensor, other)]))


@public("torch")
def promote_types(type1: dtypes.dtype, type2: dtypes.dtype) -> dtypes.dtype:
    """The smallest dtype that both convert to. TypeError for what is no dtype."""
    _check_dtypes("promote_types", type1=type1, type2=type2)
    return dtypes.of(promotion.promote_types(type1.np, type2.np))


@public("torch")
def can_cast(from_: dtypes.dtype, to: dtypes.dtype) -> bool:
    """Whether an in-place operation may put a result of one dtype into a tensor of the other. TypeError for what is no dtype."""
    _check_dtypes("can_cast", from_=from_, to=to)
    return promotion.can_cast(from_.np, to.np)


def _check_dtypes(function: str, **given: Any) -> None:
    for position, (name, value) in enumerate(given.items(), 1):
        if not isinstance(value, dtypes.dtype):
            raise TypeError(f"{function}(): argument '{name}' (position {position}) must be torch.dtype, not {type(value).__name__}")
