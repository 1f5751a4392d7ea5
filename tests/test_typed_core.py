"""The typed core: one source, compiled or not, with the same records."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import torchgrad_jax as torch
from torchgrad_jax import _typed
from torchgrad_jax.runtime.recorder import recorder
from torchgrad_jax.runtime.value import Value

pytestmark = pytest.mark.operators

# A program whose records are counted: functions, operators, numbers, in-place writes, views, several results, backward passes.
PROGRAM = """
import torchgrad_jax as torch
from torchgrad_jax.runtime import counters

w, x = torch.full((3, 3), 0.5, requires_grad=True), torch.full((2, 3), 2.0)
counters.reset()
total = 0.0
for turn in range(5):
    y = torch.tanh(x @ w) * 2 - x
    y[0] += 1
    y.mul_(0.5).add_(x)
    values, _ = y.max(dim=1)
    loss = (values.exp() + 3).sum() - abs(-y).mean()
    w.grad = None
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
    total += loss.item()
print(torch.runtime.typed_core(), counters.recorded, counters.flushed, float(total).hex(), [float(v).hex() for v in w.detach().flatten()])
"""


def run(program, switch):
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, _typed.VARIABLE: switch}, capture_output=True, text=True, check=True)
    return done.stdout.split()


def compiled_here():
    kept = _typed.folder() / _typed.DIGEST
    return kept.exists() and kept.read_text() == _typed.digest()


def test_the_switch_chooses_the_sources():
    assert run("import torchgrad_jax as torch; print(torch.runtime.typed_core())", "off") == ["False"]
    assert run("import torchgrad_jax as torch; print(torch.runtime.typed_core())", "on") == [str(compiled_here())]


@pytest.mark.skipif(not compiled_here(), reason="the typed core is not compiled here")
def test_the_same_operations_are_recorded_and_the_same_bits_computed():
    program = PROGRAM.replace("torch.tanh", "torch.relu").replace(".exp()", ".abs().sqrt()")
    compiled, pure = run(program, "on"), run(program, "off")
    assert (compiled[0], pure[0]) == ("True", "False")
    assert compiled[1:] == pure[1:]


@pytest.mark.skipif(not compiled_here(), reason="the typed core is not compiled here")
def test_functions_of_single_precision_differ_in_their_last_places_alone():
    """tanh and exp are loops of the typed core."""
    compiled, pure = run(PROGRAM, "on"), run(PROGRAM, "off")
    assert compiled[1:3] == pure[1:3]
    numbers = [[float.fromhex(text.strip("[',]")) for text in found[3:]] for found in (compiled, pure)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-5)


def test_what_was_compiled_of_other_sources_is_not_used(monkeypatch, tmp_path):
    for name in _typed.sources():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((_typed.ROOT / name).read_bytes())
    assert _typed.digest(tmp_path) == _typed.digest()
    changed = tmp_path / "core/hot.pxd"
    changed.write_text(changed.read_text() + "\n")
    assert _typed.digest(tmp_path) != _typed.digest()
    kept = tmp_path / "built"
    kept.mkdir()
    (kept / _typed.DIGEST).write_text(_typed.digest(tmp_path))
    monkeypatch.setattr(_typed, "folder", lambda: kept)
    before = list(sys.meta_path)
    assert _typed.use() is False and sys.meta_path == before


def test_every_typed_declaration_is_of_a_module_that_is_compiled():
    written = {str(path.relative_to(_typed.ROOT).with_suffix("")) for path in _typed.ROOT.rglob("*.pxd")}
    assert written <= {name.replace("/", os.sep) for name in (*_typed.MODULES, *_typed.DECLARATIONS)}


@pytest.fixture
def build():
    spec = importlib.util.spec_from_file_location("build_of_the_typed_core", Path(_typed.__file__).parent / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_hook_says_why_nothing_is_compiled(monkeypatch, build):
    monkeypatch.setenv(_typed.VARIABLE, "off")
    assert build.build() == "TORCHGRAD_JAX_TYPED=off"
    told, data = [], {"artifacts": [], "pure_python": True}
    hook = type("Hook", (build.TypedCore,), {"app": type("App", (), {"display_warning": staticmethod(told.append)})})
    hook.initialize(object.__new__(hook), "standard", data)
    assert data == {"artifacts": [], "pure_python": True}
    assert len(told) == 1 and told[0].endswith("TORCHGRAD_JAX_TYPED=off")
    monkeypatch.setenv(_typed.VARIABLE, "on")
    monkeypatch.setattr(build.typed, "folder", lambda: Path(os.devnull) / "nowhere")

    def absent(scratch):
        raise OSError("no compiler")

    monkeypatch.setattr(build, "_compile", absent)
    assert build.build() == "OSError: no compiler"


def test_a_cython_that_miscompiles_is_refused(monkeypatch, tmp_path, build):
    pytest.importorskip("Cython")
    monkeypatch.setattr("Cython.__version__", "3.3.0")
    with pytest.raises(RuntimeError, match="Cython 3.3.0 compiles"):
        build._compile(tmp_path)


def test_fields_are_those_of_the_class_and_no_others():
    value = Value()
    value.aval = value.array = value.epoch = value.counter = None
    with pytest.raises(AttributeError):
        value.other = 1
    t = torch.ones(2)
    t.note = "mine"
    assert t.note == "mine" and t._rg is False and recorder().grad_enabled is True
