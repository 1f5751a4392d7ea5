"""Lists of events: trees, sums and tables, of the same numbers with PyTorch's classes and with ours."""

import pytest

import torchgrad_jax as tj
from torchgrad_jax.autograd import profiler_util

pytestmark = pytest.mark.operators

STACK = ("user.py(3): main", "user.py(10): <module>")
LONG_NAME = "a_very_long_name_indeed_that_is_longer_than_fifty_five_characters_for_sure_it_is"
LONG_LINE = "user.py(4): a_function_with_a_very_long_name_that_is_longer_than_seventy_five_characters_indeed"


def build(u, use_device=None, memory=False, flops=False, stack=False, shapes=False, node=-1, kernels=False, on_device=False):
    """A forward and a backward pass by hand."""
    made = []

    def event(id, name, start, end, count=0, lines=(), dims=(), **more):
        made.append(u.FunctionEvent(
            id, name, 1, start, end, use_device=use_device, node_id=node, flops=count if flops else 0, stack=list(lines) if stack else [],
            input_shapes=[list(d) for d in dims] if shapes else [], **more,
        ))  # fmt: skip

    event(0, "forward", 0, 1000, cpu_memory_usage=100, scope=7, is_user_annotation=True)
    event(1, "aten::linear", 10, 500, cpu_memory_usage=2048, dims=((2, 4), (3, 4), (3,)), sequence_nr=0, lines=STACK)
    event(2, "aten::addmm", 20, 400, 48000, cpu_memory_usage=2048, dims=((3,), (2, 4), (4, 3), (), ()), sequence_nr=1, lines=STACK)
    event(3, "aten::mul", 500, 700, 6, dims=((2, 3), ()), sequence_nr=2, lines=(LONG_LINE,))
    event(4, "aten::mul", 1000, 1500, 6, dims=((2, 3), ()))
    event(5, LONG_NAME, 1500, 1501, dims=((2, 3), ()))
    event(6, "autograd::engine::evaluate_function: MulBackward0", 2000, 2100, sequence_nr=2, fwd_thread=1)
    event(7, "MulBackward0", 2010, 2090, sequence_nr=2, fwd_thread=1, scope=1)
    event(8, "aten::mul", 2020, 2080, 6, dims=((2, 3), ()))
    event(9, "doubled", 3000, 3100)
    event(10, "doubled", 3001, 3099)
    event(11, "doubled", 3002, 3050)
    event(12, "ProfilerStep#3", 4000, 4000)
    if kernels:
        made[2].append_kernel("gemm", 0, 55)
        made[3].append_kernel("product", 0, 5)
    if on_device:
        event(13, "gemm", 100, 155, device_type=u.DeviceType.CUDA)
        event(14, "Memcpy", 200, 210, device_type=u.DeviceType.CUDA)
    events = u.EventList(made, use_device=use_device, profile_memory=memory, with_flops=flops)
    events._build_tree()
    return events


KINDS = (
    {}, {"memory": True}, {"flops": True}, {"shapes": True}, {"stack": True}, {"node": 2}, {"memory": True, "shapes": True, "stack": True, "node": 2},
    {"memory": True, "flops": True, "shapes": True}, {"use_device": "cuda", "kernels": True},
    {"use_device": "cuda", "kernels": True, "memory": True, "on_device": True}, {"use_device": "xpu", "on_device": True},
)  # fmt: skip
TABLES = (
    {}, {"sort_by": "cpu_time_total"}, {"sort_by": "self_cpu_time_total", "row_limit": 2}, {"sort_by": "cpu_time", "header": "HEAD"},
    {"top_level_events_only": True}, {"max_name_column_width": 10, "max_shapes_column_width": 12, "max_src_column_width": 20}, {"time_unit": "ms"},
    {"time_unit": "s"}, {"sort_by": "count", "row_limit": -1}, {"sort_by": "cpu_memory_usage", "row_limit": 0}, {"sort_by": "cuda_time_total"},
    {"max_name_column_width": None, "max_src_column_width": None, "max_shapes_column_width": None}, {"sort_by": "what_there_is_not"},
)  # fmt: skip
SUMS = ((), (True,), (False, 1), (True, 5), (False, 0, True))


def outcome(call):
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def seen(u, kind):
    """All that a list of events says."""
    events = build(u, **kind)
    found = []
    for shown in (events, *[events.key_averages(*how) for how in SUMS]):
        found += [outcome(lambda shown=shown, table=table: shown.table(**table)) for table in TABLES]
        found += [[repr(e) for e in shown], repr(shown.total_average()), shown.self_cpu_time_total]
    for e in events:
        found.append([
            e.name, e.count, [c.id for c in e.cpu_children], e.cpu_parent and e.cpu_parent.id, e.self_cpu_time_total, e.cpu_time_total, e.stack,
            e.device_time_total, e.self_device_time_total, e.cpu_time, e.device_time, e.self_cpu_memory_usage, e.self_device_memory_usage, e.key,
        ])  # fmt: skip
    for e in events.key_averages(True, 2):
        found.append([e.key, e.count, e.input_shapes, e.stack, e.cpu_time_str, e.self_cpu_time_total_str, e.device_time_str, e.flops])
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(kind) or "plain")
def test_tables_and_sums_are_pytorchs(kind):
    theirs = pytest.importorskip("torch.autograd.profiler_util")
    for ours, expected in zip(seen(profiler_util, kind), seen(theirs, kind), strict=True):
        assert ours == expected


def test_small_things_are_pytorchs():
    theirs = pytest.importorskip("torch.autograd.profiler_util")

    class At:
        def __init__(self, time):
            self.time = time

        def start_ns(self):
            return self.time

    def said(u):
        table = u.StringTable()
        records = [(At(30), "x"), (At(10), "y"), (At(20), "z")]
        acc = u.MemRecordsAcc(records)
        e = u.FunctionEvent(0, "x", 1, 0, 10)
        total = u.FunctionEventAvg()
        return [
            [u._format_time(v) for v in (0, 1, 999.9996, 1000, 1e6, -5, 123456.789)], [u._format_time_share(v, 1000.0) for v in (0, 1, 500)],
            u._format_time_share(0, 0), outcome(lambda: u._format_time_share(1, 0)),
            [u._format_memory(v) for v in (0, 1023, 1024, 1536, 1 << 20, 1 << 30, -2048)], table["a"], table["_Z3foov"], table["foo::bar"],
            [r[1] for r in acc.in_interval(10, 20)], [r[1] for r in acc.in_interval(11, 30)], list(u.MemRecordsAcc([]).in_interval(0, 10)),
            u.Interval(2, 5).elapsed_us(), repr(u.Kernel("k", 0, 3)), u.EventList().table(), repr(u.EventList().total_average()),
            outcome(lambda: u.EventList().key_averages()), repr(total.add(e)), outcome(lambda: total.add(3)),
            outcome(lambda: total.add(u.FunctionEvent(0, "y", 1, 0, 10))), outcome(lambda: e.append_cpu_child(4)),
            outcome(lambda: u.FunctionEvent(1, "d", 1, 0, 1, device_type=u.DeviceType.CUDA).append_kernel("a", 0, 3)),
            u.EventList().supported_export_stacks_metrics(), repr(u.DeviceType.CPU),
        ]  # fmt: skip

    for ours, expected in zip(said(profiler_util), said(theirs), strict=True):
        assert ours == expected


def test_the_table_that_users_know():
    table = build(profiler_util, memory=True).key_averages().table(sort_by="self_cpu_time_total", row_limit=3, max_name_column_width=20)
    assert table.splitlines() == [
        "--------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ",
        "                Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg       CPU Mem  Self CPU Mem    # of Calls  ",
        "--------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ",
        "           aten::mul        44.68%     760.000us        44.68%     760.000us     253.333us           0 B           0 B             3  ",
        "         aten::addmm        22.34%     380.000us        22.34%     380.000us     380.000us       2.00 KB       2.00 KB             1  ",
        "             forward        18.22%     310.000us        58.79%       1.000ms       1.000ms         100 B      -1.90 KB             1  ",
        "--------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ",
        "Self CPU time total: 1.701ms",
    ]


def test_with_stacks_every_value_stands_below_its_title():
    """PyTorch puts the floating-point operations below Source Location where both are shown."""
    header, _, forward, _, linear = build(profiler_util, stack=True, flops=True).table(max_name_column_width=20).splitlines()[1:6]
    assert header.split()[-2:] == ["Total", "FLOPs"] and "Source Location" in header
    assert linear.rstrip().endswith("--") and linear.index(STACK[0]) == header.index("Source Location")
    assert forward.rstrip().endswith("--")


def test_events_of_the_same_name_within_each_other_are_one():
    events = build(profiler_util)
    assert [e.id for e in events if e.name == "doubled"] == [9] and events[9].cpu_children == []


def test_backward_has_the_lines_of_forward():
    events = {e.id: e for e in build(profiler_util, stack=True)}
    assert events[7].stack == events[8].stack == [LONG_LINE] and events[6].stack == []


def test_old_names_warn():
    event = profiler_util.FunctionEvent(0, "x", 1, 0, 10)
    for name in ("cuda_time", "cuda_time_total", "self_cuda_time_total", "self_cuda_memory_usage"):
        with pytest.warns(FutureWarning, match=name):
            assert getattr(event, name) == 0


def test_names_of_cpp_functions_are_readable():
    table = profiler_util.StringTable()
    assert table["_ZN2at4gemmEPKfi"] == "at::gemm(float const*, int)" and table["_ZN2at3fooEv"] == "at::foo()"
    assert table["_ZNSt6vectorIfE4sizeEv"] == "_ZNSt6vectorIfE4sizeEv"  # what is not understood stays


def test_steps_are_counted_by_requester():
    tracker = tj.autograd.profiler.KinetoStepTracker
    start = tracker.current_step()
    tracker.init_step_count("first")
    assert tracker.increment_step("first") == start + 1
    assert tracker.increment_step("second") == start + 2  # which begins at the current step
    assert tracker.increment_step("first") == start + 2
    assert tracker.erase_step_count("first") and not tracker.erase_step_count("first") and tracker.erase_step_count("second")
    assert tracker.current_step() == start + 2
