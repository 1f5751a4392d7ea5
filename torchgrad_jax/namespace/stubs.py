"""Type stubs for editors and type checkers, made from what is published and from PyTorch's signatures.

``python -m torchgrad_jax.namespace.stubs`` writes `torchgrad_jax/__init__.pyi` (`torch.X`) and `torchgrad_jax/core/declared.pyi` (`Tensor.X`: the
base that `Tensor` has for type checkers); with ``--check`` it fails where they are not what it would write.
"""

from __future__ import annotations

import importlib
import inspect
import keyword
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torchgrad_jax
from torchgrad_jax.calling.convention import PythonConvention, convention
from torchgrad_jax.calling.overrides import publics
from torchgrad_jax.calling.signature import Parameter, Signature
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.operators import registry

ROOT = Path(__file__).parents[1]
# Names of types that are names of methods, too, stand with a line before them.
_KINDS = {
    "Tensor": "Tensor", "Tensor|Scalar": "Tensor | _Number", "Tensor[]": "Sequence[Tensor]", "Scalar": "_Number", "int": "_int", "float": "_float",
    "bool": "_bool", "bool!": "_bool", "str": "str", "int[]": "Sequence[_int]", "float[]": "Sequence[_float]", "Scalar[]": "Sequence[_Number]",
    "dtype": "_dtype", "device": "_device | str | _int", "layout": "_layout", "memory_format": "_memory_format", "Generator": "_Generator",
}  # fmt: skip
_HEAD = '''"""{what}. Made by `python -m torchgrad_jax.namespace.stubs`; not to be edited."""

from builtins import bool as _bool
from builtins import complex as _complex
from builtins import float as _float
from builtins import int as _int
from collections.abc import Iterator, Sequence
from typing import Any, Self, overload

import numpy as _numpy

from torchgrad_jax.core.tensor import Tensor as Tensor
from torchgrad_jax.declaration.dtypes import dtype as _dtype
from torchgrad_jax.declaration.strides import layout as _layout
from torchgrad_jax.functions.random import Generator as _Generator
from torchgrad_jax.memory.formats import memory_format as _memory_format
from torchgrad_jax.runtime.device import device as _device

_Number = _int | _float | _complex | _bool

'''
# What is there for type checkers whatever is published: Python's protocols, whose signatures PyTorch's table has not.
_PROTOCOLS = {
    **{f"__{r}{name}__": "(self, other: Any) -> Tensor" for r in ("", "r") for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")},
    **{f"__i{name}__": "(self, other: Any) -> Self" for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")},
    **{f"__{name}__": "(self, other: Any) -> Tensor" for name in ("lt", "le", "gt", "ge")},
    **{f"__{name}__": "(self, other: Any) -> Any" for name in ("eq", "ne")},
    **{f"__{name}__": "(self) -> Tensor" for name in ("neg", "pos", "abs", "invert")},
    "__getitem__": "(self, key: Any) -> Tensor", "__setitem__": "(self, key: Any, value: Any) -> None", "__iter__": "(self) -> Iterator[Tensor]",
    "__contains__": "(self, element: Any) -> _bool", "__reversed__": "(self) -> Tensor", "__float__": "(self) -> _float", "__int__": "(self) -> _int",
    "__index__": "(self) -> _int", "__bool__": "(self) -> _bool", "__complex__": "(self) -> _complex",
    "__array__": "(self, dtype: Any = None, copy: _bool | None = None) -> _numpy.ndarray",
    "numpy": "(self, *, force: _bool = False) -> _numpy.ndarray", "item": "(self) -> Any", "tolist": "(self) -> Any",
}  # fmt: skip


def _type(p: Parameter) -> str:
    found = _KINDS.get(p.kind, "Any")
    if p.width and found.startswith("Sequence"):
        found += f" | {found.removeprefix('Sequence[').removesuffix(']')}"
    return f"{found} | None" if p.takes_none and found != "Any" else found


def _default(p: Parameter) -> str:
    return "" if p.default is None else " = None" if p.default == "None" else " = ..."


def _parameters(signature: Signature, method: bool) -> str:
    found, optional = ["self"] if method else [], False
    for i, p in enumerate(signature.parameters):
        if method and i == 0 and p.name in ("input", "self"):
            continue
        name = f"{p.name}_" if keyword.iskeyword(p.name) else p.name
        if p.keyword_only and "*" not in found and not any(x.startswith("*") for x in found):
            found.append("*")
        if signature.gathers and p.kind == "int[]" and not p.keyword_only:
            found.append(f"*{name}: _int | Sequence[_int]")
            continue
        default = _default(p) or (" = ..." if optional and not p.keyword_only else "")
        optional = optional or bool(default)
        found.append(f"{name}: {_type(p)}{default}")
    return ", ".join(found)


def _returned(name: str, function: Any) -> str:
    """What a function returns, as far as its declaration or its own annotation says."""
    annotation = getattr(inspect.unwrap(function), "__annotations__", {}).get("return")
    if annotation in ("Tensor", "bool", "int", "float", "str"):
        return annotation if annotation in ("Tensor", "str") else f"_{annotation}"
    short = name.rpartition(".")[2]
    operator = registry.get(short.removesuffix("_") if short.endswith("_") else short)
    declared = operator is not None and operator.results is None and getattr(function, "__doc__", None) and operator.schema.text in function.__doc__
    return "Tensor" if declared or (short.endswith("_") and not short.startswith("_")) else "Any"


def _function(name: str, function: Any) -> Iterator[str]:
    """The lines that declare a public function or method."""
    short, method = name.rpartition(".")[2], name.startswith("torch.Tensor.")
    known = convention(name)
    returned = _returned(name, function)
    if known is None or isinstance(known, PythonConvention):
        yield f"def {short}({'self, ' if method else ''}*args: Any, **kwargs: Any) -> {returned}: ..."
        return
    several = list(dict.fromkeys(_parameters(s, method) for s in known.listed))
    for parameters in several:
        if len(several) > 1:
            yield "@overload"
        yield f"def {short}({parameters}) -> {returned}: ..."


def _public_name(value: Any) -> str | None:
    try:
        found = publics.get(value)
    except TypeError:
        return None
    return None if found is None else found.name


def tensor() -> str:
    """The text of `core/declared.pyi`."""
    lines = []
    for name, value in sorted(vars(Tensor).items()):
        if name in _PROTOCOLS:
            lines.append(f"    def {name}{_PROTOCOLS[name]}: ..." + ("  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""))
        elif isinstance(value, property) and not name.startswith("__") and name not in _own():
            settable = f"    @{name}.setter\n    def {name}(self, value: Any) -> None: ..." if _settable(name) else None
            lines += [f"    @property\n    def {name}(self) -> Any: ...", *([settable] if settable else [])]
        elif callable(value) and not name.startswith("_") and name not in _own():
            lines += [f"    {line}" for line in _function(f"torch.Tensor.{name}", value)]
    lines += ["    @staticmethod", "    def _make_subclass(cls: type, data: Tensor, require_grad: _bool = False) -> Any: ..."]
    return _HEAD.format(what="What `Tensor` has beside what its class says") + "class Declared:\n" + "\n".join(lines) + "\n"


def _settable(name: str) -> bool:
    """Whether an attribute of tensors may be assigned to: guards have a setter of every attribute, which may refuse."""
    t = torchgrad_jax.ones(2, 2)
    try:
        setattr(t, name, getattr(t, name))
    except AttributeError:
        return False
    except RuntimeError:  # not to this value
        return True
    return True


def _own() -> frozenset[str]:
    """What the class Tensor itself says."""
    tree = inspect.getsource(Tensor)
    return frozenset(line.split("(")[0].removeprefix("    def ").strip() for line in tree.splitlines() if line.startswith("    def "))


def torch() -> str:
    """The text of `__init__.pyi`."""
    lines, modules = [], []
    for name, value in sorted(vars(torchgrad_jax).items()):
        public = _public_name(value)
        if name.startswith("_") or name in ("load_ipython_extension",):
            continue
        if isinstance(value, ModuleType):
            modules.append(name)
        elif public is not None and public.startswith(("torch.", "torch.functional.")) and not inspect.isclass(value):
            lines += _function(f"torch.{name}", value)
        elif callable(value) and (home := _home(name, value)) is not None:
            if value is not Tensor:
                lines.append(f"from {home} import {value.__name__} as {name}")
        else:
            lines.append(f"{name}: {_kind(value)}")
    folders = [n for n in modules if (ROOT / n).exists() or (ROOT / f"{n}.py").exists()]
    imports = "".join(f"from torchgrad_jax import {name} as {name}\n" for name in folders)
    names = [line for line in lines if line.startswith("from ")]
    rest = [line for line in lines if not line.startswith("from ")]
    head = _HEAD.format(what="`torch.X`")
    return head + imports + "\n".join(names) + "\n\n__version__: str\n\n" + "\n".join(rest) + "\n"


def _home(name: str, value: Any) -> str | None:
    """The module in which a class or function is written: some classes are said to be elsewhere, for pickles."""
    said = getattr(value, "__module__", "")
    if said != "torchgrad_jax":
        return said if said.startswith("torchgrad_jax.") and hasattr(importlib.import_module(said), value.__name__) else None
    rooms = [m for n, m in sorted(sys.modules.items()) if n.startswith("torchgrad_jax.")]
    return next((m.__name__ for m in rooms if vars(m).get(name) is value and inspect.getsourcefile(value) == m.__file__), None)


def _kind(value: Any) -> str:
    for name in ("dtype", "layout", "memory_format", "Generator"):
        if isinstance(value, getattr(torchgrad_jax, name)):
            return f"_{name}"
    return "_float" if type(value) is float else "Any"


FILES = {ROOT / "__init__.pyi": torch, ROOT / "core" / "declared.pyi": tensor}


def main(arguments: list[str]) -> int:
    """The command."""
    stale = [path for path, make in FILES.items() if not path.exists() or path.read_text() != make()]
    if "--check" in arguments:
        for path in stale:
            print(f"{path} is not what `python -m torchgrad_jax.namespace.stubs` writes", file=sys.stderr)
        return bool(stale)
    for path in stale:
        path.write_text(FILES[path]())
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
