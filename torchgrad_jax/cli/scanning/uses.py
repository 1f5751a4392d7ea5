"""The uses of torch's names in a source, and which of them the program can do without."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from torchgrad_jax.cli.scanning.files import Place, Source
from torchgrad_jax.cli.scanning.meanings import Instance, Meanings, Method, Own, Torch, imported_by_call
from torchgrad_jax.cli.scanning.names import CONTEXT, TENSOR, has_member, is_torch, look_up, telling
from torchgrad_jax.cli.scanning.scopes import Assigned, Defined, Foreign, Scope, annotations_of, child_nodes, outer_nodes

_CAUGHT = {"ImportError", "ModuleNotFoundError", "AttributeError"}
_CAUGHT_TOO = {"Exception", "BaseException", "RuntimeError", "OSError"}  # by what guards nothing but imports


class Use(NamedTuple):
    """A use of one of torch's names. optional: the program does without it where it is missing."""

    name: str
    place: Place
    optional: bool
    found: bool


class Reader(ast.NodeVisitor):
    """Collects the uses in one source.

    assigned: names of torch's that the code base itself gives values; they are its own. dynamic: where names are asked for that only a run tells.
    """

    def __init__(self, source: Source, module: Scope, meanings: Meanings, own_names: set[str], assigned: set[str]) -> None:
        self.source, self.scope, self.meanings = source, module, meanings
        self.own_names, self.assigned = own_names, assigned
        self.uses: list[Use] = []
        self.dynamic: list[Place] = []
        self.optional = 0
        # Names whose absence the code asks about around the present place.
        self.guarded: list[str] = []
        self.optional_imports: set[str] = set()
        self.imported: dict[str, tuple[int, bool]] = {}
        nodes = list(ast.walk(source.tree))
        self.postponed = any(isinstance(n, ast.ImportFrom) and n.module == "__future__" and n.names[0].name == "annotations" for n in nodes)
        self.asks_versions = any("version" in name for node in nodes if isinstance(node, (ast.Attribute, ast.alias)) for name in _names_of(node))
        # Without torch a method's name says nothing.
        self.uses_torch = any(is_torch(name) for node in nodes for name in _imported_by(node))

    def read(self) -> None:
        """Go through the source once, if there can be a use in it."""
        if not self.uses_torch and not self._inherits():
            return
        for node in self.source.tree.body:
            self.visit(node)
        used = {use.name for use in self.uses}
        for name, (line, optional) in self.imported.items():
            answer = look_up(name)
            if not answer.is_module and not any(u == answer.name or u.startswith(name + ".") for u in used):
                self._record(name, line, optional)

    def _inherits(self) -> bool:
        """Whether the source has to do with classes of the code base that are made of torch's."""
        own = [child for child in self.scope.children.values() if child.is_class]
        foreign = [b.name for bindings in self.scope.bindings.values() for b in bindings if isinstance(b, Foreign)]
        return any(self.meanings.torch_bases(cls) for cls in (*own, *(cls for name in foreign for cls in self.meanings.classes.get(name, ()))))

    # ------------------------------------------------------------------ recording

    def _record(self, name: str, line: int, optional: bool = False) -> None:
        answer = look_up(name)
        if answer.is_module or any(name == own or name.startswith(own + ".") for own in self.assigned):
            return
        self._add(answer.name, line, answer.found, optional)

    def _add(self, name: str, line: int, found: bool, optional: bool = False) -> None:
        guarded = any(name == g or name.startswith(g + ".") for g in (*self.guarded, *self.optional_imports))
        self.uses.append(Use(name, self.source.place(line), bool(self.optional or optional or guarded), found))

    def _member(self, kind: str, name: str, line: int) -> None:
        found = None if name.startswith("__") else has_member(kind, name)
        if found is not None and f"{kind}.{name}" not in self.assigned:
            self._add(f"{kind}.{name}", line, found)

    @contextmanager
    def _if_optional(self, optional: bool) -> Iterator[None]:
        self.optional += optional
        try:
            yield
        finally:
            self.optional -= optional

    def _visit_all(self, nodes: list[ast.stmt] | list[ast.expr], optional: bool = False) -> None:
        with self._if_optional(optional):
            for node in nodes:
                self.visit(node)

    # ------------------------------------------------------------------ names and attributes

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            found = self.meanings.of(node, self.scope)
            if isinstance(found, Torch):
                self._record(found.path, node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        owner = self.meanings.of(node.value, self.scope)
        line = node.end_lineno or node.lineno
        if isinstance(owner, Torch):
            # What is assigned to need not be there; what has it must.
            self._record(f"{owner.path}.{node.attr}" if isinstance(node.ctx, ast.Load) else owner.path, line)
            return
        self._read_member(owner, node, line)
        self.visit(node.value)

    def _read_member(self, owner: object, node: ast.Attribute, line: int) -> None:
        if isinstance(owner, Instance):
            if isinstance(node.ctx, ast.Load) or owner.kind in (TENSOR, CONTEXT):
                self._member(owner.kind, node.attr, line)
        elif isinstance(owner, Own):
            if isinstance(node.ctx, ast.Load) and self.meanings.own_member(owner.scope, node.attr) is None:
                kind = self.meanings.torch_member(owner.scope, node.attr)
                if kind is not None:
                    self._member(kind, node.attr, line)
        elif isinstance(owner, Method):
            pass  # of what a method gives, nothing more is known
        elif self._is_super(node.value):
            around = self._class_around()
            if around is not None and self.meanings.own_member(around, node.attr, after=True) is None:
                kind = self.meanings.torch_member(around, node.attr)
                if kind is not None:
                    self._member(kind, node.attr, line)
        elif owner is None and isinstance(node.ctx, ast.Load) and self._tells(node):
            self._member(TENSOR, node.attr, line)

    def _tells(self, node: ast.Attribute) -> bool:
        """Whether an attribute's name says that what has it is a tensor: nothing else has it, and it is not part of another library."""
        if not self.uses_torch or node.attr not in telling() or node.attr in self.own_names:
            return False
        root = node.value
        while isinstance(root, ast.Attribute):
            root = root.value
        bindings = self.scope.find(root.id) if isinstance(root, ast.Name) else None
        return not any(isinstance(b, (Foreign, Defined)) for b in bindings or ())

    def _is_super(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"

    def _class_around(self) -> Scope | None:
        scope: Scope | None = self.scope
        while scope is not None and scope.owner is None:
            scope = scope.parent
        return None if scope is None else scope.owner

    def visit_Call(self, node: ast.Call) -> None:
        asked = self._asked_by_name(node)
        if asked is None:
            self.generic_visit(node)
            return
        name, has_default = asked
        if name is None:
            self.dynamic.append(self.source.place(node.lineno))
        elif getattr(node.func, "id", "") == "getattr":
            self._record(name, node.lineno, has_default)
        for argument in node.args[2:]:
            self.visit(argument)

    def _asked_by_name(self, node: ast.Call) -> tuple[str | None, bool] | None:
        """What `getattr(torch..., "x")` and `hasattr` ask for, None where only a run tells, and whether there is a default; None for other calls."""
        if not (isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr") and len(node.args) >= 2):
            return None
        owner = self.meanings.of(node.args[0], self.scope)
        if not isinstance(owner, Torch):
            return None
        named = node.args[1]
        name = f"{owner.path}.{named.value}" if isinstance(named, ast.Constant) and isinstance(named.value, str) else None
        return name, len(node.args) > 2

    # ------------------------------------------------------------------ imports

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if is_torch(alias.name):
                self._import(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if not node.level and node.module and is_torch(node.module):
            for alias in node.names:
                self._import(node.module if alias.name == "*" else f"{node.module}.{alias.name}", node.lineno)

    def _import(self, name: str, line: int) -> None:
        self.imported.setdefault(name, (line, bool(self.optional)))
        if self.optional and not look_up(name).found:
            self.optional_imports.add(name)

    # ------------------------------------------------------------------ what the program can do without

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        guards = self._guards(node)
        before = len(self.uses)
        imports = set(self.imported)
        self._visit_all(node.body, optional=guards)
        missing = any(not use.found for use in self.uses[before:]) or any(not look_up(n).found for n in set(self.imported) - imports)
        for handler in node.handlers:
            if handler.type is not None:
                self.visit(handler.type)
            self._visit_all(handler.body, optional=guards and not missing)
        self._visit_all(node.orelse, optional=guards and missing)
        self._visit_all(node.finalbody)

    visit_TryStar = visit_Try

    @staticmethod
    def _guards(node: ast.Try | ast.TryStar) -> bool:
        """Whether the handlers are for names that are missing."""
        only_imports = all(isinstance(n, (ast.Import, ast.ImportFrom)) for n in node.body)
        for handler in node.handlers:
            kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
            for kind in kinds:
                name = kind.attr if isinstance(kind, ast.Attribute) else getattr(kind, "id", None)
                if name in _CAUGHT or only_imports and (kind is None or name in _CAUGHT_TOO):
                    return True
        return False

    def visit_If(self, node: ast.If) -> None:
        self._branches(node.test, node.body, node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._branches(node.test, [node.body], [node.orelse])

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        asked = [name for name, _ in self._asks(node)]
        self.guarded += asked
        self.generic_visit(node)
        del self.guarded[len(self.guarded) - len(asked) :]

    def _branches(self, test: ast.expr, body: list[ast.stmt] | list[ast.expr], orelse: list[ast.stmt] | list[ast.expr]) -> None:
        self.visit(test)
        asked = self._asks(test)
        either = self.asks_versions and self._asks_version(test)
        takes_body = takes_else = True
        if asked and not isinstance(test, ast.BoolOp):
            name, positive = asked[0]
            takes_body = look_up(name).found is positive
            takes_else = not takes_body
        self.guarded += [name for name, _ in asked]
        self._visit_all(body, either or not takes_body or self._is_for_checkers(test))
        self._visit_all(orelse, either or not takes_else)
        del self.guarded[len(self.guarded) - len(asked) :]

    def _asks(self, test: ast.expr, positive: bool = True) -> list[tuple[str, bool]]:
        """The names whose presence a condition asks for, and whether it is true where they are there."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._asks(test.operand, not positive)
        if isinstance(test, ast.BoolOp):
            return [found for value in test.values for found in self._asks(value, positive)]
        if isinstance(test, ast.Name):
            bindings = self.scope.find(test.id) or []
            if len(bindings) == 1 and isinstance(bindings[0], Assigned) and isinstance(bindings[0].value, (ast.Call, ast.UnaryOp)):
                return self._asks(bindings[0].value, positive)
            return []
        if isinstance(test, ast.Call) and getattr(test.func, "id", "") == "hasattr":
            asked = self._asked_by_name(test)
            if asked is not None and asked[0] is not None:
                return [(asked[0], positive)]
        return []

    def _asks_version(self, test: ast.expr) -> bool:
        """Whether a condition depends on PyTorch's version."""
        pending: list[ast.AST] = [test]
        for _ in range(100):  # names lead to what they are given
            if not pending:
                return False
            for node in ast.walk(pending.pop()):
                if isinstance(node, (ast.Attribute, ast.Name)):
                    found = self.meanings.of(node, self.scope)
                    if isinstance(found, Torch) and (found.path.startswith("torch.version.") or found.path in ("torch.__version__", "torch.version")):
                        return not found.path.endswith((".cuda", ".hip"))
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                        pending += [b.value for b in self.scope.find(node.id) or [] if isinstance(b, Assigned)]
        return False

    @staticmethod
    def _is_for_checkers(test: ast.expr) -> bool:
        return (test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")) == "TYPE_CHECKING"

    # ------------------------------------------------------------------ scopes

    def _enter(self, node: ast.AST) -> None:
        for outer in outer_nodes(node):
            self.visit(outer)
        for annotation in annotations_of(node):
            self._annotation(annotation, evaluated=not self.postponed)
        self.scope = self.scope.children[node]
        try:
            for inner in child_nodes(node):
                self.visit(inner)
        finally:
            assert self.scope.parent is not None
            self.scope = self.scope.parent

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = _enter
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _enter

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        in_function = self.scope.parent is not None and not self.scope.is_class
        self._annotation(node.annotation, evaluated=not self.postponed and not in_function)
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)

    def _annotation(self, annotation: ast.expr, evaluated: bool) -> None:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                inner = ast.parse(annotation.value.strip(), mode="eval").body
            except SyntaxError:
                return
            for node in ast.walk(inner):
                if hasattr(node, "lineno"):
                    node.lineno = node.end_lineno = annotation.lineno  # type: ignore[attr-defined]
            annotation, evaluated = inner, False
        with self._if_optional(not evaluated):
            self.visit(annotation)


def assigned_names(tree: ast.Module, scope: Scope, meanings: Meanings) -> set[str]:
    """The names of torch's to which a source assigns what torch has not."""
    found: set[str] = set()
    pending: list[tuple[ast.AST, Scope]] = [(tree, scope)]
    while pending:
        node, around = pending.pop()
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            owner = meanings.of(node.value, around)
            if isinstance(owner, Torch) and not look_up(f"{owner.path}.{node.attr}").found and look_up(owner.path).found:
                found.add(f"{look_up(owner.path).name}.{node.attr}")
        inner = around.children.get(node)
        if inner is None:
            pending += [(child, around) for child in ast.iter_child_nodes(node)]
        else:
            pending += [(child, around) for child in outer_nodes(node)] + [(child, inner) for child in child_nodes(node)]
    return found


def _imported_by(node: ast.AST) -> list[str]:
    """The dotted names of the modules that a statement imports, or asks for by their names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module] if node.module and not node.level else []
    name = imported_by_call(node)
    return [] if name is None else [name]


def _names_of(node: ast.Attribute | ast.alias) -> tuple[str, ...]:
    return (node.attr,) if isinstance(node, ast.Attribute) else (node.name,)
