"""What a profile shows of a program: names, tree, sequence numbers, memory, stacks, programs."""

import threading
import time

import numpy as np
import pytest
from profiles import forward_and_backward, named, profiled, tree, without_compiling
from torchgrad_jax.autograd.profiler import profile, record_function

import torchgrad_jax as tj
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.recording.epoch import running

pytestmark = pytest.mark.operators


def test_memory_is_what_was_made_and_freed():
    a = tj.ones(4, 5)

    def program():
        with record_function("made"):
            b = a.exp()
        with record_function("a view"):
            c = b.view(20)
        with record_function("kept by a view"):
            del b
        del c

    p = profiled(program, profile_memory=True)
    events = {e.name: e for e in p.function_events}
    assert [events[n].cpu_memory_usage for n in ("made", "a view", "kept by a view")] == [80, 0, 0]
    assert events["aten::exp"].self_cpu_memory_usage == 80 and events["made"].self_cpu_memory_usage == 0
    assert [e.cpu_memory_usage for e in p.function_events if e.name == "[memory]"] == [-80]
    assert "80 B" in p.table() and "CPU Mem" in p.key_averages().table()


def test_the_tree_of_a_step():
    p = profiled(forward_and_backward(tj))
    names = [name for name, _ in tree(p.function_events, ("xla::compile",))]
    assert names == [
        "aten::linear", "aten::relu", "aten::mul", "aten::sum", "aten::ones",
        "autograd::engine::evaluate_function: SumBackward0", "autograd::engine::evaluate_function: MulBackward0",
        "autograd::engine::evaluate_function: ReluBackward0", "autograd::engine::evaluate_function: AddmmBackward0",
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "autograd::engine::evaluate_function: TBackward0",
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
    ]  # fmt: skip
    linear = p.function_events[0]
    assert without_compiling(linear.cpu_children) == ["aten::t", "aten::addmm"] and all(c.cpu_parent is linear for c in linear.cpu_children)


def test_times_are_nested_and_add_up():
    p = profiled(forward_and_backward(tj))
    for e in p.function_events:
        assert e.time_range.start <= e.time_range.end and e.self_cpu_time_total >= -1e-6
        if e.cpu_parent is not None:
            outer = e.cpu_parent.time_range
            assert outer.start <= e.time_range.start and e.time_range.end <= outer.end
    assert p.self_cpu_time_total == pytest.approx(sum(e.cpu_time_total for e in p.function_events if e.cpu_parent is None))
    assert p.key_averages().self_cpu_time_total == pytest.approx(p.self_cpu_time_total)
    assert p.total_average().count == len(p.function_events)


def test_an_operation_is_waited_for():
    """What takes long takes long where it is called, not where it is looked at."""
    a = tj.ones(200, 200)
    with profile() as p:
        b = a @ a
        assert b._value.array.is_ready()
        b.sum().item()
    (look,) = named(p.function_events, "aten::item")
    assert look.cpu_children == []


def test_what_is_compiled_is_told_apart():
    x = tj.ones(7, 11, 3)
    p = profiled(lambda: (x.atan(), x.atan()))
    first, second = named(p.function_events, "aten::atan")
    assert [c.name for c in first.cpu_children] == ["xla::compile"] and second.cpu_children == []


def test_forward_and_backward_have_one_sequence_number():
    p = profiled(forward_and_backward(tj))
    for op, node in (
        ("aten::mul", "MulBackward0"),
        ("aten::relu", "ReluBackward0"),
        ("aten::addmm", "AddmmBackward0"),
        ("aten::sum", "SumBackward0"),
    ):
        (forward,), (backward,) = named(p.function_events, op), named(p.function_events, node)
        assert forward.sequence_nr == backward.sequence_nr >= 0
        assert backward.fwd_thread == forward.thread and not forward.fwd_thread


def test_results_and_gradients_are_those_without_a_profile():
    def gradients():
        tj.manual_seed(3)
        lin = tj.nn.Linear(4, 3)
        lin(tj.ones(2, 4)).tanh().sum().backward()
        return [p.grad.numpy() for p in lin.parameters()]

    plain = gradients()
    with profile(record_shapes=True, profile_memory=True, with_stack=True, with_modules=True, with_flops=True):
        seen = gradients()
    assert all(np.allclose(a, b, rtol=1e-6) for a, b in zip(plain, seen, strict=True))


def test_hooks_retained_graphs_and_second_derivatives():
    def program(m=tj):
        x = m.tensor([1.0, 2.0, 3.0], requires_grad=True)
        seen = []
        x.register_hook(lambda g: seen.append(g.tolist()))
        y = (x**3).sum()
        (g,) = m.autograd.grad(y, x, create_graph=True)
        g.sum().backward(retain_graph=True)
        g.sum().backward()
        return x.grad.tolist(), seen

    plain = program()
    with profile() as p:
        assert program() == plain
    assert named(p.function_events, "PowBackward0") and named(p.function_events, "torch::autograd::AccumulateGrad")


def test_transforms_and_duals():
    def program():
        f = lambda x: (x.sin() * x).sum()  # noqa: E731
        with tj.autograd.forward_ad.dual_level():
            dual = tj.autograd.forward_ad.make_dual(tj.ones(2), tj.ones(2))
            t = tj.autograd.forward_ad.unpack_dual(dual.sin()).tangent
        return tj.func.grad(f)(tj.ones(3)).tolist(), tj.func.vmap(f)(tj.ones(2, 3)).tolist(), t.tolist()

    plain = program()
    with profile() as p:
        assert np.allclose(np.concatenate([np.ravel(v) for v in program()]), np.concatenate([np.ravel(v) for v in plain]))
    assert named(p.function_events, "aten::sin")


def test_errors_end_events_and_pass():
    with pytest.raises(RuntimeError, match="size mismatch|shapes|match"), profile() as p:
        tj.ones(2) + tj.ones(2)
        with record_function("fails"):
            tj.ones(2, 3) @ tj.ones(2, 3)
    assert named(p.function_events, "fails")[0].cpu_time_total > 0
    assert current_state() == (None, 0, "fused" if modes.execution == "fused" else "eager")
    assert (tj.ones(2) + 1).tolist() == [2, 2]


def current_state():
    rec = per_thread.recorder
    return rec.flags.watch, rec.rare, modes.execution


def test_nothing_stays_when_it_is_over():
    before, run = current_state(), running.run_pending
    profiled(forward_and_backward(tj), with_modules=True)
    assert current_state() == before and running.run_pending is run
    assert tj.autograd._profiler_enabled() is False
    with profile():
        assert tj.autograd._profiler_enabled() is True


def test_a_profile_within_a_profile_has_the_events_meanwhile():
    x = tj.ones(2)
    with profile() as outer:
        x.sin()
        with profile() as inner:
            x.cos()
        x.tan()
    assert without_compiling(inner.function_events) == ["aten::cos"]
    assert without_compiling(outer.function_events) == ["aten::sin", "aten::tan"]


def test_a_profile_sees_its_own_thread():
    begun, over = threading.Event(), threading.Event()

    def other():
        begun.wait(20)
        tj.ones(3).exp().tolist()
        over.set()

    thread = threading.Thread(target=other)
    thread.start()
    with profile() as p:
        tj.ones(3).log()
        begun.set()
        assert over.wait(20)
    thread.join()
    assert named(p.function_events, "aten::log") and not named(p.function_events, "aten::exp")


def test_stacks_are_the_users_lines():
    def inner(x):
        return x.sin()

    x = tj.ones(2, requires_grad=True)
    with profile(with_stack=True) as p:
        y = inner(x).sum()
        y.backward()
    (sin,), (backward,) = named(p.function_events, "aten::sin"), named(p.function_events, "SinBackward0")
    assert [line.rpartition("/")[2].partition("(")[0] for line in sin.stack[:2]] == ["test_profiler.py"] * 2
    assert sin.stack[0].endswith("): inner") and sin.stack[1].endswith("): test_stacks_are_the_users_lines")
    assert backward.stack == sin.stack  # the lines of the forward operation
    assert {tuple(e.stack) for e in p.key_averages(group_by_stack_n=1) if e.key == "aten::sin"} == {(sin.stack[0],)}


def test_stacks_can_be_written(tmp_path):
    x = tj.ones(300, 300)
    with profile(with_stack=True) as p:
        x @ x
    p.export_stacks(tmp_path / "stacks.txt", "self_cpu_time_total")
    for line in (tmp_path / "stacks.txt").read_text().splitlines():
        frames, _, weight = line.rpartition(" ")
        assert int(weight) > 0 and frames.split(";")[-1].endswith("test_stacks_can_be_written")
    with pytest.raises(ValueError, match="metric should be one of"):
        p.export_stacks(tmp_path / "stacks.txt", "seconds")
    with pytest.raises(AssertionError, match=r"export_stacks\(\) requires with_stack=True"):
        profiled(lambda: x).export_stacks(tmp_path / "stacks.txt")


def test_calls_of_modules():
    net = tj.nn.Sequential(tj.nn.Linear(4, 3), tj.nn.ReLU(), tj.nn.Linear(3, 1))
    p = profiled(lambda: net(tj.ones(2, 4)), with_modules=True)
    (outer,) = [e for e in p.function_events if e.name.startswith("nn.Module: Sequential_")]
    within = [c.name.rpartition("_")[0] for c in outer.cpu_children]
    assert within == ["nn.Module: Linear", "nn.Module: ReLU", "nn.Module: Linear"] and outer.is_python_function
    assert len({c.name for c in outer.cpu_children}) == 3  # a module keeps its number
    assert "aten::linear" in [c.name for c in outer.cpu_children[0].cpu_children]
    assert not any(net._forward_hooks.values()) and not profiled(lambda: net(tj.ones(2, 4))).function_events[1].name.startswith("nn.")


def test_a_module_that_raises_is_over():
    class Broken(tj.nn.Module):
        def forward(self, x):
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"), profile(with_modules=True) as p:
        Broken()(tj.ones(2))
    (event,) = [e for e in p.function_events if e.name.startswith("nn.Module: Broken")]
    assert event.time_range.end <= (p._collector.ended - p._collector.began) / 1e3


def test_production_is_shown_as_programs():
    w = tj.ones(4, 4, requires_grad=True)

    def step():
        with record_function("forward"):
            loss = (tj.ones(2, 4) @ w).tanh().sum()
        loss.backward()
        with tj.no_grad():
            w.sub_(0.1 * w.grad)
            w.grad = None
        return loss.item()

    step()
    with tj.runtime.execution_mode("fused"), profile(fused=True) as p:
        for _ in range(3):
            step()
    programs = [e for e in p.function_events if e.name.startswith("program (")]
    assert len(programs) == 3 and {e.name for e in programs} <= {"program (interpreted)", "program (compiled)", "program (stepped)"}
    for e in programs:
        assert e.reason == "look" and e.records.index("aten::mm") < e.records.index("aten::tanh") < e.records.index("TanhBackward0")
    assert len(named(p.function_events, "forward")) == 3
    assert not named(p.function_events, "aten::mm")  # no operation runs by itself


def test_functions_under_jit_are_programs():
    compiled = tj.compile(lambda x: (x * 2).sin().sum())
    x = tj.ones(3)
    with tj.runtime.execution_mode("fused"):
        plain = [compiled(x).item() for _ in range(3)]
        with profile(fused=True) as p:
            assert compiled(x).item() == plain[-1]
        (event,) = [e for e in p.function_events if e.name == "program (jit)"]
        assert event.records == ["aten::mul", "aten::sin", "aten::sum"] and event.reason == "call"
        with profile() as p:
            assert compiled(x).item() == pytest.approx(plain[-1])
    assert [e.name for e in p.function_events if e.name in event.records] == event.records


def test_ranges_cost_nothing_that_can_fail_without_a_profile():
    calls = []

    @record_function("named")
    def f(x):
        calls.append(x)
        return x + 1

    assert [f(i) for i in range(3)] == [1, 2, 3] and calls == [0, 1, 2]
    with pytest.raises(ZeroDivisionError), record_function("fails"):
        1 / 0  # noqa: B018
    with pytest.raises(RuntimeError, match="Expected a value of type 'str' for argument 'name'"), record_function(3):
        pass


def test_ranges_nest_and_recur():
    @record_function("again")
    def fact(n):
        return 1 if n == 0 else n * fact(n - 1)

    p = profiled(lambda: fact(3))
    assert len(p._collector.records) == 4  # of which those that are all there is in one of the same name are one event
    assert [e.name for e in p.function_events] == ["again"]


def test_what_is_refused():
    with pytest.raises(AssertionError, match="Device-only events supported only with Kineto"):
        profile(use_cpu=False)
    with pytest.raises(AssertionError, match="No activities specified for the profiler"):
        profile(use_cpu=False, use_kineto=True)
    with pytest.raises(TypeError, match="record_shape"):
        profile(record_shape=True)
    p = profile()
    with p:
        pass
    with pytest.raises(RuntimeError, match="Profiler context manager is not reentrant"), p:
        pass
    with pytest.raises(AssertionError, match="finish"):
        profile().export_chrome_trace("trace.json")
    with pytest.raises(ValueError, match="profiler_metrics"):
        tj.profiler._ExperimentalConfig(profiler_metrics=["a"])
    with pytest.warns(FutureWarning, match="use_cuda"), pytest.warns(UserWarning, match="CUDA is not available"):
        assert profile(use_cuda=True).use_device is None
    with pytest.warns(UserWarning, match="The foo is not a valid device option"):
        profile(use_device="foo")


def test_disabled_it_does_nothing():
    with profile(enabled=False) as p:
        assert p is None and current_state()[0] is None
        tj.ones(2) + 1
    assert str(profile()) == repr(profile()) == "<unfinished torch.autograd.profile>"
    with profile() as q:
        assert q.function_events == []
        time.sleep(0)
    assert q.function_events == [] and str(q) == ""


def test_collection_can_be_switched():
    with profile() as p:
        tj.ones(2).sin()
        p.toggle_collection_dynamic(False, [tj.profiler.ProfilerActivity.CPU])
        tj.ones(2).cos()
        p.toggle_collection_dynamic(True, [tj.profiler.ProfilerActivity.CPU])
        tj.ones(2).tan()
    names = without_compiling(p.function_events)
    assert "aten::sin" in names and "aten::tan" in names and "aten::cos" not in names


def test_ranges_by_operators():
    handle = tj.ops.profiler._record_function_enter("first")
    tj.ops.profiler._record_function_exit(handle)
    with profile() as p:
        outer = tj.ops.profiler._record_function_enter_new("outer", "more")
        inner = tj.ops.profiler._record_function_enter("inner")
        tj.ops.profiler._record_function_exit(inner)
        tj.ops.profiler._record_function_exit(outer)
    (inner,) = named(p.function_events, "inner")
    assert inner.cpu_parent.name == "outer"
    with pytest.raises(RuntimeError, match="_record_function_exit"):
        tj.ops.profiler._record_function_exit(3)


def test_the_old_profiler_is_the_new_one():
    with tj.autograd.profiler_legacy.profile(record_shapes=True) as p:
        tj.ones(2, 3).sin()
    assert named(p.function_events, "aten::sin")[0].input_shapes == [[2, 3]]
    with pytest.warns(UserWarning, match="CUDA is not available"):
        tj.autograd.profiler_legacy.profile(use_cuda=True)


def test_events_can_be_kept_over_cycles():
    p = tj.profiler._KinetoProfile(acc_events=True)
    for f in (tj.sin, tj.cos):
        x = tj.ones(2)
        p.start()
        f(x)
        p.stop()
    assert without_compiling(p.events()) == ["aten::sin", "aten::cos"]
