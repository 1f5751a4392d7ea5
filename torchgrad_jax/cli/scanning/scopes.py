"""What names are bound to, scope by scope, as far as a source tells it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence

from torchgrad_jax.cli.scanning.names import is_torch

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, *_COMPREHENSIONS)


class Imported:
    """A name bound by an import of torch's."""

    def __init__(self, path: str, line: int) -> None:
        self.path, self.line = path, line


class Foreign:
    """A name imported from elsewhere: `name`, the last part of what was asked for."""

    def __init__(self, name: str) -> None:
        self.name = name


class Assigned:
    """A name that is given the value of an expression. augmented: by `+=` and the like."""

    def __init__(self, value: ast.expr, scope: Scope, augmented: bool = False) -> None:
        self.value, self.scope, self.augmented = value, scope, augmented


class Annotated:
    """A name of which an annotation tells the type: a function's parameter, or a declared variable."""

    def __init__(self, annotation: ast.expr, scope: Scope) -> None:
        self.annotation, self.scope = annotation, scope


class Defined:
    """A function, or a class where `body` is its scope."""

    def __init__(self, node: ast.AST, scope: Scope) -> None:
        self.node, self.scope = node, scope


class Unknown:
    """A name bound in a way that says nothing of its value."""


Binding = Imported | Foreign | Assigned | Annotated | Defined | Unknown


class Scope:
    """A module, function, class or comprehension, and the names bound in it.

    owner: the class that a function is a method of. first: the method's first parameter. stars: modules that everything is imported from; None
    stands for one that is not torch's.
    """

    def __init__(self, node: ast.AST, parent: Scope | None) -> None:
        self.node, self.parent = node, parent
        self.bindings: dict[str, list[Binding]] = {}
        self.children: dict[ast.AST, Scope] = {}
        self.outside: set[str] = set()
        self.stars: list[str | None] = parent.stars if parent else []
        self.owner: Scope | None = parent if parent and parent.is_class and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
        # Of a class: what is assigned to attributes of its instances.
        self.attributes: dict[str, list[Binding]] = {}

    @property
    def is_class(self) -> bool:
        """Whether it is the body of a class."""
        return isinstance(self.node, ast.ClassDef)

    @property
    def first(self) -> str | None:
        """The first parameter of a function."""
        if not isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        parameters = self.node.args.posonlyargs + self.node.args.args
        return parameters[0].arg if parameters else None

    def has_decorator(self, name: str) -> bool:
        """Whether a method is decorated with what `name` stands for, such as staticmethod."""
        return any(isinstance(d, ast.Name) and d.id == name for d in getattr(self.node, "decorator_list", ()))

    def module(self) -> Scope:
        """The outermost scope."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def find(self, name: str) -> list[Binding] | None:
        """What `name` is bound to where this scope uses it; None for what no scope binds."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bindings and (scope is self or not scope.is_class):
                return scope.bindings[name]
            scope = scope.parent
        return None

    def bind(self, name: str, binding: Binding) -> None:
        """Add what a name is bound to."""
        where = self
        if name in self.outside:
            where = self.parent.home(name) if self.parent else self
        where.bindings.setdefault(name, []).append(binding)

    def home(self, name: str) -> Scope:
        """The nearest scope that binds a name: the module where none does."""
        scope: Scope = self
        while scope.parent is not None and (scope.is_class or name not in scope.bindings):
            scope = scope.parent
        return scope


def built(tree: ast.Module) -> Scope:
    """The scopes of a module, with all that is bound in them."""
    module = Scope(tree, None)
    pending = [(module, list(tree.body))]
    while pending:
        scope, nodes = pending.pop()
        binder = _Binder(scope)
        for node in nodes:
            binder.visit(node)
        pending += [(child, child_nodes(child.node)) for child in scope.children.values()]
    return module


def child_nodes(node: ast.AST) -> list[ast.AST]:
    """What of a scope's syntax is evaluated in the scope itself."""
    if isinstance(node, ast.Lambda):
        return [node.body]
    if isinstance(node, _COMPREHENSIONS):
        results: list[ast.AST] = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        return [*node.generators, *results]
    return list(node.body)  # type: ignore[attr-defined] - a function or a class


def outer_nodes(node: ast.AST) -> list[ast.AST]:
    """What of a function's or class's syntax is evaluated around it, annotations apart."""
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *(k.value for k in node.keywords)]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        defaults: list[ast.AST] = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
        return [*getattr(node, "decorator_list", []), *defaults]
    return []


def annotations_of(node: ast.AST) -> Iterator[ast.expr]:
    """The annotations of a function's parameters and result."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        for parameter in parameters(node):
            if parameter.annotation is not None:
                yield parameter.annotation
        if node.returns is not None:
            yield node.returns


def parameters(node: FunctionNode) -> Iterator[ast.arg]:
    """All parameters of a function."""
    a = node.args
    yield from (*a.posonlyargs, *a.args, *a.kwonlyargs)
    yield from (p for p in (a.vararg, a.kwarg) if p is not None)


class _Binder(ast.NodeVisitor):
    """Binds what the statements of one scope bind, and makes the scopes within it."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        node = scope.node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            self._bind_parameters(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for inner in ast.walk(node):
                if isinstance(inner, (ast.Global, ast.Nonlocal)):
                    scope.outside.update(inner.names)

    def _bind_parameters(self, node: FunctionNode) -> None:
        outer = self.scope.parent
        assert outer is not None
        rest = {id(p) for p in (node.args.vararg, node.args.kwarg)}
        for p in parameters(node):
            told = p.annotation is not None and id(p) not in rest
            self.scope.bind(p.arg, Annotated(p.annotation, outer) if told else Unknown())  # type: ignore[arg-type]

    def _enter(self, node: ast.AST) -> None:
        self.scope.children[node] = Scope(node, self.scope)
        for inner in (*outer_nodes(node), *annotations_of(node)):
            self.visit(inner)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._enter(node)
        self.scope.bind(node.name, Defined(node, self.scope.children[node]))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._enter(node)
        self.scope.bind(node.name, Defined(node, self.scope.children[node]))

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._enter(node)

    def _comprehension(self, node: ast.AST) -> None:
        self._enter(node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            path = alias.name if alias.asname else alias.name.partition(".")[0]
            self.scope.bind(alias.asname or path, Imported(path, node.lineno) if is_torch(alias.name) else Foreign(path))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        ours = not node.level and node.module is not None and is_torch(node.module)
        for alias in node.names:
            if alias.name == "*":
                self.scope.stars.append(node.module if ours else None)
            else:
                self.scope.bind(alias.asname or alias.name, Imported(f"{node.module}.{alias.name}", node.lineno) if ours else Foreign(alias.name))

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assign(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, node.value)
        elif isinstance(node.target, ast.Name):
            self.scope.bind(node.target.id, Annotated(node.annotation, self.scope))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._assign(node.target, node.value, augmented=True)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        around = self.scope
        while isinstance(around.node, _COMPREHENSIONS) and around.parent is not None:
            around = around.parent
        around.bind(node.target.id, Assigned(node.value, self.scope))
        self.visit(node.value)

    def _assign(self, target: ast.expr, value: ast.expr, augmented: bool = False) -> None:
        if isinstance(target, ast.Name):
            self.scope.bind(target.id, Assigned(value, self.scope, augmented))
        elif isinstance(target, ast.Attribute):
            method = self._method_of(target.value)
            if method is not None:
                method.attributes.setdefault(target.attr, []).append(Assigned(value, self.scope, augmented))
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            if len(values) == len(target.elts) and not any(isinstance(e, ast.Starred) for e in (*values, *target.elts)):
                for t, v in zip(target.elts, values, strict=True):
                    self._assign(t, v)
            else:
                self._bind_all(target)

    def _method_of(self, owner: ast.expr) -> Scope | None:
        """The class of which `owner` is an instance, where it is the first parameter of a method around."""
        scope: Scope | None = self.scope
        while isinstance(owner, ast.Name) and scope is not None:
            if owner.id in scope.bindings:
                return scope.owner if scope.first == owner.id else None
            scope = scope.parent
        return None

    def _bind_all(self, target: ast.AST) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.scope.bind(node.id, Unknown())
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                method = self._method_of(node.value)
                if method is not None:
                    method.attributes.setdefault(node.attr, []).append(Unknown())

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._bind_all(node.target)
        self.generic_visit(node)

    visit_AsyncFor = visit_For

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._bind_all(node.target)
        self.generic_visit(node)

    def visit_withitem(self, node: ast.withitem) -> None:
        if node.optional_vars is not None:
            self._bind_all(node.optional_vars)
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.scope.bind(node.name, Unknown())
        self.generic_visit(node)

    def _match_name(self, node: ast.AST) -> None:
        name = getattr(node, "name", None) or getattr(node, "rest", None)
        if name:
            self.scope.bind(name, Unknown())
        self.generic_visit(node)

    visit_MatchAs = visit_MatchStar = visit_MatchMapping = _match_name

    def visit_Delete(self, node: ast.Delete) -> None:
        self.generic_visit(node)


def is_builtin(name: str) -> bool:
    """Whether a name that no scope binds is Python's own, or a module's."""
    return hasattr(builtins, name) or name in ("__file__", "__path__", "__builtins__", "get_ipython", "display")


def defined_names(trees: Sequence[ast.AST]) -> set[str]:
    """Every name that a code base defines as a function or attribute of its own."""
    found: set[str] = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
    return found


def classes_of(modules: Sequence[Scope]) -> dict[str, list[Scope]]:
    """The classes at the top of modules, by name."""
    found: dict[str, list[Scope]] = {}
    for module in modules:
        for child in module.children.values():
            if isinstance(child.node, ast.ClassDef):
                found.setdefault(child.node.name, []).append(child)
    return found
