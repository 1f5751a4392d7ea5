"""What the runtime promises: few compilations, bounded pending work, nothing run in vain, threads, a light import."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.runtime import baseline_tier, counters, execution_mode, operation, program
from torchgrad_jax.runtime import recorder as recorder_module
from torchgrad_jax.runtime._jax_compat import trace
from torchgrad_jax.runtime.baseline import contains
from torchgrad_jax.runtime.device import live_arrays
from torchgrad_jax.runtime.recorder import recorder


@pytest.fixture
def fused():
    with execution_mode("fused"):
        yield


@pytest.fixture
def ran(monkeypatch, fused):
    """The names of the operations of each program that runs."""
    found = []
    run = program._run

    def noted(program_, *arguments):
        found.append([c.signature.bop.name for c in program_.calls])
        return run(program_, *arguments)

    monkeypatch.setattr(program, "_run", noted)
    return found


def compilations():
    return counters.compiled + counters.compiled_ops


def compiled_by(call):
    before = compilations()
    call()
    return compilations() - before


class Regression:
    """A small training loop; `look`: the loss is looked at every so many iterations, never for None."""

    def __init__(self, size, look, rate=lambda i: 0.01):
        generator = np.random.default_rng(0)
        self.x = tj.tensor(generator.standard_normal((8, size)))
        self.w = tj.tensor(generator.standard_normal((size, 2)), requires_grad=True)
        self.b = tj.zeros(2, dtype=tj.float64, requires_grad=True)
        self.look, self.rate, self.done = look, rate, 0

    def run(self, iterations):
        for _ in range(iterations):
            # On self: a local one would die between two calls, and which results are held is part of a program.
            self.loss = ((self.x @ self.w + self.b).tanh() ** 2).mean()
            self.loss.backward()
            with tj.no_grad():
                for p in (self.w, self.b):
                    p -= self.rate(self.done) * p.grad
                    p.grad = None
            self.done += 1
            if self.look and self.done % self.look == 0:
                self.loss.item()


@pytest.mark.parametrize(("size", "rate"), [(3, lambda i: 0.01), (4, lambda i: 0.1 / (i + 1))], ids=["steady", "changing"])
@pytest.mark.parametrize("look", [1, None])
def test_a_steady_loop_compiles_nothing_after_its_third_iteration(fused, look, size, rate):
    loop = Regression(size + (10 if look else 20), look, rate)
    loop.run(3 if look else 4)  # unless somebody looks, the third iteration's program runs when the fourth begins
    assert compiled_by(lambda: loop.run(40)) == 0


def test_a_loop_looked_at_now_and_then_compiles_nothing_once_it_was_looked_at_three_times(fused):
    loop = Regression(5, 7)
    loop.run(21)
    assert compiled_by(lambda: loop.run(70)) == 0


@pytest.mark.parametrize("look", [1, 7, None])
def test_a_steady_iteration_is_one_program(fused, look):
    loop = Regression(6, look)
    loop.run(21)
    flushed = counters.flushed
    loop.run(70)
    assert counters.flushed - flushed <= 70 * (2 if look == 1 else 1) + 10 + 1


def test_looking_does_not_change_what_is_computed(fused):
    found = []
    for look in (1, 7, None):
        loop = Regression(3, look, lambda i: 0.1 / (i + 1))
        loop.run(30)
        found.append(loop.w.detach().numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
    np.testing.assert_allclose(found[0], found[2], rtol=1e-12)


def test_an_element_of_what_is_there_is_read_without_a_program(fused):
    x = tj.arange(12.0).view(3, 4)
    y = x * 2
    looked = counters.flushed
    assert (float(x[1, 2]), x.t()[2, 1].item(), int(x[:, 1:][1, -1]), bool(x[0, 0]), x.view(-1)[::2][3].item()) == (6, 6, 7, False, 6)
    assert x.expand(2, 3, 4)[1, 2, 3].item() == 11 and x.detach()[2][None, 1:2].item() == 9
    assert counters.flushed == looked
    row = x[1]
    x[1, 2] = 50
    assert row[2].item() == 50 and y[1, 2].item() == 12 and (x.mul_(2), row[2].item())[1] == 100
    z = tj.tensor([1 + 2j, 3])
    assert (z[0].item(), z.conj()[0].item(), z.conj().imag[0].item(), tj.view_as_real(z)[0, 1].item()) == (1 + 2j, 1 - 2j, -2, 2)
    assert tj.tensor([1.5, 2], dtype=tj.bfloat16)[0].item() == 1.5 and tj.tensor([1.0]).view(tj.int32)[0].item() == 0x3F800000


def test_pending_work_of_a_training_loop_nobody_looks_at_is_bounded(fused):
    loop = Regression(3, None)
    loop.run(300)
    assert len(recorder().epoch.values) < 100


@pytest.fixture
def short_programs(monkeypatch):
    """Limits that a test reaches soon: a program of SOFT_LIMIT operations takes long to compile."""
    monkeypatch.setattr(recorder_module, "SOFT_LIMIT", 50)
    monkeypatch.setattr(recorder_module, "HARD_LIMIT", 80)
    with execution_mode("fused"):
        yield


def test_pending_work_without_backward_is_bounded(short_programs):
    x, most = tj.tensor([1.0] * 3), 0
    for _ in range(1000):
        x = (x * 0.5).neg()
        most = max(most, len(recorder().epoch.values))
    assert most <= 52
    assert x.tolist() == [0.0] * 3


def test_pending_work_that_never_comes_back_to_its_first_operation_is_bounded(short_programs):
    x, most = tj.ones(3).exp(), 0
    for _ in range(300):
        x = x.neg()
        most = max(most, len(recorder().epoch.values))
    assert most <= 80
    assert x.tolist() == tj.ones(3).exp().tolist()


def test_arrays_of_a_loop_nobody_looks_at_do_not_pile_up(fused):
    with baseline_tier(False):
        loop = Regression(3, None)
        loop.run(10)
    arrays = live_arrays()
    assert arrays
    loop.run(100)
    assert live_arrays() <= arrays + 5


def test_operations_whose_results_nobody_holds_do_not_run(ran):
    x = tj.tensor([1.0, 2.0])
    x.exp().sin()
    kept = x * 2
    del kept
    (x + 1).tolist()
    assert ran == [["add"]]


def test_what_only_dead_operations_need_does_not_run(ran):
    x = tj.tensor([1.0, 2.0])
    y = x.exp()
    z = y.sin()
    del y, z
    assert (x * 2).tolist() == [2.0, 4.0]
    assert ran == [["mul"]]


def test_a_program_without_results_does_not_run(ran):
    tj.tensor([1.0]).exp()
    recorder().flush("look")
    assert ran == []


def test_no_operation_runs_twice(ran):
    y = tj.ones(1, 5, 1, 7).exp()  # of a shape that no other test has made a settled program of
    (y * 2).tolist()
    (y * 3).tolist()
    y.tolist()
    names = [name for names in ran for name in names]
    assert names.count("exp") == 1 and names.count("mul") == 2


def test_backward_runs_the_forward_pass_once(ran):
    w = tj.tensor([1.0, 2.0], requires_grad=True)
    loss = w.exp().sum()
    loss.item()
    loss.backward()
    w.grad.tolist()
    assert sum(names.count("exp") for names in ran) == 1


def test_a_changing_number_does_not_recompile(fused):
    x = tj.ones(7)

    def use(k):
        return (x * float(k) + k - 0.5 * k).sum().item()

    assert [use(k) for k in range(3)] == [0.0, 10.5, 21.0]
    assert compiled_by(lambda: [use(k) for k in range(3, 20)]) == 0


def test_an_index_in_a_loop_does_not_recompile(fused):
    x = tj.arange(30.0).reshape(10, 3)

    def use(i):
        return x[i].sum().item()

    for i in range(3):
        use(i)
    assert compiled_by(lambda: [use(i) for i in range(3, 10)] + [use(-1)]) == 0


def test_a_written_index_in_a_loop_does_not_recompile(fused):
    x = tj.zeros(10, 2)

    def use(i):
        x[i] = float(i)
        return x.sum().item()

    for i in range(3):
        use(i)
    assert compiled_by(lambda: [use(i) for i in range(3, 10)]) == 0


def test_new_host_data_of_the_same_shape_does_not_recompile(fused):
    def use(i):
        return (tj.tensor(np.full(5, i, np.float32)) * 2).sum().item()

    assert [use(i) for i in range(3)] == [0.0, 10.0, 20.0]
    assert compiled_by(lambda: [use(i) for i in range(3, 10)]) == 0


def test_structures_that_never_repeat_are_not_compiled_whole_for_ever(fused):
    generator = np.random.default_rng(0)
    steps = (lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a.sin(), lambda a, b: a.neg())
    x = tj.ones(11)

    def use():
        made = [x, x]
        for k in generator.integers(len(steps), size=12):
            a, b = (made[i] for i in generator.integers(len(made), size=2))
            made.append(steps[k](a, b))
        made[-1].sum().item()

    for _ in range(15):
        use()
    assert compiled_by(lambda: [use() for _ in range(30)]) == 0


def test_fused_and_eager_execution_agree():
    def work():
        loop = Regression(3, 5, lambda i: 0.1 / (i + 1))
        loop.run(12)
        x = loop.w.detach()
        x[0] *= 3
        return np.concatenate([loop.w.detach().numpy(), loop.w.exp().cumsum(0).detach().numpy(), x.numpy()])

    with execution_mode("fused"):
        fused = work()
    with execution_mode("eager"):
        eager = work()
    np.testing.assert_allclose(fused, eager, rtol=1e-12)


def test_eager_execution_leaves_nothing_pending():
    with execution_mode("eager"):
        x = tj.ones(3)
        y = x.exp()
        assert y._read().array is not None
        assert not recorder().epoch.values


def test_execution_modes_have_names():
    with pytest.raises(ValueError, match="fused"):
        execution_mode("lazy")


@pytest.mark.failing_programs
def test_what_can_be_computed_of_a_program_that_failed_is(fused, monkeypatch):
    x = tj.tensor([1.0, 2.0])
    y = x * 2
    z = y + 1

    def fail(*_):
        raise MemoryError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(program, "_run", fail)
        assert y.tolist() == [2.0, 4.0]
    assert z.tolist() == [3.0, 5.0] and (x + 1).tolist() == [2.0, 3.0]


# ---------------------------------------------------------------------- threads


def in_threads(count, work):
    found, failures = [None] * count, []

    def run(k):
        try:
            found[k] = work(k)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]
    return found


def test_threads_record_separately(fused):
    pending = tj.ones(3) * 2
    before = len(recorder().epoch.values)
    inside = in_threads(2, lambda k: (recorder() is not mine, (tj.ones(3) * k).tolist())) if (mine := recorder()) else None
    assert inside == [(True, [0.0] * 3), (True, [1.0] * 3)]
    assert len(recorder().epoch.values) == before
    assert pending.tolist() == [2.0] * 3


def test_a_tensor_pending_in_one_thread_may_be_read_in_others(fused):
    shared = tj.arange(4.0).exp()
    found = in_threads(4, lambda k: [(shared * k).tolist(), shared.tolist()])
    expected = np.exp(np.arange(4.0))
    for k, (scaled, same) in enumerate(found):
        np.testing.assert_allclose(scaled, expected * k, rtol=1e-6)
        np.testing.assert_allclose(same, expected, rtol=1e-6)
    np.testing.assert_allclose(shared.tolist(), expected, rtol=1e-6)


def test_threads_may_read_what_another_goes_on_recording(fused):
    start = tj.ones(2)
    made, ready = [start], threading.Barrier(3)

    def work(k):
        ready.wait()
        if k == 0:
            for _ in range(200):
                made.append(made[-1] + 1)
            return True
        return all(t.tolist() == [1.0 + i] * 2 for i, t in ((i, made[i]) for i in range(0, len(made), 7)))

    assert in_threads(3, work) == [True] * 3
    assert made[-1].tolist() == [201.0] * 2


def test_results_outlive_the_thread_that_recorded_them(fused):
    (pending,) = in_threads(1, lambda k: tj.arange(3.0) * 2)
    assert pending.tolist() == [0.0, 2.0, 4.0]


# ---------------------------------------------------------------------- import


def python(code):
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


def test_importing_starts_no_backend_and_no_torch():
    # JAX has no public way to ask whether a backend was started.
    python(
        "import sys, torchgrad_jax\n"
        "from jax._src import xla_bridge\n"
        "assert not xla_bridge._backends, 'a backend was started'\n"
        "assert 'torch' not in sys.modules\n"
    )


def test_computing_imports_no_torch():
    python(
        "import sys, torchgrad_jax as tj\n"
        "w = tj.ones(3, requires_grad=True)\n"
        "(w * 2).sum().backward()\n"
        "assert w.grad.tolist() == [2.0] * 3\n"
        "assert 'torch' not in sys.modules\n"
    )


def test_a_tensor_of_host_data_starts_no_backend():
    python(
        "import torchgrad_jax as tj\n"
        "t = tj.tensor([[1.0, 2.0]])\n"
        "assert t.shape == (1, 2)\n"
        "from jax._src import xla_bridge\n"
        "assert not xla_bridge._backends, 'a backend was started'\n"
    )


def test_a_tensor_of_host_data_needs_no_modules():
    python(
        "import sys, torchgrad_jax as tj\n"
        "tj.tensor([[1.0, 2.0]])\n"
        "unneeded = [m for m in ('nn.modules', 'nn.init', 'testing.comparison') if 'torchgrad_jax.' + m in sys.modules]\n"
        "assert not unneeded, unneeded\n"
        "assert {'nn', 'testing', 'cuda'} < set(dir(tj))\n"
        "assert 'Linear' in dir(tj.nn) and tj.nn.modules.Linear is tj.nn.Linear and tj.nn.functional.relu and tj.nn.init.zeros_\n"
    )


@pytest.mark.operators
@pytest.mark.parametrize("first", ["nn", "nn.functional", "nn.init", "nn.modules", "nn.modules.linear", "nn.modules.module", "nn.loss", "testing"])
def test_modules_of_packages_that_are_loaded_late_may_be_imported_first(first):
    python(
        f"import torchgrad_jax.{first}, sys, torchgrad_jax as tj\n"
        f"assert sys.modules['torchgrad_jax.{first}'] is tj.{first}\n"
        "from torchgrad_jax.nn import Linear\n"
        "assert Linear is tj.nn.modules.linear.Linear\n"
    )


def test_execution_is_chosen_by_the_environment():
    code = "import torchgrad_jax as tj; y = tj.ones(2).exp(); assert y._read().array is not None"
    subprocess.run(
        [sys.executable, "-c", code], check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TORCHGRAD_JAX_EXECUTION": "eager"},
    )  # fmt: skip


def test_what_is_compiled_is_kept_for_the_next_process_where_that_is_asked_for(tmp_path):
    code = "import torchgrad_jax as tj; assert (tj.arange(4.0) * 3).sum().item() == 18; print(tj.runtime.counters.compiled_ops)"

    def run(**environment):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TORCHGRAD_JAX_EXECUTION": "eager", **environment}
        return subprocess.run([sys.executable, "-c", code], check=True, env=env, capture_output=True, text=True).stdout

    # The directory is made where it is missing.
    cache = tmp_path / "a" / "b"
    counted = run(TORCHGRAD_JAX_CACHE=str(cache))
    kept = sorted(f.name for f in cache.glob("*-cache"))
    assert len(kept) >= int(counted) > 0
    assert run(TORCHGRAD_JAX_CACHE=str(cache)) == counted and sorted(f.name for f in cache.glob("*-cache")) == kept


# ---------------------------------------------------------------------- traces


def test_loops_are_traced_as_loops(monkeypatch):
    """Operators are traced in place, where JAX would take its loops turn by turn: as long as they have turns."""
    found = []
    monkeypatch.setattr(operation, "trace", lambda *args: found.append(trace(*args)) or found[-1])
    tall = tj.rand(70, 3, dtype=tj.float64)
    for call in (
        lambda: tj.cummax((9 * tall).long(), 0),
        lambda: tj.linalg.householder_product(tall, tj.rand(3, dtype=tj.float64)),
        lambda: tj.linalg.cholesky_ex(tj.eye(71, dtype=tj.complex64)),
        lambda: tj.searchsorted(tj.arange(700.0).bfloat16(), tall.flatten().bfloat16()),
    ):
        found.clear()
        call()
        assert any([contains(closed.jaxpr, name) for closed in found for name in ("scan", "while")]), call
        assert all([len(closed.jaxpr.eqns) < 100 for closed in found])


def test_no_operator_calls_jaxs_loops_itself():
    files = [*Path(tj.__file__).parent.glob("operators/**/*.py")]
    assert len(files) > 30
    for path in files:
        assert path.name == "loops.py" or not re.search(r"lax\.(scan|fori_loop|while_loop|map)\(", path.read_text()), path.name
