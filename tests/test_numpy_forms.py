"""The NumPy forms of operators against their JAX functions: the same bits, shapes and dtypes, for every operator that has one."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import ml_dtypes
import numpy as np
import pytest
from test_baseline_agreement import OPTIONS

import torchgrad_jax as torch
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.derivative import plan
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.baseline import NumPyForm
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.recording.step import NUMBER_DTYPES
from torchgrad_jax.runtime.value import aval_of

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]  # tries its own modes


class Shape(tuple[int, ...]):
    """Stands for an array in a call."""


def S(*shape: int) -> Shape:
    return Shape(shape)


class Places(NamedTuple):
    """Stands for indices in a call: so many of them, from `low` to `high`, `high` not included."""

    shape: tuple[int, ...]
    low: int
    high: int
    dtype: Any = np.int64

    def numbers(self) -> np.ndarray:
        found = np.asarray(np.random.default_rng(len(self.shape)).integers(self.low, self.high, self.shape, self.dtype))
        if found.size > 1:
            found.flat[[0, -1]] = self.high - 1, self.low  # those at the ends are among them
        return found


BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(d) for d in ("bool", "uint8", "int32", "int64", "float16", BFLOAT16, "float32", "float64", "complex64")]
DIFFERENTIABLE = [d for d in DTYPES if d.kind in "fcV"]

_SELECT = [(S(3, 4), 1, 2), (S(3, 4), 0, -1), (S(3, 4), 1, 9), (S(3, 4), 1, -9), (S(5), 0, 4), (S(0, 3), 1, 1), (S(2, 3, 4), 1, 0)]
_SLICE = [
    (S(3, 6), 1, 1, 3, 1), (S(3, 6), 1, 0, 3, 2), (S(7), 0, 6, 3, 1), (S(7), 0, -3, 2, 2), (S(7), 0, -30, 2, 3), (S(3, 4), 0, 1, 0, 1),
    (S(2, 0), 1, 0, 0, 1), (S(2, 3, 4), 1, 1, 2, 1),
]  # fmt: skip
_TRANSPOSE = [(S(2, 3, 4), 0, 2), (S(3, 4), 1, 0), (S(), 0, 0), (S(0, 3), 0, 1)]
_PERMUTE = [(S(2, 3, 4), (2, 0, 1)), (S(3, 4), (0, 1)), (S(), ()), (S(2, 0, 4, 3), (3, 1, 0, 2))]
_VIEW = [(S(2, 3, 4), (6, 4)), (S(12), (3, 1, 4)), (S(), (1, 1)), (S(1), ()), (S(0, 3), (3, 0, 5))]
_UNSQUEEZE = [(S(3, 4), 0), (S(3, 4), 2), (S(), 0), (S(0, 2), 1)]
_SQUEEZE = [(S(1, 3, 1), (0, 2)), (S(3, 1), (1,)), (S(3, 4), ()), (S(1), (0,)), (S(), ()), (S(0, 1), (1,))]
_EXPAND = [
    (S(3, 1), (3, 4)), (S(1, 4), (2, 3, 4)), (S(), (2, 3)), (S(4), (4,)), (S(1), (1, 1)), (S(1, 3), (0, 3)), (S(0, 1), (2, 0, 5)),
    (S(2, 1), (2, 20000)),
]  # fmt: skip
_DIAGONAL = [
    (S(3, 4), 0, 0, 1), (S(3, 4), 1, 0, 1), (S(3, 4), -2, 0, 1), (S(2, 3, 4), 1, 2, 0), (S(3, 4), 7, 0, 1), (S(3, 3), -3, 0, 1), (S(0, 4), 0, 0, 1),
]  # fmt: skip
_UNFOLD = [(S(7), 0, 3, 2), (S(2, 6, 3), 1, 2, 1), (S(3, 4), 0, 3, 5), (S(), 0, 1, 1), (S(0, 4), 1, 2, 2)]
_STRIDED = [(S(3, 4), (2, 3), (1, 2), 3), (S(12), (3,), (0,), 5), (S(3, 4), (), (), 7), (S(2, 5), (2, 2, 2), (5, 1, 2), 1)]
_ANY = [(S(3, 4),), (S(),), (S(0, 2),)]
_PARTS = [(S(7), 0, ((0, 3), (3, 4))), (S(2, 6), 1, ((0, 2), (2, 2), (4, 2))), (S(3, 4), 0, ((0, 3),)), (S(0, 4), 1, ((0, 4), (4, 0)))]
_UNBIND = [(S(3, 4), 0, ((0, 1), (1, 1), (2, 1))), (S(2, 3), 1, ((0, 1), (1, 1), (2, 1))), (S(2), 0, ((0, 1), (1, 1))), (S(0, 1), 1, ((0, 1),))]
_TRIANGLE = [(S(3, 4), 0), (S(2, 4, 3), -1), (S(4, 4), 2), (S(0, 3), 0), (S(3, 3), 9)]
_SHUFFLE = [(S(2, 6, 3), 3), (S(1, 4), 2), (S(0, 4, 2), 2)]
_REDUCED = [
    (S(3, 4),), (S(3, 4), (1,)), (S(3, 4), 0, True), (S(3, 4), (-1,), True), (S(2, 3, 4), (0, 2)), (S(),), (S(), (0,)), (S(0, 2), (0,)),
    (S(0, 2), (1,), True), (S(200, 150),), (S(7, 5), ()),
]  # fmt: skip
_AT = [
    (S(3, 4), [Places((5,), -3, 3)], (0,)), (S(3, 4), [Places((2, 2), -4, 4)], (1,)), (S(2, 3, 4), [Places((5,), -3, 3)], (1,)),
    (S(3, 4), [Places((5,), 0, 3), Places((2, 1), -4, 4)], (0, 1)), (S(2, 3, 4), [Places((5,), 0, 2), Places((5,), 0, 4)], (0, 2)),
    (S(3, 4), [Places((5,), 0, 3, np.int32)], (0,)), (S(3, 4), [Places((), 0, 3)], (0,)), (S(3, 4), [Places((0,), 0, 3)], (0,)),
]  # fmt: skip
_AT_NONE = [(S(3, 4), [Places((5,), -4, 3)], (0,)), (S(3, 4), [Places((5,), 0, 9), Places((5,), -9, 4)], (0, 1)),
            (S(3, 4), [Places((5,), 0, 3), Places((5,), -9, 4)], (0, 1))]  # fmt: skip
_ROWS = [(S(3, 4), 0, Places((5,), 0, 3)), (S(3, 4), 1, Places((5,), 0, 4)), (S(2, 3, 4), 1, Places((0,), 0, 3)), (S(3), 0, Places((), 0, 3)),
         (S(3, 4), 1, Places((5,), 0, 4, np.int32))]  # fmt: skip
_NO_ROWS = [(S(3, 4), 0, Places((5,), 0, 7)), (S(3, 4), 1, Places((5,), -1, 4)), (S(3, 4), 1, Places((5,), -2, 4, np.int32))]
_ALONG = [
    (S(3, 4), 1, Places((3, 6), 0, 4)),
    (S(3, 4), 0, Places((2, 3), 0, 3)),
    (S(2, 3, 4), 2, Places((1, 3, 2), 0, 4)),
    (S(3), 0, Places((5,), 0, 3)),
]
_NOT_ALONG = [(S(3, 4), 1, Places((3, 6), 0, 5)), (S(3, 4), 0, Places((2, 3), -1, 3))]
_TABLE = [(S(5, 3), Places((2, 4), 0, 5), -1, False), (S(5), Places((4,), 0, 5), 0, True), (S(5, 3), Places((), 0, 5, np.int32), -1, False)]
_NO_TABLE = [(S(5, 3), Places((2, 4), 0, 6), -1, False), (S(5, 3), Places((2, 4), -2, 5), -1, False)]
_TAKEN = [(S(3, 4), Places((5,), -12, 12)), (S(5), Places((2, 3), 0, 5, np.int32)), (S(2, 3, 4), Places((), -24, 24)), (S(), Places((2,), -1, 1))]
_ADDED = [
    (S(3, 4), 0, Places((5,), 0, 3), S(5, 4), 1), (S(6), 0, Places((9,), 0, 6), S(9), 0.5),
    (S(3, 2, 2), 0, Places((4,), 0, 3, np.int32), S(4, 2, 2), 2),
]  # fmt: skip
_NOT_ADDED = [(S(3, 4), 0, Places((5,), 0, 5), S(5, 4), 1), (S(3, 4), 0, Places((5,), -1, 3), S(5, 4), 1)]
_SCATTERED = [(*call, S(*call[2].shape)) for call in _ALONG] + [(S(3, 4), 1, Places((2, 3), 0, 4, np.int32), S(3, 5))]
_NOT_SCATTERED = [(*call, S(*call[2].shape)) for call in _NOT_ALONG]
_PUT = [
    (S(3, 4), S(5, 4), [Places((5,), -3, 3)], (0,), False),
    (S(3, 4), S(4), [Places((2, 3), 0, 3, np.int32)], (0,), False),
    (S(3, 4), S(5), [Places((5,), -3, 3), Places((1,), -4, 4)], (0, 1), False),
    (S(6), S(), [Places((9,), -6, 6)], (0,), False),
    (S(3, 4, 2), S(3, 2), [Places((3,), 0, 3), Places((3,), -4, 4, np.int32)], (0, 1), False),
]
_PUT += [(*call[:-1], True) for call in _PUT]  # summed, of some dtypes only
_CLASSES = [
    (S(5, 4), Places((5,), 0, 4), None, -100, "mean"), (S(5, 4), Places((5,), 0, 4), None, 2, "mean"), (S(5, 4), Places((5,), 0, 4), None, 2, "sum"),
    (S(5, 4), Places((5,), 0, 4), None, 2, "none"), (S(5, 4), Places((5,), -7, -6), None, -7, "mean"),
]  # fmt: skip
_NO_CLASSES = [(S(5, 4), Places((5,), 2, 6), None, 3, "mean"), (S(5, 4), Places((5,), -1, 3), None, -100, "none")]
_COUNTED = [(Places((7,), 0, 5), None, 5), (Places((4,), 0, 3, np.int32), None, 6), (Places((7,), 0, 5, np.uint8), S(7), 5)]
_ORDERED = [(S(3, 40), 1, True), (S(3, 40), 1, False), (S(30, 4), 0, True), (S(30, 4), -2, False), (S(2, 9, 3), 1, True), (S(1), 0, False)]
_FEW_OF_MANY = [(S(30, 400), 64, -1, True, True), (S(2, 5000), 9, 1, False, True)] if torch.runtime.typed_core() else []
_RUNNING: Any = [(S(3, 7), 1), (S(5, 2, 3), 0), (S(2, 3, 4), -2, {"dtype": torch.float64}), (S(9), 0, {"dtype": torch.float32}), (S(1, 4), 0)]
_SEARCHED = [
    (S(70), S(3, 5), None, False, False), (S(3, 7), S(3, 4), None, True, True), (S(5), S(), None, False, True),
    (S(2, 6), S(2, 3), Places((2, 6), 0, 6), False, False),
]  # fmt: skip
_TRACE = [(S(3, 4),), (S(4, 4),), (S(1, 5),), (S(0, 3),)]
_PAIRS = [(S(3, 2),), (S(2,),), (S(0, 4, 2),)]  # fmt: skip

# Of each operator calls, in the order of its parameters, those that have to be named in a dict. The first is made with all dtypes.
_PLACES = [(S(3, 4), 1, False), (S(3, 4), None, False), (S(3, 4), None, True), (S(2, 3, 4), 0, True), (S(2, 3, 4), -1, False), (S(1, 40), 1, False),
           (S(), None, False), (S(), 0, True)]  # fmt: skip
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "sum": _REDUCED, "sum_dim": _REDUCED, "mean": _REDUCED, "mean_dim": _REDUCED,
    "select": _SELECT, "slice": _SLICE, "transpose": _TRANSPOSE, "_transpose_written": _TRANSPOSE[:2], "permute": _PERMUTE, "view": _VIEW,
    "t": [(S(3, 4),), (S(3),), (S(),)], "_reshape_alias": _VIEW, "_unsafe_view": _VIEW, "unsqueeze": _UNSQUEEZE, "_unsqueeze_written": _UNSQUEEZE,
    "squeeze": _SQUEEZE, "squeeze_dim": _SQUEEZE[1:2], "squeeze_dims": _SQUEEZE, "_squeeze_written": [(S(3, 1), 1), (S(3, 4), 1), (S(), 0)],
    "expand": _EXPAND, "diagonal": _DIAGONAL, "unfold": _UNFOLD, "view_as_real": _ANY, "view_as_complex": _PAIRS, "_conj": _ANY, "alias": _ANY,
    "view_dtype": [(S(3, 4), torch.int32, 1, 1), (S(3, 4), torch.uint8, 4, 1), (S(0, 4), torch.float64, 1, 2), (S(), torch.int32, 1, 1)],
    "as_strided": _STRIDED, "clone": _ANY, "detach_copy": _ANY, "_zeros_of": _ANY, "zero": _ANY,
    "unbind": _UNBIND, "unbind_copy": _UNBIND[:1], "split": _PARTS, "split_with_sizes": _PARTS[:1], "split_copy": _PARTS[:1],
    "unsafe_split": _PARTS[:1], "unsafe_split_with_sizes": _PARTS[:1], "split_with_sizes_copy": _PARTS[:1],
    "_stack": [([S(3, 4), S(3, 4)], 1), ([S(), S(), S()], 0), ([S(2)], 1), ([S(0, 2), S(0, 2)], 2)],
    "argmax": _PLACES, "argmin": _PLACES,
    "cat": [([S(3, 4), S(2, 4)], 0), ([S(2, 3), S(2, 0), S(2, 1)], 1), ([S(0), S(3, 4)], 1), ([S(0), S(0)], 0), ([S(3)], 0)],
    "block_diag": [([S(2, 3), S(4), S()],), ([S(3, 3)],), ([S(0), S(2, 2)],)],
    "flip": [(S(3, 4), (0, 1)), (S(2, 3, 4), (1,)), (S(3), ()), (S(), ()), (S(0, 2), (0,))],
    "roll": [(S(3, 4), (1,), (1,)), (S(3, 4), (5, -1), (0, 1)), (S(3, 4), (2,), ()), (S(), (1,), ()), (S(0, 2), (1,), (0,))],
    "rot90": [(S(3, 4), 1, (0, 1)), (S(2, 3, 4), -2, (2, 0)), (S(3, 4), 3, (0, 1)), (S(3, 4), 0, (1, 0))],
    "repeat": [(S(3, 1), (2, 4)), (S(3), (2, 1, 2)), (S(), (3,)), (S(2, 3), (0, 1)), (S(), ())],
    "tril": _TRIANGLE, "triu": _TRIANGLE, "narrow_copy": [(S(3, 6), 1, 2, 3), (S(4), 0, 4, 0), (S(0, 3), 1, 0, 2)],
    "diag_embed": [(S(3, 4), 0, 1, 2), (S(3), 2, 0, 1), (S(2, 3), -1, 2, 0), (S(0), 1, 0, 1), (S(0, 2), 0, 1, 2)],
    "_to_copy": [(S(3, 4), torch.float64), (S(), torch.float16), (S(0, 2), torch.complex64)],
    "copy": [(S(3, 4), S(4)), (S(3, 4), S(3, 4)), (S(), S()), (S(0, 4), S(4)), (S(2, 3), S())],
    "fill": [(S(3, 4), 2), (S(3, 4), 1.75), (S(3, 4), True), (S(3, 4), S()), (S(), 3), (S(0, 2), 1.5), (S(2), -7)],
    "fill_number": [(S(3, 4), 2), (S(3, 4), 1.75), (S(3, 4), True), (S(), -3), (S(0, 2), 1.5)],
    "behind": [(S(3, 4), S(2), False), (S(), S(1, 1), False), (S(0, 2), S(), False)],
    "fill_tensor": [(S(3, 4), S()), (S(), S()), (S(0, 2), S())],
    "full_": [((3, 4), 2.5, torch.float32), ((), 7, torch.int64), ((0, 2), True, torch.bool),
              ((2,), 3 - 1j, torch.complex64), ((2,), 1e6, torch.float16)],
    "_constant": [((3, 4), 1, torch.bfloat16), ((), 0, torch.bool), ((0, 2), 0, torch.float64), ((5,), 1, torch.complex64)],
    "_pad_sequence": [
        ([S(3, 4), S(1, 4)], 2, True, False), ([S(2), S(3), S(0)], -1.5, False, True), ([S(2, 3, 2)], 0, False, False),
        ([S(0, 2), S(0, 2)], 1, True, True),
    ],
    "_pack_padded_sequence": [
        (S(3, 2, 4), np.array([2, 2, 1]), 5, False), (S(3, 2), np.array([3, 1]), 4, True), (S(4, 3), np.array([2, 1]), 3, False),
        (S(2, 3, 1, 2), np.array([2, 2, 2]), 6, True), (S(2, 2, 0), np.array([2, 0]), 2, False),
    ],
    "_pad_packed_sequence": [
        (S(5, 4), np.array([2, 2, 1]), 2, 0), (S(4), np.array([3, 1]), 3, -1.5), (S(3, 2, 2), np.array([1, 1, 1]), 2, 7),
        (S(2, 0), np.array([2, 0]), 2, True),
    ],
    "constant_pad_nd": [
        (S(3, 4), (1, 2), 1.5), (S(3, 4), (1, -1, -2, 3), 0), (S(2, 3), (5, -4), 2), (S(3), (-4, 2), 1), (S(0, 2), (1, 1, 1, 0), True),
        (S(2), (-1, -1), 0),
    ],
    "pixel_shuffle": [(S(2, 8, 3, 2), 2), (S(4, 1, 1), 2), (S(0, 4, 2, 2), 2)], "pixel_unshuffle": [(S(2, 2, 4, 6), 2), (S(1, 2, 2), 2)],
    "channel_shuffle": _SHUFFLE, "native_channel_shuffle": _SHUFFLE, "_tiled": [(S(3), 4), (S(0), 2), (S(3), 1)],
    "_identity_like": [(S(3, 3),), (S(2, 4, 4),), (S(0, 0),)],
    "select_scatter": [(S(3, 4), S(3), 1, 2), (S(3, 4), S(4), 0, -1), (S(3, 4), S(3), 1, 9), (S(5), S(), 0, -9)],
    "put_part1": [(S(3, 4), S(4), 2, (0,), (-1,), (1,)), (S(3, 6), S(3, 2), 1, (1,), (2,), (3,)), (S(5), S(), 4, (0,), (-1,), (1,))],
    "put_part2": [(S(3, 4), S(), 2, 1, (0, 1), (-1, -1), (1, 1)), (S(3, 6), S(2, 3), 1, 0, (0, 1), (2, 3), (1, 2))],
    "put_part3": [(S(2, 3, 4), S(2), 1, 0, 1, (0, 1, 2), (-1, 2, -1), (1, 1, 1))],
    "put_part4": [(S(2, 2, 3, 4), S(2, 2), 1, 0, 1, 0, (0, 1, 2, 3), (-1, 2, -1, 2), (1, 1, 1, 3))],
    "slice_scatter": [(S(3, 6), S(3, 3), 1, 1, 3, 1), (S(3, 6), S(3, 3), 1, 0, 3, 2), (S(7), S(3), 0, 6, 3, 1), (S(7), S(0), 0, 3, 0, 1)],
    "transpose_scatter": [(S(3, 4), S(4, 3), 0, 1), (S(), S(), 0, 0)], "t_scatter": [(S(3, 4), S(4, 3)), (S(3), S(3))],
    "permute_scatter": [(S(2, 3, 4), S(4, 2, 3), (2, 0, 1))], "view_scatter": [(S(2, 6), S(3, 4), (3, 4)), (S(), S(1), (1,))],
    "_reshape_alias_scatter": [(S(2, 6), S(3, 4), (3, 4))], "unsqueeze_scatter": [(S(3), S(1, 3), 0)], "squeeze_scatter": [(S(1, 3), S(3), (0,))],
    "squeeze_dim_scatter": [(S(1, 3), S(3), (0,))], "squeeze_dims_scatter": [(S(1, 3, 1), S(3), (0, 2))],
    "expand_scatter": [(S(3, 1), S(2, 3, 4), (2, 3, 4)), (S(), S(2), (2,)), (S(3), S(3), (3,))],
    "diagonal_scatter": [(S(3, 4), S(3), 0, 0, 1), (S(2, 3, 4), S(3, 2), 2, 0, 2), (S(3, 4), S(0), 7, 0, 1)],
    "index": _AT, "index_checked": [*_AT, *_AT_NONE], "_masked_select": [(S(3, n), [np.arange(3), np.arange(1, 4)], (3, 4)) for n in (1, 4)],
    "index_select": _ROWS, "index_select_checked": [*_ROWS, *_NO_ROWS], "gather": _ALONG, "gather_checked": [*_ALONG, *_NOT_ALONG],
    "take": _TAKEN, "take_checked": [*_TAKEN, (S(3, 4), Places((5,), 0, 13)), (S(3, 4), Places((5,), -13, 12))],
    "index_add": _ADDED, "index_add_checked": [*_ADDED, *_NOT_ADDED], "_bincount": _COUNTED, "_nll_loss": _CLASSES,
    "_searchsorted": _SEARCHED, "trace": _TRACE,
    "_nll_loss_checked": [*_CLASSES, *_NO_CLASSES], "index_put": _PUT,
    "scatter_add": _SCATTERED, "scatter_add_checked": [*_SCATTERED, *_NOT_SCATTERED],
    "embedding": _TABLE, "embedding_checked": [*_TABLE, *_NO_TABLE],
    "sort": _ORDERED, "sort_stable": _ORDERED, "argsort": [(x, dim, descending, True) for x, dim, descending in _ORDERED],
    "topk": [(S(3, 40), 5, 1, True, True), *_FEW_OF_MANY,
             (S(3, 40), 5, -1, False, True), (S(30, 4), 30, 0, True, True), (S(30, 4), 20, -2, False, True)],
    "cumsum": _RUNNING, "cumprod": _RUNNING,
    "view_as_real_scatter": [(S(3), S(3, 2)), (S(), S(2))], "view_as_complex_scatter": [(S(3, 2), S(3))], "alias_scatter": [(S(3), S(3)), (S(), S())],
}  # fmt: skip
# A view's copy is called as the view is.
CALLS |= {f"{name}_copy": CALLS[name][:3] for name in list(CALLS) if f"{name}_copy" in registry and f"{name}_copy" not in CALLS and name != "index"}

_COMPLEX = {"view_as_real", "view_as_real_copy", "_conj", "_conj_copy"}
_PAIR = {"view_as_complex", "view_as_complex_copy"}
# bfloat16 is none of NumPy's dtypes.
_SORTED = {"sort", "sort_stable", "argsort", "topk"}
_SUMS = {"index_add", "index_add_checked", "scatter_add", "scatter_add_checked"}
_BY_ROWS = {"embedding", "embedding_checked"}
_ADDED_WHERE_READ = {f"{name}{twin}" for name in ("index", "index_select", "gather") for twin in ("", "_checked")}
# To rounding: test_small_systems.py, test_numpy_systems.py, test_numpy_products.py, test_fourier.py, test_statistics_at_once.py,
# test_lbfgs_direction.py.
_STATISTICS = {"_quantile", "_vander", "_histogramdd", "_nll_loss2d", "_nll_loss2d_checked", "multi_margin_loss", "multilabel_margin_loss"}
_PRODUCTS = {"cholesky", "cholesky_solve", "cholesky_inverse", "_triangular_solve", "mm", "bmm", "linear_addmm", "_lbfgs_direction"}
_ROUNDED = {*_PRODUCTS, *_STATISTICS, *[name for name in registry if name.startswith(("linalg_", "_fft_"))]}
# test_numpy_placing.py.
PLACED = {
    f"{name}{twin}"
    for name in ("embedding_bag", "embedding_bag_max", "scatter_src", "scatter_value", "scatter_reduce", "scatter_reduced")
    for twin in ("", "_checked")
} | {
    "masked_scatter", "logcumsumexp", "cummin", "take_along_dim", "cummax", "_one_hot", "median_dim", "as_strided_scatter", "mode", "nanmedian_dim",
    "index_fill_scalar", "index_fill_tensor", "index_fill_scalar_checked", "index_fill_tensor_checked", "_histc", "kthvalue", "max_dim", "min_dim",
}  # fmt: skip


def _is_planned(form: Any) -> bool:  # test_numpy_rows.py
    return getattr(form, "planned", False)


# A mean's sum is rounded otherwise: test_form_steps.py. Rows: test_numpy_rows.py.
_OTHERS = _ROUNDED | PLACED | {"mean", "mean_dim", *(_ROWS := {"softmax", "log_softmax", "_safe_softmax", "native_layer_norm"})}
WITH_FORM = sorted(o.name for o in registry.values() if o.numpy is not None and o.name not in _OTHERS and not _is_planned(o.numpy))
WITH_GRADIENT = sorted(
    o.name for o in registry.values() if o.numpy_vjp is not None and o.name not in _ROUNDED | _ROWS and not _is_planned(o.numpy_vjp)
)


def _dtypes(name: str, among: list[np.dtype]) -> list[tuple[np.dtype, ...]]:
    """For each call of an operator the dtypes of its operands: the same one of all, but of two that are told apart here."""
    if name in _COMPLEX:
        return [(np.dtype(d),) for d in ("complex64", "complex128")]
    if name in _PAIR:
        return [(np.dtype(d),) for d in ("float32", "float64")]
    if name in _SORTED:
        return [(d,) for d in among if d.kind in "fiu" or (d.kind == "b" and name != "topk")]
    if name in _SUMS or name == "_searchsorted":
        return [(d,) for d in among if d.kind in "iuf"]
    if name in ("argmax", "argmin"):  # half precision is not by NumPy
        return [(d,) for d in among if d.char in "fdbhilqB"]
    if name in ("_nll_loss", "_nll_loss_checked"):
        return [(np.dtype(d),) for d in ("float32", "float64")]
    if name == "trace":
        return [(d,) for d in among if d.kind not in "bV" and d != np.float16]
    if name == "cumprod":
        return [(d,) for d in among if d.kind != "c"]
    if name == "_bincount":
        return [(np.dtype(np.float64),)]
    if name in ("view_dtype", "view_dtype_copy"):
        return [(np.dtype(np.float32),)]
    if name == "view_as_real_scatter":
        return [(np.dtype(np.complex64), np.dtype(np.float32))]
    if name == "view_as_complex_scatter":
        return [(np.dtype(np.float64), np.dtype(np.complex128))]
    return [(d,) for d in among]


def _calls(name: str, among: list[np.dtype]) -> list[tuple[tuple[Any, ...], tuple[np.dtype, ...]]]:
    every = _dtypes(name, among)
    few = [d for d in every if d[0] in (np.float32, BFLOAT16)] or every[:1]
    calls = [(call, d) for i, call in enumerate(CALLS[name]) for d in (every if i == 0 else few)]
    return [(call, d) for call, d in calls if name != "index_put" or not call[-1] or d[0].kind in "iuf"]


def _numbers(shape: tuple[int, ...], dtype: np.dtype, seed: int, exact: bool = False) -> np.ndarray:
    """Numbers of every kind: nan, infinite, -0; or, if `exact`, small integers and -0, whose sums do not depend on their order."""
    random = np.random.default_rng(seed)
    found = random.integers(-4, 5, shape).astype(np.float64)
    if dtype.kind in "fcV":
        found = found if exact else random.normal(size=shape) * np.exp(random.uniform(-20, 20, shape))
        special = [-0.0, 0.0] if exact else [-0.0, 0.0, np.nan, np.inf, -np.inf, 65520.0]
        found = np.where(random.random(shape) < 0.3, random.choice(special, shape), found)
    if dtype.kind == "c":
        return np.asarray(_complex(found, np.roll(found, 1)).astype(dtype))
    with np.errstate(all="ignore"):
        return np.asarray(found.astype(np.int64) if dtype.kind in "iub" else found).astype(dtype)


def _complex(real: np.ndarray, imag: np.ndarray) -> np.ndarray:
    """An infinite part times 1j would make the other one nan."""
    found = np.empty(np.shape(real), np.complex128)
    found.real, found.imag = real, imag
    return found


def _bound(name: str, call: tuple[Any, ...], given: tuple[np.dtype, ...], exact: bool = False) -> tuple[Any, list[Any]]:
    """The BoundOperator of a call, and its operands."""
    count = 0

    def made(argument: Any) -> Any:
        nonlocal count
        if isinstance(argument, Places):
            return argument.numbers()
        if isinstance(argument, Shape):
            count += 1
            return _numbers(argument, given[min(count, len(given)) - 1], count, exact)
        return [made(a) for a in argument] if isinstance(argument, list) else argument

    named = call[-1] if isinstance(call[-1], dict) else {}
    given_in_order = call[:-1] if named else call
    bound, operands = registry[name].parse(tuple([made(a) for a in given_in_order]), named, lambda v: isinstance(v, np.ndarray))
    return bound, operands


def _spec(x: Any) -> Any:
    return aval_of(x.shape, x.dtype, CPU) if isinstance(x, np.ndarray) else type(x)


def _number(x: Any) -> Any:
    return x if isinstance(x, np.ndarray) else NUMBER_DTYPES[type(x)].type(x)


def _laid_out(x: Any, how: str) -> Any:
    """The same array in memory of another kind."""
    if not isinstance(x, np.ndarray) or how == "writable":
        return x
    if how == "scalars":
        return x[()]
    if how == "contiguous" or not x.ndim:
        x = x.copy()
    elif how == "fortran":
        x = np.asfortranarray(x)
    elif how == "reversed":
        x = np.ascontiguousarray(x[(slice(None, None, -1),) * x.ndim])[(slice(None, None, -1),) * x.ndim]
    else:
        wide = np.zeros([2 * n for n in x.shape], x.dtype)
        wide[(slice(None, None, 2),) * x.ndim] = x
        x = wide[(slice(None, None, 2),) * x.ndim]
    x.flags.writeable = False
    return x


LAYOUTS = ("writable", "contiguous", "fortran", "reversed", "apart", "scalars")


def _bits(x: np.ndarray, signs: bool) -> bytes:
    """The bits; of what is not a number, that it is not. Without the signs of zeros, if not asked for."""
    if x.dtype.kind == "c":
        return _bits(np.real(x), signs) + _bits(np.imag(x), signs)
    if x.dtype.kind in "fV":
        x = np.where(np.isnan(x), np.array(np.nan, x.dtype), x if signs else x + np.zeros((), x.dtype))
    return x.tobytes()


def _by_jax(runs: list[tuple[Signature, list[Any]]]) -> list[list[np.ndarray]]:
    """The results of all these, of one compiled function: one for each takes minutes."""

    def function(*operands: list[Any]) -> list[Any]:
        return [sig.function(*given) for (sig, _), given in zip(runs, operands, strict=True)]

    outs = jax.jit(function, compiler_options=OPTIONS)(*[operands for _, operands in runs])
    return [[np.asarray(o) for o in out] for out in outs]


def _assert_forms_are(runs: list[tuple[Signature, list[Any]]], signs: bool = True) -> None:
    """The form is what runs each of these operations, and gives what its compiled function gives, of operands in memory of any kind."""
    for (sig, operands), want in zip(runs, _by_jax(runs), strict=True):
        form: Any = sig.baseline
        assert isinstance(form, NumPyForm), ("it was traced", sig.bop, sig.specs)
        assert [(a.shape, a.dtype) for a in sig.avals] == [(w.shape, w.dtype) for w in want[: len(sig.avals)]]
        assert len(want) == len(sig.avals) + (sig.check is not None)
        assert sig.single or sig.check is None
        for layout in LAYOUTS:
            given = [_laid_out(x, layout) for x in operands]
            before = [np.asarray(x).tobytes() for x in given]
            with np.errstate(all="ignore"):
                outs = form(*given)
            assert [np.asarray(x).tobytes() for x in given] == before, ("an operand was written to", sig.bop, layout)
            assert len(outs) == len(want)
            wrong = sig.check is not None and want[-1][0]  # then nobody sees what it computes
            for got, expected in list(zip(map(np.asarray, outs), want, strict=True))[-1 if wrong else 0 :]:
                assert (got.dtype, got.shape) == (expected.dtype, expected.shape), (sig.bop, sig.specs, layout)
                assert _bits(got, signs) == _bits(expected, signs), (sig.bop, sig.specs, layout, got, expected)


def test_every_form_is_called():
    assert set(CALLS) == {*WITH_FORM, *WITH_GRADIENT}


@pytest.mark.parametrize("name", WITH_FORM)
def test_form_gives_what_jax_gives(name):
    runs = []
    for call, given in _calls(name, DTYPES):
        bound, operands = _bound(name, call, given)
        runs.append((Signature(bound, tuple(map(_spec, operands))), list(map(_number, operands))))
    _assert_forms_are(runs)


def _gradient_cases(sig: Signature) -> list[tuple[tuple[int, ...], tuple[bool, ...]]]:
    """Which operands need a gradient, and which results have one."""
    tensors = [i for i, s in enumerate(sig.specs) if not isinstance(s, type)]
    inputs = [(0,), tuple(tensors), (tensors[-1],)] if type(sig.bop.layout[0]) is int else [(0,)]  # type: ignore[attr-defined]
    count = len(sig.avals)
    return [(i, d) for i in dict.fromkeys(inputs) for d in {(True,) * count, (*(False,) * (count - 1), True)}]


@pytest.mark.parametrize("name", WITH_GRADIENT)
def test_form_of_gradient_gives_what_jax_gives(name):
    runs = []
    dtypes_of_sums = [np.dtype(d) for d in (np.float32, np.float64, *([np.float16] if name in _ADDED_WHERE_READ else []))]
    calls = name.removesuffix("_checked") if name in _ADDED_WHERE_READ else name  # nobody sees gradients of what raises
    for call, given in _calls(calls, dtypes_of_sums if name in _BY_ROWS | _ADDED_WHERE_READ else DIFFERENTIABLE):
        bound, operands = _bound(name, call, given, exact=True)
        if name in _BY_ROWS and call[-1]:  # scaled by how often a row is read: traced
            continue
        sig = Signature(bound, tuple(map(_spec, operands)))
        for inputs, defined in _gradient_cases(sig):
            found: Any = plan(sig, inputs)
            grads = [_numbers(a.shape, a.dtype, i, exact=True) for i, (a, there) in enumerate(zip(sig.avals, defined, strict=True)) if there]
            saved = [operands[i] for i in found.saves]
            vjp = Signature(found.vjp_of(defined), tuple(map(_spec, [*grads, *saved])))
            runs.append((vjp, [*grads, *map(_number, saved)]))
    _assert_forms_are(runs, signs=False)


@pytest.mark.parametrize("name", ["index_add", "index_add_checked"])
def test_forms_of_the_gradients_of_both_operands_give_what_jax_gives(name):
    runs = []
    for call, given in _calls("index_add", [np.dtype(d) for d in (np.float16, np.float32, np.float64)]):
        bound, operands = _bound(name, call, given, exact=True)
        sig = Signature(bound, tuple(map(_spec, operands)))
        if sig.avals[0].dtype.kind != "f":
            continue
        for inputs in ((0,), (2,), (0, 2)):
            found: Any = plan(sig, inputs)
            saved = [operands[i] for i in found.saves]
            grad = _numbers(sig.avals[0].shape, sig.avals[0].dtype, 0, exact=True)
            vjp = Signature(found.vjp_of((True,)), tuple(map(_spec, [grad, *saved])))
            runs.append((vjp, [grad, *map(_number, saved)]))
    assert runs
    _assert_forms_are(runs, signs=False)


# ---------------------------------------------------------------------- conversions


def _spread(dtype: np.dtype) -> np.ndarray:
    """Normal numbers from all of a dtype's range, on and beside the borders of the others."""
    random = np.random.default_rng(0)
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        bits = random.integers(0, 2**63, 2000).astype(np.uint64) >> random.integers(0, 64, 2000).astype(np.uint64)
        info = np.iinfo(dtype)
        return np.concatenate([bits.astype(dtype), (~bits).astype(dtype), np.array([info.min, info.max, 0, 1], dtype)])
    if dtype.kind == "c":
        parts = _spread(np.dtype(dtype.char.lower()))
        return _complex(parts, np.roll(parts, 7)).astype(dtype)
    borders = [s * 2.0**n + d for n in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1) for d in (-1, -0.5, 0, 0.5, 1)]
    ties = random.integers(-4096, 4096, 1000) * 2.0 ** random.integers(-14, 10, 1000)
    close = ties * (1 + random.integers(-2, 3, 1000) * 2.0**-40)  # where rounding twice is not rounding once
    wide = random.normal(size=1000) * np.exp(random.uniform(-30, 80, 1000))
    with np.errstate(over="ignore"):
        return np.array([*borders, *ties, *close, *wide, 0.0, -0.0, np.inf, -np.inf, np.nan, 65519.9, 65520, 3.4028235e38]).astype(dtype)


def _normal(x: np.ndarray) -> bool:
    """Whether no number is subnormal, or becomes so in bfloat16 or float16: XLA takes these for 0 (float16's own it keeps)."""
    parts = np.abs(x.astype(np.complex128).view(np.float64))
    return not np.any((parts > 0) & (parts < 2.0**-126))


def _rounded_twice(source, target):
    """Whether the conversion goes by way of float32, as in PyTorch: XLA rounds once where the processor can."""
    return np.dtype(target) == np.float16 and np.dtype(source) in (np.float64, np.complex128)


@pytest.mark.parametrize("target", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("source", [dtypes.float64, dtypes.complex128], ids=lambda d: d.name)
def test_conversion_to_half_precision_goes_by_way_of_float32(source, target):
    x = _spread(source.np)
    bound, _ = registry["_to_copy"].parse((x, target), {}, lambda v: isinstance(v, np.ndarray))
    with np.errstate(all="ignore"):
        (found,) = Signature(bound, (_spec(x),)).baseline(x)
        assert found.tobytes() == x.real.astype(np.float32).astype(target.np).tobytes()


@pytest.mark.parametrize("source", dtypes.ALL, ids=lambda d: d.name)
def test_conversion_gives_the_bits_that_jax_gives(source):
    x, runs = _spread(source.np), []
    assert _normal(x)
    for target in dtypes.ALL:
        bound, operands = registry["_to_copy"].parse((x, target), {}, lambda v: isinstance(v, np.ndarray))
        sig = Signature(bound, (_spec(x),))
        if target is dtypes.uint64 and source.np.kind in "fcV":
            assert not isinstance(sig.baseline, NumPyForm)  # what does not fit differs between processors
        elif not _rounded_twice(source.np, target.np):
            runs.append((sig, operands))
    _assert_forms_are(runs)


@pytest.mark.parametrize("source", DIFFERENTIABLE, ids=lambda d: d.name)
def test_gradient_of_a_conversion_is_converted_back(source):
    runs = []
    for target in DIFFERENTIABLE:
        grad = _spread(target)
        spec = aval_of(grad.shape, source, CPU)
        found: Any = plan(Signature(registry["_to_copy"].bind((ARRAY, Static(target))), (spec,)), (0,))
        if source == target:
            assert found.passes
        elif not _rounded_twice(grad.dtype, source.np if isinstance(source, dtypes.dtype) else source):
            runs.append((Signature(found.vjp_of((True,)), (_spec(grad),)), [grad]))
    _assert_forms_are(runs)


# ---------------------------------------------------------------------- where there is no form


@pytest.mark.parametrize(
    ("name", "call", "given"),
    [
        ("cat", ([S(2), S(3)], 0), ("float32", "int32")), ("_stack", ([S(2), S(2)], 0), ("float16", "float32")),
        ("block_diag", ([S(2, 2), S(3)],), ("float32", "int64")), ("as_strided", (S(3, 4), (2, 0), (1, 1), 0), ("float32",)),
        ("fill", (S(2), 1.5), ("uint64",)), ("copy", (S(2), S(2)), ("uint64", "float32")),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_what_numpy_does_otherwise_is_traced(name, call, given):
    bound, operands = _bound(name, call, tuple(map(np.dtype, given)))
    sig = Signature(bound, tuple(map(_spec, operands)))
    assert not isinstance(sig.baseline, NumPyForm)
    want = sig.alone(*map(_number, operands))
    assert [(a.shape, a.dtype) for a in sig.avals] == [(w.shape, w.dtype) for w in want]


@pytest.mark.parametrize("name", ["cat", "_stack"])
def test_gradients_in_the_dtypes_that_were_converted_are_traced(name):
    bound, operands = _bound(name, ([S(2), S(2)], 0), (np.dtype(np.float16), np.dtype(np.float32)))
    sig = Signature(bound, tuple(map(_spec, operands)))
    found: Any = plan(sig, (0, 1))
    vjp = Signature(found.vjp_of((True,)), sig.avals)
    assert [a.dtype for a in vjp.avals] == [np.float16, np.float32]
    assert not isinstance(vjp.baseline, NumPyForm)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("expand", (S(3, 4), (3, 5))), ("permute", (S(3, 4), (0, 0))), ("squeeze", (S(3, 4), (0,))),
        ("slice", (S(3), 0, 0, 5, 1)), ("select", (S(0), 0, 0)), ("cat", ([S(2, 3), S(3, 2)], 0)), ("_stack", ([S(2), S(3)], 0)),
        ("narrow_copy", (S(3), 0, 2, 4)), ("constant_pad_nd", (S(3), (-2, -2), 0)), ("tril", (S(3), 0)),
        ("view_as_complex", (S(3, 2),)),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_what_does_not_fit_raises_the_operators_error(name, call):
    bound, operands = _bound(name, call, (np.dtype(np.int32 if name == "view_as_complex" else np.float32),))
    with pytest.raises(RuntimeError, match=r"\w"):
        Signature(bound, tuple(map(_spec, operands)))


def test_finding_the_shape_of_a_large_result_takes_no_memory():
    huge = aval_of((1 << 40, 3), np.dtype(np.float64), CPU)
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("cat", ([S(1, 3), S(1, 3)], 0)), ("repeat", (S(1, 3), (2, 1))), ("_to_copy", (S(1, 3), torch.float16)), ("flip", (S(1, 3), (0,))),
        ("constant_pad_nd", (S(1, 3), (1, 1), 0)), ("zero", (S(1, 3),)), ("roll", (S(1, 3), (1,), (0,))),
    ]  # fmt: skip
    for name, call in calls:
        bound, operands = _bound(name, call, (np.dtype(np.float64),))
        found = signature(bound, tuple([huge if isinstance(x, np.ndarray) else type(x) for x in operands]))
        assert found.avals[0].shape[0] in (1 << 40, 1 << 41)


def test_what_copies_costs_by_its_size_and_a_view_does_not():
    def cost(name: str, *call: Any) -> float:
        bound, operands = _bound(name, call, (np.dtype(np.float32),))
        return Signature(bound, tuple(map(_spec, operands))).baseline.cost  # type: ignore[union-attr] - it has one

    assert cost("permute", S(1000, 1000), (1, 0)) == cost("permute", S(1, 1), (1, 0)) == cost("slice", S(1000, 1000), 0, 5, 900, 1)
    assert cost("cat", [S(1000, 1000), S(1000, 1000)], 0) > 100 * cost("permute", S(1, 1), (1, 0))
    # What may be written in place costs what is written.
    assert cost("cat", [S(2), S(2)], 0) < cost("select_scatter", S(1000, 1000), S(1000), 0, 1) == cost("select_scatter", S(2, 1000), S(1000), 0, 1)
    # What is read of a table is what is found.
    few, many = [cost("embedding", S(1000, 1000), Places((n,), 0, 1000), -1, False) for n in (2, 1000)]
    assert few < 10 * cost("permute", S(1, 1), (1, 0)) and many > 50 * few
    assert cost("index", S(1000, 1000), [Places((2,), 0, 1000)], (0,)) < 2 * few


def test_a_form_is_not_used_where_operands_are_promoted():
    """Where they have to be of one dtype it tells that they are not: test_numpy_products.py."""
    assert all(o.promote in (None, "same") for o in registry.values() if o.numpy is not None)
