"""Activations, softmax and normalization, against PyTorch itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torchgrad_jax as ours  # noqa: E402
from tests.neural_functions import (  # noqa: E402
    INF,
    OURS,
    PLAIN,
    SPECIAL,
    THEIRS,
    Function,
    batched,
    compare,
    normal,
    same,
)

pytestmark = [pytest.mark.operators, pytest.mark.filterwarnings("error")]

# ---------------------------------------------------------------------- activations

UNARY: dict[str, Function] = {
    "relu": lambda t, f, x: f.relu(x), "relu6": lambda t, f, x: f.relu6(x), "elu": lambda t, f, x: f.elu(x, 0.7), "selu": lambda t, f, x: f.selu(x),
    "celu": lambda t, f, x: f.celu(x, 1.3), "leaky_relu": lambda t, f, x: f.leaky_relu(x), "leaky_relu_up": lambda t, f, x: f.leaky_relu(x, -0.5),
    "gelu": lambda t, f, x: f.gelu(x), "gelu_tanh": lambda t, f, x: f.gelu(x, approximate="tanh"), "silu": lambda t, f, x: f.silu(x),
    "mish": lambda t, f, x: f.mish(x), "hardtanh": lambda t, f, x: f.hardtanh(x, -0.5, 2.0), "hardswish": lambda t, f, x: f.hardswish(x),
    "hardsigmoid": lambda t, f, x: f.hardsigmoid(x), "softplus": lambda t, f, x: f.softplus(x), "softplus_2": lambda t, f, x: f.softplus(x, 2, 5),
    "softsign": lambda t, f, x: f.softsign(x), "tanhshrink": lambda t, f, x: f.tanhshrink(x), "hardshrink": lambda t, f, x: f.hardshrink(x),
    "softshrink": lambda t, f, x: f.softshrink(x), "threshold": lambda t, f, x: f.threshold(x, 0.5, 2.0),
    "logsigmoid": lambda t, f, x: f.logsigmoid(x),
    "sigmoid": lambda t, f, x: f.sigmoid(x), "tanh": lambda t, f, x: f.tanh(x), "rrelu": lambda t, f, x: f.rrelu(x),
}  # fmt: skip
INPLACE: dict[str, Function] = {
    "relu": lambda t, f, x: f.relu(x * 1, inplace=True), "relu_": lambda t, f, x: f.relu_(x * 1), "relu6": lambda t, f, x: f.relu6(x * 1, True),
    "elu": lambda t, f, x: f.elu(x * 1, 0.7, True), "elu_": lambda t, f, x: f.elu_(x * 1), "selu": lambda t, f, x: f.selu(x * 1, True),
    "selu_": lambda t, f, x: f.selu_(x * 1), "celu": lambda t, f, x: f.celu(x * 1, 1.3, True), "celu_": lambda t, f, x: f.celu_(x * 1),
    "leaky_relu": lambda t, f, x: f.leaky_relu(x * 1, 0.1, True), "leaky_relu_": lambda t, f, x: f.leaky_relu_(x * 1),
    "silu": lambda t, f, x: f.silu(x * 1, True), "mish": lambda t, f, x: f.mish(x * 1, True), "hardtanh_": lambda t, f, x: f.hardtanh_(x * 1),
    "hardswish": lambda t, f, x: f.hardswish(x * 1, True), "hardsigmoid": lambda t, f, x: f.hardsigmoid(x * 1, True),
    "threshold": lambda t, f, x: f.threshold(x * 1, 0.1, 2.0, True), "threshold_": lambda t, f, x: f.threshold_(x * 1, 0.1, -2.0),
    "rrelu": lambda t, f, x: f.rrelu(x * 1, 0.1, 0.2, False, True), "rrelu_": lambda t, f, x: f.rrelu_(x * 1),
    "leaf": lambda t, f, x: f.relu(x, True),
}  # fmt: skip
# PyTorch 2.13 has no second derivative of these.
ONCE = {"rrelu", "hardsigmoid"}


@batched
def test_activations() -> None:
    for name, function in UNARY.items():
        compare(function, SPECIAL, second=False)
        compare(function, PLAIN, second=name not in ONCE)
        compare(function, np.array(0.3), second=False)
        compare(function, np.zeros((0, 3)), second=False)


@batched
def test_inplace_activations() -> None:
    for function in INPLACE.values():
        compare(function, PLAIN, second=False)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@batched
def test_activations_in_other_precisions(dtype: str) -> None:
    for function in UNARY.values():
        compare(function, PLAIN, second=False, dtype=dtype, rtol={"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype])


@pytest.mark.parametrize("kind", ["bool", "int64", "uint8", "complex64"])
@batched
def test_activations_of_other_types(kind: str) -> None:
    for function in UNARY.values():
        compare(function, np.array([[-1, 0, 1, 2], [3, -4, 5, 7]]).astype(kind), rtol=1e-5)


@pytest.mark.parametrize("function", [
    lambda t, f, x: f.relu(3), lambda t, f, x: f.relu6(3), lambda t, f, x: f.elu(3), lambda t, f, x: f.logsigmoid(3), lambda t, f, x: f.prelu(3, x),
    lambda t, f, x: f.gelu(x, approximate="other"), lambda t, f, x: f.celu(x, 0.0), lambda t, f, x: f.rrelu(x, 0.5, 0.1),
    lambda t, f, x: f.softshrink(x, -1.0), lambda t, f, x: f.softshrink(x.float(), -1.0), lambda t, f, x: f.hardtanh(x, 1.0, -1.0),
    lambda t, f, x: f.glu(x[0, 0]), lambda t, f, x: f.glu(x[:, :3]), lambda t, f, x: f.glu(x, 5), lambda t, f, x: f.prelu(x, t.ones(3).double()),
    lambda t, f, x: f.prelu(x, t.ones(2, 2).double()), lambda t, f, x: f.prelu(x[0], t.ones(4).double()), lambda t, f, x: f.prelu(x, t.ones(4)),
    lambda t, f, x: f.prelu(x[0, 0], t.ones(2).double()), lambda t, f, x: f.softmax(x, 5), lambda t, f, x: f.log_softmax(x, "a"),
    lambda t, f, x: f.softmax(x, 0, dtype=t.int32),
])  # fmt: skip
@batched
def test_activation_errors(function: Function) -> None:
    compare(function, normal(3, 4))


@batched
def test_glu_and_prelu() -> None:
    compare(lambda t, f, x: f.glu(x), normal(3, 4), second=False)
    compare(lambda t, f, x: f.glu(x, 0), normal(4, 3), second=False)
    for weight in (normal(4), normal(1), np.array(0.3)):
        compare(lambda t, f, x, w: f.prelu(x, w), normal(3, 4, 2), weight)
    compare(lambda t, f, x, w: f.prelu(x, w), normal(5), normal(1))


def test_a_negative_slope_in_place_keeps_the_gradient_right() -> None:
    """PyTorch refuses backward here; the input, which is kept, gives it."""
    x = ours.tensor(PLAIN, requires_grad=True)
    plain = ours.autograd.grad(OURS.leaky_relu(x, -0.5), x, ours.ones_like(x))[0]
    written = ours.autograd.grad(OURS.leaky_relu_(x * 1, -0.5), x, ours.ones_like(x))[0]
    np.testing.assert_array_equal(plain.numpy(), written.numpy())


# ---------------------------------------------------------------------- softmax


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
@batched
def test_softmax(name: str) -> None:
    for shape, dim in (((3, 4), -1), ((3, 4), 0), ((2, 3, 4), 1), ((), 0), ((), -1), ((0, 3), 1), ((0, 3), 0)):
        compare(lambda t, f, x, dim=dim: getattr(f, name)(x, dim), normal(*shape))
    compare(lambda t, f, x: getattr(f, name)(x, 1), np.array([[-INF, -INF], [-INF, 1], [800, 0], [INF, 0]]), second=False)
    compare(lambda t, f, x: getattr(f, name)(x, -1, dtype=t.float32), normal(3, 4), rtol=1e-6)
    compare(lambda t, f, x: getattr(f, name)(x, -1, dtype=t.float32), normal(3, 4), dtype="float16", rtol=2e-3, second=False)
    compare(lambda t, f, x: getattr(f, name)(x, -1, dtype=t.float64), np.arange(4))
    for dtype, rtol in (("float32", 1e-6), ("float16", 2e-3), ("bfloat16", 1.6e-2)):
        compare(lambda t, f, x: getattr(f, name)(x, -1), normal(3, 4), dtype=dtype, rtol=rtol, second=False)
    for kind in ("bool", "int64", "complex64"):
        compare(lambda t, f, x: getattr(f, name)(x, 0), np.ones((2, 3), kind))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize("ndim", [0, 1, 2, 3, 4])
def test_softmax_chooses_a_dimension_with_a_warning(name: str, ndim: int) -> None:
    x = normal(*(2,) * ndim)
    text = f"Implicit dimension choice for {name} has been deprecated"
    with pytest.warns(UserWarning, match=text):
        a = getattr(THEIRS, name)(torch.tensor(x))
    with pytest.warns(UserWarning, match=text):
        b = getattr(OURS, name)(ours.tensor(x))
    same(a, b, 1e-12, name)


# ---------------------------------------------------------------------- normalization


@pytest.mark.parametrize("affine", ["", "w", "b", "wb"])
@batched
def test_layer_norm(affine: str) -> None:
    for shape, size in (((3, 4), (4,)), ((2, 3, 4), (3, 4)), ((0, 4), (4,)), ((4,), (4,))):
        parameters = [normal(*size, seed=i + 1) for i in range(len(affine))]

        def call(t: Any, f: Any, x: Any, *p: Any, size: Any = size) -> Any:
            given = dict(zip(affine, p, strict=True))
            return f.layer_norm(x, size, given.get("w"), given.get("b"))

        # PyTorch 2.13 fails in the second derivative of a bias alone.
        compare(call, normal(*shape), *parameters, rtol=1e-8, second=0 not in shape and affine != "b")
        for dtype, rtol in (("float32", 1e-5), ("float16", 5e-3), ("bfloat16", 3e-2)):
            compare(call, normal(*shape), *parameters, dtype=dtype, rtol=rtol, second=False)


@batched
def test_layer_norm_of_half_precision_with_wide_parameters() -> None:
    operands = (normal(3, 4), normal(4), normal(4))
    compare(lambda t, f, x, w, b: f.layer_norm(x.bfloat16(), (4,), w, b), *operands, dtype="float32", rtol=3e-2, second=False)


@pytest.mark.parametrize("function", [
    lambda t, f, x: f.layer_norm(x, (3,)), lambda t, f, x: f.layer_norm(x, ()), lambda t, f, x: f.layer_norm(x, 4),
    lambda t, f, x: f.layer_norm(x, (4,), t.ones(3)), lambda t, f, x: f.layer_norm(x, (4,), None, t.ones(3)),
    lambda t, f, x: f.layer_norm(x, (2, 3, 4)),
    lambda t, f, x: f.layer_norm(x, (4,), t.ones(4)), lambda t, f, x: f.layer_norm(x.long(), (4,)), lambda t, f, x: f.layer_norm(3, (4,)),
    lambda t, f, x: f.rms_norm(x, (3,)), lambda t, f, x: f.rms_norm(x, ()), lambda t, f, x: f.rms_norm(x, (4,), t.ones(3)),
    lambda t, f, x: f.rms_norm(x[0, 0], (4,)), lambda t, f, x: f.rms_norm(x.long(), (4,)),
    lambda t, f, x: f.group_norm(x, 3), lambda t, f, x: f.group_norm(x, 0), lambda t, f, x: f.group_norm(x, 2, t.ones(3)),
    lambda t, f, x: f.group_norm(x[0], 2), lambda t, f, x: f.group_norm(x[:1, :2], 2), lambda t, f, x: f.group_norm(x.long(), 2),
    lambda t, f, x: f.batch_norm(x, None, None), lambda t, f, x: f.batch_norm(x[:1], None, None, training=True),
    lambda t, f, x: f.batch_norm(x, t.zeros(3), t.ones(4)), lambda t, f, x: f.batch_norm(x, t.zeros(4), t.ones(3)),
    lambda t, f, x: f.batch_norm(x, t.zeros(4), t.ones(4)), lambda t, f, x: f.batch_norm(x, t.zeros(4), None),
    lambda t, f, x: f.batch_norm(x, t.zeros(4), t.ones(4), t.ones(3)), lambda t, f, x: f.batch_norm(x, t.zeros(4), t.ones(4), None, t.ones(3)),
    lambda t, f, x: f.batch_norm(x, None, t.ones(4), training=True), lambda t, f, x: f.batch_norm(x[0], t.zeros(4), t.ones(4)),
    lambda t, f, x: f.batch_norm(x, t.zeros(4).double().requires_grad_(), t.ones(4).double(), training=True),
    lambda t, f, x: f.batch_norm(x.long(), None, None, training=True),
    lambda t, f, x: f.instance_norm(x), lambda t, f, x: f.instance_norm(x[:, :, None]),
    lambda t, f, x: f.instance_norm(x[:, :, None], use_input_stats=False),
    lambda t, f, x: f.instance_norm(x.reshape(1, 3, 4), t.zeros(2), t.ones(2), use_input_stats=False),
    lambda t, f, x: f.instance_norm(x.reshape(1, 3, 4), weight=t.ones(2)), lambda t, f, x: f.normalize(x, 2.0, 5),
    lambda t, f, x: f.normalize(x.long()),
])  # fmt: skip
@batched
def test_normalization_errors(function: Function) -> None:
    compare(function, normal(3, 4))


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 5), (2, 4, 3, 2)])
@batched
def test_batch_norm(shape: tuple[int, ...]) -> None:
    compare(lambda t, f, x, w, b: f.batch_norm(x, None, None, w, b, True), normal(*shape), normal(4), normal(4, seed=1), rtol=1e-8)
    compare(lambda t, f, x: f.batch_norm(x, None, None, None, None, True, eps=1e-2), normal(*shape), rtol=1e-8)
    for seed in (1, 2):
        mean, variance = normal(4, seed=seed), np.abs(normal(4, seed=seed + 10))

        def evaluate(t: Any, f: Any, x: Any, w: Any, b: Any, m: Any = mean, v: Any = variance) -> Any:
            return f.batch_norm(x, t.tensor(m), t.tensor(v), w, b)

        compare(evaluate, normal(*shape), normal(4), normal(4, seed=1), rtol=1e-8)
        for training in (True, False):
            for name in ("batch_norm", "instance_norm"):
                if name == "instance_norm" and len(shape) < 3:
                    continue
                found = []
                for t, f in ((torch, THEIRS), (ours, OURS)):
                    m, v = t.tensor(mean), t.tensor(variance)
                    y = getattr(f, name)(t.tensor(normal(*shape)), m, v, None, None, training, 0.3)
                    found.append((y, m, v))
                for p, q in zip(*found, strict=True):
                    same(p, q, 1e-10, f"{name} {training}")


@batched
def test_batch_norm_of_half_precision() -> None:
    for training in (True, False):
        for parameters in ("float32", "bfloat16"):
            compare(
                lambda t, f, x, w, b, training=training, parameters=parameters: f.batch_norm(
                    x.bfloat16(), t.zeros(4, dtype=getattr(t, parameters)), t.ones(4, dtype=getattr(t, parameters)),
                    w.to(getattr(t, parameters)), b.to(getattr(t, parameters)), training,
                ),
                normal(3, 4, 5), normal(4), normal(4, seed=1), dtype="float32", rtol=3e-2, second=False,
            )  # fmt: skip


@batched
def test_batch_norm_of_nothing() -> None:
    compare(lambda t, f, x: f.batch_norm(x, t.zeros(4), t.ones(4), training=True), np.zeros((0, 4)), second=False)
    compare(lambda t, f, x: f.batch_norm(x, t.zeros(0), t.ones(0)), np.zeros(0), second=False)


@pytest.mark.parametrize("shape", [(2, 4, 5), (3, 4, 2, 2)])
@batched
def test_group_and_instance_norm(shape: tuple[int, ...]) -> None:
    for groups in (1, 2, 4):
        compare(lambda t, f, x, w, b, n=groups: f.group_norm(x, n, w, b), normal(*shape), normal(4), normal(4, seed=1), rtol=1e-8)
        compare(lambda t, f, x, n=groups: f.group_norm(x, n), normal(*shape), rtol=1e-8)
    compare(lambda t, f, x, w: f.group_norm(x, 2, w), normal(*shape), normal(4), dtype="bfloat16", rtol=4e-2, second=False)
    compare(lambda t, f, x, w, b: f.instance_norm(x, None, None, w, b), normal(*shape), normal(4), normal(4, seed=1), rtol=1e-8)
    compare(lambda t, f, x: f.instance_norm(x), normal(*shape), rtol=1e-8)


@batched
def test_rms_norm() -> None:
    compare(lambda t, f, x, w: f.rms_norm(x, (4,), w), normal(3, 4), normal(4))
    compare(lambda t, f, x: f.rms_norm(x, (3, 4), eps=0.1), normal(2, 3, 4))
    for dtype, rtol in (("float32", 1e-6), ("float16", 2e-3), ("bfloat16", 2e-2)):
        compare(lambda t, f, x, w: f.rms_norm(x, (4,), w), normal(3, 4), normal(4), dtype=dtype, rtol=rtol, second=False)


@batched
def test_normalize() -> None:
    for p in (2.0, 1.0, 3.0, INF, 0.5):
        compare(lambda t, f, x, p=p: f.normalize(x, p), normal(3, 4), second=p == 2.0)
    compare(lambda t, f, x: f.normalize(x, dim=(0, -1)), normal(3, 4))
    compare(lambda t, f, x: f.normalize(x, dim=0, eps=5.0), normal(3, 4))
    compare(lambda t, f, x: f.normalize(x), np.array([[0.0, 0.0], [1.0, 2.0]]), second=False)
    compare(lambda t, f, x: f.normalize(x, 1.2, 0), normal())
    for p in (1.0, 0.5):  # the sign of a complex number has a derivative
        compare(lambda t, f, x, p=p: f.normalize(x, p), normal(3, 4) + 1j * normal(3, 4, seed=1), dtype="complex128")


def test_the_layout_of_a_gradient_given_to_batch_norm_changes_nothing():
    ours.manual_seed(0)
    x, weight, bias = ours.randn(1, 6, 4, 4, requires_grad=True), ours.ones(6, requires_grad=True), ours.zeros(6, requires_grad=True)
    y = ours.nn.functional.batch_norm(x, None, None, weight, bias, training=True)
    last = ours.randn(1, 16, 6).permute(0, 2, 1).reshape(1, 6, 4, 4)
    assert last.is_contiguous(memory_format=ours.channels_last)
    found = ours.autograd.grad(y, (x, weight, bias), last, retain_graph=True)
    for gradient, expected in zip(found, ours.autograd.grad(y, (x, weight, bias), last.contiguous()), strict=True):
        ours.testing.assert_close(gradient, expected)
    ours.testing.assert_close(found[2], last.sum((0, 2, 3)))


@pytest.mark.parametrize("size", [3, 300, 100_000])
def test_erf_of_a_large_number_is_1_so_that_gelu_of_it_is_the_number_or_0(size):
    for m in (ours, torch):
        x = m.full((size,), 1e30)
        x[0] = 4.0
        assert m.erf(x).eq(1).all() and m.erf(-x).eq(-1).all() and m.erf(x * m.nan).isnan().all()
        assert m.nn.functional.gelu(x)[1:].equal(x[1:]) and m.nn.functional.gelu(-x)[1:].eq(0).all()


def test_nothing_passes_through_batch_norm_where_the_variance_is_infinite():
    for m in (ours, torch):
        x = m.tensor(normal(4, 3), dtype=m.float32).mul(1e30).requires_grad_()
        m.nn.functional.batch_norm(x, None, None, training=True).square().sum().backward()
        assert x.grad.eq(0).all()


def test_sinc_has_slope_0_where_a_square_is_too_small():
    for m in (ours, torch):
        x = m.tensor([1e-30, 0.0, -1e-25], requires_grad=True)
        m.sinc(x).sum().backward()
        assert x.grad.eq(0).all()
