"""Tracing a function: what is found of it, what it leaves behind, and when it is traced again."""

import sys
import threading
import warnings

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax import nn
from torchgrad_jax.lifting.tracing import TracingError
from torchgrad_jax.nn import functional as F
from torchgrad_jax.runtime.value import watches

pytestmark = pytest.mark.operators  # of programs: in eager mode there are none


class Interrupt(Exception):
    pass


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * x
        ctx.save_for_backward(x)
        return y * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        h = 3 * g
        return h * x * x


class World:
    def __init__(self):
        torch.manual_seed(0)
        self.w = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        self.x, self.buffer = torch.ones(3, 2), torch.zeros(2)
        self.middle = self.w * 2

    def step(self):
        h = F.dropout(self.x @ self.w, 0.5)
        h.register_hook(lambda g: g * 2)
        y = Cube.apply(h)
        self.buffer.mul_(0.9)
        self.buffer[0].add_(1)
        loss = y.sum() + (self.middle.detach() ** 2).sum()
        loss.backward()
        self.x[:, 0] = 2
        with torch.no_grad():
            self.w.sub_(0.1 * self.w.grad)
            self.w.grad = None
        return loss.detach()

    def state(self):
        tensors = (self.w, self.x, self.buffer, self.middle)
        return (
            [(t.tolist(), t._version, t.requires_grad, type(t.grad_fn).__name__, t._grad is None) for t in tensors],
            torch.get_rng_state().tolist(),
            torch.is_grad_enabled(),
        )


def raising_at(count, function):
    """Call `function`, and raise Interrupt at the line with this number among those run in this file. Whether there was one."""
    seen = 0

    def trace(frame, event, argument):
        nonlocal seen
        if frame.f_code.co_filename != __file__ or frame.f_code.co_name in ("raising_at", "state"):
            return None
        if event == "line":
            seen += 1
            if seen == count:
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_exception_at_any_line_changes_nothing():
    world, expected = World(), World()
    before = world.state()
    line = 0
    while True:
        line += 1
        compiled = torch.jit(world.step, fullgraph=True)
        torch.manual_seed(0)
        if not raising_at(line, compiled):
            break
        assert world.state() == before, line
        assert not watches
    assert line > 12
    torch.manual_seed(0)
    expected.step()
    assert world.state() == expected.state()


def test_an_exception_in_a_backward_pass_that_is_only_traced_changes_nothing():
    w = torch.ones(2, requires_grad=True)

    def f():
        y = w * w
        y.register_hook(lambda g: g * 2 if g.sum() > 0 else g)  # asks for a value
        return y.sum()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        compiled = torch.jit(f)
        for _ in range(3):
            w.grad = None
            compiled().backward()
            assert w.grad.tolist() == [4, 4]
    assert len(told) == 1 and "in its backward pass" in str(told[0].message)


def test_nothing_of_a_trace_is_left_in_what_it_made():
    kept = []

    def f(x):
        kept.append(x * 2)
        return kept[-1] + 1

    compiled = torch.jit(f)
    compiled(torch.ones(2))
    assert kept[0].tolist() == [2, 2]


def test_a_check_that_fails_changes_nothing_and_names_the_line():
    labels, w, count = torch.tensor([0, 1]), torch.ones(2, 3, requires_grad=True), torch.zeros(1)

    def f():
        count.add_(1)
        return F.cross_entropy(w.detach() * 2, labels)

    compiled = torch.jit(f, fullgraph=True)
    compiled(), compiled()
    labels[0] = 7
    with pytest.raises(IndexError, match="out of bounds") as raised:
        compiled().item()
    assert any("test_lifting.py" in note for note in raised.value.__notes__)
    assert count.item() == 2
    labels[0] = 1
    compiled()
    assert count.item() == 3


@pytest.mark.parametrize("ask", [bool, lambda t: t.item(), lambda t: t.tolist(), lambda t: t.numpy(), repr, lambda t: t.nonzero(), float])
def test_asking_for_a_value_raises_with_the_line_or_falls_back(ask):
    x = torch.ones(1)

    def f():
        y = x * 2
        ask(y)
        x.add_(1)
        return y

    with pytest.raises(TracingError, match=r"value of a tensor was asked for.*test_lifting\.py"):
        torch.jit(f, fullgraph=True)()
    assert x.item() == 1
    compiled = torch.jit(f)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for i in range(1, 4):
            assert compiled().item() == 2 * i and x.item() == i + 1
    assert len(told) == 1 and "not compiled whole" in str(told[0].message)


def test_captured_values_are_asked_for_too():
    w = torch.ones(1)
    with pytest.raises(TracingError, match="value of a tensor was asked for"):
        torch.jit(lambda x: x * w.item(), fullgraph=True)(torch.ones(1))


def test_constants_of_the_function_may_be_asked_for():
    compiled = torch.jit(lambda x: x * torch.tensor([2.0, 3.0])[1].item() if False else x * torch.tensor(3.0).item(), fullgraph=True)
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [3, 3, 3]


def programs(compiled):
    return int(compiled.explain().split(" ", 1)[0])


def test_what_tells_calls_apart():
    compiled = torch.jit(lambda x, k=1.0, names=(): x * k + len(names), fullgraph=True)
    x = torch.ones(2)
    for args, kwargs, count in [
        ((x,), {}, 1), ((x + 1,), {}, 1), ((torch.ones(3),), {}, 2), ((x.double(),), {}, 3), ((x, 2.0), {}, 4), ((x,), {"k": 2.0}, 5),
        ((x, 2), {}, 6), ((torch.ones(2, requires_grad=True),), {}, 7), ((x, 1.0, ("a",)), {}, 8), ((x, 1.0, ["a"]), {}, 9), ((x, 2), {}, 9),
    ]:  # fmt: skip
        expected = args[0] * (args[1] if len(args) > 1 else kwargs.get("k", 1.0)) + (len(args[2]) if len(args) > 2 else 0)
        assert compiled(*args, **kwargs).tolist() == expected.tolist()
        assert programs(compiled) == count
    with torch.no_grad():
        assert not compiled(torch.ones(2, requires_grad=True)).requires_grad
    assert compiled(torch.ones(2, requires_grad=True)).requires_grad


scale = 2.0
settings = {"bias": 1.0}
weights = [torch.ones(2), torch.ones(2) * 2]


class Config:
    power = 1


def uses_globals(x):
    return helper(x) * scale + settings["bias"]


def helper(x):
    return (x * weights[0] + weights[1]) ** Config.power


def test_what_a_function_reaches_is_watched():
    global scale
    before = scale, dict(settings), list(weights), Config.power
    compiled, x = torch.jit(uses_globals, fullgraph=True), torch.ones(2)
    try:
        for change in (
            lambda: None, lambda: globals().update(scale=3.0), lambda: settings.update(bias=5.0), lambda: weights.__setitem__(0, torch.ones(2) * 4),
            lambda: setattr(Config, "power", 2), lambda: weights[1].mul_(2), lambda: None,
        ):  # fmt: skip
            change()
            for _ in range(2):
                assert compiled(x).tolist() == uses_globals(x).tolist()
        assert programs(compiled) == 5
        assert any("scale was 2.0 and is 3.0" in line for line in compiled.recompilations)
    finally:
        scale, weights[:], Config.power = before[0], before[2], before[3]
        settings.update(before[1])


def test_modules_are_watched():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    compiled, x = torch.compile(model, fullgraph=True), torch.ones(1, 2)
    assert isinstance(compiled, nn.Module) and list(compiled.parameters())[0] is model[0].weight
    for change in (lambda: model.train(), lambda: model.eval(), lambda: setattr(model[0], "weight", nn.Parameter(torch.ones(2, 2))), model.train):
        change()
        for _ in range(3):
            torch.manual_seed(1)
            expected = model(x)
            torch.manual_seed(1)
            np.testing.assert_allclose(compiled(x).detach().numpy(), expected.detach().numpy(), rtol=1e-6)
    seen = []
    model[0].register_forward_hook(lambda *args: seen.append(1))
    compiled(x)
    assert seen == [1]


def test_what_changes_each_time_ends_up_plain():
    calls = []

    def f(x):
        calls.append(1)
        return x * len(calls)

    compiled = torch.jit(f)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert [compiled(torch.ones(1)).item() for _ in range(12)] == list(range(1, 13))
    assert len(told) == 1 and "in a row" in str(told[0].message)


def test_the_same_tensor_twice():
    def f(a, b):
        a.add_(b)
        b.mul_(2)
        return a - b

    compiled = torch.jit(f, fullgraph=True)
    for _ in range(3):
        x, y, z, u = torch.ones(2), torch.ones(2), torch.ones(2), torch.ones(2)
        assert compiled(x, y).tolist() == f(z, u).tolist() and x.tolist() == z.tolist() and y.tolist() == u.tolist()
        assert compiled(x, x).tolist() == f(z, z).tolist() and x.tolist() == z.tolist()


def test_tensors_on_one_memory():
    w = torch.ones(2)

    def f(x):
        w.add_(1)
        return x * 2

    compiled = torch.jit(f, fullgraph=True)
    assert [compiled(torch.ones(2)).tolist() for _ in range(2)] == [[2, 2]] * 2
    assert compiled(w.detach()).tolist() == [8, 8] and compiled(w.view(2)).tolist() == [10, 10] and compiled(w).tolist() == [12, 12]


def test_arguments_are_written_to_and_keep_their_views():
    x = torch.zeros(2, 2)
    row = x[0]
    compiled = torch.jit(lambda t: t.add_(1), fullgraph=True)
    for i in range(1, 4):
        assert compiled(x) is x and row.tolist() == [i, i] and x._version == i


def test_in_the_middle_of_a_graph():
    w, v = torch.ones(2, 2, requires_grad=True), torch.ones(2, requires_grad=True)
    block = torch.jit(lambda h: torch.tanh(h @ w), fullgraph=True)
    found = []
    for g in (lambda h: torch.tanh(h @ w), block, block, block):
        w.grad = v.grad = None
        h = v * 2
        (g(g(h)) * h).sum().backward()
        found.append((w.grad.tolist(), v.grad.tolist()))
    for other in found[1:]:
        np.testing.assert_allclose(np.ravel(other[0]), np.ravel(found[0][0]), rtol=1e-5)
        np.testing.assert_allclose(other[1], found[0][1], rtol=1e-5)


def test_what_was_saved_may_not_be_written_to():
    w = torch.ones(2, requires_grad=True)
    f = torch.jit(lambda x: (x * w * x).sum(), fullgraph=True)
    x = torch.ones(2)
    f(x), f(x)
    y = f(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    y = f(x)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_a_second_derivative_through_a_compiled_call_is_refused():
    x = torch.ones(2, requires_grad=True)
    f = torch.jit(lambda x: (x**3).sum(), fullgraph=True)
    f(x)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        torch.autograd.grad(f(x), x, create_graph=True)


def test_a_compiled_function_within_another():
    inner = torch.jit(lambda x: x * 2)
    outer = torch.jit(lambda x: inner(x) + 1, fullgraph=True)
    assert [outer(torch.ones(1)).item() for _ in range(3)] == [3, 3, 3]
    assert programs(inner) == 0


def test_modes_that_see_each_operation_call_it_as_it_is():
    packed = []
    f = torch.jit(lambda x: (x * x).sum())
    x = torch.ones(2, requires_grad=True)
    f(x), f(x)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        f(x).backward()
    assert packed and x.grad.tolist() == [2, 2] and any("as it is" in line for line in f.recompilations)


def test_threads_call_for_themselves():
    w = torch.ones(2)
    f = torch.jit(lambda x: x * w)
    found = {}

    def run(i):
        found[i] = [f(torch.full((2,), float(i))).tolist() for _ in range(5)]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {i: [[float(i)] * 2] * 5 for i in range(4)}


def test_methods_and_decorators():
    class Model:
        def __init__(self, k):
            self.k = torch.tensor(float(k))

        @torch.jit
        def scaled(self, x):
            return x * self.k

    a, b = Model(2), Model(3)
    for _ in range(3):
        assert a.scaled(torch.ones(1)).item() == 2 and b.scaled(torch.ones(1)).item() == 3

    @torch.jit(fullgraph=True)
    def f(x):
        return x + 1

    assert f(torch.ones(1)).item() == 2 and f.__name__ == "f"
    with pytest.raises(TypeError, match="function or a module"):
        torch.jit(3)


def test_arguments_of_compile():
    def f(x):
        return x

    assert torch.compile(f, disable=True) is f and torch.compile(backend="eager")(f) is f
    assert torch.compile(f, mode="reduce-overhead", dynamic=True)(torch.ones(1)).item() == 1
    torch.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match="options are those of PyTorch's compiler"):
            torch.compile(f, options={"max_autotune": True})
    finally:
        torch.set_warn_always(False)
    with pytest.raises(RuntimeError, match="Unrecognized mode"):
        torch.compile(f, mode="fast")
