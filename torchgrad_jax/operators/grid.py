"""Sampling an image at the points of a grid, and the grids of affine maps (Jaderberg et al. 2015).

Points are in coordinates from -1 to 1, the last dimension of the image first. Gradients are JAX's, so the places where a formula has a corner are
written so that their slope is PyTorch's: 0 on both sides of a border, and that of the cell that begins at a pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.converting import where, wide, zeros_like
from torchgrad_jax.declaration.operator import Together, op
from torchgrad_jax.operators.kernels.spacing import evenly_spaced
from torchgrad_jax.operators.matrix import PRECISION
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.loops import cost_of_points, how_of_points
from torchgrad_jax.runtime.compiling import primitives
from torchgrad_jax.runtime.compiling.foreign import SAMPLING, knows
from torchgrad_jax.runtime.native import handlers
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Aval

BILINEAR, NEAREST, BICUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2
# The parameter of the cubic convolution (Keys 1981).
CUBIC = -0.75

# ---------------------------------------------------------------------- from a point to places in the image


def _in_pixels(point: Any, size: int, align_corners: bool, image: bool) -> Any:
    """From -1 ... 1 to the centres of the first and last pixels, or to their outer edges. image: of two dimensions.

    The points of a grid that changes nothing lie on pixels, where the slope is that of one side: which of them, rounding tells. PyTorch's kernel for
    images multiplies and subtracts in one, that for volumes does not; XLA might.
    """
    if not align_corners and point.dtype == np.float32:
        if image:
            return ((point + 1).astype(np.float64) * (size / 2) - 0.5).astype(point.dtype)
        return ((((point + 1) * size).astype(np.float64) - 1) / 2).astype(point.dtype)
    return (point + 1) / 2 * (size - 1) if align_corners else ((point + 1) * size - 1) / 2


def _clipped(at: Any, size: int, lost: int | float) -> Any:
    """Brought inside; what is no number becomes `lost`."""
    last = size - 1
    inside = where(at > 0, where(at < last, at, jnp.asarray(last, at.dtype)), zeros_like(at))
    return where(jnp.isnan(at), jnp.asarray(lost, at.dtype), inside) if lost else inside


def _reflected(at: Any, size: int, align_corners: bool) -> Any:
    """Mirrored at the first and last pixels, or at their outer edges, as often as is needed."""
    least, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if not span:
        return zeros_like(at)
    distance = where(at < least, least - at, at - least)
    beyond = lax.rem(distance, jnp.full_like(distance, span))
    turns = jnp.floor(lax.stop_gradient(distance) / span)
    return where(turns % 2 == 0, beyond + least, span + least - beyond)


def _padded(at: Any, size: int, padding_mode: int, align_corners: bool, lost: int | float) -> Any:
    """Coordinates in pixels, brought inside of the image where the padding says so. lost: see `_clipped`."""
    if padding_mode == REFLECTION:
        at = _reflected(at, size, align_corners)
    return at if padding_mode == ZEROS else _clipped(at, size, lost)


# ---------------------------------------------------------------------- values there


def _pixels(image: Any, places: list[Any]) -> Any:
    """The pixels (N, C, *points) of (N, C, *sizes) at whole coordinates (N, *points) along each dimension; 0 outside."""
    sizes = image.shape[2:]
    flat: Any = np.int32(0)
    inside: Any = np.True_
    for at, size in zip(places, sizes, strict=True):
        at = lax.stop_gradient(at)
        inside = inside & (at >= 0) & (at <= size - 1)
        flat = flat * size + jnp.clip(jnp.nan_to_num(at), 0, size - 1).astype(np.int32)
    rows = image.reshape(*image.shape[:2], math.prod(sizes))
    found = jax.vmap(lambda row, index: jnp.take(row, index.reshape(-1), axis=1, mode="clip"))(rows, flat)
    return where(inside[:, None], found.reshape(*image.shape[:2], *flat.shape[1:]), jnp.zeros((), image.dtype))


def _linear_weights(t: Any) -> list[Any]:
    """The weights of the two pixels around a point that lies `t` after the first of them."""
    return [1 - t, t]


def _cubic_weights(t: Any) -> list[Any]:
    """The weights of the four pixels around a point that lies `t` after the second of them."""

    def near(x: Any) -> Any:
        return ((CUBIC + 2) * x - (CUBIC + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((CUBIC * x - 5 * CUBIC) * x + 8 * CUBIC) * x - 4 * CUBIC

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _interpolated(image: Any, places: list[Any], weigh: Callable[[Any], list[Any]], pad: Callable[[Any, int], Any] | None) -> Any:
    """The weighted sums of the pixels around each point; with `pad`, each of those is brought inside by itself."""
    dims, product = len(places), jnp.ones((1,) * (len(places) + 2), image.dtype)
    around: list[Any] = []
    for d, (at, size) in enumerate(zip(places, image.shape[2:], strict=True)):
        first = jnp.floor(lax.stop_gradient(at))
        after = at - first
        if dims == 3:  # of volumes, PyTorch adds up only the pixels inside, whatever the weights of others
            after = where(jnp.isfinite(first), after, zeros_like(after))
        weights = jnp.stack(weigh(after), 1)
        count = weights.shape[1]
        # One dimension for the pixels along each of the image's, then the points in one.
        shape = (at.shape[0], *[count if i == d else 1 for i in range(dims)], -1)
        near = jnp.expand_dims(first, 1) + np.arange(count).reshape(-1, *(1,) * (at.ndim - 1)) - (count // 2 - 1)
        # A reflected edge lies between pixels: rounding brings it back onto one.
        around.append((near if pad is None else jnp.round(pad(near, size))).reshape(shape))
        product = product * weights.reshape(shape)
    total = jnp.sum(_pixels(image, around) * product[:, None], axis=tuple(range(2, 2 + dims)))
    return total.reshape(*image.shape[:2], *places[0].shape[1:])


def _said(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool, gradient: bool = False) -> Any:
    """The values of (N, C, *sizes) at the points (N, *points, d) of a grid: (N, C, *points). gradient: as PyTorch's gradients have them, of which
    points that are no numbers are outside of volumes; their padded values are the last pixels."""
    image, points = wide(input), wide(grid)
    sizes = image.shape[2:]
    if not image.size or not points.size:
        return jnp.zeros((*input.shape[:2], *grid.shape[1:-1]), input.dtype)
    places = [_in_pixels(points[..., len(sizes) - 1 - i], n, align_corners, len(sizes) == 2) for i, n in enumerate(sizes)]

    def pad(at: Any, size: int) -> Any:
        return _padded(at, size, padding_mode, align_corners, 0 if len(sizes) == 2 else math.nan if gradient else size - 1)

    if interpolation_mode == BICUBIC:
        return _interpolated(image, places, _cubic_weights, pad).astype(input.dtype)
    places = [pad(at, n) for at, n in zip(places, sizes, strict=True)]
    if interpolation_mode == NEAREST:
        return _pixels(image, [jnp.round(at) for at in places]).astype(input.dtype)
    return _interpolated(image, places, _linear_weights, None).astype(input.dtype)


# ---------------------------------------------------------------------- of single precision, by a loop of C's

_VALUES, _OF_IMAGE, _OF_GRID = range(3)


def _said_of(image: Any, grid: Any, *grad: Any, of: int, **options: Any) -> list[Any]:
    """What the loop computes: the values, or the gradient of the image or of the grid."""
    if of == _VALUES:
        return [_said(image, grid, **options)]
    return [jax.vjp(partial(_said, gradient=True, **options), image, grid)[1](*grad)[of - _OF_IMAGE]]


def _shapes(image: Any, grid: Any, *grad: Any, of: int, **options: Any) -> list[tuple[int, ...]]:
    return [((*image.shape[:2], *grid.shape[1:-1]), image.shape, grid.shape)[of]]


_LOOP = primitives.primitive("grid_sample", _said_of, primitives.Loop(SAMPLING, how_of_points, _shapes))


def _has_loop(image: Any, grid: Any, mode: int) -> bool:
    known = mode != BICUBIC and image.dtype == grid.dtype == np.float32
    return known and 0 < image.size < 1 << 31 and grid.size > 0 and primitives.has(SAMPLING)


def _sampled(input: Any, grid: Any, **options: Any) -> Any:
    """`_said`, by the loop where that can."""
    if not _has_loop(input, grid, options["interpolation_mode"]):
        return _said(input, grid, **options)
    return _LOOP.bind(input, grid, of=_VALUES, **options)[0]


def _gradients(grad: Any, input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> dict[str, Any]:
    options = dict(interpolation_mode=interpolation_mode, padding_mode=padding_mode, align_corners=align_corners)
    if grad.dtype == np.float32 and _has_loop(input, grid, interpolation_mode):
        found = [_LOOP.bind(input, grid, grad, of=of, **options)[0] for of in (_OF_IMAGE, _OF_GRID)]
    else:
        found = jax.vjp(partial(_said, gradient=True, **options), input, grid)[1](grad)
    return dict(zip(("input", "grid"), found, strict=True))


def _by_numpy(shape: tuple[int, ...], image: np.ndarray, grid: np.ndarray, grad: np.ndarray | None, of: int, **options: Any) -> np.ndarray:
    made = np.empty(shape, np.float32)
    how = how_of_points(image, grid, of=of, **options)
    handlers.sample(contiguous(image), contiguous(grid), None if grad is None else contiguous(grad), made, how)
    return made


def _samples(image: np.ndarray, grid: np.ndarray, **options: Any) -> np.ndarray:
    return _by_numpy(_shapes(image, grid, of=_VALUES)[0], image, grid, None, _VALUES, **options)


def _is_for_loop(image: np.ndarray, grid: np.ndarray, interpolation_mode: int) -> bool:
    known = interpolation_mode != BICUBIC and image.dtype == grid.dtype == np.float32
    return known and 0 < image.size < 1 << 31 and grid.size > 0 and knows(SAMPLING)


def _samples_result(image: np.ndarray, grid: np.ndarray, interpolation_mode: int, **_: Any) -> np.ndarray | None:
    return stand_in(_shapes(image, grid, of=_VALUES)[0], image.dtype) if _is_for_loop(image, grid, interpolation_mode) else None


@cache
def _numpy_grads(wanted: tuple[str, ...]) -> Forms:
    """The form of the gradients of the `wanted` ones of images and grid."""
    each = [{"input": _OF_IMAGE, "grid": _OF_GRID}[name] for name in wanted]

    def function(grad: np.ndarray, avals: Any, image: np.ndarray, grid: np.ndarray, **options: Any) -> Any:
        made = [_by_numpy(aval.shape, image, grid, grad, of, **options) for of, aval in zip(each, avals, strict=True)]
        return made[0] if len(made) == 1 else tuple(made)

    def result(grad: np.ndarray, avals: Any, image: np.ndarray, grid: np.ndarray, interpolation_mode: int, **_: Any) -> Any:
        if grad.dtype != np.float32 or not _is_for_loop(image, grid, interpolation_mode):
            return None
        made = [stand_in(aval.shape, aval.dtype) for aval in avals]
        return made[0] if len(made) == 1 else tuple(made)

    return Forms(function, result, True, takes=lambda grad, image, grid: len(each) * cost_of_points(image, grid), planned=True)


_SAMPLES = Forms(_samples, _samples_result, True, takes=cost_of_points, planned=True)


# ---------------------------------------------------------------------- the operators


def _check_sampler(input: Aval, grid: Aval, interpolation_mode: int, padding_mode: int, align_corners: bool) -> None:
    x, g = list(input.shape), list(grid.shape)
    if x[:1] != g[:1]:
        raise RuntimeError(f"grid_sampler(): expected grid and input to have same batch size, but got input with sizes {x} and grid with sizes {g}")
    if g[-1:] != [len(x) - 2]:
        raise RuntimeError(f"grid_sampler(): expected grid to have size {len(x) - 2} in last dimension, but got grid with sizes {g}")
    for i, n in enumerate(x[2:], 2):
        if n <= 0:
            raise RuntimeError(
                f"grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes {x} with dimension {i} being empty"
            )
    if len(x) not in (4, 5) or len(g) != len(x):
        raise RuntimeError(
            f"grid_sampler(): expected {'5D' if len(x) == 5 else '4D or 5D'} input and grid with same number of dimensions, but got input with "
            f"sizes {x} and grid with sizes {g}"
        )
    if len(x) == 5 and interpolation_mode == BICUBIC:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    kernel = "grid_sampler_2d_cpu_kernel_impl" if len(x) == 4 else "grid_sampler3d_cpu"
    if dtypes.category(input.dtype) != dtypes.FLOAT:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.of(input.dtype).title}'")
    if input.dtype != grid.dtype:
        raise RuntimeError(f"expected scalar type {dtypes.of(input.dtype).title} but found {dtypes.of(grid.dtype).title}")


for _dims in (2, 3):
    op(f"grid_sampler_{_dims}d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners)", method=False, out=False,
       node=f"GridSampler{_dims}DBackward0", grads={name: Together(_gradients, name) for name in ("input", "grid")}, validate=_check_sampler,
       attributes="interpolation_mode padding_mode align_corners", numpy=_SAMPLES, numpy_grads=_numpy_grads)(_sampled)  # fmt: skip


def _centres(size: int, align_corners: bool, dtype: np.dtype) -> np.ndarray:
    """The coordinates of a dimension's pixels; of a single one, 0."""
    if size < 2:
        return np.zeros(size, dtype)
    found = evenly_spaced(-1, 1, size, dtype)
    return found if align_corners else found * dtype.type(size - 1) / dtype.type(size)


def _check_affine(theta: Aval, size: tuple[int, ...], align_corners: bool) -> None:
    if len(size) not in (4, 5):
        raise RuntimeError("AffineGridGenerator needs 4d (spatial) or 5d (volumetric) inputs.")
    if theta.ndim != 3 or theta.shape[2] != len(size) - 1 or theta.shape[0] != size[0]:
        got = [theta.shape[0], theta.shape[2] if theta.ndim == 3 else 0]
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: [{size[0]}, {len(size) - 1}] but got: {got}.")


@op("affine_grid_generator(Tensor theta, int[] size, bool align_corners)", linear=True, method=False, out=False, validate=_check_affine)
def affine_grid_generator(theta: Any, size: tuple[int, ...], align_corners: bool) -> Any:
    """The points (N, *sizes, d) that affine maps (N, d, d + 1) take the centres of pixels to."""
    spatial = size[2:]
    axes = np.meshgrid(*[_centres(n, align_corners, theta.dtype) for n in spatial], indexing="ij")
    points = jnp.asarray(np.stack([*reversed(axes), np.ones(spatial, theta.dtype)], -1).reshape(-1, len(spatial) + 1))
    found = jnp.matmul(wide(points), jnp.swapaxes(wide(theta), 1, 2), precision=PRECISION).astype(theta.dtype)
    return found.reshape(size[0], *spatial, theta.shape[1])
