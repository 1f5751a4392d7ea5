"""The Python source of a graph."""

from __future__ import annotations

import enum
import sys
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from torchgrad_jax.declaration import dtypes
from torchgrad_jax.fx.naming import OWN, PACKAGE, Names, found_in_torch, identifier, qualified_name, shown_type
from torchgrad_jax.fx.node import Node, map_arg
from torchgrad_jax.lifting import trees
from torchgrad_jax.runtime.device import device

TransformCodeFunc: typing.TypeAlias = Callable[[list[str]], list[str]]

magic_methods = {
    "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "gt": "{} > {}", "le": "{} <= {}", "ge": "{} >= {}", "pos": "+{}", "neg": "-{}",
    "invert": "~{}", "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "floordiv": "{} // {}", "truediv": "{} / {}", "div": "{} / {}",
    "mod": "{} % {}", "pow": "{} ** {}", "lshift": "{} << {}", "rshift": "{} >> {}", "and_": "{} & {}", "or_": "{} | {}", "xor": "{} ^ {}",
    "getitem": "{}[{}]", "matmul": "{} @ {}",
}  # fmt: skip
_UNREFLECTED = ("eq", "ne", "lt", "gt", "le", "ge", "pos", "neg", "invert")
reflectable_magic_methods = {name: form for name, form in magic_methods.items() if name not in _UNREFLECTED}
inplace_methods = {
    "iadd": "{} += {}", "iand": "{} &= {}", "ifloordiv": "{} //= {}", "ilshift": "{} <<= {}", "imod": "{} %= {}", "imul": "{} *= {}",
    "imatmul": "{} @= {}", "ior": "{} |= {}", "ipow": "{} **= {}", "irshift": "{} >>= {}", "isub": "{} -= {}", "itruediv": "{} /= {}",
    "ixor": "{} ^= {}", "setitem": "{}[{}] = {}",
}  # fmt: skip
# Types of elements, as shapes in comments have them.
dtype_abbrs = {
    dtypes.float32: "f32", dtypes.float64: "f64", dtypes.float16: "f16", dtypes.bfloat16: "bf16", dtypes.complex64: "c64", dtypes.complex128: "c128",
    dtypes.int64: "i64", dtypes.int32: "i32", dtypes.int16: "i16", dtypes.int8: "i8", dtypes.uint8: "u8", dtypes.bool_: "b8",
}  # fmt: skip


class PythonCode(NamedTuple):
    """The source of a graph as a function, and the globals that it needs."""

    src: str
    globals: dict[str, Any]


class CodeGen:
    """What writes the source of a graph. Subclasses may write its head and its end otherwise, and say what arguments of the function become of those
    of the graph; see `Graph.set_codegen`."""

    def __init__(self) -> None:
        self._body_transformer: TransformCodeFunc | None = None
        self._func_name = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **options: Any) -> str:
        """The line, or lines, before the body. free_vars: the arguments, with their types and defaults."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any, **options: Any) -> str:
        """The line that returns the result, by its `repr`."""
        return f"return {output_args!r}"

    def process_inputs(self, *args: Any) -> Any:
        """What the function was called with, as what the graph's inputs are."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What the graph gave, as what the function returns."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Names that the head and the end need, with what they mean."""
        return []

    def _gen_python_code(self, nodes: Iterable[Node], root_module: str, namespace: Names, verbose: bool = False) -> PythonCode:
        return _Writer(self, nodes, root_module, namespace, verbose).written()


class PyTreeInfo(NamedTuple):
    """The arguments of a function of containers: their names, the structure of all of them, and that of the result."""

    orig_args: list[str]
    in_spec: trees.TreeSpec
    out_spec: trees.TreeSpec | None


class PyTreeCodeGen(CodeGen):
    """Writes a function of containers around a graph whose inputs and results are what these contain."""

    def __init__(self, pytree_info: PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *inputs: Any) -> Any:
        """What the containers contain."""
        return trees.tree_leaves(inputs)

    def process_outputs(self, out: Any) -> Any:
        """The result as the containers that the function returned."""
        if not isinstance(out, (list, tuple)):
            out = [out]
        assert self.pytree_info.out_spec is not None
        return trees.tree_unflatten(out, self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **options: Any) -> str:
        """See CodeGen."""
        arguments = self.pytree_info.orig_args
        named = [*arguments] if arguments and arguments[0] == "self" else ["self", *arguments]
        head = super().gen_fn_def(named, maybe_return_annotation)
        if not free_vars:
            return head
        plain = [name.partition(":")[0].partition("=")[0].strip() for name in free_vars]
        given = ", ".join(name for name in named if name != "self")
        return f"{head}\n    {', '.join(plain)}, = fx_pytree.tree_flatten_spec([{given}], self._in_spec)"

    def generate_output(self, output_args: Any, **options: Any) -> str:
        """See CodeGen."""
        if self.pytree_info.out_spec is None:
            return super().generate_output(output_args, **options)
        return f"return pytree.tree_unflatten({output_args!r}, self._out_spec)"


class _Text:
    """What is written as a text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class _Writer:
    """The writing of one source."""

    def __init__(self, codegen: CodeGen, nodes: Iterable[Node], root: str, names: Names, verbose: bool) -> None:
        self.codegen, self.nodes, self.root, self.names, self.verbose = codegen, list(nodes), root, names, verbose
        own = {**OWN, "torch": sys.modules[PACKAGE], "device": device}
        own["fx_pytree"], own["pytree"] = found_in_torch("torch.fx._pytree"), found_in_torch("torch.utils._pytree")
        self.globals: dict[str, Any] = {**own, **dict(codegen.additional_globals())}
        self.free_vars: list[str] = []
        self.wrapped: dict[str, None] = {}
        self.body: list[str] = []
        self.returns = ""
        self.commented: str | None = ""

    def written(self) -> PythonCode:
        """The whole."""
        last_uses = _last_uses(self.nodes)
        for node in self.nodes:
            if self.verbose:
                self._comment(node)
            statement = self._statement(node)
            if statement is not None:
                dropped = last_uses.get(node, ()) if node.op not in ("placeholder", "output") else ()
                self.body.append(statement + (f";  {' = '.join([repr(n) for n in dropped])} = None\n" if dropped else "\n"))
        body = self.body or ["pass\n"]
        if self.codegen._body_transformer is not None:
            body = self.codegen._body_transformer(body)
        head = self.codegen.gen_fn_def(self.free_vars, self.returns)
        marks = "\n".join(f'torch.fx._symbolic_trace.wrap("{name}")' for name in self.wrapped)
        lines = "".join(body).lstrip("\n").split("\n")
        text = "\n".join(f"    {line}" if line or i == len(lines) - 1 else line for i, line in enumerate(lines))
        return PythonCode(f"\n{marks}\n\n{head}\n{text}", self.globals)

    def _comment(self, node: Node) -> None:
        """Say where in the program a node is from, where that is not the same as the one before it."""
        if node.op in ("placeholder", "output"):
            return
        trace = node.stack_trace
        if trace != self.commented:
            self.commented = trace
            told = "No stacktrace found for following nodes" if not trace else _summary(trace)
            self.body.append(f"\n# {told}\n")

    def _statement(self, node: Node) -> str | None:
        kind = self._type_of(node)
        name = repr(node)
        if node.op == "placeholder":
            assert isinstance(node.target, str)
            default = f" = {self.text(node.args[0])}" if node.args else ""
            self.free_vars.append(f"{node.target}{kind}{default}")
            raw = node.target.replace("*", "")
            return f"{name} = {raw}" if raw != name else None
        if node.op == "output":
            if node.type is not None:
                self.returns = f" -> {self._type(node.type)}"
            text = self.text(node.args[0])
            return self.codegen.generate_output(node.args[0] if repr(node.args[0]) == text else _Text(text))
        if node.op == "get_attr":
            return f"{name}{kind} = {_member(self.root, str(node.target))}"
        if node.op == "call_module":
            return f"{name}{kind} = {_member(self.root, str(node.target))}({self._arguments(node.args, node.kwargs)})"
        if node.op == "call_method":
            receiver = self.text(node.args[0])
            return f"{name}{kind} = {_member(receiver, str(node.target))}({self._arguments(node.args[1:], node.kwargs)})"
        return self._call(node, f"{name}{kind}")

    def _call(self, node: Node, result: str) -> str:
        target: Any = node.target
        if getattr(target, "__module__", None) == "_operator":
            operands = [self.text(a) for a in node.args]
            if target.__name__ in magic_methods:
                return f"{result} = {magic_methods[target.__name__].format(*operands)}"
            if target.__name__ in inplace_methods:
                return f"{inplace_methods[target.__name__].format(*operands)};  {result} = {operands[0]}"
        name = self._global(qualified_name(target), target)
        if node.meta.get("is_wrapped", False):
            self.wrapped[name] = None
        if target is getattr and len(node.args) == 2 and isinstance(node.args[1], str) and node.args[1].isidentifier():
            return f"{result} = {_member(self.text(node.args[0]), node.args[1])}"
        return f"{result} = {name}({self._arguments(node.args, node.kwargs)})"

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        return ", ".join([*map(self.text, args), *(f"{key} = {self.text(value)}" for key, value in kwargs.items())])

    def text(self, a: Any) -> str:
        """An argument in Python."""
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return f"{self._global(qualified_name(type(a)), type(a))}({', '.join(map(self.text, a))})"
        if type(a) is tuple or isinstance(a, tuple):  # a Size is written as a tuple
            return f"({', '.join(map(self.text, a))}{',' if len(a) == 1 else ''})"
        if isinstance(a, list):
            return f"[{', '.join(map(self.text, a))}]"
        if isinstance(a, dict):
            return "{" + ", ".join(f"{key!r}: {self.text(value)}" for key, value in a.items()) + "}"
        if isinstance(a, slice):
            return f"slice({self.text(a.start)}, {self.text(a.stop)}, {self.text(a.step)})"
        if isinstance(a, enum.Enum):
            return f"{self._global(type(a).__name__, type(a))}.{a.name}"
        return repr(a)

    def _global(self, hint: str, target: Any) -> str:
        """A name that means the object in the source."""
        if hint.startswith("torch.") and found_in_torch(hint) is target:
            return hint
        name = identifier(hint)
        if getattr(target, "__module__", None) == "_operator":
            name = f"_operator_{target.__name__}"
        if self.globals.get(name) is target:
            return name
        name = self.names.create(name, target) if isinstance(target, typing.Hashable) else self.names.create(name)
        self.globals[name] = target
        return name

    # ------------------------------------------------------------------ types

    def _type_of(self, node: Node) -> str:
        found = _shape(node) if self.verbose else None
        if found is not None:
            return f': "{found}"'
        return "" if node.type is None else f" : {self._type(node.type)}"

    def _type(self, kind: Any) -> str:
        """A type in Python."""
        if kind is None:
            return self._global("NoneType", type(None))
        if isinstance(kind, types.UnionType):
            return "|".join(map(self._type, kind.__args__))
        origin = typing.get_origin(kind)
        if origin is not None:
            named = typing.get_origin(kind) if isinstance(kind, types.GenericAlias) else _named_generic(kind)
            inner = kind.__args__
            hint = shown_type(named) if isinstance(named, type) and not str(named).startswith("typing") else str(named)
            return f"{self._global(hint, named)}[{','.join(map(self._type, inner))}]"
        if kind is ...:
            return "..."
        return self._global(shown_type(kind), kind)


def _named_generic(kind: Any) -> Any:
    """``typing.List`` of ``typing.List[int]``."""
    name = getattr(kind, "_name", None)
    return getattr(typing, "Union" if name == "Optional" or name is None else name, typing.Any)


def _member(owner: str, path: str) -> str:
    """The expression for a member by its dotted path."""
    for part in path.split("."):
        owner = f"{owner}.{part}" if part.isidentifier() else f'getattr({owner}, "{part}")'
    return owner


def _last_uses(nodes: list[Node]) -> dict[Node, list[Node]]:
    """By node, the nodes that nobody needs after it: those that it uses last, and itself where nobody uses it."""
    seen: set[Node] = set()
    found: dict[Node, list[Node]] = {}

    def use(used: Node, user: Node) -> Node:
        if used not in seen:
            seen.add(used)
            found.setdefault(user, []).append(used)
        return used

    for node in reversed(nodes):
        map_arg((node.args, node.kwargs), lambda used, user=node: use(used, user))
        if not node.users and node.op not in ("placeholder", "output"):
            found.setdefault(node, []).append(node)
    return found


def _shape(node: Node) -> str | None:
    """What is known of the tensor that a node gives, from `meta`."""
    found: Any = node.meta.get("val", node.meta.get("tensor_meta"))
    if not hasattr(found, "dtype") or not hasattr(found, "shape"):
        return None
    return f"{dtype_abbrs.get(found.dtype, found.dtype)}[{', '.join(map(str, found.shape))}]"


def _summary(trace: str) -> str:
    """The last place of a stack trace in one line."""
    lines = trace.strip().split("\n")
    for i in range(len(lines) - 2, -1, -1):
        if lines[i].lstrip().startswith("File "):
            parts = [part.strip() for part in lines[i].strip().split(",")]
            return f"File: {parts[0][6:-1]}:{parts[1].removeprefix('line ')} in {parts[2].removeprefix('in ')}, code: {lines[i + 1].strip()}"
    return "No stacktrace found for following nodes"
