"""`from_jax`: a JAX function as an operator. The reference is JAX itself, and where PyTorch is installed its own operators."""

from __future__ import annotations

import functools
import gc
import weakref
from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ways import WAYS

import torchgrad_jax as tj
from torchgrad_jax import from_jax
from torchgrad_jax.autograd import forward_ad
from torchgrad_jax.runtime.counters import counters

pytestmark = pytest.mark.operators

X = [0.5, -1.0, 2.0]


def leaf(values=X, dtype=tj.float32):
    return tj.tensor(values, dtype=dtype, requires_grad=True)


@from_jax
def wave(x):
    """Docs of the function."""
    return jnp.sin(x) * jnp.arange(3.0)


@pytest.mark.parametrize("way", WAYS)
def test_values_and_derivatives_of_every_order_are_those_of_jax(way):
    def values(x):
        return jnp.sin(x) * jnp.arange(3.0)

    with WAYS[way]():
        for _ in range(3):
            x = leaf()
            y = wave(x)
            (first,) = tj.autograd.grad(y.sum(), x, create_graph=True)
            (second,) = tj.autograd.grad(first.sum(), x, create_graph=True)
            (third,) = tj.autograd.grad(second.sum(), x)
            order = jnp.array(X)
            expected = values
            for found in (y.detach(), first.detach(), second.detach(), third):
                np.testing.assert_allclose(found.numpy(), expected(order), rtol=1e-5)
                expected = jax.grad(lambda x, before=expected: before(x).sum())


def test_it_is_an_operator_of_the_function_s_name():
    assert wave.__name__ == "wave" and wave.__doc__ == "Docs of the function."
    y = wave(leaf())
    assert y.grad_fn.name() == "waveBackward" and y.grad_fn.next_functions[0][0].name() == "torch::autograd::AccumulateGrad"
    assert from_jax(lambda x: x * 2)(leaf()).grad_fn.name() == "from_jaxBackward"
    assert from_jax(functools.partial(jnp.add, 2.0))(leaf()).tolist() == [2.5, 1.0, 4.0]


def test_gradcheck_in_both_directions_and_batched():
    operator = from_jax(lambda x, y: jnp.tanh(x @ y) * x.sum())
    inputs = (leaf([[0.1, 0.2], [0.3, 0.4]], tj.float64), leaf([[0.5], [-0.25]], tj.float64))
    assert tj.autograd.gradcheck(operator, inputs, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True)
    assert tj.autograd.gradgradcheck(operator, inputs, check_fwd_over_rev=True, check_rev_over_rev=True)


def test_complex_gradients_follow_pytorch():
    z = tj.tensor([1 + 2j, -0.5j], dtype=tj.complex128, requires_grad=True)
    operator = from_jax(lambda z: jnp.sin(z) * z)
    grad = tj.tensor([1 - 1j, 2j], dtype=tj.complex128)
    (ours,) = tj.autograd.grad(operator(z), z, grad)
    (declared,) = tj.autograd.grad(tj.sin(z) * z, z, grad)
    np.testing.assert_allclose(ours.numpy(), declared.numpy(), rtol=1e-12)
    assert tj.autograd.gradcheck(operator, (z,), check_forward_ad=True)
    assert tj.autograd.gradcheck(from_jax(lambda z: jnp.abs(z).sum() + z.real), (z,), check_forward_ad=True)


def test_forward_mode():
    with forward_ad.dual_level():
        d = forward_ad.make_dual(tj.tensor(X), tj.ones(3))
        found = forward_ad.unpack_dual(wave(d)).tangent
    np.testing.assert_allclose(found.numpy(), jnp.cos(jnp.array(X)) * jnp.arange(3.0), rtol=1e-6)


Pair = namedtuple("Pair", "low high")


def test_trees_go_in_and_come_out():
    @from_jax
    def split(tree, *, at, names=("a",)):
        x = tree["x"].low + tree["x"].high[0]
        return {names[0]: Pair(x[:at], x[at:]), "none": None, "more": [(x > 0).sum(), 2]}

    low, high = leaf([1.0, -2.0, 3.0]), leaf(1.0)
    out = split({"x": Pair(low, [high])}, at=2, names=("first", "second"))
    assert isinstance(out["first"], Pair) and out["none"] is None
    assert out["first"].low.tolist() == [2, -1] and out["first"].high.tolist() == [4]
    assert not out["more"][0].requires_grad and out["more"][0].item() == 2 and out["more"][1].item() == 2
    (out["first"].low.sum() * 3 + out["first"].high[0]).backward()
    assert low.grad.tolist() == [3, 3, 1] and high.grad.item() == 7


def test_only_some_results_have_a_gradient():
    three = from_jax(lambda x: (x * 2, jnp.ones(2), jnp.argmax(x), x**2))
    x = leaf()
    double, constant, place, square = three(x)
    assert constant.requires_grad and not place.requires_grad and place.item() == 2
    assert tj.autograd.grad(square.sum(), x, retain_graph=True)[0].tolist() == [1, -2, 4]
    assert tj.autograd.grad(constant.sum(), x, retain_graph=True)[0].tolist() == [0, 0, 0]
    assert tj.autograd.grad([double.sum(), square.sum()], x)[0].tolist() == [3, 0, 6]


def test_arrays_of_jax_and_numpy_are_operands():
    operator = from_jax(lambda x, a, b, c: x * a + b * c)
    b = np.ones(3, np.float32)
    found = operator(leaf(), jnp.arange(3.0, dtype=jnp.float32), b, np.float32(2))
    b[:] = 100
    assert found.tolist() == [2, 1, 6]


def test_keys_of_random_are_side_arguments():
    @from_jax
    def noisy(x, key):
        return x * jax.random.normal(key, x.shape)

    for key in (jax.random.key(3), jax.random.PRNGKey(3)):
        x = leaf()
        y = noisy(x, key)
        drawn = jax.random.normal(key, (3,))
        np.testing.assert_allclose(y.detach().numpy(), jnp.array(X) * drawn, rtol=1e-6)
        y.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), drawn, rtol=1e-6)
    assert not np.allclose(noisy(leaf(), jax.random.key(4)).detach().numpy(), y.detach().numpy())


def test_what_is_no_array_is_static():
    seen = []

    @from_jax
    def power(x, n, scale=1.0):
        seen.append((n, scale))
        return x**n if n else x * 0 + jnp.copysign(1.0, scale)

    x = tj.tensor([2.0])
    for n, scale, expected in ((2, 1.0, 4), (3, 1.0, 8), (True, 1.0, 2), (0, 0.0, 1), (0, -0.0, -1), (2, 1.0, 4)):
        assert power(x, n, scale).item() == expected
    assert len(seen) == 5
    with pytest.raises(TypeError, match="power: an argument of type set is neither an array nor hashable"):
        power(x, {2})


def test_the_function_is_traced_once_for_each_kind_of_arguments():
    calls = []

    def double(x):
        calls.append(x.shape)
        return x * 2

    for _ in range(3):
        for shape in ((2,), (3,)):
            x = tj.ones(shape, requires_grad=True)
            from_jax(double)(x).sum().backward()
            assert x.grad.tolist() == [2] * shape[0]
    assert calls == [(2,), (3,)]


def test_control_flow_on_shapes_is_looked_at_for_every_shape():
    # Signatures of declared operators that differ in sizes alone share what was learned; a user's Python may ask for sizes.
    operator = from_jax(lambda x: x * 2 if x.shape[0] < 5 else x * 3)
    for n in (2, 3, 4, 5, 6):
        x = tj.ones(n, requires_grad=True)
        operator(x).sum().backward()
        assert x.grad.tolist() == [2 if n < 5 else 3] * n


def test_a_loop_with_it_is_one_program():
    operator = from_jax(lambda w, x: jnp.tanh(x @ w))
    w, x = tj.ones(4, 4, requires_grad=True), tj.ones(2, 4)

    def turn():
        loss = (operator(w, x) * 2).sum()
        loss.backward()
        with tj.no_grad():
            w.sub_(0.1 * w.grad)
        w.grad = None

    with tj.runtime.execution_mode("fused"):
        for _ in range(5):
            turn()
        before = counters.flushed
        for _ in range(10):
            turn()
        assert counters.flushed - before == 10


@pytest.mark.parametrize("way", WAYS)
def test_loops_and_branches_of_jax_stay_what_they_are(way):
    @from_jax
    def iterate(x, n):
        x = jax.lax.while_loop(lambda x: x.sum() < n, lambda x: x * 2, x)
        return jax.lax.cond(x[0] > 3, lambda x: x + 1, lambda x: x - 1, x)

    scanned = from_jax(lambda x: jax.lax.scan(lambda c, t: (c * t, c), 1.0, x)[0])
    with WAYS[way]():
        assert iterate(tj.ones(2), tj.tensor(100.0)).tolist() == [65, 65]
        x = leaf([2.0, 3.0, 4.0])
        assert tj.autograd.grad(scanned(x), x)[0].tolist() == [12, 8, 6]
        with pytest.raises(RuntimeError, match="^iterateBackward: Reverse-mode differentiation does not work for lax.while_loop"):
            y = tj.ones(2, requires_grad=True)
            iterate(y, tj.tensor(100.0)).sum().backward()


def custom(bwd):
    @jax.custom_vjp
    def square(x):
        return x * x

    square.defvjp(lambda x: (x * x, x), bwd)
    return from_jax(square)


@pytest.mark.parametrize("way", WAYS)
def test_custom_vjp_is_heeded(way):
    # The constants are the user's JAX: 32 bits. The loop is one that our own traces would unroll.
    square = custom(lambda x, g: (jax.lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, c[1] * 100), (0, g))[1] * x * jnp.arange(3.0),))
    with WAYS[way]():
        x = leaf()
        assert tj.autograd.grad(square(x).sum(), x)[0].tolist() == [0, -100, 400]


@pytest.mark.failing_programs
@pytest.mark.parametrize("way", WAYS)
def test_custom_vjp_has_no_forward_derivative(way):
    with WAYS[way](), forward_ad.dual_level(), pytest.raises(RuntimeError, match="^squareBackward.*: can't apply forward-mode autodiff"):
        forward_ad.unpack_dual(custom(lambda x, g: (g * x,))(forward_ad.make_dual(leaf(), tj.ones(3)))).tangent.tolist()


def test_custom_vjp_twice_and_forward_over_reverse():
    square = custom(lambda x, g: (g * x * jnp.arange(3.0),))
    x = leaf()
    (g,) = tj.autograd.grad((square(x) ** 2).sum(), x, create_graph=True)
    assert g.tolist() == [0, -2, 32]
    # d/dx of 2 square(x) x k, where square' is x k and not 2 x
    assert tj.autograd.grad(g.sum(), x)[0].tolist() == [0, 4, 48]
    with forward_ad.dual_level(), tj.runtime.execution_mode("fused"):  # what nobody looks at, the result's own tangent, is not computed
        d = forward_ad.make_dual(leaf(), tj.ones(3))
        (g,) = tj.autograd.grad(square(d).sum(), d)
        assert forward_ad.unpack_dual(g).tangent.tolist() == [0, 1, 2]


def test_custom_jvp_is_heeded():
    @jax.custom_jvp
    def halved(x):
        return x * x

    halved.defjvp(lambda primals, tangents: (primals[0] ** 2, primals[0] * tangents[0]))
    x = leaf()
    assert tj.autograd.grad(from_jax(halved)(x).sum(), x)[0].tolist() == X
    with forward_ad.dual_level():
        assert forward_ad.unpack_dual(from_jax(halved)(forward_ad.make_dual(x.detach(), tj.ones(3)))).tangent.tolist() == X


def test_writing_to_what_was_saved_is_refused():
    a = leaf()
    x = a * 1
    y = from_jax(lambda x: x**2)(x)
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_modes_and_hooks():
    x = leaf()
    with tj.no_grad():
        assert not wave(x).requires_grad
    with tj.inference_mode():
        assert wave(x).is_inference()
    seen = []
    y = wave(x)
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.sum().backward()
    assert seen == [[1, 1, 1]]


def test_no_operands_and_no_results():
    assert from_jax(lambda: jnp.arange(3))().tolist() == [0, 1, 2]
    assert from_jax(lambda x: {"a": None, "b": ()})(leaf()) == {"a": None, "b": ()}


# ---------------------------------------------------------------------- 64-bit types


@pytest.fixture(params=[False, True], ids=["x64 off", "x64 on"])
def setting(request):
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", request.param)
    yield request.param
    assert jax.config.read("jax_enable_x64") == request.param
    jax.config.update("jax_enable_x64", before)


def test_the_users_setting_says_what_the_functions_own_arrays_are(setting):
    y = wave(tj.tensor(X))
    assert y.dtype is (tj.float64 if setting else tj.float32)
    assert from_jax(lambda x: x * 2)(tj.tensor(X)).dtype is tj.float32


def test_arguments_of_double_precision_keep_it(setting):
    y = wave(leaf([1 / 3] * 3, tj.float64))
    assert y.dtype is tj.float64
    np.testing.assert_array_equal(y.detach().numpy(), np.sin(1 / 3) * np.arange(3.0))
    assert tj.autograd.gradcheck(wave, (leaf(dtype=tj.float64),), check_forward_ad=True)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("way", WAYS)
def test_integers_that_jax_cannot_hold_are_refused(setting, way):
    pick = from_jax(lambda x, i: x[i] * 2 + (i > 5))
    with WAYS[way]():
        x = leaf()
        y = pick(x, tj.tensor([0, 2]))
        assert y.tolist() == [1, 4] and y.dtype is tj.float32
        assert tj.autograd.grad(y.sum(), x)[0].tolist() == [2, 0, 2]
        far = tj.tensor([0, 2**40])
        if setting:
            assert from_jax(lambda i: i + 1)(far).tolist() == [1, 2**40 + 1]
        else:
            with pytest.raises(OverflowError, match="1099511627776 does not fit into the 32-bit integers that JAX has while jax_enable_x64 is off"):
                pick(x, far).tolist()


# ---------------------------------------------------------------------- inside the user's transformations


def test_inside_of_the_users_transformations(setting):
    def loss(x):
        return (from_jax(lambda y: jnp.sin(y) * 2.5)(x) * x).sum()

    x = leaf(dtype=tj.float64)
    loss(x).backward()
    found = jax.grad(lambda x: loss(x)._concrete())(x.detach())
    np.testing.assert_allclose(found.numpy(), x.grad.numpy(), rtol=1e-12 if setting else 1e-5)
    np.testing.assert_allclose(jax.jit(loss)(x.detach()).item(), loss(x).item(), rtol=1e-12 if setting else 1e-5)
    rows = tj.tensor([X, X])
    assert jax.vmap(from_jax(lambda x: x * 2))(rows).tolist() == (rows * 2).tolist()


# ---------------------------------------------------------------------- what fails


def raising(x):
    raise LookupError("of the user's own")


@pytest.mark.parametrize("function, error, text", [
    (lambda x: x if x.sum() > 0 else -x, RuntimeError, "^from_jax: Attempted boolean conversion of traced array with shape .*test_from_jax.py:"),
    (lambda x: np.asarray(x), RuntimeError, "^from_jax: The numpy.ndarray conversion method __array__.. was called on traced array .*from_jax.py:"),
    (lambda x: x + jnp.ones(4), RuntimeError, r"^from_jax: add got incompatible shapes for broadcasting: \(3,\), \(4,\)"),
    (lambda x: x[x > 0], RuntimeError, "^from_jax: Array boolean indices must be concrete"),
    (lambda x: (x, "a"), TypeError, "^from_jax: the function returns an object of type str"),
    (lambda x: jax.random.key(0), TypeError, "^from_jax: the function returns a key of jax.random"),
    (lambda x: x.astype(jnp.float8_e4m3fn), TypeError, "^from_jax: the function returns an array of dtype float8_e4m3fn"),
    (lambda x, y: x, TypeError, "missing 1 required positional argument"),
    (raising, LookupError, "^'?of the user's own"),
    (lambda x: (jax.debug.print("{}", x, ordered=True), x)[1], RuntimeError, "^from_jax: the function has ordered side effects"),
])  # fmt: skip
def test_what_fails_is_one_sentence(function, error, text):
    for _ in range(2):
        with pytest.raises(error, match=text) as caught:
            from_jax(function)(leaf())
        assert "\n" not in str(caught.value) and caught.value.__suppress_context__ == (error is RuntimeError and "ordered" not in text)
    assert wave(leaf()).shape == (3,)


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="argument 'function' .position 1. must be a function, not int"):
        from_jax(3)


@pytest.mark.parametrize("function", [
    lambda w: lambda x: jnp.sin(x) * w, lambda w: lambda x: w * jnp.sin(x), lambda w: lambda x: jnp.add(w, x),
    lambda w: lambda x: jax.jit(jnp.add)(w, x), lambda w: lambda x: jnp.sin(x) + tj.sin(w).detach(),
])  # fmt: skip
def test_tensors_that_are_no_arguments_are_refused(function):
    # Their content would stay in the program and their gradients would be lost.
    with pytest.raises(RuntimeError, match="^from_jax: the function that from_jax was given reads a Tensor that is not among its arguments"):
        from_jax(function(leaf()))(tj.ones(3))


def test_traced_arrays_that_are_no_arguments_are_refused():
    with pytest.raises(RuntimeError, match="reads a traced array that is not among its arguments"):
        jax.jit(lambda q: from_jax(lambda y: y + q)(tj.ones(3)))(jnp.ones(3))
    assert from_jax(lambda y: y + 1)(tj.ones(3)).tolist() == [2, 2, 2]


def test_graphs_go_when_nobody_holds_them():
    gc.collect()
    gc.disable()
    try:
        x = leaf()
        y = wave(x)
        reference = weakref.ref(y.grad_fn)
        del y
        assert reference() is None
    finally:
        gc.enable()


# ---------------------------------------------------------------------- inside transforms


def scaled(x, scale, i):
    return jnp.sin(x).sum() * scale + x[i] ** 3, jnp.argmax(x)


def test_inside_of_transforms_it_is_what_jax_makes_of_the_function():
    operator = from_jax(scaled)
    rows = tj.tensor([X, [1.0, 0.25, -0.5], [3.0, 2.0, 1.0]])
    places = tj.tensor([0, 2, 1])
    theirs, where = jnp.asarray(rows), jnp.asarray(places)
    func = tj.func

    def first(x, scale, i):
        return operator(x, scale, i)[0]

    def its_first(x, scale, i):
        return scaled(x, scale, i)[0]

    for ours, jaxs in (
        (func.vmap(operator, in_dims=(0, None, 0)), jax.vmap(scaled, (0, None, 0))),
        (func.vmap(func.grad(first), in_dims=(0, None, 0)), jax.vmap(jax.grad(its_first), (0, None, 0))),
        (func.vmap(func.hessian(first), in_dims=(0, None, 0)), jax.vmap(jax.hessian(its_first), (0, None, 0))),
        (func.vmap(func.jacrev(func.jacrev(first)), in_dims=(0, None, 0)), jax.vmap(jax.hessian(its_first), (0, None, 0))),
    ):
        for _ in range(3):
            found, expected = ours(rows, 2.0, places), jaxs(theirs, 2.0, where)
            for a, b in zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    pushed = func.jvp(lambda x: first(x, 2.0, 1), (rows[0],), (tj.ones(3),))[1]
    np.testing.assert_allclose(pushed.item(), jax.jvp(lambda x: its_first(x, 2.0, 1), (theirs[0],), (jnp.ones(3, jnp.float32),))[1], rtol=1e-6)


def test_transforms_differentiate_to_what_is_outside():
    w = leaf()
    found = tj.func.vmap(lambda x: wave(x * w).sum())(tj.ones(4, 3))
    found.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 4 * np.cos(X) * np.arange(3.0), rtol=1e-5)


def hundredfold(g):
    return jax.lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, c[1] * 100), (0, g))[1]


def test_transforms_heed_custom_vjp_and_the_check_of_integers():
    square = custom(lambda x, g: (hundredfold(g) * x * jnp.arange(3.0),))
    rows = tj.tensor([X, X])
    assert tj.func.vmap(tj.func.grad(lambda x: square(x).sum()))(rows).tolist() == [[0, -100, 400]] * 2
    pick = from_jax(lambda x, i: x[i])
    assert tj.func.vmap(pick)(rows, tj.tensor([0, 2])).tolist() == [0.5, 2]
    if not jax.config.read("jax_enable_x64"):
        far = tj.tensor([0, 0, 2**40, 0])
        with pytest.raises(OverflowError, match="1099511627776 does not fit"):
            tj.func.vmap(pick, in_dims=(None, 0))(rows[0], far).tolist()


def test_checks_inside_of_vmap_tell_the_first_that_failed():
    matrices = tj.eye(2).repeat(5, 1, 1)
    matrices[1] = 0
    with pytest.raises(RuntimeError, match="singular"):
        tj.func.vmap(tj.linalg.inv)(matrices).tolist()
    matrices[1] = tj.eye(2)
    assert tj.func.vmap(tj.linalg.inv)(matrices).tolist() == matrices.tolist()


def test_jax_is_given_no_tensor_of_a_transform():
    for transform in (tj.func.vmap, tj.func.grad):
        with pytest.raises(RuntimeError, match="^Can't give JAX a Tensor of a function that is being transformed"):
            transform(lambda x: tj.as_tensor(jnp.sin(x)).sum())(tj.ones(3))
