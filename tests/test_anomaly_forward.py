"""Anomaly mode beyond PyTorch: `check_forward` names the operation whose result is the first with NaN in it."""

import warnings

import pytest
from anomalies import NAN, SQRT, fault, new_nan, off_again  # noqa: F401 - a fixture among them

import torchgrad_jax as torch

# ---------------------------------------------------------------------- NaN in the forward pass


@pytest.mark.parametrize(
    ("operation", "program"),
    [
        ("log", lambda: torch.tensor([1.0, -1.0]).log()),
        ("sub", lambda: torch.tensor([3e38]) * 10 - torch.tensor([3e38]) * 10),
        ("div", lambda: torch.zeros(2) / torch.zeros(2)),
        ("div", lambda: torch.zeros(2) / 0),
        ("softmax", lambda: torch.nn.functional.softmax(torch.full((2,), -float("inf")), 0)),
        ("log", lambda: (-torch.ones(2)).log_()),
        ("acos", lambda: torch.acos(torch.tensor(2.0, dtype=torch.bfloat16))),
        ("div", lambda: torch.zeros(2, dtype=torch.complex64) / torch.zeros(2, dtype=torch.complex64)),
        ("log", lambda: torch.func.vmap(lambda x: x.log())(torch.tensor([1.0, -1.0]))),
        ("log", lambda: torch.func.grad(lambda x: x.log())(torch.tensor(-1.0))),
    ],
    ids=["log", "infinities", "division", "division by a number", "softmax", "in place", "bfloat16", "complex", "vmap", "grad"],
)
def test_an_operation_that_makes_nan_is_named(operation, program):
    message, _, _ = fault(program, check_forward=True)
    assert message == new_nan(operation)


def test_it_is_raised_at_the_call():
    def model(x):
        y = x - 2
        z = y.log()
        return z * 2

    message, told, line = fault(lambda: model(torch.ones(2)), check_forward=True)
    assert (message, told, line) == (new_nan("log"), [], "z = y.log()")


def test_which_result_it_is():
    message, _, _ = fault(lambda: torch.frexp(torch.tensor([NAN])) and torch.var_mean(torch.ones(1)), check_forward=True)
    assert message == new_nan("var_mean")


def test_nan_that_was_there_is_nobodys_fault():
    x = torch.tensor([NAN, 1.0])
    with torch.autograd.set_detect_anomaly(True, check_forward=True):
        y = x * 2 + 1
        z = torch.full((2,), NAN) + torch.ones(2) * NAN
        where = torch.where(torch.tensor([True, False]), x, 0.0)
        count = torch.ones(2, dtype=torch.int64) // 2
    assert y.isnan().tolist() == [True, False] and z.isnan().all() and where.isnan().any() and count.tolist() == [0, 0]


def test_operations_that_are_not_recorded_in_a_graph_are_looked_at():
    w = torch.ones(2, requires_grad=True)

    def update():
        with torch.no_grad():
            w.sub_(w.log() / w.log())

    assert fault(update, check_forward=True)[2] == "w.sub_(w.log() / w.log())"
    assert w.tolist() == [1, 1]


def test_inside_inference_mode():
    def infer():
        with torch.inference_mode():
            return torch.ones(2).sub(2).sqrt()

    assert fault(infer, check_forward=True)[0] == new_nan("sqrt")


class DividesGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        zero = grad - grad
        return zero / zero


def test_the_line_of_a_custom_backward():
    def step():
        DividesGradients.apply(torch.ones(2, requires_grad=True)).sum().backward()

    message, told, line = fault(step)
    assert message == "Function 'DividesGradientsBackward' returned nan values in its 0th output."
    assert line == told[0] == "DividesGradients.apply(torch.ones(2, requires_grad=True)).sum().backward()"
    message, _, line = fault(step, check_forward=True)
    assert (message, line) == (new_nan("div"), "return zero / zero")


def test_derivatives_are_looked_at_as_a_whole():
    """What the engine computes is no operation of the user's."""

    def step():
        x = torch.zeros(2, requires_grad=True)
        (x.sqrt() * 0).sum().backward(create_graph=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert fault(step, check_forward=True)[0] == SQRT


def test_it_is_not_looked_for_unless_asked():
    with torch.autograd.set_detect_anomaly(True):
        assert torch.ones(2).sub(2).log().isnan().all()
    with torch.autograd.set_detect_anomaly(False, check_forward=True):
        assert torch.ones(2).sub(2).log().isnan().all()


def test_blocks_put_it_back():
    bad = -torch.ones(1)
    with torch.autograd.set_detect_anomaly(True, check_forward=True):
        with torch.autograd.set_detect_anomaly(True):
            bad.log()
        with pytest.raises(RuntimeError, match="'log'"):
            bad.log()


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_misuse():
    with pytest.raises(TypeError, match="argument 'check_forward' must be bool, not int"):
        torch.autograd.set_detect_anomaly(True, check_forward=1)
    with pytest.raises(TypeError, match="positional argument"):
        torch.autograd.detect_anomaly(True, True)
    assert not torch.is_anomaly_enabled()


# ---------------------------------------------------------------------- where JAX itself transforms, there is nothing to look at


def roots(x):
    return ((x + 1).sqrt() * 0).sum()


def test_a_function_of_jax_is_left_alone():
    import jax
    from jax import numpy as jnp

    with torch.autograd.set_detect_anomaly(True, check_forward=True):
        assert jnp.isnan(jax.grad(torch.to_jax(roots))(-jnp.ones(2))).all()
        assert float(jax.jit(lambda x: roots(x * 1))(torch.zeros(2)).sum()) == 0
