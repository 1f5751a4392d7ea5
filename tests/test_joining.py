"""Many tensors that are there already are joined at once, as PyTorch joins them; others are joined by the program that is pending."""

from __future__ import annotations

import random

import pytest
from side_by_side import like_pytorch

import torchgrad_jax as tj
from torchgrad_jax.runtime import counters
from torchgrad_jax.runtime.recorder import recorder

pytestmark = pytest.mark.operators


def rows(m, count=20):
    return [m.arange(6.0 * i, 6.0 * i + 6).reshape(2, 3) for i in range(count)]


@like_pytorch
def test_many_of_any_kind(m):
    x, found = rows(m), []
    for tensors in (x, [t.int() for t in x], [t > 3 for t in x], [t.bfloat16() for t in x], [t[:1] for t in x], [t[0] for t in x], x[:3] * 4):
        for join, dim in ((m.cat, 0), (m.cat, -1), (m.stack, 0), (m.stack, 1), (m.stack, -1), (m.hstack, None), (m.vstack, None)):
            y = join(tensors) if dim is None else join(tensors, dim)
            found.append([y, y.stride(), str(y.dtype), y.requires_grad, y.grad_fn is None, y._base is None])
    return found


@like_pytorch
def test_what_is_not_joined_at_once_is_joined_nevertheless(m):
    x, w = rows(m), m.ones(2, 3, requires_grad=True)
    found = [m.cat([*x[:8], x[8].double()]), m.cat([t.t() for t in x]), m.stack([t * 2 for t in x]), m.cat([m.zeros(0), *x]), m.stack([w, *x])]
    with m.no_grad():
        found.append(m.stack([w, *x]))
    out = m.zeros(40, 3)
    m.cat(x, out=out)
    found[4].sum().backward()
    for wrong in ([*x, m.ones(2, 4)], [*x, m.ones(3)]):
        for join in (m.cat, m.stack):
            with pytest.raises(RuntimeError) as error:
                join(wrong)
            found.append(str(error.value))
    return [*found, out, w.grad, [y.stride() for y in found[:6]], found[4].grad_fn.name()]


@like_pytorch
def test_what_was_joined_is_apart_from_what_it_was_joined_of(m):
    x = rows(m)
    for t in x:
        t.sum().item()
    y = m.stack(x)
    x[0].add_(1)
    y[1] = 7
    z = m.stack(x)
    y.requires_grad_()
    (y * y).sum().backward()
    return x, y, z, y.grad, y._version


def test_which_tensors_they_are_makes_no_new_program():
    states = [t.clone() for t in rows(tj, 100)]
    for t in states:
        t.sum().item()
    draw = random.Random(0)
    made = []
    for _ in range(12):
        x = tj.cat([states[draw.randrange(100)] for _ in range(30)])
        before = len(recorder().root.following())
        x.mul(2).sum().item()
        made.append(len(recorder().root.following()) - before)
    assert sum(made[1:]) == 0 and counters.interpreted > 0
