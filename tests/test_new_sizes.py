"""Operators at sizes that they were not called with before: their values and gradients, to the second, are PyTorch's, by forms and by plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.runtime.operation import Signature

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.operators


class Case(NamedTuple):
    """program: of the library and tensors of `shapes` of a size. constants: of the library and the size, what it is given besides. twice: whether
    PyTorch has a second gradient. traced: what is traced for each size nevertheless."""

    program: Callable[..., Any]
    shapes: Callable[[int], list[tuple[int, ...]]]
    constants: Callable[[Any, int], list[Any]] = lambda lib, n: []
    twice: bool = True
    traced: tuple[str, ...] = ()


CASES: dict[str, Case] = {
    "trace": Case(lambda lib, x: lib.trace(x), lambda n: [(n, n + 2)]),
    "masked_select": Case(lambda lib, x, mask: x.masked_select(mask).square(), lambda n: [(n, 4)], lambda lib, n: [_mask(lib, n)]),
    "masked_select_expanded": Case(lambda lib, x, mask: x.masked_select(mask).square(), lambda n: [(4,)], lambda lib, n: [_mask(lib, n)]),
    "index_fill": Case(lambda lib, x: x.index_fill(0, lib.tensor([0, -1]), 1.5).square(), lambda n: [(n, 4)]),
    "index_fill_tensor": Case(lambda lib, x, v: x.index_fill(1, lib.tensor([2]), v).square(), lambda n: [(4, n), ()]),
}


def _mask(lib: Any, n: int) -> Any:
    return lib.arange(4 * n).reshape(n, 4) % 3 == 1


def _tensors(lib: Any, case: Case, n: int) -> list[Any]:
    random = np.random.default_rng(n)
    return [lib.tensor(random.normal(size=shape).astype(np.float32).tolist(), requires_grad=True) for shape in case.shapes(n)]


def _run(lib: Any, case: Case, n: int) -> list[Any]:
    """What a program gives, its gradients, and the gradients of a sum of these."""
    tensors = _tensors(lib, case, n)
    out = case.program(lib, *tensors, *case.constants(lib, n))
    weights = lib.linspace(-1, 2, out.numel()).reshape(out.shape)
    first = lib.autograd.grad((out * weights).sum(), tensors, create_graph=case.twice)
    found = [out, *first]
    if case.twice and any(g.requires_grad for g in first):
        total = sum((g * lib.linspace(1, 2, g.numel()).reshape(g.shape)).sum() for g in first)
        found += lib.autograd.grad(total, tensors, allow_unused=True)
    return [None if x is None else np.array(x.detach().tolist()) for x in found]


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("planned", [False, True])
def test_values_and_gradients_are_pytorchs(name, planned, monkeypatch):
    if planned:
        monkeypatch.setattr(Signature, "_by_numpy", lambda self, forms, kind=None: False)
        tj.declaration.operator.forget_signatures()
    case = CASES[name]
    for n in (5, 6):
        for got, want in zip(_run(tj, case, n), _run(torch, case, n), strict=True):
            if want is None:
                assert got is None or not np.any(got)
            else:
                np.testing.assert_allclose(np.zeros_like(want) if got is None else got, want, rtol=2e-4, atol=2e-5, equal_nan=True)
    if planned:
        monkeypatch.undo()
        tj.declaration.operator.forget_signatures()


@pytest.mark.parametrize("name", sorted(CASES))
def test_another_size_is_not_traced(name, monkeypatch):
    def step(n: int) -> None:
        case = CASES[name]
        tensors = _tensors(tj, case, n)
        case.program(tj, *tensors, *case.constants(tj, n)).sum().backward()
        assert all(x.grad.shape == x.shape and x.grad.tolist() is not None for x in tensors)

    for n in (9, 10, 11):
        step(n)
    traced, trace = list[str](), Signature._trace
    monkeypatch.setattr(Signature, "_trace", lambda sig: (traced.append(sig.bop.name), trace(sig))[1])
    for n in (13, 15):
        step(n)
    assert set(traced) <= set(CASES[name].traced)
