"""`torch.func` beside JAX's transforms of the same functions, and what needs no PyTorch to be checked."""

import doctest
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.func import arguments, forward, functionalizing, functorch, jacobians, modules, rearranging, reverse, vmapping
from torchgrad_jax.runtime._jax_compat import as_x64

pytestmark = pytest.mark.operators


def of_torch(x):
    return torch.sin(x) * torch.exp(x / 4) * x.sum()


def of_jax(x):
    return jnp.sin(x) * jnp.exp(x / 4) * x.sum()


X = np.array([0.3, -1.2, 2.0])
V = np.array([1.0, 0.5, -2.0])
BATCH = np.arange(6.0).reshape(2, 3) / 5

BOTH = {
    "grad": (lambda x: torch.func.grad(lambda x: of_torch(x).sum())(x), jax.grad(lambda x: of_jax(x).sum())),
    "vjp": (lambda x: torch.func.vjp(of_torch, x)[1](torch.tensor(V))[0], lambda x: jax.vjp(of_jax, x)[1](V)[0]),
    "jvp": (lambda x: torch.func.jvp(of_torch, (x,), (torch.tensor(V),))[1], lambda x: jax.jvp(of_jax, (x,), (jnp.asarray(V),))[1]),
    "linearize": (lambda x: torch.func.linearize(of_torch, x)[1](torch.tensor(V)), lambda x: jax.linearize(of_jax, x)[1](jnp.asarray(V))),
    "jacrev": (torch.func.jacrev(of_torch), jax.jacrev(of_jax)),
    "jacrev in chunks": (torch.func.jacrev(of_torch, chunk_size=2), jax.jacrev(of_jax)),
    "jacfwd": (torch.func.jacfwd(of_torch), jax.jacfwd(of_jax)),
    "hessian": (torch.func.hessian(of_torch), jax.hessian(of_jax)),
    "jacrev of jacfwd": (torch.func.jacrev(torch.func.jacfwd(of_torch)), jax.jacrev(jax.jacfwd(of_jax))),
    "jvp of linearize": (
        lambda x: torch.func.jvp(lambda x: torch.func.linearize(of_torch, x)[1](torch.tensor(V)), (x,), (torch.tensor(V),))[1],
        lambda x: jax.jvp(lambda x: jax.jvp(of_jax, (x,), (jnp.asarray(V),))[1], (x,), (jnp.asarray(V),))[1],
    ),
    "grad of linearize": (
        torch.func.grad(lambda x: torch.func.linearize(of_torch, x)[1](torch.tensor(V)).sum()),
        jax.grad(lambda x: jax.jvp(of_jax, (x,), (jnp.asarray(V),))[1].sum()),
    ),
    "grad of grad of grad": (
        torch.func.grad(lambda x: torch.func.grad(lambda x: torch.func.grad(lambda x: of_torch(x).sum())(x).sum())(x).sum()),
        jax.grad(lambda x: jax.grad(lambda x: jax.grad(lambda x: of_jax(x).sum())(x).sum())(x).sum()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOTH)
def test_like_jax(name):
    ours, theirs = BOTH[name]
    np.testing.assert_allclose(ours(torch.tensor(X)).numpy(), as_x64(theirs, [X]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", BOTH)
def test_mapped_like_jax(name):
    ours, theirs = BOTH[name]
    np.testing.assert_allclose(torch.vmap(ours)(torch.tensor(BATCH)).numpy(), as_x64(jax.vmap(theirs), [BATCH]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "module", [arguments, forward, functionalizing, jacobians, modules, rearranging, reverse, vmapping], ids=lambda m: m.__name__
)
def test_examples_in_docstrings(module):
    assert doctest.testmod(module, extraglobs={"torch": torch}).failed == 0


def test_all_is_pytorch_2_13s():
    assert torch.func.__all__ == [
        "grad", "grad_and_value", "vmap", "replace_all_batch_norm_modules_", "functionalize", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
        "rearrange", "vjp", "functional_call", "stack_module_state", "debug_unwrap",
    ]  # fmt: skip
    assert torch.vmap is torch.func.vmap


# ---------------------------------------------------------------------- what PyTorch does otherwise


def test_linearize_calls_the_function_once_and_keeps_its_random_numbers():
    calls = []

    def f(x):
        calls.append(1)
        return x * torch.rand(3, dtype=torch.float64)

    output, jvp_fn = torch.func.linearize(f, torch.ones(3, dtype=torch.float64))
    one = torch.ones(3, dtype=torch.float64)
    assert jvp_fn(one).tolist() == output.tolist() == jvp_fn(one).tolist() and len(calls) == 1


def test_negative_argnums_of_jacfwd():
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    assert torch.func.jacfwd(lambda x, y: x * y, argnums=-1)(x, y).tolist() == [[1.0, 0.0], [0.0, 2.0]]


def test_results_that_are_not_mapped_may_have_any_out_dim_and_chunks():
    y = torch.tensor([1.0, 2.0, 3.0])
    assert torch.vmap(lambda x: y, out_dims=1)(torch.ones(2)).tolist() == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    mapped, other = torch.vmap(lambda x: (x, y), out_dims=(0, None), chunk_size=1)(torch.ones(2))
    assert mapped.tolist() == [1.0, 1.0] and other.tolist() == [1.0, 2.0, 3.0]
    assert torch.vmap(lambda x: x * 2, chunk_size=2)(torch.zeros(0, 3)).shape == (0, 3)


def test_jvp_writes_to_primals_and_not_to_tangents():
    x, v = torch.ones(2), torch.ones(2)
    assert torch.func.jvp(lambda x: x.mul_(3) * x, (x,), (v,))[1].tolist() == [18.0, 18.0]
    assert x.tolist() == [3.0, 3.0] and v.tolist() == [1.0, 1.0]


def test_functions_of_vjp_without_their_graph():
    _, vjp_fn = torch.func.vjp(torch.sin, torch.zeros(2))
    vjp_fn(torch.ones(2), retain_graph=False)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        vjp_fn(torch.ones(2))


def test_what_a_module_deleted_during_the_call_is_its_own_again():
    class Deleting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", torch.zeros(1))

        def forward(self):
            del self.b
            return 1

    module, given = Deleting(), {"b": torch.ones(1)}
    assert torch.func.functional_call(module, given) == 1
    assert module.b.item() == 0 and given["b"].item() == 1


# ---------------------------------------------------------------------- the names of before

OLD = ["vmap", "grad", "grad_and_value", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "functionalize"]


@pytest.mark.parametrize("name", OLD)
def test_old_names_warn_and_are_the_new_ones(name):
    with pytest.warns(FutureWarning, match=f"`functorch.{name}` is deprecated"):
        made = getattr(functorch, name)(torch.sin, *({"vjp": (torch.zeros(2),), "jvp": ((torch.zeros(2),), (torch.ones(2),))}.get(name, ())))
    assert callable(made) or len(made) == 2


def test_modules_as_functions_of_tuples():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).eval()
    x = torch.ones(3, 2)
    with pytest.warns(FutureWarning, match="torch.func.functional_call"):
        of_parameters, parameters = functorch.make_functional(model)
    assert of_parameters(parameters, x).tolist() == model(x).tolist()
    assert all(p.requires_grad and p is not q for p, q in zip(parameters, model.parameters(), strict=True))
    with pytest.raises(ValueError, match="Expected 4 parameters, got 1"):
        of_parameters(parameters[:1], x)
    with pytest.warns(FutureWarning, match="torch.func.functional_call"):
        of_both, parameters, buffers = functorch.make_functional_with_buffers(model, disable_autograd_tracking=True)
    assert of_both(parameters, buffers, x).tolist() == model(x).tolist() and not any(p.requires_grad for p in parameters)
    with pytest.warns(FutureWarning, match="torch.func.stack_module_state"):
        of_one, parameters, buffers = functorch.combine_state_for_ensemble([model, model])
    assert torch.vmap(of_one, (0, 0, None))(parameters, buffers, x).shape == (2, 3, 2)
    with pytest.raises(NotImplementedError, match="jax.make_jaxpr"):
        functorch.make_fx(model)


def test_functorch_can_be_imported_where_torch_is_torchgrad_jax():
    program = """
import warnings
warnings.simplefilter("ignore")
import functorch, torch
from functorch import make_functional, vmap
from functorch.experimental import chunk_vmap
from torch.func import functional_call
from torch.nn.utils.stateless import functional_call as stateless
from torch.utils._pytree import tree_map
import functorch.compile
print(vmap(lambda x: x * 2)(torch.ones(2)), chunk_vmap(lambda x: x + 1, chunks=2)(torch.ones(3)), tree_map(str, [1]))
try:
    functorch.compile.aot_function()
except AttributeError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-m", "torchgrad_jax.cli", "run", "-c", program], capture_output=True, text=True, timeout=100)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("tensor([2., 2.]) tensor([2., 2., 2.]) ['1']\nfunctorch.compile is not available in torchgrad_jax")


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev, torch.func.jacfwd, torch.func.hessian])
def test_an_argument_that_is_not_differentiated_may_be_written_to(transform):
    def function(a, b, c):
        c.mul_(2)
        return (b * b * c).sum()

    for _ in range(4):
        a, b, c = (torch.ones(2) for _ in range(3))
        expected = [[4.0, 0.0], [0.0, 4.0]] if transform is torch.func.hessian else [4.0, 4.0]
        assert transform(function, argnums=1)(a, b, c).tolist() == expected and c.tolist() == [2.0, 2.0]
