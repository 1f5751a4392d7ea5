"""Grad modes against PyTorch: as context, decorator and function, of functions and generators, in threads."""

from __future__ import annotations

import asyncio
import inspect
import threading
import warnings

import numpy as np
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

    return asyncio.run(work()), inspect.iscoroutinefunction(work), m.is_grad_enabled()


@like_pytorch
def test_the_mode_does_not_reach_into_an_async_generator(m):
    @m.no_grad
    async def work():
        yield m.is_grad_enabled()

    async def collect():
        return [found async for found in work()]

    return asyncio.run(collect()), inspect.isasyncgenfunction(work), m.is_grad_enabled()


@like_pytorch
def test_decorating_a_class_gives_a_function_and_leaves_the_class_alone(m):
    class Thing:
        def __init__(self):
            self.enabled = m.is_grad_enabled()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        decorated = [m.no_grad()(Thing), m.no_grad(Thing), m.set_grad_enabled(False)(Thing), m.inference_mode(Thing)]
    made = [(d().enabled, inspect.isfunction(d), isinstance(d(), Thing)) for d in decorated]
    return made, Thing().enabled, [(w.category.__name__, str(w.message)) for w in caught]


@like_pytorch
def test_decorating_static_and_class_methods(m):
    class Thing:
        @staticmethod
        @m.no_grad()
        def static():
            return m.is_grad_enabled()

        @classmethod
        @m.no_grad()
        def of_class(cls):
            return cls.__name__, m.is_grad_enabled()

    return Thing.static(), Thing.of_class(), Thing().of_class()


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


@like_pytorch
def test_tensors_outside_the_graph_for_now_become_arrays(m):
    w = leaf(m, 1.0, 2.0)
    with m.no_grad():
        inside = w.numpy().tolist()
    return inside, error_of(w.numpy)


# ---------------------------------------------------------------------- the thread's other settings

SETTINGS = {
    "set_multithreading_enabled": lambda m: m.autograd.is_multithreading_enabled(),
    "_force_original_view_tracking": lambda m: m.autograd.is_view_replay_enabled(),
    "enforce_grad_layout_policy": lambda m: m._C._is_grad_layout_enforcement_enabled(),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_holds_at_once_and_a_block_puts_back_what_was_before(name):
    def program(m):
        setting = getattr(m.autograd.grad_mode, name)
        start, seen = SETTINGS[name](m), []

        def note():
            seen.append(SETTINGS[name](m))

        try:
            for mode in (True, False):
                setting(mode)
                note()
                context = setting(not mode)
                note()
                with context:
                    note()
                note()

                @setting(not mode)
                def called():
                    note()

                note()
                called()
                note()

                @setting(not mode)
                def generated():
                    yield note()

                list(generated())
                note()
            thread = threading.Thread(target=note)
            thread.start()
            thread.join()
        finally:
            setting(start)
        return seen, [error_of(lambda given=given: setting(given)) for given in (1, "x", None, m.tensor(True))]

    like_pytorch(program)()


@like_pytorch
def test_view_replay_makes_the_graph_of_views_anew_operation_by_operation(m):
    def names(t):
        return t.grad_fn.name(), t.grad_fn.next_functions[0][0].name()

    found = []
    for replay in (False, True):
        x = leaf(m, 1.0, 2.0, 3.0, 4.0)
        with m.autograd._force_original_view_tracking(replay):
            base = x * 1
            flat = base.view(2, 2)
            row = flat[0]
        row.mul_(3)
        with m.inference_mode():
            found.append(names(row))
        found += [names(base), names(flat), names(row)]
        (row * flat).sum().backward()
        found.append(x.grad)
    return found


@like_pytorch
def test_the_first_gradient_has_its_leafs_strides_where_that_is_enforced(m):
    found = []
    for enforced in (True, False):
        for create_graph in (False, True):
            p = m.zeros(2, 3, 4).permute(2, 0, 1).requires_grad_()
            with m.autograd.enforce_grad_layout_policy(enforced):
                (p * m.ones(4, 2, 3)).sum().backward(create_graph=create_graph)
            found.append(p.grad.stride())
    return found


@like_pytorch
def test_the_first_gradient_computed_in_inference_mode_has_its_leafs_strides(m):
    p = m.zeros(2, 3, 4).permute(2, 0, 1).requires_grad_()
    y = (p * m.ones(4, 2, 3)).sum()
    with m.inference_mode():
        y.backward()
        p.grad.mul_(2)
    return p.grad.stride(), p.grad.is_inference(), p.grad


@like_pytorch
def test_private_functions_that_tell_the_modes(m):
    with m.no_grad(), m.inference_mode():
        inside = m._C.is_grad_enabled(), m._C.is_inference_mode_enabled()
    return inside, m._C.is_grad_enabled(), m._C._is_multithreading_enabled(), m._C._is_view_replay_enabled()


# ---------------------------------------------------------------------- version counters


@like_pytorch
def test_increment_version_counts_a_write_that_nobody_saw(m):
    a = m.ones(3)
    part, twin = a[0], a.detach()
    m.autograd.graph.increment_version(a)
    m.autograd.graph.increment_version([a, part])
    m.autograd.graph.increment_version(t for t in (twin,))
    return a, a._version, part._version, twin._version


@like_pytorch
def test_increment_version_of_what_was_saved_is_noticed(m):
    y = leaf(m, 1.0, 2.0).exp()
    m.autograd.graph.increment_version(y)
    y.sum().backward()


@like_pytorch
def test_increment_version_of_other_things(m):
    with m.inference_mode():
        made = m.ones(2)
    increment = m.autograd.graph.increment_version
    return increment(made), increment([made, m.ones(1)]), error_of(lambda: increment(3)), error_of(lambda: increment([3]))


@like_pytorch
def test_hidden_writes_leave_the_version_and_reach_what_was_saved(m):
    x, y = leaf(m, 1.0, 2.0), m.tensor([3.0, 4.0], dtype=m.float64)
    z = x * y
    with m.autograd._unsafe_preserve_version_counter(y):
        y.mul_(10)
        inside = y._version
    z.sum().backward()
    y.add_(1)
    return inside, y._version, x.grad, y


@like_pytorch
def test_hidden_writes_to_a_view_reach_what_was_saved_of_it(m):
    x, y = leaf(m, 1.0, 2.0), m.tensor([3.0, 4.0, 5.0], dtype=m.float64)
    part = y[1:]
    z = x * part * y[:2].sum()
    with m.autograd._unsafe_preserve_version_counter(part):
        part.mul_(10)
        y[2] = 1.0
    z.sum().backward()
    return part._version, y._version, x.grad, y


@like_pytorch
def test_hiding_writes_to_several_tensors_goes_back_to_the_versions_of_its_making(m):
    a, b = m.ones(2), m.ones(2)
    part = b[0]
    a.add_(1)
    hidden = m.autograd._unsafe_preserve_version_counter((a, b, part))
    a.add_(1)
    with hidden:
        a.add_(1)
        part.add_(1)
        seen = [a._version, b._version]

    def fail():
        with hidden:
            a.add_(1)
            raise KeyError("inside")

    return seen, a._version, b._version, error_of(fail), a._version, a, b


@like_pytorch
def test_hiding_writes_takes_tensors(m):
    hide = m.autograd._unsafe_preserve_version_counter
    with m.inference_mode():
        made = m.ones(2)
    return [error_of(lambda given=given: hide(given)) for given in ([m.ones(1)], None, (1,), made, ())]


@like_pytorch
def test_setting_version_counters(m):
    a, b = m.ones(2), m.ones(2)
    put = m._C._autograd._unsafe_set_version_counter
    put((a, b), (5, 3))
    a.add_(1)
    with m.inference_mode():
        made = m.ones(2)
    return a._version, b._version, [error_of(lambda given=given: put(*given)) for given in (((a,), (-1,)), ((a,), (1, 2)), ((made,), (1,)))]


@like_pytorch
def test_a_tensor_keeps_its_version_counter_when_it_takes_over_memory(m):
    x, y = m.ones(2), m.zeros(2)
    x.add_(1)
    twin = x.detach()
    x.data = y
    seen = [x, x._version]
    y.add_(1)
    seen += [x, x._version, y._version]
    x.add_(1)
    w = leaf(m, 1.0, 1.0, dtype="float32")
    (w * twin * twin[0]).sum().backward()
    seen += [w.grad, twin._version]
    twin.mul_(5)
    (w * x * twin).sum().backward()
    x.data = x.data * 2
    x.add_(1)
    return seen, x, x._version, y, y._version, twin, twin._version, w.grad


@like_pytorch
def test_the_mode_before_is_kept_as_prev(m):
    found = [m.no_grad().prev, hasattr(m.enable_grad(), "prev")]
    with m.no_grad():
        with m.enable_grad() as nothing, m.set_grad_enabled(False):
            found.append(nothing)
        inner = m.enable_grad()
        with inner:
            found.append(inner.prev)
        found.append(m.set_grad_enabled(True).prev)
        m.set_grad_enabled(False)
    return found


@pytest.mark.parametrize("given", [1, "a", None, np.True_], ids=str)
def test_set_grad_enabled_takes_a_bool(given):
    like_pytorch(lambda m: m.set_grad_enabled(given))()
