"""What things are called in graphs: nodes by what they do, functions and types by the names under which PyTorch has them."""

from __future__ import annotations

import builtins
import keyword
import math
import re
import sys
import types
import typing
from typing import Any

from torchgrad_jax._ops import OpOverload, OpOverloadPacket
from torchgrad_jax.calling.overrides import publics

PACKAGE = __name__.partition(".")[0]

# Names that generated code has for its own use.
OWN: dict[str, Any] = {
    "inf": math.inf, "nan": math.nan, "NoneType": type(None), "torch": None, "device": None, "fx_pytree": None, "pytree": None,
}  # fmt: skip
# The functions of `torch.nn.functional` that PyTorch has in its C++ library.
_IN_C = frozenset((
    "avg_pool2d", "avg_pool3d", "elu_", "gelu", "hardtanh_", "leaky_relu_", "linear", "logsigmoid", "one_hot", "scaled_dot_product_attention",
    "softplus", "softshrink",
))  # fmt: skip
# Operators that PyTorch has under the names of methods.
_METHODS = {
    "__abs__": "abs", "__eq__": "eq", "__ipow__": "pow_", "__itruediv__": "__idiv__", "__neg__": "neg", "__pos__": "positive", "__pow__": "pow",
    "__rtruediv__": "__rdiv__",
}  # fmt: skip


def method_of(function: Any) -> str | None:
    """The name of the method of Tensor that a public function is; None if it is none."""
    public = publics.get(function)
    if public is None or not public.name.startswith("torch.Tensor."):
        return None
    name = public.name.removeprefix("torch.Tensor.").removesuffix(".__get__").removesuffix(".__set__")
    return _METHODS.get(name, name)


def qualified_name(target: Any) -> str:
    """The dotted name of a function or class; what is here is named as in PyTorch."""
    public = publics.get(target) if isinstance(target, typing.Hashable) else None
    if public is not None:
        return _of_public(public.name)
    if isinstance(target, types.BuiltinFunctionType) and target.__module__ == "builtins":
        return target.__name__
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        return f"torch.ops.{target}"
    name = str(getattr(target, "__name__", type(target).__name__))
    module = getattr(target, "__module__", None) or _module_of_method(target)
    if module == "builtins" and isinstance(target, type):
        return name
    if module.partition(".")[0] in (PACKAGE, "torch"):
        if getattr(sys.modules[PACKAGE], name, None) is target:
            return f"torch.{name}"
        module = module.replace(PACKAGE, "torch", 1)
    return f"{module}.{name}"


def _of_public(name: str) -> str:
    namespace, _, short = name.rpartition(".")
    if namespace == "torch.nn.functional":
        return f"torch._C._nn.{'log_sigmoid' if short == 'logsigmoid' else short}" if short in _IN_C else name
    if namespace in ("torch.linalg", "torch.special", "torch.fft"):
        part = namespace[6:]
        return f"torch._C._{part}.{part}_{short}"
    return name


def _module_of_method(function: Any) -> str:
    owner = getattr(function, "__objclass__", None)
    if owner is None:
        raise RuntimeError(f"cannot find module for {function}")
    return f"{owner.__module__}.{owner.__name__}"


def shown_target(target: Any) -> str:
    """A target as graphs print it."""
    if isinstance(target, str):
        return target
    if getattr(target, "__module__", None) == "_operator":
        return f"operator.{target.__name__}"
    found = qualified_name(target)
    return found if "." in found else f"builtins.{found}"


def found_in_torch(name: str) -> Any:
    """What a dotted name that begins with `torch` means; None if it is nothing."""
    found: Any = sys.modules[PACKAGE]
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    return found


def shown_type(kind: Any) -> str:
    """A type as graphs print it."""
    if isinstance(kind, type) and not isinstance(kind, types.GenericAlias):
        return kind.__qualname__ if kind.__module__ == "builtins" else _of_torch(kind)
    if isinstance(kind, types.GenericAlias):
        return f"{shown_type(kind.__origin__)}[{', '.join(map(shown_type, kind.__args__))}]"
    if kind is ...:
        return "..."
    return kind.__name__ if isinstance(kind, types.FunctionType) else repr(kind).replace(f"{PACKAGE}.core.tensor", "torch").replace(PACKAGE, "torch")


def _of_torch(kind: type) -> str:
    if kind.__module__.partition(".")[0] == PACKAGE:
        return qualified_name(kind)
    return f"{kind.__module__}.{kind.__qualname__}"


def snake_case(name: str) -> str:
    """A name of a class as one of a variable: ``BatchNorm2d`` is ``batch_norm2d``."""
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def identifier(text: str) -> str:
    """A text with what cannot stand in a name left out."""
    return re.sub("[^0-9a-zA-Z_]+", "_", text)


class Names:
    """The names that are taken, and whose they are."""

    def __init__(self) -> None:
        self.owners: dict[Any, str] = {}
        self.used: set[str] = set()
        self._last: dict[str, int] = {}

    def create(self, candidate: str, owner: Any = None) -> str:
        """A name that nobody has, like the candidate. owner: who has it from now on, and may ask for it again."""
        if owner is not None and owner in self.owners:
            return self.owners[owner]
        candidate = identifier(candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        match = re.match(r"(.+)_(\d+)$", candidate)
        base, number = (candidate, None) if match is None else (match[1], int(match[2]))
        if candidate in self.used or is_illegal(candidate, owner):
            number = self._last.get(base, 0)
            while candidate in self.used or is_illegal(candidate, owner):
                number += 1
                candidate = f"{base}_{number}"
        self.used.add(candidate)
        self._last[base] = max(self._last.get(base, 0), number or 0)
        if owner is not None:
            self.owners[owner] = candidate
        return candidate

    def give(self, name: str, owner: Any) -> None:
        """Let `owner` have a name that was created for it."""
        self.owners[owner] = name

    def rename(self, owner: Any, name: str) -> None:
        """Let `owner` have another name."""
        self.owners[owner] = name
        self.used.add(name)


def is_illegal(name: str, owner: Any = None) -> bool:
    """Whether a name means something in generated code that is not the owner."""
    if name in keyword.kwlist:
        return True
    if name in vars(builtins):
        return vars(builtins)[name] is not owner
    return name in OWN
