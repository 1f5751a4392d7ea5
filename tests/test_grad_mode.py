"""Grad modes against PyTorch: as context, decorator and function, of functions and generators, in threads."""

from __future__ import annotations

import threading
import warnings

import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch

MODES = ("no_grad", "enable_grad")


@like_pytorch
def test_modes_as_contexts_nest(m):
    seen = [m.is_grad_enabled()]
    with m.no_grad():
        seen.append(m.is_grad_enabled())
        with m.enable_grad():
            seen.append(m.is_grad_enabled())
            with m.set_grad_enabled(False):
                seen.append(m.is_grad_enabled())
            seen.append(m.is_grad_enabled())
        seen.append(m.is_grad_enabled())
    return seen, m.is_grad_enabled()


@like_pytorch
def test_what_is_made_under_no_grad_is_outside_the_graph(m):
    w = leaf(m, 1.0, 2.0)
    with m.no_grad():
        y = w * 2
        made = m.ones(2, requires_grad=True)
    z = y * w
    return y.requires_grad, y.is_leaf, made.requires_grad, z.requires_grad, [n is None for n, _ in z.grad_fn.next_functions]


@like_pytorch
def test_leaves_may_be_written_to_under_no_grad(m):
    w = leaf(m, 1.0, 2.0)
    with m.no_grad():
        w.sub_(0.5)
        w[0] = 7.0
    return w, w.is_leaf, w._version


@like_pytorch
def test_an_exception_restores_the_mode(m):
    def fail():
        with m.no_grad():
            raise KeyError("inside")

    return error_of(fail), m.is_grad_enabled()


@like_pytorch
def test_set_grad_enabled_as_a_function_holds_until_changed(m):
    m.set_grad_enabled(False)
    seen = m.is_grad_enabled()
    m.set_grad_enabled(mode=True)
    return seen, m.is_grad_enabled()


@like_pytorch
def test_set_grad_enabled_acts_when_it_is_made(m):
    context = m.set_grad_enabled(False)
    before = m.is_grad_enabled()
    with context:
        inside = m.is_grad_enabled()
    return before, inside, m.is_grad_enabled()


@like_pytorch
def test_set_grad_enabled_takes_numbers_as_pytorch_does(m):
    found = []
    for mode in (1, 0, "yes", None, m.tensor(True)):
        found.append(error_of(lambda mode=mode: m.set_grad_enabled(mode)))
        m.set_grad_enabled(True)
    return [None if e is None else e[0] for e in found]


@pytest.mark.parametrize("mode", MODES)
def test_modes_as_decorators(mode):
    def program(m):
        @getattr(m, mode)()
        def called(a, *, b):
            """Its docstring."""
            return m.is_grad_enabled(), a + b

        @getattr(m, mode)
        def bare(a):
            return m.is_grad_enabled(), a

        @m.set_grad_enabled(mode == "enable_grad")
        def switched(a):
            return m.is_grad_enabled(), a

        with m.set_grad_enabled(mode == "no_grad"):
            found = [called(1, b=2), bare(3), switched(4), m.is_grad_enabled()]
        return found, called.__name__, called.__doc__, m.is_grad_enabled()

    assert program(tj) == program(torch)


@like_pytorch
def test_decorating_with_set_grad_enabled_leaves_the_mode_as_it_was(m):
    @m.set_grad_enabled(False)
    def work():
        return m.is_grad_enabled()

    return m.is_grad_enabled(), work(), m.is_grad_enabled()


@like_pytorch
def test_one_context_may_be_entered_again_and_inside_itself(m):
    context, seen = m.no_grad(), []
    with context:
        with m.enable_grad(), context:
            seen.append(m.is_grad_enabled())
        seen.append(m.is_grad_enabled())
    with context:
        seen.append(m.is_grad_enabled())
    return seen, m.is_grad_enabled()


@like_pytorch
def test_decorated_functions_may_recurse(m):
    @m.no_grad()
    def down(n):
        return [m.is_grad_enabled(), *(down(n - 1) if n else ())]

    return down(3), m.is_grad_enabled()


@like_pytorch
def test_decorated_methods_get_their_object(m):
    class Thing:
        factor = 3

        @m.no_grad()
        def method(self, x):
            return x * self.factor

    return Thing().method(leaf(m, 1.0))


@like_pytorch
def test_a_generator_has_the_mode_while_it_runs_and_not_its_caller(m):
    @m.no_grad()
    def numbers():
        for i in range(3):
            yield i, m.is_grad_enabled()

    return [(found, m.is_grad_enabled()) for found in numbers()]


@like_pytorch
def test_a_generator_that_sends_throws_closes_and_returns(m):
    seen = []

    @m.no_grad()
    def work():
        try:
            got = yield "first"
            seen.append((got, m.is_grad_enabled()))
            try:
                yield "second"
            except KeyError as error:
                seen.append((str(error), m.is_grad_enabled()))
            yield "third"
        finally:
            seen.append(("closed", m.is_grad_enabled()))

    @m.no_grad()
    def returning():
        yield 1
        return "result"

    def outer():
        return (yield from returning())

    made = work()
    seen += [next(made), made.send("sent"), made.throw(KeyError("thrown"))]
    made.close()
    ends = outer()
    next(ends)
    return seen, error_of(lambda: next(ends)), m.is_grad_enabled()


@like_pytorch
def test_an_exception_in_a_decorated_generator_restores_the_mode(m):
    @m.no_grad()
    def failing():
        yield 1
        raise KeyError("inside")

    return error_of(lambda: list(failing())), m.is_grad_enabled()


@like_pytorch
def test_the_mode_does_not_reach_into_a_coroutine(m):
    @m.no_grad()
    async def work():
        return m.is_grad_enabled()

    made = work()
    try:
        made.send(None)
    except StopIteration as stop:
        return stop.value, m.is_grad_enabled()


@like_pytorch
def test_decorating_a_class(m):
    class Thing:
        def __init__(self):
            self.enabled = m.is_grad_enabled()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        decorated = m.no_grad()(Thing)
    return decorated().enabled, [(w.category.__name__, str(w.message)) for w in caught]


@pytest.mark.parametrize("m", [torch, tj], ids=["torch", "ours"])
def test_the_mode_belongs_to_the_thread(m):
    seen, entered, leave = {}, threading.Event(), threading.Event()

    def work():
        seen["at start"] = m.is_grad_enabled()
        with m.no_grad():
            entered.set()
            leave.wait(10)
            seen["inside"] = m.is_grad_enabled()

    with m.no_grad():
        thread = threading.Thread(target=work)
        thread.start()
        entered.wait(10)
    seen["outside"] = m.is_grad_enabled()
    leave.set()
    thread.join()
    assert seen == {"at start": True, "inside": False, "outside": True}


@like_pytorch
def test_names_in_the_autograd_namespace(m):
    return m.autograd.no_grad is m.no_grad, m.autograd.enable_grad is m.enable_grad, m.autograd.set_grad_enabled is m.set_grad_enabled


@like_pytorch
def test_the_module_of_grad_modes(m):
    return m.autograd.grad_mode.no_grad is m.no_grad, m.autograd.grad_mode.set_grad_enabled is m.set_grad_enabled


@like_pytorch
def test_representation_of_modes(m):
    return [error_of(lambda: m.no_grad(3)), error_of(lambda: m.set_grad_enabled())]


@like_pytorch
def test_a_write_under_no_grad_does_not_change_the_graph(m):
    w = leaf(m, 1.0, 2.0)
    h = w * 1
    with m.no_grad():
        h.mul_(3)
    (h * 2).sum().backward()
    return h, w.grad


@like_pytorch
def test_requires_grad_may_be_set_under_no_grad(m):
    with m.no_grad():
        t = m.ones(2)
        t.requires_grad_()
        y = t * 2
    return t.requires_grad, y.requires_grad, (t * 2).requires_grad
