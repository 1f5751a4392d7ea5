"""`interpolate(antialias=True)` against PyTorch, and its derivatives against numbers."""

import numpy as np
import pytest

import torchgrad_jax as ours

pytestmark = pytest.mark.operators

SIZES = [{"size": (1, 2)}, {"size": (4, 8)}, {"size": (3, 13)}, {"size": (13, 20)}, {"scale_factor": (0.5, 0.4)}, {"scale_factor": 0.7}]
SIZES += [{"scale_factor": 2.3, "recompute_scale_factor": True}, {"scale_factor": (1.05, 0.5)}]
MODES = [("bilinear", False), ("bilinear", True), ("bicubic", False), ("bicubic", True), ("lanczos", False)]


def modes_and_sizes(test):
    test = pytest.mark.parametrize("how", SIZES, ids=str)(test)
    return pytest.mark.parametrize(("mode", "corners"), MODES)(test)


def resampled(m, x, mode, corners=None, **how):
    return m.nn.functional.interpolate(x, mode=mode, align_corners=corners, antialias=True, **how)


def images(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, shape).astype(dtype) if dtype == "uint8" else rng.standard_normal(shape).astype(dtype)


@modes_and_sizes
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_gradients_and_nodes_are_pytorchs(mode, corners, how, dtype):
    torch = pytest.importorskip("torch")
    given, made = images((2, 3, 11, 13), dtype), []
    for m in (torch, ours):
        x = m.tensor(given, requires_grad=True)
        y = resampled(m, x, mode, corners, **how)
        (y * m.tensor(images(y.shape, dtype, 1))).sum().backward()
        made.append((y.detach().numpy(), x.grad.numpy(), type(y.grad_fn).__name__, y.grad_fn._saved_scales_h))
    (value, grad, *node), (own_value, own_grad, *own_node) = made
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == "float32" else {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(own_value, value, **tolerance)
    if own_value.shape[2] != 11:  # PyTorch's gradient of a dimension that keeps its size heeds the scale, which its value does not
        np.testing.assert_allclose(own_grad, grad, **tolerance)
    assert own_node == node


@modes_and_sizes
@pytest.mark.parametrize("shape", [(2, 3, 11, 13), (1, 5, 20, 31)])
def test_bytes_are_pytorchs_to_the_bit(mode, corners, how, shape):
    torch = pytest.importorskip("torch")
    given = images(shape, "uint8")
    np.testing.assert_array_equal(*[resampled(m, m.tensor(given), mode, corners, **how).numpy() for m in (ours, torch)])


@pytest.mark.parametrize(("mode", "corners"), MODES)
@pytest.mark.parametrize("size", [(4, 8), (4, 4), (2, 8), (5, 9)])
def test_what_is_not_finite_stays_where_the_filter_reaches(mode, corners, size):
    torch = pytest.importorskip("torch")
    given = images((1, 1, 4, 8), "float32")
    given[0, 0, 1, 0], given[0, 0, 0, 7] = np.nan, np.inf
    np.testing.assert_array_equal(*[np.isfinite(resampled(m, m.tensor(given), mode, corners, size=size).numpy()) for m in (ours, torch)])


def test_large_windows_are_products_with_a_matrix():
    torch = pytest.importorskip("torch")
    given = images((1, 1, 5, 400), "float64")
    np.testing.assert_allclose(*[resampled(m, m.tensor(given), "bicubic", size=(5, 3)).numpy() for m in (ours, torch)], rtol=1e-12, atol=1e-12)


REFUSED = {
    "nearest": lambda m, x: resampled(m, x, "nearest", size=3),
    "area": lambda m, x: resampled(m, x, "area", size=3),
    "trilinear": lambda m, x: resampled(m, x, "trilinear", size=3),
    "foo": lambda m, x: resampled(m, x, "foo", size=3),
    "corners of nearest": lambda m, x: resampled(m, x, "nearest", True, size=3),
    "3-d": lambda m, x: resampled(m, x[0], "bilinear", size=3),
    "no size": lambda m, x: resampled(m, x, "nearest"),
    "sizes": lambda m, x: resampled(m, x, "bilinear", size=(2,)),
    "recomputed size": lambda m, x: resampled(m, x, "bilinear", size=3, recompute_scale_factor=True),
    "empty result": lambda m, x: resampled(m, x, "bilinear", size=(0, 3)),
    "empty image": lambda m, x: resampled(m, x[:, :, :0], "bicubic", size=3),
    "no channels": lambda m, x: resampled(m, x[:, :0], "bicubic", size=3),
    "half": lambda m, x: resampled(m, x.half(), "bilinear", size=3),
    "bfloat16": lambda m, x: resampled(m, x.bfloat16(), "bicubic", size=3),
    "integers": lambda m, x: resampled(m, x.int(), "bicubic", size=3),
    "lanczos with corners": lambda m, x: resampled(m, x, "lanczos", True, size=3),
    "lanczos alone": lambda m, x: m.nn.functional.interpolate(x, size=3, mode="lanczos"),
    "lanczos 3-d": lambda m, x: m.nn.functional.interpolate(x[0], size=3, mode="lanczos"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    said = []
    for m in (torch, ours):
        with pytest.raises((ValueError, RuntimeError)) as error:
            REFUSED[name](m, m.zeros(1, 2, 4, 5))
        said.append((error.type, str(error.value).partition("\n")[0]))
    assert said[1] == said[0]


@pytest.mark.parametrize(("mode", "corners"), MODES)
@pytest.mark.parametrize("how", [{"size": (3, 4)}, {"size": (7, 6)}, {"scale_factor": (1.1, 0.4)}], ids=str)
def test_gradients_are_those_of_the_values(mode, corners, how):
    x = ours.tensor(images((1, 2, 6, 9), "float64"), requires_grad=True)

    def function(x):
        return resampled(ours, x, mode, corners, **how)

    assert ours.autograd.gradcheck(function, (x,), check_forward_ad=True, check_batched_grad=True)
    assert ours.autograd.gradgradcheck(function, (x,))


def test_it_can_be_mapped():
    x = ours.tensor(images((3, 1, 2, 6, 9), "float64"))
    mapped = ours.vmap(lambda x: resampled(ours, x, "bicubic", size=(3, 4)))(x)
    np.testing.assert_allclose(mapped.numpy(), np.stack([resampled(ours, one, "bicubic", size=(3, 4)).numpy() for one in x]), rtol=1e-12, atol=1e-15)


def test_channels_that_come_last_stay_last():
    x = ours.zeros(1, 2, 6, 9).to(memory_format=ours.channels_last)
    assert resampled(ours, x, "bilinear", size=(3, 4)).is_contiguous(memory_format=ours.channels_last)
