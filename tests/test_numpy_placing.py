"""The forms of what writes at places and selects along a dimension, and of gradients that go back there, against their JAX functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_numpy_forms import DTYPES, LAYOUTS, PLACED, Places, S, _bits, _bound, _laid_out, _number, _numbers, _spec

import torchgrad_jax as torch
from torchgrad_jax.declaration.derivative import plan
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.baseline import NumPyForm
from torchgrad_jax.runtime.compiling.foreign import ALONG, knows
from torchgrad_jax.runtime.operation import Signature

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]

F32, F64, F16 = (np.dtype(d) for d in (np.float32, np.float64, np.float16))
FLOATS = [F32, F64]
NUMBERS = [d for d in DTYPES if d.kind in "iuf"]

# One place several times, places beside each other alone, narrower indices than what is written, other integers, one element, a middle dimension.
_ALONG = [
    (S(3, 4), 1, Places((3, 6), 0, 4)), (S(3, 4), 0, Places((2, 3), 0, 3)), (S(2, 3, 4), 2, Places((1, 3, 2), 0, 4)), (S(3), 0, Places((5,), 0, 3)),
    (S(2, 3, 4), 1, Places((2, 9, 4), 0, 3)), (S(1), 0, Places((1,), 0, 1)), (S(3, 4), 1, Places((3, 6), 0, 4, np.int32)),
]  # fmt: skip
_NOT_ALONG = [(S(3, 4), 1, Places((3, 6), 0, 5)), (S(3, 4), 0, Places((2, 3), -1, 3))]
_WIDER = (S(3, 4), 1, Places((2, 3), 0, 4), S(3, 5))
_REDUCED = ("sum", "mean", "amax", "amin", "prod")


def _with_source(calls: list[Any]) -> list[Any]:
    return [(*call, S(*call[2].shape)) for call in calls]


def _by_tensor(calls: list[Any]) -> list[Any]:
    return [(*call[:-1], S()) for call in calls]


def _reduced(calls: list[Any]) -> list[Any]:
    return [(*call, how, kept) for call in calls for how in _REDUCED for kept in (True, False)]


_SOURCE, _NO_SOURCE = [*_with_source(_ALONG), _WIDER], _with_source(_NOT_ALONG)
_FILLED = [
    (S(3, 4), 0, Places((2,), -3, 3), 2.5), (S(2, 3, 4), 1, Places((3,), -3, 3, np.int32), 1.0), (S(3, 4), 1, Places((), 0, 4), 1.0),
    (S(5), 0, Places((0,), 0, 5), 1.0),
]  # fmt: skip
_NOT_FILLED = [(S(3, 4), 0, Places((3,), -4, 3), 2.5), (S(3, 4), 1, Places((2,), 0, 5), 2.5)]
_VALUE = [(*call, 2.5) for call in _ALONG]
_NO_VALUE = [(*call, 2.5) for call in _NOT_ALONG]
_AROUND = [
    (S(3, 4), 1, Places((3, 6), -4, 4)),
    (S(2, 3, 4), 1, Places((2, 1, 4), -3, 3)),
    (S(3, 4), 0, Places((2, 3), 0, 9)),
    (S(3), 0, Places((5,), -3, 3)),
]
_LINES: list[Any] = [(S(3, 7), 1), (S(5, 2, 3), 0), (S(2, 3, 4), -2), (S(9), 0), (S(1, 4), 0), (S(40), -1)]
_KEPT = [(*call, kept) for call in _LINES for kept in (False, True)]
_KTH = [(x, k, dim, kept) for x, dim, kept in _KEPT for k in {1, x[dim], x[dim] // 2 + 1}]
_BAGS = np.array([0, 0, 2, -1, 2, 2])
_BAGGED = [
    (S(5, 3), Places((6,), 0, 5), _BAGS, None, 4, how, -1, False) for how in ("sum", "mean")
] + [
    (S(5, 3), Places((6,), 0, 5), _BAGS, S(6), 4, "sum", 2, False),
    (S(5, 3), Places((3,), 0, 5, np.int32), np.array([0, 0, 0]), None, 1, "mean", 0, False),
    (S(1, 1), Places((1,), 0, 1), np.array([0]), None, 1, "sum", -1, False),
]  # fmt: skip
_NOT_BAGGED = [(S(5, 3), Places((6,), 0, 6), _BAGS, None, 4, "sum", -1, False), (S(5, 3), Places((6,), -2, 5), _BAGS, None, 4, "mean", -1, False)]
_LARGEST = [(*call[:5], "max", *call[6:]) for call in (_BAGGED[0], _BAGGED[3])]
_MASK = np.arange(12).reshape(3, 4) % 3 == 0
_MASKED = [
    (S(3, 4), _MASK, S(5)), (S(3, 4), _MASK, S(4)), (S(3, 4), _MASK, S(3)), (S(3, 4), np.array([True, False, True, True]), S(3, 4)),
    (S(4), _MASK, S(2, 4)), (S(3, 4), np.zeros((3, 4), bool), S(1)), (S(), np.array(True), S(1)),
]  # fmt: skip
_STRIDED = [
    (S(3, 4), S(2, 3), (2, 3), (1, 2), 3),
    (S(12), S(3), (3,), (0,), 5),
    (S(3, 4), S(), (), (), 7),
    (S(2, 5), S(2, 2, 2), (2, 2, 2), (5, 1, 2), 1),
]
_TIED = np.array([[2.0, -0.0, 2.0, 0.0, np.nan, 1.0, 1.0], [np.nan, np.nan, 3.0, 3.0, 3.0, 1.0, 1.0]], np.float32)
_COUNTED = np.array([[0.0, 1.0, 2.5, -3.0], [4.0, 4.0, np.inf, np.nan]], np.float32)

# Of each operator the dtypes of its operands, and calls. The first one is made with all of the dtypes.
CALLS: dict[str, tuple[list[np.dtype], list[Any]]] = {
    "scatter_src": (DTYPES, _SOURCE), "scatter_src_checked": (DTYPES, [*_SOURCE, *_NO_SOURCE]),
    "index_fill_scalar": (DTYPES, _FILLED), "index_fill_scalar_checked": (DTYPES, [*_FILLED, *_NOT_FILLED]),
    "index_fill_tensor": (DTYPES, _by_tensor(_FILLED)), "index_fill_tensor_checked": (DTYPES, _by_tensor([*_FILLED, *_NOT_FILLED])),
    "scatter_value": (FLOATS, _VALUE), "scatter_value_checked": (FLOATS, [*_VALUE, *_NO_VALUE]),
    "scatter_reduce": (FLOATS, _reduced(_SOURCE)), "scatter_reduce_checked": (FLOATS, _reduced([*_SOURCE, *_NO_SOURCE])),
    "scatter_reduced": (FLOATS, [call[:-1] for call in _reduced(_SOURCE)]),
    "scatter_reduced_checked": (FLOATS, [call[:-1] for call in _reduced([*_SOURCE, *_NO_SOURCE])]),
    "take_along_dim": (DTYPES, _AROUND), "logcumsumexp": (FLOATS, _LINES), "cummax": (FLOATS, [*_LINES, (_TIED, 1)]),
    "cummin": (FLOATS, [*_LINES, (_TIED, 1)]),
    **dict.fromkeys(("max_dim", "min_dim"), (FLOATS, [*_KEPT, (_TIED, 1, False), (_TIED, 1, True), (_TIED, 0, False)])),
    "kthvalue": (FLOATS, [*_KTH, *[(_TIED, k, 1, False) for k in range(1, 8)]]), "median_dim": (FLOATS, [*_KEPT, (_TIED, 1, False)]),
    "nanmedian_dim": (FLOATS, [*_KEPT, (_TIED, 1, False), (np.full((2, 3), np.nan), 1, True)]),
    "mode": (NUMBERS, [*_KEPT, (_TIED, 1, False), (_TIED, 1, True), (_TIED, 0, False)]),
    "_one_hot": (FLOATS, [(Places((4,), 0, 5), 5), (Places((2, 3), 0, 9), 12), (Places((), 0, 3), 3), (Places((0,), 0, 1), 2)]),
    "_histc": (FLOATS, [(_COUNTED[0], 5, 0.0, 0.0), (_COUNTED, 4, -1.0, 4.0), (_COUNTED, 4, 0.0, 0.0), (np.ones((2, 2)), 3, 0.0, 0.0),
                        (S(3, 4), 7, -2.0, 3.0)]),
    "masked_scatter": (DTYPES, _MASKED), "as_strided_scatter": (DTYPES, _STRIDED),
    "embedding_bag": (FLOATS, _BAGGED), "embedding_bag_checked": (FLOATS, [*_BAGGED, *_NOT_BAGGED]),
    "embedding_bag_max": (FLOATS, _LARGEST), "embedding_bag_max_checked": (FLOATS, _LARGEST),
}  # fmt: skip

_ONES = [(S(3, 4),), (S(),), (S(0, 2),)]
_SELECTED = [call for call in _KEPT if call[0] != (1, 4)]
_PUT = [
    (S(3, 4), S(5, 4), [Places((5,), -3, 3)], (0,), False), (S(3, 4), S(2, 3, 4), [Places((2, 3), 0, 3, np.int32)], (0,), False),
    (S(3, 4), S(5), [Places((5,), -3, 3), Places((1,), -4, 4)], (0, 1), False), (S(6), S(9), [Places((9,), -6, 6)], (0,), False),
    (S(3, 4), S(3, 5), [Places((5,), -4, 4)], (1,), False),
]  # fmt: skip
_PUT += [(*call[:-1], True) for call in _PUT]
_FACTORS = np.array([[1.5, -2.0, 4.0], [8.0, 0.5, -1.0]], np.float32)  # of which all quotients are exact
_MANY = np.random.default_rng(0).uniform(0.5, 1.5, (3, 150)).astype(np.float32)
_MANY[0, 7] = _MANY[1, [3, 100]] = 0
_PRODUCTS: list[Any] = [(S(3, 4), 1), (S(3, 4), 0, True), (S(2, 3, 4), -2), (S(1), 0), (_FACTORS, 1), (_FACTORS, 0, True), (_MANY, 1), (_MANY.T, 0)]
# Of each gradient with a form of its own: what it is of, calls of that, and the operands that may have one.
GRADIENTS: dict[str, tuple[list[Any], list[tuple[int, ...]]]] = {
    **dict.fromkeys(("sign", "floor", "ceil", "trunc", "zero"), (_ONES, [(0,)])),
    "round": ([*_ONES, (S(3, 4), {"decimals": 1})], [(0,)]), "special_round": ([(S(3, 4), {"decimals": 1})], [(0,)]),
    **dict.fromkeys(("scatter_src", "scatter_src_checked", "scatter_add", "scatter_add_checked"), (_SOURCE, [(0,), (2,), (0, 2)])),
    **dict.fromkeys(("scatter_value", "scatter_value_checked"), (_VALUE, [(0,)])),
    **dict.fromkeys(("scatter_reduce", "scatter_reduce_checked"), ([c for c in _reduced(_SOURCE) if c[-2] != "prod"], [(0,), (2,), (0, 2)])),
    "take_along_dim": (_AROUND, [(0,)]), **dict.fromkeys(("index_fill_scalar", "index_fill_scalar_checked"), (_FILLED, [(0,)])),
    **dict.fromkeys(("index_fill_tensor", "index_fill_tensor_checked"), (_by_tensor(_FILLED), [(0,), (2,), (0, 2)])),
    **dict.fromkeys(("index_put", "index_put_checked"), (_PUT, [(0,), (1,), (0, 1)])),
    **dict.fromkeys(("max_dim", "min_dim", "median_dim", "nanmedian_dim", "mode"), ([*_KEPT, (_TIED, 1, False)], [(0,)])),
    **dict.fromkeys(("median", "nanmedian"), ([(S(3, 4),), (S(),), (_TIED,), (_TIED[0],)], [(0,)])),
    **dict.fromkeys(("_adaptive_max_pool2d",), ([(S(2, 3, 5, 7), (2, 3)), (S(3, 4, 4), (4, 2))], [(0,)])),
    **dict.fromkeys(("_adaptive_max_pool3d",), ([(S(2, 3, 5, 4, 3), (2, 3, 1))], [(0,)])),
    "_trilinear": ([(S(3, 4), S(5, 4, 2), S(3, 2))], [(0,), (1,), (2,), (0, 1, 2), (0, 2)]),
    "_cdist": ([(S(3, 4), S(5, 4), 2.0, False), (S(2, 3, 4), S(2, 5, 4), 2.0, False)], [(0,), (1,), (0, 1)]),
    "_euclidean_dist": ([(S(3, 4), S(5, 4)), (S(2, 3, 4), S(2, 5, 4))], [(0,), (1,), (0, 1)]),
    "kthvalue": (_KTH, [(0,)]), "topk": ([(S(3, 7), 3, 1), (S(5, 2), 2, 0, False), (S(1), 1), (S(9), 9)], [(0,)]),
    **dict.fromkeys(("sort", "sort_stable"), ([(*call, True) for call in _LINES], [(0,)])),
    **dict.fromkeys(("cummax", "cummin", "logcumsumexp", "cumprod"), (_LINES, [(0,)])),
    "prod": ([(S(3, 4),), (_FACTORS,), (S(1),), (_MANY[0],), (_MANY[2],)], [(0,)]), "prod_dim": (_PRODUCTS, [(0,)]),
    **dict.fromkeys(("embedding_bag", "embedding_bag_checked"), (_BAGGED, [(0,)])),
    **dict.fromkeys(("unfold", "unfold_copy"), ([(S(7), 0, 3, 2), (S(2, 6, 3), 1, 2, 1), (S(3, 4), 0, 3, 5), (S(9), 0, 2, 4)], [(0,)])),
    **dict.fromkeys(("as_strided", "as_strided_copy"), ([(call[0], *call[2:]) for call in _STRIDED], [(0,)])),
}  # fmt: skip
# What computes in half precision otherwise.
_NOT_HALF = {
    "_trilinear", "_cdist", "_euclidean_dist", "median", "nanmedian", "_adaptive_max_pool2d", "_adaptive_max_pool3d", "cumprod",
    "index_fill_tensor", "index_fill_tensor_checked", "logcumsumexp", "prod", "prod_dim",
}  # fmt: skip
# Whose forms are loops of C's.
_LOOPS = {"logcumsumexp", "cummax", "cummin", "kthvalue", "median_dim", "nanmedian_dim", "max_dim", "min_dim", "median", "nanmedian"}


def _needs_loops(name: str) -> bool:
    return (name in _LOOPS or name == "cumprod") and not knows(ALONG)


def _assert_is_the_plan(sig: Any, operands: list[Any], signs: bool = True) -> None:
    """The form is what runs the operation, and gives what the plan of its JAX function gives, of operands in memory of any kind."""
    form, by_plan = sig.baseline, sig._plan()
    assert isinstance(form, NumPyForm), ("it was traced", sig.bop, sig.specs)
    assert not isinstance(by_plan, NumPyForm)
    with np.errstate(all="ignore"):
        for layout in LAYOUTS:
            given = [_laid_out(x, layout) for x in operands]
            before = [np.asarray(x).tobytes() for x in given]
            want, got = by_plan(*map(np.asarray, given)), form(*given)
            assert [np.asarray(x).tobytes() for x in given] == before, ("an operand was written to", sig.bop, layout)
            assert len(got) == len(want) == len(sig.avals) + (sig.check is not None)
            wrong = sig.check is not None and want[-1][0]  # then nobody sees what it computes
            for g, w in list(zip(map(np.asarray, got), map(np.asarray, want), strict=True))[-1 if wrong else 0 :]:
                assert (g.dtype, g.shape) == (w.dtype, w.shape), (sig.bop, sig.specs, layout)
                assert _bits(g, signs) == _bits(w, signs), (sig.bop, sig.specs, layout, g, w)


def test_every_form_is_called():
    assert set(CALLS) == PLACED
    with_gradient = {o.name for o in registry.values() if getattr(o.numpy_grads, "__module__", "").endswith("numpy_placing")}
    assert set(GRADIENTS) == with_gradient


def _runs(name: str) -> list[Any]:
    dtypes, calls = CALLS[name]
    given = [(call, d) for i, call in enumerate(calls) for d in (dtypes if i == 0 else [F32])]
    made = [_bound(name, call, (d,)) for call, d in given]
    return [(Signature(bound, tuple(map(_spec, operands))), list(map(_number, operands))) for bound, operands in made]


@pytest.mark.parametrize("name", sorted(CALLS))
def test_form_gives_what_the_plan_gives(name):
    if _needs_loops(name):
        pytest.skip("the loops are not compiled")
    for sig, operands in _runs(name):
        _assert_is_the_plan(sig, operands)


@pytest.mark.parametrize("name", sorted(GRADIENTS))
def test_form_of_gradient_gives_what_the_plan_gives(name):
    if _needs_loops(name):
        pytest.skip("the loops are not compiled")
    calls, inputs = GRADIENTS[name]
    count = 0
    every = FLOATS if name in _NOT_HALF else [*FLOATS, F16]
    for call, dtype in [(call, d) for i, call in enumerate(calls) for d in (every if i == 0 else [F32])]:
        bound, operands = _bound(name, call, (dtype,), exact=True)
        sig: Any = Signature(bound, tuple(map(_spec, operands)))
        with np.errstate(all="ignore"):
            results = [np.asarray(out) for out in sig.baseline(*map(_number, operands))]
        for wanted in inputs:
            found: Any = plan(sig, wanted)
            if found.passes:
                continue
            grad = _numbers(sig.avals[0].shape, sig.avals[0].dtype, 7, exact=True)
            saved = [results[-1 - i] if i < 0 else operands[i] for i in found.saves]
            given = [grad, *saved]
            defined = tuple([aval.dtype.kind == "f" for aval in sig.avals])
            _assert_is_the_plan(Signature(found.vjp_of(defined), tuple(map(_spec, given))), list(map(_number, given)))
            count += 1
    assert count


@pytest.mark.parametrize("count", [1, 2, 63, 64, 200])
def test_gradient_of_a_product_is_the_product_of_the_others(count):
    x = np.random.default_rng(count).uniform(0.5, 1.5, (3, count))
    x[1, count // 2] = 0
    x[2, [0, -1]] = 0
    given = torch.tensor(x, requires_grad=True)
    (found,) = torch.autograd.grad(given.prod(1).sum(), given)
    want = [[np.prod(np.delete(row, i)) for i in range(count)] for row in x]
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-12)


PROGRAMS: dict[str, Any] = {
    "scatter": lambda x, i: torch.zeros_like(x).scatter(1, i, x), "scatter_add": lambda x, i: torch.zeros_like(x).scatter_add(1, i, x),
    "scatter_reduce": lambda x, i: torch.zeros_like(x).scatter_reduce(0, torch.zeros_like(x, dtype=torch.long), x, "amax"),
    "scatter_value": lambda x, i: x.scatter(1, i, 2.0), "take_along_dim": lambda x, i: x.take_along_dim(i, 1),
    "index_put": lambda x, i: x.clone().index_put((torch.arange(len(x)),), x * 2),
    "max": lambda x, i: x.max(1).values, "topk": lambda x, i: x.topk(2, 1).values,
    "sort": lambda x, i: x.sort(1).values, "median": lambda x, i: x.median(1).values, "kthvalue": lambda x, i: x.kthvalue(2, 1).values,
    "cummax": lambda x, i: x.cummax(0).values, "mode": lambda x, i: x.mode(1).values, "floor": lambda x, i: x.floor(),
    "one_hot": lambda x, i: x * torch.nn.functional.one_hot(i[:, 0], x.shape[1]), "as_strided": lambda x, i: x.as_strided((2, 2), (1, 1)),
    "embedding_bag": lambda x, i: torch.nn.functional.embedding_bag(i, x), "fill_diagonal": lambda x, i: x.clone().fill_diagonal_(0.0),
    "unfold": lambda x, i: x.unfold(1, 2, 1), "block_diag": lambda x, i: torch.block_diag(x, x[0]),
    "masked_scatter": lambda x, i: torch.zeros_like(x).masked_scatter(x > 0, torch.ones_like(x)) * x, "prod": lambda x, i: x.prod(1),
    "cumprod": lambda x, i: x.cumprod(1), "logcumsumexp": lambda x, i: x.logcumsumexp(0), "histc": lambda x, i: x * torch.histc(x.detach(), 3)[0],
}  # fmt: skip


def _run(program: Any, rows: int) -> None:
    x = torch.randn(rows, 4 + rows % 3, requires_grad=True)
    out = program(x, torch.zeros(rows, 3, dtype=torch.long))
    out.backward(torch.ones(out.shape))
    x.grad.numpy()


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_nothing_is_traced_for_a_new_shape(name, monkeypatch):
    if not knows(ALONG):
        pytest.skip("the loops are not compiled")
    for rows in (5, 6, 7, 8):
        _run(PROGRAMS[name], rows)
    traced: list[str] = []
    trace = Signature._trace
    monkeypatch.setattr(Signature, "_trace", lambda sig: (traced.append(sig.bop.name), trace(sig))[1])
    for rows in (13, 17):
        _run(PROGRAMS[name], rows)
    assert traced == []


@pytest.mark.parametrize(
    ("name", "call", "dtype"),
    [
        ("scatter_src", (S(0, 4), 1, Places((0, 2), 0, 1), S(0, 2)), F32), ("scatter_reduce", (*_SOURCE[0], "sum", True), F16),
        ("kthvalue", (S(), 1, 0, False), F32), ("cummax", (S(0, 3), 0), F32), ("mode", (S(), 0, False), F32),
        ("masked_scatter", (S(3, 4), _MASK, S(0)), F32), ("take_along_dim", (S(3, 4), 1, Places((3, 0), 0, 1)), F32),
        ("_histc", (S(0), 3, 0.0, 1.0), F32), ("median_dim", (S(3, 4), 1, False), F16),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_what_has_no_form_is_traced(name, call, dtype):
    bound, operands = _bound(name, call, (dtype,))
    assert not isinstance(Signature(bound, tuple(map(_spec, operands))).baseline, NumPyForm)
