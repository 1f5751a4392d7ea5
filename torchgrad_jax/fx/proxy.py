"""`torch.fx.proxy`: what stands for the results of nodes while a program is recorded, and notes what is done to it."""

from __future__ import annotations

import dataclasses
import dis
import enum
import inspect
import operator
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from torchgrad_jax.core.tensor import Size
from torchgrad_jax.fx.code import magic_methods, reflectable_magic_methods
from torchgrad_jax.fx.graph import Graph
from torchgrad_jax.fx.naming import PACKAGE, method_of
from torchgrad_jax.fx.node import Argument, Node, Target, base_types, map_aggregate

__all__ = ["Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "Scope", "ScopeContextManager", "TraceError", "TracerBase"]

_NOT_ITERABLE = (
    "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or **kwargs function argument. See the "
    "torch.fx docs on pytorch.org for a more detailed explanation of what types of control flow can be traced, and check out the Proxy docstring for "
    "help troubleshooting Proxy iteration errors"
)
_NO_CONTROL_FLOW = "symbolically traced variables cannot be used as inputs to control flow"


class TraceError(ValueError):
    """A program that does what cannot be recorded."""


class Scope:
    """The module that is being traced: its path and its class."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path, self.module_type = module_path, module_type


class ScopeContextManager:
    """Within the block `scope` says what `current_scope` does."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._before = Scope(scope.module_path, scope.module_type)
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type
        self._scope = scope

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *exc: object) -> None:
        self._scope.module_path, self._scope.module_type = self._before.module_path, self._before.module_type


class TracerBase:
    """What makes nodes of what is done to proxies.

    record_stack_traces: note in nodes where in the program they are from. check_mutable_operations: refuse functions that write to
    their operands, such as `torch.relu_`. trace_asserts: let ``assert`` of a proxy be recorded. proxy_buffer_attributes: let buffers be proxies too.
    """

    graph: Graph
    record_stack_traces: bool = False
    check_mutable_operations: bool = False
    trace_asserts: bool = False
    proxy_buffer_attributes: bool = False
    traced_func_name: str = "forward"
    scope: Scope
    module_stack: OrderedDict[str, tuple[str, Any]]

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Make a node. Subclasses note here what is recorded. RuntimeError: see `check_mutable_operations`."""
        if kind == "call_function" and self.check_mutable_operations and _writes(target):
            raise RuntimeError(
                f"Tried to trace mutable operation {getattr(target, '__name__', target)}. FX only supports functional code, so "
                "operations that mutate operands in-place (e.g. via `out` arguments) are not supported"
            )
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        stack = getattr(self, "module_stack", None)
        if stack:
            node.meta["nn_module_stack"] = stack.copy()
        return node

    def proxy(self, node: Node) -> Proxy:
        """What stands for the result of a node."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Make a node of arguments among which there may be proxies, and what stands for its result."""
        given, named = self.create_arg(args), self.create_arg(kwargs)
        assert isinstance(given, tuple) and isinstance(named, dict)
        proxy = (proxy_factory_fn or self.proxy)(self.create_node(kind, target, given, named, name, type_expr))
        if self.record_stack_traces and not proxy.node.stack_trace:
            proxy.node.stack_trace = "".join(traceback.format_list(_users_frames()))
        return proxy

    def create_arg(self, a: Any) -> Argument:
        """A value as an argument of a node: nodes in the place of proxies. NotImplementedError for what no node can have."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            values = [self.create_arg(x) for x in a]
            return type(a)(*values) if hasattr(a, "_fields") else tuple(values)
        if isinstance(a, list):
            return [self.create_arg(x) for x in a]
        if isinstance(a, dict):
            return {self._key(key): self.create_arg(value) for key, value in a.items()}
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, range):
            return range(*[self.create_arg(x) for x in (a.start, a.stop, a.step)])
        if dataclasses.is_dataclass(a) and not isinstance(a, type):
            fields = {field.name: self.create_arg(getattr(a, field.name)) for field in dataclasses.fields(a)}
            return self.create_node("call_function", type(a), (), fields)
        if isinstance(a, (*base_types, enum.Enum)) or a is None or a is ...:
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _key(self, key: Any) -> Any:
        def refuse(x: Any) -> Any:
            if isinstance(x, (Node, Proxy)):
                raise RuntimeError(
                    f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {key if isinstance(key, Node) else key.node}"
                )
            return x

        map_aggregate(key, refuse)
        return key

    def to_bool(self, obj: Proxy) -> bool:
        """What ``bool`` of a proxy is. TraceError: it is not known yet. Subclasses may know better."""
        raise TraceError(_NO_CONTROL_FLOW)

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """What iteration over a proxy gives. TraceError: it is not known yet. Subclasses may know better."""
        raise TraceError(_NOT_ITERABLE)

    def keys(self, obj: Proxy) -> Any:
        """What ``keys`` of a proxy is: called where it is unpacked by ``**``."""
        return Attribute(obj, "keys")()


def _users_frames() -> list[traceback.FrameSummary]:
    """The frames of the program, outermost first."""
    return [f for f in traceback.extract_stack() if f"/{PACKAGE}/" not in f.filename.replace("\\", "/")]


class GraphAppendingTracer(TracerBase):
    """Appends to a graph what is done to proxies of its nodes."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.scope = Scope("", None)
        self.module_stack = OrderedDict()


class Proxy:
    """Stands for the result of a node: what is done to it is recorded.

    Python's operators, attributes, methods, torch functions and what `torch.fx.wrap` was told of are recorded; ``if``, ``for`` and what asks for
    numbers is a `TraceError`, since the value is not known. tracer: what records; default: new nodes are made in the node's graph.
    """

    node: Node

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        if k in ("node", "tracer") or (k.startswith("__") and k in _NEVER_RECORDED):
            raise AttributeError(k)
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        made = type(self).__new__(type(self))
        made.__dict__ = dict(self.__dict__)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        count = None if caller is None else _unpacked(caller)
        return self.tracer.iter(self) if count is None else iter([self[i] for i in range(count)])  # type: ignore[index] - made below

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and _is_asserted():
            self.tracer.create_proxy("call_function", sys.modules[PACKAGE]._assert, (self, _assertion()), {})
            return True
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        """What ``**`` of it asks for."""
        return self.tracer.keys(self)

    def __len__(self) -> NoReturn:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call torch.fx.wrap('len') at "
            "module scope"
        )

    @classmethod
    def __torch_function__(cls, orig_method: Any, types: Any, args: Any = None, kwargs: Any = None) -> Any:
        """Record a call of a torch function, or method, that was given a proxy."""
        args, kwargs = args or (), kwargs or {}
        found: dict[Any, None] = {}
        map_aggregate((args, kwargs), lambda a: found.setdefault(a.tracer) if isinstance(a, Proxy) else a)
        if len(found) > 1:
            raise RuntimeError(f"Found multiple different tracers {list(found)} while trying to trace operations {orig_method}")
        tracer = next(iter(found))
        method = method_of(orig_method)
        if method is not None:
            return tracer.create_proxy("call_method", method, args, kwargs)
        return tracer.create_proxy("call_function", orig_method, args, kwargs)


# What the interpreter or NumPy asks objects for, to see what they are: not having these is the answer.
_NEVER_RECORDED = frozenset((
    "__jax_array__", "__array__", "__array_interface__", "__array_struct__", "__array_priority__", "__array_ufunc__", "__array_function__",
    "__cuda_array_interface__", "__dlpack__", "__index__", "__fx_create_arg__", "__length_hint__", "__wrapped__", "__isabstractmethod__",
))  # fmt: skip


class Attribute(Proxy):
    """Stands for an attribute of what a proxy stands for: a node is made of it when it is used and not only called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override] - made when it is first asked for
        """The node that fetches the attribute."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """Stands for a parameter, and knows its shape."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.name, self.param = name, param

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Size:
        """The shape."""
        return self.param.shape

    def size(self, dim: int | None = None) -> Any:
        """The shape, or its extent in one dimension."""
        return self.param.size() if dim is None else self.param.size(dim)

    def dim(self) -> int:
        """The number of dimensions."""
        return self.param.dim()

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.param.ndim

    def numel(self) -> int:
        """The number of elements."""
        return self.param.numel()

    def nelement(self) -> int:
        """The number of elements."""
        return self.param.nelement()


def _writes(target: Any) -> bool:
    """Whether it is a function of `torch`, or of its functional, whose name says that it writes."""
    name, torch = getattr(target, "__name__", ""), sys.modules[PACKAGE]
    return name.endswith("_") and not name.endswith("__") and any(getattr(m, name, None) is target for m in (torch, torch.nn.functional))


# ---------------------------------------------------------------------- what the caller's code is about to do


def _instruction(frame: Any) -> dis.Instruction | None:
    return next((i for i in dis.get_instructions(frame.f_code) if i.offset == frame.f_lasti), None)


def _unpacked(frame: Any) -> int | None:
    """How many values ``a, b = proxy`` wants; None where something else iterates."""
    at = _instruction(frame)
    return at.arg if at is not None and at.opname == "UNPACK_SEQUENCE" else None


def _asserting_frame() -> Any:
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return frame


def _is_asserted() -> bool:
    """Whether it is an ``assert`` that asks for the truth of a proxy."""
    frame = _asserting_frame()
    code = list(dis.get_instructions(frame.f_code))
    at = next((n for n, i in enumerate(code) if i.offset == frame.f_lasti), len(code))
    following = [i for i in code[at : at + 6] if i.opname not in ("CACHE", "EXTENDED_ARG", "NOT_TAKEN", "TO_BOOL")]
    return any(i.opname == "LOAD_ASSERTION_ERROR" or i.argval == "AssertionError" for i in following[:3])


def _assertion() -> str:
    """The message of the ``assert`` that asks, where it is a constant."""
    frame = _asserting_frame()
    code = [i for i in dis.get_instructions(frame.f_code) if i.offset > frame.f_lasti]
    for this, after in zip(code, code[1:], strict=False):
        if this.opname == "LOAD_ASSERTION_ERROR" and after.opname == "LOAD_CONST":
            return str(after.argval)
    return ""


# ---------------------------------------------------------------------- operators


def _operator(name: str) -> None:
    target = getattr(operator, name, None) or getattr(operator, f"true{name}")

    def method(*args: Any, **kwargs: Any) -> Proxy:
        return args[0].tracer.create_proxy("call_function", target, args, kwargs)

    method.__name__ = f"__{name.strip('_')}__"
    setattr(Proxy, method.__name__, method)


def _reflected(name: str) -> None:
    target = getattr(operator, name, None) or getattr(operator, f"true{name}")

    def method(self: Proxy, rhs: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", target, (rhs, self), {})

    method.__name__ = f"__r{name.strip('_')}__"
    setattr(Proxy, method.__name__, method)


for _name in magic_methods:
    _operator(_name)
for _name in reflectable_magic_methods:
    _reflected(_name)
