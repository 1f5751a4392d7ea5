"""`torch.utils.weak`: tables whose keys are compared by identity and are not kept alive, as tensors have to be that are equal element by element."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from copy import deepcopy
from typing import Any, Self

from torchgrad_jax.core.tensor import Tensor

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


class WeakIdRef(weakref.ref):
    """A weak reference that is equal to those of the same object, and to none where the object is gone, whatever `==` of the object says."""

    __slots__ = ("_id",)

    _id: int

    def __new__(cls, key: Any, callback: Any = None) -> Self:
        made = super().__new__(cls, key, callback)
        made._id = id(key)
        return made

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WeakIdRef):
            return False
        mine, others = self(), other()
        return self is other if mine is None or others is None else mine is others


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A table by objects, each of which is in it while it is there. dict: what is in it to begin with. ref_type: the class of references to keys."""

    def __init__(self, dict: Mapping[Any, Any] | None = None, ref_type: Any = WeakIdRef) -> None:
        self.data: Any = {}
        self.ref_type = ref_type
        table = self.data  # which refers to nobody: this object may go before its keys
        self._remove = lambda ref: table.pop(ref, None)
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._remove)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # of numbers and the like there are no weak references
            return False

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Any]:
        """The keys that are there."""
        for ref in list(self.data):
            key = ref()
            if key is not None:
                yield key

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return {id(key): value for key, value in self.items()} == {id(key): value for key, value in other.items()}

    __hash__ = None  # type: ignore[assignment] - as of any table

    def keyrefs(self) -> list[Any]:
        """References to the keys."""
        return list(self.data)

    def copy(self) -> WeakIdKeyDictionary:
        """A table with the same content."""
        return type(self)(self, self.ref_type)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> WeakIdKeyDictionary:
        made = type(self)(None, self.ref_type)
        for key, value in self.items():
            made[key] = deepcopy(value, memo)
        return made

    def _with(self, pairs: Any) -> WeakIdKeyDictionary:
        self.update(pairs)
        return self

    def __or__(self, other: Any) -> Any:
        return self.copy()._with(other) if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return type(self)(other, self.ref_type)._with(self) if isinstance(other, Mapping) else NotImplemented

    def __ior__(self, other: Any) -> Any:
        return self._with(other)


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor: called, it gives the tensor, or None where that is gone. AssertionError for what is no tensor."""

    __slots__ = ("ref",)

    def __init__(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise AssertionError(f"expected torch.Tensor, got {type(tensor)}")
        self.ref = WeakIdRef(tensor)

    def __call__(self) -> Tensor | None:
        return self.ref()
