"""Operands whose shapes do not go together where they are not simply broadcast: refused in PyTorch's words, or taken as PyTorch takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torchgrad_jax as ours  # noqa: E402

pytestmark = [pytest.mark.operators]


def _numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).normal(size=shape), np.float32)


def _outcome(m: Any, call: Any, shapes: tuple[tuple[int, ...], ...], grad: bool) -> Any:
    given = [m.from_numpy(_numbers(shape, i)).requires_grad_(grad) for i, shape in enumerate(shapes)]
    try:
        made = call(m, m.nn.functional, *given)
    except Exception as error:  # noqa: BLE001 - whatever PyTorch raises
        return type(error), str(error)
    return made.detach().numpy()


def _hold_alike(call: Any, *shapes: tuple[int, ...], grad: bool = False) -> None:
    theirs, mine = _outcome(torch, call, shapes, grad), _outcome(ours, call, shapes, grad)
    if isinstance(theirs, tuple):
        assert mine == theirs
    else:
        assert isinstance(mine, np.ndarray), mine
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(("query", "key", "value"), [
    ((2, 4), (3, 5, 4), (3, 5, 4)), ((1, 2, 4), (3, 5, 4), (3, 5, 4)), ((2, 4), (5, 4), (3, 5, 4)), ((1, 1, 2, 4), (2, 1, 5, 4), (2, 1, 5, 4)),
    ((2, 1, 2, 4), (2, 3, 5, 4), (2, 3, 5, 4)), ((2, 3, 2, 4), (2, 1, 5, 4), (2, 1, 5, 4)), ((3, 2, 2, 4), (1, 2, 5, 4), (1, 2, 5, 4)),
    ((3, 2, 2, 4), (3, 2, 5, 4), (1, 2, 5, 4)), ((1, 2, 2, 4), (3, 2, 5, 4), (3, 2, 5, 4)), ((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 6)),
    ((1, 2, 3, 4), (1, 2, 5, 4), (2, 5, 4)), ((1, 1, 2, 4), (2, 1, 5, 4), (3, 1, 5, 4)), ((2, 2, 4), (3, 5, 4), (3, 5, 4)),
])  # fmt: skip
def test_attention(query, key, value, grad):
    _hold_alike(lambda t, f, q, k, v: f.scaled_dot_product_attention(q, k, v), query, key, value, grad=grad)


@pytest.mark.parametrize("mask", [(5,), (1,), (3, 1), (2, 1, 1), (4, 3, 5)])
@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 4), (2, 2, 3, 4)])
def test_masks_of_attention(shape, mask):
    key = (*shape[:-2], 5, 4)
    _hold_alike(lambda t, f, q, k, v, m: f.scaled_dot_product_attention(q, k, v, m), shape, key, key, mask)
    _hold_alike(lambda t, f, q, k, v, m: f.scaled_dot_product_attention(q, k, v, m > 0), shape, key, key, mask)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(("x", "weight", "bias"), [
    ((2, 3), (4, 3), (5, 2, 4)), ((2, 3), (4, 3), (1, 2, 4)), ((2, 2, 3), (4, 3), (1, 2, 2, 4)), ((3,), (4, 3), (2, 4)), ((2, 2, 3), (3,), (3, 2, 2)),
    ((2, 2, 3), (4, 3), (2, 1, 4)), ((2, 3), (4, 3), (2, 4)), ((2, 3), (4, 3), (1,)), ((3,), (4, 3), (1,)), ((1,), (1,), (3, 3, 0)),
])  # fmt: skip
def test_biases_of_linear(x, weight, bias, grad):
    _hold_alike(lambda t, f, x, w, b: f.linear(x, w, b), x, weight, bias, grad=grad)


LOSSES = {
    "binary_cross_entropy": lambda t, f, x, y, w: f.binary_cross_entropy(x.sigmoid(), y.sigmoid(), w),
    "with logits": lambda t, f, x, y, w: f.binary_cross_entropy_with_logits(x, y, w),
    "of positives": lambda t, f, x, y, w: f.binary_cross_entropy_with_logits(x, y, pos_weight=w),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    ("shape", "weight"), [((2,), (2, 2)), ((1, 1), (2, 1)), ((2, 3), (3,)), ((2, 3), (2, 1)), ((2, 3), (1, 2, 3)), ((2, 0), (2, 2, 0))]
)
def test_weights_of_losses(name, shape, weight):
    _hold_alike(LOSSES[name], shape, shape, weight)


@pytest.mark.parametrize("call", [
    lambda t, f, y: t.trapezoid(y, t.ones(1)), lambda t, f, y: t.cumulative_trapezoid(y, t.ones(2)), lambda t, f, y: t.trapezoid(y, t.arange(4.0)),
    lambda t, f, y: t.take(y[:, :0], t.zeros(2, dtype=t.int64)), lambda t, f, y: t.take(y[:, :0], t.zeros(0, dtype=t.int64)),
    lambda t, f, y: t.linalg.lstsq(y[0], y[0]).solution, lambda t, f, y: t.linalg.lstsq(y, y[0, 0]).solution,
    lambda t, f, y: f.unfold(y[None, :0], 2), lambda t, f, y: f.unfold(y[None, None, :0], 2), lambda t, f, y: f.unfold(y[None, None], 2),
    lambda t, f, y: f.pad(y[None, :, :0], (1, 1), mode="replicate"), lambda t, f, y: f.pad(y[:0], (1, 1), mode="reflect"),
    lambda t, f, y: f.pad(y[None][:0], (1, 1), mode="replicate"), lambda t, f, y: f.pad(y[None, None, :0], (1, 1, 0, 0), mode="replicate"),
    lambda t, f, y: y.index_copy(0, t.zeros(1, 2, dtype=t.int64), y[:1]),
])  # fmt: skip
def test_what_is_refused(call):
    _hold_alike(call, (3, 4))
