"""The socket through which forward mode and function transforms carry out operations: `Recorder.level`."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

import torchgrad_jax as torch
from torchgrad_jax.core.level import Interpreter
from torchgrad_jax.core.through import Chained
from torchgrad_jax.runtime.recorder import per_thread


class Listening(Interpreter):
    """Notes what it is asked, and leaves it to dispatch."""

    def __init__(self):
        self.asked = []

    def apply(self, bound, operands):
        self.asked.append(("apply", bound.name))
        return super().apply(bound, operands)

    def apply_inplace(self, bound, operands):
        self.asked.append(("write", bound.name))
        return super().apply_inplace(bound, operands)

    def view_made(self, t, out, links, strides, offset):
        self.asked.append(("view", tuple(out.shape)))


class Doubling(Interpreter):
    """Gives twice each result, computed without itself."""

    def apply(self, bound, operands):
        rec = per_thread.recorder
        outer, rec.level = rec.level, None
        try:
            from torchgrad_jax.core.dispatch import apply

            return apply(bound, operands) * 2
        finally:
            rec.level = outer


@contextmanager
def level(interpreter):
    rec = per_thread.recorder
    rec.level, rec.rare = interpreter, rec.rare + 1
    try:
        yield interpreter
    finally:
        rec.level, rec.rare = None, rec.rare - 1


def test_every_way_of_calling_asks_it_first():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    with level(Listening()) as listening:
        y = x * x
        torch.sin(y)
        y.add_(1)
        y[0].neg_()
        torch.where(y > 0, y, x)
        torch.nn.functional.linear(x, x, x[0])
    names = [name for kind, name in listening.asked if kind == "apply"]
    assert {"mul", "sin", "select", "gt", "linear_addmm"} <= set(names)
    assert [name for kind, name in listening.asked if kind == "write"] == ["add", "neg"]
    assert ("view", (2,)) in listening.asked
    assert y.tolist() == [[-2.0, -5.0], [10.0, 17.0]]


def test_what_it_answers_is_the_result():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with level(Doubling()):
        y = x * x
    y.sum().backward()
    assert y.tolist() == [2.0, 8.0] and x.grad.tolist() == [4.0, 8.0]


def test_it_is_this_threads_alone():
    import threading

    found = []
    with level(Listening()) as listening:
        thread = threading.Thread(target=lambda: found.append((torch.ones(2) + 1).tolist()))
        thread.start()
        thread.join()
    assert found == [[2.0, 2.0]] and listening.asked == []


def test_an_error_in_it_leaves_nothing_behind():
    class Failing(Interpreter):
        def apply(self, bound, operands):
            raise RuntimeError("no")

    x = torch.ones(2)
    with pytest.raises(RuntimeError, match="no"), level(Failing()):
        x + 1
    assert (x + 1).tolist() == [2.0, 2.0]


def test_what_is_chained_hands_everything_on():
    own = {"notes", "without_tangents", "function_of_duals", "apply", "apply_inplace"}
    asked = {name for name in vars(Interpreter) if not name.startswith("_")} - own
    assert asked - set(vars(Chained)) == set()
