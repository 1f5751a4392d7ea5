"""Modules that hold modules, Sequential, ModuleList and ModuleDict, and such that hold parameters, ParameterList and ParameterDict."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.module import Module, framed
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class Container(Module):
    """A Module with the given ones as its members; a FutureWarning, since a Module is one itself."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        warn_user(
            "`nn.Container` is deprecated. All of its functionality is now implemented in `nn.Module`. Subclass that instead.", FutureWarning
        )  # fmt: skip
        for name, module in kwargs.items():
            self.add_module(name, module)


def _place(index: Any, size: int) -> int:
    i = operator.index(index)
    if not -size <= i < size:
        raise IndexError(f"index {i} is out of range")
    return i % size


class _Numbered(Module):
    """What is common to Sequential and ModuleList: submodules named by their numbers."""

    def _list_name_at(self, index: Any) -> str:
        return list(self._modules)[_place(index, len(self))]

    def _list_renumber(self, modules: Iterable[Any]) -> None:
        self._modules = {str(i): module for i, module in enumerate(modules)}

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._list_of_slice(list(self._modules.items())[index])
        return self._modules[self._list_name_at(index)]

    def _list_of_slice(self, items: list[tuple[str, Any]]) -> Any:
        return type(self)(*[OrderedDict(items)])

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._list_name_at(index), module)

    def __delitem__(self, index: Any) -> None:
        names = list(self._modules)[index] if isinstance(index, slice) else [self._list_name_at(index)]
        for name in names:
            delattr(self, name)
        self._list_renumber(self._modules.values())

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key: Any) -> Any:
        """Take the module of a number out."""
        found = self[key]
        del self[key]
        return found


class Sequential(_Numbered):
    """Modules one after the other: ``Sequential(a, b)``, or an OrderedDict of them by name."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        items = args[0].items() if len(args) == 1 and isinstance(args[0], OrderedDict) else ((str(i), m) for i, m in enumerate(args))
        for name, module in items:
            self.add_module(name, module)

    def forward(self, input: Any) -> Any:
        """The last module's output."""
        for module in self:
            input = module(input)
        return input

    def __add__(self, other: Any) -> Sequential:
        return Sequential(*self, *_sequence(other))

    def __iadd__(self, other: Any) -> Self:
        return self.extend(list(_sequence(other)))

    def _list_times(self, count: Any) -> list[Any]:
        if not isinstance(count, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(count)}")
        if count <= 0:
            raise ValueError(f"Non-positive multiplication factor {count} for {type(self)}")
        return list(self) * count

    def __mul__(self, other: int) -> Sequential:
        return Sequential(*self._list_times(other))

    def __rmul__(self, other: int) -> Sequential:
        return self * other

    def __imul__(self, other: int) -> Self:
        self._list_renumber(self._list_times(other))
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Put a module before the one of this number. AssertionError where it is none, IndexError where there is no such place."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Index out of range: {index}")
        modules = list(self)
        modules.insert(index, module)
        self._list_renumber(modules)
        return self

    def extend(self, sequential: Iterable[Module]) -> Self:
        """Add modules at the end."""
        for module in sequential:
            self.append(module)
        return self


def _sequence(other: Any) -> Sequential:
    if not isinstance(other, Sequential):
        raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
    return other


class ModuleList(_Numbered):
    """A list of modules."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _get_abs_string_index(self, index: Any) -> str:
        """The name of the module of a number. It is private in PyTorch too, and called by subclasses that replace `__getitem__`."""
        return str(_place(index, len(self)))

    def _list_name_at(self, index: Any) -> str:
        return self._get_abs_string_index(index)

    def _list_of_slice(self, items: list[tuple[str, Any]]) -> ModuleList:
        return type(self)(module for _, module in items)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(list(self) + list(other))

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def insert(self, index: int, module: Module) -> None:
        """Put a module before the one of this number, or under a number that there is not. KeyError where that is negative."""
        if index < 0:
            raise KeyError("-1")  # as PyTorch says it
        if index >= len(self):
            self._modules[str(index)] = module
            return
        modules = list(self)
        modules.insert(index, module)
        self._list_renumber(modules)

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end. TypeError where they cannot be iterated over."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        for module in list(modules):
            self.append(module)
        return self

    def __repr__(self) -> str:
        """Like a Module's; equal neighbours are one line."""
        groups: list[tuple[int, int, str]] = []
        for i, text in enumerate(map(repr, self)):
            if groups and groups[-1][2] == text:
                groups[-1] = (groups[-1][0], i, text)
            else:
                groups.append((i, i, text))
        lines = [f"({a}): {text}" if a == b else f"({a}-{b}): {b - a + 1} x {text}" for a, b, text in groups]
        return framed(self._get_name(), [line.replace("\n", "\n  ") for line in lines])


class ModuleDict(Module):
    """A dictionary of modules."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Take all modules out."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Take a module out. KeyError where there is none."""
        return self._modules.pop(key)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and modules."""
        return self._modules.items()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add modules: a mapping, or pairs. TypeError, ValueError where it is neither."""
        for name, module in pairs_of(modules, "ModuleDict"):
            self[name] = module


def pairs_of(given: Any, owner: str, called: str | None = None) -> Iterable[tuple[str, Any]]:
    """The pairs that an `update` is given. TypeError, ValueError where they are none."""
    if not isinstance(given, Iterable):
        raise TypeError(f"{called or owner}.update should be called with an iterable of key/value pairs, but got {type(given).__name__}")
    if isinstance(given, Mapping) or hasattr(given, "items"):
        return list(given.items())  # type: ignore[attr-defined] - just looked for
    found = []
    for i, pair in enumerate(given):
        if not isinstance(pair, Iterable):
            raise TypeError(f"{owner} update sequence element #{i} should be Iterable; is{type(pair).__name__}")
        pair = tuple(pair)
        if len(pair) != 2:
            raise ValueError(f"{owner} update sequence element #{i} has length {len(pair)}; 2 is required")
        found.append(pair)
    return found


# ---------------------------------------------------------------------- parameters


# Tensors that are put in become Parameters; other things stay what they are.
def _as_parameter(x: Any) -> Any:
    return Parameter(x) if isinstance(x, Tensor) and not isinstance(x, Parameter) else x


class ParameterList(Module):
    """A list of parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _get_abs_string_index(self, index: Any) -> str:
        return str(_place(index, len(self)))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(self[i] for i in range(*index.indices(len(self))))
        return getattr(self, self._get_abs_string_index(index))

    def __setitem__(self, index: int, param: Any) -> None:
        setattr(self, self._get_abs_string_index(index), _as_parameter(param))

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
        return ParameterDict([(key, self[key]) for key in self._keys])

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dictionary of the keys, each with `default`."""
        return ParameterDict([(key, default) for key in keys])

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
        pairs = pairs_of(parameters, "ParameterDict", "ParametersDict")
        # Those of a mapping that says nothing of an order come in that of their keys.
        ordered = not isinstance(parameters, Mapping) or isinstance(parameters, (OrderedDict, ParameterDict))
        for key, value in pairs if ordered else sorted(pairs):
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
