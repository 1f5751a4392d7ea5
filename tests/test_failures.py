"""Nothing is lost by what fails: interrupts, want of memory, code that runs in between; a failed check is told by all that depends on it alone."""

from __future__ import annotations

import functools
import gc
import itertools
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext

import numpy as np
import pytest

import torchgrad_jax as tj
from compat_suite.faults.hooks import KINDS, left
from compat_suite.faults.interrupts import Injected
from compat_suite.faults.programs import PROGRAMS
from compat_suite.faults.search import Program, search
from compat_suite.faults.threads import look_at_a_dead_threads_tensors
from torchgrad_jax.runtime import execution_mode, modes, program
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.recording.interrupts import from_outside
from torchgrad_jax.runtime.tiers import costs
from torchgrad_jax.runtime.worker import undisturbed

pytestmark = pytest.mark.operators  # tries its own modes

nan_free = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def fused():
    with execution_mode("fused"):
        yield


# ---------------------------------------------------------------------- interrupts


def test_a_number_that_an_interrupted_operation_left_is_not_taken():
    from torchgrad_jax.runtime.recorder import recorder

    x = tj.tensor([1.0, 2.0])
    tj.zeros(1).tolist()
    a = x * 0.5
    recorder().epoch.numbers["i", 0] = 7  # as `x * 7` leaves it between its number and its result
    b = x + 0.25
    assert (a.tolist(), b.tolist()) == ([0.5, 1.0], [1.25, 2.25])


def test_an_interrupt_right_after_a_program_whose_check_fails_keeps_nothing_of_it(monkeypatch):
    def interrupted(epoch, outs, keep=program.keep):
        if not epoch.results:
            epoch.results = [outs]
            raise KeyboardInterrupt
        keep(epoch, outs)

    def start():
        return tj.tensor([1.0, 2.0, 3.0])[tj.tensor([1, 2]) * 3]

    bad = start()
    monkeypatch.setattr(program, "keep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bad.tolist()
    monkeypatch.undo()
    for _ in range(2):
        with pytest.raises(IndexError, match="index 3 is out of bounds for dimension 0 with size 3"):
            bad.tolist()


def test_writes_after_a_failed_check_are_taken_back_when_it_is_told_and_not_before():
    w = tj.tensor([1.0, 2.0])
    bad = tj.tensor([1.0, 2.0, 3.0])[tj.tensor([1, 2]) * 3]
    w.add_(1)
    other = tj.ones(2) + 1
    assert other.tolist() == [2.0, 2.0]
    with pytest.raises(IndexError):
        w.tolist()
    assert w.tolist() == [1.0, 2.0] and w._version == 0
    with pytest.raises(IndexError):
        bad.tolist()


@pytest.mark.parametrize("warm", [0, 2])
def test_an_interrupt_at_any_line_loses_nothing(warm, interpreted):
    outcomes = list(search(KeyboardInterrupt, (), 53, warm))
    assert len(outcomes) > 8 and outcomes == [None] * len(outcomes)  # lines of compiled modules are none, uncompiled there are more


class TimeLimit(Exception):
    """What a program's own handler of a signal raises."""


class AtALine(Injected):
    """Injects what must not be swallowed: whoever set the limit waits for it."""

    def __call__(self, function, at=0):
        found = super().__call__(function, at)
        assert not self.place or type(found) is TimeLimit, (self.place, found)
        return found


def out_of_time(*_):
    raise TimeLimit


@pytest.fixture
def alarm():
    before = signal.signal(signal.SIGALRM, out_of_time)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("warm", [0, 2])
def test_a_time_limit_is_told_at_any_line_and_loses_nothing(alarm, monkeypatch, warm, interpreted):
    monkeypatch.setattr("compat_suite.faults.search.Injected", AtALine)
    outcomes = list(search(out_of_time, (), 59, warm))
    assert len(outcomes) > 8 and outcomes == [None] * len(outcomes)


@pytest.mark.failing_programs
@pytest.mark.parametrize("name", ["settled", "_run"])
def test_an_exception_after_a_program_has_run_finds_its_results(monkeypatch, name):
    x = tj.arange(4.0)
    y = x * 3 + 1

    before = getattr(program, name)

    def raising(*given):
        before(*given)
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(program, name, raising)
        z = (x + 7) / 2
        assert z.tolist() == [3.5, 4.0, 4.5, 5.0]
    assert y.tolist() == [1.0, 4.0, 7.0, 10.0]


class Handler:
    def __call__(self, *_):
        raise TimeoutError("out of time")

    def method(self, number, frame):
        raise RuntimeError("out of time")


@pytest.mark.parametrize("handler", [out_of_time, Handler(), Handler().method, functools.partial(out_of_time, 1)])
def test_a_time_limit_is_told_where_the_program_runs_that_it_ends(alarm, monkeypatch, handler):
    x = tj.arange(3.0)
    y = x * 2 + 1

    def ended(*given, run=program._run):
        signal.raise_signal(signal.SIGALRM)
        run(*given)

    signal.signal(signal.SIGALRM, handler)
    with monkeypatch.context() as patch, pytest.raises((TimeLimit, TimeoutError, RuntimeError), match="|out of time"):
        patch.setattr(program, "_run", ended)
        y.tolist()
    assert y.tolist() == [1.0, 3.0, 5.0]


def test_what_another_thread_sends_comes_from_outside():
    """It is raised at any line: here at one of the library's."""

    def sent(error, module):
        try:
            exec("raise error", {"__name__": module, "error": error})
        except Exception as found:
            return from_outside(found)

    assert sent(TimeLimit(), "torchgrad_jax.runtime.program") and sent(TimeLimit(), "jax._src.core")
    assert not sent(MemoryError(), "torchgrad_jax.runtime.program") and not sent(TimeLimit(), "users.module")


@pytest.mark.failing_programs
def test_an_error_at_any_line_that_runs_programs_loses_nothing(monkeypatch):
    monkeypatch.setattr(modes, "without_xla", "tests run it")  # what is settled runs no line of these
    outcomes = list(search(MemoryError, ("runtime/program.py",), 1, 2))
    assert len(outcomes) > 40 and outcomes == [None] * len(outcomes)


def test_what_would_be_lost_is_found(monkeypatch):
    """The search itself: an update that is made in two steps is seen half done."""

    def step(m):
        m.add_(1, alpha=1)
        m.add_(1, alpha=1)

    monkeypatch.setitem(PROGRAMS, "halves", "step(m)")
    monkeypatch.setattr("compat_suite.faults.programs.SETUP", "m = torch.zeros(2)")
    tried = Program("halves", 0, {"step": step})
    injected = Injected(KeyboardInterrupt)
    lost = [tried.attempt(injected, 0, at) for at in range(1, tried.count(injected, 0) + 1)]
    assert any(lost) and not all(lost)


@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")  # where Python or JAX drops a signal
def test_training_goes_on_after_real_interrupts():
    """Ctrl-C whenever it comes, weights of a size whose memory is given away: all of them can be read, and have had whole updates."""
    weights = [tj.zeros(1 << 20) for _ in range(3)]

    def train(turns=500):  # Python drops a signal that comes while garbage is collected, where JAX has a callback: nobody waits for it for ever
        for _ in range(turns):
            for w in weights:
                w.add_(1)
            float(weights[0][0])

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng, interrupted = np.random.RandomState(0), 0
    train(60)
    try:
        for _ in range(15):
            timer = threading.Timer(0.01 + 0.03 * rng.rand(), signal.raise_signal, (signal.SIGINT,))
            try:
                timer.start()
                train()
                timer.join()
            except KeyboardInterrupt:
                interrupted += 1
            found = [w.numpy() for w in weights]
            assert all((f == f[0]).all() for f in found)
            counts = [int(f[0]) for f in found]
            assert counts == sorted(counts, reverse=True) and counts[0] - counts[-1] <= 1, counts
        assert interrupted > 7
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_while_the_compiler_is_imported_costs_one_look():
    """What JAX imports when it first lowers cannot be imported again after half of it, and then no program could be compiled any more."""
    source = """
import sys
import torchgrad_jax as torch
from torchgrad_jax.runtime import counters

def interrupt(frame, event, argument):  # where signals come: in the main thread
    if frame.f_code.co_name == "ModuleOp" and "mlir" in frame.f_code.co_filename:
        sys.settrace(None)
        raise KeyboardInterrupt

x = torch.zeros(2)
sys.settrace(interrupt)
try:
    torch.exp(x).tolist()
except KeyboardInterrupt:
    pass
sys.settrace(None)
print(torch.exp(x).tolist(), torch.cos(x).tolist(), counters.failed, counters.compiled + counters.compiled_ops > 0)
"""
    environment = {**__import__("os").environ, "TORCHGRAD_JAX_BASELINE": "off"}
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout == "[1.0, 1.0] [1.0, 1.0] 0 True\n", done.stderr


def test_an_interrupt_when_memory_has_been_given_away_loses_nothing(monkeypatch):
    """JAX comes back from a program by way of Python where it meets a kind of arguments for the first time: in the first call, of NumPy's arrays,
    and in the second, of its own."""
    returned = []

    def interrupt(frame, event, _):  # where signals come: in the main thread
        if event == "return" and counters.compiled > before and frame.f_code.co_qualname == "ExecuteReplicated.__call__":
            returned.append(frame)
            raise KeyboardInterrupt
        return interrupt if frame.f_code.co_qualname == "ExecuteReplicated.__call__" else None

    monkeypatch.setattr(costs, "COMPILE", 1e6)  # it is compiled after some turns
    monkeypatch.setattr(costs, "COMPILE_PRIMITIVE", 1e5)
    w, before = tj.zeros(1 << 20), counters.compiled
    with execution_mode("fused"):
        for _ in range(40):
            sys.settrace(interrupt)
            try:
                for _ in range(24):
                    w.add_(0.125)
                float(w[0])
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)
        assert (w == 120).all() and not returned and counters.compiled > before


def test_what_is_not_to_be_disturbed_is_done_before_an_interrupt_is_raised():
    done = []

    def work(failing):
        signal.raise_signal(signal.SIGINT)
        done.append(failing)
        if failing:
            raise ValueError

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for failing in (False, True) * 50:
            with pytest.raises(KeyboardInterrupt):
                undisturbed(work, failing)
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == [False, True] * 50
    with pytest.raises(ZeroDivisionError):
        undisturbed(lambda: 1 / 0)


# ---------------------------------------------------------------------- code that runs in between


numbers = itertools.count()


class Loud:
    """Garbage that records, looks, and enters tensors when it is collected."""

    def __init__(self, shared, found):
        self.me, self.shared, self.found = self, shared, found

    def __del__(self):
        n = next(numbers)
        made = self.shared * 3.0 + n
        self.found.append((made, n))
        if len(self.found) % 7 == 0:
            made.tolist()


def test_finalizers_that_record_disturb_nothing():
    shared, found, made = tj.arange(4.0), [], []
    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for i in range(60):
            Loud(shared, found)
            a = tj.full((2,), float(i)) + 10
            b = a * 100 - i
            made.append((a, b, tj.stack([a, b]).max(0)))
    finally:
        gc.set_threshold(*threshold)
    assert len(found) > 30
    for i, (a, b, (largest, where)) in enumerate(made):
        assert a.tolist() == [i + 10.0] * 2 and b.tolist() == [100.0 * (i + 10) - i] * 2, i
        assert largest.tolist() == [max(i + 10.0, 100.0 * (i + 10) - i)] * 2 and where.tolist() == [int(i > -11)] * 2
    for t, n in found:
        assert t.tolist() == [3.0 * k + n for k in range(4)]


def interrupted(handle, every):
    """Numbers from 0 on, for a second, while a signal calls `handle` so many seconds after it has returned, again and again."""

    goes_on = True

    def handle_and_go_on(*_):
        handle()
        if goes_on:  # a signal that has come by then is handled once the timer was stopped: set again, it would end the process
            signal.setitimer(signal.ITIMER_REAL, every)

    before = signal.signal(signal.SIGALRM, handle_and_go_on)
    signal.setitimer(signal.ITIMER_REAL, every)
    try:
        until = time.monotonic() + 1.0
        yield from itertools.takewhile(lambda _: time.monotonic() < until, itertools.count())
    finally:
        goes_on = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_signal_handlers_that_record_disturb_nothing():
    found, shared, made = [], tj.arange(4.0), []

    def handle():
        n = next(numbers)
        t = shared * 2.0 - n
        found.append((t, n))
        if len(found) % 3 == 0:
            t.sum().item()

    for i in interrupted(handle, 1e-3):
        x = tj.full((3,), float(i % 50))
        made.append((i % 50, (x * 2 + 1).sin() * 0 + x * 4, x[1:] - 1))
    assert found
    for n, a, b in made:
        assert a.tolist() == [4.0 * n] * 3 and b.tolist() == [n - 1.0] * 2
    for t, n in found:
        assert t.tolist() == [2.0 * k - n for k in range(4)]


@pytest.mark.parametrize("words, again", [("Recursively calling ()", True), ("maximum recursion depth exceeded", False)])
def test_traces_within_those_of_jax(words, again):
    """JAX refuses what is asked for by code that runs while it computes the same, as a signal handler does."""
    from torchgrad_jax.runtime._jax_compat import trace

    calls = []

    def function(x):
        calls.append(x)
        if len(calls) == 1:
            raise RecursionError(words)
        return (x + 1,)

    with nullcontext() if again else pytest.raises(RecursionError, match=words):
        closed = trace(function, "f", [((2, 3), np.dtype(np.float32))])
        assert [a.shape for a in closed.out_avals] == [(2, 3)]
    assert len(calls) == 1 + again


def test_signal_handlers_that_look_while_a_call_is_learnt_disturb_nothing():
    from torchgrad_jax.calling.recalled import recalling

    looked, shared, made = [], tj.arange(4.0), []
    for i in interrupted(lambda: looked.append((shared * 2.0 - 1).sum().item()), 1e-4):
        times = recalling(lambda x, n: x * n)  # nothing is known of it
        made.append((i, times(shared, float(i))))
    assert looked and set(looked) == {8.0}
    for n, y in made:
        assert y.tolist() == [0.0, n, 2.0 * n, 3.0 * n]


# ---------------------------------------------------------------------- want of memory, errors of programs


@pytest.mark.failing_programs
def test_only_what_did_not_fit_is_lost():
    x = tj.ones(4)
    small, huge = x * 2, x.expand(1 << 44, 4) + 1
    after = small + 1
    assert after.tolist() == [3.0] * 4 and small.tolist() == [2.0] * 4
    for _ in range(2):
        with pytest.raises(RuntimeError, match="memory"):
            huge.sum().item()
    del huge
    assert (x + 5).tolist() == [6.0] * 4


@pytest.mark.failing_programs
def test_errors_while_a_program_runs_are_counted(monkeypatch):
    x = tj.ones(3, 1, 1, 1, 1, 3) * 2  # of a shape that no other test has
    before = counters.failed
    with monkeypatch.context() as patched:
        patched.setattr(program, "_run", lambda *_: [][0])
        assert x.flatten().tolist() == [2.0] * 9
    assert counters.failed == before + 1


@pytest.mark.parametrize(
    "expression", ["x == {}", "x + {}", "{} - x", "x * {}", "x.float() * {}", "x.float() < {}", "x.float().clamp({})", "x & {}", "x.add_({})"]
)
@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, 2**70, -(2**63) - 1])
def test_integers_beyond_int64_are_answered_at_the_call(expression, number):
    torch = pytest.importorskip("torch")

    def answer(m):
        x = m.tensor([1, 2, -(2**63)])
        try:
            return eval(expression.format(f"({number})"), {"x": x}).tolist()
        except (RuntimeError, OverflowError) as error:
            return type(error).__name__

    assert answer(tj) == answer(torch)
    assert tj.tensor([1, 2]).add(1).tolist() == [2, 3]


# ---------------------------------------------------------------------- checks of values


def bad_rows(n=4, k=3):
    return tj.arange(n, dtype=tj.float32)[tj.tensor([1, 2, 3]) * k]


def test_a_failed_check_is_told_at_every_look_and_in_every_thread():
    b = bad_rows()
    found = []

    def look():
        try:
            found.append(b.sum().item())
        except IndexError as error:
            found.append(str(error))

    look()
    threads = [threading.Thread(target=look) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    look()
    assert found == ["index 6 is out of bounds for dimension 0 with size 4"] * 4


def test_another_threads_look_at_a_pending_failure_raises_there_too():
    b, found = bad_rows(), []

    def look():
        try:
            b.tolist()
        except IndexError as error:
            found.append(str(error))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    with pytest.raises(IndexError, match="index 6 is out of bounds for dimension 0 with size 4"):
        b.tolist()
    assert found == ["index 6 is out of bounds for dimension 0 with size 4"]


def test_a_look_at_something_else_does_not_raise():
    b = bad_rows()
    c = tj.ones(3) + 2
    assert c.tolist() == [3.0] * 3
    with pytest.raises(IndexError):
        (b * 2).tolist()


def test_of_two_failed_checks_each_is_told_by_what_depends_on_it():
    a, b = bad_rows(4), bad_rows(5, 2)
    good = bad_rows(100)
    assert good.tolist() == [3.0, 6.0, 9.0]
    for _ in range(2):
        with pytest.raises(IndexError, match="index 6 .* size 5"):
            b.tolist()
        with pytest.raises(IndexError, match="index 6 .* size 4"):
            a.tolist()


def test_the_error_tells_the_users_line():
    b = bad_rows()
    with pytest.raises(IndexError) as caught:
        b.tolist()
    assert __file__ in caught.value.__notes__[0]


@nan_free
@pytest.mark.parametrize("look", ["loss", "weight", "counter"])
def test_the_update_of_a_step_whose_check_fails_is_not_seen(look):
    w = tj.tensor([0.7, 0.7, 1.0], requires_grad=True)
    moment, counter = tj.zeros(3), tj.zeros(())
    target = tj.tensor([1])
    for factor in (1, 5):
        counter.add_(0.5)
        loss = tj.nn.functional.nll_loss((w * 1).log_softmax(0)[None], target * factor)
        grad = tj.autograd.grad(loss, [w])[0]
        if factor == 1:
            continue
        with tj.no_grad():
            w.sub_(grad)
            moment.mul_(0.9).add_(grad)
        counter.add_(1)
    with pytest.raises(IndexError, match="Target 5 is out of bounds."):
        {"loss": loss, "weight": w, "counter": counter}[look].tolist()
    assert np.allclose(w.tolist(), [0.7, 0.7, 1.0]) and moment.tolist() == [0.0] * 3 and counter.item() == 1.0
    assert w._version == moment._version == 0
    with pytest.raises(IndexError):
        loss.item()
    loss = tj.nn.functional.nll_loss((w * 1).log_softmax(0)[None], target)
    loss.backward()
    assert np.isfinite(w.grad.tolist()).all()


def test_checks_can_be_made_at_the_call():
    source = """
import torchgrad_jax as torch
w = torch.zeros(3)
try:
    w[torch.tensor([1, 2]) * 3] = 1.0
    raise SystemExit("not raised")
except IndexError as error:
    print(error)
print(w.tolist(), torch.arange(4)[torch.tensor([1]) * 3].tolist())
"""
    environment = {**__import__("os").environ, "TORCHGRAD_JAX_CHECK": "now"}
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout.splitlines() == ["index 3 is out of bounds for dimension 0 with size 3", "[0.0, 0.0, 0.0] [3]"], done.stderr


def test_eager_execution_makes_checks_at_the_call():
    with execution_mode("eager"), pytest.raises(IndexError, match="index 6 is out of bounds"):
        bad_rows()


# ---------------------------------------------------------------------- hooks, threads


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_in_a_hook_leaves_what_it_leaves_in_pytorch(kind):
    torch = pytest.importorskip("torch")
    for at in (1, 2):
        assert left(tj, kind, at) == left(torch, kind, at)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_a_dead_thread_recorded_can_be_looked_at():
    assert all(look_at_a_dead_threads_tensors(n) for n in range(5))
