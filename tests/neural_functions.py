"""Functions of neural networks on the same inputs in PyTorch and here: values, graphs, first and second derivatives, compared together."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torchgrad_jax as ours  # noqa: E402
from torchgrad_jax.nn import activation, dot_product, dropout, linear, normalization  # noqa: E402

MODULES = (activation, dot_product, dropout, linear, normalization)
OURS = SimpleNamespace(**{name: getattr(module, name) for module in MODULES for name in module.__all__})
THEIRS = torch.nn.functional
INF, NAN = math.inf, math.nan
SPECIAL = np.array([-INF, -100, -30, -3, -1, -0.5, -0.0, 0.0, 0.5, 1, 3, 6, 20, 21, 100, INF, NAN])
PLAIN = np.array([-30, -4, -2.5, -1.25, -0.75, -0.2, 0.1, 0.3, 0.8, 1.7, 2.2, 4.5, 7, 19, 22])
MASK = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]], bool)

Function = Callable[..., Any]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal samples that depend on the shape and the seed alone."""
    return np.random.default_rng([seed, len(shape), *shape]).standard_normal(shape)


def outcome(function: Function, t: Any, f: Any, tensors: list[Any]) -> Any:
    """The result, or the exception."""
    try:
        return function(t, f, *tensors)
    except Exception as error:
        return error


def array(x: Any) -> np.ndarray:
    """The content as float64, whatever the dtype."""
    return (x.detach().double() if x.dtype.is_floating_point else x.detach()).numpy()


def name_of(node: Any) -> str | None:
    return None if node is None else node.name().removeprefix("torch::autograd::")


def same(a: Any, b: Any, rtol: float, what: str) -> None:
    """Equal values, shape and dtype."""
    if a is None or b is None:
        assert a is None and b is None, what
        return
    assert str(a.dtype) == str(b.dtype), what
    assert tuple(a.shape) == tuple(b.shape), what
    np.testing.assert_allclose(array(b), array(a), rtol=rtol, atol=rtol, equal_nan=True, err_msg=what)


class Case:
    """One function on the same inputs in PyTorch and here. `second`: with second derivatives; `node`: grad_fn names are compared."""

    def __init__(self, function: Function, arrays: tuple[np.ndarray, ...], rtol: float, second: bool, dtype: str, node: bool) -> None:
        self.rtol, self.second, self.node = rtol, second, node
        self.inputs: list[list[Any]] = []
        self.outcomes: list[Any] = []
        for t, f in SIDES:
            tensors = [t.tensor(x) if x.dtype.kind != "f" else t.tensor(x, dtype=getattr(t, dtype), requires_grad=True) for x in arrays]
            self.inputs.append([x for x in tensors if x.requires_grad])
            self.outcomes.append(outcome(function, t, f, tensors))

    def tracked(self) -> bool:
        """Whether there are gradients to compare; the error, dtype and graph have been compared then."""
        a, b = self.outcomes
        if isinstance(a, Exception):
            assert (type(b), str(b)) == (type(a), str(a))
            return False
        if isinstance(b, Exception):
            raise b
        assert a.requires_grad == b.requires_grad
        if self.node:
            assert name_of(b.grad_fn) == name_of(a.grad_fn)
        return a.requires_grad


SIDES = ((torch, THEIRS), (ours, OURS))
pending: list[Case] = []


def compare(function: Function, *arrays: np.ndarray, rtol: float = 1e-9, second: bool = True, dtype: str = "float64", node: bool = True) -> None:
    """Value, dtype, shape, grad_fn, first and second gradients of all floating inputs; or the error. Looked at when the test ends, so that
    a test is a program or two and not a hundred."""
    pending.append(Case(function, arrays, rtol, second, dtype, node))


def settle() -> None:
    """Compare what is pending."""
    cases = pending[:]
    pending.clear()
    tracked = [c for c in cases if c.tracked()]
    for second in (False, True):
        group = [c for c in tracked if c.second == second]
        if group:
            gradients = [derivatives(t, side, group, second) for side, (t, _) in enumerate(SIDES)]
            for c, (what, p), (_, q) in zip([group[i] for i in gradients[0][1]], gradients[0][0], gradients[1][0], strict=True):
                if p is None or q is None:
                    assert all(not array(x).any() for x in (p, q) if x is not None), what
                else:
                    same(p, q, c.rtol * 100, what)
    for c in cases:
        if not isinstance(c.outcomes[0], Exception):
            same(*c.outcomes, c.rtol, "value")


def derivatives(t: Any, side: int, group: list[Case], second: bool) -> tuple[list[tuple[str, Any]], list[int]]:
    """The first and, with `second`, the second derivatives of all cases, by one pass each; and whose each is."""
    outs = [c.outcomes[side] for c in group]
    cotangents = [t.tensor(normal(*y.shape, seed=9), dtype=y.dtype, requires_grad=True) for y in outs]
    inputs = [x for c in group for x in c.inputs[side]]
    owners = [i for i, c in enumerate(group) for _ in c.inputs[side]]
    first = t.autograd.grad(outs, inputs, cotangents, create_graph=second, allow_unused=True)
    found = [("gradient", g) for g in first]
    if second:
        sources = [g for g in first if g is not None and g.requires_grad]
        weights = [t.tensor(normal(*g.shape, seed=7), dtype=g.dtype) for g in sources]
        again = t.autograd.grad(sources, [*inputs, *cotangents], weights, allow_unused=True)
        found += [("second gradient", g) for g in again]
        owners = owners * 2 + list(range(len(group)))
    return found, owners


def batched(test: Any) -> Any:
    """A test whose comparisons are looked at together."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        pending.clear()
        test(*args, **kwargs)
        settle()

    return run
