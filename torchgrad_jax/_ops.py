"""`torch.ops`: operators by the names that they have in ATen, for policies of selective checkpoints.

Names are told by the nodes of the graph, which PyTorch has named after its operators; operators that there are none of here can be named, too.
Overloads of one operator are equal to each other: which of them a call is differs between this library and PyTorch.
"""

from __future__ import annotations

import enum
import importlib.resources
import os
import re
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

from torchgrad_jax import _aten
from torchgrad_jax.calling.overrides import ask, overloaded, state
from torchgrad_jax.declaration.operator import NOT_IMPLEMENTED, BoundOperator, Operator
from torchgrad_jax.namespace import methods
from torchgrad_jax.operators import registry


@cache
def _of_pytorchs() -> tuple[frozenset[str], frozenset[str]]:
    """ATen's operators and its names of overloads (aten_names.txt): packages name some that there are none of here, as keys of tables."""
    text = importlib.resources.files(__package__ or "torchgrad_jax").joinpath("aten_names.txt").read_text()
    _, _, words = text.partition("\noperators\n")
    operators, _, overloads = words.partition("\noverloads\n")
    return frozenset(operators.split()), frozenset(overloads.split())


def _key(name: str) -> str:
    return name.replace("_", "").lower()


@cache
def _by_key() -> dict[str, str]:
    """ATen's operators by their letters and digits; of `x` and `_x` the first."""
    return {_key(name): name for name in sorted(_of_pytorchs()[0], key=lambda name: (-len(name), name))}


def _of_node(name: str) -> str:
    """The operator's name in a node's: ``NativeLayerNormBackward0`` is native_layer_norm."""
    name = re.sub(r"Backward\d+", "", name)
    return _by_key().get(_key(name)) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _name_of(operator: Operator) -> str:
    """What ATen calls an operator; that of its declaration where no node tells it."""
    if operator.name in _known_names() or not isinstance(operator.node, str) or operator.node == NOT_IMPLEMENTED:
        return operator.name
    return _of_node(operator.node)


@cache
def _known_names() -> frozenset[str]:
    """The operators that have ATen's name already."""
    return frozenset(n for n, operator in registry.items() if operator.toplevel and not n.startswith("_"))


@cache
def _known() -> frozenset[str]:
    return frozenset(_key(_name_of(operator)) for operator in registry.values())


class Tag(enum.IntEnum):
    """What is said of an operator of the user's, to be asked of its overload as `tags`. Nothing here is decided by them."""

    __str__ = enum.Enum.__str__
    __repr__ = enum.Enum.__repr__

    core = 0
    cudagraph_unsafe = 1
    data_dependent_output = 2
    dynamic_output_shape = 3
    flexible_layout = 4
    generated = 5
    inplace = 6
    inplace_view = 7
    maybe_aliasing_or_mutating = 8
    needs_contiguous_strides = 9
    needs_exact_strides = 10
    needs_fixed_stride_order = 11
    nondeterministic_bitwise = 12
    nondeterministic_seeded = 13
    out = 14
    out_variant = 15
    pointwise = 16
    pt2_compliant_tag = 17
    reduction = 18
    view_copy = 19


def answered(func: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a mode, or the class of an argument, gives for a call of `func`; ``call(*args, **kwargs)`` where there is none to ask."""
    if state.passed_over() or state.everything:
        return call(*args, **kwargs)
    asked = [] if state.subclasses else overloaded((*args, *kwargs.values()))
    return ask(func, asked, args, kwargs) if asked or state.modes else call(*args, **kwargs)


class OpOverload:
    """One overload of an operator, ``torch.ops.aten.mm.default``. Called, it is the function of `torch`."""

    def __init__(self, packet: OpOverloadPacket, overload: str) -> None:
        self.packet, self._overloadname = packet, overload
        self.__name__ = f"{packet.__name__}.{overload}"

    @property
    def overloadpacket(self) -> OpOverloadPacket:
        """The operator."""
        return self.packet

    def name(self) -> str:
        """``aten::mm``; with the overload's name where it is not ``default``."""
        name = f"{self.packet.namespace}::{self.packet.__name__}"
        return name if self._overloadname == "default" else f"{name}.{self._overloadname}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the operator's function in `torch` gives. NotImplementedError where there is none."""
        return answered(self, self.packet.called, args, kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpOverload) and other.packet.key == self.packet.key

    def __hash__(self) -> int:
        return hash(self.packet.key)

    def __str__(self) -> str:
        return f"{self.packet}.{self._overloadname}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.packet}', overload='{self._overloadname}')>"


class OpOverloadPacket:
    """An operator, ``torch.ops.aten.mm``: its overloads are attributes."""

    namespace = "aten"

    def __init__(self, name: str) -> None:
        self.__name__, self.key = name, _key(name)

    def __getattr__(self, overload: str) -> OpOverload:
        if overload not in _of_pytorchs()[1]:
            raise AttributeError(f"The underlying op of '{self}' has no overload name '{overload}'")
        made = OpOverload(self, overload)
        self.__dict__[overload] = made
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the operator's function in `torch` gives. NotImplementedError where there is none."""
        return answered(self, self.called, args, kwargs)

    def called(self, *args: Any, **kwargs: Any) -> Any:
        """What the operator itself gives, whoever wants to answer."""
        function = _aten.functions.get(self.__name__) or methods.namespace.get(self.__name__)
        if function is None:
            raise NotImplementedError(f"torch.ops.{self} cannot be called: there is no torch.{self.__name__}; it only names operators for policies")
        return function(*args, **kwargs)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"


def _is_known(name: str) -> bool:
    return _key(name) in _known() or name in _aten.functions or name in _of_pytorchs()[0]


class _OpNamespace:
    """``torch.ops.aten``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> OpOverloadPacket:
        if self._name != "aten" or name.startswith("__") or not _is_known(name):
            raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{name}'")
        made = OpOverloadPacket(name)
        self.__dict__[name] = made
        return made


class _Ops:
    """``torch.ops``: namespaces of operators, `aten` and those of the user's, which `torch.library` puts there."""

    def __getattr__(self, name: str) -> _OpNamespace:
        if name.startswith("__"):
            raise AttributeError(name)
        made = self.__dict__[name] = _OpNamespace(name)
        return made

    @property
    def loaded_libraries(self) -> set[str]:
        """Empty: see `load_library`."""
        return set()

    def load_library(self, path: Any) -> NoReturn:
        """OSError, always: operators in shared libraries are PyTorch's C++; `torch.library` makes operators in Python."""
        path = os.path.realpath(path)
        instead = "\ntorchgrad_jax cannot run PyTorch's C++: torch.library makes operators of Python functions" if os.path.exists(path) else ""
        raise OSError(f"Could not load this library: {path}{instead}")


ops = _Ops()
_overloads: dict[Operator, OpOverload] = {}


def overload_of(bound: Any) -> OpOverload | None:
    """The operator of an operation; None of what is no declared one."""
    if not isinstance(bound, BoundOperator):
        return None
    found = _overloads.get(bound.operator)
    if found is None:
        found = _overloads[bound.operator] = getattr(getattr(ops.aten, _name_of(bound.operator)), "default")  # noqa: B009
    return found
