"""Tensors among JAX's own and NumPy's arrays: what goes over keeps its values, its dtype and its gradient, or is refused in one sentence."""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.autograd import forward_ad
from torchgrad_jax.runtime import baseline_tier

pytestmark = pytest.mark.operators

X = [0.5, -1.0, 2.0]


def leaf(values=X, dtype=tj.float32):
    return tj.tensor(values, dtype=dtype, requires_grad=True)


@pytest.fixture(params=[False, True], ids=["x64 off", "x64 on"])
def setting(request):
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", request.param)
    yield request.param
    jax.config.update("jax_enable_x64", before)


# ---------------------------------------------------------------------- functions of tensors under JAX's transformations


def loss(t):
    return (t.sin() * t).sum()


def in_jnp(a):
    return (jnp.sin(a) * a).sum()


def mixed(t):
    return jnp.sum(tj.sin(t) * jnp.cos(t) + jnp.exp(t) * t)


def test_hessian_and_jacobians_of_functions_of_tensors():
    x, a = tj.tensor(X), jnp.array(X)
    for name in ("hessian", "jacfwd", "jacrev"):
        transform = getattr(jax, name)
        found = transform(loss)(x)
        assert isinstance(found, tj.Tensor) and found.dtype is tj.float32
        np.testing.assert_allclose(found.numpy(), transform(in_jnp)(a), rtol=1e-5)
        np.testing.assert_allclose((found * 2 + 1).numpy(), transform(in_jnp)(a) * 2 + 1, rtol=1e-5)
    both = jax.jacrev(lambda t: (t.sin(), {"s": t.sum()}))(x)
    assert both[0].shape == (3, 3) and both[1]["s"].tolist() == [1, 1, 1]


def test_a_jacobian_is_a_tensor_that_may_be_given_to_jax_again_and_written_to():
    hessian = jax.hessian(loss)(tj.tensor(X))
    before = hessian.numpy()
    np.testing.assert_allclose(jax.jit(lambda t: t * 2)(hessian).numpy(), before * 2)
    hessian.mul_(3)
    np.testing.assert_allclose(jax.jit(lambda t: t * 2)(hessian).numpy(), before * 6, rtol=1e-6)


def test_grad_wants_a_function_that_returns_an_array():
    for call in (jax.grad(loss), jax.value_and_grad(loss), jax.jit(jax.grad(loss))):
        with pytest.raises(RuntimeError, match="A function that jax.grad differentiates returns an array: return jax.numpy.asarray.result., or diff"):
            call(tj.tensor(X))
    found = jax.grad(lambda t: jnp.asarray(loss(t)))(tj.tensor(X))
    assert isinstance(found, tj.Tensor)
    np.testing.assert_allclose(found.numpy(), jax.grad(in_jnp)(jnp.array(X)), rtol=1e-6)
    found = jax.grad(lambda a: jnp.asarray(loss(tj.as_tensor(a))))(jnp.array(X))
    assert isinstance(found, jax.Array)
    np.testing.assert_allclose(found, jax.grad(in_jnp)(jnp.array(X)), rtol=1e-6)


def test_what_mixes_jax_and_operators():
    x, a = tj.tensor(X), jnp.array(X)

    def alone(a):
        return jnp.sum(jnp.sin(a) * jnp.cos(a) + jnp.exp(a) * a)

    np.testing.assert_allclose(mixed(x), alone(a), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(mixed)(x), alone(a), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(mixed)(x).numpy(), jax.grad(alone)(a), rtol=1e-6)
    rows = tj.tensor([X, X])
    np.testing.assert_allclose(jax.vmap(jax.grad(mixed))(rows).numpy(), [jax.grad(alone)(a)] * 2, rtol=1e-6)
    primal, tangent = jax.jvp(lambda t: t.sin(), (x,), (tj.ones(3),))
    np.testing.assert_allclose(tangent.numpy(), jnp.cos(a), rtol=1e-6)
    total, products = jax.lax.scan(lambda c, t: (c + t, c * t), tj.tensor(0.0), x)
    assert total.item() == 1.5 and products.tolist() == [0, -0.5, -1]


def test_results_with_names_and_dtypes_go_through():
    x = tj.tensor([[3.0, 1.0], [2.0, 5.0]])
    found = jax.jit(lambda t: t.max(1))(x)
    assert found.values.tolist() == [3, 5] and found.indices.tolist() == [0, 1] and found.indices.dtype is tj.int64
    w = leaf()
    updated = jax.tree_util.tree_map(lambda p, g: p - g, {"w": w}, {"w": tj.ones(3, requires_grad=True)})
    assert updated["w"].requires_grad and updated["w"].is_leaf and updated["w"].tolist() == [-0.5, -2, 1]


@pytest.mark.parametrize("call", [lambda a, t: a + t, lambda a, t: t * a, lambda a, t: jnp.stack([a, t]), lambda a, t: a @ t, lambda a, t: t == a])
def test_an_operator_of_a_tensor_and_an_array_gives_an_array(call):
    a = jnp.arange(3.0, dtype=jnp.float32)
    found = call(a, tj.tensor(X))
    assert isinstance(found, jax.Array)
    np.testing.assert_allclose(found, call(a, jnp.array(X, jnp.float32)))
    np.testing.assert_allclose(jax.jit(lambda a: call(a, tj.tensor(X)))(a), found)


# ---------------------------------------------------------------------- what would be lost


@pytest.mark.parametrize("call", [
    lambda t: jnp.asarray(t), lambda t: jnp.arange(3.0) * t, lambda t: t * jnp.arange(3.0), lambda t: jnp.stack([t]), lambda t: jnp.sin(t * 2),
    lambda t: jax.jit(lambda a: jnp.exp(a) * (t * 1))(jnp.ones(3)), lambda t: jax.jit(lambda a: jnp.asarray(t) * a)(jnp.ones(3)),
])  # fmt: skip
def test_gradients_are_not_lost(call):
    with pytest.raises(RuntimeError, match="^Can't give JAX a Tensor that requires grad, since its gradient would be lost. Use tensor.detach"):
        call(leaf())
    call(leaf().detach())


def test_tangents_are_not_lost():
    with forward_ad.dual_level():
        d = forward_ad.make_dual(tj.tensor(X), tj.ones(3))
        with pytest.raises(RuntimeError, match="^Can't make a JAX array of a dual Tensor, since its tangent would be lost"):
            jnp.asarray(d)
        assert jnp.asarray(tj.ones(2)).shape == (2,)


def test_precision_is_not_lost(setting):
    for dtype, kind in (("float64", "float32"), ("complex128", "complex64")):
        t = tj.tensor([1 / 3], dtype=getattr(tj, dtype))
        if setting:
            assert jnp.asarray(t).dtype == dtype and jnp.asarray(t).item() == 1 / 3
        else:
            with pytest.raises(TypeError, match=f"^JAX would make {kind} of this {dtype} Tensor, since jax_enable_x64 is off"):
                jnp.asarray(t)
    assert jnp.asarray(tj.tensor([1.5])).dtype == np.float32


def test_integers_do_not_wrap(setting):
    near, far = tj.tensor([-(2**31), 2**31 - 1]), tj.tensor([2**31, 0])
    assert jnp.asarray(near).tolist() == near.tolist()
    assert jnp.asarray(tj.zeros(0, dtype=tj.int64)).shape == (0,)
    double = jax.jit(lambda t: t * 2)
    if setting:
        assert jnp.asarray(far).tolist() == [2**31, 0] and double(far).tolist() == [2**32, 0]
        return
    with baseline_tier(False):
        computed = near + 1
        computed.sum().item()
    for call, number in ((lambda: jnp.asarray(far), 2**31), (lambda: double(far), 2**31), (lambda: jnp.asarray(computed), 2**31)):
        with pytest.raises(OverflowError, match=f"^{number} does not fit into the 32-bit integers that JAX has while jax_enable_x64 is off"):
            call()


def test_numpy_keeps_dtypes_both_ways(setting):
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128"):
        array = np.array([0, 1], name)
        for made in (tj.from_numpy(array), tj.tensor(array), tj.as_tensor(array), tj.asarray(array), tj.from_dlpack(array)):
            assert made.dtype is getattr(tj, name)
            assert made.numpy().dtype == np.asarray(made).dtype == np.from_dlpack(made).dtype == array.dtype
            assert made.tolist() == array.tolist()


def test_jax_keeps_dtypes_on_the_way_in(setting):
    for dtype in (jnp.bool_, jnp.uint8, jnp.int32, jnp.bfloat16, jnp.float32, jnp.complex64, jnp.uint32):
        array = jnp.array([0, 1], dtype)
        for made in (tj.tensor(array), tj.as_tensor(array), tj.asarray(array), tj.from_dlpack(array)):
            assert made._aval.dtype == array.dtype and made.tolist() == array.tolist()
    with jax.enable_x64(True):
        array = jnp.array([1 / 3])
    for made in (tj.tensor(array), tj.as_tensor(array), tj.asarray(array), tj.from_dlpack(array)):
        assert made.dtype is tj.float64 and made.tolist() == [1 / 3]
    with pytest.raises(TypeError, match="cannot have the dtype float8_e4m3fn of a JAX array"):
        tj.as_tensor(jnp.ones(2, jnp.float8_e4m3fn))


# ---------------------------------------------------------------------- memory


def test_arrays_of_jax_are_not_copied_and_outlive_each_other():
    array = jax.jit(lambda a: a + 1)(jnp.zeros(1 << 20, jnp.float32))
    for made in (tj.as_tensor(array), tj.from_dlpack(array), tj.asarray(array, copy=False), tj.from_dlpack(array, copy=False)):
        assert made._concrete().unsafe_buffer_pointer() == array.unsafe_buffer_pointer()
        made.add_(1)
        assert made[0].item() == 2 and array[0] == 1
    taken = tj.as_tensor(array)
    jax.jit(lambda a: a * 3, donate_argnums=0)(array).block_until_ready()
    del array
    gc.collect()
    assert taken[0].item() == 1
    with baseline_tier(False):
        array = jax.jit(lambda a: a + 1)(jnp.zeros(1 << 21, jnp.float32))
        t = tj.as_tensor(array)
        for _ in range(4):  # large enough to be given away to what replaces it
            t = t * 2
            t[0].item()
        assert array[0] == 1 and not array.is_deleted()


def test_what_the_owner_may_write_to_is_copied():
    array = np.zeros(3, np.float32)
    taken = [tj.from_numpy(array), tj.as_tensor(array), tj.asarray(array), tj.from_dlpack(array), tj.tensor(array)]
    pending = [t * 1 for t in taken]
    given = [np.asarray(taken[0]), taken[0].numpy(), np.from_dlpack(taken[0])]
    array[:] = 5
    for g in given:
        if g.flags.writeable:
            g[:] = 7
    assert all(t.tolist() == [0, 0, 0] for t in taken + pending)


def test_numpy_without_a_copy_cannot_be_written_to_and_keeps_its_content():
    for computed in (False, True):
        with baseline_tier(False):
            t = tj.ones(1 << 21) * 2 if computed else tj.tensor([2.0, 2.0])
            array = np.asarray(t, copy=False)
            assert np.shares_memory(array, np.asarray(t, copy=False)) and not array.flags.writeable
            for _ in range(3):
                t.add_(1)
                t = t * 2
                assert t[0].item() != 2
            assert (array == 2).all() and np.asarray(t)[0] == 30
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        np.array(t, dtype=np.int32, copy=False)
    with pytest.raises(RuntimeError, match="requires grad"):
        np.asarray(leaf(), copy=False)


def test_tensors_taken_by_dlpack_share_their_memory():
    t = tj.zeros(3)
    shared, copied = tj.from_dlpack(t), tj.from_dlpack(t, copy=True)
    shared.add_(1)
    assert t.tolist() == [1, 1, 1] and copied.tolist() == [0, 0, 0]
    assert not tj.from_dlpack(leaf()).requires_grad
    with pytest.raises(BufferError, match="without copying"):
        tj.from_dlpack(np.zeros(2), copy=False)


# ---------------------------------------------------------------------- asarray, and tracers as data


def test_tracers_are_taken_as_data():
    def total(a):
        return jnp.asarray((tj.tensor(a) * tj.as_tensor(a, dtype=tj.float32) * tj.asarray(a)).sum())

    np.testing.assert_allclose(jax.grad(total)(jnp.array(X)), 3 * np.array(X) ** 2, rtol=1e-6)
    assert jax.jit(lambda a: tj.tensor(a, dtype=tj.int32))(jnp.array(X)).tolist() == [0, -1, 2]


@pytest.mark.filterwarnings("ignore:torch.asarray. unspecified requires_grad")  # said once in a process
def test_asarray():
    t, w = tj.ones(2), leaf([1.0, 2.0])
    y = w * 2
    assert tj.asarray(t) is t and tj.asarray(y) is y
    assert not tj.asarray(y, requires_grad=False).requires_grad
    assert tj.asarray(y, copy=True).grad_fn.name() == "CloneBackward0" and tj.asarray(y, dtype=tj.float64).requires_grad
    assert tj.asarray(bytearray(b"\0\0\x80?")).tolist() == [1] and tj.asarray(b"\1\0\0\0", dtype=tj.int32).tolist() == [1]
    assert tj.asarray([1, 2]).dtype is tj.int64 and tj.asarray([1.0], requires_grad=True).requires_grad
    for call, error, text in (
        (lambda: tj.asarray(y, dtype=tj.float64, copy=False), ValueError, "can't alias tensor with dtype 'Float' into dtype 'Double'."),
        (lambda: tj.asarray([1], copy=False), ValueError, "can't alias arbitrary sequence into a tensor."),
        (lambda: tj.asarray(np.float64(1), copy=False), RuntimeError, "can't alias NumPy scalars"),
        (lambda: tj.asarray(np.ones(1), copy=False), ValueError, "cannot take an array without copying it"),
        (lambda: tj.asarray(bytearray(3), dtype=tj.int32), ValueError, "buffer length .3 bytes. after offset"),
        (lambda: tj.asarray([1], requires_grad=True), RuntimeError, "Only Tensors of floating point and complex dtype"),
        (lambda: tj.asarray("a"), TypeError, "invalid data type 'str'"),
        (lambda: tj.asarray(None), RuntimeError, "Could not infer dtype of NoneType"),
    ):
        with pytest.raises(error, match=text):
            call()


def test_an_array_of_jax_is_no_index():
    with pytest.raises(IndexError, match="only integers, slices"):
        tj.ones(3)[jnp.array([0, 1])]
    with pytest.raises(RuntimeError, match="pass jax.numpy.asarray"):
        jnp.ones(3)[tj.tensor([0, 1])]
    assert tj.ones(3)[jnp.int32(1)].item() == 1


# ---------------------------------------------------------------------- what has no value


@pytest.mark.parametrize("call", [lambda t: t if t.sum() > 0 else -t, lambda t: t.sum().item(), lambda t: t.tolist(), lambda t: t.numpy()])
def test_a_look_while_jax_traces_says_what_to_do(call):
    with pytest.raises(RuntimeError, match=r"\(\) needs the value of a Tensor, which has none while JAX traces the function that it is in"):
        jax.jit(call)(tj.ones(3))
    seen = []
    jax.jit(lambda t: (seen.append(repr(t)), t)[1])(tj.ones(2))
    assert seen == ["tensor(traced by JAX, size=(2,), dtype=torch.float32)"]


@pytest.mark.skipif(jax.config.jax_check_tracer_leaks, reason="lets tracers escape on purpose")
def test_what_escaped_from_a_transformation_says_so():
    outside, kept = tj.zeros(3), []

    def writes(t):
        outside.add_(t)
        kept.append(t * 2)
        return t + tj.zeros(3).add_(t)  # what it made itself may be written to

    assert jax.jit(writes)(tj.ones(3)).tolist() == [2, 2, 2]
    for escaped in (outside, *kept):
        with pytest.raises(RuntimeError, match="^A Tensor has no value: it was made inside a function that JAX transforms"):
            escaped + 1
