"""Derivatives of derivatives, and batches of these, in any order: what is known of them without a trace is what JAX makes of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.declaration.batching import batched
from torchgrad_jax.declaration.batching.leading import leading
from torchgrad_jax.declaration.derivative import Plan, plan
from torchgrad_jax.declaration.forward import jvp_of
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime._jax_compat import call_x64
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.value import Aval, aval_of

pytestmark = pytest.mark.operators

# An operator, its layout, and its operands' shapes.
OPERATORS = {
    "view": ("view", (ARRAY, Static((3, 2))), [(2, 3)]),
    "t": ("t", (ARRAY,), [(2, 3)]),
    "select": ("select", (ARRAY, Static(0), ARRAY), [(2, 3), int]),
    "slice": ("slice", (ARRAY, Static(1), ARRAY, Static(2), Static(1)), [(2, 3), int]),
    "cat": ("cat", (2, Static(1)), [(2, 3), (2, 1)]),
    "softmax": ("softmax", (ARRAY, Static(1)), [(2, 3)]),
    "log_softmax": ("log_softmax", (ARRAY, Static(-1)), [(4,)]),
    "expand": ("expand", (ARRAY, Static((2, 3))), [(2, 1)]),
    "expand to more": ("expand", (ARRAY, Static((2, 3))), [(3,)]),
    "sum": ("sum", (ARRAY, Static(None), Static(False), Static(None)), [(2, 3)]),
    "loss of one": ("mse_loss", (ARRAY, ARRAY, Static("mean")), [(), ()]),
    "loss": ("mse_loss", (ARRAY, ARRAY, Static("mean")), [(3,), (3,)]),
    "loss of each": ("smooth_l1_loss", (ARRAY, ARRAY, Static("none"), Static(1.0)), [(3,), (3,)]),
    "tanh": ("tanh", (ARRAY,), [(2, 3)]),
    "tanh of one": ("tanh", (ARRAY,), [()]),
    "relu": ("relu", (ARRAY,), [(4,)]),
    "sigmoid": ("sigmoid", (ARRAY,), [(1, 3)]),
    "mul": ("mul", (ARRAY, ARRAY), [(2, 3), (2, 3)]),
    "mul that expands": ("mul", (ARRAY, ARRAY), [(2, 3), (3,)]),
    "mul of one": ("mul", (ARRAY, ARRAY), [(2, 3), ()]),
    "add that expands": ("add", (ARRAY, ARRAY), [(2, 1), (1, 3)]),
    "div by a number": ("div", (ARRAY, ARRAY), [(2, 3), float]),
    "atan2": ("atan2", (ARRAY, ARRAY), [(2, 1), (1, 3)]),
    "linear": ("linear_addmm", (ARRAY, ARRAY, ARRAY), [(4,), (2, 3), (3, 4)]),
    "linear of a row": ("linear_addmm", (ARRAY, ARRAY, ARRAY), [(4,), (1, 3), (3, 4)]),
    "mm": ("mm", (ARRAY, ARRAY), [(2, 3), (3, 4)]),
    "bmm": ("bmm", (ARRAY, ARRAY), [(2, 2, 3), (2, 3, 1)]),
}  # fmt: skip
DTYPES = (np.float32, np.float64)


def spec(shape, dtype):
    return shape if isinstance(shape, type) else aval_of(shape, np.dtype(dtype), CPU)


def numbers(specs, seed=0):
    random = np.random.default_rng(seed)
    of_class = {float: np.float64(0.7), int: np.int64(1)}
    return [of_class[s] if isinstance(s, type) else np.asarray(random.uniform(0.3, 1.2, s.shape), s.dtype) for s in specs]


def first(which, dtype):
    name, layout, shapes = OPERATORS[which]
    return signature(registry[name].bind(layout), tuple([spec(shape, dtype) for shape in shapes]))


def specs_of(sig, places):
    return tuple([sig.specs[i] if i >= 0 else sig.avals[-1 - i] for i in places])


def derived(sig, draw):
    """A backward or forward operation, for some of the operands; None where there is none."""
    arrays = [i for i, s in enumerate(sig.specs) if isinstance(s, Aval)]
    inputs = tuple(draw(st.lists(st.sampled_from(arrays), min_size=1, unique=True).map(sorted)))
    found = plan(sig, inputs)
    if found is None or found.passes or found.zeros:
        return None
    if draw(st.booleans()):
        return signature(jvp_of(sig, found), specs_of(sig, found.saves) + tuple([sig.specs[i] for i in found.inputs]))
    one = found.apart()[0][0] if draw(st.booleans()) else found
    if one.passes or one.zeros:
        return None
    return signature(one.vjp_of((True,) * len(sig.avals)), (*sig.avals, *specs_of(sig, one.saves)))


def in_batches(sig, draw):
    """The operation for a batch, of some of the operands; results of what is the same for all of it may be added up."""
    arrays = [i for i, s in enumerate(sig.specs) if isinstance(s, Aval)]
    chosen = set(draw(st.lists(st.sampled_from(arrays), min_size=1, unique=True)))
    size, mapped = draw(st.sampled_from([1, 3])), tuple([i in chosen for i in range(len(sig.specs))])
    summed = tuple([draw(st.integers(0, 2)) == 0 for _ in sig.avals])
    specs = tuple([aval_of((size, *s.shape), s.dtype, CPU) if there else s for s, there in zip(sig.specs, mapped, strict=True)])
    return signature(batched(sig, mapped, summed), specs)


@settings(max_examples=150)
@given(st.data())
def test_what_is_known_is_what_jax_makes_of_it(data):
    made = first(data.draw(st.sampled_from(sorted(OPERATORS))), data.draw(st.sampled_from(DTYPES)))
    for _ in range(data.draw(st.integers(1, 4))):
        found = (derived if data.draw(st.booleans()) else in_batches)(made, data.draw)
        made = found or made
    if made.baseline is None:
        return
    operands = numbers(made.specs)
    wanted = call_x64(made.function, *operands)
    assert [(a.shape, a.dtype) for a in made.avals] == [(w.shape, w.dtype) for w in wanted]
    for result, expected in zip(made.baseline(*operands), wanted, strict=True):
        assert np.shape(result) == expected.shape
        np.testing.assert_allclose(result, expected, rtol=1e-5 if expected.dtype == np.float32 else 1e-12, atol=1e-6)


@pytest.fixture
def nothing_is_traced(monkeypatch):
    """But what is done with vectors, once for all shapes."""
    trace = Signature._trace

    def refuse(sig):
        if not all([isinstance(s, type) or s.shape in ((), (4096,)) for s in sig.specs]):
            pytest.fail(f"{sig.bop.name} of {sig.specs} is traced")
        trace(sig)

    monkeypatch.setattr(Signature, "_trace", refuse)


def hessian(f):
    return torch.func.jacfwd(torch.func.jacrev(f))


@pytest.mark.parametrize("rows", [5, 7])
def test_derivatives_of_a_network_need_no_trace(rows, nothing_is_traced):
    """Its gradients for each sample, and second derivatives of each by both modes: products, views and functions of one number."""
    torch.manual_seed(rows)
    net = torch.nn.Sequential(torch.nn.Linear(3, rows), torch.nn.Tanh(), torch.nn.Linear(rows, 1))
    parameters, x = {k: v.detach() for k, v in net.named_parameters()}, torch.randn(rows, 3)

    def value(parameters, x):
        return torch.func.functional_call(net, parameters, (x,)).view(())

    gradients = torch.func.vmap(torch.func.grad(value), (None, 0))(parameters, x)
    second = torch.func.vmap(lambda x: hessian(lambda x: value(parameters, x))(x))(x)
    w, v, b, x = [a.numpy() for a in (parameters["0.weight"], parameters["2.weight"][0], parameters["0.bias"], x)]
    h = np.tanh(x @ w.T + b)
    np.testing.assert_allclose(gradients["0.bias"].numpy(), v * (1 - h * h), rtol=1e-5)
    np.testing.assert_allclose(gradients["2.weight"].numpy(), h[:, None], rtol=1e-5)
    np.testing.assert_allclose(second.numpy(), np.einsum("nh,hi,hj->nij", v * -2 * h * (1 - h * h), w, w), rtol=1e-4, atol=1e-6)


def test_a_gradient_of_what_is_linear_saves_nothing():
    sig = first("t", np.float32)
    back = signature(plan(sig, (0,)).vjp_of((True,)), sig.avals)
    again = plan(back, (0,))
    assert type(again) is Plan and not again.saves and again.vjp_of((True,)) is sig.bop and jvp_of(back, again) is back.bop


@pytest.mark.parametrize("loss", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"])
def test_losses_of_one_number_each(loss):
    """That a loss is reduced is not seen where there is but one."""
    x, y = torch.tensor([0.5, 2.0], requires_grad=True), torch.tensor(0.8, requires_grad=True)
    function = getattr(torch.nn.functional, loss)
    found = torch.func.vmap(lambda x: function(x, y))(x)
    each = torch.stack([function(part, y) for part in x])
    assert found.shape == (2,) and torch.allclose(found, each)
    weights = torch.tensor([1.0, 3.0])
    for got, wanted in zip(torch.autograd.grad((found * weights).sum(), (x, y)), torch.autograd.grad((each * weights).sum(), (x, y)), strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_every_call_has_the_bits_of_the_first_where_that_is_asked_for(deterministic):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(7, 9), torch.nn.Softmax(-1), torch.nn.Linear(9, 5), torch.nn.LogSoftmax(-1))
    parameters, x = {k: v.detach() for k, v in net.named_parameters()}, torch.randn(6, 7)

    def value(parameters, x):
        return torch.func.functional_call(net, parameters, (x,)).exp().square().sum()

    mapped = torch.func.vmap(torch.func.grad(value), (None, 0))
    made = [mapped(parameters, x)["0.weight"].numpy() for _ in range(30)]
    made += [torch.func.grad(lambda p: torch.func.vmap(value, (None, 0))(p, x).sum())(parameters)["0.weight"].numpy() for _ in range(30)]
    for calls in (made[:30], made[30:]):
        assert all([np.array_equal(calls[0], found) for found in calls])


@pytest.mark.parametrize("size", [4, 3])
def test_one_of_a_tuple_of_parts_is_differentiated_twice(size):
    x = torch.arange(1.0, 5.0).requires_grad_()
    part = x.split(size)[0]
    (first,) = torch.autograd.grad((part**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(second, 6 * x * (torch.arange(4) < size))
    assert torch.equal(torch.func.jvp(lambda x: x.split(size)[0] * 2, (x,), (torch.ones(4),))[1], torch.full((size,), 2.0))


def test_a_large_batch_of_what_is_not_known_is_mapped_by_jax():
    assert leading(first("sum", np.float32), 3) is not None and leading(first("sum", np.float32), 300) is None
