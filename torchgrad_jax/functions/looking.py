"""What a tensor holds, asked for by Python: loops look at what they compute. Compiled where there is a compiler (`torchgrad_jax/_typed`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.calling.public import public
from torchgrad_jax.core.fields import aval_of_tensor, content_of, needs_grad
from torchgrad_jax.core.level import stands_for_batch
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.viewing import is_conj, is_neg
from torchgrad_jax.memory.storage import Storage
from torchgrad_jax.runtime.observing import observer
from torchgrad_jax.runtime.observing.observer import looked
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.runtime.user_code import warn_once
from torchgrad_jax.runtime.value import Lifted, Value, is_tracer, watches

_ndarray, _asarray = np.ndarray, np.asarray
_observed = vars(observer)
_ASKED = {"is_nonzero": "bool()", "item": "item()", "tolist": "tolist()", "numpy": "numpy()"}


def content(t: Tensor, name: str, asked: str = "") -> Any:
    """The content, for an operation that must know it now: `name`, or `asked`, as those who watch are told. RuntimeError inside of what is
    transformed: with PyTorch's text, or where JAX does it."""
    value = content_of(t)
    array = value.array
    if array is None and not watches and not _observed["active"]:  # what `Value.concrete` comes to, mostly
        rec: Recorder = per_thread.recorder
        if value.epoch is rec.epoch:
            rec.flush("look")
            array = value.array
            if array is not None and type(array) is _ndarray:
                return array
    if array is not None and type(array) is not _ndarray and isinstance(array, Lifted):
        return array.concrete(name)
    array = looked(asked or name, value.concrete) if _observed["active"] else value.concrete()
    if type(array) is not _ndarray and is_tracer(array):
        raise RuntimeError(
            f"{_ASKED.get(name, name)} needs the value of a Tensor, which has none while JAX traces the function that it is in: use torch.where or "
            "jax.lax.cond in place of `if`, and return what is to be looked at. (A Tensor from outside that was written to in there has none either.)"
        )
    return array


def on_host(t: Tensor, force: bool) -> np.ndarray:
    """The content as a NumPy array, which must not be written to."""
    if not force:
        if needs_grad(t) and per_thread.recorder.grad_enabled:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        where = aval_of_tensor(t).device
        if where.type != "cpu":
            raise TypeError(f"can't convert {where} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.")
        if t._view is not None:
            _refuse_turned(t)
    array = content(t, "numpy")
    return array if type(array) is _ndarray else _asarray(array)


def _refuse_turned(t: Tensor) -> None:
    for what, turned, resolve in (("conjugate", is_conj, "resolve_conj"), ("negative", is_neg, "resolve_neg")):
        if turned(t):
            raise RuntimeError(f"Can't call numpy() on Tensor that has {what} bit set. Use tensor.{resolve}().numpy() instead.")


def _number(t: Tensor, name: str, asked: str) -> Any:
    if t._view is not None and not watches and not _observed["active"] and (memory := _at_hand(t)) is not None:
        return memory.item(t._view.offset)  # without a program, which else would have to run
    array = content(t, name, asked)
    return (array if type(array) is _ndarray else _asarray(array)).item()  # JAX's own `item` takes twice as long


def _at_hand(t: Tensor) -> Any:
    """The memory of which a tensor is an element as it is, where that is on the host already; None elsewhere."""
    storage: Any = t._storage
    if type(storage) is not Storage:
        return None
    whole: Value = storage.value
    memory = whole.array
    if type(memory) is not _ndarray or whole.aval.dtype is not t._value.aval.dtype or memory.dtype.kind == "c":
        return None
    return memory


def _refuse_batch(t: Tensor, name: str) -> None:
    """RuntimeError where `t` stands for a batch: it has no value, however many elements it is seen to have."""
    if stands_for_batch(t):
        content(t, name)


@public("torch.Tensor")
def numpy(self: Tensor, *, force: bool = False) -> np.ndarray:
    """A NumPy array of the content: a copy that can be written to. RuntimeError for a tensor that requires grad while graphs are recorded."""
    return on_host(self, force).copy()


@public("torch.Tensor")
def tolist(self: Tensor) -> Any:
    """The elements as nested lists of Python numbers."""
    return _asarray(content(self, "tolist")).tolist()


@public("torch.Tensor")
def item(self: Tensor) -> Any:
    """The only element as a Python number. RuntimeError where there are more or none."""
    size = aval_of_tensor(self).size
    if size != 1:
        _refuse_batch(self, "item")
        raise RuntimeError(f"a Tensor with {size} elements cannot be converted to Scalar")
    return _number(self, "item", "item")


@public("torch.Tensor")
def __bool__(self: Tensor) -> bool:
    size = aval_of_tensor(self).size
    if size != 1:
        _refuse_batch(self, "is_nonzero")
        what = "no values" if size == 0 else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {what} is ambiguous")
    return bool(_number(self, "is_nonzero", "__bool__"))


def _only_element(t: Tensor, asked: str) -> Any:
    if aval_of_tensor(t).size != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    return _number(t, "item", asked)


def _real(t: Tensor, c_type: str, asked: str) -> Any:
    """The only element, which is no complex number that has an imaginary part."""
    found = _only_element(t, asked)
    if isinstance(found, complex):
        if found.imag:
            raise RuntimeError(f"value cannot be converted to type {c_type} without overflow")
        return found.real
    return found


def _tell_of_graph(t: Tensor) -> None:
    """Warn once of a number that is made of a tensor which requires a gradient, where graphs are recorded."""
    if needs_grad(t) and per_thread.recorder.grad_enabled:
        warn_once("Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\nConsider using tensor.detach() first.")


@public("torch.Tensor")
def __float__(self: Tensor) -> float:
    _tell_of_graph(self)
    return float(_real(self, "double", "__float__"))


@public("torch.Tensor")
def __int__(self: Tensor) -> int:
    return int(_real(self, "int64_t", "__int__"))


@public("torch.Tensor")
def __complex__(self: Tensor) -> complex:
    _tell_of_graph(self)
    return complex(_only_element(self, "__complex__"))


@public("torch.Tensor")
def __index__(self: Tensor) -> int:
    aval = aval_of_tensor(self)
    if aval.size != 1 or aval.dtype.kind not in "iub":
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(_number(self, "item", "__index__"))
