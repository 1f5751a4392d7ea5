"""What a user puts in the place of a public function or method is called by what was remembered, or compiled, with the one before."""

from unittest import mock

import pytest

import torchgrad_jax as torch
from torchgrad_jax.lifting.tags import ARE_THERE

F = torch.nn.functional
activation = torch.nn.ReLU()

pytestmark = pytest.mark.skipif(not ARE_THERE, reason="the interpreter does not tell that a dict was written to")
PLACES = {
    "torch.nn.functional": (lambda x: (F.relu(x) * x).sum(), F, "relu"),
    "the same by its path": (lambda x: (torch.nn.functional.relu(x) * x).sum(), F, "relu"),
    "torch": (lambda x: (torch.relu(x) * x).sum(), torch, "relu"),
    "Tensor": (lambda x: (x.relu() * x).sum(), torch.Tensor, "relu"),
    "torch.special": (lambda x: (torch.special.expit(x) * x).sum(), torch.special, "expit"),
    "torch.linalg": (lambda x: (torch.linalg.norm(x) * x).sum(), torch.linalg, "norm"),
    "what a module of nn calls": (lambda x: (activation(x) * x).sum(), F, "relu"),
}
CALLS = {
    "grad": torch.func.grad,
    "vmap": lambda f: torch.vmap(lambda x: f(x.reshape(1))),
    "jacrev": torch.func.jacrev,
    "jit": torch.jit,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_put_in_a_place_is_called(place, call):
    function, owner, name = PLACES[place]
    x = torch.tensor([0.5, 2.0, 3.0])
    f = CALLS[call](function)
    before = [f(x).tolist() for _ in range(5)][-1]
    for factor in (100.0, 10.0):
        with mock.patch.object(owner, name, lambda x, *args, factor=factor, **kwargs: x * factor):
            expected = {"grad": 2 * factor * x, "jacrev": 2 * factor * x, "vmap": factor * x * x, "jit": (factor * x * x).sum()}[call].tolist()
            for _ in range(4):
                assert f(x).tolist() == pytest.approx(expected)
        assert [f(x).tolist() for _ in range(4)] == [before] * 4


@pytest.mark.operators  # of what is compiled
def test_what_is_added_to_a_namespace_makes_nothing_new():
    def f(x):
        return (torch.relu(x) * x).sum()

    x, compiled = torch.ones(3), torch.jit(f)
    for i in range(4):
        setattr(torch, f"_of_a_test_{i}", i)
        compiled(x)
        torch.func.grad(f)(x)
    assert compiled.explain().startswith("1 traced")
