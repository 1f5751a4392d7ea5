"""`torch.fx.Interpreter` and `Transformer`: a graph gone through node by node."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from torchgrad_jax.fx.graph import Graph
from torchgrad_jax.fx.graph_module import GraphModule
from torchgrad_jax.fx.immutable_collections import immutable_dict, immutable_list
from torchgrad_jax.fx.node import Argument, Node, Target, map_aggregate, map_arg
from torchgrad_jax.fx.proxy import Proxy
from torchgrad_jax.fx.tracing import Tracer
from torchgrad_jax.nn import Module

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a graph node by node; subclasses do what is to be done at each kind of node.

    module: the module that has what the graph names. garbage_collect_values: drop results when nobody needs them any more. graph: default: the
    module's.

    Example::

        class Shapes(torch.fx.Interpreter):
            def run_node(self, n):
                result = super().run_node(n)
                print(n.name, getattr(result, "shape", None))
                return result

        Shapes(torch.fx.symbolic_trace(model)).run(x)
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = module.graph if graph is None else graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.user_to_last_uses = _last_uses(self.graph) if garbage_collect_values else {}

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """Run the graph on the arguments. initial_env: results of nodes that are known and not computed. enable_io_processing: take the arguments,
        and give the result, as the generated `forward` does."""
        self.env = {} if initial_env is None else initial_env
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter: Iterator[Any] = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    _tell(error, node)
                raise
            for used in self.user_to_last_uses.get(node, ()):
                self.env.pop(used, None)
            if node.op == "output":
                found = self.env[node]
                return self.graph.process_outputs(found) if enable_io_processing else found
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """`run` on the arguments in a list, which is emptied."""
        args = list(args_list)
        args_list.clear()
        wanted = len(self.graph.find_nodes(op="placeholder"))
        if len(args) != wanted:
            what = "missing" if len(args) < wanted else "extra"
            raise RuntimeError(f"Interpreter.boxed_run expected {wanted} arguments for placeholders but received {len(args)} ({what} arguments)")
        return self.run(*args, enable_io_processing=False)

    def run_node(self, n: Node) -> Any:
        """The result of one node: that of the method named like its kind."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The next argument; the rest of them for ``*args``."""
        assert isinstance(target, str)
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(f"Expected positional argument for parameter {target}, but one was not passed in!") from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The member of the module."""
        assert isinstance(target, str)
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """What the function gives."""
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """What the method of the first argument gives."""
        receiver, *rest = args
        return getattr(receiver, target)(*rest, **kwargs)

    def call_module(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """What the submodule gives."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The result of the graph."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """The member of the module at a dotted path. RuntimeError where there is none."""
        found: Any = self.module
        parts = target.split(".")
        for i, part in enumerate(parts):
            if not hasattr(found, part):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(parts[: i + 1])}")
            found = getattr(found, part)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node, with results in the places of nodes."""
        args, kwargs = self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)
        assert isinstance(args, tuple) and isinstance(kwargs, dict)
        return args, kwargs

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """Arguments of a node, with results in the places of nodes. RuntimeError where one was not computed."""

        def load(used: Node) -> Any:
            if used not in self.env:
                raise RuntimeError(f"Node {n} referenced nonexistent value {used}! Run Graph.lint() to diagnose such issues")
            return self.env[used]

        return _plain(map_arg(args, load))


def _plain(a: Any) -> Any:
    """Arguments with Python's own lists and dictionaries in the places of immutable ones: they are what is computed with now."""
    if type(a) is immutable_list:
        return [_plain(x) for x in a]
    if type(a) is immutable_dict:
        return {key: _plain(value) for key, value in a.items()}
    return tuple(map(_plain, a)) if type(a) is tuple else a


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """By node, those that nobody needs after it."""
    seen: set[Node] = set()
    found: dict[Node, list[Node]] = {}
    for node in reversed(graph.nodes):
        for used in node.all_input_nodes:
            if used not in seen:
                seen.add(used)
                found.setdefault(node, []).append(used)
    return found


def _tell(error: Exception, node: Node) -> None:
    """Let the error say at which node it was raised."""
    said = f"While executing {node.format_node()}\nOriginal traceback:\n{node.stack_trace}"
    text = f"{error.args[0]}\n\n{said}" if error.args else str(said)
    if isinstance(error, KeyError) or error.args and not isinstance(error.args[0], str):
        return
    error.args = (text, *error.args[1:])


class _TransformerTracer(Tracer):
    """Makes the nodes of the new graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.root = Module()
        self.tensor_attrs = {}

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return True


class Transformer(Interpreter):
    """Runs a graph on proxies, which makes another one of it: subclasses say by the methods of `Interpreter` what becomes of each node.

    Example::

        class Smooth(torch.fx.Transformer):
            def call_function(self, target, args, kwargs):
                return super().call_function(torch.tanh if target is torch.relu else target, args, kwargs)

        smooth = Smooth(torch.fx.symbolic_trace(model)).transform()
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph(tracer_cls=_TransformerTracer)
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _TransformerTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """The input of the new graph."""
        default = args[0] if args else inspect.Signature.empty
        made = self.new_graph.placeholder(target) if default is inspect.Signature.empty else self.new_graph.placeholder(target, default_value=default)
        return Proxy(made, self.tracer)

    def get_attr(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """The member in the new graph."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The call in the new graph."""
        submodule = self.fetch_attr(target)
        return self.tracer.call_module(submodule, submodule.forward, args, kwargs)

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The call in the new graph."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module with the new graph."""
        before = self.graph._codegen
        result = super().run(enable_io_processing=False)
        if result is not None:
            self.new_graph.output(map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a))
        self.new_graph.set_codegen(before)
        return GraphModule(self.module, self.new_graph)
