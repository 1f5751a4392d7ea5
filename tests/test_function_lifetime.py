"""autograd.Function against PyTorch: what a ctx holds is freed with the graph, without the garbage collector."""

from __future__ import annotations

import gc
import weakref
from contextlib import contextmanager

import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from functions import function, tripled_in_place  # noqa: E402
from side_by_side import leaf  # noqa: E402 - needs torch


class Thing:
    pass


@contextmanager
def no_collection():
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def saves(pick):
    """A forward that saves what `pick` chooses of its input and its output."""

    def forward(ctx, x):
        y = x * 1
        ctx.save_for_backward(*pick(x, y))
        return y

    return forward


def keeps(name):
    """A forward that keeps its input, its output or a tensor made on the way as an attribute of ctx."""

    def forward(ctx, x):
        temporary = x * 1
        y = temporary * 1
        ctx.kept = {"input": x, "output": y, "temporary": temporary}[name]
        return y

    return forward


def saves_view(ctx, x):
    v = x.view(2, 1)
    ctx.save_for_backward(x, v)
    return v


def saves_and_writes(ctx, x):
    ctx.save_for_backward(x)
    return tripled_in_place(ctx, x)


def two_saved(ctx, x):
    a, b = x * 1, x * 2
    ctx.save_for_backward(a, b)
    return a, b


# Who still holds ctx: with the graph alive, after the output is dropped, after the input is dropped too.
CASES = {
    "nothing saved": (lambda ctx, x: x * 1, False),
    "input saved": (saves(lambda x, y: (x,)), False),
    "output saved": (saves(lambda x, y: (y,)), False),
    "input and output saved": (saves(lambda x, y: (x, y)), False),
    "two outputs saved": (two_saved, False),
    "input kept": (keeps("input"), False),
    "temporary kept": (keeps("temporary"), False),
    "input returned": (lambda ctx, x: x, False),
    "view of the input saved": (saves_view, False),
    "input written to": (tripled_in_place, True),
    "input written to and saved": (saves_and_writes, True),
}


@pytest.mark.parametrize("m", [torch, tj], ids=["torch", "ours"])
@pytest.mark.parametrize("case", CASES)
def test_a_ctx_goes_with_the_graph(m, case):
    forward, input_holds = CASES[case]
    things = []

    def noting(ctx, x):
        ctx.thing = Thing()
        things.append(weakref.ref(ctx.thing))
        return forward(ctx, x)

    with no_collection():
        x = leaf(m, 1.0, 2.0) * 1
        y = function(m, noting).apply(x)
        assert things[0]() is not None
        del y
        assert (things[0]() is not None) == input_holds
        del x
        assert things[0]() is None


@pytest.mark.parametrize("m", [torch, tj], ids=["torch", "ours"])
@pytest.mark.parametrize("case", ["output", "dirty"])
def test_an_output_kept_as_an_attribute_leaks_in_pytorch_too(m, case):
    """The output holds its node, which is the ctx, which holds the output: PyTorch's notes advise `save_for_backward` for this reason."""
    things = []

    def forward(ctx, x):
        ctx.thing = Thing()
        things.append(weakref.ref(ctx.thing))
        if case == "output":
            return keeps("output")(ctx, x)
        ctx.kept = x
        return tripled_in_place(ctx, x)

    with no_collection():
        function(m, forward).apply(leaf(m, 1.0, 2.0) * 1)
        assert things[0]() is not None
    gc.collect()
    assert m is torch or things[0]() is None


@pytest.mark.parametrize("m", [torch, tj], ids=["torch", "ours"])
def test_a_ctx_goes_where_there_is_no_graph(m):
    things = []

    def forward(ctx, x):
        ctx.thing = Thing()
        things.append(weakref.ref(ctx.thing))
        ctx.save_for_backward(x)
        if len(things) == 2:
            raise ValueError
        return x * 1

    with no_collection():
        y = function(m, forward).apply(m.ones(1))
        assert things[0]() is None
        with pytest.raises(ValueError):
            function(m, forward).apply(leaf(m, 1.0))
        assert things[1]() is None
        with m.no_grad():
            z = function(m, forward).apply(leaf(m, 1.0))
        assert things[2]() is None
    del y, z


@pytest.mark.parametrize("m", [torch, tj], ids=["torch", "ours"])
@pytest.mark.parametrize("saved", ["input", "output"])
def test_a_ctx_goes_with_the_graph_of_its_gradient(m, saved):
    things = []

    def forward(ctx, x):
        ctx.thing = Thing()
        things.append(weakref.ref(ctx.thing))
        y = x.exp()
        ctx.save_for_backward(x.exp() if saved == "input" else y)
        return y

    with no_collection():
        x = leaf(m, 2.0)
        y = function(m, forward, lambda ctx, g: g * ctx.saved_tensors[0]).apply(x)
        (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
        del y
        assert (things[0]() is not None) == (saved == "output")  # the gradient's graph leads to the output
        del g
        assert things[0]() is None


@pytest.mark.parametrize("m", [torch, tj], ids=["torch", "ours"])
def test_saved_tensors_are_freed_by_backward(m):
    with no_collection():
        h = leaf(m, 2.0) * 2
        reference = weakref.ref(h)
        y = function(m, saves(lambda x, y: (x,)), lambda ctx, g: g * ctx.saved_tensors[0]).apply(h)
        del h
        y.sum().backward()
        assert reference() is None


@pytest.mark.parametrize("m", [torch, tj], ids=["torch", "ours"])
def test_tensors_made_on_the_way_are_freed_after_forward(m):
    made = []

    def forward(ctx, x):
        temporary = x * 2
        made.append(weakref.ref(temporary))
        return temporary * 2

    with no_collection():
        y = function(m, forward).apply(leaf(m, 1.0))
        assert made[0]() is None
    del y


def test_attributes_with_names_of_the_engine_make_no_cycle():
    things = []

    def forward(ctx, x):
        ctx.next, ctx.run, ctx.thing = 1, 2, Thing()
        things.append(weakref.ref(ctx.thing))
        ctx.save_for_backward(x)
        return x * 1

    with no_collection():
        y = function(tj, forward).apply(leaf(tj, 1.0))
        y.sum().backward()
        assert things[0]() is not None
        del y
        assert things[0]() is None


@pytest.mark.parametrize("m", [torch, tj], ids=["torch", "ours"])
def test_a_node_without_its_tensor_still_answers(m):
    node = function(m, saves(lambda x, y: (x,))).apply(leaf(m, 1.0) * 1).grad_fn
    assert node.name() == "MineBackward"
    assert node.next_functions[0][0].name() == "MulBackward0"
    assert node.saved_tensors[0].tolist() == [1.0]
