"""`torch.fx.Tracer` and `symbolic_trace`: a module, or function, called with proxies, so that what it does is recorded."""

from __future__ import annotations

import collections
import copy
import functools
import inspect
import itertools
import math
from collections import OrderedDict
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.fx.concrete import concrete_placeholders, meant, structured
from torchgrad_jax.fx.graph import Graph
from torchgrad_jax.fx.graph_module import GraphModule
from torchgrad_jax.fx.naming import PACKAGE
from torchgrad_jax.fx.node import Argument
from torchgrad_jax.fx.patching import Patcher, autowrap_check, find_proxy, patch_wrapped_functions
from torchgrad_jax.fx.proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase
from torchgrad_jax.nn import Module, Sequential
from torchgrad_jax.runtime.recorder import FUNCTIONS

# How modules are called, and how their members are found, when nothing is recorded.
module_call = Module.__call__
module_getattr = Module.__getattr__
_LEAVES = (f"{PACKAGE}.nn", "torch.nn", "torch.ao.nn")


class _State:
    """tracing: how many programs are being recorded."""

    tracing = 0


class ProxyableClassMeta(type):
    """A metaclass: making an object of the class with a proxy among the arguments is recorded as a call of the class."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """An object of the class, or what stands for one."""
        proxy = find_proxy(args, kwargs)
        if proxy is not None:
            return proxy.tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


class Tracer(TracerBase):
    """Records a module or function as a `Graph`.

    autowrap_modules: modules whose functions are recorded as they are, without `torch.fx.wrap`. autowrap_functions: functions for which this is so.
    param_shapes_constant: let shapes of parameters be numbers while the program is recorded. Subclasses say by `is_leaf_module` which modules are one
    node.

    Example::

        class WithLayers(torch.fx.Tracer):
            def is_leaf_module(self, m, module_qualified_name):
                return isinstance(m, Layer) or super().is_leaf_module(m, module_qualified_name)

        graph = WithLayers().trace(model)
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        of_modules = (f for m in autowrap_modules for name, f in vars(m).items() if not name.startswith("_") and callable(f))
        self._autowrap_function_ids: set[int] = {id(f) for f in itertools.chain(of_modules, autowrap_functions)}
        self._autowrap_search: list[ModuleType] = list(autowrap_modules)
        self.param_shapes_constant, self.record_stack_traces = param_shapes_constant, False
        self.function_globals = {}
        self.submodule_paths: dict[Any, str] | None = None
        self.root_module_name = ""
        self.scope = Scope("", None)
        self.module_stack = OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.tensor_attrs: dict[Any, str] = {}
        self._qualname_counter: dict[str, int] = collections.defaultdict(int)

    # ------------------------------------------------------------------ what subclasses may say otherwise

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a module is one node of the graph and not traced through: those of `torch.nn` are, but for Sequential."""
        return type(m).__module__.startswith(_LEAVES) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The dotted path of a submodule of the root. NameError where it is none."""
        found = self.submodule_paths.get(mod) if self.submodule_paths else None
        if found is None and not self.submodule_paths:
            found = next((name for name, m in self.root.named_modules() if m is mod), None)
        if not isinstance(found, str):
            raise NameError("module is not installed as a submodule")
        return found

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call of a submodule is: one node for a leaf, what `forward` records for others."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))) as scope:
            count = self.num_calls.get(path, 0)
            self.num_calls[path] = count + 1
            key = f"{scope.module_path}@{count}" if count else scope.module_path
            self.module_stack[key] = (path, scope.module_type)
            try:
                if self.is_leaf_module(m, path):
                    return self.create_proxy("call_module", path, args, kwargs)
                return forward(*args, **kwargs)
            finally:
                del self.module_stack[key]

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """What a member of a module is while the program is recorded: parameters become proxies, and buffers where `proxy_buffer_attributes` says
        so."""
        if isinstance(attr_val, Parameter):
            return self._member(attr_val, self.root.named_parameters(), parameter_proxy_cache, self.param_shapes_constant)
        if self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            return self._member(attr_val, self.root.named_buffers(), parameter_proxy_cache, self.param_shapes_constant)
        return attr_val

    def _member(self, value: Any, members: Any, cache: dict[str, Proxy], knows_shape: bool) -> Any:
        name = next((name for name, member in members if member is value), None)
        if name is None:
            return value
        if name not in cache:
            # Subclasses' `create_proxy` may not know of the factory.
            factory: dict[str, Any] = {"proxy_factory_fn": lambda node: ParameterProxy(self, node, name, value)} if knows_shape else {}
            cache[name] = self.create_proxy("get_attr", name, (), {}, **factory)
        return cache[name]

    def create_arg(self, a: Any) -> Argument:
        """See TracerBase. Parameters, buffers and other tensors of the root are fetched from it; tensors that it does not have become members of
        it."""
        if isinstance(a, Parameter):
            name = next((name for name, p in self.root.named_parameters() if p is a), None)
            if name is None:
                raise NameError("parameter is not a member of this module")
            return self.create_node("get_attr", name, (), {})
        if isinstance(a, Tensor):
            name = next((name for name, buffer in self.root.named_buffers() if buffer is a), None) or self.tensor_attrs.get(a)
            return self.create_node("get_attr", name or self._constant(a), (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return self.create_node("call_function", type(a), tuple(self.create_arg(x) for x in a), {})
        return super().create_arg(a)

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name that the root has no member of: the prefix and a number."""
        while True:
            name = f"{prefix}{self._qualname_counter[prefix]}"
            self._qualname_counter[prefix] += 1
            if not hasattr(self.root, name):
                return name

    def _constant(self, tensor: Tensor) -> str:
        name = self.get_fresh_qualname("_tensor_constant")
        self.tensor_attrs[tensor] = name
        setattr(self.root, name, tensor)
        return name

    # ------------------------------------------------------------------ recording

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        """The function that is to be called, and what with: a proxy for each of its parameters. concrete_args: values for some of them, by name or by
        position, so that what depends on them is settled while the program is recorded."""
        function = inspect.unwrap(root_fn)
        code: CodeType = function.__code__
        names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        signature = inspect.signature(function)
        if isinstance(concrete_args, tuple):
            given = names[1:] if is_module else names
            if len(given) != len(concrete_args):
                raise RuntimeError(f"Tracing expected {len(given)} arguments but got {len(concrete_args)} concrete arguments")
            concrete_args = dict(zip(given, concrete_args, strict=True))
        args: list[Any] = []
        if is_module:
            if not names:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            args.append(self.root)
            names = names[1:]
        args += concrete_placeholders(self, names, signature, concrete_args)
        if concrete_args is not None and any(map(_is_container, concrete_args.values())):
            return structured(self, root_fn, names, args, is_module, concrete_args)
        stars = _stars(code)
        args += [self.create_proxy("placeholder", name, (), {}) for name in stars]
        if stars:
            return _without_stars(function), args
        if code.co_kwonlyargcount:
            return _by_position(root_fn, code), args
        return root_fn, args

    def trace(self, root: Module | Callable[..., Any], concrete_args: Any = None) -> Graph:
        """Record a module, or function, and give the graph. concrete_args: see `create_args_for_root`. TraceError and others where it does what
        cannot be recorded."""
        fn: Any
        if isinstance(root, Module):
            self.root = root
            fn = getattr(type(root), self.traced_func_name)
            self.root_module_name = root._get_name()
            self.submodule_paths = {module: name for name, module in root.named_modules()}
        else:
            self.root, fn = Module(), root
        if not isinstance(fn, FUNCTIONS):
            raise AssertionError(f"Expected FunctionType, got {type(fn)}")
        self.graph = Graph(tracer_cls=type(self))
        self._find_tensors()
        self.num_calls, self.module_stack = {}, OrderedDict()
        self.function_globals: dict[str, Any] = inspect.unwrap(fn).__globals__
        fn, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
        _State.tracing += 1
        try:
            with Patcher() as patcher:
                self._patch(patcher, self.function_globals)
                result = self.create_arg(fn(*args))
                kind = meant(getattr(fn, "__annotations__", {}).get("return"), self.function_globals)
                self.create_node("output", "output", (result,), {}, type_expr=kind)
        finally:
            _State.tracing -= 1
            self.submodule_paths = None
        return self.graph

    def _find_tensors(self) -> None:
        """Note the tensors that are plain attributes of modules."""
        self.tensor_attrs = {}
        for path, module in self.root.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor):
                    self.tensor_attrs[value] = f"{path}.{name}" if path else name

    def _patch(self, patcher: Patcher, function_globals: dict[str, Any]) -> None:
        cache: dict[str, Proxy] = {}

        @functools.wraps(module_getattr)
        def get(mod: Any, attr: str) -> Any:
            return self.getattr(attr, module_getattr(mod, attr), cache)

        @functools.wraps(module_call)
        def call(mod: Any, *args: Any, **kwargs: Any) -> Any:
            autowrap_check(patcher, getattr(getattr(mod, "forward", mod), "__globals__", {}), self._autowrap_function_ids)
            return self.call_module(mod, lambda *a, **k: module_call(mod, *a, **k), args, kwargs)

        patcher.patch_method(Module, "__getattr__", get, deduplicate=False)
        patcher.patch_method(Module, "__call__", call, deduplicate=False)
        patch_wrapped_functions(patcher)
        autowrap_check(patcher, function_globals, self._autowrap_function_ids)
        for module in self._autowrap_search:
            autowrap_check(patcher, vars(module), self._autowrap_function_ids)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        for name, value in vars(self).items():
            setattr(made, name, copy.copy(value) if name == "_autowrap_search" else copy.deepcopy(value, memo))
        return made


def _is_container(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict))


def _stars(code: CodeType) -> list[str]:
    """``*args`` and ``**kwargs`` of a function, by the names that it gives them."""
    marks = [star for star, flag in (("*", inspect.CO_VARARGS), ("**", inspect.CO_VARKEYWORDS)) if code.co_flags & flag]
    return [star + name for star, name in zip(marks, code.co_varnames[code.co_argcount + code.co_kwonlyargcount :], strict=False)]


def _without_stars(function: Any) -> Callable[..., Any]:
    """The function with an ordinary argument in the place of each that takes the rest: one proxy stands for all of them."""
    code = function.__code__
    changed = code.replace(
        co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
        co_argcount=code.co_argcount + code.co_kwonlyargcount + len(_stars(code)),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
    )
    return FunctionType(changed, function.__globals__, function.__name__, function.__defaults__, function.__closure__)


def _by_position(function: Callable[..., Any], code: CodeType) -> Callable[..., Any]:
    """The function with its keyword-only arguments by position."""
    names = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args[: code.co_argcount], **dict(zip(names, args[code.co_argcount :], strict=True)))

    return call


def symbolic_trace(root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """Record what a module, or function, does to its arguments, as a `GraphModule`: a module with the same parameters whose `forward` is written anew
    from its graph. concrete_args: values for some arguments, so that what depends on them is settled while the program is recorded.

    Example::

        traced = torch.fx.symbolic_trace(model)
        print(traced.code)
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = root._get_name() if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)


def is_fx_tracing() -> bool:
    """Whether a program is being recorded."""
    return _State.tracing > 0
