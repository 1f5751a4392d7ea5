"""What all tests may use."""

from __future__ import annotations

import gc
import os
from importlib.metadata import version

# A third of the tests' time is XLA's compiling of small functions, each once: it takes half as long without "emitters", which the next XLA has no
# option for, and less without LLVM's effort for what JAX computes by itself. (Our programs ask for theirs.)
if version("jaxlib").startswith("0.10."):
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")
else:
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jax
import pytest
from hypothesis import HealthCheck, settings

import torchgrad_jax
from torchgrad_jax.runtime import baseline_tier, program
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.recording import epoch

# Also where there is a GPU, on which plain JAX would compute what ours is held against: JAX_PLATFORMS=cuda,cpu runs them so.
jax.config.update("jax_platforms", os.environ.setdefault("JAX_PLATFORMS", "cpu"))

# How long something takes says nothing of it: other programs may be running.
settings.register_profile("on any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("on any machine")


# What fails fails again.
torchgrad_jax.manual_seed(67280421310721)


def pytest_collection_finish():
    """What is there before the first test stays: no collection of garbage, of which JAX and some tests ask for many, need look at it again. With
    Python's own limits the rest would take a tenth of the time of all tests."""
    gc.set_threshold(10_000, 20, 20)
    gc.collect()
    _keep_what_is_there()


@pytest.fixture(scope="module")
def jax_in_64_bits():
    """Plain JAX with 64-bit types, for tests that hold ours against it: importing torchgrad_jax leaves the user's setting as it is."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def programs_fail_only_where_that_is_tested(request):
    """A program that fails is computed operation by operation, so that a mistake of ours in running it would show in nothing but the time."""
    before = counters.failed
    # What other tests have run does not decide what is searched for loops, nor what is kept of a program.
    program._forms.in_vain, program._forms.new_in_a_row, program._forms.met = 0, 0, program.FIRST
    yield
    if request.node.get_closest_marker("failing_programs") is None:
        assert counters.failed <= before, "a program failed and was computed operation by operation"
    assert not epoch._NONE and not epoch._EMPTY, "what all epochs share was written to"


@pytest.fixture
def interpreted():
    """New programs are interpreted, also where all else is run by XLA (TORCHGRAD_JAX_BASELINE=off)."""
    with baseline_tier(True):
        yield


@pytest.fixture
def leaks_are_checked():
    """JAX raises where a tracer outlives its trace."""
    _keep_what_is_there()
    with jax.checking_leaks():
        yield


@pytest.fixture(autouse=jax.config.jax_check_tracer_leaks)
def collections_are_short():
    """Where all tests are run so (JAX_CHECK_TRACER_LEAKS=1)."""
    _keep_what_is_there()


@pytest.fixture(autouse=True)
def collections_look_at_what_is_new():
    """What a test leaves behind stays, as caches do, and is not looked through again in each full collection."""
    yield
    if _full_collections() != _seen[0]:
        gc.collect()  # first of all what is garbage
        _keep_what_is_there()
        _seen[0] = _full_collections()


@pytest.fixture(autouse=True, scope="module")
def what_other_files_left_is_not_looked_at():
    """Nor by who looks for tensors among all objects, as `_saved_self` does: a second in a process that has run most of the tests."""
    gc.collect()
    _keep_what_is_there()


_seen = [0]


def _full_collections():
    return gc.get_stats()[2]["collections"]


def _keep_what_is_there():
    """Let nothing that was made so far be looked at again: to find leaks JAX collects garbage at the end of each trace."""
    gc.freeze()
