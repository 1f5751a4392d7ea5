"""A profile shows of a program what PyTorch's shows: names, tree, sequence numbers, shapes, memory, operations counted."""

import warnings

import pytest
from profiles import forward_and_backward, linear_step, named, tree

import torchgrad_jax as tj

pytestmark = pytest.mark.operators


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def both(torch, make, **options):
    """The events of a program with PyTorch and with ours."""
    found = []
    for m in (torch, tj):
        program = make(m)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with m.autograd.profiler.profile(**options) as p:
                program()
        found.append(p)
    return found


def test_forward_is_pytorchs_tree(torch):
    theirs, ours = both(torch, linear_step)
    assert tree(ours.function_events) == tree(theirs.function_events)


def test_backward_is_evaluated_in_pytorchs_order_under_its_names(torch):
    def evaluated(p):
        return [e.name for e in p.function_events if e.name.startswith("autograd::engine::evaluate_function")]

    theirs, ours = both(torch, forward_and_backward)
    assert evaluated(ours) == evaluated(theirs) and len(evaluated(ours)) == 8
    # Each has the backward function within it, and that what it does.
    for p in (theirs, ours):
        for e in p.function_events:
            if e.name.startswith("autograd::engine::evaluate_function: "):
                assert e.cpu_children[0].name == e.name.removeprefix("autograd::engine::evaluate_function: ")


SINGLE = {
    "sum": lambda m, x, y: x.sum(), "sum_dim": lambda m, x, y: x.sum(0), "mul": lambda m, x, y: x * 2, "rsub": lambda m, x, y: 2 - x,
    "neg": lambda m, x, y: -x, "pow": lambda m, x, y: x**2, "matmul": lambda m, x, y: x @ y, "mean": lambda m, x, y: x.mean(0),
    "clone": lambda m, x, y: x.clone(), "reshape": lambda m, x, y: x.reshape(3, 2), "item": lambda m, x, y: x.sum().item(),
    "gt": lambda m, x, y: x > 0, "where": lambda m, x, y: m.where(x > 0, x, x), "cat": lambda m, x, y: m.cat([x, x]),
    "unbind": lambda m, x, y: x.unbind(0), "index": lambda m, x, y: x[0], "slice": lambda m, x, y: x[:, 1:], "T": lambda m, x, y: x.T,
    "einsum": lambda m, x, y: m.einsum("ij,jk->ik", x, y), "gelu": lambda m, x, y: m.nn.functional.gelu(x),
    "questions": lambda m, x, y: (x.shape, x.dtype, x.dim(), x.is_contiguous(), x.requires_grad_(), x.grad_fn, len(x), x.contiguous()),
    "split": lambda m, x, y: m.split(x, 1), "linalg": lambda m, x, y: m.linalg.norm(x),
    "conv": lambda m, x, y: m.nn.functional.conv2d(m.ones(1, 1, 4, 4), m.ones(1, 1, 2, 2)), "add_": lambda m, x, y: x.add_(1),
    "iadd": lambda m, x, y: x.__iadd__(1), "exp": lambda m, x, y: x.exp_(),
    "create_graph": lambda m, x, y: m.autograd.grad((y * y).sum(), y, create_graph=True),
}  # fmt: skip


def test_all_declared_operators_have_names_of_pytorchs(torch):
    # Where a digit is in it, a node's name does not tell where its words end.
    from torchgrad_jax import _ops

    theirs = {name.split("::")[1].split(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    named = {_ops._name_of(operator) for operator in _ops.registry.values() if isinstance(operator.node, str) and operator.toplevel}
    assert {name for name in named if any(c.isdigit() for c in name)} <= theirs
    assert {"max_pool2d_with_indices", "upsample_bilinear2d", "_fft_r2c", "special_i1e"} <= set(map(_ops._name_of, _ops.registry.values()))


@pytest.mark.parametrize("name", SINGLE)
def test_operations_have_pytorchs_names_and_sequence_numbers(torch, name):
    """On the outermost level; numbers count from the first one on."""

    def make(m):
        x, y = m.arange(6.0).reshape(2, 3), m.ones(3, 2, requires_grad=True)
        return lambda: SINGLE[name](m, x, y)

    def outermost(p):
        found = [(e.name, e.sequence_nr) for e in p.function_events if e.cpu_parent is None and e.name not in ("aten::ones_like", "xla::compile")]
        found = [e for e in found if e[0] not in ("aten::ones", "aten::broadcast_tensors")]
        first = min([n for _, n in found if n >= 0], default=0)
        return [(name, n - first if n >= 0 else n) for name, n in found]

    theirs, ours = both(torch, make)
    assert outermost(ours) == outermost(theirs)


def test_shapes_are_pytorchs(torch):
    theirs, ours = both(torch, forward_and_backward, record_shapes=True)
    for name in ("aten::linear", "aten::t", "aten::relu", "aten::mul", "MulBackward0", "AddmmBackward0", "torch::autograd::AccumulateGrad"):
        assert named(ours.function_events, name)[0].input_shapes == named(theirs.function_events, name)[0].input_shapes, name


def test_floating_point_operations_are_pytorchs(torch):
    def make(m):
        a, b = m.ones(4, 5, requires_grad=True), m.ones(5, 6, requires_grad=True)
        image, weight = m.ones(2, 3, 8, 8), m.ones(4, 3, 3, 3)
        c, d = m.ones(2, 4, 5), m.ones(2, 5, 6)

        def program():
            m.nn.functional.conv2d(image, weight, padding=1, stride=2)
            m.nn.functional.conv2d(image, weight, None, (1, 1), (0, 0), (2, 2))
            c @ d
            a + a[0]
            (a @ b * 2).sum().backward()

        return program

    theirs, ours = both(torch, make, with_flops=True)
    for name in ("aten::mm", "aten::conv2d", "aten::bmm", "aten::add"):
        forward = [
            [e.flops for e in named(p.function_events, name) if not e.cpu_parent or "Backward" not in e.cpu_parent.name] for p in (theirs, ours)
        ]
        assert forward[0] == forward[1] and all(forward[0]), name
    assert sum(e.flops for e in theirs.function_events) == sum(e.flops for e in ours.function_events)


def test_memory_is_pytorchs(torch):
    def make(m):
        a, b = m.ones(4, 5), m.ones(5, 6)

        def program():
            c = a @ b
            with m.autograd.profiler.record_function("freed within"):
                del c
            with m.autograd.profiler.record_function("kept"):
                program.d = a.exp().view(20)

        return program

    theirs, ours = both(torch, make, profile_memory=True)
    for name in ("aten::mm", "freed within", "kept"):
        for attribute in ("cpu_memory_usage", "self_cpu_memory_usage"):
            values = [getattr(named(p.function_events, name)[0], attribute) for p in (theirs, ours)]
            assert values[0] == values[1], (name, attribute)


def test_memory_of_views_counts_neither_when_made_nor_when_freed(torch):
    def make(m):
        a, b = m.ones(4, 5), m.ones(6, 5)

        def program():
            program.c = a @ b.t()

        return program

    theirs, ours = both(torch, make, profile_memory=True)
    assert [sum([e.self_cpu_memory_usage for e in p.key_averages()]) for p in (theirs, ours)] == [96, 96]


def test_ranges_and_functions_are_pytorchs(torch):
    def make(m):
        class Square(m.autograd.Function):
            @staticmethod
            def forward(ctx, a):
                ctx.save_for_backward(a)
                return a * a

            @staticmethod
            def backward(ctx, g):
                return 2 * ctx.saved_tensors[0] * g

        range_of = m.autograd.profiler.record_function
        x = m.ones(3, requires_grad=True)

        @range_of("decorated")
        def inner(a):
            return Square.apply(a)

        def program():
            with range_of("outer"), range_of("outer"):
                y = inner(x)
            y.sum().backward()

        return program

    theirs, ours = both(torch, make)
    assert tree(ours.function_events)[:1] == tree(theirs.function_events)[:1]
    for p in (theirs, ours):
        function, backward = named(p.function_events, "Square")[0], named(p.function_events, "SquareBackward")[0]
        assert function.sequence_nr == backward.sequence_nr and function.scope == 0 and backward.scope == 1
        assert backward.fwd_thread == function.thread and [e.name for e in backward.cpu_children][-1] == "aten::mul"
        assert named(p.function_events, "outer")[0].scope == 7 and named(p.function_events, "outer")[0].is_user_annotation


ATTRIBUTES = {
    "key", "count", "node_id", "is_async", "is_remote", "use_device", "cpu_time_total", "device_time_total", "self_cpu_time_total", "input_shapes",
    "self_device_time_total", "overload_name", "stack", "scope", "cpu_memory_usage", "device_memory_usage", "self_cpu_memory_usage", "cpu_children",
    "self_device_memory_usage", "cpu_parent", "device_type", "is_legacy", "flops", "is_user_annotation",
}  # fmt: skip


def test_sums_have_pytorchs_attributes(torch):
    theirs, ours = both(torch, linear_step)
    assert set(vars(theirs.key_averages()[0])) >= ATTRIBUTES and set(vars(ours.key_averages()[0])) >= ATTRIBUTES
    assert set(vars(theirs.function_events[0])) <= set(vars(ours.function_events[0]))


def test_names_are_pytorchs(torch):
    import torch.autograd.profiler_legacy
    import torch.autograd.profiler_util

    for module in ("autograd.profiler", "autograd.profiler_util", "autograd.profiler_legacy", "profiler", "profiler.itt"):
        theirs, ours = torch, tj
        for part in module.split("."):
            theirs, ours = getattr(theirs, part), getattr(ours, part)
        assert not [name for name in theirs.__all__ if not hasattr(ours, name)], module


def test_what_has_not_run_has_no_events(torch):
    def of(m):
        found, profile = [], m.autograd.profiler.profile
        for ask in (lambda p: p.table(), lambda p: list(p.key_averages()), lambda p: list(p.function_events), lambda p: p.self_cpu_time_total):
            asked = profile()
            found += [repr(asked), ask(asked), repr(asked)]
            with asked:
                found.append(ask(asked))
            found.append(len(asked.function_events) if not found[-1] else None)
        return found

    assert of(tj) == of(torch)


@pytest.mark.parametrize("arguments", [("a", 3), ("a", ["b"]), (3,), (None,)])
def test_names_of_ranges_are_texts(torch, arguments):
    def refusal(m):
        with pytest.raises(RuntimeError) as told:
            m.profiler.record_function(*arguments).__enter__()
        return str(told.value)

    assert refusal(tj) == refusal(torch)
