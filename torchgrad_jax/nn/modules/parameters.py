"""Modules that hold parameters: ParameterList and ParameterDict. Tensors that are put in become Parameters; other things stay what they are."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any, Self

from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.container import pairs_of
from torchgrad_jax.nn.modules.module import Module

__all__ = ["ParameterDict", "ParameterList"]


def _as_parameter(x: Any) -> Any:
    return Parameter(x) if isinstance(x, Tensor) and not isinstance(x, Parameter) else x


class ParameterList(Module):
    """A list of parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _name_at(self, index: Any) -> str:
        i = operator.index(index)
        if not -len(self) <= i < len(self):
            raise IndexError(f"index {i} is out of range")
        return str(i % len(self))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(self[i] for i in range(*index.indices(len(self))))
        return getattr(self, self._name_at(index))

    def __setitem__(self, index: int, param: Any) -> None:
        setattr(self, self._name_at(index), _as_parameter(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __iadd__(self, parameters: Iterable[Any]) -> Self:
        return self.extend(parameters)

    def append(self, value: Any) -> Self:
        """Add a value at the end."""
        self._size += 1
        self[-1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add values at the end. TypeError where they cannot be iterated over."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        """See Module."""
        return "\n".join(_line(i, p, str(p.dtype) if isinstance(p, Tensor) else "") for i, p in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """RuntimeError."""
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dictionary of parameters."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(f"Index given to ParameterDict cannot be used as a key as it is not a string (type is '{type(key).__name__}').")
        self._keys[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __or__(self, other: ParameterDict) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ior__(self, other: ParameterDict) -> Self:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """Another dictionary of the same parameters."""
        return ParameterDict({key: self[key] for key in self._keys})

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dictionary of the keys, each with `default`."""
        return ParameterDict({key: default for key in keys})

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, `default` where there is none."""
        return getattr(self, key) if key in self._keys else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of a key, which is set first where there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Take everything out."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Take a value out."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Take the last key and value out."""
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def keys(self) -> Iterable[str]:
        """The keys."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Keys and values."""
        return [(key, self[key]) for key in self._keys]

    def values(self) -> Iterable[Any]:
        """The values."""
        return [self[key] for key in self._keys]

    def update(self, parameters: Any) -> None:
        """Add parameters: a mapping, or pairs. TypeError, ValueError where it is neither."""
        for key, value in pairs_of(parameters, "ParameterDict", "ParametersDict"):
            self[key] = value

    def extra_repr(self) -> str:
        """See Module."""
        return "\n".join(_line(key, p, p.type().replace("torch.cuda.", "torch.") if isinstance(p, Tensor) else "") for key, p in self.items())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """RuntimeError."""
        raise RuntimeError("ParameterDict should not be called.")


def _line(key: Any, p: Any, kind: str) -> str:
    if not isinstance(p, Tensor):
        return f"  ({key}): Object of type: {type(p).__name__}"
    size = "x".join(map(str, p.shape))
    what = "Parameter" if isinstance(p, Parameter) else "Tensor"
    where = "" if p.is_cpu else f" ({p.device})"
    return f"  ({key}): {what} containing: [{kind} of size {size}{where}]"
