"""Sampling at the points of a grid, attention of several heads, and what else is composed of other functions, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from side_by_side import like_pytorch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators


def numbers(m, *shape, seed=0, dtype="float64", grad=True):
    values = np.random.RandomState(seed + sum(shape)).uniform(-1.8, 1.8, shape)
    return m.tensor(values.tolist(), dtype=getattr(m, dtype)).reshape(shape).requires_grad_(grad)


def derivatives(m, out, *leaves):
    """First and second gradients."""
    first = m.autograd.grad((out * out).sum(), leaves, create_graph=True)
    some = sum((g * g).sum() for g in first if g.requires_grad)
    return out, first, m.autograd.grad(some, leaves)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample_of_images(mode):
    @like_pytorch
    def check(m):
        found = []
        for padding, corners in (("zeros", False), ("border", True), ("reflection", False), ("reflection", True)):
            image, points = numbers(m, 2, 2, 5, 4), numbers(m, 2, 4, 3, 2)
            with m.no_grad():  # where a formula has a corner: the borders, the middle, far outside
                points[0, 0] = m.tensor([[1.0, -1.0], [0.0, 0.0], [5.0, -7.5]])
            out = m.nn.functional.grid_sample(image, points, mode, padding, corners)
            found.append([out.grad_fn.name(), derivatives(m, out, image, points)])
        return found

    check()


@like_pytorch
def test_grid_sample_of_volumes(m):
    found = []
    for mode, padding in (("bilinear", "zeros"), ("bilinear", "reflection"), ("nearest", "border")):
        volume, points = numbers(m, 1, 2, 3, 4, 2), numbers(m, 1, 2, 2, 2, 3)
        out = m.nn.functional.grid_sample(volume, points, mode, padding, True)
        found.append([out.grad_fn.name(), derivatives(m, out, volume, points)])
    return found


@like_pytorch
def test_sampling_by_affine_maps(m):
    found = []
    for size, corners in (((2, 1, 3, 4), True), ((2, 1, 3, 4), None), ((1, 1, 2, 1, 3), True), ((1, 1, 2, 1, 3), False)):
        dims = len(size) - 2
        theta, image = numbers(m, size[0], dims, dims + 1), numbers(m, *size[:2], *(4,) * dims)
        grid = m.nn.functional.affine_grid(theta, size, corners)
        found.append([grid.grad_fn.name(), derivatives(m, m.nn.functional.grid_sample(image, grid, align_corners=bool(corners)), theta)])
    return found


@like_pytorch
def test_a_map_that_changes_nothing_has_slopes_of_pytorchs_sides(m):
    # Its points lie on pixels, where the slope jumps: those of a spatial transformer that has just been made.
    found = []
    for corners in (False, True):
        theta, image = m.tensor([[[1.0, 0, 0], [0, 1, 0]]], requires_grad=True), numbers(m, 1, 1, 28, 28, dtype="float32", grad=False)
        grid = m.nn.functional.affine_grid(theta, (1, 1, 28, 28), corners)
        sampled = m.nn.functional.grid_sample(image, grid, align_corners=corners)
        found.append([grid.detach().view(m.int32), m.autograd.grad((sampled * image).sum(), theta)])
    return found


@pytest.mark.parametrize("size", [11, 18, 19, 25, 29, 38, 50, 225, 299])
def test_points_on_pixels_lie_on_pytorchs_side_of_them(size):
    def program(m):
        # The slope between two pixels tells which they are.
        theta, image = m.tensor([[[1.0, 0, 0], [0, 1, 0]]]), (m.arange(size) ** 2 % 1024).float().expand(1, 1, 3, size).contiguous()
        grid = m.nn.functional.affine_grid(theta, (1, 1, 3, size), False).requires_grad_()
        slopes = m.autograd.grad(m.nn.functional.grid_sample(image, grid, align_corners=False).sum(), grid)[0]
        return (slopes[0, 1, :, 0] * 2 / size).round()

    like_pytorch(program)()


@like_pytorch
def test_evenly_spaced_numbers_are_pytorchs_to_the_last_digit(m):
    found = []
    for dtype, bits in ((m.float32, m.int32), (m.float64, m.int64), (m.float16, m.int16), (m.bfloat16, m.int16)):
        for start, end, steps in ((-1, 1, 28), (-3.14159, 3.14159, 200), (5, -2.5, 13), (0.3, 7.7, 7), (0, 1, 2)):
            found.append(m.linspace(start, end, steps, dtype=dtype).view(bits))
    return found


SAMPLING_ERRORS = {
    "mode": lambda f, x, g: f.grid_sample(x, g, "cubic"),
    "padding": lambda f, x, g: f.grid_sample(x, g, "nearest", "mirror"),
    "batch": lambda f, x, g: f.grid_sample(x, g[:1], align_corners=False),
    "coordinates": lambda f, x, g: f.grid_sample(x, g[..., :1], align_corners=False),
    "empty": lambda f, x, g: f.grid_sample(x[:, :, :0], g, align_corners=False),
    "dtype": lambda f, x, g: f.grid_sample(x, g.double(), align_corners=False),
    "whole": lambda f, x, g: f.grid_sample(x.int(), g.int(), align_corners=False),
    "bicubic": lambda f, x, g: f.grid_sample(x[:, :, None], g[:, None].repeat(1, 1, 1, 1, 2)[..., :3], "bicubic", align_corners=False),
    "number": lambda f, x, g: f.grid_sample(1, g, align_corners=False),
    "theta": lambda f, x, g: f.affine_grid(x[0], (2, 3, 4, 5), False),
    "theta whole": lambda f, x, g: f.affine_grid(x[0].int(), (2, 3, 4, 5), False),
    "size": lambda f, x, g: f.affine_grid(x[0], (2, 3, 4), False),
    "size 0": lambda f, x, g: f.affine_grid(x[:, 0, :2, :3], (2, 3, 0, 4), False),
    "number of maps": lambda f, x, g: f.affine_grid(x[:, 0, :2, :3], (3, 3, 2, 4), False),
}


@pytest.mark.parametrize("name", SAMPLING_ERRORS)
def test_errors_of_sampling(name):
    like_pytorch(lambda m: SAMPLING_ERRORS[name](
        m.nn.functional, numbers(m, 2, 3, 4, 5, dtype="float32", grad=False), numbers(m, 2, 3, 2, 2, dtype="float32", grad=False))
    )()  # fmt: skip


def heads(m, **changed):
    """`multi_head_attention_forward` of 3 queries and 5 keys of 2 samples with 2 heads of 2 features."""
    given = {
        "query": numbers(m, 3, 2, 4), "key": numbers(m, 5, 2, 4), "value": numbers(m, 5, 2, 4, seed=1), "embed_dim_to_check": 4, "num_heads": 2,
        "in_proj_weight": numbers(m, 12, 4), "in_proj_bias": numbers(m, 12), "bias_k": None, "bias_v": None, "add_zero_attn": False,
        "dropout_p": 0.0, "out_proj_weight": numbers(m, 4, 4), "out_proj_bias": numbers(m, 4),
    }  # fmt: skip
    given |= {k: v(m) for k, v in changed.items()}
    m.manual_seed(0)
    return given, m.nn.functional.multi_head_attention_forward(**given)


def of(*shape, **options):
    return lambda m: numbers(m, *shape, **options)


def always(value):
    return lambda m: value


def unseen(*shape):
    return lambda m: numbers(m, *shape, grad=False) > 1.2


def own(*shape):
    """The same tensor each time it is asked for in one program."""
    made = {}
    return lambda m: made.setdefault(m, numbers(m, *shape))


SELF = own(3, 2, 4)
HEADS = {
    "plain": {},
    "of each head": {"average_attn_weights": always(False)},
    "no weights": {"need_weights": always(False)},
    "of itself": {"query": SELF, "key": SELF, "value": SELF},
    "unbatched": {"query": of(3, 4), "key": of(5, 4), "value": of(5, 4, seed=1), "key_padding_mask": unseen(5)},
    "masks": {"attn_mask": unseen(3, 5), "key_padding_mask": unseen(2, 5)},
    "masks of two kinds": {"attn_mask": of(4, 3, 5), "key_padding_mask": unseen(2, 5), "need_weights": always(False)},
    "causal": {"attn_mask": lambda m: m.full((3, 5), -1e9, dtype=m.float64).triu(1), "is_causal": always(True), "need_weights": always(False)},
    "more keys": {"bias_k": of(1, 1, 4), "bias_v": of(1, 1, 4, seed=1), "add_zero_attn": always(True), "attn_mask": of(3, 5)},
    "fixed keys": {"static_k": of(4, 7, 2), "static_v": of(4, 7, 2, seed=1)},
    "projections": {"use_separate_proj_weight": always(True), "q_proj_weight": of(4, 4), "k_proj_weight": of(4, 3), "v_proj_weight": of(4, 6),
                    "key": of(5, 2, 3), "value": of(5, 2, 6), "in_proj_bias": always(None)},
    "dropout": {"dropout_p": always(0.5)},
    "no dropout": {"dropout_p": always(0.5), "training": always(False), "out_proj_bias": always(None)},
}  # fmt: skip


@pytest.mark.parametrize("name", HEADS)
def test_attention_of_several_heads(name):
    @like_pytorch
    def check(m):
        given, found = heads(m, **HEADS[name])
        leaves = {id(x): x for x in given.values() if isinstance(x, m.Tensor) and x.requires_grad}
        names = [None if x is None else x.grad_fn.name() for x in found]
        grads = m.autograd.grad(sum((x * x).sum() for x in found if x is not None), list(leaves.values()), allow_unused=True)
        return names, found, [0 if g is None else g for g in grads]

    check()


HEAD_ERRORS = {
    "dimensions": {"query": of(4)},
    "key": {"key": of(5, 4)},
    "key and query": {"query": of(3, 4)},
    "value": {"value": of(6, 2, 4)},
    "embed_dim": {"embed_dim_to_check": always(5)},
    "heads": {"num_heads": always(3)},
    "padding dimensions": {"key_padding_mask": unseen(5)},
    "padding size": {"key_padding_mask": unseen(2, 6)},
    "padding dtype": {"key_padding_mask": lambda m: m.zeros(2, 5, dtype=m.int32)},
    "mask size": {"attn_mask": of(3, 6)},
    "mask sizes": {"attn_mask": of(2, 3, 5)},
    "mask dimensions": {"attn_mask": of(3)},
    "mask dtype": {"attn_mask": lambda m: m.zeros(3, 5, dtype=m.int32)},
    "causal": {"is_causal": always(True)},
    "bias_k": {"bias_k": of(1, 1, 4)},
    "separate": {"use_separate_proj_weight": always(True)},
    "separate size": {"use_separate_proj_weight": always(True), "q_proj_weight": of(4, 3), "k_proj_weight": of(4, 4), "v_proj_weight": of(4, 4)},
    "packed": {"in_proj_weight": always(None)},
    "static_k": {"static_k": of(3, 5, 2)},
    "static_v": {"static_v": of(4, 5, 3)},
    "static_k and bias": {"static_k": of(4, 5, 2), "bias_k": of(1, 1, 4), "bias_v": of(1, 1, 4)},
}  # fmt: skip


@pytest.mark.parametrize("name", HEAD_ERRORS)
def test_errors_of_several_heads(name):
    like_pytorch(lambda m: heads(m, **HEAD_ERRORS[name])[1])()


@like_pytorch
def test_gumbel_softmax_draws_as_pytorch(m):
    found = []
    for options in ({}, {"hard": True}, {"tau": 0.3, "hard": True, "dim": 1}, {"eps": 1e-5}):
        m.manual_seed(1)
        x = numbers(m, 2, 4, 3)
        out = m.nn.functional.gumbel_softmax(x, **options)
        found.append([out, out.grad_fn.name(), m.autograd.grad((out * out).sum(), x)])
    return found


@like_pytorch
def test_local_response_norm_and_pdist(m):
    found = []
    for shape, size in (((2, 4, 3), 2), ((2, 4, 3), 3), ((2, 3, 2, 2), 4), ((1, 3, 2, 2, 2), 3)):
        x = numbers(m, *shape)
        out = m.nn.functional.local_response_norm(x, size, 0.7, k=0.2)
        found.append([out.grad_fn.name(), derivatives(m, out, x)])
    x = numbers(m, 5, 3)
    distances = m.nn.functional.pdist(x)
    return found, distances, m.autograd.grad((distances * distances).sum(), x)


@like_pytorch
def test_a_complex_convolution_is_three_real_ones(m):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s) + 1j * rng.normal(size=s) for s in ((2, 3, 6), (4, 3, 3), (4,))]
    x, w, b = (m.tensor(a.tolist(), dtype=m.complex128, requires_grad=True) for a in arrays)
    F, found = m.nn.functional, []
    for out in (F.conv1d(x, w, b), F.conv1d(x[0], w), F.conv_transpose1d(x, w.transpose(0, 1), b, stride=2)):
        found.append((out.grad_fn.name(), out.tolist(), [g.tolist() for g in m.autograd.grad(out.abs().sum(), (x, w))]))
    return found


@like_pytorch
def test_distances_of_complex_vectors_are_real(m):
    rng = np.random.default_rng(0)
    x, y, z = (m.tensor((rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4))).tolist(), dtype=m.complex128, requires_grad=True) for _ in range(3))
    F = m.nn.functional
    found = [F.pairwise_distance(x, y, p=p, keepdim=p == 2) for p in (1.0, 2.0, 3.0, float("inf"))] + [F.triplet_margin_loss(x, y, z)]
    return [(str(d.dtype), d.tolist(), m.autograd.grad(d.sum(), x)[0].tolist()) for d in found]


@like_pytorch
def test_a_threshold_may_be_a_complex_number_without_imaginary_part(m):
    x, threshold = m.tensor([0.5, 2.0]), m.nn.functional.threshold
    with pytest.raises(RuntimeError) as error:
        threshold(x, 1 + 1j, 1.0)
    return threshold(x, 1 + 0j, 3 + 0j).tolist(), str(error.value)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_gradients_of_grid_samples_depend_on_what_is_sampled(mode):
    tj.manual_seed(0)
    x = tj.rand(1, 1, 4, 4, dtype=tj.float64, requires_grad=True)
    points = (tj.rand(1, 2, 2, 2, dtype=tj.float64) * 0.8 - 0.4).requires_grad_()
    sampled = tj.nn.functional.grid_sample
    assert tj.autograd.gradgradcheck(lambda x, points: sampled(x, points, mode, align_corners=False), (x, points))
