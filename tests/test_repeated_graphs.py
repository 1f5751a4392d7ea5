"""Graphs that were seen before are replayed: what may differ from one iteration to the next."""

from __future__ import annotations

import pytest

import torchgrad_jax as tj
from torchgrad_jax.runtime import execution_mode, keeping

pytest.importorskip("torch")

from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch


@like_pytorch
def test_hooks_added_between_iterations_run(m):
    w, seen = leaf(m, 1.0, 2.0), []
    for i in range(6):
        h = w * w
        if i in (3, 4):
            h.register_hook(lambda g: g * 10)
            h.grad_fn.register_hook(lambda gi, go: seen.append(gi[0]))
        (h * 3).sum().backward()
        seen.append(w.grad)
        w.grad = None
    return seen


@like_pytorch
def test_leaf_hooks_added_between_iterations_run(m):
    w, seen = leaf(m, 1.0, 2.0), []
    handles = []
    for i in range(8):
        if i == 3:
            handles.append(w.register_hook(lambda g: g * 10))
        if i == 4:
            handles.append(w.register_post_accumulate_grad_hook(lambda t: seen.append(("post", t.grad.clone()))))
        if i == 6:
            for h in handles:
                h.remove()
        (w * w).sum().backward()
        seen.append(w.grad)
        w.grad = None
    return seen


@like_pytorch
def test_accumulator_hooks_added_between_iterations_run(m):
    w, seen = leaf(m, 1.0, 2.0), []
    held = (w * 1).grad_fn.next_functions[0][0]
    for i in range(6):
        if i == 3:
            held.register_prehook(lambda go: (go[0] * 10,))
            held.register_hook(lambda gi, go: seen.append((len(gi), go)))
        (w * w).sum().backward()
        seen.append(w.grad)
        w.grad = None
    return seen


@like_pytorch
def test_an_error_at_a_leaf_frees_what_has_run_before(m):
    found = []

    def refuse(g):
        raise ValueError("no")

    for early in (False, True):
        a, b = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0)
        for i in range(5):
            x = a.sin()
            y = x * b
            out = y.exp().sum()
            hook = (b if early else a).register_hook(refuse) if i > 2 else None
            found.append((error_of(out.backward), [error_of(lambda t=t: t.grad_fn._saved_self) for t in (x, y)]))
            found += [error_of(out.backward), a.grad, b.grad]
            if hook is not None:
                hook.remove()
    return found


@like_pytorch
def test_sharing_among_saved_tensors_may_differ_between_iterations(m):
    a, b = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0)
    seen = []
    for i in range(8):
        left, right = (a, a) if i % 2 else (a, b)
        x = left.exp()
        y = x if i % 3 else right.exp()
        (x * y).sum().backward()
        seen += [a.grad, b.grad]
        a.grad = b.grad = None
    return seen


@like_pytorch
def test_numbers_may_change_between_iterations(m):
    w, seen = leaf(m, 1.0, 2.0), []
    for i in range(6):
        ((w * float(i)) ** 2 / (i + 1)).sum().backward()
        seen.append(w.grad)
        w.grad = None
    return seen


@like_pytorch
def test_equal_numbers_in_different_places_do_not_mix(m):
    w, seen = leaf(m, 1.0, 2.0), []
    for i in range(6):
        k = 2.0 if i % 2 else 3.0
        (w.mul(2.0).exp() * k).mul(2.0).sum().backward()
        seen.append(w.grad)
        w.grad = None
    return seen


@like_pytorch
def test_writing_to_a_saved_tensor_is_found_on_every_iteration(m):
    w, seen = leaf(m, 1.0, 2.0), []
    for i in range(6):
        x = w.exp()
        y = x * x
        if i in (3, 5):
            x.add_(1)
        seen.append(error_of(y.sum().backward))
        seen.append(w.grad)
        w.grad = None
    return seen


@like_pytorch
def test_freed_graphs_are_refused_on_every_iteration(m):
    w, seen = leaf(m, 1.0, 2.0), []
    for _ in range(4):
        y = w.exp().sum()
        y.backward()
        seen.append(error_of(y.backward))
    return seen, w.grad


@like_pytorch
def test_inputs_may_differ_between_iterations(m):
    a, b, seen = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0), []
    for i in range(8):
        h = a * b
        y = (h * h).sum()
        seen.append(m.autograd.grad(y, [[a], [b], [h], [b, a, b]][i % 4]))
    return seen, a.grad, b.grad


@like_pytorch
def test_retaining_grad_starts_and_stops_between_iterations(m):
    w, seen = leaf(m, 1.0, 2.0), []
    for i in range(6):
        h = w * w
        if i in (2, 3):
            h.retain_grad()
        h.sum().backward()
        if i in (2, 3):
            seen.append(h.grad)
    return seen, w.grad


@like_pytorch
def test_views_written_between_iterations(m):
    w, seen = leaf(m, 1.0, 2.0, 3.0), []
    for i in range(6):
        h = w * 1
        h[i % 3 :].mul_(10.0)
        (h * h).sum().backward()
        seen.append(w.grad)
        w.grad = None
    return seen


@like_pytorch
def test_create_graph_after_the_graph_was_seen(m):
    w, seen = leaf(m, 1.0, 2.0), []
    for i in range(6):
        y = (w * w * w).sum()
        (g,) = m.autograd.grad(y, w, create_graph=i >= 3)
        seen.append(g)
        if i >= 3:
            seen += m.autograd.grad(g.sum(), w)
    return seen


@like_pytorch
def test_accumulating_over_many_iterations(m):
    w = leaf(m, 1.0, 2.0)
    for _ in range(5):
        (w * w).sum().backward()
    return w.grad


def test_gradients_of_leaves_themselves_are_told_apart_by_shape_and_dtype():
    for shape in ((3,), (), (3, 1)):
        for dtype in (tj.float64, tj.float32):
            for _ in range(3):
                x = tj.ones(shape, dtype=dtype, requires_grad=True)
                (found,) = tj.autograd.grad([x, x], [x], [tj.full(shape, 2.0, dtype=dtype), tj.full(shape, 3.0, dtype=dtype)])
                assert found.shape == shape and found.dtype == dtype and bool((found == 5).all())


def test_a_loop_runs_the_program_of_its_second_turn_from_then_on():
    """What a pass is rehearsed with is let go of: whatever is held when a program is run is a result of it."""
    w, x = tj.rand(3, 3, requires_grad=True), tj.rand(2, 3)

    def turn():
        w.grad = None
        loss = ((x @ w).tanh() @ w).square().sum()
        loss.backward()
        return loss.item()

    with execution_mode("fused"):
        turn()
        turn()
        met = keeping.now
        assert turn() == turn() and keeping.now == met


MIRRORED = (
    lambda m, a, b: a * b.sin(),
    lambda m, a, b: a.sin() * b,
    lambda m, a, b: m.stack([a, b.exp()]),
    lambda m, a, b: m.stack([a.exp(), b]),
    lambda m, a, b: a / (b * b),
    lambda m, a, b: (a * a) / b,
)


@like_pytorch
def test_graphs_that_differ_in_which_operand_is_a_leaf_are_told_apart(m):
    found = []
    for _ in range(3):
        for program in MIRRORED:
            a, b = leaf(m, 1.0, 2.0), leaf(m, 0.5, 0.25)
            made = program(m, a, b)
            made.backward(m.ones_like(made), retain_graph=True)
            found += [a.grad, b.grad, m.autograd.grad(made, [a, b], m.ones_like(made))]
    return found


@like_pytorch
def test_passes_that_begin_at_a_leaf_and_at_a_result_are_told_apart(m):
    found = []
    for _ in range(3):
        for swapped in (False, True):
            a, b = leaf(m, 1.0, 2.0), leaf(m, 0.5, 0.25)
            m.autograd.backward([a.sin(), b] if swapped else [a, b.sin()], [m.ones(2), 2 * m.ones(2)])
            found += [a.grad, b.grad]
    return found


@like_pytorch
def test_graphs_that_differ_in_which_operand_leads_nowhere_are_told_apart(m):
    def unfollowed(x):
        with m.no_grad():
            return x[0]

    found = []
    for _ in range(3):
        a, b = leaf(m, 1.0, 2.0), leaf(m, 0.5)
        (a * unfollowed(b)).sum().backward()
        c, d = leaf(m, [1.0, 2.0]), m.tensor(0.5, dtype=m.float64, requires_grad=True)
        (unfollowed(c) * d).sum().backward()
        found += [a.grad, b.grad, c.grad, d.grad]
    return found
