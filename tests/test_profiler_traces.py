"""What leaves a profile: traces for Perfetto, ranges for other profilers, profiles step by step. And what comes in: traces of nvprof."""

import contextlib
import gzip
import json
import sqlite3
import sys
import types
import warnings
from collections import Counter

import jax
import pytest
from torchgrad_jax.autograd.profiler import emit_itt, emit_nvtx, load_nvprof, profile, record_function

import torchgrad_jax as tj
from torchgrad_jax.profiler import ProfilerAction, ProfilerActivity, schedule, tensorboard_trace_handler

pytestmark = pytest.mark.operators


def step(m=tj):
    x = m.ones(2, 3, requires_grad=True)
    with m.autograd.profiler.record_function("forward"):
        loss = (x * 2).relu().sum()
    loss.backward()
    return x, loss


def trace_of(path, **options):
    with profile(**options) as p:
        kept = step()
    p.export_chrome_trace(str(path))
    assert kept
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "rt") as file:
        return json.load(file)


# ---------------------------------------------------------------------- Chrome's traces

PHASES = {"X": {"name", "cat", "pid", "tid", "ts", "dur", "args"}, "M": {"name", "pid", "tid", "ts", "args"}, "i": {"name", "pid", "tid", "ts", "s"},
          "s": {"name", "cat", "id", "pid", "tid", "ts"}, "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"}}  # fmt: skip


def check_schema(trace):
    """What viewers need of a trace."""
    assert trace["displayTimeUnit"] == "ms" and trace["schemaVersion"] == 1 and isinstance(trace["baseTimeNanoseconds"], int)
    events = trace["traceEvents"]
    for e in events:
        assert PHASES[e["ph"]] <= set(e), e
        assert isinstance(e["ts"], (int, float)) and e.get("dur", 0) >= 0 and isinstance(e["name"], str)
        assert isinstance(e["pid"], (int, str)) and isinstance(e["tid"], (int, str))
    flows = {phase: {e["id"]: e for e in events if e["ph"] == phase} for phase in "sf"}
    assert flows["s"].keys() == flows["f"].keys() and Counter(e["ph"] for e in events)["s"] == len(flows["s"])
    slices = [e for e in events if e["ph"] == "X" and e["cat"] != "Trace"]
    for id, start in flows["s"].items():
        end = flows["f"][id]
        assert start["ts"] <= end["ts"] and end["bp"] == "e"
        # Each end of an arrow is where a slice begins: there viewers draw it.
        assert any(s["ts"] == start["ts"] and s["tid"] == start["tid"] for s in slices)
        assert any(s["ts"] == end["ts"] and s["name"].endswith("Backward0") for s in slices)
    inner = sorted(slices, key=lambda e: (e["ts"], -e["dur"]))
    around = []
    for e in inner:  # slices of a thread are nested
        while around and e["ts"] >= around[-1]:
            around.pop()
        assert not around or e["ts"] + e["dur"] <= around[-1] + 1e-3
        around.append(e["ts"] + e["dur"])
    return events


def test_traces_have_the_schema(tmp_path):
    events = check_schema(trace_of(tmp_path / "t.json", record_shapes=True, profile_memory=True, with_stack=True, with_flops=True))
    by_name = {e["name"]: e for e in events}
    assert by_name["forward"]["cat"] == "user_annotation" and by_name["aten::mul"]["cat"] == "cpu_op"
    assert by_name["aten::mul"]["args"]["Input Dims"] == [[2, 3], []] and by_name["aten::mul"]["args"]["Sequence number"] >= 0
    assert by_name["MulBackward0"]["args"]["Fwd thread id"] > 0
    assert by_name["MulBackward0"]["args"]["Sequence number"] == by_name["aten::mul"]["args"]["Sequence number"]
    assert "test_profiler_traces.py" in by_name["aten::mul"]["args"]["Call stack"]
    assert by_name["[memory]"]["args"].keys() >= {"Total Allocated", "Bytes", "Addr", "Device Type"}
    assert sum(e["ph"] == "s" for e in events) == 3  # mul, relu, sum
    assert by_name["process_name"]["ph"] == "M" and by_name["thread_name"]["tid"] == by_name["aten::mul"]["tid"]


def test_traces_with_gzip_and_of_programs(tmp_path):
    check_schema(trace_of(tmp_path / "t.json.gz"))
    with tj.runtime.execution_mode("fused"):
        events = check_schema(trace_of(tmp_path / "f.json", fused=True))
    programs = [e["args"] for e in events if e["name"].startswith("program (")]
    assert sum("aten::mul" in args["Records"] for args in programs) == 1
    assert all(args["Operations"] == len(args["Records"]) and args["Run because of"] for args in programs)


def test_traces_are_like_pytorchs(tmp_path):
    torch = pytest.importorskip("torch")
    with torch.autograd.profiler.profile(record_shapes=True, profile_memory=True) as p:
        step(torch)
    p.export_chrome_trace(str(tmp_path / "theirs.json"))
    theirs = json.loads((tmp_path / "theirs.json").read_text())
    ours = trace_of(tmp_path / "ours.json", record_shapes=True, profile_memory=True)
    assert ours.keys() >= theirs.keys() - {"deviceProperties"}

    def kinds(trace):
        return {(e["ph"], e.get("cat")) for e in trace["traceEvents"]}

    assert kinds(ours) == kinds(theirs)
    for name in ("forward", "aten::mul", "aten::relu", "MulBackward0", "[memory]"):
        one, other = (next(e for e in t["traceEvents"] if e["name"] == name) for t in (ours, theirs))
        assert one.keys() == other.keys()
        assert one["args"].keys() >= other["args"].keys() - {"Input type", "Input Strides", "finished", "Ev Idx"}, name
    arrows = [Counter(e["ph"] for e in t["traceEvents"])["s"] for t in (ours, theirs)]
    assert arrows[0] == arrows[1] == 3


def test_lists_of_events_write_traces(tmp_path):
    with profile() as p:
        step()
    p.function_events.export_chrome_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())
    assert {e["ph"] for e in events} == {"X", "s", "f"} and {e["name"] for e in events} >= {"aten::mul", "MulBackward0", "fwdbwd"}


def test_jaxs_own_profiler_alongside(tmp_path):
    with profile(jax_trace_dir=str(tmp_path)):
        step()
    (trace,) = tmp_path.rglob("*.trace.json.gz")
    text = gzip.decompress(trace.read_bytes()).decode()
    assert '"forward"' in text and "aten::mul" in text and "MulBackward0" in text
    assert list(tmp_path.rglob("*.xplane.pb"))


def test_ranges_name_what_jax_traces():
    def f(x):
        with record_function("my_range"):
            return tj.sin(x)

    form = jax.tree_util.tree_structure(tj.ones(3))

    def of_array(a):
        return jax.tree_util.tree_leaves(f(jax.tree_util.tree_unflatten(form, [a])))

    assert "my_range" in jax.jit(of_array).lower(jax.numpy.ones(3)).as_text(debug_info=True)


# ---------------------------------------------------------------------- step by step

SCHEDULES = (
    {"wait": 1, "warmup": 1, "active": 2, "repeat": 2, "skip_first": 1}, {"wait": 2, "warmup": 1, "active": 1, "skip_first": 1, "skip_first_wait": 1},
    {"wait": 0, "warmup": 1, "active": 1}, {"wait": 0, "warmup": 1, "active": 3, "repeat": 1},
)  # fmt: skip


@pytest.mark.parametrize("arguments", SCHEDULES, ids=str)
def test_schedules_are_pytorchs(arguments):
    theirs = pytest.importorskip("torch").profiler.schedule(**arguments)
    ours = schedule(**arguments)
    assert [ours(i).name for i in range(16)] == [theirs(i).name for i in range(16)]


def test_a_schedule():
    actions = [schedule(wait=1, warmup=1, active=2, repeat=1)(i).name for i in range(6)]
    assert actions == ["NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE", "NONE", "NONE"]
    with pytest.raises(AssertionError, match="Invalid profiler schedule arguments. Got wait=-1"):
        schedule(wait=-1, warmup=0, active=1)
    with pytest.warns(UserWarning, match="won't be using warmup"):
        schedule(wait=0, warmup=0, active=1)


def stepped(m, plan, steps=7, **options):
    """What a profile of a loop says at each step, and what it hands over."""
    log = []

    def ready(p):
        counts = Counter(e.name for e in p.events() if e.name in ("ProfilerStep*", "aten::sin"))
        log.append(("ready", p.step_num, p.current_action.name, sorted(counts.items())))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with m.profiler.profile(schedule=plan and m.profiler.schedule(**plan), on_trace_ready=ready, **options) as p:
            for _ in range(steps):
                m.ones(2).sin()
                p.step()
                log.append((p.step_num, p.current_action.name))
    texts = [str(w.message) for w in caught]
    return log, sorted(t for t in texts if "rofiler" in t and "clears events" not in t)  # of which PyTorch warns once


PLANS = (
    None, {"wait": 1, "warmup": 1, "active": 2, "repeat": 1}, {"wait": 0, "warmup": 1, "active": 1, "repeat": 2},
    {"wait": 0, "warmup": 0, "active": 2}, {"wait": 5, "warmup": 1, "active": 4}, {"wait": 0, "warmup": 1, "active": 1},
    {"wait": 0, "warmup": 0, "active": 1, "repeat": 2},
)  # fmt: skip


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize("options", ({}, {"acc_events": True}), ids=("cleared", "kept"))
def test_steps_are_pytorchs(plan, options):
    torch = pytest.importorskip("torch")
    assert stepped(tj, plan, **options) == stepped(torch, plan, **options)


def test_steps():
    log, _ = stepped(tj, {"wait": 1, "warmup": 1, "active": 2, "repeat": 1}, 5)
    assert log == [
        (1, "WARMUP"), (2, "RECORD"), (3, "RECORD_AND_SAVE"), ("ready", 4, "NONE", [("ProfilerStep*", 2), ("aten::sin", 2)]), (4, "NONE"),
        (5, "NONE"),
    ]  # fmt: skip


def test_after_warming_up_nothing_is_compiled():
    x = tj.ones(13, 5, 2)
    with tj.profiler.profile(schedule=schedule(wait=0, warmup=1, active=1, repeat=1)) as p:
        for _ in range(2):
            x.tanh().sum()
            p.step()
    assert "xla::compile" not in {e.name for e in p.events()} and "aten::tanh" in {e.name for e in p.events()}


def test_traces_for_tensorboard(tmp_path):
    with tj.profiler.profile(on_trace_ready=tensorboard_trace_handler(str(tmp_path / "log"), worker_name="w", use_gzip=True)):
        step()
    (file,) = (tmp_path / "log").iterdir()
    assert file.name.startswith("w.") and file.name.endswith(".pt.trace.json.gz")
    check_schema(json.loads(gzip.decompress(file.read_bytes())))
    (tmp_path / "file").touch()
    with (
        pytest.raises(RuntimeError, match="Can't create directory"),
        tj.profiler.profile(on_trace_ready=tensorboard_trace_handler(str(tmp_path / "file"))),
    ):
        step()


def test_metadata_and_names_of_traces(tmp_path):
    p = tj.profiler.profile(custom_trace_id_callback=lambda: "MINE")
    assert p.get_trace_id() is None
    p.preset_metadata_json("before", "[1]")
    with p:
        p.add_metadata("text", "value")
        p.add_metadata_json("numbers", "[1, 2]")
    p.export_chrome_trace(str(tmp_path / "t.json"))
    trace = json.loads((tmp_path / "t.json").read_text())
    assert (trace["text"], trace["numbers"], trace["before"], trace["trace_id"]) == ("value", [1, 2], [1], "MINE")
    assert p.get_trace_id() == "MINE"
    with pytest.raises(json.JSONDecodeError):
        p.add_metadata_json("bad", "{")


def test_memory_over_time(tmp_path):
    with tj.profiler.profile(record_shapes=True, profile_memory=True, with_stack=True) as p:
        kept = tj.ones(100).exp()
    with pytest.warns(FutureWarning, match="export_memory_timeline"):
        p.export_memory_timeline(str(tmp_path / "m.json"))
    times, sizes = json.loads((tmp_path / "m.json").read_text())
    assert times == sorted(times) and max(sizes) >= 400 and len(sizes) == len(times) and kept is not None
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="picture"):
        p.export_memory_timeline(str(tmp_path / "m.html"))
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="required for memory profiling"):
        tj.profiler.profile().export_memory_timeline(str(tmp_path / "m.json"))


def test_what_is_refused():
    with pytest.raises(AssertionError, match="No valid profiler activities found"):
        tj.profiler.profile(activities=[])
    for call, what in (
        (lambda p: p.events(), "accessing events"),
        (lambda p: p.key_averages(), "getting key averages"),
        (lambda p: p.step(), "stopping"),
    ):
        p = tj.profiler.profile(schedule=lambda i: ProfilerAction.RECORD_AND_SAVE)
        with pytest.raises(AssertionError, match=f"Profiler must be initialized before {what}"):
            call(p)
    with pytest.raises(NotImplementedError, match="to_jax"):
        tj.profiler.ExecutionTraceObserver()
    with pytest.raises(RuntimeError, match="Unknown or non-member activity type name: 'x'"):
        tj.profiler.profile(activities=[{ProfilerActivity.CPU: ["x"]}])
    with pytest.warns(FutureWarning, match="`use_cuda` is deprecated"):
        tj.profiler.profile(use_cuda=False)
    assert tj.profiler.supported_activities() == {ProfilerActivity.CPU} and tj.profiler.kineto_available()


# ---------------------------------------------------------------------- ranges for other profilers


class Recorded:
    """In place of nvtx and ittapi: what is pushed and popped."""

    def __init__(self):
        self.open, self.pushed = [], []

    def push(self, name):
        self.open.append(name)
        self.pushed.append((len(self.open), name))

    def pop(self):
        self.open.pop()


@pytest.fixture
def tools(monkeypatch):
    ranges = Recorded()
    nvtx = types.SimpleNamespace(push_range=ranges.push, pop_range=ranges.pop)
    itt = types.SimpleNamespace(
        domain=lambda name: name,
        string_handle=lambda name: name,
        task_begin=lambda domain, name: ranges.push(name),
        task_end=lambda domain: ranges.pop(),
    )
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)
    monkeypatch.setitem(sys.modules, "ittapi", itt)
    return ranges


@pytest.mark.parametrize("emit", (emit_nvtx, emit_itt))
def test_operations_are_ranges_with_sequence_numbers(tools, emit):
    with emit():
        step()
    assert tools.open == []
    names = [name for _, name in tools.pushed]
    (forward,) = [n for n in names if n.startswith("aten::mul, seq = ")][:1]
    number = int(forward.rpartition(" ")[2])
    assert f"aten::relu, seq = {number + 1}" in names and f"aten::sum, seq = {number + 2}" in names
    assert f"MulBackward0, stashed seq = {number}" in names and f"SumBackward0, stashed seq = {number + 2}" in names
    depths = {name: depth for depth, name in tools.pushed}
    assert depths["forward"] == 1 and depths[forward] > 1


def test_second_derivatives_have_numbers_of_their_own(tools):
    x = tj.ones(3, requires_grad=True)
    with emit_nvtx():
        (g,) = tj.autograd.grad((x * x * x).sum(), x, create_graph=True)
        del tools.pushed[:]
        g.sum().backward()
    names = [name for _, name in tools.pushed]
    forward = next(n for n in names if n.startswith("aten::sum, seq"))
    assert f"SumBackward0, stashed seq = {forward.rpartition(' ')[2]}" in names


def test_ranges_may_show_shapes(tools):
    with emit_nvtx(record_shapes=True):
        tj.ones(2, 3) * 2
    assert any(name.startswith("aten::mul") and "sizes = [[2, 3], []]" in name for _, name in tools.pushed)


def test_without_the_packages_it_is_said(monkeypatch):
    for name, emit in (("nvtx", emit_nvtx), ("ittapi", emit_itt)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(RuntimeError, match=f"pip install {name}"), emit():
            pass
        with emit(enabled=False) as nothing:
            assert nothing is None
    tj.profiler.itt._domain.cache_clear()
    with pytest.raises(RuntimeError, match="pip install ittapi"):
        tj.profiler.itt.range_push("a")


def test_ranges_by_hand(tools):
    tj.profiler.itt._domain.cache_clear()
    with tj.profiler.itt.range("{} and {x}", 1, x=2):
        tj.profiler.itt.mark("within")
    assert tools.pushed == [(1, "1 and 2"), (2, "within")] and tools.open == []
    tj.profiler.itt._domain.cache_clear()


def test_it_is_not_entered_twice(tools):
    ranges = emit_nvtx()
    with ranges, pytest.raises(RuntimeError, match="NVTX annotation context manager is not reentrant"), ranges:
        pass


# ---------------------------------------------------------------------- nvprof

TABLES = {
    "StringTable": "_id_ INTEGER PRIMARY KEY, value TEXT",
    "CUPTI_ACTIVITY_KIND_MARKER": "_id_ INTEGER PRIMARY KEY, flags INT, timestamp INT, id INT, objectKind INT, objectId BLOB, name INT, domain INT",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "_id_ INTEGER PRIMARY KEY, cbid INT, start INT, end INT, processId INT, threadId INT, correlationId INT",
    "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": "_id_ INTEGER PRIMARY KEY, start INT, end INT, name INT, correlationId INT, deviceId INT",
}


def nvprof_file(path, without=None, cbid=211, doubled=False):
    """As nvprof writes it: a product whose kernel runs longer than it, a linear layer with one operation within, and a backward function."""
    names = ["aten::mul, seq = 3", "MulBackward0, stashed seq = 3", "_Z4gemmPfi", "aten::linear", "aten::addmm"]
    ranges = [(1, 1, 1000, 5000), (2, 4, 6000, 20000), (3, 5, 7000, 12000), (4, 2, 30000, 40000)]
    kernels = [(2000, 2500, 3000, 9000), (8000, 8500, 9000, 11000), (13000, 13100, 14000, 15000)]
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        for table, columns in TABLES.items():
            if table != without:
                db.execute(f"CREATE TABLE {table} ({columns})")
        if without is not None:
            return str(path)
        db.executemany("INSERT INTO StringTable VALUES (?, ?)", enumerate(names, 1))
        for id, name, start, end in [*ranges, *ranges[:1]] if doubled else ranges:
            marker = (
                "INSERT INTO CUPTI_ACTIVITY_KIND_MARKER (flags, timestamp, id, objectKind, objectId, name, domain) VALUES (?, ?, ?, 2, x'01', ?, 0)"
            )
            db.execute(marker, (2, start, id, name))
            db.execute(marker, (4, end, id, 0))
        for id, (launched, returned, start, end) in enumerate(kernels):
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (NULL, ?, ?, ?, 1, 1, ?)", (cbid, launched, returned, id))
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL VALUES (NULL, ?, ?, 3, ?, 0)", (start, end, id))
    return str(path)


def test_traces_of_nvprof_are_read(tmp_path):
    path = nvprof_file(tmp_path / "trace.nvvp")
    before = (tmp_path / "trace.nvvp").read_bytes()
    events = load_nvprof(path)
    assert [e.name for e in events] == ["aten::mul, seq = 3", "aten::linear", "aten::addmm", "MulBackward0, stashed seq = 3"]
    assert [[k.duration for k in e.kernels] for e in events] == [[6000], [2000, 1000], [2000], []]
    assert {k.name for e in events for k in e.kernels} == {"gemm(float*, int)"}
    assert "aten::addmm" in events.table()
    assert (tmp_path / "trace.nvvp").read_bytes() == before and [f.name for f in tmp_path.iterdir()] == ["trace.nvvp"]


def test_they_are_read_as_pytorch_reads_them(tmp_path):
    torch = pytest.importorskip("torch")
    path = nvprof_file(tmp_path / "trace.nvvp")
    ours, theirs = load_nvprof(path), torch.autograd.profiler.load_nvprof(path)

    def said(events):
        return [(e.id, e.name, e.thread, e.time_range.start, e.time_range.end, e.node_id, [k.duration for k in e.kernels], repr(e)) for e in events]

    assert said(ours) == said(theirs) and ours.table() == theirs.table()


@pytest.mark.parametrize("table", TABLES)
def test_what_nvprof_has_not_written_is_refused(tmp_path, table):
    path = nvprof_file(tmp_path / "trace.nvvp", without=table)
    with pytest.raises(sqlite3.OperationalError, match=f"no such table: .*{table}.* is no trace that nvprof has written"):
        load_nvprof(path)


def test_malformed_traces_are_refused(tmp_path):
    (tmp_path / "text").write_text("not a database at all" * 100)
    with pytest.raises(sqlite3.DatabaseError, match="is no trace that nvprof has written"):
        load_nvprof(str(tmp_path / "text"))
    with pytest.raises(FileNotFoundError, match="no trace of nvprof at"):
        load_nvprof(str(tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(AssertionError, match="Expected cbid to be 211, but got 13"):
        load_nvprof(nvprof_file(tmp_path / "other", cbid=13))
    with pytest.raises(RuntimeError, match="duplicate key"):
        load_nvprof(nvprof_file(tmp_path / "doubled", doubled=True))
