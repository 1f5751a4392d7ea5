"""Gradients where the result's own gradient, or what they are made of, is nan or infinite: what PyTorch leaves out stays left out."""

import math

import pytest

from tests.side_by_side import like_pytorch
from tests.ways import WAYS

pytest.importorskip("torch")

pytestmark = pytest.mark.operators

INF, NAN = math.inf, math.nan
POINTS = [0.0, 1.0, -1.0, 2.0, INF, -INF, NAN, 0.5, 3.0, -3.0]
FUNCTIONS = {
    "power": lambda m, x: x.pow(2),
    "power 0": lambda m, x: x.pow(0),
    "powers": lambda m, x: m.pow(x, m.tensor([0.0, 1.0, 2.0, 0.5, 0.0, 0.0, 0.0, -1.0, INF, NAN], dtype=m.float64)),
    "exponents": lambda m, x: m.pow(m.tensor([0.0, 0.0, 0.0, 2.0, 1.0, 1.0, 0.0, 0.0, -2.0, NAN], dtype=m.float64), x),
    "logit": lambda m, x: x.logit(),
    "logit within": lambda m, x: x.nan_to_num(0.25).logit(1e-6),
    "entr": lambda m, x: m.special.entr(x),
    "xlogy": lambda m, x: m.xlogy(x, m.zeros_like(x)),
    "norm": lambda m, x: x.norm(),
    "norm 1": lambda m, x: x.norm(1),
    "largest": lambda m, x: x[:4].norm(INF),
    "largest is nan": lambda m, x: x.norm(INF),
    "hinge": lambda m, x: m.nn.functional.hinge_embedding_loss(x, m.tensor([1, -1] * 5), reduction="none"),
    "drawn": lambda m, x: x.nan_to_num(0.5).clamp(0, 1).bernoulli(),
    "normal": lambda m, x: m.normal(x.nan_to_num(0.5), 1.0),
    "overwritten": lambda m, x: x.clone().uniform_(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_at_the_ends(name, way):
    def program(m, grad):
        m.manual_seed(0)
        x = m.tensor(POINTS, dtype=m.float64, requires_grad=True)
        y = FUNCTIONS[name](m, x)
        y.backward(m.full_like(y, grad))
        return y, x.grad

    with WAYS[way]():
        for grad in (1.0, NAN, INF):
            like_pytorch(lambda m: program(m, grad))()  # noqa: B023 - called at once


@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_number_is_within_no_bounds(way):
    # One element: in a vector of them PyTorch's gradient is 0 with the instructions of some processors.
    def program(m):
        x = m.tensor([NAN], dtype=m.float64, requires_grad=True)
        y = x.logit(1e-6)
        y.backward(m.ones(1, dtype=m.float64))
        return y, x.grad

    with WAYS[way]():
        like_pytorch(program)()


@pytest.mark.parametrize("way", WAYS)
def test_a_running_sum_of_exponentials_does_not_forget_that_it_has_no_value(way):
    with WAYS[way]():
        like_pytorch(lambda m: m.tensor([1.0, NAN, -INF, 1.0]).logcumsumexp(0))()
        like_pytorch(lambda m: m.tensor([-INF, -INF, 1.0, -INF]).logcumsumexp(0))()


@pytest.mark.parametrize("name", ["multi_margin_loss", "multilabel_margin_loss"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("target", [0, 1, -1])
def test_margins_of_one_number(name, reduction, target):
    def program(m):
        x = m.tensor(0.3, requires_grad=True)
        loss = getattr(m.nn.functional, name)(x, m.tensor(target), reduction=reduction)
        value = loss.item()
        loss.backward()
        return value, list(loss.shape), x.grad

    like_pytorch(program)()


LOCAL = {
    "linear": lambda f, x: f.interpolate(x, size=9, mode="linear"),
    "linear, corners": lambda f, x: f.interpolate(x, size=9, mode="linear", align_corners=True),
    "linear, fewer": lambda f, x: f.interpolate(x, size=3, mode="linear"),
    "bilinear": lambda f, x: f.interpolate(x[None], size=(1, 9), mode="bilinear"),
    "bicubic": lambda f, x: f.interpolate(x[None], size=(1, 9), mode="bicubic"),
    "nearest": lambda f, x: f.interpolate(x, size=9),
    "area": lambda f, x: f.interpolate(x, size=4, mode="area"),
    "adaptive mean": lambda f, x: f.adaptive_avg_pool1d(x, 4),
    "mean": lambda f, x: f.avg_pool1d(x, 2, 1),
    "means of many": lambda f, x: f.avg_pool1d(x.repeat(1, 1, 12), 40, 3),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LOCAL)
def test_what_has_no_value_spreads_no_further_than_its_windows(name, way):
    def program(m):
        x = m.tensor([[[1.0, NAN, 2.0, 3.0, INF, 4.0, 5.0]]], dtype=m.float64, requires_grad=True)
        y = LOCAL[name](m.nn.functional, x)
        grad = m.ones_like(y)
        grad.view(-1)[0] = NAN
        y.backward(grad)
        return y, x.grad

    with WAYS[way]():
        like_pytorch(program)()


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0])
def test_distances_from_what_has_no_value_have_none(p):
    def program(m):
        x = m.tensor([[0.0, NAN, 1.0], [INF, 1.0, 2.0], [1.0, 1.0, 1.0]], dtype=m.float64)
        return m.cdist(x, x, p), m.nn.functional.pdist(x, p)

    like_pytorch(program)()


@like_pytorch
def test_a_loss_of_angles_leaves_out_what_has_no_value(m):
    x, y = m.tensor([[NAN, 1.0], [1.0, 2.0]]), m.ones(2, 2)
    return m.nn.functional.cosine_embedding_loss(x, y, m.tensor([0.0, 1.0]), reduction="none")
