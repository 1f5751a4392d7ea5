"""What editors and type checkers are told of `torch` and `Tensor` is what there is."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import torchgrad_jax
from torchgrad_jax.core import tensor
from torchgrad_jax.namespace import stubs

pytestmark = pytest.mark.operators


def test_stubs_are_what_would_be_generated():
    # In a process of its own: what is loaded late would be there too.
    done = subprocess.run([sys.executable, "-m", "torchgrad_jax.namespace.stubs", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def names(body):
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def declared(path, of=None):
    body = ast.parse(Path(path).read_text()).body
    return set(names(body if of is None else next(node for node in body if isinstance(node, ast.ClassDef) and node.name == of).body))


def test_every_public_name_is_declared():
    own = {name for name in vars(torchgrad_jax) if not name.startswith("_")}
    assert own - declared(stubs.ROOT / "__init__.pyi") <= {"load_ipython_extension", "cli", "comparing", "saving", "torch"}
    known = declared(stubs.ROOT / "core" / "declared.pyi", "Declared") | declared(tensor.__file__, "Tensor")
    public = {name: value for name, value in vars(torchgrad_jax.Tensor).items() if not name.startswith("_")}
    assert {name for name, value in public.items() if callable(value) or isinstance(value, property)} - known == set()
