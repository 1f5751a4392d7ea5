"""Forms of normalization: the bits of the plans that they stand for until a program is run again and again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_numpy_forms import S, Shape, _numbers, _spec
from test_numpy_rows import assert_is_the_plan, bound_to

import torchgrad_jax as torch
from torchgrad_jax.declaration.derivative import plan
from torchgrad_jax.runtime.baseline import NumPyForm
from torchgrad_jax.runtime.compiling.foreign import ROWS, knows
from torchgrad_jax.runtime.operation import Signature

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]

_IMAGES = [S(4, 3), S(2, 3, 5), S(2, 3, 4, 5), S(1, 1, 2), S(3, 2, 2, 2, 2), S(7, 16, 8, 8), S(1, 3)]
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "native_batch_norm": [
        (x, w, b, m, v, 0.1, 1e-5)
        for x in _IMAGES
        for w, b, m, v in ((None,) * 4, (S(x[1]),) * 4, (S(x[1]), None, None, None), (None, S(x[1]), S(x[1]), S(x[1])))
    ],
    "native_group_norm": [
        (x, w, b, group, 1e-5) for x, group in ((S(4, 6), 2), (S(2, 6, 5), 3), (S(2, 4, 4, 5), 1), (S(3, 8, 6, 6), 4), (S(1, 2, 1), 2))
        for w, b in ((None, None), (S(x[1]), S(x[1])), (S(x[1]), None))
    ],
    **dict.fromkeys(("var", "std"), [
        (S(3, 4), (1,), None, False), (S(3, 4), None, 0, False), (S(3, 4), 0, 1, True), (S(2, 3, 4), (0, -1), 2.5, False), (S(5), (), None, True),
        (S(3, 1), 1, None, False), (S(3, 2), 1, 5, False), (S(40, 33), (0,), None, False),
    ]),
}  # fmt: skip
_LAYERS = [
    (S(3, 4), (4,), S(4), S(4), 1e-5), (S(3, 4), (4,), None, None, 1e-5), (S(3, 4), (4,), S(4), None, 0.1), (S(3, 4), (4,), None, S(4), 0.1),
    (S(2, 3, 5), (3, 5), S(3, 5), S(3, 5), 1e-5), (S(2, 3, 5), (5,), S(5), S(5), 1e-5), (S(6), (6,), S(6), S(6), 1e-5),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(CALLS))
def test_form_gives_what_the_plan_gives(name, dtype):
    for call in CALLS[name]:
        assert_is_the_plan(*bound_to(name, call, dtype))


@pytest.mark.parametrize(("name", "dtype"), [*[(n, d) for n in sorted(CALLS) for d in (np.float32, np.float64)], ("native_layer_norm", np.float32)])
def test_gradients_are_those_of_the_plan(name, dtype):
    if name == "native_layer_norm" and not knows(ROWS):
        pytest.skip("the loops are not compiled")
    for call in CALLS.get(name, _LAYERS):
        if call[0] == S(1, 3):
            continue  # nothing varies where there is one element, and 0 may be -0
        sig, operands = bound_to(name, call, dtype)
        with np.errstate(all="ignore"):
            results = sig.baseline(*[np.float64(x) if isinstance(x, float) else x for x in operands])  # type: ignore[misc]
        tensors = [i for i, s in enumerate(sig.bop.names) if s in ("self", "input", "weight", "bias")]
        for inputs in {(0,), tuple(tensors), tuple(tensors[1:])} - {()}:
            made: Any = plan(sig, inputs)
            backward = made.vjp_of((True, *(False,) * (len(sig.avals) - 1)))
            given = [_numbers(Shape(sig.avals[0].shape), np.dtype(dtype), 7)]
            given += [results[-1 - place] if place < 0 else operands[place] for place in made.saves]
            sig_of_gradient = Signature(backward, tuple(map(_spec, given)))
            if name == "native_layer_norm" and (call[2] is None) != (call[3] is None) and ("weight" not in [sig.bop.names[i] for i in inputs]):
                assert not isinstance(sig_of_gradient.baseline, NumPyForm)  # whether it is a weight or a bias that was saved is not known
            else:
                assert_is_the_plan(sig_of_gradient, given)


@pytest.mark.parametrize(("name", "call"), [
    ("native_batch_norm", (S(0, 3), None, None, None, None, 0.1, 1e-5)), ("native_group_norm", (S(0, 4, 2), None, None, 2, 1e-5)),
])  # fmt: skip
def test_what_has_no_elements_is_traced(name, call):
    assert not isinstance(bound_to(name, call)[0].baseline, NumPyForm)


def test_a_layer_of_another_size_is_not_traced(monkeypatch):
    torch.manual_seed(0)

    def step(channels: int) -> None:
        nn = torch.nn
        layers = nn.BatchNorm2d(channels), nn.GroupNorm(2, channels), nn.InstanceNorm2d(channels, affine=True)
        x = torch.randn(3, channels, 5, 4, requires_grad=True)
        found = sum(layer(x).square().sum() for layer in layers)
        found = found + nn.BatchNorm1d(channels)(x.mean((2, 3))).square().sum()
        found.backward()
        assert bool(x.grad.isfinite().all())

    step(4)
    traced, trace = list[str](), Signature._trace
    monkeypatch.setattr(Signature, "_trace", lambda self: (traced.append(self.bop.name), trace(self))[1])
    step(6)
    assert not [name for name in traced if "norm" in name or "Norm" in name]


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_move_the_same_in_every_run(momentum):
    torch.manual_seed(1)
    norm = torch.nn.BatchNorm1d(3, momentum=momentum)
    x = torch.randn(5, 3)
    want_mean, want_var = np.zeros(3), np.ones(3)
    for n in range(1, 30):
        norm(x)
        share = momentum or 1 / n
        want_mean = want_mean * (1 - share) + x.numpy().mean(0) * share
        want_var = want_var * (1 - share) + x.numpy().var(0, ddof=1) * share
        np.testing.assert_allclose(norm.running_mean.numpy(), want_mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(norm.running_var.numpy(), want_var, rtol=1e-5)
