"""`torch.library.Library`: operators by their schemas, and kernels for them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torchgrad_jax.library.operators import COMPOSITE, DEFAULT, Overload, forget, operator_named, operators, tags_of
from torchgrad_jax.library.schema import Schema

__all__ = ["Library", "define", "fallthrough_kernel", "impl"]

_RESERVED = ("prim",)
# What PyTorch's dispatch keys are here.
_KEYS = {
    "CPU": "cpu", "CUDA": "cuda", "": COMPOSITE, "CompositeImplicitAutograd": COMPOSITE, "CompositeExplicitAutograd": DEFAULT,
    "CompositeExplicitAutogradNonFunctional": DEFAULT, "BackendSelect": DEFAULT,
}  # fmt: skip
_AUTOGRAD_KEYS = {"Autograd": DEFAULT, "AutogradCPU": "cpu", "AutogradCUDA": "cuda"}
_whole: dict[str, Library] = {}


class Library:
    """Operators of one namespace: `define` gives one a schema, `impl` a kernel.

    kind: "DEF" for a namespace of one's own, "FRAGMENT" for part of one, "IMPL" for kernels alone. dispatch_key: which kernels are for: "CPU",
    "CUDA", "CompositeExplicitAutograd" (all), "CompositeImplicitAutograd" (all, and autograd follows what they are made of), "Autograd",
    "AutogradCPU", "AutogradCUDA" (called in place of the others, but in inference mode, and followed). Where no formula is registered, autograd
    follows the operations of any kernel, as in PyTorch. ValueError for other kinds and reserved namespaces, NotImplementedError for other keys.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns in _RESERVED and kind in ("DEF", "FRAGMENT"):
            raise ValueError(f"{ns} is a reserved namespace. Please try creating a library with another name.")
        if kind == "DEF" and _whole.setdefault(ns, self) is not self:
            raise RuntimeError(
                f"Only a single TORCH_LIBRARY can be used to register the namespace {ns}; please put all of your definitions in a single "
                "TORCH_LIBRARY block.  If you were trying to specify implementations, consider using TORCH_LIBRARY_IMPL (which can be duplicated).  "
                "If you really intended to define operators for a single namespace in a distributed way, you can use TORCH_LIBRARY_FRAGMENT to "
                "explicitly indicate this."
            )
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._defined: list[str] = []

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Define an operator, ``"name(Tensor x) -> Tensor"``. Its name. RuntimeError where there is one of this name, and in an "IMPL". tags: of
        `torch.Tag`, one or several."""
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        name, _, rest = schema.partition("(")
        if self.kind == "IMPL":
            raise RuntimeError(
                f'def("{name.strip()}"): Cannot define an operator inside of a TORCH_LIBRARY_IMPL block.  All def()s should be placed in the '
                "(unique) TORCH_LIBRARY block for their namespace."
            )
        operator = operator_named(f"{self.ns}::{name.strip()}")
        if operator.schema is not None:
            raise RuntimeError(
                f"Tried to register an operator ({Schema(operator.name, '(' + rest)}) with the same name and overload name multiple times. Each "
                "overload's schema should only be registered with a single call to def()."
            )
        operator.define("(" + rest, tags_of(tags))
        self._defined.append(operator.name)
        return name.strip()

    def impl(self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", *, with_keyset: bool = False, allow_override: bool = False) -> None:
        """Register a kernel. TypeError for what cannot be called, NotImplementedError for `with_keyset` and dispatch keys that there are not here."""
        if not callable(fn):
            raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
        if with_keyset:
            raise NotImplementedError("Library.impl(): torchgrad_jax has no sets of dispatch keys to give to a kernel; leave out with_keyset")
        name = op_name.name() if isinstance(op_name, Overload) else op_name
        operator = operator_named(name if "::" in name else f"{self.ns}::{name}")
        key = dispatch_key or self.dispatch_key
        if key == "Meta":
            operator.fake = fn
            return
        if key in _AUTOGRAD_KEYS:
            operator.followed[_AUTOGRAD_KEYS[key]] = fn
            return
        if key not in _KEYS:
            raise NotImplementedError(
                f"Library.impl(): torchgrad_jax has no dispatch key {key!r}; use one of {', '.join(filter(None, (*_KEYS, *_AUTOGRAD_KEYS)))}, or "
                "torch.library.register_autograd"
            )
        operator.kernels[_KEYS[key]] = fn

    def _destroy(self) -> None:
        """Take its operators away."""
        for name in self._defined:
            forget(name)
        self._defined = []
        if _whole.get(self.ns) is self:
            del _whole[self.ns]


@contextlib.contextmanager
def _scoped_library(*args: Any, **kwargs: Any) -> Iterator[Library]:
    """A Library whose operators are gone after the block."""
    made = Library(*args, **kwargs)
    before = set(operators)
    try:
        yield made
    finally:
        made._destroy()
        for name in set(operators) - before:
            if name.startswith(f"{made.ns}::"):
                forget(name)


def define(qualname: str, schema: Any, *, lib: Library | None = None, tags: Any = ()) -> Any:
    """Define an operator, ``define("namespace::name", "(Tensor x) -> Tensor")``; tags: see `Library`. ValueError for other names and schemas."""
    namespace, name = operator_named(qualname).name.split("::")
    if not isinstance(schema, str):
        raise ValueError(f"define(qualname, schema): expected schema to be of type str, got {type(schema)}")
    if not (schema.lstrip().startswith("(") and "->" in schema):
        raise ValueError(f'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> Tensor" but got "{schema}"')
    (Library(namespace, "FRAGMENT") if lib is None else lib).define(name + schema, tags=tags)


def impl(qualname: str, types: str | Sequence[str], func: Any = None, *, lib: Library | None = None) -> Any:
    """Register a kernel for types of devices, or "default" for all. Decorator without `func`."""
    operator = operator_named(qualname)
    wanted = (types,) if isinstance(types, str) else tuple(types)

    def register(function: Callable[..., Any]) -> None:
        for kind in wanted:
            operator.kernels[DEFAULT if kind == "default" else _KEYS.get(kind, kind)] = function

    if func is None:
        return register
    register(func)
    return None


def fallthrough_kernel() -> Any:
    """NotImplementedError: it stands for no kernel, and is never called."""
    raise NotImplementedError(f"{inspect.currentframe().f_code.co_name}() should never be called.")  # type: ignore[union-attr] - CPython has it
