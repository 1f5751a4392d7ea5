"""`torch.fx.GraphModule`: a module whose `forward` is the Python that its graph is written as."""

from __future__ import annotations

import copy
import itertools
import linecache
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.fx.code import PythonCode, PyTreeCodeGen
from torchgrad_jax.fx.graph import Graph
from torchgrad_jax.nn import Module

__all__ = ["GraphModule"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_numbers = itertools.count()


class GraphModule(Module):
    """A module that a `Graph` is the program of.

    root: the module, or dictionary by dotted paths, that has what the graph names; only that becomes part of the new module, and it is shared with
    `root`. class_name: the name of its class. To have changes of the graph take effect, call `recompile`, or assign the graph.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # A class for each, since the program is its class's method.
        base = _written_by_hand(cls)
        made = type(base.__name__, (base,), {"__qualname__": "GraphModule.__new__.<locals>.GraphModuleImpl", "__module__": __name__})
        made._of_graph = base  # type: ignore[attr-defined] - what is derived from it is derived from this one
        return super().__new__(made)

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        if isinstance(root, Module):
            if hasattr(root, "training"):
                self.training = root.training
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attr(root, self, str(node.target))
        elif isinstance(root, dict):
            self._take(root, graph)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self._prepare(graph)
        self.graph = graph

    def _take(self, root: dict[str, Any], graph: Graph) -> None:
        wanted = []
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                if node.target not in root:
                    raise RuntimeError(f"Node {node} referenced target {node.target} but that target was not provided in ``root``!")
                wanted.append(str(node.target))
        for target in sorted(wanted, key=lambda t: t.count(".")):
            _assign_attr(root[target], self, target)

    def _prepare(self, graph: Graph) -> None:
        """What it knows beside the graph."""
        tracer = graph._tracer_cls
        self._tracer_cls = tracer if tracer is not None and "<locals>" not in tracer.__qualname__ else None
        self._tracer_extras: dict[str, Any] = graph._tracer_extras or {}
        self.meta: dict[str, Any] = dict(self._tracer_extras)
        self._replace_hooks: list[Callable[..., Any]] = []
        self._create_node_hooks: list[Callable[..., Any]] = []
        self._erase_node_hooks: list[Callable[..., Any]] = []
        self._deepcopy_hooks: list[Callable[..., Any]] = []

    # ------------------------------------------------------------------ the program

    @property
    def graph(self) -> Graph:
        """The graph. Assigning another makes it the program."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        assert isinstance(g, Graph), f"Expected a Graph instance, but got {type(g)}"
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source of `forward`."""
        if not hasattr(self, "_code"):
            raise RuntimeError("Code has not been generated! Please report a bug to PyTorch")
        return self._code

    def recompile(self) -> PythonCode:
        """Write `forward` anew, after the graph was changed."""
        codegen = self._graph._codegen
        if isinstance(codegen, PyTreeCodeGen):
            self._in_spec, self._out_spec = codegen.pytree_info.in_spec, codegen.pytree_info.out_spec
        written = self._graph.python_code(root_module="self")
        self._code = written.src
        type(self).forward = _compiled(written, codegen._func_name)  # type: ignore[method-assign] - the class is this module's own
        return written

    def print_readable(
        self, print_output: bool = True, include_stride: bool = False, include_device: bool = False, colored: bool = False, **options: Any
    ) -> str:
        """The source of the program and of those of its submodules that are GraphModules, with what is known of tensors; printed unless
        `print_output` is False. The other options change nothing."""
        found = _readable(self, self._get_name())
        if print_output:
            print(found)
        return found

    def __str__(self) -> str:
        return "\n".join([super().__repr__(), self.code, "# To see more debug info, please use `graph_module.print_readable()`"])

    # ------------------------------------------------------------------ submodules

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put a submodule at a dotted path; empty modules are made on the way. False where something else is there."""
        *path, last = target.split(".")
        owner: Module = self
        for part in path:
            found = getattr(owner, part, None)
            if found is None:
                found = Module()
                setattr(owner, part, found)
            if not isinstance(found, Module):
                return False
            owner = found
        owner.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove the submodule at a dotted path. False where there is none. The graph may still call it."""
        path, _, last = target.rpartition(".")
        try:
            owner = self.get_submodule(path)
        except AttributeError:
            return False
        if not isinstance(getattr(owner, last, None), Module):
            return False
        delattr(owner, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove the submodules that the graph neither calls nor fetches something of."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            parts = str(node.target).split(".")
            used.update(".".join(parts[: i + 1]) for i in range(len(parts)))
            if node.op == "call_module":
                inner = self.get_submodule(str(node.target))
                used.update(f"{node.target}.{name}" for name, _ in inner.named_modules())
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # ------------------------------------------------------------------ copies and pickles

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        source = _CodeOnlyModule(copy.deepcopy(self.__dict__, memo))
        self._deepcopy_init()(made, source, source.__dict__["_graph"])
        own = set(made.__dict__)
        made.__dict__.update({key: value for key, value in source.__dict__.items() if key not in own or "_hooks" in key})
        made.meta = source.__dict__.get("meta", {})
        made.training = self.training
        for hook in self._deepcopy_hooks:
            hook(made)
        return made

    def _deepcopy_init(self) -> Callable[..., None]:
        """What makes a copy of a copy of what the module has: subclasses with another ``__init__`` are not made by that."""
        return GraphModule.__init__

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, self.graph, type(self).__name__)
        made.meta = getattr(self, "meta", {})
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        state = {key: value for key, value in self.__dict__.items() if key != "_graph"}
        return reduce_graph_module, (_written_by_hand(type(self)), type(self).__name__, state, self._graph)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    # ------------------------------------------------------------------ hooks

    def _register_replace_node_hook(self, f: Callable[..., Any]) -> None:
        """Call ``f(old=node, new=name, user=node)`` when a user of a node gets another in its place."""
        self._replace_hooks.append(f)

    def _unregister_replace_node_hook(self, f: Callable[..., Any]) -> None:
        self._replace_hooks.remove(f)

    def _register_create_node_hook(self, f: Callable[..., Any]) -> None:
        """Call ``f(node)`` when a node was made in the graph."""
        self._create_node_hooks.append(f)

    def _unregister_create_node_hook(self, f: Callable[..., Any]) -> None:
        self._create_node_hooks.remove(f)

    def _register_erase_node_hook(self, f: Callable[..., Any]) -> None:
        """Call ``f(node)`` before a node is removed from the graph."""
        self._erase_node_hooks.append(f)

    def _unregister_erase_node_hook(self, f: Callable[..., Any]) -> None:
        self._erase_node_hooks.remove(f)


class _CodeOnlyModule(Module):
    """A module that has the content of another one's ``__dict__``."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def reduce_graph_module(kind: Any, class_name: str, state: dict[str, Any], graph: Graph) -> GraphModule:
    """The GraphModule that a pickle has: its class, and what it consists of."""
    made = kind.__new__(kind)
    Module.__init__(made)
    made.__dict__.update(state)
    type(made).__name__ = class_name
    made.graph = graph
    return made


def _written_by_hand(kind: Any) -> Any:
    """The class that a program has written, of the one that a GraphModule has of its own."""
    return vars(kind).get("_of_graph", kind)


def _compiled(written: PythonCode, name: str) -> FunctionType:
    """The function that a source defines; tracebacks find its lines."""
    filename = f"<eval_with_key>.{next(_numbers)}"
    # With a place in the cache that has no time, the lines stay.
    linecache.cache[filename] = (len(written.src), None, [f"{line}\n" for line in written.src.splitlines()], filename)
    names = dict(written.globals)
    exec(compile(written.src, filename, "exec"), names)
    function = names.pop(name)
    weakref.finalize(function, linecache.cache.pop, filename, None)
    return function


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Let `to_module` share what `from_module` has at a dotted path; empty modules are made on the way."""
    *path, last = target.split(".")
    source, owner = from_module, to_module
    for part in path:
        source, found = getattr(source, part), getattr(owner, part, None)
        if found is source:  # it is here as a whole
            return
        if found is None:
            found = Module()
            setattr(owner, part, found)
        owner = found
    value = getattr(source, last)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        owner.register_buffer(last, value)
    else:
        setattr(owner, last, value)


def _assign_attr(value: Any, to_module: Module, target: str) -> None:
    """Put a value at a dotted path; empty modules are made on the way."""
    *path, last = target.split(".")
    owner = to_module
    for part in path:
        found = getattr(owner, part, None)
        if found is None:
            found = Module()
            setattr(owner, part, found)
        owner = found
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        owner.register_buffer(last, value)
    else:
        setattr(owner, last, value)


def _readable(module: GraphModule, name: str) -> str:
    code = module._graph.python_code(root_module="self", verbose=True).src.lstrip("\n")
    body = "\n".join(f"    {line}" if line.strip() else "" for line in code.split("\n")).rstrip()
    found = f"class {name}(torch.nn.Module):\n{body}\n"
    for inner, child in module.named_children():
        if isinstance(child, GraphModule):
            found += "\n" + "".join(f"    {line}\n" if line.strip() else "\n" for line in _readable(child, inner).splitlines())
    return found


def _make_graph_module(*args: Any, graph_module_cls: Any = None, **kwargs: Any) -> GraphModule:
    """A GraphModule, or of the class that is given."""
    return (graph_module_cls or GraphModule)(*args, **kwargs)
