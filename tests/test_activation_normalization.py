"""Activations, softmax, normalization, dropout, attention and linear, against PyTorch itself."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torchgrad_jax as ours  # noqa: E402
from torchgrad_jax.nn import activation, attention, dropout, linear, normalization  # noqa: E402
from torchgrad_jax.tensor.random import default_generator  # noqa: E402

pytestmark = [pytest.mark.operators, pytest.mark.filterwarnings("error")]

MODULES = (activation, attention, dropout, linear, normalization)
OURS = SimpleNamespace(**{name: getattr(module, name) for module in MODULES for name in module.__all__})
THEIRS = torch.nn.functional
INF, NAN = math.inf, math.nan
SPECIAL = np.array([-INF, -100, -30, -3, -1, -0.5, -0.0, 0.0, 0.5, 1, 3, 6, 20, 21, 100, INF, NAN])
PLAIN = np.array([-30, -4, -2.5, -1.25, -0.75, -0.2, 0.1, 0.3, 0.8, 1.7, 2.2, 4.5, 7, 19, 22])
MASK = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]], bool)

Function = Callable[..., Any]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal samples that depend on the shape and the seed alone."""
    return np.random.default_rng([seed, len(shape), *shape]).standard_normal(shape)


def outcome(function: Function, t: Any, f: Any, tensors: list[Any]) -> Any:
    """The result, or the exception."""
    try:
        return function(t, f, *tensors)
    except Exception as error:
        return error


def array(x: Any) -> np.ndarray:
    """The content as float64, whatever the dtype."""
    return (x.detach().double() if x.dtype.is_floating_point else x.detach()).numpy()


def name_of(node: Any) -> str | None:
    return None if node is None else node.name().removeprefix("torch::autograd::")


def same(a: Any, b: Any, rtol: float, what: str) -> None:
    """Equal values, shape and dtype."""
    if a is None or b is None:
        assert a is None and b is None, what
        return
    assert str(a.dtype) == str(b.dtype), what
    assert tuple(a.shape) == tuple(b.shape), what
    np.testing.assert_allclose(array(b), array(a), rtol=rtol, atol=rtol, equal_nan=True, err_msg=what)


class Case:
    """One function on the same inputs in PyTorch and here. `second`: with second derivatives; `node`: grad_fn names are compared."""

    def __init__(self, function: Function, arrays: tuple[np.ndarray, ...], rtol: float, second: bool, dtype: str, node: bool) -> None:
        self.rtol, self.second, self.node = rtol, second, node
        self.inputs: list[list[Any]] = []
        self.outcomes: list[Any] = []
        for t, f in SIDES:
            tensors = [t.tensor(x) if x.dtype.kind != "f" else t.tensor(x, dtype=getattr(t, dtype), requires_grad=True) for x in arrays]
            self.inputs.append([x for x in tensors if x.requires_grad])
            self.outcomes.append(outcome(function, t, f, tensors))

    def tracked(self) -> bool:
        """Whether there are gradients to compare; the error, dtype and graph have been compared then."""
        a, b = self.outcomes
        if isinstance(a, Exception):
            assert (type(b), str(b)) == (type(a), str(a))
            return False
        if isinstance(b, Exception):
            raise b
        assert a.requires_grad == b.requires_grad
        if self.node:
            assert name_of(b.grad_fn) == name_of(a.grad_fn)
        return a.requires_grad


SIDES = ((torch, THEIRS), (ours, OURS))
pending: list[Case] = []


def compare(function: Function, *arrays: np.ndarray, rtol: float = 1e-9, second: bool = True, dtype: str = "float64", node: bool = True) -> None:
    """Value, dtype, shape, grad_fn, first and second gradients of all floating inputs; or the error. Looked at when the test ends, so that
    a test is a program or two and not a hundred."""
    pending.append(Case(function, arrays, rtol, second, dtype, node))


def settle() -> None:
    """Compare what is pending."""
    cases = pending[:]
    pending.clear()
    tracked = [c for c in cases if c.tracked()]
    for second in (False, True):
        group = [c for c in tracked if c.second == second]
        if group:
            gradients = [derivatives(t, side, group, second) for side, (t, _) in enumerate(SIDES)]
            for c, (what, p), (_, q) in zip([group[i] for i in gradients[0][1]], gradients[0][0], gradients[1][0], strict=True):
                if p is None or q is None:
                    assert all(not array(x).any() for x in (p, q) if x is not None), what
                else:
                    same(p, q, c.rtol * 100, what)
    for c in cases:
        if not isinstance(c.outcomes[0], Exception):
            same(*c.outcomes, c.rtol, "value")


def derivatives(t: Any, side: int, group: list[Case], second: bool) -> tuple[list[tuple[str, Any]], list[int]]:
    """The first and, with `second`, the second derivatives of all cases, by one pass each; and whose each is."""
    outs = [c.outcomes[side] for c in group]
    cotangents = [t.tensor(normal(*y.shape, seed=9), dtype=y.dtype, requires_grad=True) for y in outs]
    inputs = [x for c in group for x in c.inputs[side]]
    owners = [i for i, c in enumerate(group) for _ in c.inputs[side]]
    first = t.autograd.grad(outs, inputs, cotangents, create_graph=second, allow_unused=True)
    found = [("gradient", g) for g in first]
    if second:
        sources = [g for g in first if g is not None and g.requires_grad]
        weights = [t.tensor(normal(*g.shape, seed=7), dtype=g.dtype) for g in sources]
        again = t.autograd.grad(sources, [*inputs, *cotangents], weights, allow_unused=True)
        found += [("second gradient", g) for g in again]
        owners = owners * 2 + list(range(len(group)))
    return found, owners


def batched(test: Any) -> Any:
    """A test whose comparisons are looked at together."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        pending.clear()
        test(*args, **kwargs)
        settle()

    return run


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


# ---------------------------------------------------------------------- linear


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (2, 1, 3, 4), (0, 4), (2, 0, 4)])
@batched
def test_linear(shape: tuple[int, ...]) -> None:
    compare(lambda t, f, x, w, b: f.linear(x, w, b), normal(*shape), normal(5, 4), normal(5))
    compare(lambda t, f, x, w: f.linear(x, w), normal(*shape), normal(5, 4), node=len(shape) > 1)
    if 0 not in shape:
        compare(lambda t, f, x, w: f.linear(x, w), normal(*shape), normal(4))
    compare(lambda t, f, x, w, b: f.linear(x.detach(), w, b), normal(*shape), normal(5, 4), normal(5))
    compare(lambda t, f, x, w, b: f.linear(x, w.detach(), b.detach()), normal(*shape), normal(5, 4), normal(5))
    compare(lambda t, f, x, w, b: f.linear(x, w.detach(), b), normal(*shape), normal(5, 4), normal(5))


@batched
def test_linear_of_other_layouts() -> None:
    compare(lambda t, f, x, w, b: f.linear(x.transpose(0, 1), w, b), normal(3, 2, 4), normal(5, 4), normal(5))
    compare(lambda t, f, x, w, b: f.linear(x.t(), w, b), normal(4, 2), normal(5, 4), normal(5))
    compare(lambda t, f, x, w, b: f.linear(x, w, b), normal(3, 4), normal(5, 4), normal(1))
    compare(lambda t, f, x, w, b: f.linear(x, w, b), normal(3, 4), normal(5, 4), normal(3, 5))
    compare(lambda t, f, x, w, b: f.linear(x, w, b), normal(2, 3, 4), normal(5, 4), normal(3, 5))
    compare(lambda t, f, x: f.linear(x, x), np.arange(12).reshape(3, 4))


def test_the_graph_of_linear() -> None:
    for shape in ((3, 4), (2, 3, 4)):
        found = []
        for t, f in ((torch, THEIRS), (ours, OURS)):
            x, w, b = (t.tensor(a, requires_grad=True) for a in (normal(*shape), normal(5, 4), normal(5)))
            nodes, level = [], [f.linear(x, w, b).grad_fn]
            while level:
                nodes.append([name_of(n) for n in level])
                level = [n for node in level if node is not None for n, _ in node.next_functions]
            found.append(nodes)
        assert found[0] == found[1]


@pytest.mark.parametrize("written", ["x", "w"])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_linear_notices_writes(written: str, shape: tuple[int, ...]) -> None:
    for t, f in ((torch, THEIRS), (ours, OURS)):
        x, w, b = (t.tensor(a, requires_grad=True) for a in (normal(*shape), normal(5, 4), normal(5)))
        x = x * 1
        y = f.linear(x, w.detach() if written == "x" else w, b)
        with t.no_grad():
            (x if written == "x" else w).mul_(2)
        if written == "x":  # nothing that this gradient needs was changed
            t.autograd.grad(y, b, t.ones_like(y))
        else:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                t.autograd.grad(y, b, t.ones_like(y))


@pytest.mark.parametrize("function", [
    lambda t, f, x: f.linear(t.ones(3, 3), t.ones(5, 4)), lambda t, f, x: f.linear(t.ones(2, 3, 3), t.ones(5, 4)),
    lambda t, f, x: f.linear(t.ones(3), t.ones(5, 4)), lambda t, f, x: f.linear(t.ones(3, 4), t.ones(5, 4), t.ones(4)),
    lambda t, f, x: f.linear(x, t.ones(5, 4)), lambda t, f, x: f.linear(x, t.ones(5, 4), t.ones(5)),
    lambda t, f, x: f.linear(t.ones(3, 4), t.ones(2, 5, 4)), lambda t, f, x: f.linear(3, t.ones(5, 4)), lambda t, f, x: f.linear(x, 3),
    lambda t, f, x: f.linear(t.ones(3, 4), t.ones(3)), lambda t, f, x: f.linear(t.tensor(1.0), t.ones(5, 4)),
    lambda t, f, x: f.linear(t.ones(3, 3), t.ones(5, 4), t.ones(5)), lambda t, f, x: f.linear(t.ones(2, 2, 4), t.ones(5, 4), t.ones(4)),
    lambda t, f, x: f.linear(t.ones(4), t.ones(5, 4), t.ones(4)), lambda t, f, x: f.linear(t.ones(3, 4), t.ones(4), t.tensor(1.0)),
    lambda t, f, x: f.bilinear(t.ones(3, 4), t.ones(2, 5), t.ones(6, 4, 5)), lambda t, f, x: f.bilinear(t.ones(3, 3), t.ones(3, 5), t.ones(6, 4, 5)),
    lambda t, f, x: f.bilinear(t.ones(3, 4), t.ones(3, 4), t.ones(6, 4, 5)),
    lambda t, f, x: f.bilinear(t.ones(2, 3, 4), t.ones(3, 5), t.ones(6, 4, 5)),
    lambda t, f, x: f.bilinear(t.ones(3, 4), t.ones(3, 5), t.ones(6, 4, 5), t.ones(5)),
])  # fmt: skip
@batched
def test_linear_errors(function: Function) -> None:
    compare(function, normal(3, 4))


@batched
def test_bilinear() -> None:
    compare(lambda t, f, x, y, w, b: f.bilinear(x, y, w, b), normal(3, 4), normal(3, 5), normal(6, 4, 5), normal(6))
    compare(lambda t, f, x, y, w: f.bilinear(x, y, w), normal(2, 3, 4), normal(2, 3, 5), normal(6, 4, 5))


# ---------------------------------------------------------------------- dropout


def seeded(function: Function) -> Function:
    """The function with both default generators at the same place."""

    def call(t: Any, f: Any, *tensors: Any) -> Any:
        if t is torch:
            torch.manual_seed(7)
        else:
            default_generator.manual_seed(7)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(t, f, *tensors)

    return call


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d"])
@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
@batched
def test_dropout(name: str, p: float) -> None:
    for shape in ((3, 4), (2, 3, 4), (2, 3, 4, 2), (2, 3, 4, 2, 2), (0, 3, 4)):
        compare(seeded(lambda t, f, x: getattr(f, name)(x, p, True)), normal(*shape), rtol=1e-12)
        compare(seeded(lambda t, f, x: getattr(f, name)(x, p, False)), normal(*shape), rtol=1e-12)
        node = name not in ("dropout1d", "dropout3d")
        compare(seeded(lambda t, f, x: getattr(f, name)(x * 1, p, True, True)), normal(*shape), rtol=1e-12, second=False, node=node)
    for dtype, rtol in (("float32", 1e-6), ("float16", 1e-2), ("bfloat16", 1e-2)):
        compare(seeded(lambda t, f, x: getattr(f, name)(x, p, True)), normal(2, 3, 4), dtype=dtype, rtol=rtol, second=False)
    compare(seeded(lambda t, f, x: getattr(f, name)(x, 1.5)), normal(2, 3, 4))
    compare(seeded(lambda t, f, x: getattr(f, name)(x, -0.5)), normal(2, 3, 4))
    if 0 < p < 1:
        compare(seeded(lambda t, f, x: getattr(f, name)(x, p, True)), np.ones((2, 3, 4), np.int64))


def test_dropout_outside_training_is_the_tensor_itself() -> None:
    x = ours.ones(3)
    assert OURS.dropout(x, 0.5, False) is x and OURS.dropout(x, 0.0) is x and OURS.alpha_dropout(x) is x


@batched
def test_rrelu_in_training() -> None:
    compare(seeded(lambda t, f, x: f.rrelu(x, training=True)), PLAIN, second=False)
    compare(seeded(lambda t, f, x: f.rrelu(x * 1, training=True, inplace=True)), PLAIN, second=False)
    compare(seeded(lambda t, f, x: f.rrelu(x, 0.2, 0.4, training=True)), PLAIN, second=False, dtype="float32", rtol=1e-6)


# ---------------------------------------------------------------------- attention


def attend(**options: Any) -> Function:
    return lambda t, f, q, k, v, *m: f.scaled_dot_product_attention(q, k, v, *m, **options)


@pytest.mark.parametrize("shape", [(4, 8), (3, 4, 8), (2, 3, 4, 8), (1, 2, 3, 4, 8)])
@batched
def test_attention(shape: tuple[int, ...]) -> None:
    operands = [normal(*shape, seed=i) for i in range(3)]
    second = len(shape) != 4  # PyTorch's fused kernel has no second derivative
    for function in (attend(), attend(scale=0.3), attend(is_causal=True)):
        compare(function, *operands, second=second, rtol=1e-8)
    compare(attend(), *operands, MASK, second=second, rtol=1e-8)
    compare(attend(), *operands, normal(4, 4), second=True, rtol=1e-8)
    compare(lambda t, f, q, k, v, m: f.scaled_dot_product_attention(q, k, v, m.detach()), *operands, normal(4, 4), second=False, rtol=1e-8)
    added = np.where(MASK, 0, -INF)
    compare(lambda t, f, q, k, v: f.scaled_dot_product_attention(q, k, v, t.tensor(added)), *operands, second=False)
    compare(attend(is_causal=True), *operands, MASK, second=False, rtol=1e-8)
    compare(seeded(attend(dropout_p=0.4)), *operands, rtol=1e-8)
    longer = [operands[0], *(normal(*shape[:-2], 6, 8, seed=i) for i in (4, 5))]
    compare(attend(), *longer, second=False, rtol=1e-8)
    compare(attend(is_causal=True), *longer, second=False, rtol=1e-8)
    compare(attend(), *longer[:2], normal(*shape[:-2], 6, 5), second=True, rtol=1e-8)
    for dtype, rtol in (("float32", 1e-5), ("float16", 1e-2), ("bfloat16", 6e-2)):
        compare(attend(), *operands, dtype=dtype, rtol=rtol, second=False)


@batched
def test_attention_with_shared_and_expanded_heads() -> None:
    compare(attend(enable_gqa=True), normal(2, 6, 4, 8), normal(2, 3, 5, 8), normal(2, 3, 5, 8, seed=1), second=False, rtol=1e-8)
    compare(attend(enable_gqa=True), normal(6, 4, 8), normal(3, 5, 8), normal(3, 5, 8, seed=1), rtol=1e-8)
    compare(attend(), normal(2, 6, 4, 8), normal(1, 6, 5, 8), normal(1, 6, 5, 8, seed=1), rtol=1e-8)
    for mask in (normal(2, 1, 1, 4), normal(2, 3, 4, 4), normal(3, 4, 4)):
        compare(attend(), *(normal(2, 3, 4, 8, seed=i) for i in range(3)), mask, rtol=1e-8)


@batched
def test_attention_of_nothing() -> None:
    compare(attend(), normal(2, 3, 0, 8), normal(2, 3, 4, 8), normal(2, 3, 4, 8), second=False, node=False)
    compare(attend(), normal(2, 3, 4, 8), normal(2, 3, 0, 8), normal(2, 3, 0, 8), second=False, node=False)


@pytest.mark.parametrize("function", [
    lambda t, f, q: f.scaled_dot_product_attention(q, q.float(), q),
    lambda t, f, q: f.scaled_dot_product_attention(q[0, 0, 0], q[0, 0, 0], q[0, 0, 0]),
    lambda t, f, q: f.scaled_dot_product_attention(q, q, q, t.ones(4, 4, dtype=t.int64)),
    lambda t, f, q: f.scaled_dot_product_attention(q.float(), q.float(), q.float(), t.ones(4, 4).double()),
    lambda t, f, q: f.scaled_dot_product_attention(q, q, q, t.ones(5, 4)), lambda t, f, q: f.scaled_dot_product_attention(q, q, q, t.ones(4)),
    lambda t, f, q: f.scaled_dot_product_attention(q, q[..., :7], q), lambda t, f, q: f.scaled_dot_product_attention(q, q[:, :2], q[:, :2]),
    lambda t, f, q: f.scaled_dot_product_attention(q, q[:, :2], q[:, :2], enable_gqa=True), lambda t, f, q: f.scaled_dot_product_attention(3, q, q),
    lambda t, f, q: f.scaled_dot_product_attention(q, q, q, dropout_p=1.5),
    lambda t, f, q: f.scaled_dot_product_attention(q.long(), q.long(), q.long()),
    lambda t, f, q: f.scaled_dot_product_attention(q[0, 0], q[0, 0, :, :7], q[0, 0]),
])  # fmt: skip
@batched
def test_attention_errors(function: Function) -> None:
    compare(function, normal(2, 3, 4, 8))


# ---------------------------------------------------------------------- torch.X and Tensor.X


def test_functions_of_the_top_level() -> None:
    x = normal(3, 4)
    tables = {k: v for module in MODULES for k, v in module.TOPLEVEL.items()}
    methods = {k: v for module in MODULES for k, v in module.METHODS.items()}
    for name in tables:
        assert hasattr(torch, name), name
    for name in methods:
        assert hasattr(torch.Tensor, name), name
    for name in ("softmax", "log_softmax"):
        same(getattr(torch, name)(torch.tensor(x), 1), tables[name](ours.tensor(x), 1), 1e-12, name)
        same(getattr(torch, name)(torch.tensor(x), dim=0, dtype=torch.float32), tables[name](ours.tensor(x), dim=0, dtype=ours.float32), 1e-6, name)
        for call in ((), ("a",)):
            a = outcome(lambda t, f, x: f(x, *call), None, getattr(torch, name), [torch.tensor(x)])  # noqa: B023 - called at once
            b = outcome(lambda t, f, x: f(x, *call), None, tables[name], [ours.tensor(x)])  # noqa: B023 - called at once
            assert (type(a), str(a)) == (type(b), str(b))
    torch.manual_seed(3)
    default_generator.manual_seed(3)
    for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "dropout_", "alpha_dropout_"):
        same(getattr(torch, name)(torch.tensor(x), 0.4, True), tables[name](ours.tensor(x), 0.4, True), 1e-12, name)
        a = outcome(lambda t, f, x: f(x, 1.5, True), None, getattr(torch, name), [torch.tensor(x)])
        b = outcome(lambda t, f, x: f(x, 1.5, True), None, tables[name], [ours.tensor(x)])
        assert (type(a), str(a)) == (type(b), str(b))
