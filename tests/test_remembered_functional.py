"""`torch.autograd.functional` of a pure function: from the third call on what it records is recorded without its Python, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.lifting import remembered

pytestmark = pytest.mark.operators

functional = torch.autograd.functional
SCALE = 2.0


@pytest.fixture(autouse=True)
def nothing_known():
    remembered._known.clear()
    yield
    remembered._known.clear()


def known():
    return [type(v) for v in remembered._known.values()].count(remembered.Remembered)


def energy(x):
    return (x**3 * SCALE).sum()


def vectors(x):
    return x.sin() * x[0]


@pytest.mark.parametrize("name", ("vjp", "jvp", "vhp", "hvp", "jacobian", "hessian"))
def test_what_is_recorded_again_is_of_the_present_contents(name):
    func = vectors if name in ("jacobian", "vjp", "jvp") else energy
    for i in range(5):
        x, v = torch.tensor([1.0 + i, 2.0, 3.0]), torch.tensor([1.0, -1.0, 0.5 * i])
        given = (x,) if name in ("jacobian", "hessian") else (x, v)
        found = getattr(functional, name)(func, *given)
        anew = getattr(functional, name)(lambda x: print(end="") or func(x), *given)
        for ours, expected in zip(*[f if type(f) is tuple else (f,) for f in (found, anew)], strict=True):
            np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=1e-6)
            assert not ours.requires_grad and ours.is_leaf
    assert known() == 1


def test_what_is_captured_is_asked_each_time():
    weight, factors = torch.nn.Parameter(torch.ones(3)), [1.0]
    for i in range(8):
        factors[0] = float(1 + i // 4)
        with torch.no_grad():
            weight.fill_(1.0 + i)
        found = functional.jacobian(lambda x: x * weight * factors[0], torch.ones(3))
        np.testing.assert_array_equal(found.numpy(), np.eye(3) * (1 + i) * factors[0])
    assert known() == 2 and weight.grad is None


def test_several_inputs_and_options():
    for _ in range(4):
        a, b = functional.jacobian(lambda x, y: (x * y).sum(), (torch.ones(2), torch.full((2,), 3.0)), strict=False, vectorize=False)
        (row,) = functional.jacobian(lambda x: (x * 2,), torch.ones(2))
        with pytest.raises(RuntimeError, match="Output 0 of the user-provided function is independent of input 1"):
            functional.jacobian(lambda x, y: (x * 2).sum(), (torch.ones(2), torch.ones(2)), strict=True)
    np.testing.assert_array_equal(a.numpy(), [3, 3])
    np.testing.assert_array_equal(b.numpy(), [1, 1])
    np.testing.assert_array_equal(row.numpy(), np.eye(2) * 2)
    assert known() == 2


def test_a_function_that_does_something_else_runs_each_time():
    called = []
    for _ in range(4):
        functional.hessian(lambda x: called.append(1) or (x**2).sum(), torch.ones(2))
    assert len(called) == 4 and known() == 0


def test_a_function_that_looks_at_values_runs_each_time():
    for i in range(5):
        found = functional.jacobian(lambda x: x * 2 if x.sum() > 2 else x * 3, torch.full((2,), float(i)))
        np.testing.assert_array_equal(found.numpy(), np.eye(2) * (2 if 2 * i > 2 else 3))
    assert known() == 0


def test_random_numbers_are_drawn_each_time():
    torch.manual_seed(0)
    found = [functional.jacobian(lambda x: x * torch.rand(2), torch.ones(2)).sum().item() for _ in range(5)]
    torch.manual_seed(0)
    assert found == [torch.rand(2).sum().item() for _ in range(5)]


def test_with_create_graph_the_results_lead_back():
    for _ in range(4):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        found = functional.jacobian(lambda x: x**3, x, create_graph=True)
        (g,) = torch.autograd.grad(found.sum(), x)
        np.testing.assert_allclose(g.numpy(), [6, 12])
        outside = functional.hvp(lambda x: (x**3).sum(), x, torch.ones(2))[1]
        assert not outside.requires_grad


def test_inside_of_a_transform_and_of_a_dual_level():
    fwAD = torch.autograd.forward_ad
    for _ in range(4):
        with pytest.raises(RuntimeError, match="using torch.autograd.functional"):
            torch.func.vmap(lambda x: functional.vjp(torch.sin, x, torch.ones(2))[1])(torch.zeros(3, 2))
        with fwAD.dual_level():
            x = fwAD.make_dual(torch.zeros(2), torch.ones(2))
            out, g = functional.vjp(torch.exp, x, torch.ones(2))
            assert fwAD.unpack_dual(out)[1] is None and fwAD.unpack_dual(g)[1] is None


def test_hooks_and_modes_see_each_call():
    model = torch.nn.Linear(2, 2)
    for _ in range(3):
        functional.jacobian(model, torch.ones(2))
    seen = []
    model.register_forward_hook(lambda *given: seen.append(1))
    for _ in range(3):
        functional.jacobian(model, torch.ones(2))
    assert len(seen) == 3
    packed = []
    for _ in range(3):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t, lambda t: t):
            functional.jacobian(torch.sin, torch.ones(2))
    assert len(packed) == 3


def test_arguments_that_are_missing_or_wrong():
    with pytest.raises(TypeError, match="hessian.. missing 1 required positional argument: 'inputs'"):
        functional.hessian(energy)
    for _ in range(3):
        with pytest.raises(TypeError, match="The inputs given to hessian must be either a Tensor"):
            functional.hessian(energy, [1.0])
        with pytest.raises(RuntimeError, match="should contain a single element"):
            functional.hessian(vectors, torch.ones(3))


def test_running_statistics_are_moved_by_each_call():
    """No version tells of that."""
    mean, variance = torch.zeros(3), torch.ones(3)
    x = torch.arange(12.0).reshape(4, 3) ** 2
    expected = 0.0
    for _ in range(5):
        functional.vjp(lambda x: torch.nn.functional.batch_norm(x, mean, variance, training=True), x, torch.ones(4, 3))
        expected = 0.9 * expected + 0.1 * x.mean(0)
        np.testing.assert_allclose(mean.numpy(), expected.numpy(), rtol=1e-5)
    assert known() == 0


def test_attributes_of_functions_may_change():
    def scaled(x):
        return x.sin() * scaled.by

    scaled.by = 2.0
    x = torch.tensor([0.5, -1.0])
    for i in range(12):
        scaled.by = 1.0 + i // 3
        np.testing.assert_allclose(functional.vjp(scaled, x, torch.ones(2))[1].numpy(), (x.cos() * scaled.by).numpy(), rtol=1e-6)


def test_whether_a_captured_tensor_is_a_leaf_may_change():
    held = [torch.ones(2, requires_grad=True)]
    x = torch.tensor([0.5, -1.0])
    for i in range(12):
        if i == 6:
            held[0] = held[0] * 1
        found = functional.vjp(lambda x: x * (2.0 if held[0].is_leaf else 3.0), x, torch.ones(2))[1]
        assert found.tolist() == [2.0 if i < 6 else 3.0] * 2
