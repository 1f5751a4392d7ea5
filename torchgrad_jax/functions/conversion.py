"""From tensors to Python, NumPy and text, and between dtypes and devices."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from torchgrad_jax.calling.convention import convention
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.duals import seen_tangent
from torchgrad_jax.core.order import lay_out_as
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor, created
from torchgrad_jax.core.viewing import is_conj, is_neg
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions import formatting
from torchgrad_jax.functions.creation import from_data
from torchgrad_jax.functions.devices import move
from torchgrad_jax.functions.legacy import tensortype, type_named
from torchgrad_jax.memory.formats import preserve_format
from torchgrad_jax.operators.pointwise import cast_to
from torchgrad_jax.runtime.device import CPU, device, settled
from torchgrad_jax.runtime.device import device as device_type
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Lifted, is_tracer


@public("torch.Tensor")
def item(self: Tensor) -> Any:
    """The only element as a Python number. RuntimeError where there are more or none."""
    aval = self._aval
    if aval.size != 1:
        raise RuntimeError(f"a Tensor with {aval.size} elements cannot be converted to Scalar")
    return _number(self, "item")


def _number(self: Tensor, name: str) -> Any:
    return np.asarray(_content(self, name)).item()  # JAX's own `item` takes twice as long


def _content(self: Tensor, name: str) -> Any:
    """The content, for an operation that must know it now. RuntimeError inside of what is transformed: with PyTorch's text, or where JAX does it."""
    value = self._content()
    if isinstance(value.array, Lifted):
        return value.array.concrete(name)
    array = value.concrete()
    if type(array) is not np.ndarray and is_tracer(array):
        raise RuntimeError(
            f"{_ASKED.get(name, name)} needs the value of a Tensor, which has none while JAX traces the function that it is in: use torch.where or "
            "jax.lax.cond in place of `if`, and return what is to be looked at. (A Tensor from outside that was written to in there has none either.)"
        )
    return array


_ASKED = {"is_nonzero": "bool()", "item": "item()", "tolist": "tolist()", "numpy": "numpy()"}


@public("torch.Tensor")
def tolist(self: Tensor) -> Any:
    """The elements as nested lists of Python numbers."""
    return np.asarray(_content(self, "tolist")).tolist()


@public("torch.Tensor")
def numpy(self: Tensor, *, force: bool = False) -> np.ndarray:
    """A NumPy array of the content: a copy that can be written to. RuntimeError for a tensor that requires grad while graphs are recorded."""
    return np.array(_on_host(self, force))


def _on_host(self: Tensor, force: bool) -> np.ndarray:
    """The content as a NumPy array, which must not be written to."""
    if self.requires_grad and not force and per_thread.recorder.grad_enabled:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if self.device.type != "cpu" and not force:
        raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.")
    if self._view is not None and not force:
        _refuse_turned(self)
    return np.asarray(_content(self, "numpy"))


def _refuse_turned(t: Tensor) -> None:
    for what, turned, resolve in (("conjugate", is_conj, "resolve_conj"), ("negative", is_neg, "resolve_neg")):
        if turned(t):
            raise RuntimeError(f"Can't call numpy() on Tensor that has {what} bit set. Use tensor.{resolve}().numpy() instead.")


@public("torch.Tensor")
def __array__(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    """A NumPy array of the content: a copy that can be written to; with ``copy=False`` one without a copy, which cannot, and which later writes to
    the tensor do not change. ValueError where it would have another dtype."""
    if copy is False:
        array = _on_host(self, False).view()
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
def __bool__(self: Tensor) -> bool:
    size = self._aval.size
    if size != 1:
        what = "no values" if size == 0 else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {what} is ambiguous")
    return bool(_number(self, "is_nonzero"))


def _only_element(self: Tensor) -> Any:
    if self._aval.size != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    return _number(self, "item")


@public("torch.Tensor")
def __float__(self: Tensor) -> float:
    found = _only_element(self)
    if isinstance(found, complex):
        if found.imag:
            raise RuntimeError("value cannot be converted to type double without overflow")
        found = found.real
    return float(found)


@public("torch.Tensor")
def __int__(self: Tensor) -> int:
    found = _only_element(self)
    if isinstance(found, complex):
        if found.imag:
            raise RuntimeError("value cannot be converted to type int64_t without overflow")
        found = found.real
    return int(found)


@public("torch.Tensor")
def __complex__(self: Tensor) -> complex:
    return complex(_only_element(self))


@public("torch.Tensor")
def __index__(self: Tensor) -> int:
    if self._aval.size != 1 or self._aval.dtype.kind not in "iub":
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(item(self))


@public("torch.Tensor")
def __format__(self: Tensor, spec: str) -> str:
    return format(item(self), spec) if self._aval.ndim == 0 else object.__format__(self, spec)


@public("torch.Tensor")
def __repr__(self: Tensor) -> str:
    held = self._content().array
    if isinstance(held, Lifted):
        return held.shown()
    if is_tracer(held):
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
    plain = type(self) is Tensor or type(self) is Parameter
    text = formatting.tensor_str(
        np.asarray(_content(self, "is_nonzero")),
        prefix="tensor(" if plain else f"{type(self).__name__}(",
        requires_grad=self.requires_grad,
        grad_fn_name=made_by,
        device_suffix=None if where is CPU else f"device='{where}'",
        tangent=None if tangent is None else repr(tangent),
        default_dtype=dtypes.get_default_dtype().name,
    )
    return text if plain or not isinstance(self, Parameter) else f"Parameter({text})"


# ---------------------------------------------------------------------- dtype and device


def cast(self: Tensor, dtype: dtypes.dtype) -> Tensor:
    """The tensor as `dtype`: itself if it is that already."""
    if self._aval.dtype == dtype.np:
        return self
    return apply(cast_to(dtype.np), (self,))


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
        return f"torch.{'cuda.' if self.is_cuda else ''}{self.dtype.title}Tensor"
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
    """The tensor on a GPU, by default the current one. Every copy is asynchronous, whatever `non_blocking` says."""
    return move(self, settled(device_type("cuda" if device is None else device)))
