"""`register_multi_grad_hook`, and what a running backward pass says of itself."""

from __future__ import annotations

import threading

import pytest

import torchgrad_jax as tj

pytest.importorskip("torch")

from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch


def tensors(m):
    a, b = leaf(m, 1.0, 1.0), leaf(m, 1.0, 1.0)
    c = a * b
    return a, b, c, c * b


def values(grads):
    return [None if g is None else g.tolist() for g in grads]


@like_pytorch
def test_all_mode_waits_for_every_gradient_that_the_pass_computes(m):
    a, b, c, d = tensors(m)
    log = []
    m.autograd.graph.register_multi_grad_hook((a, b, c, c), lambda grads: log.append(values(grads)))
    d.sum().backward(retain_graph=True)
    c.sum().backward(retain_graph=True)
    (a * 2).sum().backward()
    m.autograd.grad(d.sum(), c, retain_graph=True)
    return log


@like_pytorch
def test_all_mode_cannot_tell_whether_a_leaf_counts_in_grad(m):
    a, b, c, d = tensors(m)
    m.autograd.graph.register_multi_grad_hook((a, b, c), lambda grads: None)
    return error_of(lambda: m.autograd.grad(d.sum(), a)), error_of(lambda: m.autograd.grad(d.sum(), (a, b)))


@like_pytorch
def test_any_mode_runs_once_a_pass_with_the_first_gradient(m):
    a, b, c, d = tensors(m)
    log = []
    m.autograd.graph.register_multi_grad_hook((a, b, c), lambda g: log.append(g.tolist()), mode="any")
    d.sum().backward(retain_graph=True)
    m.autograd.grad(d.sum(), (a, b), retain_graph=True)
    m.autograd.grad(d.sum(), b, retain_graph=True)
    return log


@pytest.mark.parametrize("mode", ["all", "any"])
def test_what_the_hook_returns_is_not_used(mode):
    a = leaf(tj, 1.0)
    tj.autograd.graph.register_multi_grad_hook((a,), lambda g: tj.ones(1) * 5, mode=mode)
    (a * 2).sum().backward()
    assert a.grad.tolist() == [2.0]


@like_pytorch
def test_the_handle_removes_all_of_it(m):
    a, b, c, d = tensors(m)
    log = []
    with m.autograd.graph.register_multi_grad_hook((a, b), lambda grads: log.append("within")):
        d.sum().backward(retain_graph=True)
    d.sum().backward(retain_graph=True)
    handle = m.autograd.graph.register_multi_grad_hook((a, c), lambda grads: log.append("handle"), mode="any")
    d.sum().backward(retain_graph=True)
    handle.remove()
    d.sum().backward()
    return log


@like_pytorch
def test_wrong_modes_and_tensors_without_gradient_are_refused(m):
    register = m.autograd.graph.register_multi_grad_hook
    return error_of(lambda: register((leaf(m, 1.0),), print, mode="some")), error_of(lambda: register((leaf(m, 1.0), m.ones(1)), print))


@like_pytorch
def test_an_error_in_the_hook_is_the_users_and_the_next_pass_begins_anew(m):
    a, b, c, d = tensors(m)
    log = []

    def hook(grads):
        log.append(len(grads))
        if len(log) == 1:
            raise KeyError("mine")

    m.autograd.graph.register_multi_grad_hook((a, b, c), hook)
    return error_of(lambda: d.sum().backward(retain_graph=True)), d.sum().backward(retain_graph=True), log


def test_passes_of_several_threads_are_counted_apart():
    a, b = leaf(tj, 1.0), leaf(tj, 2.0)
    calls = []
    tj.autograd.graph.register_multi_grad_hook((a, b), lambda g: calls.append("any"), mode="any")
    tj.autograd.graph.register_multi_grad_hook((a, b), lambda grads: calls.append("all"))
    out = (a * b).sum()
    threads = [threading.Thread(target=lambda: out.backward(inputs=(a, b), retain_graph=True)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(calls) == ["all"] * 6 + ["any"] * 6
    assert a.grad.tolist() == [12.0]


@like_pytorch
def test_a_pass_has_a_number_of_its_own(m):
    a = leaf(m, 1.0)
    seen = []
    a.register_hook(lambda g: seen.append(m._C._current_graph_task_id()))
    (a * 2).sum().backward()
    (a * 2).sum().backward()
    return seen[1] - seen[0], m._C._current_graph_task_id()


@like_pytorch
def test_a_pass_tells_which_nodes_it_reaches(m):
    a, b, c, d = tensors(m)
    other, seen = (a * 3).grad_fn, []
    accumulator = c.grad_fn.next_functions[0][0]
    will = m._C._will_engine_execute_node
    c.register_hook(lambda g: seen.append([will(n) for n in (d.grad_fn, c.grad_fn, accumulator, other)]))
    d.sum().backward(retain_graph=True)
    m.autograd.grad(d.sum(), c, retain_graph=True)
    return seen, error_of(lambda: will(d.grad_fn))


@like_pytorch
def test_callbacks_run_at_the_end_of_the_pass_and_may_add_more(m):
    queue = m.autograd.Variable._execution_engine.queue_callback
    a, log = leaf(m, 1.0), []
    b = a * 2

    def last():
        log.append("first callback")
        queue(lambda: log.append("second callback"))

    b.register_hook(lambda g: queue(last))
    a.register_post_accumulate_grad_hook(lambda t: log.append("accumulated"))
    b.sum().backward()
    return log, error_of(lambda: queue(last))
