"""What an expression is, as far as a source tells it: something of torch's, an instance of a torch class, or a class of the code base's own."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import NamedTuple

from torchgrad_jax.cli.scanning.names import CONTEXT, FUNCTION, TENSOR, TENSOR_ATTRIBUTES, gives_tensor, has_member, is_torch, look_up
from torchgrad_jax.cli.scanning.scopes import Annotated, Assigned, Binding, Defined, Foreign, Imported, Scope, Unknown, is_builtin


class Torch(NamedTuple):
    """What is found at a dotted name of torch's."""

    path: str


class Instance(NamedTuple):
    """An instance of the torch class `kind`."""

    kind: str


class Method(NamedTuple):
    """A method of an instance of the torch class `kind`."""

    kind: str
    name: str


class Own(NamedTuple):
    """A class of the code base, or an instance of one."""

    scope: Scope
    is_instance: bool


class Function(NamedTuple):
    """A function of the code base."""

    scope: Scope


class Nothing(NamedTuple):
    """None and the like, which says nothing of what else a name may be; also what is being asked for already."""


Meaning = Torch | Instance | Method | Own | Function | Nothing | None
NOTHING = Nothing()
_TENSORS = re.compile(
    r"torch\.(cuda\.)?\w*Tensor|torch\.nn(\.parameter)?\.(Parameter|Buffer)|torch\.autograd(\.variable)?\.Variable|torch\.tensor\.Tensor"
)
_WITH_CONTEXT = ("forward", "backward", "jvp", "vjp", "setup_context")
# How many steps one question may take: what is not found by then is not known.
_STEPS = 3000


def instance_of(path: str) -> Instance:
    """An instance of the class at a dotted name; the kinds of tensors are one."""
    return Instance(TENSOR if _TENSORS.fullmatch(path) else path)


def joined(found: list[Meaning]) -> Meaning:
    """What is one of several; None, unknown, where they differ."""
    known = {m for m in found if m is not NOTHING}
    return NOTHING if not known else known.pop() if len(known) == 1 else None


def imported_by_call(node: ast.AST) -> str | None:
    """The module that a call gives, such as ``importlib.import_module("torch")`` or ``pytest.importorskip("torch")``; None for other calls."""
    if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)):
        return None
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return node.args[0].value if name in ("import_module", "importorskip") else None


class Meanings:
    """Answers for a whole code base. classes: its own, by name."""

    def __init__(self, classes: dict[str, list[Scope]]) -> None:
        self.classes = classes
        self._known: dict[int, Meaning] = {}
        self._asked: set[int] = set()
        self._open = 0  # how often a question led to itself
        self._steps = 0

    def of(self, node: ast.AST | None, scope: Scope) -> Meaning:
        """What an expression is where `scope` evaluates it."""
        if not self._asked:
            self._steps = 0
        self._steps += 1
        if self._steps > _STEPS:
            return None
        rule = getattr(self, f"_of_{type(node).__name__}", None)
        return None if rule is None else rule(node, scope)

    def is_tensor(self, node: ast.AST, scope: Scope) -> bool:
        """Whether an expression is known to be a tensor."""
        return self.of(node, scope) == Instance(TENSOR)

    # ------------------------------------------------------------------ expressions

    def _of_Constant(self, node: ast.Constant, scope: Scope) -> Meaning:
        return NOTHING if node.value is None or node.value is False else None

    def _of_Name(self, node: ast.Name, scope: Scope) -> Meaning:
        return self.of_name(node.id, scope)

    def _of_Attribute(self, node: ast.Attribute, scope: Scope) -> Meaning:
        return self.member(self.of(node.value, scope), node.attr)

    def _of_Call(self, node: ast.Call, scope: Scope) -> Meaning:
        module = imported_by_call(node)
        if module is not None and is_torch(module):
            return Torch(module)
        function = self.of(node.func, scope)
        if isinstance(function, Torch):
            if look_up(function.path).is_class or _TENSORS.fullmatch(function.path):
                return instance_of(function.path)
            return Instance(TENSOR) if gives_tensor(function.path) else None
        if isinstance(function, Method):
            return Instance(TENSOR) if gives_tensor(f"{function.kind}.{function.name}") else None
        if isinstance(function, Own):
            return None if function.is_instance else Own(function.scope, True)
        if isinstance(function, Function):
            returns = getattr(function.scope.node, "returns", None)
            return None if returns is None or function.scope.parent is None else self.annotated(returns, function.scope.parent)
        return None

    def _of_BinOp(self, node: ast.BinOp, scope: Scope) -> Meaning:
        left, right = self.of(node.left, scope), self.of(node.right, scope)
        if Instance(TENSOR) in (left, right):
            return Instance(TENSOR)
        return NOTHING if NOTHING in (left, right) else None

    def _of_UnaryOp(self, node: ast.UnaryOp, scope: Scope) -> Meaning:
        found = self.of(node.operand, scope)
        return found if not isinstance(node.op, ast.Not) and (found == Instance(TENSOR) or found is NOTHING) else None

    def _of_Compare(self, node: ast.Compare, scope: Scope) -> Meaning:
        compares = not any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops)
        return Instance(TENSOR) if compares and len(node.ops) == 1 and any(self.is_tensor(e, scope) for e in (node.left, *node.comparators)) else None

    def _of_Subscript(self, node: ast.Subscript, scope: Scope) -> Meaning:
        found = self.of(node.value, scope)
        return found if found == Instance(TENSOR) or found is NOTHING else None

    def _of_IfExp(self, node: ast.IfExp, scope: Scope) -> Meaning:
        return joined([self.of(node.body, scope), self.of(node.orelse, scope)])

    def _of_BoolOp(self, node: ast.BoolOp, scope: Scope) -> Meaning:
        return joined([self.of(value, scope) for value in node.values])

    def _of_NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> Meaning:
        return self.of(node.value, scope)

    # ------------------------------------------------------------------ names

    def of_name(self, name: str, scope: Scope) -> Meaning:
        """What a name is where `scope` uses it."""
        bindings = scope.find(name)
        if bindings is None:
            return None if is_builtin(name) else self._of_star(name, scope)
        return self._once(bindings, lambda: self._of_bindings(name, bindings, scope))

    def _once(self, bindings: list[Binding], compute: Callable[[], Meaning]) -> Meaning:
        """What `compute` makes of bindings; remembered, unless it had to leave out what is just being asked about."""
        key = id(bindings)
        if key in self._known:
            return self._known[key]
        if key in self._asked:
            self._open += 1
            return NOTHING
        self._asked.add(key)
        before = self._open
        try:
            found = compute()
        finally:
            self._asked.discard(key)
        if not self._asked or self._open == before:
            self._known[key] = found
        return found

    def _of_star(self, name: str, scope: Scope) -> Meaning:
        stars = scope.stars
        ours = [star for star in stars if star is not None]
        for star in ours:
            if look_up(f"{star}.{name}").found:
                return Torch(f"{star}.{name}")
        return Torch(f"{ours[0]}.{name}") if len(stars) == len(ours) == 1 and not name.startswith("_") else None

    def _of_bindings(self, name: str, bindings: list[Binding], scope: Scope) -> Meaning:
        imported = [b.path for b in bindings if isinstance(b, Imported)]
        if imported and not any(isinstance(b, Unknown) for b in bindings):
            return Torch(next((path for path in imported if look_up(path).found), imported[0]))
        first = self._first_parameter(name, bindings, scope)
        return first if first is not None else joined([self.of_binding(b, name) for b in bindings])

    def of_binding(self, binding: Binding, name: str) -> Meaning:
        """What one binding makes of a name."""
        if isinstance(binding, Imported):
            return Torch(binding.path)
        if isinstance(binding, Assigned):
            found = self.of(binding.value, binding.scope)
            # `x += y` leaves a tensor a tensor, whatever y is.
            return NOTHING if binding.augmented else found
        if isinstance(binding, Annotated):
            return self.annotated(binding.annotation, binding.scope)
        if isinstance(binding, Defined):
            return Own(binding.scope, False) if binding.scope.is_class else Function(binding.scope)
        if isinstance(binding, Foreign):
            known = self.classes.get(binding.name, ())
            return Own(known[0], False) if len(known) == 1 else None
        return None

    def _first_parameter(self, name: str, bindings: list[Binding], scope: Scope) -> Meaning:
        """What the first parameter of a method is: an instance, the class, or what a Function's methods are given."""
        function: Scope | None = scope
        while function is not None and function.bindings.get(name) is not bindings:
            function = function.parent
        if function is None or function.owner is None or function.first != name or len(bindings) > 1 or not isinstance(bindings[0], Unknown):
            return None
        owner = function.owner
        if FUNCTION in self.torch_bases(owner):
            method = getattr(function.node, "name", "")
            combined = method != "forward" or "setup_context" not in owner.bindings
            return Instance(CONTEXT) if method in _WITH_CONTEXT and combined else None
        if function.has_decorator("staticmethod"):
            return None
        return Own(owner, not function.has_decorator("classmethod"))

    def annotated(self, annotation: ast.expr, scope: Scope) -> Meaning:
        """What an annotation says that something is."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value.strip(), mode="eval").body
            except SyntaxError:
                return None
        if isinstance(annotation, ast.Constant) and annotation.value is None:
            return NOTHING
        if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
            return joined([self.annotated(annotation.left, scope), self.annotated(annotation.right, scope)])
        if isinstance(annotation, ast.Subscript):
            head = annotation.value.attr if isinstance(annotation.value, ast.Attribute) else getattr(annotation.value, "id", "")
            return self.annotated(annotation.slice, scope) if head in ("Optional", "Final", "ClassVar") else None
        found = self.of(annotation, scope)
        if isinstance(found, Torch):
            return instance_of(found.path) if look_up(found.path).is_class or _TENSORS.fullmatch(found.path) else None
        return Own(found.scope, True) if isinstance(found, Own) and not found.is_instance else None

    # ------------------------------------------------------------------ members

    def member(self, owner: Meaning, name: str) -> Meaning:
        """What an attribute is, given what has it."""
        if isinstance(owner, Torch):
            return Torch(f"{owner.path}.{name}")
        if isinstance(owner, Instance):
            if owner.kind == TENSOR and name in TENSOR_ATTRIBUTES:
                return owner
            return Method(owner.kind, name)
        if isinstance(owner, Own):
            own = self.own_member(owner.scope, name)
            if own is not None:
                return self._of_attribute(own, name)
            kind = self.torch_member(owner.scope, name)
            return None if kind is None else Method(kind, name)
        return None

    def _of_attribute(self, bindings: list[Binding], name: str) -> Meaning:
        def compute() -> Meaning:
            found = joined([self.of_binding(b, name) for b in bindings])
            return None if isinstance(found, Function) else found  # what a method of the code base gives depends on too much

        return self._once(bindings, compute)

    def bases(self, cls: Scope) -> list[Meaning]:
        """What the bases of a class are."""
        node, around = cls.node, cls.parent
        assert isinstance(node, ast.ClassDef) and around is not None
        return [self.of(base, around) for base in node.bases]

    def lineage(self, cls: Scope) -> list[Meaning]:
        """A class and those that it is made of, each once: the code base's and torch's."""
        found: list[Meaning] = []
        pending: list[Meaning] = [Own(cls, False)]
        while pending:
            one = pending.pop(0)
            if one is not None and one not in found:
                found.append(one)
                if isinstance(one, Own):
                    pending += [base for base in self.bases(one.scope) if isinstance(base, (Torch, Own))]
        return found

    def torch_bases(self, cls: Scope) -> list[str]:
        """The torch classes that a class of the code base is made of."""
        names = [look_up(one.path) for one in self.lineage(cls) if isinstance(one, Torch)]
        return [self._plain(answer.value, answer.name) for answer in names]

    @staticmethod
    def _plain(value: object, name: str) -> str:
        """One name for a class that has several, such as `torch.nn.modules.module.Module`."""
        for usual in ("torch.nn.Module", TENSOR, FUNCTION):
            if value is not None and look_up(usual).value is value:
                return usual
        return name

    def own_member(self, cls: Scope, name: str, after: bool = False) -> list[Binding] | None:
        """What an attribute is bound to in a class of the code base or one above it; None where it is not theirs. after: in those above alone."""
        for one in self.lineage(cls)[int(after) :]:
            if isinstance(one, Own):
                if name in one.scope.attributes:
                    return one.scope.attributes[name]
                if name in one.scope.bindings:
                    return one.scope.bindings[name]
        return None

    def torch_member(self, cls: Scope, name: str) -> str | None:
        """The torch class from which a class of the code base has an attribute."""
        return next((kind for kind in self.torch_bases(cls) if has_member(kind, name) is not None), None)
