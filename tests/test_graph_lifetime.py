"""Long graphs, and what is freed without the garbage collector."""

from __future__ import annotations

import gc
import weakref

import pytest

import torchgrad_jax as tj
from torchgrad_jax.runtime import execution_mode, recorder
from torchgrad_jax.runtime.device import live_arrays

torch = pytest.importorskip("torch")


@pytest.fixture
def short_programs(monkeypatch):
    """Programs of 200 operations: one of 2000 takes ten seconds to compile, and the subject here is the graph."""
    monkeypatch.setattr(recorder, "SOFT_LIMIT", 200)
    with execution_mode("fused"):
        yield


def chain(length):
    x = tj.tensor(1.0, dtype=tj.float64, requires_grad=True)
    y = x
    for _ in range(length):
        y = -y
    y.backward()
    assert x.grad.item() == 1.0
    return weakref.ref(y.grad_fn)


def test_a_chain_of_200000_nodes_runs_and_is_dropped_without_recursion(short_programs):
    assert chain(200_000)() is None


def test_a_long_chain_that_is_never_run_is_dropped_without_recursion(short_programs):
    y = tj.tensor(1.0, requires_grad=True)
    for _ in range(100_000):
        y = -y
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None


@pytest.fixture
def without_collector():
    gc.disable()
    yield
    gc.enable()


def test_graph_and_arrays_go_with_their_last_reference(without_collector):
    x = tj.ones(3, requires_grad=True)
    h = x.exp()
    loss = (h * h).sum()
    loss.item()
    gone = [weakref.ref(o) for o in (h, h.grad_fn, loss, loss.grad_fn, h._read().concrete())]
    del h, loss
    assert [r() for r in gone] == [None] * 5


def test_backward_frees_what_it_saved(without_collector):
    x = tj.ones(3, requires_grad=True)
    h = x.exp()
    h.sum().item()
    array = weakref.ref(h._read().concrete())
    loss = (h * h).sum()
    del h
    loss.backward()
    loss.item()
    assert array() is None


def test_double_backward_leaves_nothing_behind(without_collector):
    x = tj.ones(3, requires_grad=True)
    y = (x * x * x).sum()
    (g,) = tj.autograd.grad(y, x, create_graph=True)
    (second,) = tj.autograd.grad(g.sum(), x)
    second.tolist()
    gone = [weakref.ref(o) for o in (y, y.grad_fn, g, g.grad_fn, second)]
    del y, g, second
    assert [r() for r in gone] == [None] * 5


def count_of_ours():
    # JAX's and the cache's own objects come and go; what a step makes are tensors, nodes and values.
    modules = ("torchgrad_jax.tensor", "torchgrad_jax.runtime", "torch.autograd.graph")
    return sum(str(type(o).__module__).startswith(modules) for o in gc.get_objects())


@pytest.mark.parametrize("with_hooks", [False, True])
def test_training_steps_leave_no_objects_and_no_arrays(without_collector, with_hooks):
    w, x = tj.randn(4, 3, requires_grad=True), tj.randn(5, 4)

    def step():
        h = (x @ w).tanh()
        if with_hooks:
            h.register_hook(lambda g: g * 2)
            h.retain_grad()
        loss = (h * h).mean()
        loss.backward()
        with tj.no_grad():
            w.sub_(0.01 * w.grad)
        w.grad = None
        return loss.item()

    for _ in range(12):  # until all is one list of calls
        step()
    ours, arrays = count_of_ours(), live_arrays()
    for _ in range(200):
        step()
    assert count_of_ours() <= ours + 5
    assert live_arrays() <= arrays + 5


class Product(tj.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        ctx.note, ctx.mine = [1, 2], x
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.t(), x.t() @ g


def step_with_everything(w):
    x = tj.ones(2, 3)
    with tj.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
        h = Product.apply(x, w).tanh()
    h.retain_grad()
    h.register_hook(lambda g: g * 1)
    h.grad_fn.register_hook(lambda inputs, outputs: None)
    handle = tj.autograd.graph.register_multi_grad_hook((w, h), lambda grads: None)
    v = h * 1
    v[:1].mul_(2)
    ((v**2).mean() + v.unbind()[0].sum()).backward()
    handle.remove()
    with tj.inference_mode():
        (x @ w).sum()
    (g,) = tj.autograd.grad(tj.tanh(x @ w).sum(), w, create_graph=True)
    g.pow(2).sum().backward()
    with tj.no_grad():
        w.sub_(w.grad * 0.01)
    w.grad = None


def test_hooks_functions_modes_and_writes_leave_no_objects_and_no_arrays(without_collector):
    w = tj.ones(3, 3, requires_grad=True)

    def run(count):
        for _ in range(count):
            step_with_everything(w)
            w.sum().item()
        return count_of_ours(), live_arrays()

    before = run(20)
    after = run(50)
    assert after[0] <= before[0] + 5 and after[1] <= before[1]


@pytest.mark.parametrize("write", ["hot", "several operands", "general", "a view"])
def test_what_a_tensor_held_before_it_was_written_to_is_let_go_of(write):
    t = tj.ones(50)
    before = t._read()
    assert t.sum().item() == 50
    if write == "hot":
        t.add_(1)
    elif write == "several operands":
        t.addcmul_(tj.ones(50), tj.ones(50))
    elif write == "general":
        t.add_(tj.ones(50, dtype=tj.float64))
    else:
        t.view(5, 10).add_(1)
    assert t.sum().item() == 100
    assert not [holder for holder in gc.get_referrers(before) if isinstance(holder, tj.Tensor)]
