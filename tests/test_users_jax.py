"""The user's own JAX code keeps the user's `jax_enable_x64`, and ours has 64-bit types whatever it is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ways import WAYS

import torchgrad_jax as tj
from torchgrad_jax.autograd import forward_ad
from torchgrad_jax.runtime import _jax_compat, baseline_tier, interpreted, program
from torchgrad_jax.runtime._jax_compat import as_x64, x64

F = tj.nn.functional
ON = {False: np.float32, True: np.float64}

FRESH = """
import sys
import jax.numpy as jnp
import torchgrad_jax as torch

width = sys.argv[1]
assert jnp.arange(3.0).dtype == width
x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
for _ in range(40):
    (torch.exp(x) * x).sum().backward()
    assert x.grad.dtype is torch.float64 and x.grad.numpy().dtype == "float64"
    assert jnp.arange(3.0).dtype == width
    x.grad = None
assert abs((x + 1e-12 - x).sum().item() - 2e-12) < 1e-15
print(torch.runtime.counters.compiled)
"""


@pytest.mark.operators  # in a mode of its own
@pytest.mark.parametrize("baseline", ["on", "off"])
@pytest.mark.parametrize("setting", ["0", "1"])
def test_importing_and_running_leave_the_setting_of_the_process(setting, baseline):
    env = {**os.environ, "JAX_ENABLE_X64": setting, "TORCHGRAD_JAX_BASELINE": baseline, "TORCHGRAD_JAX_EXECUTION": "fused"}
    width = "float64" if setting == "1" else "float32"
    found = subprocess.run([sys.executable, "-c", FRESH, width], env=env, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert (int(found.stdout) > 0) == (baseline == "off")


@pytest.fixture(params=[False, True], ids=["off", "on"])
def setting(request):
    """The user's setting, which is the same afterwards."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", request.param)
    yield request.param
    assert jax.config.read("jax_enable_x64") == request.param
    assert jnp.arange(3.0).dtype == ON[request.param]
    jax.config.update("jax_enable_x64", before)


def doubles(*values):
    return tj.tensor(values, dtype=tj.float64, requires_grad=True)


def loop():
    x = y = doubles(0.5, 0.25)
    for _ in range(60):
        y = tj.sin(y) * 1.5 + 0.125
    return tj.autograd.grad(y.sum(), [x])[0] + y


def batched():
    x = doubles(1.0, 2.0, 3.0)
    (grads,) = tj.autograd.grad(x * x.exp(), [x], tj.eye(3, dtype=tj.float64), is_grads_batched=True)
    return grads


def batched_through_hooks():
    x = doubles(1.0, 2.0, 3.0)
    y = x * 2
    y.register_hook(lambda g: g * 0.1)
    (grads,) = tj.autograd.grad(y.exp(), [x], tj.eye(3, dtype=tj.float64), is_grads_batched=True)
    return grads


def mapped():
    return tj._vmap_internals._vmap(lambda row: row.exp() / 3)(doubles(1.0, 2.0, 3.0).detach().reshape(3, 1))


def forward():
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(tj.exp(forward_ad.make_dual(doubles(1.0), doubles(0.1).detach()))).tangent


def checked():
    x = tj.tensor([[2.0, 0.0], [0.0, 0.0]], dtype=tj.float64)
    with pytest.raises(RuntimeError, match="singular"):
        tj.linalg.inv(x).sum().item()
    return tj.linalg.inv(x + tj.eye(2, dtype=tj.float64))


def drawn():
    tj.manual_seed(0)
    return tj.randn(5, dtype=tj.float64)


def handed_over():
    x = tj.full((300, 300), 1 / 3, dtype=tj.float64)
    for _ in range(6):
        x = tj.tanh(x @ x / 100)
    return x


RUNS = {f.__name__: f for f in (loop, batched, batched_through_hooks, mapped, forward, checked, drawn, handed_over)}


@pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))
@pytest.mark.parametrize("way", WAYS)
def test_ours_has_64_bits_in_every_tier(setting, way, run):
    with jax.enable_x64(True):
        expected = run().detach().numpy()
    with WAYS[way]():
        for _ in range(3):
            found = run().detach().numpy()
            assert jnp.arange(3.0).dtype == ON[setting]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_what_is_compiled_serves_under_both_settings():
    x = doubles(1.0, 2.0).detach()

    def compute():
        return (tj.cosh(x) * 3).numpy()

    before = jax.config.read("jax_enable_x64")
    with baseline_tier(False):
        for _ in range(4):
            compute()
        compiled = tj.runtime.counters.compiled
        try:
            for on in (True, False):
                jax.config.update("jax_enable_x64", on)
                assert compute().dtype == np.float64
        finally:
            jax.config.update("jax_enable_x64", before)
    assert tj.runtime.counters.compiled == compiled


def test_other_threads_have_the_users_setting(setting):
    found = []

    def other():
        with baseline_tier(False):
            found.append((doubles(1.0) / 3).item())
        found.append(jnp.arange(3.0).dtype)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [1 / 3, ON[setting]]


def test_arrays_go_over_in_64_bits(setting):
    x = doubles(1 / 3).detach()
    assert np.from_dlpack(x).tolist() == [1 / 3]
    assert tj.from_dlpack(x).tolist() == [1 / 3]
    assert tj.tensor(np.array([1 / 3])).tolist() == [1 / 3]
    assert np.asarray(x).dtype == np.float64
    with jax.enable_x64(True):
        theirs = jnp.array([1 / 3])
    assert tj.from_dlpack(theirs).tolist() == [1 / 3]
    assert jnp.sin(x).dtype == ON[setting]  # by the pytree; asked for an array it is refused (test_interop.py)


# ---------------------------------------------------------------------- inside the user's transformations


def losses(w, x, y):
    order = tj.sort(x, 1).indices
    picked = x.gather(1, order)[:, [0, 2]].sum()
    return F.cross_entropy(tj.tanh(x @ w), y) + picked + x.argmax(1)[0] + x[1:, 0].cumsum(0).sum()


def operands():
    random = np.random.default_rng(0)
    return tj.tensor(random.normal(size=(4, 3))), tj.tensor(random.normal(size=(5, 4))), tj.tensor([0, 1, 2, 1, 0])


@pytest.mark.filterwarnings("error")
def test_operators_inside_of_jit_keep_their_dtypes_and_have_the_bits_that_jax_has(setting):
    expected, found = losses(*operands()), jax.jit(losses)(*operands())
    assert found.dtype is tj.float64
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12 if setting else 1e-5)
    seen = []
    jax.jit(lambda t: seen.append(t._concrete().dtype))(operands()[0])
    assert seen == [ON[setting]]


def test_gradients_by_jax_and_by_ours_inside_of_jit_agree(setting):
    w, x, y = operands()
    leaf = w.clone().requires_grad_()
    losses(leaf, x, y).backward()

    def ours(w, x, y):
        w = w.detach().requires_grad_()
        return tj.autograd.grad(losses(w, x, y), [w])[0]

    for found in (jax.jit(ours)(w, x, y), jax.grad(lambda w: losses(w, x, y)._concrete())(w)):
        assert found.dtype is tj.float64
        np.testing.assert_allclose(found.numpy(), leaf.grad.numpy(), rtol=1e-12 if setting else 1e-4, atol=1e-5 * (not setting))


@pytest.mark.parametrize("way", WAYS)
def test_what_is_pending_is_computed_outside_of_the_transformation(setting, way):
    with WAYS[way]():
        x = doubles(1.0, 2.0).detach()
        pending = x / 3
        found = jax.jit(lambda t: t * pending + pending.sum())(x)
        np.testing.assert_allclose(found.numpy(), [4 / 3, 7 / 3], rtol=1e-6)
        assert pending.tolist() == [1 / 3, 2 / 3]


FORMS_IN_64_BITS = {
    "sine and cosine": lambda x: x.sin() + x.cos(), "order": lambda x: tj.sort(x, stable=True).indices, "sort": lambda x: x.sort().values,
    "largest": lambda x: x.topk(3).indices, "place": lambda x: x.abs().argmin(), "element": lambda x: x[20000], "slice": lambda x: x[300:302],
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS_IN_64_BITS.values(), ids=list(FORMS_IN_64_BITS))
def test_forms_that_compute_in_64_bits_have_another_without(setting, form):
    x = tj.linspace(-1000, 1000, 40000)
    np.testing.assert_allclose(jax.jit(form)(x).numpy(), form(x).numpy(), rtol=1e-5, atol=1e-6)


def test_trees_keep_what_the_user_makes_of_them(setting):
    w, _, y = operands()
    assert jax.tree_util.tree_map(lambda a: a * 2, y).tolist() == [0, 2, 4, 2, 0]
    assert jax.tree_util.tree_map(lambda a: a * 2, w).dtype is tj.float64
    assert jax.tree_util.tree_map(lambda a: a > 0, w).dtype is tj.bool


# ---------------------------------------------------------------------- the state itself


@pytest.mark.parametrize("call", [_jax_compat.call_x64, _jax_compat._call_in_context], ids=["private", "public"])
def test_the_setting_is_back_after_errors_and_within_itself(setting, call):
    def width():
        return jnp.arange(3.0).dtype

    def failing():
        assert call(width) == width() == np.float64
        raise KeyboardInterrupt

    assert call(width) == np.float64
    with pytest.raises(KeyboardInterrupt):
        call(failing)
    assert width() == ON[setting]
    assert jax.jit(lambda a: (call(width), a)[1])(1) == 1


def test_functions_of_tracers_are_left_to_the_setting_there_is(setting):
    double = x64(lambda *, n: jnp.arange(n))
    assert double(n=3.0).dtype == np.float64
    seen = []
    jax.jit(lambda a: as_x64(lambda a: seen.append(jnp.arange(3.0).dtype), [a]))(1)
    as_x64(lambda a: seen.append(jnp.arange(3.0).dtype), [1])
    assert seen == [ON[setting], np.float64]


def test_what_is_interpreted_needs_no_setting(monkeypatch):
    x = doubles(1.0, 2.0).detach()

    def compute():
        return (tj.exp(x) * 2).tolist()

    with tj.runtime.execution_mode("fused"), baseline_tier(True):
        expected = [compute() for _ in range(3)][0]
        for module in (program, interpreted):
            monkeypatch.setattr(module, "call_x64", None)
        assert compute() == expected
