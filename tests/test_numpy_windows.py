"""Forms of convolutions, of the largest and the mean elements of windows, and of images of other sizes: the bits of the plans that they stand for."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from test_numpy_forms import S, Shape, _numbers, _spec
from test_numpy_rows import assert_is_the_plan, bound_to

import torchgrad_jax as torch
from torchgrad_jax.declaration.derivative import plan
from torchgrad_jax.runtime.baseline import NumPyForm
from torchgrad_jax.runtime.baseline.convolutions import has_loops
from torchgrad_jax.runtime.compiling.foreign import CONVOLUTION, POOLING, TAPS, knows
from torchgrad_jax.runtime.operation import Signature

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]


def _call(x: Shape, w: Shape, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1, bias: bool = True) -> tuple[Any, ...]:
    dims = len(x) - 2
    return x, w, S(w[0]) if bias else None, *[(n,) * dims for n in (stride, padding, dilation)], False, (0,) * dims, groups


_CONVOLUTIONS = [
    _call(S(2, 3, 8, 9), S(4, 3, 3, 3), padding=1), _call(S(1, 1, 28, 28), S(6, 1, 5, 5)), _call(S(2, 4, 9, 9), S(4, 4, 3, 3), stride=2, padding=1),
    _call(S(2, 3, 12), S(5, 3, 3), padding=1, bias=False), _call(S(3, 4, 7, 7), S(2, 4, 1, 1)),
    _call(S(2, 4, 8, 8), S(4, 1, 3, 3), padding=1, groups=4), _call(S(2, 4, 8, 8), S(6, 2, 3, 3), stride=2, padding=1, groups=2),
    _call(S(1, 2, 11), S(3, 2, 3), padding=2, dilation=2), _call(S(1, 2, 5, 5, 5), S(2, 2, 3, 3, 3), padding=1),
    _call(S(2, 2, 19, 19), S(3, 2, 3, 3), stride=3), _call(S(2, 2, 16, 16), S(3, 2, 3, 3), stride=2, padding=1),
]  # fmt: skip
_UNLIKE = [
    _call(S(2, 3, 10), S(5, 3, 4), stride=3), _call(S(2, 2, 4, 4), S(3, 2, 4, 4)),
    _call(S(2, 3, 5), S(2, 3, 5), padding=4), _call(S(2, 2, 3, 3), S(2, 2, 3, 3), padding=2), _call(S(2, 2, 4), S(2, 2, 2), padding=3),
]  # fmt: skip
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "convolution": _CONVOLUTIONS,
    **dict.fromkeys(("_max_pool2d", "_max_pool2d_with_indices"), [
        (S(2, 3, 8, 9), (2, 2), (2, 2), (0, 0), (1, 1), False), (S(2, 3, 7, 7), (3, 3), (2, 2), (1, 1), (1, 1), False),
        (S(3, 7, 7), (2, 3), (2, 1), (1, 0), (1, 2), True), (S(1, 1, 2, 2), (2, 2), (1, 1), (0, 0), (1, 1), False),
    ]),
    **dict.fromkeys(("_max_pool3d", "_max_pool3d_with_indices"), [
        (S(2, 1, 4, 5, 6), (2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1), False), (S(1, 4, 4, 4), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), False),
    ]),
    "_avg_pool2d": [
        (S(2, 3, 8, 9), (2, 2), (2, 2), (0, 0), False, True, None), (S(2, 3, 7, 7), (3, 3), (2, 2), (1, 1), True, False, None),
        (S(3, 7, 7), (2, 3), (2, 1), (1, 0), True, True, 5), (S(1, 1, 2, 2), (2, 2), (1, 1), (0, 0), False, True, None),
    ],
    "_avg_pool3d": [(S(2, 1, 4, 5, 6), (2, 2, 2), (2, 2, 2), (0, 0, 1), False, True, None)],
    "_adaptive_avg_pool2d": [(S(2, 3, 8, 9), (4, 3)), (S(2, 3, 7, 8), (1, 1)), (S(3, 7, 5), (3, 4)), (S(1, 1, 2, 2), (5, 2))],
    "_adaptive_avg_pool3d": [(S(2, 3, 4, 5, 6), (2, 2, 6)), (S(3, 4, 5, 6), (1, 1, 1))],
    **{f"_upsample_{mode}": [
        (x, sizes, scales, re.sub("[123]d", "", mode).replace("_exact", "-exact"), corners)
        for x, sizes in calls for scales in (None, (1.7,) * len(sizes))
        for corners in ((False,) if mode.startswith("nearest") else (False, True))
    ] for modes, calls in (
        (("nearest1d", "nearest_exact1d", "linear1d"), [(S(2, 3, 5), (9,)), (S(2, 3, 9), (4,))]),
        (("nearest2d", "nearest_exact2d", "bilinear2d", "bicubic2d", "bilinear2d_aa", "bicubic2d_aa", "lanczos2d_aa"),
         [(S(2, 3, 4, 5), (8, 10)), (S(1, 2, 9, 7), (3, 7))]),
        (("nearest3d", "nearest_exact3d", "trilinear3d"), [(S(1, 2, 3, 4, 5), (6, 8, 3))]),
    ) for mode in modes},
}  # fmt: skip
_THERE = pytest.mark.skipif(not (has_loops() and knows(CONVOLUTION) and knows(POOLING) and knows(TAPS)), reason="the loops are not compiled")


@_THERE
@pytest.mark.parametrize("name", sorted(CALLS))
def test_form_gives_what_the_plan_gives(name):
    for call in CALLS[name]:
        assert_is_the_plan(*bound_to(name, call))
        if "max" in name:
            assert_is_the_plan(*bound_to(name, call, np.float64))


def _backward(sig: Signature, operands: list[Any], inputs: tuple[int, ...]) -> tuple[Signature, list[Any]]:
    made: Any = plan(sig, inputs)
    with np.errstate(all="ignore"):
        results = sig.baseline(*operands)  # type: ignore[misc]
    given = [_numbers(Shape(sig.avals[0].shape), np.dtype(np.float32), 7)]
    given += [results[-1 - place] if place < 0 else operands[place] for place in made.saves]
    return Signature(made.vjp_of((True,) * len(sig.avals)), tuple(map(_spec, given))), given


@_THERE
@pytest.mark.parametrize("call", _CONVOLUTIONS)
def test_gradients_of_a_convolution_are_those_of_the_plan(call):
    sig, operands = bound_to("convolution", call)
    tensors = tuple(range(len(operands)))
    for inputs in {tensors, (0,), (1,), tensors[1:]}:
        backward, given = _backward(sig, operands, inputs)
        if isinstance(backward.baseline, NumPyForm):
            assert_is_the_plan(backward, given)
        else:
            assert set(call[1][2:]) == {1}


@_THERE
@pytest.mark.parametrize("name", [name for name in sorted(CALLS) if name != "convolution" and not name.endswith("indices")])
def test_gradients_of_others_are_those_of_the_plan(name):
    for call in CALLS[name]:
        assert_is_the_plan(*_backward(*bound_to(name, call), (0,)))


@pytest.mark.parametrize("call", [*_UNLIKE, *_CONVOLUTIONS[4:8]])
def test_convolutions_are_right(call):
    torch.manual_seed(0)
    exact = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in call[:3]]
    assert torch.autograd.gradcheck(lambda *a: torch.convolution(*a, *call[3:]), exact)
    rounded = [tensor.detach().float().requires_grad_() for tensor in exact]
    made, want = torch.convolution(*rounded, *call[3:]), torch.convolution(*exact, *call[3:])
    torch.testing.assert_close(made.double(), want, rtol=1e-5, atol=1e-4)
    for found, wanted in zip(torch.autograd.grad(made.square().sum(), rounded), torch.autograd.grad(want.square().sum(), exact), strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-3)


@_THERE
def test_a_layer_of_another_size_is_not_traced(monkeypatch):
    def step(channels: int) -> None:
        nn = torch.nn
        layers = nn.Sequential(nn.Conv2d(2, channels, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(channels, 3, 3, stride=2, padding=1))
        layers(torch.randn(3, 2, 18, 20)).square().mean().backward()
        assert all(bool(p.grad.isfinite().all()) for p in layers.parameters())

    traced, trace = list[str](), Signature._trace
    monkeypatch.setattr(Signature, "_trace", lambda self: (traced.append(self.bop.name), trace(self))[1])
    step(4)
    step(5)
    assert not [name for name in traced if "onvolution" in name or "ool" in name]
