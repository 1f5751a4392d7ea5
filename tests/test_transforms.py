"""vmap, jvp and vjp of operators of all families, held against what they must be equal to. All operators: ``python -m compat_suite transforms``."""

from __future__ import annotations

import itertools
import warnings

import pytest

import torchgrad_jax as tj
from compat_suite.counting import Difference, NotApplicable
from compat_suite.records import Make
from compat_suite.transforms.case import Case
from compat_suite.transforms.checks import CHECKS, DERIVATIVES
from compat_suite.transforms.command import count
from compat_suite.transforms.sources import Records, inplace

pytestmark = pytest.mark.operators
F = tj.nn.functional
RECORDED = [
    "exp", "mul", "atan2", "where", "clamp", "pow", "complex", "sum", "amax", "var", "logsumexp", "cumsum", "std_mean", "median", "sort", "topk",
    "cat", "stack", "split", "unbind", "transpose", "reshape", "diagonal", "unfold", "flip", "repeat_interleave", "view_as_real", "__getitem__",
    "gather", "scatter_add", "index_put", "index_select", "masked_fill", "take_along_dim", "zeros_like", "full_like", "new_zeros", "matmul",
    "addmm", "einsum", "linalg.solve", "linalg.cholesky", "linalg.slogdet", "fft.rfft", "nn.functional.conv2d", "nn.functional.max_pool2d",
    "nn.functional.layer_norm", "nn.functional.cross_entropy", "nn.functional.embedding", "nn.functional.scaled_dot_product_attention", "softmax",
]  # fmt: skip


PROGRAMS = {"jit", "grad_of_jit", "to_jax", "grad_of_to_jax"}  # whose compiling takes its time


@pytest.mark.parametrize("name", RECORDED)
def test_transforms_of_recorded_operators(name):
    source, compared = Records(), 0
    for check in CHECKS:
        if source.applies(name, check) and (check not in PROGRAMS or name in RECORDED[::10]):
            found = count(source, name, check, source.dtypes(name, False)[0], 1)
            compared += found.samples
            assert found.differences == [], check
    assert compared


def written(x, value):
    """A slice and a part at indices are written to, and a view sees it."""
    x = x.clone()
    row = x[0]
    x[1:, ::2] = value
    x[tj.tensor([0, 1]), 1] = 2 * value.sum()
    return x, row * 2


def through_views(x):
    """A view of a view is written to in place."""
    x = x * 1
    x.t()[1].mul_(3).add_(x[:, 0].sum())
    x.select(0, 1).exp_()
    return x


def accumulated(x, y):
    """A tensor that is not mapped, made inside, is written to with what is."""
    total = tj.zeros_like(x)
    for i in range(2):
        total += x * y[i]
    return total.cumsum(0), x.new_zeros(2, dtype=tj.int64), tj.full((2,), 3.0, dtype=tj.float64) * x.sum()


def normalized(x):
    """Batch normalization with running numbers that are made inside."""
    mean, var = x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])
    return F.batch_norm(x, mean, var, training=True), mean, var


BY_HAND = {
    "indexing that writes": (written, lambda make: (make(3, 4), make(2))),
    "views that are written to": (through_views, lambda make: (make(3, 3),)),
    "sums in place": (accumulated, lambda make: (make(3), make(2))),
    "batch_norm": (normalized, lambda make: (make(4, 3),)),
    "add_": (inplace(tj.Tensor.add_), lambda make: (make(3, 4), make(4))),
    "mul_": (inplace(tj.Tensor.mul_), lambda make: (make(3, 4), make())),
    "masked_fill_": (inplace(tj.Tensor.masked_fill_), lambda make: (make(3, 4), make.bools(3, 1), 0.5)),
    "index_add_": (inplace(tj.Tensor.index_add_), lambda make: (make(3, 4), 0, make.integers(2, high=3), make(2, 4))),
    "scatter_": (inplace(tj.Tensor.scatter_), lambda make: (make(3, 4), 1, make.integers(3, 1, high=4), make(3, 1))),
    "sigmoid_": (inplace(tj.Tensor.sigmoid_), lambda make: (make(3),)),
    "as_strided": (lambda x: x.clone().as_strided((2, 2), (1, 2), 1), lambda make: (make(3, 4),)),
    "expand and a 0-dim tensor": (lambda x, y: x.expand(2, 3) * y.double(), lambda make: (make(3), make())),
    "promotion": (lambda i, x: (i + x, i * 2, i / 3), lambda make: (make.integers(3), make())),
}


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.parametrize("check", [c for c in CHECKS if c not in PROGRAMS])
def test_transforms_of_programs(name, check):
    function, samples = BY_HAND[name]
    case = Case(function, samples(Make("float64")), {})
    try:
        CHECKS[check](case)
    except NotApplicable as error:
        assert check in DERIVATIVES, error


def test_random_operations():
    x = tj.ones(3, 50, dtype=tj.float64)
    for randomness, alike in (("same", True), ("different", False)):
        dropped = tj.func.vmap(F.dropout, randomness=randomness)(x)
        assert set(dropped.unique().tolist()) == {0.0, 2.0}
        assert bool((dropped[0] == dropped[1]).all()) is alike
    with pytest.raises(RuntimeError, match="randomness"):
        tj.func.vmap(F.dropout)(x)


@pytest.mark.parametrize("check", CHECKS)
def test_what_is_wrong_is_noticed(check):
    calls = itertools.count(1)
    case = Case(lambda x: x * x * next(calls), (Make("float64")(3),), {})
    with warnings.catch_warnings(), pytest.raises(Difference):
        warnings.simplefilter("ignore")  # that such a function is not compiled
        CHECKS[check](case)
