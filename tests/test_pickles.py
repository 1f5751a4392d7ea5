"""Pickles outlive the structure of the package: they name places that stay."""

from __future__ import annotations

import functools
import pickle
import pickletools

import pytest

import torchgrad_jax
from torchgrad_jax.runtime.recorder import FUNCTIONS

pytestmark = pytest.mark.operators

PICKLED = {
    "tensor": lambda: torchgrad_jax.randn(2), "part": lambda: torchgrad_jax.randn(3, 3)[1:].t(), "size": lambda: torchgrad_jax.Size([1]),
    "device": lambda: torchgrad_jax.device("cpu"), "dtype": lambda: torchgrad_jax.float32, "generator": lambda: torchgrad_jax.Generator(),
    "named tuple": lambda: torchgrad_jax.randn(3, 3).max(1), "format": lambda: torchgrad_jax.channels_last, "layout": lambda: torchgrad_jax.strided,
    "parameter": lambda: torchgrad_jax.nn.Parameter(torchgrad_jax.randn(2)), "module": lambda: torchgrad_jax.nn.Linear(2, 2),
}  # fmt: skip


@pytest.mark.parametrize("kind", PICKLED)
def test_pickles_name_nothing_that_may_move(kind):
    content = pickle.dumps(PICKLED[kind]())
    texts, modules = [], set()
    for op, argument, _ in pickletools.genops(content):
        if "UNICODE" in op.name:
            texts.append(argument)
        elif op.name == "STACK_GLOBAL":
            modules |= {t for t in texts if t.startswith("torchgrad_jax")}
    assert modules <= {"torchgrad_jax", "torchgrad_jax._utils", "torchgrad_jax.nn.modules.linear"}
    assert repr(type(pickle.loads(content))) == repr(type(PICKLED[kind]()))


SPACES = ("", ".Tensor", ".nn.functional", ".linalg", ".special", ".fft", ".autograd", ".func")


@pytest.mark.parametrize("space", SPACES)
def test_public_functions_are_found_again(space):
    """As PyTorch's are: workers are given them, and modules keep their activation."""
    home = functools.reduce(getattr, space.split(".")[1:], torchgrad_jax)
    public = [f for f in [getattr(home, name) for name in dir(home) if name[0] != "_"] if isinstance(f, FUNCTIONS)]
    assert len(public) > 5
    assert [f.__qualname__ for f in public if pickle.loads(pickle.dumps(f)) is not f] == []


def test_a_module_keeps_its_activation():
    layer = torchgrad_jax.nn.Linear(2, 2)
    layer.activation, layer.pooling = torchgrad_jax.nn.functional.relu, torchgrad_jax.Tensor.mean
    again = pickle.loads(pickle.dumps(layer))
    assert (again.activation, again.pooling) == (torchgrad_jax.nn.functional.relu, torchgrad_jax.Tensor.mean)
