"""The plan of the house, read from the source: who imports whom, no private JAX, one declaration per operator."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import torchgrad_jax
from torchgrad_jax.calling.public import public
from torchgrad_jax.declaration.operator import op
from torchgrad_jax.operators import registry

pytestmark = pytest.mark.operators

ROOT = Path(torchgrad_jax.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
# Each layer imports only from itself and those before it; packages that are not among them, the leaves, import none of each other.
LAYERS = (
    "_typed", "runtime", "declaration", "operators", "memory", "core", "calling", "functions", "autograd", "lifting", "sparse", "nn", "comparing",
)  # fmt: skip
# Imports of our own inside functions: (file, module), each with its reason.
INSIDE_FUNCTIONS = {
    ("__init__.py", "torchgrad_jax.cli"): "what makes `import torch` mean this package is for those who ask for it",
    ("overrides.py", "torchgrad_jax"): "answers questions about the whole namespace, which it is a part of",
}
MOST_LINES, MOST_FILES = 600, 30


def name_of(path):
    return str(path.relative_to(ROOT.parent))


def parsed(path):
    return ast.parse(path.read_text())


def module_of(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


def layer(module):
    """The layer or leaf that a module belongs to; None for the modules that make up the torch-shaped namespace."""
    parts = module.split(".")[1:]
    return parts[0] if parts and (len(parts) > 1 or (ROOT / parts[0]).is_dir()) else None


@cache
def imports(path):
    """Every module that the file imports, its line, and whether it does so inside a function. Of what is no module of ours the name is given too."""
    package, found, waiting = path.relative_to(ROOT.parent).parent.parts, [], [(parsed(path), False)]
    while waiting:
        node, inside = waiting.pop()
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno, inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = ".".join([*(package[: len(package) + 1 - node.level] if node.level else ()), *([node.module] if node.module else ())])
            names = [(f"{module}.{alias.name}", node.lineno, inside) for alias in node.names]
            found += [(name if name in MODULES else module, line, inside) for name, line, inside in names]
        else:
            inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            waiting += [(child, inside) for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
    return found


def ours(path, excused=False):
    """The modules of this package that a file imports; without those that are excused."""
    for module, line, inside in imports(path):
        excuse = (str(path.relative_to(ROOT)), module)
        if module.partition(".")[0] == "torchgrad_jax" and (excused or not (inside and any(excuse == e or (
            excuse[0] == e[0] and module.startswith(e[1] + ".")
        ) for e in INSIDE_FUNCTIONS))):  # fmt: skip
            yield module, line, inside


def rank(name):
    return LAYERS.index(name) if name in LAYERS else len(LAYERS)


def across_layers(path):
    """What a file imports of a layer that does not come before its own."""
    own = layer(module_of(path))
    if own is None or own == "namespace":  # part of the namespace, which has all of them
        return
    for module, line, _ in ours(path):
        target = layer(module)
        if target is not None and target != own and rank(target) >= rank(own):
            yield f"{path}:{line} imports {module}"


def test_each_layer_imports_only_from_those_before_it():
    assert [told for path in FILES for told in across_layers(path)] == []
    assert sum(layer(module_of(path)) in LAYERS for path in FILES) > 400


def test_nothing_of_our_own_is_imported_inside_functions():
    assert [f"{path}:{line} imports {module}" for path in FILES for module, line, inside in ours(path) if inside] == []


def test_imports_are_seen_wherever_they_are(monkeypatch):
    text = "import a\nclass C:\n  from b import c\n  def f():\n    if d: import e\nwith x as y: import g\ntry: import h\nexcept E: import i"
    monkeypatch.setitem(globals(), "parsed", lambda path: ast.parse(text))
    found = {name: inside for name, _, inside in imports.__wrapped__(ROOT / "an_example.py")}
    assert found == {"a": False, "b": False, "e": True, "g": False, "h": False, "i": False}


def test_what_may_be_imported_inside_functions_is_and_is_little():
    assert len(INSIDE_FUNCTIONS) <= 5
    for file, module in INSIDE_FUNCTIONS:
        found = [name for name, _, inside in ours(ROOT / file, excused=True) if inside]
        assert any(name == module or name.startswith(module + ".") for name in found), (file, module)


def circles(graph):
    """The sets of modules that lead to each other (Tarjan 1972, without recursion)."""
    order, low, stack, found = {}, {}, [], []
    for start in graph:
        if start in order:
            continue
        order[start] = low[start] = len(order)
        stack.append(start)
        path = [(start, iter(graph[start]))]
        while path:
            module, targets = path[-1]
            for target in targets:
                if target not in order:
                    order[target] = low[target] = len(order)
                    stack.append(target)
                    path.append((target, iter(graph[target])))
                    break
                if target in stack:
                    low[module] = min(low[module], order[target])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[module])
                if low[module] == order[module]:
                    at = stack.index(module)
                    if len(stack) - at > 1:
                        found.append(sorted(stack[at:]))
                    del stack[at:]
    return found


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"d"}}) == [["a", "b", "c"]]


def test_no_modules_import_each_other():
    # The package itself is what its users import: it leads to all of them.
    graph = {m: {t for t, _, _ in ours(path) if t in MODULES and t not in (m, "torchgrad_jax")} for m, path in MODULES.items()}
    assert circles(graph) == []


def test_files_and_folders_can_be_taken_in():
    assert {name_of(path): n for path in FILES if (n := len(path.read_text().splitlines())) > MOST_LINES} == {}
    folders = Counter(path.parent for path in FILES)
    assert {str(folder): n for folder, n in folders.items() if n > MOST_FILES} == {}


def test_nothing_imports_torch():
    assert [f"{path}:{line}" for path in FILES for module, line, _ in imports(path) if module.partition(".")[0] == "torch"] == []


def dotted(node):
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def jax_names(tree):
    """The local names of JAX modules, with what they stand for."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in ("jax", "jaxlib"):
                    found[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("jax", "jaxlib"):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def is_private(path):
    parts = path.split(".")
    return any(p.startswith("_") for p in parts) or (parts[:2] == ["jax", "core"] and path not in ("jax.core", "jax.core.Tracer"))


def private_jax(path):
    """The private names of JAX's that a file uses."""
    tree = parsed(path)
    names = jax_names(tree)
    used = set(names.values())
    for node in ast.walk(tree) if names else ():
        chain = dotted(node)
        if len(chain) > 1 and chain[0] in names:
            used.add(".".join([names[chain[0]], *chain[1:]]))
    return [name for name in used if is_private(name)]


def test_only_public_jax_is_used():
    found = {name_of(path): names for path in FILES if (names := private_jax(path))}
    assert list(found) == ["torchgrad_jax/runtime/_jax_compat.py"], found


def declared(path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "op" and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant):
                yield first.value.partition("(")[0]


def test_every_operator_is_declared_once():
    counts = Counter(name for path in FILES for name in declared(path))
    assert len(counts) > 100
    assert not [name for name, n in counts.items() if n > 1]


def test_a_second_declaration_of_an_operator_is_refused():
    name = next(iter(registry))
    with pytest.raises(Exception, match=name):
        op(registry[name].schema.text)(lambda *arrays: arrays[0])


def test_an_option_that_there_is_not_is_refused():
    with pytest.raises(TypeError, match="diferentiable"):
        op("_never_declared(Tensor self)", diferentiable=False)(lambda x: x)
    assert "_never_declared" not in registry


def test_a_place_is_taken_once():
    with pytest.raises(ValueError, match="torch.matmul is published twice"):
        public("torch.matmul")(lambda: None)
    with pytest.raises(KeyError):
        public("torch.nowhere.f")(lambda: None)


def test_what_must_not_be_interrupted_in_a_lock_is_on_one_line():
    # An interrupt may come between two lines: `with lock:` on a line of its own would leave it locked.
    found = 0
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.With) and any(
                "no" + "qa: E701" in line for line in path.read_text().splitlines()[node.lineno - 1 : node.body[0].lineno]
            ):
                found += 1
                assert node.body[0].lineno == node.lineno, f"{path}:{node.lineno}"
    assert found == 3
