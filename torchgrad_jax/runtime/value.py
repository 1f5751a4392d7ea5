"""Aval: what is known of a value before it exists. Value: what a Tensor holds."""

from __future__ import annotations

import math
import weakref
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from torchgrad_jax.runtime._jax_compat import as_x64, call_x64
from torchgrad_jax.runtime.device import CPU, META, at_home, device, device_of, jax_device, put
from torchgrad_jax.runtime.keeping import Memo
from torchgrad_jax.runtime.observing.observer import tell_waiting
from torchgrad_jax.runtime.recording.epoch import Epoch
from torchgrad_jax.runtime.worker import Promised


class Aval:
    """Shape, dtype and device of a value. Equal ones are one object, so they compare by identity."""

    __slots__ = ("shape", "dtype", "device", "ndim", "size", "nbytes", "__weakref__")
    shape: tuple[int, ...]
    dtype: np.dtype
    device: device
    ndim: int
    size: int
    nbytes: int

    def __repr__(self) -> str:
        return f"Aval({self.dtype}{list(self.shape)}@{self.device})"


_alive: weakref.WeakValueDictionary[tuple[tuple[int, ...], np.dtype, device], Aval] = weakref.WeakValueDictionary()
_interned = Memo()


def aval_of(shape: tuple[int, ...], dtype: np.dtype, where: device = CPU) -> Aval:
    """The one Aval of this shape, dtype and device."""
    key = (shape, dtype, where)
    found = _interned.get(key)
    if found is None:
        found = _alive.get(key)
        if found is None:
            found = Aval()
            found.shape, found.dtype, found.device = shape, dtype, where
            found.ndim, found.size = len(shape), math.prod(shape)
            found.nbytes = found.size * dtype.itemsize
            found = _alive[key] = _interned.setdefault(key, found)
        _interned.keep(key, found)
    return found


class Lifted:
    """What a Value holds in place of an array where it stands for something that a level below computes: see `lifting/`. level: whose it is; the one
    of the greatest depth among its operands carries out an operation. batch: whether that is a batch of its level."""

    __slots__ = ("level",)
    level: Any
    batch = False

    def concrete(self, asked: str = "") -> Any:
        """The array that it stands for, computed now. asked: the name of what looks at it. RuntimeError where it stands for several."""
        raise NotImplementedError

    @property
    def readable(self) -> bool:
        """See Value."""
        raise NotImplementedError

    def everything(self) -> np.ndarray | None:
        """See Value."""
        raise NotImplementedError

    def innermost(self) -> Value:
        """The Value outside of all levels that it stands for."""
        raise NotImplementedError

    def followed(self) -> bool:
        """Whether a derivative of what is computed of it may be asked for below."""
        raise NotImplementedError

    def shown(self) -> str:
        """How it is printed."""
        raise NotImplementedError

    def settle(self, t: Any) -> bool:
        """Let `t`, a Tensor that holds this and has outlived its level, be what it stands for outside. Whether that is so."""
        return False


class Contentless(Lifted):
    """What a Value on the device "meta" holds: it has a shape and a dtype alone. Its level finds those of results."""

    __slots__ = ()
    level: Any = None  # `elsewhere` has it

    def concrete(self, asked: str = "") -> Any:
        """See Lifted. RuntimeError or NotImplementedError, as in PyTorch."""
        if asked in ("item", "is_nonzero"):
            raise RuntimeError("Tensor.item() cannot be called on meta tensors")
        if asked and asked not in ("tolist", "numpy"):
            raise NotImplementedError(f"aten::{asked}: it has to look at its tensors, and a tensor of the device 'meta' has no content")
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")

    @property
    def readable(self) -> bool:
        """See Lifted."""
        return False

    def everything(self) -> None:
        """See Lifted."""

    def followed(self) -> bool:
        """See Lifted."""
        return False


NOTHING = Contentless()
_STANDING = (Tracer, Lifted)
# To read an array from the host takes XLA 2 us, and as long again for so many bytes where they are copied. To put it on the device takes so many
# times as long: 75 us, which are Python's.
BYTES_CARRIED, OFTEN_CARRIED = 50_000, 32
# What is moved to a device stays on the host up to this many bytes, until XLA reads it: what is new is interpreted there. More is on its way at once.
MOST_LEFT_BEHIND = 1 << 20
# Of so few elements the extremes are found sooner by Python than by NumPy.
_FEW_BOUNDED = 32


class Watch:
    """What a function that is being traced may not know: contents of tensors that come from outside of it, or are computed in it."""

    __slots__ = ()

    def hides(self, value: Value) -> bool:
        """Whether `value` stands for other ones where this is asked."""
        raise NotImplementedError

    def looked(self, value: Value) -> None:
        """A Value's content is asked for that is hidden. Raises, or computes it."""
        raise NotImplementedError

    def made(self, value: Value) -> None:
        """A Value was made of an array: within the function, it is a constant of it."""
        raise NotImplementedError

    def suspect(self, value: Value, fault: Any) -> None:
        """A Value that is hidden tells, once it is computed, whether something is wrong: then `fault` is to be raised."""
        raise NotImplementedError


# Of the functions that are being traced, in all threads.
watches: list[Watch] = []


class Value:
    """One immutable array: concrete (`array` is set) or pending (the record that will make it is known by `slot`
    in the program that `epoch` stands for).

    `counter` and `version` serve the layer above: the version counter of the storage whose content this Value is or was, and what it
    counted at the time. A Value belongs to at most one storage. (It does not refer to the storage, which refers to it.)
    made_in: how the view was made that it was the content of, if not where autograd follows.
    leaf: a weak reference to the only tensor that it was the content of when that was asked to require a gradient.
    part: that it was written into a view, and is a part of a storage's content.
    signature: of the operation that was recorded to make it; constants have none.
    carried: what it has cost so far that its array is on the host and XLA reads it; see `for_xla`.
    Of these, and of `bounds`, those that a Value has not are unset, or None where this is compiled.
    """

    __slots__ = ("aval", "array", "slot", "epoch", "counter", "version", "bounds", "signature", "part", "made_in", "leaf", "carried")
    aval: Aval
    array: Any
    slot: int
    epoch: Epoch | None
    signature: Any
    counter: Any
    version: int
    bounds: tuple[int, int]
    part: bool
    made_in: str
    leaf: weakref.ref[Any]
    carried: int

    def at_hand(self) -> np.ndarray | None:
        """The content as a NumPy array where it can be had without computing or waiting: host data, or computed on the CPU."""
        if watches and any(w.hides(self) for w in watches):
            return None
        array = self.array
        if array is None or isinstance(array, np.ndarray):
            return array
        if self.aval.device is not CPU or type(array) is Promised or is_tracer(array):
            return None
        return np.asarray(array)

    def for_xla(self) -> Any:
        """The array, which XLA is about to read. What is on the host is put on the device once it has been read from there so often that it would
        have paid: what an interpreted program hands to a compiled one is read once or twice."""
        array = self.array
        if type(array) is not np.ndarray:
            return array
        copied = array.nbytes // BYTES_CARRIED
        carried = (getattr(self, "carried", None) or 0) + 1 + copied
        if self.aval.device is CPU and carried <= OFTEN_CARRIED + copied:
            self.carried = carried
        else:
            array = self.array = put(array, self.aval.device)
        return array

    def known_bounds(self) -> tuple[int, int] | None:
        """The smallest and largest element of integers that are at hand; None for others."""
        found = getattr(self, "bounds", None)
        if watches and any(w.hides(self) for w in watches):
            return None
        if found is None:
            array = self.at_hand()
            if array is not None and array.size:
                found = self.bounds = _bounds(array)
        return found

    def concrete(self) -> Any:
        """The array, computed now if it is pending. Errors of the program that makes it are raised here."""
        if watches:
            for watch in tuple(watches):
                if watch.hides(self):
                    watch.looked(self)
        array = self.array
        if array is None:
            assert self.epoch is not None
            self.epoch.force(self)
            array = self.array
        if type(array) is Promised:
            tell_waiting()
            array = self.array = array.kept()
        elif isinstance(array, Lifted):
            return array.concrete()
        return array

    @property
    def readable(self) -> bool:
        """Whether it stands for one array, whose numbers can be computed now."""
        array = self.array
        return not is_tracer(array) or (isinstance(array, Lifted) and array.readable)

    def everything(self) -> np.ndarray | None:
        """All numbers that it stands for, computed now, in whatever shape: to be checked. None where JAX itself transforms, which has none yet."""
        array = self.array
        if is_tracer(array):
            return array.everything() if isinstance(array, Lifted) else None
        return np.asarray(self.concrete())

    def __repr__(self) -> str:
        return f"Value({self.aval}, {'pending' if self.array is None else 'concrete'})"


def _bounds(array: Any) -> tuple[int, int]:
    if array.size <= _FEW_BOUNDED:
        found = array.ravel().tolist()
        return int(min(found)), int(max(found))
    return int(array.min()), int(array.max())


def constant(array: Any, aval: Aval | None = None) -> Value:
    """A concrete Value that holds `array`: a `jax.Array`, a tracer, or a NumPy array that nobody writes to any more; nothing on the device "meta"."""
    value = Value()
    if aval is None:
        where = CPU
        if not (isinstance(array, np.ndarray) or is_tracer(array)):
            where = device_of(array)
            array = at_home(array, where)
        aval = aval_of(tuple(array.shape), np.dtype(array.dtype), where)
    value.aval = aval
    value.array = array if aval.device is not META or isinstance(array, Lifted) else NOTHING
    value.slot = 0
    value.epoch = None
    value.counter = None
    value.version = 0
    for watch in watches:
        watch.made(value)
    return value


def moved(value: Value, where: device) -> Value:
    """The same content on another device. NotImplementedError where there is none."""
    if where is META:
        return constant(None, aval_of(value.aval.shape, value.aval.dtype, where))
    array, aval = value.concrete(), aval_of(value.aval.shape, value.aval.dtype, where)
    if is_tracer(array):
        return constant(as_x64(partial(jax.device_put, device=jax_device(where)), [array]), aval)
    if where is CPU or value.aval.device.type == "cpu":
        array = np.asarray(array)
        return constant(array if where is CPU or array.nbytes <= MOST_LEFT_BEHIND else put(array, where), aval)
    return constant(call_x64(jax.device_put, array, jax_device(where)), aval)


def is_tracer(array: Any) -> bool:
    """Whether `array` stands for a value inside a transformation, JAX's or one of ours: there is nothing to be read in it."""
    return isinstance(array, _STANDING)
