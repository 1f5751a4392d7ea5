"""Anomaly mode inside of `jit`: the compiled program says which operation first gave NaN."""

import warnings

import pytest
from anomalies import NAN, SQRT, fault, new_nan, off_again  # noqa: F401 - a fixture among them

import torchgrad_jax as torch

pytestmark = pytest.mark.operators


def roots(x):
    shifted = x + 1
    y = shifted.sqrt()
    return (y * 0).sum()


GOOD, BAD = torch.zeros(2), -torch.ones(2)


def calls_of(function, arguments, **options):
    """For each argument what a call of a compiled function in anomaly mode returns or raises."""
    found = []
    for x in arguments:
        with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True, **options):
            warnings.simplefilter("ignore")
            try:
                found.append(function(x).tolist())
            except RuntimeError as error:
                found.append(str(error))
    return found


@pytest.mark.parametrize("first", [GOOD, BAD], ids=["the first call is good", "the first call is bad"])
def test_a_compiled_gradient_says_which_node_gave_nan(first):
    gradient = torch.jit(torch.func.grad(roots))
    expected = [SQRT if x is BAD else [0, 0] for x in (first, GOOD, GOOD, BAD, GOOD)]
    assert calls_of(gradient, [first, GOOD, GOOD, BAD, GOOD]) == expected
    assert "1 of them compiled" in gradient.explain()


def test_the_line_within_the_compiled_function():
    gradient = torch.jit(torch.func.grad(roots))
    with torch.autograd.set_detect_anomaly(True):
        gradient(GOOD)
        gradient(GOOD)
    message, told, _ = fault(lambda: gradient(BAD))
    assert (message, told) == (SQRT, ["y = shifted.sqrt()"])


def test_a_compiled_training_step_changes_nothing_when_it_fails():
    w = torch.ones(2, requires_grad=True)

    @torch.jit
    def step(x):
        w.grad = None
        loss = (roots(w * x) + (w * w).sum()).sum()
        loss.backward()
        with torch.no_grad():
            w.sub_(w.grad * 0.25)
        return loss

    bad_first = calls_of(step, [BAD])
    assert bad_first == [SQRT] and w.tolist() == [1, 1] and w.grad is None
    assert calls_of(step, [GOOD, GOOD, BAD * 4]) == [2, 0.5, SQRT]
    assert w.tolist() == [0.25, 0.25] and w.grad.tolist() == [1, 1]
    assert "compiled" in step.explain()


def test_the_backward_pass_of_a_compiled_function():
    w = torch.zeros(2, requires_grad=True)

    @torch.jit
    def loss(x):
        return roots(w + x)

    with torch.autograd.set_detect_anomaly(True):
        for _ in range(3):
            loss(GOOD).backward()
    message, told, line = fault(lambda: loss(BAD).backward())
    assert message == SQRT
    assert told == ["y = shifted.sqrt()", line]
    assert w.grad.tolist() == [0, 0]


def test_a_function_compiled_before_says_that_it_gave_nan():
    w = torch.zeros(2, requires_grad=True)

    @torch.jit
    def loss(x):
        return roots(w + x)

    for _ in range(3):
        loss(GOOD).backward()
    made = loss(BAD)
    message, told, _ = fault(lambda: made.backward())
    assert message == "Function 'CompiledFunctionBackward' returned nan values in its 0th output."
    assert told[0].startswith("Error detected in CompiledFunctionBackward. No forward pass information available.")


def test_the_mode_costs_a_compiled_function_nothing_once_it_is_off():
    gradient = torch.jit(torch.func.grad(roots))
    for _ in range(2):
        gradient(GOOD)
    with torch.autograd.set_detect_anomaly(True):
        for _ in range(2):
            gradient(GOOD)
    programs = sorted(len(entry.wanted) for kind in gradient._kinds.values() for _, entry in kind.entries)
    assert programs == [1, 2]  # with the answer, and without
    assert gradient(BAD).isnan().all()


def test_a_batch_inside_a_compiled_function():
    per_sample = torch.jit(torch.func.vmap(torch.func.grad(roots)))
    good, bad = torch.zeros(2, 2), torch.tensor([[0.0, 0.0], [0.0, -1.0]])
    assert calls_of(per_sample, [good, good, bad]) == [[[0, 0], [0, 0]], [[0, 0], [0, 0]], SQRT]


def test_operations_inside_a_compiled_function():
    @torch.jit
    def model(x):
        first = (x + 1).log()
        second = first - first
        return second

    found = calls_of(model, [GOOD, GOOD, BAD, BAD - 1, torch.tensor([NAN, 0.0])[:1].expand(2)], check_forward=True)
    assert found[:4] == [[0, 0], [0, 0], new_nan("sub"), new_nan("log")]
    assert fault(lambda: model(BAD), check_forward=True)[1] == ["second = first - first"]


def test_the_first_of_several_is_named():
    @torch.jit
    def model(x):
        a = (x * 1).sqrt()
        b = (x * 2).log()
        return a + b

    assert calls_of(model, [GOOD + 1, GOOD + 1, BAD], check_forward=True)[2] == new_nan("sqrt")


def test_a_function_that_cannot_be_one_program_is_looked_at_as_ever():
    @torch.jit
    def branching(x):
        y = x.log()
        return y if y.sum() > 0 else -y

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.set_detect_anomaly(True, check_forward=True):
            with pytest.raises(RuntimeError, match="'log'"):
                branching(BAD)
            with pytest.raises(RuntimeError, match="'log'"):
                branching(BAD)


def test_the_block_may_be_inside():
    @torch.jit
    def gradient(x):
        with torch.autograd.set_detect_anomaly(True):
            return torch.func.grad(roots)(x)

    found = []
    for x in (GOOD, GOOD, BAD):
        try:
            found.append(gradient(x).tolist())
        except RuntimeError as error:
            found.append(str(error))
    assert found == [[0, 0], [0, 0], SQRT]
