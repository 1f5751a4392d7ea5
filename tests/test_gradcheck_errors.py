"""gradcheck and gradgradcheck of wrong functions: the same verdict, error, text and warnings as PyTorch's."""

from __future__ import annotations

import math
import re
import warnings
from importlib import import_module

import pytest
from side_by_side import error_of, leaf

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

# Behind their first sentences these messages give advice: PyTorch's to its developers, ours to the user.
ADVICE = (
    "\n\nNOTE: If your op", "\n\nIf the function is meant", "\ngradcheck or gradgradcheck failed", "\nIf you are adding",
    "\nPass `fast_mode=False`",
)  # fmt: skip


def outcome(program, m, options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = []
        raised = error_of(lambda: found.append(program(m, options)))
    told_once = ("create_graph=True", "torch.jit.script")
    texts = [str(w.message) for w in caught if not any(part in str(w.message) for part in told_once)]
    return found, raised and raised[0], shortened(raised[1]) if raised else "", texts


def shortened(text):
    for advice in ADVICE:
        start = text.find(advice)
        if start >= 0:
            rest = text.find("\n\nGot:", start)
            text = text[:start] + (text[rest:] if rest >= 0 else "")
    return re.sub(r", grad_fn=<\w+>", "", text).strip()


def same_text(ours, theirs):
    """Equal but for the last digits of numbers."""
    number = r"-?\d+\.\d+(?:e-?\d+)?"
    numbers = zip(re.findall(number, ours), re.findall(number, theirs), strict=False)
    return re.sub(number, "#", ours) == re.sub(number, "#", theirs) and all(math.isclose(float(a), float(b), rel_tol=1e-6) for a, b in numbers)


def check_same(program, **options):
    ours, theirs = outcome(program, tj, options), outcome(program, torch, options)
    same = ours[0] == theirs[0] and ours[1] == theirs[1] and same_text(ours[2], theirs[2]) and ours[3] == theirs[3]
    assert same, f"\nours:   {ours}\ntheirs: {theirs}"


def function(m, forward, backward, materialize=True):
    """A Function that may be wrong."""

    class Wrong(m.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.set_materialize_grads(materialize)
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx, *gradients):
            return backward(ctx, *gradients)

    return Wrong.apply


def complex_leaf(m, *values):
    return m.tensor(list(values), dtype=m.complex128, requires_grad=True)


def gradcheck_of(forward, backward, *inputs, materialize=True):
    """A program that checks a Function at float64 inputs, at complex ones where a value is complex."""

    def program(m, options):
        made = [(complex_leaf if isinstance(x[0], complex) else leaf)(m, *x) for x in inputs]
        return m.autograd.gradcheck(function(m, forward, backward, materialize), made, **options)

    return program


def drifting(step, unit=2.0):
    """A backward that gives another gradient at every call."""

    def program(m, options):
        calls = []

        def backward(ctx, g):
            calls.append(1)
            return g * unit + step * len(calls)

        return m.autograd.gradcheck(function(m, lambda x: x * 2, backward), (leaf(m, 1.0, 2.0),), **options)

    return program


def refuse(*_):
    raise RuntimeError("no")


def one_missing(ctx, g, h):
    if g is None and h is not None:
        return h * 3 if bool((h != 0).any()) else ctx.saved_tensors[0]
    return None if g is None else g * 2 + (0 if h is None else h * 3)


Z = (1 + 1j, 2 + 0j)
X = (1.0, 2.0)
WRONG = {
    "a factor": gradcheck_of(lambda x: x * 2, lambda ctx, g: g * 3, X),
    "no gradient": gradcheck_of(lambda x: x * 2, lambda ctx, g: None, X),
    "nan": gradcheck_of(lambda x: x * 2, lambda ctx, g: g * float("nan"), X),
    "a matrix": gradcheck_of(lambda x: x.view(2, 2).t() * 2, lambda ctx, g: g.t().reshape(4) * 3, (1.0, 2.0, 3.0, 4.0)),
    "the second output": gradcheck_of(lambda x, y: (x * 2, y * 3), lambda ctx, g, h: (g * 2, h * 2), X, (3.0, 4.0)),
    "complex to complex": gradcheck_of(lambda z: z * (2 + 3j), lambda ctx, g: g * (5 + 7j), Z),
    "complex to complex, the real part": gradcheck_of(
        lambda z: z * (2 + 3j), lambda ctx, g: g.real * (5 + 0j) + g.imag * (3 + 2j), Z
    ),
    "complex to real": gradcheck_of(lambda z: z.real * 2 + z.imag * 3, lambda ctx, g: g * (5 + 7j), Z),
    "real to complex": gradcheck_of(lambda x: x * (2 + 3j), lambda ctx, g: g.real * 5 + g.imag * 7, X),
    "real to complex, the real part": gradcheck_of(lambda x: x * (2 + 3j), lambda ctx, g: g.real * 5 + g.imag * 3, X),
    "a complex output among real ones": gradcheck_of(lambda x: (x * 2, x * (2 + 3j)), lambda ctx, g, h: g * 2 + h.real * 2 + h.imag * 4, X),
    "a real output among complex ones": gradcheck_of(lambda x: (x * 2, x * (2 + 3j)), lambda ctx, g, h: g * 9 + h.real * 7 + h.imag * 3, X),
    "a complex input among real ones": gradcheck_of(
        lambda x, z: x * z.real, lambda ctx, g: (g * ctx.saved_tensors[1].real, g * ctx.saved_tensors[0] * 2 + 0j), X, Z
    ),
    "another gradient each time": drifting(1e-6),
    "another gradient each time, and a wrong one": drifting(1e-6, unit=3.0),
    "not multiplied by the gradient": gradcheck_of(
        lambda x: x * 2, lambda ctx, g: g * 2 if bool((g != 0).any()) else g + 1, X
    ),
    "fails for a missing gradient": gradcheck_of(lambda x: x * 2, lambda ctx, g: refuse() if g is None else g * 2, X, materialize=False),
    "a gradient for a missing one": gradcheck_of(
        lambda x: x * 2, lambda ctx, g: ctx.saved_tensors[0] if g is None else g * 2, X, materialize=False
    ),
    "a gradient for one missing of two": gradcheck_of(
        lambda x: (x * 2, x * 3), one_missing, X, materialize=False
    ),
}  # fmt: skip


@pytest.mark.parametrize("fast_mode", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_backward_is_refused_in_pytorchs_words(name, fast_mode):
    check_same(WRONG[name], fast_mode=fast_mode)


@pytest.mark.parametrize("fast_mode", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_backward_is_false_without_exceptions(name, fast_mode):
    check_same(WRONG[name], fast_mode=fast_mode, raise_exception=False)


@pytest.mark.parametrize("fast_mode", [False, True], ids=["slow", "fast"])
def test_what_tolerances_allow_is_accepted(fast_mode):
    off_by = gradcheck_of(lambda x: x * 2, lambda ctx, g: g * 2.01, X)
    for options in ({"atol": 0.02}, {"rtol": 0.01}, {"atol": 0.009, "rtol": 0}, {"rtol": 0.004, "atol": 0}):
        check_same(off_by, fast_mode=fast_mode, **options)
    check_same(drifting(1e-6), fast_mode=fast_mode, nondet_tol=1e-3)


def test_fast_mode_says_where_slow_mode_would_have_passed():
    ratio = 0.2929093796 / 0.9561362

    def program(m, options):
        weights = m.tensor([1.0, -ratio], dtype=m.float64)
        wrong = m.tensor([1.0009, -ratio * 0.9991], dtype=m.float64)
        return m.autograd.gradcheck(function(m, lambda x: (x * weights).sum(), lambda ctx, g: g * wrong), (leaf(m, 1.0, 2.0),), atol=0, **options)

    check_same(program)
    text = outcome(program, tj, {"fast_mode": True})[2]
    assert text.endswith("Fast gradcheck failed but element-wise differences are small. This means that the\ntest might've passed in slow_mode!")


def plain(func, *inputs, **options):
    return lambda m, more: m.autograd.gradcheck(lambda *x: func(m, *x), [x(m) for x in inputs], **options, **more)


def single(m):
    return m.tensor([1.0, 2.0], requires_grad=True)


def double(m):
    return leaf(m, *X)


def changing(attribute):
    """A function whose third result differs from the others."""

    def program(m, options):
        calls = []

        def func(x):
            calls.append(1)
            return x * 2 if len(calls) < 3 else m.cat([x, x]) if attribute == "shape" else (x * 2).float()

        return m.autograd.gradcheck(func, (leaf(m, *X),), **options)

    return program


REFUSED = {
    "no input requires grad": plain(lambda m, x: x, lambda m: m.ones(2)),
    "an integer input": plain(lambda m, x: x, lambda m: m.tensor([1, 2])),
    "single precision": plain(lambda m, x: x * 2, single),
    "single precision, told to be coarse": plain(lambda m, x, y: x * 2 + y, single, single, eps=1e-2, atol=1e-2, rtol=1e-2),
    "an expanded input": plain(lambda m, x, y: x * 2, double, lambda m: leaf(m, 1.0).expand(3)),
    "a result that is no tensor": plain(lambda m, x: (x * 2, None), double),
    "an error of the function": plain(lambda m, x: x.nonsense, double, raise_exception=False),
    "a graph that is missing": plain(lambda m, x: x.detach() * 2, double),
    "another shape when perturbed": changing("shape"),
    "another dtype when perturbed": changing("dtype"),
    "no mode": plain(lambda m, x: x, double, check_forward_ad=False, check_backward_ad=False),
    "batched gradients without backward": plain(lambda m, x: x, double, check_forward_ad=True, check_backward_ad=False, check_batched_grad=True),
    "batched forward gradients without forward mode": plain(lambda m, x: x, double, check_batched_forward_grad=True),
}


@pytest.mark.parametrize("fast_mode", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_checked_is_refused_in_pytorchs_words(name, fast_mode):
    check_same(REFUSED[name], fast_mode=fast_mode)


def test_an_output_of_another_shape_than_at_the_inputs_is_refused():
    calls = []

    def func(x):
        calls.append(1)
        return x * 2 if len(calls) == 1 else tj.cat([x, x])

    with pytest.raises(RuntimeError, match=r"`func` returned torch.Size\(\[2\]\), but torch.Size\(\[4\]\) when inputs are perturbed"):
        tj.autograd.gradcheck(func, (leaf(tj, *X),))


# ---------------------------------------------------------------------- second derivatives, batches


@pytest.mark.parametrize("fast_mode", [False, True], ids=["slow", "fast"])
def test_a_wrong_second_derivative_is_refused_in_pytorchs_words(fast_mode):
    def program(m, options):
        m.manual_seed(0)
        cut = function(m, lambda x: x * x, lambda ctx, g: g * 2 * ctx.saved_tensors[0].detach())
        return m.autograd.gradgradcheck(cut, (leaf(m, 1.0, 2.0),), **options)

    check_same(program, fast_mode=fast_mode)
    check_same(program, fast_mode=fast_mode, raise_exception=False)


@pytest.mark.parametrize(
    "options",
    [
        {"check_rev_over_rev": False},
        {"check_rev_over_rev": False, "check_fwd_over_rev": True},
        {"check_rev_over_rev": False, "check_fwd_over_rev": True, "check_undefined_grad": False, "check_batched_grad": True},
    ],
)
def test_contradicting_options_of_gradgradcheck_are_refused(options):
    check_same(lambda m, given: m.autograd.gradgradcheck(lambda x: x * x, (leaf(m, *X),), **given), **options)


def test_a_batch_of_gradients_that_differs_from_single_ones_is_refused(monkeypatch):
    module = import_module("torchgrad_jax.autograd.gradcheck")
    plain_grad = module.grad

    def wrong(*args, is_grads_batched=False, **kwargs):
        found = plain_grad(*args, is_grads_batched=is_grads_batched, **kwargs)
        return tuple(g * 2 for g in found) if is_grads_batched else found

    monkeypatch.setattr(module, "grad", wrong)
    with pytest.raises(module.GradcheckError, match=r"^For output 0 and input 0:\n\n(.|\n)*Got:\ntensor(.|\n)*Expected:\ntensor"):
        tj.autograd.gradcheck(lambda x: x * 3, (leaf(tj, *X),), check_batched_grad=True)


def test_a_backward_that_looks_at_its_gradient_cannot_be_batched():
    def program(m, options):
        looks = function(m, lambda x: x * 2, lambda ctx, g: g * 2 if g.sum().item() < 100 else g)
        return m.autograd.gradcheck(looks, (leaf(m, *X),), check_batched_grad=True, raise_exception=False)

    check_same(program)
