"""Tensors from Python and NumPy data, and from a shape alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from torchgrad_jax.calling.expecting import not_a_tensor
from torchgrad_jax.calling.factory_options import check_memory, check_options, dtype_alone, sizes_alone
from torchgrad_jax.calling.out import write_out
from torchgrad_jax.calling.public import public
from torchgrad_jax.calling.sequences import check_leaves, check_lengths, first_leaf, has_float, lengths
from torchgrad_jax.core.level import by_parts, mapped_as
from torchgrad_jax.core.made import created
from torchgrad_jax.core.order import keep_order, lay_out_as, plain
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes, promotion
from torchgrad_jax.declaration.converting import convert
from torchgrad_jax.declaration.operator import NUMBERS
from torchgrad_jax.memory.filled import full_value
from torchgrad_jax.memory.formats import preserve_format
from torchgrad_jax.operators.kernels.spacing import evenly_spaced
from torchgrad_jax.runtime import device as devices
from torchgrad_jax.runtime.device import CPU, settled
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.user_code import warn_once, warn_user
from torchgrad_jax.runtime.value import Value, aval_of, constant, is_tracer


def set_default_device(device: Any) -> None:
    """The device of tensors made without `device=`; None is the host. An error where JAX has none such comes when it is used."""
    devices.set_default(CPU if device is None else devices.device(device))


def get_default_device() -> devices.device:
    """The device of tensors made without `device=`."""
    return devices.default()


def as_device(where: Any) -> devices.device:
    """`device=` of a factory as the device that its tensor is on."""
    return settled(devices.default() if where is None else devices.device(where))


# ---------------------------------------------------------------------- from data


def from_data(data: Any, dtype: dtypes.dtype | None, where: Any) -> Value:
    """A constant Value of Python or NumPy data, copied: later writes to `data` do not show. A tracer of JAX's is taken as it is."""
    if is_tracer(data):
        return constant(data if dtype is None else convert(data, checked_dtype("tensor", dtype).np))
    if type(data) is list and {*map(type, data)} == {float}:  # a third of what asking for anything else takes
        array = np.array(data)
    else:
        if isinstance(data, (list, tuple)):
            data, found = _without_tensors(data)
            if found and dtype is None:
                dtype = dtypes.of(reduce(promotion.promote_types, found))
        array = _to_numpy(data)
    if array.dtype == object and not isinstance(data, np.ndarray):
        if dtype is None or np.dtype(checked_dtype("tensor", dtype).np).kind in "iu":
            raise ValueError("Overflow when unpacking long long")
        array = array.astype(np.float64)
    if dtype is not None:
        array = _as_dtype(array, data, checked_dtype("tensor", dtype).np)
    elif not hasattr(data, "__array__"):  # arrays of any library keep their dtype
        with np.errstate(over="ignore"):  # 1e40 is infinite in float32
            array = array.astype(_python_dtype(array, data), copy=False)
    dtypes.of(array.dtype)
    if array is data or array.base is not None or not array.flags.c_contiguous:
        array = np.array(array, order="C")
    return constant(array, aval_of(array.shape, array.dtype, as_device(where)))


def holding(array: np.ndarray, like: Tensor) -> Tensor:
    """A tensor without history, where `like` is, of an array that nobody else writes to."""
    array = array if array.flags.c_contiguous and array.base is None else np.array(array, order="C")
    return created(constant(array, aval_of(array.shape, array.dtype, like._aval.device)))


def checked_dtype(name: str, dtype: Any) -> dtypes.dtype:
    if isinstance(dtype, dtypes.dtype):
        return dtype
    found = dtypes.PYTHON.get(dtype) if isinstance(dtype, type) else None
    if found is None:
        raise TypeError(f"{name}(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")
    return found


def _as_dtype(array: np.ndarray, data: Any, target: np.dtype) -> np.ndarray:
    """The array as `target`. RuntimeError, TypeError where a Python number does not fit."""
    if not isinstance(data, (np.ndarray, np.generic, Tensor)):
        if array.dtype.kind == "c" and target.kind not in "cb":
            raise TypeError("must be real number, not complex" if target.kind != "i" else "'complex' object cannot be interpreted as an integer")
        if target.kind in "iu" and array.size and array.dtype.kind in "iuf" and not _fits(array, np.iinfo(target)):
            raise RuntimeError(f"value cannot be converted to type {target.name} without overflow")
    with np.errstate(over="ignore"):
        return array.astype(target)


def _fits(array: np.ndarray, bounds: np.iinfo) -> bool:
    """Whether numbers are within the bounds of a dtype of integers. PyTorch lets negative integers wrap around in uint8."""
    if array.dtype.kind == "f":
        return bool(array.min() >= bounds.min and array.max() <= float(bounds.max))  # not where there is a NaN
    return int(array.max()) <= bounds.max and int(array.min()) >= (bounds.min or -bounds.max)


def _to_numpy(data: Any) -> np.ndarray:
    if isinstance(data, np.ndarray):
        return data
    if isinstance(data, Tensor):
        return np.asarray(data._concrete())
    if isinstance(data, (list, tuple)):
        return _nested(data)
    if isinstance(data, (bool, int, float, complex, np.generic)):
        array = np.asarray(data)
        return array.astype(object) if type(data) is int and array.dtype != np.int64 else array
    if hasattr(data, "__array__"):
        return np.asarray(data)
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if isinstance(data, Sequence):
        return _nested(list(data))
    raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")


def _nested(data: Sequence[Any]) -> np.ndarray:
    """A nested sequence as an array. ValueError with PyTorch's text where its lengths differ."""
    try:
        array = np.array(data)
    except (ValueError, OverflowError) as error:
        check_lengths(data, 0, lengths(data), has_float(data))
        raise ValueError(str(error)) from None
    first = first_leaf(data) if array.dtype.kind in "USO" else None
    if isinstance(first, str):
        raise ValueError("too many dimensions 'str'")
    if array.dtype.kind in "US":
        raise TypeError(f"new(): invalid data type '{'bytes' if isinstance(first, bytes) else 'str'}'")
    if array.dtype == object:
        check_leaves(data)
    # NumPy takes integers that int64 does not hold as objects, as uint64 or as floats: objects here, unless there are floats among them.
    if array.dtype == object or array.dtype == np.uint64 or (array.dtype == np.float64 and array.size and np.abs(array).max() >= 2.0**63):
        array = np.array(data, dtype=np.float64 if has_float(data) else object)
    return array if array.size or array.dtype != np.float64 else array.astype(dtypes.default_float())


def _without_tensors(data: Any) -> tuple[Any, list[np.dtype]]:
    """Nested sequences with numbers in place of their tensors of one element, and the dtypes of all elements if there is such a tensor, or a NumPy
    array or number."""
    if not _has_tensor(data):
        return data, []
    found: list[np.dtype] = []
    depth = len(lengths(data))

    def number(x: Any, level: int = 0) -> Any:
        if isinstance(x, (list, tuple)):
            return [number(d, level + 1) for d in x]
        if isinstance(x, Tensor):
            if level < depth:  # beside a list, a tensor is one too
                found.append(x._aval.dtype)
                return x.tolist()
            if x._aval.size != 1:
                if dtypes.is_float(x._aval.dtype):
                    raise ValueError("only one element tensors can be converted to Python scalars")
                raise TypeError("only integer tensors of a single element can be converted to an index")
            found.append(x._aval.dtype)
            return complex(x) if x.is_complex() else float(x) if x.is_floating_point() else x.item()  # the former may warn
        if isinstance(x, np.ndarray):
            warn_once(
                "Creating a tensor from a list of numpy.ndarrays is extremely slow. Please consider converting the list to a single numpy.ndarray "
                "with numpy.array() before converting to a tensor."
            )
            found.append(x.dtype)
            return x.tolist()
        found.append(x.dtype if hasattr(x, "dtype") else dtypes.of_number(type(x)) if type(x) in NUMBERS else dtypes.default_float())
        return x

    return number(data), found


def _has_tensor(data: Any) -> bool:
    return any(isinstance(d, (Tensor, np.ndarray, np.generic)) or (isinstance(d, (list, tuple)) and _has_tensor(d)) for d in data)


def _python_dtype(array: np.ndarray, data: Any) -> np.dtype:
    """Python floats have the default dtype; NumPy scalars keep theirs."""
    if isinstance(first_leaf(data), np.generic) or array.dtype.kind == "b":
        return array.dtype
    if array.dtype.kind == "f":
        return dtypes.default_float()
    if array.dtype.kind == "c":
        return dtypes.to_complex(dtypes.default_float())
    return np.dtype(np.int64)


_MISSING: Any = object()
_WIDE = (np.dtype(np.float32), np.dtype(np.float64))


@public("torch")
def tensor(data: Any = _MISSING, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A tensor with a copy of `data`: a number, nested sequences, a NumPy array or scalar. RuntimeError for pin_memory: there is no such memory."""
    if pin_memory is False and type(requires_grad) is bool and (made := of_numbers(data, dtype, device)) is not None:
        return requiring(made, True) if requires_grad else made
    if data is _MISSING:
        raise TypeError('tensor() missing 1 required positional arguments: "data"')
    if requires_grad is None or pin_memory is None:
        raise TypeError(f"tensor(): argument '{'pin_memory' if pin_memory is None else 'requires_grad'}' must be bool, not NoneType")
    check_memory("tensor", {"device": device, "requires_grad": requires_grad, "pin_memory": pin_memory})
    if isinstance(data, Tensor):
        warn_user(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).",
            UserWarning,
        )
        device = data._aval.device if device is None else device
        dtype = dtypes.of(data._aval.dtype) if dtype is None else dtype
    made = created(from_data(data, dtype, device))
    if isinstance(data, Tensor) and not plain(data):
        keep_order(made, (data,))
    return requiring(made, requires_grad)


def of_numbers(data: Any, dtype: Any, device: Any) -> Tensor | None:
    """The tensor of a number, of a list or of rows of such, on the CPU; None where there is more to see to."""
    target = dtype_alone(data) if device is None or device is devices.CPU else None
    asked = target if dtype is None else dtype.np if isinstance(dtype, dtypes.dtype) else None
    if target is None or asked is None or not (asked == target or asked in _WIDE):  # NumPy takes None for float64
        return None
    array = np.array(data, asked if target in _WIDE else target).astype(asked, copy=False)  # int64 is rounded to float32 once
    return created(constant(array, aval_of(array.shape, array.dtype)))


def requiring(t: Tensor, requires_grad: bool) -> Tensor:
    if requires_grad:
        if not dtypes.is_float(t._aval.dtype):
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        t._rg = True
    return t


@public("torch")
def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor with a copy of a NumPy array. (PyTorch's shares its memory; XLA's arrays cannot be written to.)"""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    if min(ndarray.strides, default=0) < 0:
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not currently supported. "
            "(You can probably work around this by making a copy of your array  with array.copy().) "
        )
    if not ndarray.flags.writeable:
        warn_once(
            "The given NumPy array is not writable, and PyTorch does not support non-writable tensors. This means writing to this tensor will result "
            "in undefined behavior. You may want to copy the array to protect its data or make it writable before converting it to a tensor. This "
            "type of warning will be suppressed for the rest of this program."
        )
    dtypes.of(ndarray.dtype)  # is there one?
    array = np.array(ndarray, order="C", subok=False)
    return created(constant(array, aval_of(array.shape, array.dtype)))


# ---------------------------------------------------------------------- from a shape


def checked_sizes(size: tuple[Any, ...], name: str = "zeros") -> tuple[int, ...]:
    """The shape that the factory `name` was asked for. TypeError, RuntimeError with PyTorch's text."""
    whole = size[0] if len(size) == 1 else size
    given = tuple(whole) if isinstance(whole, (tuple, list)) else size
    found = []
    for i, n in enumerate(given):
        if not hasattr(n, "__index__") or (isinstance(n, bool) and not i):  # as PyTorch, which asks of the first alone whether it is an integer
            raise TypeError(_wrong_size(name, n, i, n is whole))
        found.append(n.__index__())
    for n in found:
        if n < 0:
            if name == "zeros":
                raise RuntimeError("zeros: Dimension size must be non-negative.")
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {found}")
    return tuple(found)


def _wrong_size(name: str, n: Any, i: int, alone: bool) -> str:
    kind = type(n).__name__
    if alone:
        return f"{name}(): argument 'size' (position 1) must be tuple of ints, not {kind}"
    if i == 0:
        return f"{name}(): argument 'size' (position 1) must be tuple of ints, but found element of type {kind} at pos 0"
    return f"{name}(): argument 'size' failed to unpack the object at pos {i + 1} with error \"type must be tuple of ints,but got {kind}\""


def _filled(name: str, number: Any, size: tuple[Any, ...], kwargs: dict[str, Any], like: Tensor | None = None) -> Tensor:
    alone = sizes_alone(size, kwargs)
    if alone is not None and like is None:
        return created(full_value(alone, number, dtypes.default_float(), as_device(None)))
    if "size" in kwargs:
        size = (kwargs.pop("size"),)
    elif not size:
        raise TypeError(f'{name}() missing 1 required positional arguments: "size"')
    return _made(name, number, checked_sizes(size, name), kwargs, like)


def target_of(name: str, options: dict[str, Any], default: np.dtype | None) -> np.dtype:
    """The dtype of what a factory makes: what `options` ask for, that of `out`, or the default. RuntimeError where the first two differ."""
    dtype, out = options.get("dtype"), options.get("out")
    if dtype is None:
        return out._aval.dtype if out is not None else default or dtypes.default_float()
    target = checked_dtype(name, dtype)
    if out is not None and target.np != out._aval.dtype:
        raise RuntimeError(f"dtype {target.title} does not match dtype of out parameter ({out.dtype.title})")
    return target.np


def _made(name: str, number: Any, size: tuple[int, ...], options: dict[str, Any], like: Tensor | None = None) -> Tensor:
    """A tensor filled with a number; `options` are the keywords that the factory `name` was given. like: the tensor, if any, that it was asked of."""
    check_options(name, options)
    target, out = target_of(name, options, None), options.get("out")
    number = promotion.fitting(number, target)
    if out is not None:
        return write_out(name, out, created(full_value(size, number, target, out.device)))
    made = created(full_value(size, number, target, as_device(options.get("device"))))
    if like is not None:
        made = mapped_as(made, like)
    made = lay_out_as(made, options.get("memory_format"))
    return requiring(made, options.get("requires_grad", False))


@public("torch")
def zeros(*size: Any, **kwargs: Any) -> Tensor:
    """Zeros of the given size. Keywords: dtype, device, requires_grad, out."""
    return _filled("zeros", 0, size, kwargs)


@public("torch")
def ones(*size: Any, **kwargs: Any) -> Tensor:
    """Ones of the given size. Keywords: dtype, device, requires_grad, out."""
    return _filled("ones", 1, size, kwargs)


@public("torch")
def empty(*size: Any, **kwargs: Any) -> Tensor:
    """A tensor of the given size whose content does not matter (it is zero). Keywords: dtype, device, requires_grad."""
    return _filled("empty", 0, size, kwargs)


def _number(name: str, argument: str, position: int, value: Any) -> Any:
    """A number argument; a 0-dim tensor that needs no gradient stands for one. TypeError for anything else."""
    if isinstance(value, Tensor) and not value._aval.ndim and not value.requires_grad or isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, NUMBERS):
        raise TypeError(f"{name}(): argument '{argument}' (position {position}) must be Number, not {type(value).__name__}")
    return value


@public("torch")
def full(size: Any, fill_value: Any, *, dtype: Any = None, **kwargs: Any) -> Tensor:
    """`fill_value` everywhere; its type gives the dtype where none is given."""
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"full(): argument 'size' (position 1) must be tuple of ints, not {type(size).__name__}")
    fill_value = _number("full", "fill_value", 2, fill_value)
    if dtype is None and kwargs.get("out") is None:
        dtype = dtypes.of(dtypes.of_number(type(fill_value)))
    return _made("full", fill_value, checked_sizes((size,), "full"), {"dtype": dtype, **kwargs})


def _like(name: str, input: Tensor, number: Any, kwargs: dict[str, Any]) -> Tensor:
    if not isinstance(input, Tensor):
        raise not_a_tensor(name, input)
    if not kwargs and type(number) is int and not per_thread.recorder.rare and plain(input):
        return created(full_value(input._aval.shape, promotion.fitting(number, input._aval.dtype), input._aval.dtype, input._aval.device))
    kwargs["dtype"] = kwargs.get("dtype") or input.dtype
    kwargs["device"] = kwargs.get("device") or input.device
    made = _made(name, number, input._aval.shape, kwargs, input)
    if kwargs.get("memory_format") in (None, preserve_format) and not plain(input):
        keep_order(made, (input,))
    return made


@public("torch")
def zeros_like(input: Tensor, **kwargs: Any) -> Tensor:
    """Zeros of the shape, dtype and device of `input`."""
    return _like("zeros_like", input, 0, kwargs)


@public("torch")
def ones_like(input: Tensor, **kwargs: Any) -> Tensor:
    """Ones of the shape, dtype and device of `input`."""
    return _like("ones_like", input, 1, kwargs)


@public("torch")
def empty_like(input: Tensor, **kwargs: Any) -> Tensor:
    """A tensor of the shape, dtype and device of `input` whose content does not matter (it is zero)."""
    return _like("empty_like", input, 0, kwargs)


@public("torch")
def full_like(input: Tensor, fill_value: Any, **kwargs: Any) -> Tensor:
    """`fill_value` in the shape, dtype and device of `input`."""
    return _like("full_like", input, _number("full_like", "fill_value", 2, fill_value), kwargs)


@public("torch.Tensor")
def new_full(self: Tensor, size: Any, fill_value: Any, **kwargs: Any) -> Tensor:
    """`fill_value` in a new size, with this tensor's dtype and device."""
    return _made("new_full", _number("new_full", "fill_value", 2, fill_value), checked_sizes((size,), "new_full"), of_self(self, kwargs), self)


@public("torch.Tensor")
def new_zeros(self: Tensor, *size: Any, **kwargs: Any) -> Tensor:
    """Zeros of a new size, with this tensor's dtype and device."""
    return _filled("new_zeros", 0, size, of_self(self, kwargs), self)


@public("torch.Tensor")
def new_ones(self: Tensor, *size: Any, **kwargs: Any) -> Tensor:
    """Ones of a new size, with this tensor's dtype and device."""
    return _filled("new_ones", 1, size, of_self(self, kwargs), self)


@public("torch.Tensor")
def new_empty(self: Tensor, *size: Any, **kwargs: Any) -> Tensor:
    """A tensor of a new size whose content does not matter, with this tensor's dtype and device."""
    return _filled("new_empty", 0, size, of_self(self, kwargs), self)


@public("torch.Tensor")
def new_tensor(self: Tensor, data: Any, **kwargs: Any) -> Tensor:
    """A tensor of `data`, with this tensor's dtype and device. Keywords: dtype, device, requires_grad."""
    for option in kwargs:
        if option not in ("dtype", "device", "requires_grad"):
            raise TypeError(f"new_tensor() got an unexpected keyword argument '{option}'")
    check_memory("new_tensor", kwargs)
    return tensor(data, **of_self(self, kwargs))


def of_self(t: Tensor, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keywords of a factory that are this tensor's dtype and device, where they are not given."""
    kwargs["dtype"] = kwargs.get("dtype") or t.dtype
    kwargs["device"] = kwargs.get("device") or t.device
    return kwargs


# ---------------------------------------------------------------------- sequences of numbers


def from_host(name: str, array: np.ndarray, options: dict[str, Any]) -> Tensor:
    """What a factory computed on the host, as a tensor or written to `out`."""
    made = created(constant(array, aval_of(array.shape, array.dtype, as_device(options.get("device")))))
    if options.get("out") is None:
        return requiring(made, options.get("requires_grad", False))
    return write_out(name, options["out"], made)


def _refuse_dtype(kernel: str, target: np.dtype, kinds: str) -> None:
    if target.kind in kinds or target in (np.uint16, np.uint32, np.uint64):
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.of(target).title}'")


def _real(number: Any) -> Any:
    return promotion.fitting(number, np.dtype(np.float64)).real if isinstance(number, complex) else number


@public("torch")
def arange(start: Any = _MISSING, end: Any = None, step: Any = 1, **options: Any) -> Tensor:
    """start, start + step ... before end. Integers give int64, any float the default dtype. Keywords: dtype, device, requires_grad, out."""
    check_options("arange", options)
    if start is _MISSING:
        start = 0
        if end is None:
            raise TypeError('arange() missing 1 required positional arguments: "end"')
    elif end is None:
        start, end = 0, start
    whole = type(start) is int and type(end) is int and type(step) is int
    if not whole:
        start, end, step = (_number("arange", n, i, v) for i, (n, v) in enumerate((("start", start), ("end", end), ("step", step)), 1))
        whole = all(isinstance(v, int) for v in (start, end, step))
    target = target_of("arange", options, np.dtype(np.int64) if whole else None)
    _refuse_dtype("arange_cpu", target, "bc")
    if not whole:
        start, end, step = map(_real, (start, end, step))
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if not abs(step) > 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    return from_host("arange", _counted(start, end, step, target), options)


def _counted(start: Any, end: Any, step: Any, target: np.dtype) -> np.ndarray:
    """The numbers of `arange`. Where they are integers, so are the limits; int64 also counts how many there are in integers."""
    if target.kind not in "iu":
        length = math.ceil((end - start) / step)
        return (start + step * np.arange(length, dtype=np.float64) if length else np.zeros(0)).astype(target)
    if target == np.int64:
        start, end, step = map(int, (start, end, step))
        if step == 0:
            raise ValueError("step must be nonzero")
        return np.asarray(start + step * np.arange(-((start - end) // step)), np.int64)
    length = math.ceil((end - start) / step)
    return (int(start) + int(step) * np.arange(length)).astype(target)


def _steps(name: str, steps: Any) -> int:
    if isinstance(steps, (bool, float)) or not hasattr(steps, "__index__"):
        raise TypeError(f"{name}(): argument 'steps' (position 3) must be int, not {type(steps).__name__}")
    if steps.__index__() < 0:
        raise RuntimeError("number of steps must be non-negative")
    return steps.__index__()


def _limit(name: str, argument: str, position: int, value: Any) -> Any:
    if isinstance(value, Tensor):
        if value._aval.ndim:
            raise RuntimeError(
                f"{name} only supports 0-dimensional start and end tensors, but got {argument} with {value._aval.ndim} dimension(s)."
            )  # fmt: skip
        return value.item()
    return _number(name, argument, position, value)


def _spaced(name: str, start: Any, end: Any, steps: int, options: dict[str, Any], of: Callable[[Any], Any] | None = None) -> np.ndarray:
    """Evenly spaced numbers, or what `of` makes of them in double precision, in the dtype that they are to have."""
    check_options(name, options)
    start, end, steps = _limit(name, "start", 1, start), _limit(name, "end", 2, end), _steps(name, steps)
    inferred = dtypes.to_complex(dtypes.default_float()) if isinstance(start, complex) or isinstance(end, complex) else None
    target = target_of(name, options, inferred)
    if inferred is not None and target.kind != "c":
        word, title = dtypes.of(inferred).word, dtypes.of(target).title
        raise RuntimeError(f"torch.{name}(): inferred dtype {word} can't be safely cast to passed dtype {title}")
    kind: Any = np.complex128 if target.kind == "c" else np.float64
    if steps < 2:  # PyTorch fills a tensor, which it does for every dtype
        return np.array([promotion.fitting(start if of is None else of(kind(start)).item(), target) for _ in range(steps)]).astype(target)
    _refuse_dtype(f"{name}_cpu", target, "b")
    if target.kind in "iu":
        start, end = (int(promotion.fitting(v, target)) for v in (start, end))
    if of is None:
        return evenly_spaced(start, end, steps, target)
    return of(evenly_spaced(start, end, steps, np.dtype(kind))).astype(target)


@public("torch")
def linspace(start: Any, end: Any, steps: int, **options: Any) -> Tensor:
    """`steps` evenly spaced numbers from start to end, both included. Keywords: dtype, device, requires_grad, out."""
    limits = [x for x in (start, end) if isinstance(x, Tensor)]
    if all([x._content().readable for x in limits]):
        return from_host("linspace", _spaced("linspace", start, end, steps, options), options)

    def spaced(*given: Tensor) -> Tensor:
        rest = iter(given)
        first, last = (next(rest) if isinstance(x, Tensor) else x for x in (start, end))
        return linspace(first, last, steps, **options)

    return by_parts(spaced, *limits)


@public("torch")
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, **options: Any) -> Tensor:
    """`steps` numbers from base ** start to base ** end, evenly spaced in the exponent. Keywords: dtype, device, requires_grad, out."""
    if isinstance(base, complex) or not hasattr(base, "__float__"):
        raise TypeError(f"logspace(): argument 'base' (position 4) must be float, not {type(base).__name__}")
    with np.errstate(all="ignore"):
        return from_host("logspace", _spaced("logspace", start, end, steps, options, lambda exponents: float(base) ** exponents), options)


@public("torch")
def eye(n: int, m: Any = _MISSING, **options: Any) -> Tensor:
    """A matrix with ones on its diagonal. Keywords: dtype, device, requires_grad, out."""
    check_options("eye", options)
    for position, (name, count) in enumerate((("n", n), ("m", n if m is _MISSING else m)), 1):
        if not hasattr(count, "__index__") or isinstance(count, bool):
            raise TypeError(f"eye(): argument '{name}' (position {position}) must be int, not {type(count).__name__}")
        if count < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {count}")
    return from_host("eye", np.eye(n, n if m is _MISSING else m, dtype=target_of("eye", options, None)), options)
