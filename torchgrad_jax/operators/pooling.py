"""Pooling over windows of the last dimensions: largest elements and means; the largest put back where they were."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration.converting import where, wide
from torchgrad_jax.declaration.memory_order import IMAGE, IMAGE_ALONE
from torchgrad_jax.declaration.operator import op
from torchgrad_jax.declaration.refusals import refusing
from torchgrad_jax.operators.convolution import shifted
from torchgrad_jax.operators.embedding import first_outside
from torchgrad_jax.operators.kernels import numpy_windows
from torchgrad_jax.operators.kernels.numpy_windows import MAX_SHIFTS, pooled_size
from torchgrad_jax.operators.resampling import Taps, means
from torchgrad_jax.runtime.baseline.loops import ADDED, GRADIENT, PLACES, PUT, TAKEN, VALUES, even_bounds, how_of_places, how_of_windows, how_within
from torchgrad_jax.runtime.compiling import primitives
from torchgrad_jax.runtime.compiling.foreign import POOLING

Ints = tuple[int, ...]


def _sizes(x: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> Ints:
    return tuple(
        pooled_size(n, k, s, p, d, ceil_mode) for n, k, s, p, d in zip(x.shape[-len(kernel) :], kernel, stride, padding, dilation, strict=True)
    )


def lowest(dtype: Any) -> Any:
    """What no element of `dtype` is less than."""
    return np.array(-np.inf, dtype) if jnp.issubdtype(dtype, jnp.floating) else np.array(np.iinfo(dtype).min, dtype)


# ---------------------------------------------------------------------- largest elements


def _better(candidate: Any, best: Any) -> Any:
    """Whether a later element of a window takes the place of the largest so far: nan does, an equal one does not."""
    return (candidate > best) | (candidate != candidate)


def _channels_last(x: Any, count: int) -> Any:
    """The channels behind the `count` spatial dimensions: where XLA's convolutions have them, and loops over them are vectorized."""
    return jnp.moveaxis(x, -count - 1, -1)


def _channels_first(x: Any, count: int) -> Any:
    return jnp.moveaxis(x, -1, -count - 1)


def _padded(x: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, sizes: Ints) -> Any:
    """`x` with everything that windows reach, filled with the lowest value."""
    config = [(0, 0, 0)] * (x.ndim - len(kernel))
    for n, k, s, p, d, m in zip(x.shape[-len(kernel) :], kernel, stride, padding, dilation, sizes, strict=True):
        config.append((p, max(0, (m - 1) * s + d * (k - 1) + 1 - p - n), 0))
    return lax.pad(x, jnp.asarray(lowest(x.dtype)), config) if any(c != (0, 0, 0) for c in config) else x


def _window_elements(x: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, sizes: Ints) -> list[Any]:
    """For each place in a window, the elements that all windows have there."""
    padded = _padded(x, kernel, stride, padding, dilation, sizes)
    return [shifted(padded, tuple(a * d for a, d in zip(k, dilation, strict=True)), sizes, stride) for k in np.ndindex(*kernel)]


def _choice(x: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, sizes: Ints) -> tuple[Any, Any]:
    """The largest element of each window and its place in the window."""
    if math.prod(kernel) <= MAX_SHIFTS:
        parts = _window_elements(x, kernel, stride, padding, dilation, sizes)
        best, place = parts[0], jnp.zeros(parts[0].shape, np.int32)
        starts = _first_inside(x.shape[-len(kernel) :], kernel, stride, padding, dilation, sizes)
        for i, part in enumerate(parts[1:], 1):
            wins = _better(part, best) if starts is None else _better(part, best) | (starts == i)
            best, place = where(wins, part, best), where(wins, np.int32(i), place)
        return best, place
    flat, inside = _window_indices(x.shape[-len(kernel) :], kernel, stride, padding, dilation, sizes)
    windows = _gathered(x, flat, inside, len(kernel))
    place = _last_nan_or_largest(windows).astype(np.int32)
    if not inside.all():  # of nothing but -inf, the first that is no padding
        place = where(jnp.asarray(inside)[np.arange(len(inside)), place], place, np.int32(inside.argmax(1)))
    best = jnp.take_along_axis(windows, place[..., None], -1, mode="clip")[..., 0]
    shape = (*x.shape[: -len(kernel)], *sizes)
    return best.reshape(shape), place.reshape(shape)


def _first_inside(spatial: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, sizes: Ints) -> np.ndarray | None:
    """The place of the first element of each window that is not padding; None without padding."""
    if not any(padding):
        return None
    _, inside = _window_indices(spatial, kernel, stride, padding, dilation, sizes)
    return inside.argmax(1).reshape(sizes)


def _coordinates(kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, sizes: Ints, i: int) -> np.ndarray:
    """The coordinate along dimension `i` of every element of every window along it, some outside of the input."""
    return np.arange(sizes[i])[:, None] * stride[i] + np.arange(kernel[i]) * dilation[i] - padding[i]


def _window_indices(spatial: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, sizes: Ints) -> tuple[np.ndarray, np.ndarray]:
    """For each window the flat indices of its elements, and which of them are inside of the input."""
    return flat_windows(spatial, [_coordinates(kernel, stride, padding, dilation, sizes, i) for i in range(len(kernel))])


def flat_windows(spatial: Ints, coordinates: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """From the coordinates (windows, elements) along each dimension: flat indices of shape (all windows, all elements), and which are inside."""
    flat: Any = np.zeros((1, 1), np.int64)
    inside: Any = np.ones((1, 1), bool)
    for n, at in zip(spatial, coordinates, strict=True):
        ok = (at >= 0) & (at < n)
        shape = (flat.shape[0] * at.shape[0], flat.shape[1] * at.shape[1])
        flat = (flat[:, None, :, None] * n + np.clip(at, 0, n - 1)[None, :, None, :]).reshape(shape)
        inside = (inside[:, None, :, None] & ok[None, :, None, :]).reshape(shape)
    return flat, inside


def _gathered(x: Any, flat: np.ndarray, inside: np.ndarray, count: int) -> Any:
    rows = x.reshape(*x.shape[:-count], math.prod(x.shape[-count:]))
    windows = jnp.take(rows, flat, axis=-1, mode="clip")
    return windows if inside.all() else where(inside, windows, lowest(x.dtype))


def _flat_index(place: Any, spatial: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, sizes: Ints) -> Any:
    """The index in the flattened spatial dimensions of the element at `place` of each window."""
    index = jnp.zeros(place.shape, np.int64)
    rest = place.astype(np.int64)
    factors = np.cumprod((1, *spatial[:0:-1]))[::-1]
    for i in reversed(range(len(kernel))):
        start = np.arange(sizes[i]) * stride[i] - padding[i]
        start = start.reshape((-1,) + (1,) * (len(kernel) - 1 - i))
        index = index + (start + rest % kernel[i] * dilation[i]) * int(factors[i])
        rest = rest // kernel[i]
    return index


def scattered(grad: Any, index: Any, shape: Ints, count: int) -> Any:
    """`grad` added up at flat indices of the last `count` dimensions of zeros of shape `shape`."""
    return _at_places(grad, index, shape, count, ADDED) if grad.size else jnp.zeros(shape, grad.dtype)


def _at_places(x: Any, index: Any, shape: Ints, count: int, of: int) -> Any:
    if _has_loop(x.dtype, index.shape, shape) and index.dtype == np.int64:
        return _AT_PLACES.bind(x, index, of=of, spatial=shape[-count:])[0]
    return _said_at_places(x, index, of=of, spatial=shape[-count:])[0]


def _said_at_places(x: Any, index: Any, *, of: int, spatial: Ints) -> list[Any]:
    """What elements become of flat indices of the last dimensions, or which are there, in terms of jax.numpy."""
    lead = index.shape[: -len(spatial)]
    rows, volume = math.prod(lead), math.prod(spatial)
    flat = index.reshape(rows, math.prod(index.shape[len(lead) :]))
    x = x.reshape(rows, volume if of == TAKEN else flat.shape[1])
    if of == TAKEN:
        return [jnp.take_along_axis(x, flat, -1, mode="clip").reshape(index.shape)]
    at = jnp.zeros((rows, volume), x.dtype).at[jnp.arange(rows)[:, None], flat]
    return [(at.add(x, mode="promise_in_bounds") if of == ADDED else at.set(x, mode="drop")).reshape(*lead, *spatial)]


def _is_tiling(kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> bool:
    """Whether windows neither overlap nor leave anything between them."""
    return kernel == stride and not any(padding) and (set(dilation) == {1} or set(kernel) == {1}) and math.prod(kernel) <= MAX_SHIFTS


def _tiled(x: Any, kernel: Ints) -> Any:
    """A pooled array with a new dimension after each spatial one, of size 1."""
    return lax.expand_dims(x, [x.ndim - len(kernel) + 2 * i + 1 for i in range(len(kernel))])


def _spread_tiles(grad: Any, place: Any, x: Any, kernel: Ints) -> Any:
    """Each window's gradient at the place of its largest element: windows side by side, so nothing is added up."""
    order = np.arange(math.prod(kernel), dtype=np.int8).reshape(kernel)
    pattern = order.reshape(sum(((1, k) for k in kernel), ()))
    blocks = where(_tiled(place, kernel) == pattern, _tiled(grad, kernel), jnp.zeros((), grad.dtype))
    covered = tuple(n * k for n, k in zip(grad.shape[-len(kernel) :], kernel, strict=True))
    lead = grad.shape[: -len(kernel)]
    whole = lax.reshape(blocks, (*lead, *covered))
    spatial = x.shape[-len(kernel) :]
    if covered == spatial:
        return whole
    # Negative padding crops what ceil_mode added.
    return lax.pad(whole, jnp.zeros((), grad.dtype), [(0, 0, 0)] * len(lead) + [(0, n - m, 0) for n, m in zip(spatial, covered, strict=True)])


def _said_grad(self: Any, grad: Any, *, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, sizes: Ints) -> Any:
    """`_max_pool_grad` in terms of jax.numpy."""
    if _is_tiling(kernel, stride, padding, dilation):
        x, count = _channels_last(self, len(kernel)), len(kernel)
        kernel, channels = (*kernel, 1), self.shape[-count - 1]
        _, place = _choice(x, kernel, kernel, (*padding, 0), (1,) * len(kernel), (*sizes, channels))
        # Without the barrier XLA finds the place again for every element of the window.
        place = lax.optimization_barrier(place.astype(np.int8))
        return _channels_first(_spread_tiles(_channels_last(grad, count), place, x, kernel), count)
    _, place = _choice(self, kernel, stride, padding, dilation, sizes)
    index = _flat_index(place, self.shape[-len(kernel) :], kernel, stride, padding, dilation, sizes)
    return scattered(grad, index, self.shape, len(kernel))


def _said(x: Any, *, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, sizes: Ints) -> Any:
    """`_max_pool` in terms of jax.numpy."""
    if math.prod(kernel) > MAX_SHIFTS:
        return _choice(x, kernel, stride, padding, dilation, sizes)[0]
    count = len(kernel)
    x, channels = _channels_last(x, count), x.shape[-count - 1]
    parts = _window_elements(x, (*kernel, 1), (*stride, 1), (*padding, 0), (*dilation, 1), (*sizes, channels))
    best = parts[0]
    for part in parts[1:]:
        best = lax.max(best, part)
    return _channels_first(best, count)


def _said_of(x: Any, *grad: Any, of: int, **windows: Any) -> list[Any]:
    """What the loops compute of windows, in terms of jax.numpy."""
    if not windows["kernel"]:
        return list(_said_evenly(x, windows["sizes"]))
    if of == PLACES:
        return list(_said_with_places(x, **windows))
    return [_said_grad(x, *grad, **windows) if grad else _said(x, **windows)]


def _shapes(x: Any, *grad: Any, of: int, sizes: Ints, **windows: Any) -> list[Ints]:
    return [x.shape] if grad else [(*x.shape[: -len(sizes)], *sizes)] * (2 if of == PLACES else 1)


_LARGEST = primitives.primitive("max_pool", _said_of, primitives.Loop(POOLING, how_of_windows, _shapes, places=True), leading=True)
_AT_PLACES = primitives.primitive(
    "at_places", _said_at_places,
    primitives.Loop(POOLING, how_of_places, lambda x, index, *, spatial, of: [index.shape if of == TAKEN else (*x.shape[: -len(spatial)], *spatial)]),
    leading=True,
)  # fmt: skip


def _has_loop(dtype: Any, *shapes: Ints) -> bool:
    """Whether the loops know elements of this dtype, in arrays of such shapes."""
    return dtype in (np.float32, np.float64) and all([0 < math.prod(shape) < 1 << 31 for shape in shapes]) and primitives.has(POOLING)


def _windows(x: Any, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> dict[str, Ints]:
    sizes = _sizes(x, kernel_size, stride, padding, dilation, ceil_mode)
    return dict(kernel=kernel_size, stride=stride, padding=padding, dilation=dilation, sizes=sizes)


def _max_pool(x: Any, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> Any:
    """The largest element of each window of the last dimensions; nan where there is one."""
    windows = _windows(x, kernel_size, stride, padding, dilation, ceil_mode)
    return _LARGEST.bind(x, of=VALUES, **windows)[0] if _has_loop(x.dtype, x.shape, windows["sizes"]) else _said(x, **windows)


def _max_pool_grad(grad: Any, self: Any, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> Any:
    windows = _windows(self, kernel_size, stride, padding, dilation, ceil_mode)
    by_loop = _has_loop(self.dtype, self.shape, windows["sizes"]) and grad.dtype == self.dtype
    return _LARGEST.bind(self, grad, of=GRADIENT, **windows)[0] if by_loop else _said_grad(self, grad, **windows)


def _max_pool_with_indices(x: Any, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> Any:
    """The largest element of each window, and its index in the flattened spatial dimensions."""
    windows = _windows(x, kernel_size, stride, padding, dilation, ceil_mode)
    return tuple(_LARGEST.bind(x, of=PLACES, **windows)) if _has_loop(x.dtype, x.shape, windows["sizes"]) else _said_with_places(x, **windows)


def _said_with_places(x: Any, *, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, sizes: Ints) -> tuple[Any, Any]:
    best, place = _choice(x, kernel, stride, padding, dilation, sizes)
    return best, _flat_index(place, x.shape[-len(kernel) :], kernel, stride, padding, dilation, sizes)


_MAX_POOL = "(Tensor self, int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode)"


def _indices_grad(grad: Any, self: Any, indices: Any, kernel_size: Ints) -> Any:
    return scattered(grad, indices, self.shape, len(kernel_size))


def _declare_max_pools() -> None:
    for dims in (2, 3):
        node = f"MaxPool{dims}DWithIndicesBackward0"
        common: dict[str, Any] = dict(node=node, method=False, toplevel=False, validate=refusing(f"max_pool{dims}d", "bc"))
        op(f"_max_pool{dims}d{_MAX_POOL}", order=IMAGE_ALONE, grads={"self": _max_pool_grad}, windows=True,
           numpy=numpy_windows.max_pool(_sizes, False), numpy_vjp=numpy_windows.max_pool_vjp(_sizes), **common)(_max_pool)  # fmt: skip
        op(f"_max_pool{dims}d_with_indices{_MAX_POOL}", order=IMAGE, results=("values", "indices"), grads={"self": _indices_grad},
           numpy=numpy_windows.max_pool(_sizes, True), **common)(_max_pool_with_indices)  # fmt: skip


_declare_max_pools()


# ---------------------------------------------------------------------- means


def _zero_extended(x: Any, kernel: Ints, stride: Ints, padding: Ints, sizes: Ints) -> Any:
    config = [(0, 0, 0)] * (x.ndim - len(kernel))
    for n, k, s, p, m in zip(x.shape[-len(kernel) :], kernel, stride, padding, sizes, strict=True):
        config.append((p, max(0, (m - 1) * s + k - p - n), 0))
    return lax.pad(x, jnp.zeros((), x.dtype), config) if any(c != (0, 0, 0) for c in config) else x


def _window_sums(x: Any, kernel: Ints, stride: Ints, padding: Ints, sizes: Ints) -> Any:
    x = _zero_extended(x, kernel, stride, padding, sizes)
    if math.prod(kernel) <= MAX_SHIFTS:
        parts = [shifted(x, k, sizes, stride) for k in np.ndindex(*kernel)]
        return sum(parts[1:], parts[0])
    for i, (k, m, step) in enumerate(zip(kernel, sizes, stride, strict=True)):  # one dimension after the other
        windows = np.arange(m)[:, None] * step + np.arange(k)
        axis = x.ndim - len(kernel) + i
        x = Taps(windows, None, None, x.shape[axis]).apply(x, axis)
    return x


def _avg_pool(x: Any, kernel_size: Ints, stride: Ints, padding: Ints, ceil_mode: bool, count_include_pad: bool, divisor_override: int | None) -> Any:
    """The mean of each window of the last dimensions."""
    sizes = _sizes(x, kernel_size, stride, padding, (1,) * len(kernel_size), ceil_mode)
    sums = _window_sums(wide(x), kernel_size, stride, padding, sizes)
    divisors = divisor_override
    if divisors is None:
        divisors = numpy_windows.average_divisors(x.shape[-len(kernel_size) :], kernel_size, stride, padding, sizes, count_include_pad)
        divisors = divisors.flat[0] if divisors.size and (divisors == divisors.flat[0]).all() else divisors
    return lax.div(sums, jnp.broadcast_to(jnp.asarray(divisors, sums.dtype), sums.shape)).astype(x.dtype)


def _adaptive_avg_pool(x: Any, output_size: Ints) -> Any:
    """Means of windows that cover the last dimensions evenly."""
    count, dtype, x = len(output_size), x.dtype, wide(x)
    for i, out in enumerate(output_size):
        axis = x.ndim - count + i
        n = x.shape[axis]
        if n == out:
            continue
        if out and n % out == 0:
            split = lax.reshape(x, (*x.shape[:axis], out, n // out, *x.shape[axis + 1 :]))
            x = lax.reduce_sum(split, (axis + 1,)) / jnp.asarray(n // out, x.dtype)
            continue
        x = means(*even_bounds(n, out), n).apply(x, axis)
    return x.astype(dtype)


def _adaptive_avg_pool_back(grad: Any, shape: Ints, output_size: Ints) -> Any:
    dtype, grad = grad.dtype, wide(grad)
    for i, out in reversed(list(enumerate(output_size))):
        axis = len(shape) - len(output_size) + i
        if shape[axis] != out:
            grad = means(*even_bounds(shape[axis], out), shape[axis]).transposed().apply(grad, axis)
    return grad.astype(dtype)


def _adaptive_choice(x: Any, output_size: Ints) -> tuple[Any, Any]:
    """The largest element of each window, and its index in the flattened spatial dimensions."""
    if _has_loop(x.dtype, x.shape, output_size):
        return tuple(_LARGEST.bind(x, of=PLACES, kernel=(), stride=(), padding=(), dilation=(), sizes=output_size))
    return _said_evenly(x, output_size)


def _said_evenly(x: Any, output_size: Ints) -> tuple[Any, Any]:
    spatial = x.shape[-len(output_size) :]
    coordinates = []
    for n, out in zip(spatial, output_size, strict=True):
        start, stop = even_bounds(n, out)
        longest = int((stop - start).max()) if out else 1
        # A short window meets its last element again, which changes neither the largest nor where it is.
        coordinates.append(np.minimum(start[:, None] + np.arange(longest), stop[:, None] - 1))
    flat, inside = flat_windows(spatial, coordinates)
    windows = _gathered(x, flat, inside, len(spatial))
    place = _last_nan_or_largest(windows)[..., None]
    best = jnp.take_along_axis(windows, place, -1, mode="clip")[..., 0]
    index = jnp.take_along_axis(jnp.broadcast_to(flat, windows.shape), place, -1, mode="clip")[..., 0]
    shape = (*x.shape[: -len(spatial)], *output_size)
    return best.reshape(shape), index.reshape(shape)


def _adaptive_max_grad(grad: Any, self: Any, indices: Any, output_size: Ints) -> Any:
    return scattered(grad, indices, self.shape, len(output_size))


def _adaptive_avg_types(x: Any, output_size: Ints) -> None:
    if 0 not in (*x.shape, *output_size):  # PyTorch returns before it asks
        _AVERAGES_FLOATS(x)


_AVERAGES_FLOATS = refusing("adaptive_avg_pool2d", "biuc")


def _declare(name: str, schema: str, function: Callable[..., Any], *refusals: Callable[..., None], **options: Any) -> None:
    for dims, validate in zip((2, 3), refusals, strict=True):
        op(f"_{name}{dims}d({schema})", order=IMAGE,
           node="".join(w.capitalize() for w in name.split("_")) + f"{dims}DBackward0", method=False, toplevel=False,
           validate=validate, **options)(function)  # fmt: skip


_declare("avg_pool", "Tensor self, int[] kernel_size, int[] stride, int[] padding, bool ceil_mode, bool count_include_pad, int? divisor_override",
         _avg_pool, refusing("avg_pool2d", "biuc", np.int64), refusing("avg_pool3d_out_frame", "biuch", np.int64), linear=True,
         attributes="kernel_size padding ceil_mode count_include_pad divisor_override", numpy=numpy_windows.MEANS, numpy_vjp=numpy_windows.MEANS_BACK,
         keeps=("self",))  # fmt: skip
_declare("adaptive_avg_pool", "Tensor self, int[] output_size", _adaptive_avg_pool, _adaptive_avg_types, refusing("adaptive_avg_pool3d_cpu", "biuc"),
         linear=True, transpose=_adaptive_avg_pool_back, keeps=("self",),
         numpy=numpy_windows.ADAPTIVE, numpy_vjp=numpy_windows.ADAPTIVE_BACK)  # fmt: skip
_declare("adaptive_max_pool", "Tensor self, int[] output_size", _adaptive_choice, refusing("adaptive_max_pool2d", "biuc"),
         refusing("adaptive_max_pool3d_cpu", "biuc"), results=("values", "indices"), grads={"self": _adaptive_max_grad},
         numpy=numpy_windows.ADAPTIVE_MAX, numpy_grads=numpy_windows.adaptive_max_grads)  # fmt: skip


# ---------------------------------------------------------------------- largest elements of windows whose places chance decides


def _chosen_starts(sample: Any, n: int, kernel: int, out: int) -> Any:
    """Where `out` windows begin, about evenly apart (Graham 2014): numbers of [0, 1) of shape (...) to (..., out)."""
    last = jnp.full((*sample.shape, 1), n - kernel, np.int64)
    if out == 1:
        return last
    step = jnp.asarray(n - kernel, sample.dtype) / jnp.asarray(out - 1, sample.dtype)
    i = jnp.arange(out - 1).astype(sample.dtype)
    starts = ((i + sample[..., None]) * step).astype(np.int64) - (sample[..., None] * step).astype(np.int64)
    return jnp.concatenate([starts, last], -1)


def _chosen_bounds(samples: Any, spatial: Ints, kernel: Ints, sizes: Ints) -> Any:
    """Where all windows begin and end, dimension by dimension: (N, C, dims) to (N, C, windows of each dimension, 2)."""
    # PyTorch takes the numbers of an image in the order W, H, those of a volume in the order D, H, W.
    order = (1, 0) if len(spatial) == 2 else (0, 1, 2)
    bounds = []
    for i, (n, k, m) in enumerate(zip(spatial, kernel, sizes, strict=True)):
        start = jnp.clip(_chosen_starts(samples[..., order[i]], n, k, m), 0, n - k)
        bounds.append(jnp.stack([start, start + k], -1))
    return jnp.concatenate(bounds, -2)


def _said_within(x: Any, bounds: Any, *, kernel: Ints, sizes: Ints) -> list[Any]:
    """The largest element of each window within such bounds, and its index in the flattened spatial dimensions, in terms of jax.numpy."""
    lead, first = bounds.shape[:-2], 0
    flat = jnp.zeros((*lead, 1, 1), np.int64)
    for n, k, m in zip(x.shape[-len(sizes) :], kernel, sizes, strict=True):
        at = bounds[..., first : first + m, :1] + np.arange(k)
        flat = (flat[..., :, None, :, None] * n + at[..., None, :, None, :]).reshape(*lead, flat.shape[-2] * m, flat.shape[-1] * k)
        first += m
    windows = jnp.take_along_axis(x.reshape(*lead, 1, -1), flat, -1, mode="clip")
    place = _last_nan_or_largest(windows)[..., None]
    return [jnp.take_along_axis(a, place, -1, mode="clip").reshape(*lead, *sizes) for a in (windows, flat)]


_WITHIN = primitives.primitive(
    "max_pool_within", _said_within,
    primitives.Loop(POOLING, how_within, lambda x, bounds, *, kernel, sizes: [(*bounds.shape[:-2], *sizes)] * 2, places=True), leading=True,
)  # fmt: skip


def _last_nan_or_largest(windows: Any) -> Any:
    """The place of the last element that is not a number, else of the first of the largest."""
    nan = windows != windows
    last = windows.shape[-1] - 1 - jnp.argmax(nan[..., ::-1], -1)
    return where(nan.any(-1), last, jnp.argmax(windows, -1))


def _fractional_max_pool(x: Any, samples: Any, kernel_size: Ints, output_size: Ints) -> tuple[Any, Any]:
    """The largest element of each window, and its index in the flattened spatial dimensions."""
    count = len(kernel_size)
    spatial, lead = x.shape[-count:], (1, *x.shape[:-count])[-2:]
    shape = (*x.shape[:-count], *output_size)
    if not math.prod(shape):
        return jnp.zeros(shape, x.dtype), jnp.zeros(shape, np.int64)
    bounds, x = _chosen_bounds(samples[: lead[0]], spatial, kernel_size, output_size), x.reshape(*lead, *spatial)
    within = _WITHIN.bind if _has_loop(x.dtype, x.shape, output_size) else _said_within
    best, index = within(x, bounds, kernel=kernel_size, sizes=output_size)
    return best.reshape(shape), index.reshape(shape)


def _fractional_grad(grad: Any, self: Any, result1: Any, output_size: Ints) -> Any:
    return scattered(grad, result1, self.shape, len(output_size))


def _fractional_types(name: str) -> Callable[..., None]:
    refuse = refusing(name, "biuc")

    def validate(x: Any, samples: Any, **_: Any) -> None:
        if x.dtype != samples.dtype:
            raise RuntimeError("Expect _random_samples to have the same dtype as input")
        refuse(x)

    return validate


# ---------------------------------------------------------------------- largest elements put back


def _max_unpool(x: Any, indices: Any, output_size: Ints) -> tuple[Any, Any]:
    """Zeros with the elements of `x` at flat indices of the last dimensions, and the check of these."""
    count, volume = len(output_size), math.prod(output_size)
    shape = (*x.shape[:-count], *output_size)
    if not x.size:
        return jnp.zeros(shape, x.dtype), jnp.zeros(2, np.int64)
    return _at_places(x, indices, shape, count, PUT), first_outside(indices, 0, volume)


def _unpool_grad(dims: int) -> Callable[..., Any]:
    def formula(grad: Any, indices: Any) -> Any:
        return _at_places(grad, indices, grad.shape, dims, TAKEN)

    return formula


def _invalid_index(index: int, *, output_size: Ints) -> Exception:
    return RuntimeError(f"Found an invalid max index: {index} (output volumes are of size {'x'.join(map(str, output_size))})")


def _declare_both() -> None:
    for dims in (2, 3):
        common: dict[str, Any] = dict(method=False, toplevel=False)
        op(f"_fractional_max_pool{dims}d(Tensor self, Tensor random_samples, int[] kernel_size, int[] output_size)",
           node=f"FractionalMaxPool{dims}DBackward0", results=("result0", "result1"), grads={"self": _fractional_grad},
           attributes="kernel_size", validate=_fractional_types(f"fractional_max_pool{dims}d_out_frame"), **common)(_fractional_max_pool)  # fmt: skip
        op(f"_max_unpool{dims}d(Tensor self, Tensor indices, int[] output_size)", node=f"MaxUnpool{dims}DBackward0", multilinear=True,
           grads={"self": _unpool_grad(dims)}, validate=refusing(f"max_unpool{dims}d", "biuc"), check=_invalid_index,
           **common)(_max_unpool)  # fmt: skip


_declare_both()
