"""Where code is ready for an error, what an operation finds wrong with values is told at its line, as in PyTorch; elsewhere at the next look."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap

import pytest

import torchgrad_jax as tj
from torchgrad_jax.runtime import counters, execution_mode, modes
from torchgrad_jax.runtime.recording.expecting import error_is_expected

try:
    import torch
except ImportError:
    torch = None

MODULES = [tj] if torch is None else [tj, torch]
pytestmark = pytest.mark.failing_programs


@pytest.fixture(autouse=True)
def recorded(monkeypatch):
    monkeypatch.setattr(modes, "checks", "look")
    with execution_mode("fused"):
        yield


def matrix(m, sign=-1.0):
    return m.eye(3, dtype=m.float64) * sign * m.ones(1, dtype=m.float64)


FACTORIZATIONS = {
    "cholesky": lambda m: m.linalg.cholesky(matrix(m)), "inv": lambda m: m.linalg.inv(matrix(m, 0.0)),
    "solve": lambda m: m.linalg.solve(matrix(m, 0.0), m.ones(3, dtype=m.float64)), "old cholesky": lambda m: matrix(m).cholesky(),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated")  # said once in a process
@pytest.mark.parametrize("m", MODULES)
@pytest.mark.parametrize("name", FACTORIZATIONS)
def test_what_is_tried_fails_where_it_is_tried(m, name):
    went_on = False
    try:
        FACTORIZATIONS[name](m)
        went_on = True
    except RuntimeError as error:
        assert "singular" in str(error) or "positive-definite" in str(error)
    assert not went_on


@pytest.mark.parametrize("m", MODULES)
def test_the_usual_loop_that_adds_to_the_diagonal(m):
    k, jitter = m.ones(4, 4, dtype=m.float64) * m.ones(1, dtype=m.float64), 1e-12
    k = k - 1e-9 * m.eye(4, dtype=m.float64)
    tries = 0
    while True:
        try:
            factor = m.linalg.cholesky(k + jitter * m.eye(4, dtype=m.float64))
            break
        except m.linalg.LinAlgError:
            jitter *= 10
            tries += 1
    assert tries == 4 and m.isfinite(factor).all()


@pytest.mark.parametrize("m", MODULES)
def test_blocks_that_await_an_error(m):
    with pytest.raises(RuntimeError, match="positive-definite"):
        m.linalg.cholesky(matrix(m))
    with contextlib.suppress(RuntimeError):
        m.linalg.inv(matrix(m, 0.0))
        pytest.fail("it went on")


@pytest.mark.parametrize("m", MODULES)
def test_indices_that_were_computed(m):
    went_on = False
    try:
        m.nn.functional.embedding(m.ones(2).long() * 7, m.ones(3, 2))
        went_on = True
    except IndexError:
        pass
    assert not went_on


def test_elsewhere_nothing_is_run_for_it():
    x = matrix(tj, 2.0)
    before = counters.flushed
    try:
        factor = tj.linalg.cholesky(x)
    finally:
        assert counters.flushed == before
    try:
        weights = tj.nn.functional.embedding(tj.ones(2).long(), tj.ones(3, 2))
    except (KeyboardInterrupt, ImportError):
        raise
    except AttributeError:
        weights = None
    with tj.no_grad():
        rows = tj.nn.functional.embedding(tj.ones(2).long(), tj.ones(3, 2))
    assert counters.flushed == before
    assert factor[0, 0].item() == pytest.approx(2**0.5) and weights is not None and (weights == rows).all()


class Late(Exception):
    pass


def test_which_lines_stand_in_a_try():
    """By what its handlers are for, whatever else is around."""
    found = {}
    try:
        found["first"] = error_is_expected(False)
    except KeyboardInterrupt:
        raise
    except (Late, ValueError):
        raise
    try:
        found["other"] = error_is_expected(False)
    except (KeyboardInterrupt, StopIteration):
        raise
    try:
        found["finally"] = error_is_expected(False)
    finally:
        found["in finally"] = error_is_expected(False)
    try:
        raise Late
    except Late:
        found["in the handler"] = error_is_expected(False)
    else:
        found["else"] = True
    for _ in range(2):
        try:
            with contextlib.nullcontext():
                found["deep"] = error_is_expected(False)
        except:  # noqa: E722 - of no class in particular
            raise
    with contextlib.nullcontext():
        found["with"] = error_is_expected(False)
        found["with, often"] = error_is_expected(True)
    try:
        found["called"], found["called, often"] = asked(False), asked(True)
    except Exception:
        raise
    found["outside"] = error_is_expected(False)
    expected = ("first", "deep", "with, often", "called, often")
    assert found == {name: name in expected for name in found} and len(found) == 11


def asked(often):
    return error_is_expected(often)


def test_a_script_without_any():
    code = """
        import torchgrad_jax as torch
        factor = torch.linalg.cholesky(-torch.eye(2) * torch.ones(1))
        print("went on")
        print(factor)
    """
    environment = {**os.environ, "TORCHGRAD_JAX_EXECUTION": "fused", "TORCHGRAD_JAX_CHECK": "look"}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=environment)
    assert done.stdout == "went on\n" and "LinAlgError" in done.stderr
