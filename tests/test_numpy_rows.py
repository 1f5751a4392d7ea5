"""Forms that stand for a plan until a program is run again and again: they give the plan's bits."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from test_numpy_forms import BFLOAT16, LAYOUTS, S, Shape, _bits, _laid_out, _numbers, _spec

import torchgrad_jax as torch
from torchgrad_jax.declaration.derivative import plan
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.baseline import NumPyForm
from torchgrad_jax.runtime.compiling.foreign import ATTENTION, ROWS, knows
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.recording.step import NUMBER_DTYPES

pytestmark = [pytest.mark.operators]

_ALONG = [(S(3, 4), 1), (S(3, 4), 0), (S(2, 3, 5), 1), (S(2, 3, 5), -1), (S(7), 0), (S(1, 1), 0), (S(40, 33), 1)]
_REDUCED = [
    (S(3, 4),), (S(3, 4), (1,)), (S(3, 4), 0, True), (S(3, 4), (-1,), True), (S(2, 3, 4), (0, 2)), (S(200, 150),), (S(7, 5), ()),
    (S(5, 1, 3), (0, 1), True),
]  # fmt: skip
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "softmax": _ALONG, "log_softmax": _ALONG, "_safe_softmax": [call for call in _ALONG if call[1] % len(call[0]) == len(call[0]) - 1],
    "native_layer_norm": [
        (S(3, 4), (4,), S(4), S(4), 1e-5), (S(3, 4), (4,), None, None, 1e-5), (S(3, 4), (4,), S(4), None, 0.1),
        (S(2, 3, 5), (3, 5), S(3, 5), S(3, 5), 1e-5),
        (S(2, 1, 1), (1, 1), None, None, 1e-5), (S(6), (6,), S(6), S(6), 1e-5),
    ],
    "mean": _REDUCED, "mean_dim": _REDUCED,
    **dict.fromkeys(("attention_fused", "attention_batched", "attention_single", "attention_rounded", "attention_empty"), [
        (S(2, 3, 4, 5), S(2, 3, 6, 5), S(2, 3, 6, 5), None, None, False, 0.5), (S(1, 2, 7, 8), S(1, 2, 7, 8), S(1, 2, 7, 8), None, None, True, 0.25),
        (S(1, 2, 3, 4), S(1, 2, 5, 4), S(1, 2, 5, 4), S(3, 5), None, False, 1.0),
        (S(2, 2, 3, 4), S(2, 2, 5, 4), S(2, 2, 5, 4), S(2, 1, 3, 5), None, False, 0.5),
        (S(2, 1, 3, 4), S(2, 1, 3, 4), S(2, 1, 3, 4), np.tri(3, dtype=bool), None, False, 0.5),
        (S(1, 1, 1, 1), S(1, 1, 1, 1), S(1, 1, 1, 1), None, None, False, 1.0),
    ]),
}  # fmt: skip
_SUMS = {"mean", "mean_dim"}


def bound_to(name: str, call: tuple[Any, ...], dtype: Any = np.float32) -> tuple[Signature, list[Any]]:
    seeds = iter(range(1, 9))
    made = [_numbers(a, np.dtype(dtype), next(seeds)) if isinstance(a, Shape) else a for a in call]
    bound, operands = registry[name].parse(tuple(made), {}, lambda v: isinstance(v, np.ndarray))
    return Signature(bound, tuple(map(_spec, operands))), operands


def assert_is_the_plan(sig: Signature, operands: list[Any]) -> None:
    form: Any = sig.baseline
    by_plan: Any = sig.in_lists if sig.baseline.planned else sig._plan()
    assert isinstance(form, NumPyForm), ("it was traced", sig.bop, sig.specs)
    assert not isinstance(by_plan, NumPyForm)
    with np.errstate(all="ignore"):
        for layout in LAYOUTS[:-1]:
            given = [_laid_out(x, layout) if isinstance(x, np.ndarray) else NUMBER_DTYPES[type(x)].type(x) for x in operands]
            before, want = [x.tobytes() for x in given], by_plan(*given)
            got = form(*given)
            assert [x.tobytes() for x in given] == before, "an operand was written to"
            assert [(g.shape, g.dtype) for g in got] == [(a.shape, a.dtype) for a in sig.avals] == [(w.shape, w.dtype) for w in want]
            assert [_bits(g, True) for g in got] == [_bits(np.asarray(w), True) for w in want], (sig.bop, sig.specs, layout)


def test_every_form_is_called():
    elsewhere = [importlib.import_module(f"test_numpy_{name}").CALLS for name in ("recurrent", "systems", "standardized", "windows", "new_sizes")]
    assert {name for calls in (CALLS, *elsewhere) for name in calls} >= {o.name for o in registry.values() if getattr(o.numpy, "planned", False)}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_form_gives_what_the_plan_gives(name):
    if name not in _SUMS and not (knows(ROWS) and knows(ATTENTION)):
        pytest.skip("the loops are not compiled")
    for call in CALLS[name]:
        assert_is_the_plan(*bound_to(name, call))
        if name in _SUMS:
            assert_is_the_plan(*bound_to(name, call, np.float64))


@pytest.mark.parametrize("name", sorted(name for name in CALLS if getattr(registry[name].numpy_vjp, "planned", False)))
def test_gradient_gives_what_the_plan_gives(name):
    if not knows(ROWS):
        pytest.skip("the loops are not compiled")
    for call in CALLS[name]:
        sig, operands = bound_to(name, call)
        found: Any = plan(sig, (0,))
        backward = found.vjp_of((True,))
        (result,) = sig.in_lists(*operands)  # type: ignore[misc]
        saved = [result if place < 0 else operands[place] for place in found.saves]
        given = [_numbers(Shape(sig.avals[0].shape), np.dtype(np.float32), 7), *saved]
        assert_is_the_plan(Signature(backward, tuple(map(_spec, given))), given)


@pytest.mark.parametrize(("name", "call"), [
    ("softmax", (S(0, 4), 1)), ("softmax", (S(), 0)), ("_safe_softmax", (S(3, 4), 0)), ("mean", (S(),)), ("mean", (S(1, 1),)), ("mean", (S(0, 2),)),
    ("attention_fused", (S(2, 4, 3, 5), S(2, 2, 3, 5), S(2, 2, 3, 5), None, None, False, 0.5)),
    ("attention_fused", (S(2, 2, 3, 5), S(2, 2, 3, 5), S(2, 2, 3, 5), None, np.ones((2, 2, 3, 3), np.float32), False, 0.5)),
    ("mean_dim", (S(3, 1), (1,))), ("native_layer_norm", (S(0, 4), (4,), None, None, 1e-5)),
])  # fmt: skip
def test_what_has_no_form_is_traced(name, call):
    assert not isinstance(bound_to(name, call)[0].baseline, NumPyForm)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16, np.float64])
def test_other_dtypes_are_traced(dtype):
    sig, _ = bound_to("log_softmax", (S(3, 4), 1), dtype)
    assert not isinstance(sig.baseline, NumPyForm)


def test_the_first_runs_have_the_bits_of_the_later_ones(interpreted):
    """The forms until the program is a list of calls, and then their plans."""
    torch.manual_seed(0)
    x = torch.randn(6, 5, requires_grad=True)
    weight = torch.randn(5, requires_grad=True)

    def step() -> list[bytes]:
        y = torch.nn.functional.layer_norm(x, (5,), weight).softmax(-1).log_softmax(0)
        gradients = torch.autograd.grad((y * y).mean() + y.mean(1).sum(), (x, weight))
        return [t.detach().numpy().tobytes() for t in (y, *gradients)]

    before = counters.compiled
    runs = [step() for _ in range(40)]
    assert counters.compiled == before
    assert all(run == runs[0] for run in runs)


def test_mean_of_integers_is_refused_at_new_sizes():
    for n in (3, 4):
        with pytest.raises(RuntimeError, match="could not infer output dtype"):
            torch.ones(n, 2, dtype=torch.int64).mean(0)


def test_the_plan_is_made_once():
    a, _ = bound_to("mean_dim", (S(3, 4), (1,)))
    assert a.in_lists is a.in_lists
    assert signature(a.bop, a.specs) is not a
