"""Submodules of the torch-shaped namespace that are loaded when something of theirs is first asked for.

A module-level `__getattr__` in the package would do the same, and cost each `torch.add` of the user's 20 ns.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

_lock = threading.RLock()
_loading: set[str] = set()
# Dunder names that only the loaded module has; other ones, which tools ask of every module in sys.modules, load nothing.
_OF_THE_FILE = ("__path__", "__all__", "__file__", "__dict__")


class _Unloaded(ModuleType):
    """Stands for a module until an attribute is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _OF_THE_FILE and not (name == "__version__" and self.__name__.endswith(".version")):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        load(self)
        if is_unloaded(self):  # its own source asks
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} yet")
        return getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # A module of the package may be imported before the package's own source has run.
        if not name.startswith("__") and sys.modules.get(f"{self.__name__}.{name}") is not value:
            load(self)
        ModuleType.__setattr__(self, name, value)

    def __dir__(self) -> Iterable[str]:
        load(self)
        return dir(self)


def is_unloaded(module: Any) -> bool:
    """Whether nothing of the module has been asked for yet."""
    return type(module) is _Unloaded


# Modules of which the source is in another folder than their names say.
_elsewhere: dict[str, str] = {}
# Further names of modules.
_aliases: dict[str, str] = {}
_afterwards: dict[str, Callable[[ModuleType], None]] = {}


def when_loaded(module: ModuleType, then: Callable[[ModuleType], None]) -> None:
    """Call `then` with an unloaded module once it is loaded."""
    _afterwards[module.__name__] = then


def load(module: ModuleType) -> None:
    """Run the module's source, if that has not happened."""
    name = module.__name__
    with _lock:
        if not is_unloaded(module) or name in _loading:
            return
        if name in _aliases:
            load(sys.modules[name.rpartition(".")[0]])  # its source may have more to do to its modules
            found = vars(import_module(_aliases[name]))
            vars(module).update({key: value for key, value in found.items() if not key.startswith("__") or key in _OF_THE_FILE})
            module.__class__ = ModuleType
            return
        if name in _elsewhere:
            spec = spec_from_file_location(name, _elsewhere[name])
        else:
            spec = PathFinder.find_spec(name, sys.modules[name.rpartition(".")[0]].__path__)
        assert spec is not None and spec.loader is not None
        vars(module).update({key: value for key, value in vars(module_from_spec(spec)).items() if key.startswith("__")})
        _loading.add(name)
        try:
            spec.loader.exec_module(module)
        finally:
            _loading.discard(name)
        if is_unloaded(module):  # its source may give it a class
            module.__class__ = ModuleType  # last: other threads wait for the lock until then
    then = _afterwards.pop(name, None)
    if then is not None:
        then(module)


def submodules(package: str, names: Iterable[str]) -> dict[str, ModuleType]:
    """The named submodules of a package, not loaded yet, for its namespace."""
    found = {}
    for name in names:
        dotted = f"{package}.{name}"
        found[name] = sys.modules.setdefault(dotted, _Unloaded(dotted))
    return found


def subpackage(package: str, name: str) -> ModuleType:
    """A package within a package, not loaded yet, whose modules can be imported before it is."""
    found = submodules(package, (name,))[name]
    found.__path__ = [f"{path}/{name}" for path in sys.modules[package].__path__]
    return found


def module_elsewhere(package: str, name: str, path: str) -> None:
    """Let `package` have a submodule, not loaded yet, of which the source is at `path`, from the folder of the whole on: it belongs to a later layer
    than its name says."""
    dotted = f"{package}.{name}"
    _elsewhere[dotted] = f"{sys.modules[package.partition('.')[0]].__path__[0]}/{path}"
    vars(sys.modules[package])[name] = submodules(package, (name,))[name]


def further_names(package: str, names: Mapping[str, str]) -> None:
    """Let modules of a package, which is not loaded yet, have further names; by each, what the module has is found."""
    found = submodules(package, names)
    _aliases.update({f"{package}.{name}": f"{package}.{target}" for name, target in names.items()})
    when_loaded(sys.modules[package], lambda module: vars(module).update(found))
