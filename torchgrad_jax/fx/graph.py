"""`torch.fx.Graph`: a program as a list of nodes, which can be read, changed and written as Python."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from torchgrad_jax.fx.code import (
    CodeGen,
    PythonCode,
    PyTreeCodeGen,
    PyTreeInfo,
    TransformCodeFunc,
    dtype_abbrs,
    inplace_methods,
    magic_methods,
    reflectable_magic_methods,
)
from torchgrad_jax.fx.immutable_collections import immutable_dict
from torchgrad_jax.fx.naming import Names, qualified_name, snake_case
from torchgrad_jax.fx.node import Argument, Node, Target, map_aggregate, map_arg
from torchgrad_jax.fx.tables import simple_table

__all__ = ["CodeGen", "Graph", "PythonCode"]

_PyTreeCodeGen, _PyTreeInfo, _Namespace, _snake_case = PyTreeCodeGen, PyTreeInfo, Names, snake_case
_KEPT = (dtype_abbrs, inplace_methods, magic_methods, reflectable_magic_methods)  # PyTorch's module has these names too


class _Nodes:
    """The nodes of a graph in their order; one that is erased or moved while they are gone through is no trouble."""

    def __init__(self, graph: Graph, backwards: bool = False) -> None:
        self.graph, self.backwards = graph, backwards

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        node = root._prev if self.backwards else root._next
        while node is not root:
            if not node._erased:
                yield node
            node = node._prev if self.backwards else node._next

    def __reversed__(self) -> _Nodes:
        return _Nodes(self.graph, not self.backwards)


class _InsertPoint:
    """A place in a graph; as a block, new nodes are made there within it."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self.graph, self.before, graph._insert = graph, graph._insert, insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        self.graph._insert = self.before


class Graph:
    """A program as a list of nodes. owning_module: the `GraphModule` whose program it is; tracer_cls, tracer_extras: what made it.

    Example::

        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        graph.output(graph.call_function(torch.relu, (x,)))
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
    """

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: dict[str, Any] | None = None) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._graph_namespace = Names()
        self._owning_module = owning_module
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras
        self._codegen = CodeGen()

    @property
    def owning_module(self) -> Any:
        """The `GraphModule` whose program it is; None where there is none."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: Any) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> Any:
        """The nodes in their order: iterable, also `reversed`, with a length."""
        return _Nodes(self)

    def output_node(self) -> Node:
        """The node that says what the graph gives."""
        return self.find_nodes(op="output")[0]

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes of a kind, and of a target where it is given, which it must be for "call_function"; always in the order of the graph."""
        if op == "call_function" and target is None:
            raise AssertionError("target must not be None for call_function op")
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    # ------------------------------------------------------------------ new nodes

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Make a node at the insertion point, which is the end unless `inserting_before` or `inserting_after` says otherwise. name: like what it is
        to be called; default: like its target."""
        args, kwargs = args or (), kwargs or {}
        if not isinstance(args, (tuple, list)) or not isinstance(kwargs, dict):
            raise AssertionError("args must be a tuple or a list, and kwargs a dict")
        candidate = name if name is not None else self._target_to_str(target)
        name = self._graph_namespace.create(candidate)
        node = Node(self, name, op, target, args, kwargs, type_expr)  # type: ignore[arg-type] - a list is as good as a tuple
        self._graph_namespace.give(name, node)
        self._insert(node)
        self._len += 1
        for hook in getattr(self.owning_module, "_create_node_hooks", ()):
            hook(node)
        return node

    def _target_to_str(self, target: Any) -> str:
        if callable(target):
            name = getattr(target, "__name__", type(target).__name__)
            if not name.startswith("<"):
                dotted = qualified_name(target)
                name = dotted.removeprefix("torch.ops.").partition(".")[2] if dotted.startswith("torch.ops.") else dotted.rpartition(".")[2]
        else:
            name = str(target)
            if name.startswith("__") and name.endswith("__"):
                name = name[2:-2]
        return snake_case(name)

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """An input. default_value: the value where the caller gives none."""
        return self.create_node("placeholder", name, () if default_value is ... else (default_value,), type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A member of the module, by its dotted path. Warns where the owning module has none of this path."""
        if self.owning_module is not None and not has_member(self.owning_module, qualified_name):
            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning GraphModule! Call GraphModule.add_submodule to add "
                "the necessary submodule, GraphModule.add_parameter to add the necessary Parameter, or nn.Module.register_buffer to add the "
                "necessary buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """A call of a submodule, by its dotted path."""
        if self.owning_module is not None:
            self.owning_module.get_submodule(module_name)
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """A call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self, the_function: Callable[..., Any], args: Any = None, kwargs: Any = None, type_expr: Any = None, name: str | None = None
    ) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """What the graph gives: nodes, in containers maybe."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def inserting_before(self, n: Node | None = None) -> Any:
        """Make new nodes before `n` (None: at the beginning), from here on or, as a block, within it."""
        if n is None:
            return self.inserting_after(self._root)
        assert n.graph is self, "Node to insert before is not in graph."
        return _InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> Any:
        """Make each new node right after `n` (None: at the end), from here on or, as a block, within it."""
        if n is None:
            return self.inserting_before(self._root)
        assert n.graph is self, "Node to insert after is not in graph."
        return _InsertPoint(self, n.append)

    # ------------------------------------------------------------------ copies and removal

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x) -> Node:
        """A copy, here, of a node of another graph. arg_transform: what stands here for the nodes that it uses."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copy all nodes of `g` here. val_map: what stands here for nodes of `g`, to which the copies are added. Gives what stands for the result of
        `g`; return_output_node: that and the output node. None where there is none."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                found = map_arg(node.args[0], lambda n: val_map[n])
                return (found, node) if return_output_node else found
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        memo = {} if memo is None else memo
        made = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        memo[id(self)] = made
        made._codegen = copy.deepcopy(self._codegen, memo)
        known: dict[Node, Node] = {}
        found = made.graph_copy(self, known, return_output_node=True)
        if found is not None:
            result, old = found
            new = made.output(result, type_expr=old.type)
            new.meta = copy.copy(old.meta)
        memo.update({id(old): new for old, new in known.items()})
        return made

    def __getstate__(self) -> dict[str, Any]:
        index = {node: i for i, node in enumerate(self.nodes)}
        state = {key: value for key, value in self.__dict__.items() if key not in ("_root", "_insert", "_graph_namespace", "_owning_module", "_len")}
        refer = lambda n: _Reference(index[n])  # noqa: E731
        kept = [(n.op, n.name, n.target, map_arg(n.args, refer), map_arg(n.kwargs, refer), n.type, _kept_meta(n)) for n in self.nodes]
        return {**state, "nodes": kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        nodes = state.pop("nodes")
        self.__init__()  # type: ignore[misc] - an empty graph to begin with
        self.__dict__.update(state)
        made: list[Node] = []
        for op, name, target, args, kwargs, kind, meta in nodes:
            node = self.create_node(op, target, _referred(args, made), _referred(kwargs, made), name, kind)
            node.meta = meta
            made.append(node)

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node. RuntimeError where its result is used."""
        if to_erase.users:
            raise RuntimeError(f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: {to_erase.users}!")
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        for hook in getattr(self.owning_module, "_erase_node_hooks", ()):
            hook(to_erase)
        to_erase._unlink()
        to_erase._erased = True
        self._len -= 1
        to_erase._update((), immutable_dict())

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Remove what nobody uses; see `Node.is_impure` for what stays. Whether anything was removed."""
        self.lint()
        found = False
        for node in reversed(self.nodes):
            impure = node.is_impure() if is_impure_node is None else is_impure_node(node)
            if not impure and not node.users:
                self.erase_node(node)
                found = True
        return found

    # ------------------------------------------------------------------ checks and text

    def lint(self) -> None:
        """RuntimeError unless nodes are used after they are computed, have names of their own, and name members that the owning module has."""
        names: set[str] = set()
        defined: set[Node] = set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            map_arg((node.args, node.kwargs), lambda used, user=node: self._check_use(used, user, defined))
            defined.add(node)
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            names.add(node.name)
            if self.owning_module is not None and node.op in ("get_attr", "call_module"):
                _check_member(self.owning_module, node)

    def _check_use(self, used: Node, user: Node, defined: set[Node]) -> Node:
        if used.graph is not self:
            raise RuntimeError(
                f"Argument '{used}' of Node '{user}' does not belong to this Graph, but was used as an argument! If you are copying nodes from "
                f"another graph, make sure to use ``arg_transform`` on node_copy() to remap values\n{self}"
            )
        if used not in defined:
            raise RuntimeError(
                f"Argument '{used}' of Node '{user}' was used before it has been defined! Please check that Nodes in the graph are topologically "
                f"ordered\n{self}"
            )
        return used

    def __str__(self) -> str:
        inputs: list[str] = []
        lines = [line for node in self.nodes if (line := node.format_node(None, inputs)) is not None]
        return "graph():" + "".join(f"\n    {line}" for line in lines)

    def print_tabular(self) -> None:
        """Print the nodes as a table."""
        rows = [[n.op, n.name, str(n.target), str(n.args), str(n.kwargs)] for n in self.nodes]
        print(simple_table(["opcode", "name", "target", "args", "kwargs"], rows))

    # ------------------------------------------------------------------ Python

    def python_code(self, root_module: str, *, verbose: bool = False, **options: Any) -> PythonCode:
        """The graph as the source of a function. root_module: what the module is called in it, "self" in a method. verbose: with comments that say
        where nodes are from, and with what is known of tensors. options: others of PyTorch's are taken and change nothing."""
        names = Names()

        def name_of(node: Node) -> str:
            return names.create(node.name, node)

        before = {node: node._repr_fn for node in self.nodes}
        try:
            for node in before:
                node._repr_fn = name_of
            return self._codegen._gen_python_code(self.nodes, root_module, names, verbose=verbose)
        finally:
            for node, function in before.items():
                node._repr_fn = function

    def process_inputs(self, *args: Any) -> Any:
        """What the function was called with, as what the graph's inputs are."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What the graph gave, as what the function returns."""
        return self._codegen.process_outputs(out)

    def set_codegen(self, codegen: CodeGen) -> None:
        """Let `codegen` write the source from here on."""
        self._codegen = codegen

    def on_generate_code(self, make_transformer: Callable[[TransformCodeFunc | None], TransformCodeFunc]) -> Any:
        """Let the lines of the body go through a function whenever the source is written. make_transformer: what makes this function, of the one that
        there is. As a block, it is taken away at its end."""
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)
        return _until_end(self._codegen, before)


@contextlib.contextmanager
def _until_end(codegen: CodeGen, before: TransformCodeFunc | None) -> Iterator[None]:
    try:
        yield
    finally:
        codegen._body_transformer = before


class _Reference:
    """What stands for a node in a pickle: its place."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


def _referred(a: Any, made: list[Node]) -> Any:
    return map_aggregate(a, lambda x: made[x.index] if isinstance(x, _Reference) else x)


def _kept_meta(node: Node) -> dict[str, Any]:
    """The notes that a pickle keeps: those that the source needs."""
    return {key: node.meta[key] for key in ("is_wrapped", "stack_trace") if key in node.meta}


def has_member(module: Any, path: str) -> bool:
    """Whether a module has what a dotted path names."""
    for part in path.split("."):
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return True


def _check_member(module: Any, node: Node) -> None:
    """RuntimeError unless the module has what the node names."""
    parts = str(node.target).split(".")
    for i, part in enumerate(parts):
        if not hasattr(module, part):
            where = ".".join(parts[:i])
            raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute {part} of {where}")
        module = getattr(module, part)
