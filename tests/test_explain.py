"""`torchgrad_jax.explain` names what costs time: the planted fault's kind, its line, and how often it was."""

import inspect
import json
import os
import pickle
import subprocess
import sys
import threading
import warnings

import jax
import numpy as np
import pytest
from processes import in_a_process_of_its_own

import torchgrad_jax as torch
from torchgrad_jax.declaration.operator import forget_signatures
from torchgrad_jax.runtime import baseline_tier, counters, execution_mode, program
from torchgrad_jax.runtime.native import blas
from torchgrad_jax.runtime.observing import observer
from torchgrad_jax.runtime.recorder import recorder, roots

pytestmark = pytest.mark.operators


@pytest.fixture(autouse=True)
def nothing_known():
    """What was recorded by other tests is forgotten: whether a program is new must not depend on them."""
    with execution_mode("fused"), baseline_tier(True):
        forget_everything()
        yield
    assert observer.active == ()


def forget_everything():
    forget_signatures()
    rec = recorder()
    rec.rolling, rec.turned, rec.recent = False, 0, ()


def line_of(function, mark):
    """Where the comment `# mark` stands in a function, as `file:line`."""
    lines, first = inspect.getsourcelines(function)
    (found,) = [first + i for i, line in enumerate(lines) if line.rstrip().endswith(f"# {mark}")]
    return f"{inspect.getsourcefile(function)}:{found}"


def kinds(report):
    return [p.new.kind for p in report.programs if p.new is not None]


# ---------------------------------------------------------------------- hidden transfers


def training_loop(turns):
    w = torch.ones(4, 3, requires_grad=True)
    x = torch.ones(5, 4)
    total = 0.0
    for _ in range(turns):
        loss = torch.tanh(x @ w).sum()
        loss.backward()
        total += loss.item()  # the transfer
        with torch.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
    return total


def test_a_hidden_transfer_in_a_loop_is_named_with_its_line():
    with torch.explain() as report:
        training_loop(10)
    (look,) = [f for f in report.findings if f.kind == "look"]
    assert (look.line, look.times) == (line_of(training_loop, "the transfer"), 10)
    assert look.text == "item() ran what was pending 10 times"
    (flush,) = [f for f in report.flushes if f.reason == "look"]
    assert (flush.asked, flush.function, flush.times) == ("item()", "training_loop", 10)
    shown = str(report)
    assert "10 x  look: item()" in shown and "total += loss.item()  # the transfer" in shown


def look_print(t):
    print(t)


def look_bool(t):
    if t > 0:
        return 1


def look_numpy(t):
    t.numpy()


def look_asarray(t):
    np.asarray(t)


def look_float(t):
    float(t)


def look_tolist(t):
    t.tolist()


def look_format(t):
    return f"{t:.2f}"


def look_equal(t):
    torch.equal(t, t + 1)


def look_mask(t):
    t.expand(3)[t.expand(3) > 0]


def look_pickle(t):
    pickle.dumps(t)


def look_from_jax(t):
    jax.numpy.sin(t)


def look_multinomial(t):
    torch.multinomial(t.expand(3), 1)


@pytest.mark.parametrize(("function", "asked"), [
    (look_print, "print"), (look_bool, "bool (if, while, and, or, not)"), (look_numpy, "numpy()"), (look_asarray, "numpy.asarray"),
    (look_float, "float()"), (look_tolist, "tolist()"), (look_format, "print"), (look_equal, "equal()"), (look_mask, "indexing"),
    (look_pickle, "pickling"), (look_from_jax, "handing it to JAX"), (look_multinomial, "multinomial()"),
])  # fmt: skip
def test_each_kind_of_look_is_named(function, asked, capsys):
    x = torch.ones(7)
    with torch.explain() as report:
        for _ in range(3):
            function(x.sum())
    assert [(f.reason, f.asked, f.function, f.times) for f in report.flushes] == [("look", asked, function.__name__, 3)]
    assert [(f.kind, f.times) for f in report.findings] == [("look", 3)]


def test_a_loop_that_nobody_looks_at_has_no_finding():
    w = torch.ones(4, 3, requires_grad=True)
    with torch.explain() as report:
        for _ in range(8):
            w.grad = None
            torch.tanh(w).sum().backward()  # the turn
    assert report.findings == []
    assert [(f.reason, f.asked, f.line) for f in report.flushes] == [
        ("turn", "", line_of(test_a_loop_that_nobody_looks_at_has_no_finding, "the turn"))
    ]
    assert report.data.pending > 0 and "recorded and not run yet" in str(report)


def test_a_look_now_and_then_is_no_finding():
    w = torch.ones(4, 3, requires_grad=True)
    with torch.explain() as report:
        for i in range(90):
            w.grad = None
            loss = torch.tanh(w).sum()
            loss.backward()
            if i % 30 == 0:
                loss.item()
    assert report.findings == []
    assert [f.times for f in report.flushes if f.reason == "look"] == [3]


def test_waiting_for_a_program_in_the_other_thread_is_a_look_too(monkeypatch):
    monkeypatch.setattr(program, "LONG", 0.0)
    w = torch.ones(4, 3, requires_grad=True)
    before = None
    with baseline_tier(False), torch.explain() as report:
        for _ in range(8):
            loss = torch.tanh(w * 0.5).sum()
            loss.backward()
            if before is not None:
                before.item()  # the wait
            before = loss
            w.grad = None
    waits = [f for f in report.flushes if f.reason == "wait"]
    assert [(f.asked, f.line) for f in waits] == [("item()", line_of(test_waiting_for_a_program_in_the_other_thread_is_a_look_too, "the wait"))]
    assert [f.text for f in report.findings if f.kind == "look"] == [f"item() waited for a program that was under way {waits[0].times} times"]


# ---------------------------------------------------------------------- why a program was new


def of_many_sizes(sizes):
    for n in sizes:
        x = torch.as_tensor(np.ones((n, 4), np.float32))
        y = x * 2  # the shape
        y.sum().exp().tolist()


def test_a_shape_dependent_recompilation_is_named_by_its_shapes_and_its_line():
    with torch.explain() as report:
        of_many_sizes([2, 3, 5, 7, 3])
    (found,) = [f for f in report.findings if f.kind == "new programs"]
    assert (found.line, found.times) == (line_of(of_many_sizes, "the shape"), 3)
    assert found.text == (
        "3 programs are new because of another shape: the operand self of mul (operation 0) was float32[2, 4] and is now float32[3, 4]; "
        "in all float32[2, 4], float32[3, 4], float32[5, 4], float32[7, 4]"
    )
    assert kinds(report) == ["first", "shape", "shape", "shape"]
    assert [p.runs for p in report.programs] == [{"interpreted": 1}, {"interpreted": 2}, {"interpreted": 1}, {"interpreted": 1}]
    assert [p.inputs for p in report.programs] == [["float32[2, 4]"], ["float32[3, 4]"], ["float32[5, 4]"], ["float32[7, 4]"]]
    assert "y = x * 2  # the shape" in str(report)


def test_how_many_of_the_new_programs_were_compiled():
    with baseline_tier(False), torch.explain() as report:
        for _ in range(2):
            of_many_sizes([2, 3, 5])
    (found,) = [f for f in report.findings if f.kind == "new programs"]
    assert found.text.endswith("in all float32[2, 4], float32[3, 4], float32[5, 4]; 2 of them were compiled")
    assert [p.compiled for p in report.programs] == [1, 1, 1]


def test_the_size_of_a_new_tensor_is_a_shape():
    with torch.explain() as report:
        for n in (2, 3):
            torch.ones(n, 4).exp().tolist()
    assert report.programs[1].new.text == "the argument size of constant (operation 0) was (2, 4) and is now (3, 4)"
    assert report.programs[1].new.kind == "shape"


def alternating(turns):
    x = torch.as_tensor(np.ones((3, 5)))
    for i in range(turns):
        x.sum(i % 2).exp().tolist()  # the argument


def test_a_static_argument_that_alternates_is_two_programs():
    with torch.explain() as report:
        alternating(6)
    assert [p.runs["interpreted"] for p in report.programs] == [3, 3]
    (new,) = [p.new for p in report.programs if p.new.kind == "static argument"]
    assert (new.was, new.now, new.line) == ("(0,)", "(1,)", line_of(alternating, "the argument"))


def x_of(n=4):
    return torch.as_tensor(np.linspace(0.1, 1, n, dtype=np.float32))


def test_a_dtype():
    a, b = torch.as_tensor(np.ones(4, np.float32)), torch.as_tensor(np.ones(4))
    with torch.explain() as report:
        for x in (a, b):
            (x * x).exp().tolist()
    assert kinds(report) == ["first", "dtype"]
    assert report.programs[1].new.text == "the operand self of mul (operation 0) was float32[4] and is now float64[4]"


def test_the_type_of_a_number():
    x = x_of()
    with torch.explain() as report:
        for k in (2, 2.5, 3, 3.5):
            (x * k).exp().tolist()
    assert kinds(report) == ["first", "number"]
    assert report.programs[1].new.text == "the operand other of mul (operation 0) was int and is now float"


def test_the_order_of_operations():
    x = x_of()
    with torch.explain() as report:
        for i in range(4):
            (x.exp().sin().neg() if i % 2 else x.sin().exp().neg()).tolist()
    assert kinds(report) == ["first", "order"]
    assert report.programs[1].new.text == "operation 0 was sin and is now exp; it is the same operations"


def test_other_operations():
    x = x_of()
    with torch.explain() as report:
        x.exp().sin().neg().tolist()
        x.exp().cos().neg().tolist()
        x.exp().cos().neg().abs().tolist()
    assert kinds(report) == ["first", "operations", "operations"]
    assert report.programs[1].new.text == "operation 1 was sin and is now cos"
    assert report.programs[2].new.text == "it was 3 recorded operations and is now 4, with abs; they differ from operation 3 on"
    assert [p.new.relative for p in report.programs] == [0, 1, 2]


def test_other_operands():
    x = x_of()
    with torch.explain() as report:
        a, b = x.exp(), x.sin()
        (a - b).tolist()
        a, b = x.exp(), x.sin()
        (b - a).tolist()
    assert kinds(report) == ["first", "operands"]
    assert report.programs[1].new.text == "sub (operation 2) has other operands"


def test_what_is_held():
    x = x_of()
    with torch.explain() as report:
        x.exp().sin().tolist()
        kept = x.exp()
        kept.sin().tolist()
    assert kinds(report) == ["first", "held results"]
    assert report.programs[1].new.text == "the result of exp (operation 0) was held by nobody when the program ran, and is now still held"
    assert [p.results for p in report.programs] == [["float32[4]"], ["float32[4]", "float32[4]"]]


def test_a_program_is_compared_with_those_from_before_too():
    x = x_of(11)
    x.exp().sin().neg().tolist()
    with torch.explain() as report:
        x.exp().sin().neg().tolist()
        x_of(12).exp().sin().neg().tolist()
    assert report.programs[0].new is None
    assert (report.programs[1].new.kind, report.programs[1].new.relative) == ("shape", 1)
    with torch.explain() as report:
        x_of(13).exp().sin().neg().tolist()
    assert (report.programs[0].new.kind, report.programs[0].new.relative) == ("shape", 0)
    assert "another shape than one from before" in str(report)


def test_a_backward_pass_that_comes_back_is_recorded_whole():
    w = torch.ones(6, requires_grad=True)
    with torch.explain() as report:
        for _ in range(4):
            w.grad = None
            (w.tanh() * 2).sum().backward()
            w.grad.tolist()
    assert kinds(report)[:2] == ["first", "backward"]
    assert report.data.recorded["backward"] == 3


# ---------------------------------------------------------------------- how programs are run


@in_a_process_of_its_own
def test_what_is_interpreted_and_why():
    x, big = x_of(), torch.as_tensor(np.ones((300, 300), np.int64))  # whole numbers are NumPy's
    with torch.explain() as report:
        (x * 2).exp().tolist()
        (big * 3 + big).sum().item()
        torch.special.i0e(torch.ones(1500, 1500) * 2).sum().item()
    small, large, without = report.programs
    assert [p.tier for p in report.programs] == ["interpreted"] * 3
    assert "and a call of a compiled program would take" in small.because
    assert large.because.startswith("compiling it has to pay first: interpreting it has cost")
    assert without.by_xla == {"special_i0e": "interpreting it takes longer than compiling it, by estimate"}
    assert [one.operator for one in report.data.alone] == ["special_i0e"] and report.data.alone[0].seconds > 0
    assert [f.kind for f in report.findings] == ["by xla"]


@pytest.mark.skipif(not blas.multiplies(), reason="the core in pure Python, or a NumPy whose BLAS is not found")
def test_what_multiplies_alone_gains_nothing_by_being_compiled():
    big = torch.as_tensor(np.ones((300, 300), np.float32))
    with torch.explain() as report:
        (big @ big @ big).tolist()
    (found,) = report.programs
    assert found.tier == "interpreted" and "and a call of a compiled program would take" in found.because


def test_an_operation_that_has_no_form_for_numpy():
    function = torch.from_jax(lambda x: jax.lax.approx_max_k(x, 2)[0])
    x = x_of()
    with torch.explain() as report:
        function(x * 2).tolist()
    assert list(report.programs[0].by_xla.values()) == ["something in it has no form for NumPy"]


def test_what_is_compiled_and_how_often_it_ran():
    x = x_of()
    with baseline_tier(False), torch.explain() as report:
        for _ in range(5):
            (x * 2).exp().tolist()
    (found,) = report.programs
    assert (found.tier, found.compiled, found.runs) == ("compiled", 1, {"stepped": 1, "compiled": 4})
    assert found.compile_seconds > 0 and found.run_seconds > 0
    assert report.data.times["compiling"] > 0 and sum(report.data.times.values()) == pytest.approx(report.data.seconds)


def test_without_the_interpreter():
    x = x_of()
    with baseline_tier(False), torch.explain() as report:
        (x * 2).exp().tolist()
    assert report.programs[0].because.startswith("none of its operations can be interpreted (the interpreter is switched off)")
    assert report.programs[0].by_xla == {}


def test_eager_execution():
    x = x_of()
    with execution_mode("eager"), torch.explain() as report:
        (x * 2).exp()
    assert [(f.reason, f.times) for f in report.flushes] == [("eager", 2)]
    assert {p.because for p in report.programs} == {"eager execution: XLA runs each operation by itself"}


def test_inside_gradcheck():
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    with torch.explain() as report:
        torch.autograd.gradcheck(lambda x: x.exp().sin(), (x,))
    assert any(p.because.startswith("inside gradcheck") for p in report.programs)


# ---------------------------------------------------------------------- functions under jit


def test_why_a_function_under_jit_was_traced_again():
    scale = 2.0

    @torch.jit
    def f(x, k):
        return (x * k).sum() * scale

    x = torch.ones(5)
    with torch.explain() as report:
        f(x, 1), f(x, 1)
        f(x, 2)  # the number
        f(torch.ones(6), 2)
        scale = 3.0
        f(x, 1)
    (found,) = report.jitted
    assert found.name.endswith("f") and len(found.programs) == 4
    again = {e["event"]: e["line"] for e in found.events if e["event"].startswith("traced ")}
    line = line_of(test_why_a_function_under_jit_was_traced_again, "the number")
    assert again["traced for other arguments: an argument was 1 and is 2"] == line
    assert "traced for other arguments: a tensor among the arguments was float32[5] and is float32[6]" in again
    assert "traced again: scale was 2.0 and is 3.0" in again
    assert [p.runs for p in found.programs].count(1) == 1 and [p.compiled for p in found.programs].count(True) == 1
    assert found.programs[-1].operators == {"mul": 2, "sum": 1} or found.programs[0].operators == {"mul": 2, "sum": 1}
    (finding,) = [f for f in report.findings if f.kind == "jit"]
    assert finding.times == 3 and "scale was 2.0 and is 3.0" in finding.text


def test_why_a_function_under_jit_is_not_compiled():
    @torch.jit
    def f(x):
        return x.sum().item()  # the look

    with torch.explain() as report, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f(torch.ones(5))
    (found,) = [f for f in report.findings if f.kind == "jit"]
    assert "is not compiled: the value of a tensor was asked for" in found.text
    assert line_of(test_why_a_function_under_jit_is_not_compiled, "the look") in found.text


def test_a_torch_compile_that_switches_grad_mode():
    f = torch.compile(lambda x: (x * 2).sum())
    x = torch.ones(5)
    with torch.explain() as report:
        f(x)
        with torch.no_grad():
            f(x)
    assert any(e["event"] == "traced for other arguments: grad mode is not what it was" for e in report.jitted[0].events)


# ---------------------------------------------------------------------- what an explanation is


def test_other_threads_are_included_and_named():
    def work():
        (torch.ones(3) * 3).sum().item()

    with torch.explain() as report:
        thread = threading.Thread(target=work, name="loader")
        thread.start()
        thread.join()
        (torch.ones(4) * 3).tolist()
    assert {f.thread for f in report.flushes} == {"loader", threading.current_thread().name}
    assert "look: item(), in thread loader" in str(report) and "in other threads:" in str(report)
    assert "running" in report.data.elsewhere


def test_explanations_may_be_nested_and_overlap():
    x = x_of()
    first, second = torch.explain(), torch.explain()
    with torch.explain() as outer:
        first.__enter__()
        x.exp().tolist()
        second.__enter__()
        x.sin().tolist()
        first.__exit__(None, None, None)
        x.cos().tolist()
        second.__exit__(None, None, None)
    assert [[next(iter(p.operators)) for p in r.programs] for r in (outer, first, second)] == [["exp", "sin", "cos"], ["exp", "sin"], ["sin", "cos"]]


def test_an_exception_passes_and_what_was_gathered_stays():
    report = torch.explain()
    with pytest.raises(ZeroDivisionError), report:
        x_of().exp().tolist()
        1 / 0  # noqa: B018
    assert len(report.programs) == 1 and "exp" in str(report)


def test_it_may_be_asked_within_its_block():
    with torch.explain() as report:
        assert report.flushes == []
        x_of().exp().tolist()
        assert len(report.programs) == 1 and "exp" in str(report)


def test_it_is_of_one_block():
    report = torch.explain()
    with pytest.raises(RuntimeError, match="nothing was watched yet"):
        str(report)
    with report, pytest.raises(RuntimeError, match="an explanation is of one block"), report:
        pass
    with pytest.raises(RuntimeError, match="an explanation is of one block"):
        report.__enter__()


def test_as_data_it_is_what_json_holds():
    with torch.explain() as report:
        training_loop(3)
        of_many_sizes([2, 3, 4])
    data = report.as_dict()
    assert json.loads(json.dumps(data)) == data
    assert [p["number"] for p in data["programs"]] == list(range(1, len(data["programs"]) + 1))
    assert {"findings", "flushes", "programs", "jitted", "recorded", "times", "seconds"} <= set(data)


def test_what_runs_does_not_depend_on_being_explained():
    """An explanation must hold no Value, or more results would be wanted, and must not run anything itself."""

    def did(call):
        before = counters.snapshot()
        call()
        recorder().flush("mode")
        known = [(list(p.slots), p.seen) for p in programs_of(list(roots.values()))]
        forget_everything()
        # Who watches is told on the long way.
        return {name: value - before[name] for name, value in counters.snapshot().items() if name != "settled"}, known

    def explained():
        with torch.explain():
            training_loop(6)

    assert did(lambda: training_loop(6)) == did(explained)


def programs_of(stack):
    found = []
    while stack:
        step = stack.pop()
        stack += step.following()
        found += (step.programs or {}).values()
    return found


def test_a_report_of_the_whole_process():
    @torch.jit
    def doubled(x):
        return x * 2

    x = x_of(17)
    for _ in range(3):
        x.exp().sin().tolist()
    doubled(x), doubled(x)
    report = torch.explain.report()
    (found,) = [p for p in report.data.programs if p.operators == {"exp": 1, "sin": 1}]
    assert (found.runs, found.inputs, found.tier) == ({"interpreted": 3}, ["float32[17]"], "interpreted")
    assert [len(j.programs) for j in report.data.jitted if j.name.endswith("doubled")] == [1]
    assert "look" in str(report) and json.dumps(report.as_dict())


def test_run_explain(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import sys, torch\nx = torch.ones(3)\nfor n in range(4):\n    (x * n).sum().item()\nprint('done')\nsys.exit(3)\n")
    command = [sys.executable, "-m", "torchgrad_jax", "run", "--explain", str(script)]
    fused = {**os.environ, "TORCHGRAD_JAX_EXECUTION": "fused"}
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=fused)
    assert (result.returncode, result.stdout) == (3, "done\n"), result.stderr
    assert "item() ran what was pending 4 times\n     at train.py:4  (x * n).sum().item()" in result.stderr


def test_a_loop_of_changing_length_is_interpreted_with_its_loop_until_compiling_one_program_for_all_pays():
    w = torch.as_tensor(np.full((20, 20), 0.01, np.float32))
    with torch.explain() as report:
        for length in range(30, 60):
            h = w
            for _ in range(length):
                h = torch.tanh(h @ w)
            h.sum().item()
    assert {p.tier for p in report.programs} == {"interpreted"} and sum([p.compiled for p in report.programs]) == 0
    assert "a turn is the same for all, until compiling one program for all pays" in report.programs[-1].because


def test_a_loop_of_changing_length_over_large_arrays_is_one_compiled_program():
    x = torch.as_tensor(np.random.RandomState(0).rand(500, 500).astype(np.float32))
    with torch.explain() as report:
        for length in range(30, 60):
            h = x
            for _ in range(length):
                h = (h * 1.01 + 0.1) * (h - 0.3) + (h * h) * 0.01 + h.roll(1, 0) * 0.1
            h.sum().item()
    rolled = [p for p in report.programs if p.tier == "rolled"]
    assert rolled and rolled[-1].because == "what repeats in it is a loop: one compiled program serves every length"
    assert sum([p.compiled for p in report.programs]) < 5 and "x compiled with loops" in str(report)
