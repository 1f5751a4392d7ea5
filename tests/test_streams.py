"""`torch.Stream` and `torch.Event` where there is no GPU, and what programs only name of `torch.distributed`."""

import pytest
from side_by_side import like_pytorch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators


def test_streams_and_events_of_the_cpu_are_told():
    like_pytorch(lambda m: (str(m.Stream().device), m.Stream().stream_id, str(m.Event().device), repr(m.Stream()), repr(m.Event())))()


@pytest.mark.parametrize("make", [lambda m: m.Stream("cuda"), lambda m: m.Event(device="cuda"), lambda m: m.cuda.Stream(), lambda m: m.cuda.Event()])
@pytest.mark.skipif(tj.cuda.is_available(), reason="there is one")
def test_those_of_a_gpu_that_is_not_there_are_refused(make):
    like_pytorch(lambda m: make(m))()


def test_an_event_notes_the_time_and_a_stream_waits():
    first, last = tj.Event(), tj.Event()
    with pytest.raises(RuntimeError, match="recorded before"):
        first.elapsed_time(last)
    first.record()
    stream = tj.Stream()
    with stream:
        x = tj.ones(3) * 2
        stream.wait_event(first)
        stream.wait_stream(tj.Stream())
        stream.record_event(last)
    assert first.elapsed_time(last) >= 0 and last.query() and stream.query() and x.sum() == 6
    assert issubclass(tj.cuda.Stream, tj.Stream) and issubclass(tj.cuda.Event, tj.Event)


def test_classes_of_process_groups_are_there_to_be_named():
    from torchgrad_jax.distributed.device_mesh import DeviceMesh, init_device_mesh

    assert not isinstance(3, tj.distributed.ProcessGroup | DeviceMesh)
    for make in (tj.distributed.ProcessGroup, DeviceMesh, lambda: init_device_mesh("cpu", (2,))):
        with pytest.raises(NotImplementedError, match="one process"):
            make()


def test_functions_name_process_groups_and_reductions_in_their_heads():
    def named(m):
        dist = m.distributed

        def reduced(x, op=dist.ReduceOp.SUM, group=dist.group.WORLD):
            return dist.all_reduce(x, op=op, group=group) if dist.is_initialized() else x

        kinds = [dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT, dist.ReduceOp.BXOR]
        return reduced(m.ones(2)), [str(kind) for kind in kinds], [repr(kind) for kind in kinds], isinstance(kinds[0], dist.ReduceOp)

    like_pytorch(named)()


@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "all_gather", "gather", "recv", "get_backend", "new_group", "monitored_barrier"])
def test_what_processes_say_to_each_other_asks_for_a_group(name):
    arguments = {"all_reduce": 1, "broadcast": 1, "all_gather": 2, "gather": 1, "recv": 1}

    def call(m):
        values = [[m.ones(2)], m.ones(2)] if name == "all_gather" else [m.ones(2)] * arguments.get(name, 0)
        return getattr(m.distributed, name)(*values, *([0] if name == "broadcast" else []))

    like_pytorch(call)()
