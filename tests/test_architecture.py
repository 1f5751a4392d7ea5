"""The plan of the house, read from the source: who imports whom, no private JAX, one declaration per operator."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import torchgrad_jax
from torchgrad_jax.ops.declare import op, registry

pytestmark = pytest.mark.operators

ROOT = Path(torchgrad_jax.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
# Each layer imports only from itself and those before it; packages of the last row import none of each other.
LAYERS = ("runtime", "ops", "tensor", "autograd")


def name_of(path):
    return str(path.relative_to(ROOT.parent))


@cache
def parsed(path):
    return ast.parse(path.read_text())


def layer(parts):
    """A module's layer; None for the modules that make up the torch-shaped namespace, which nothing imports."""
    return parts[0] if len(parts) > 1 or (parts and parts[0] in (*LAYERS, "nn", "cli")) else None


def imports(path):
    """Every module that the file imports, at its top or inside a function, with its line."""
    package = path.relative_to(ROOT.parent).parent.parts
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            module = ".".join([*(package[: len(package) + 1 - node.level] if node.level else ()), *([node.module] if node.module else ())])
            yield module, node.lineno
            for alias in node.names:
                yield f"{module}.{alias.name}", node.lineno


def rank(name):
    return LAYERS.index(name) if name in LAYERS else len(LAYERS)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_each_layer_imports_only_from_those_before_it(path):
    own = layer(path.relative_to(ROOT).with_suffix("").parts)
    if own is None:
        pytest.skip("part of the namespace")
    for module, line in imports(path):
        package, _, rest = module.partition(".")
        target = layer(rest.split(".")) if package == "torchgrad_jax" else own
        if target is not None and target != own:
            assert rank(target) < rank(own), f"{path}:{line} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_imports_torch(path):
    assert not [f"{path}:{line}" for module, line in imports(path) if module.partition(".")[0] == "torch"]


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


@pytest.mark.parametrize("path", [p for p in FILES if name_of(p) != "torchgrad_jax/runtime/_jax_compat.py"], ids=name_of)
def test_only_public_jax_is_used(path):
    tree = parsed(path)
    names = jax_names(tree)
    used = set(names.values())
    for node in ast.walk(tree):
        chain = dotted(node)
        if len(chain) > 1 and chain[0] in names:
            used.add(".".join([names[chain[0]], *chain[1:]]))
    assert not [name for name in used if is_private(name)]


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
