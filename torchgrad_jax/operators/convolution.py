"""Convolutions, their transposes, and the arrays of sliding blocks that they are made of."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.converting import wide
from torchgrad_jax.declaration.memory_order import CONVOLVED
from torchgrad_jax.declaration.operator import op
from torchgrad_jax.declaration.refusals import refusing
from torchgrad_jax.operators.kernels import loops, numpy_windows
from torchgrad_jax.operators.kernels.numpy_windows import output_sizes
from torchgrad_jax.operators.matrix import PRECISION
from torchgrad_jax.runtime.baseline.convolutions import asks_loops, has_loops, how_of_groups
from torchgrad_jax.runtime.compiling import primitives
from torchgrad_jax.runtime.compiling.foreign import CONVOLUTION
from torchgrad_jax.runtime.compiling.platforms import by_platform
from torchgrad_jax.runtime.value import Aval

Ints = tuple[int, ...]

# ---------------------------------------------------------------------- the correlation of an input with a weight


def _lowering(x: Any, w: Any, stride: Ints, dilation: Ints, groups: int) -> str:
    """How a correlation and its two gradients are carried out: "xla", "shifts" (a sum of shifted inputs, each times one number of the
    kernel, which becomes one loop) or "dots" (a matrix product for each place in the kernel; gradients only).

    Processor time on one core of a training step of a two-layer network on (16, 1, 28, 28), PyTorch's being 1: XLA's convolutions, with
    pooling that has channels last, 0.57; with channels first, 0.63; the one-channel layer by shifts 0.68, although on its own it takes 0.2
    ms that way against 1.3, because the result has to be brought into the order that the next convolution reads. The weight gradients of
    the two layers take 0.40 and 0.64 ms by XLA's convolution, 0.74 and 1.95 ms by dots.
    XLA has no fast convolution of channels each on its own. Its compiler aborts the process on some gradients of strided or dilated
    convolutions of three dimensions (its simplifier exchanges input and kernel), so that the gradients of such are not made of convolutions,
    nor is what is differentiated by JAX (`correlate_again`).
    """
    if x.dtype.kind in "iu" or (groups > 1 and w.shape[1] == 1 and math.prod(w.shape[1:]) <= 32 and x.dtype.kind != "c"):
        return "shifts"
    return "xla" if set(stride) <= {1} and set(dilation) <= {1} and groups == 1 else "dots"


def _in_groups(x: Any, w: Any, *, of: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int, shape: Ints) -> list[Any]:
    """What the loop of C's computes of convolutions in groups of channels, one or more: see `how_of_groups`."""
    if of == 0:
        return [_correlated(x, w, stride, padding, dilation, groups)]
    if of == 1:
        return [_of_input(x, w, shape, stride, padding, dilation, groups)]
    if of == 3:
        return [_by_products(x, w, stride, padding, dilation, groups)]
    return [_of_weight(w, x, shape, stride, padding, dilation, groups)]


_GROUPED = primitives.primitive("grouped_convolution", _in_groups, primitives.Loop(CONVOLUTION, how_of_groups, lambda *avals, shape, **how: [shape]))


def _has_loop(x: Any, w: Any, kernel: Ints, dilation: Ints, groups: int) -> bool:
    """Whether the loop is for these operands. Other convolutions are found by `baseline.convolutions.fits_loops`."""
    fits = asks_loops(kernel, dilation, groups) and x.dtype == w.dtype == np.float32 and 0 not in (x.size, w.size)
    return fits and has_loops() and primitives.has(CONVOLUTION)


def _by_loop(of: int, x: Any, y: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int, shape: Ints) -> Any:
    how = dict(kernel=tuple(kernel), stride=stride, padding=padding, dilation=dilation, groups=groups)
    return _GROUPED.bind(x, y, of=of, shape=tuple(shape), **how)[0]


def correlate(x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    """The cross-correlation of x (N, C, *) with w (O, C / groups, *)."""
    shape = (x.shape[0], w.shape[0], *output_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation))
    if _has_loop(x, w, w.shape[2:], dilation, groups) and 0 not in shape:
        return _by_loop(0, x, w, w.shape[2:], stride, padding, dilation, groups, shape)
    return _correlated(x, w, stride, padding, dilation, groups)


def _correlated(x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    if _lowering(x, w, stride, dilation, groups) == "shifts" or not x.size:
        return _by_shifts(x, w, stride, padding, dilation, groups)
    return _by_xla(x, w, stride, padding, dilation, groups)


def _by_xla(x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    return lax.conv_general_dilated(x, w, stride, [(p, p) for p in padding], rhs_dilation=dilation, feature_group_count=groups, precision=PRECISION)


def correlate_again(x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    """`correlate` in a form whose derivatives by JAX are safe to compile."""
    if len(stride) < 3 or not x.size or _lowering(x, w, stride, dilation, groups) != "dots":
        return correlate(x, w, stride, padding, dilation, groups)
    shape = (x.shape[0], w.shape[0], *output_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation))
    if _has_loop(x, w, w.shape[2:], dilation, groups) and 0 not in shape:
        return _by_loop(3, x, w, w.shape[2:], stride, padding, dilation, groups, shape)
    return _by_products(x, w, stride, padding, dilation, groups)


def _by_products(x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    """A matrix product for each place in the kernel."""
    n, out, per_group = x.shape[0], w.shape[0], w.shape[1]
    sizes = output_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation)
    x = jnp.moveaxis(_zero_padded(x, padding).reshape(n, groups, per_group, *(m + 2 * p for m, p in zip(x.shape[2:], padding, strict=True))), 0, 2)
    rows = w.reshape(groups, out // groups, per_group, *w.shape[2:])
    summed = np.dtype(np.float32) if x.dtype.itemsize == 2 else x.dtype
    total = jnp.zeros((groups, out // groups, n * math.prod(sizes)), summed)
    for k, offset in _places(w.shape[2:], dilation):
        columns = shifted(x, offset, sizes, stride).reshape(groups, per_group, -1)
        total += jnp.matmul(rows[(slice(None), slice(None), slice(None), *k)], columns, precision=PRECISION, preferred_element_type=summed)
    return jnp.moveaxis(total.reshape(out, n, *sizes), 0, 1).astype(x.dtype)


def _zero_padded(x: Any, padding: Ints) -> Any:
    if not any(padding):
        return x
    lead = x.ndim - len(padding)
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0)] * lead + [(p, p, 0) for p in padding])


def shifted(x: Any, offset: Ints, sizes: Ints, stride: Ints) -> Any:
    """The slice of the last dimensions of `x` that begins at `offset` and has `sizes` elements, every `stride`-th."""
    lead = x.ndim - len(offset)
    stops = [o + (n - 1) * s + 1 for o, n, s in zip(offset, sizes, stride, strict=True)]
    return lax.slice(x, (*(0,) * lead, *offset), (*x.shape[:lead], *stops), (*(1,) * lead, *stride))


def _by_shifts(x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    kernel = w.shape[2:]
    sizes = output_sizes(x.shape[2:], kernel, stride, padding, dilation)
    dtype, w = x.dtype, wide(w)
    x = _zero_padded(wide(x), padding)
    n, c, out = x.shape[0], w.shape[1], w.shape[0]
    if not x.size or not w.size or not math.prod(sizes):
        return jnp.zeros((n, out, *sizes), dtype)
    x = lax.reshape(x, (n, groups, 1, c, *x.shape[2:]))
    w = lax.reshape(w, (1, groups, out // groups, c, *kernel))
    shape = (n, groups, out // groups, *sizes)
    total = None
    for i in range(c):
        for k in np.ndindex(*kernel):
            part = shifted(x[:, :, :, i], tuple(a * d for a, d in zip(k, dilation, strict=True)), sizes, stride)
            number = w[(slice(None), slice(None), slice(None), i, *k)]
            term = jnp.broadcast_to(part, shape) * lax.expand_dims(number, range(3, 3 + len(sizes)))
            total = term if total is None else total + term
    assert total is not None
    return lax.reshape(total, (n, out, *sizes)).astype(dtype)


def _places(kernel: Ints, dilation: Ints) -> list[tuple[Ints, Ints]]:
    """Each place in a kernel, and how far it lies from the first."""
    return [(k, tuple(a * d for a, d in zip(k, dilation, strict=True))) for k in np.ndindex(*kernel)]


def correlate_input_grad(grad: Any, w: Any, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    """The transpose of `correlate` in its first argument, of shape `shape`."""
    if not grad.size or not w.size or not math.prod(shape):
        return jnp.zeros(shape, grad.dtype)
    if _has_loop(grad, w, w.shape[2:], dilation, groups):
        return _by_loop(1, grad, w, w.shape[2:], stride, padding, dilation, groups, shape)
    return _of_input(grad, w, shape, stride, padding, dilation, groups)


def _of_input(grad: Any, w: Any, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    kernel = w.shape[2:]

    def spread(g: Any, v: Any) -> Any:
        return _spread(g, v, shape, stride, padding, dilation, groups)

    def turned(g: Any, v: Any) -> Any:
        return _by_turned_kernel(g, v, shape, stride, padding)

    if any(p >= k for p, k in zip(padding, kernel, strict=True)):
        return spread(grad, w)
    if _lowering(grad, w, stride, dilation, groups) == "xla":
        # A kernel of one element is a matrix: on CPU a product takes 0.3 to 1.1 of the convolution's time.
        return turned(grad, w) if set(kernel) != {1} else by_platform(grad, w, cpu=spread, default=turned)
    if groups == 1 and set(dilation) <= {1} and len(stride) < 3 and grad.dtype.kind in "fc" and grad.dtype.itemsize > 2:
        return by_platform(grad, w, cpu=turned, default=spread)  # half the time, on CPU
    return spread(grad, w)


def _by_turned_kernel(grad: Any, w: Any, shape: Ints, stride: Ints, padding: Ints) -> Any:
    """A correlation with the kernel turned around and its two channel dimensions exchanged."""
    turned = jnp.swapaxes(lax.rev(w, tuple(range(2, w.ndim))), 0, 1)
    low = [k - 1 - p for k, p in zip(w.shape[2:], padding, strict=True)]
    high = [n + p - (m - 1) * s - 1 for n, p, m, s in zip(shape[2:], padding, grad.shape[2:], stride, strict=True)]
    return lax.conv_general_dilated(grad, turned, (1,) * len(stride), list(zip(low, high, strict=True)), lhs_dilation=stride, precision=PRECISION)


def _spread(grad: Any, w: Any, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    """For each place in the kernel a matrix product, added up where that place lies."""
    n, sizes, kernel = grad.shape[0], grad.shape[2:], w.shape[2:]
    per_group = grad.shape[1] // groups
    columns = jnp.moveaxis(grad.reshape(n, groups, per_group, *sizes), (1, 2), (0, 1)).reshape(groups, per_group, -1)
    rows = jnp.swapaxes(w.reshape(groups, per_group, w.shape[1], *kernel), 1, 2)
    padded = [m + 2 * p for m, p in zip(shape[2:], padding, strict=True)]
    summed = np.dtype(np.float32) if grad.dtype.itemsize == 2 and grad.dtype.kind not in "iu" else grad.dtype
    total = jnp.zeros((shape[1], n, *padded), summed)
    for k, offset in _places(kernel, dilation):
        product = jnp.matmul(rows[(slice(None), slice(None), slice(None), *k)], columns, precision=PRECISION, preferred_element_type=summed)
        part = product.reshape(shape[1], n, *sizes)
        config = [(o, m - o - (size - 1) * s - 1, s - 1) for o, m, size, s in zip(offset, padded, sizes, stride, strict=True)]
        total = total + lax.pad(part, jnp.zeros((), part.dtype), [(0, 0, 0)] * 2 + config)
    return jnp.swapaxes(shifted(total, padding, shape[2:], (1,) * len(padding)), 0, 1).astype(grad.dtype)


def correlate_weight_grad(grad: Any, x: Any, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    """The transpose of `correlate` in its second argument, of shape `shape`."""
    if not grad.size or not x.size or not math.prod(shape):
        return jnp.zeros(shape, grad.dtype)
    if _has_loop(x, grad, shape[2:], dilation, groups):
        return _by_loop(2, x, grad, shape[2:], stride, padding, dilation, groups, shape)
    return _of_weight(grad, x, shape, stride, padding, dilation, groups)


def _of_weight(grad: Any, x: Any, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    def otherwise(g: Any, a: Any) -> Any:
        if groups == 1 and set(dilation) <= {1} and (len(stride) < 3 or set(stride) <= {1}) and a.dtype.kind not in "iu":
            return _weight_grad_by_correlation(g, a, shape, stride, padding)
        return _weight_grad_by_products(g, a, shape, stride, padding, dilation, groups)

    if groups == 1 and set(shape[2:]) == {1} and x.dtype.kind in "fc" and x.dtype.itemsize > 2:
        # For (16, 32, 56, 56) and 64 kernels 2.1 ms on one core, by correlation 4.7, PyTorch 3.1.
        return by_platform(grad, x, cpu=lambda g, a: _weight_grad_by_image(g, a, shape, stride, padding), default=otherwise)
    return otherwise(grad, x)


def _weight_grad_by_image(grad: Any, x: Any, shape: Ints, stride: Ints, padding: Ints) -> Any:
    """Of kernels of one element: the sum over the images of the product of an image's gradient and its pixels."""

    @jax.checkpoint  # the derivative is not to keep all images' pixels
    def add(total: Any, image: Any) -> Any:
        g, pixels = image
        pixels = shifted(_zero_padded(pixels, padding), (0,) * len(stride), g.shape[1:], stride)
        rows, columns = g.reshape(shape[0], -1), pixels.reshape(shape[1], -1)
        return total + lax.dot_general(rows, columns, (((1,), (1,)), ((), ())), precision=PRECISION), None

    start = jnp.zeros(shape[:2], grad.dtype)
    return loops.scan(add, start, (grad, x))[0].reshape(shape)


def _weight_grad_by_correlation(grad: Any, x: Any, shape: Ints, stride: Ints, padding: Ints) -> Any:
    """A correlation over the batch instead of the channels. For (16, 32, 56, 56) and 64 kernels of 3 x 3 14.1 ms on one core, of stride 2 6.6 (by
    products 9.8), PyTorch 11.5 and 3.5."""
    found = _by_xla(jnp.swapaxes(x, 0, 1), jnp.swapaxes(grad, 0, 1), (1,) * len(stride), padding, stride, 1)
    return jnp.swapaxes(shifted(found, (0,) * len(stride), shape[2:], (1,) * len(stride)), 0, 1)


def _weight_grad_by_products(grad: Any, x: Any, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    """A matrix product for each place in the kernel."""
    n, sizes, kernel = grad.shape[0], grad.shape[2:], shape[2:]
    x = jnp.moveaxis(_zero_padded(x, padding).reshape(n, groups, shape[1], *(m + 2 * p for m, p in zip(x.shape[2:], padding, strict=True))), 0, 2)
    columns = jnp.moveaxis(grad.reshape(n, groups, shape[0] // groups, *sizes), 0, 2).reshape(groups, shape[0] // groups, -1)
    parts = [
        lax.dot_general(columns, shifted(x, offset, sizes, stride).reshape(groups, shape[1], -1), (((2,), (2,)), ((0,), (0,))), precision=PRECISION)
        for _, offset in _places(kernel, dilation)
    ]
    return jnp.stack(parts, -1).reshape(shape)


# ---------------------------------------------------------------------- the operator


def _transposed_sizes(x: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints, output_padding: Ints) -> Ints:
    return tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + o + 1
        for n, k, s, p, d, o in zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, output_padding, strict=True)
    )


_AXES = {1: ("width",), 2: ("height", "width"), 3: ("depth", "height", "width")}


def _check_convolution(
    x: Aval, weight: Aval, bias: Aval | None, stride: Ints, padding: Ints, dilation: Ints, transposed: bool, output_padding: Ints, groups: int
) -> None:
    _check_types(x, weight, bias, transposed, groups)
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    if any(p < 0 for p in padding):
        raise RuntimeError("negative padding is not supported")
    if any(s <= 0 for s in stride):
        raise RuntimeError("non-positive stride is not supported")
    if any(o < 0 for o in output_padding):
        raise RuntimeError("negative output_padding is not supported")
    if any(d < 0 for d in dilation):
        raise RuntimeError("dilation should be greater than zero")
    size = list(weight.shape)
    if size[0] < groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got weight of size {size} instead")
    if size[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of size [{size}] instead"
        )
    out = size[1] * groups if transposed else size[0]
    wanted = size[0] if transposed else size[1] * groups
    lead = f"transposed={transposed:d}" if transposed else f"groups={groups}"
    if x.shape[1] != wanted:
        raise RuntimeError(
            f"Given {lead}, weight of size {size}, expected input{list(x.shape)} to have {wanted} channels, but got {x.shape[1]} channels instead"
        )
    if bias is not None and bias.shape != (out,):
        given = f"Given {lead}, weight" if transposed else "Given weight"
        raise RuntimeError(
            f"{given} of size {size}, expected bias to be 1-dimensional with {out} elements, but got bias of size {list(bias.shape)} instead"
        )
    _check_windows(x, weight, stride, padding, dilation, transposed, output_padding)
    if 0 not in (*x.shape, *weight.shape):  # PyTorch returns before it asks
        _check_kernel(x, weight, stride, padding, dilation, transposed, groups)


def _check_kernel(x: Aval, weight: Aval, stride: Ints, padding: Ints, dilation: Ints, transposed: bool, groups: int) -> None:
    """Which of its kernels PyTorch takes; two of them have no integers but the widest."""
    dims = len(stride)
    if transposed:
        refusing(f"slow_conv_transpose{max(dims, 2)}d_out_cpu", "biu", np.int64)(x)
    elif set(dilation) != {1}:
        refusing("slow_conv_dilated<>", "biu", np.int64)(x)
    elif dims < 3:
        refusing("slow_conv2d_cpu", "b")(x)
    else:
        as_product = set(weight.shape[2:]) == set(stride) == {1} and set(padding) == {0} and groups == 1
        refusing("slow_conv3d_cpu" if as_product else "compute_columns3d", "b")(x)


def _check_windows(
    x: Aval, weight: Aval, stride: Ints, padding: Ints, dilation: Ints, transposed: bool, output_padding: Ints
) -> None:  # fmt: skip
    axes = _AXES[len(stride)]
    if 0 in weight.shape[2:]:
        shown = " ".join(f"kernel_{axis}: {k}" for axis, k in zip(axes, weight.shape[2:], strict=True))
        raise RuntimeError(f"kernel size should be greater than zero, but got {shown}")
    if 0 in dilation:
        if x.dtype == np.float32 and not transposed:  # PyTorch has another kernel for these
            raise RuntimeError("non-positive dilation is not supported")
        shown = ", ".join(f"dilation_{axis}: {d}" for axis, d in zip(axes, dilation, strict=True)) if transposed else list(dilation)
        raise RuntimeError(f"dilation should be greater than zero, but got {shown}")
    if transposed:
        _check_output_padding(stride, dilation, output_padding)
        sizes = _transposed_sizes(x, weight, stride, padding, dilation, output_padding)
        if any(n < 1 for n in sizes):
            given, made = (" x ".join(map(str, n)) for n in (x.shape[2:], sizes))
            raise RuntimeError(f"Given input size per channel: ({given}). Calculated output size per channel: ({made}). Output size is too small")
        return
    padded = tuple(n + 2 * p for n, p in zip(x.shape[2:], padding, strict=True))
    spans = tuple(d * (k - 1) + 1 for k, d in zip(weight.shape[2:], dilation, strict=True))
    if any(n < k for n, k in zip(padded, spans, strict=True)):
        raise RuntimeError(
            f"Calculated padded input size per channel: ({' x '.join(map(str, padded))}). Kernel size: ({' x '.join(map(str, spans))}). "
            "Kernel size can't be greater than actual input size"
        )


def _check_types(x: Aval, weight: Aval, bias: Aval | None, transposed: bool, groups: int) -> None:
    """Whose words PyTorch uses depends on the kernel that it comes to first: oneDNN's for half precision, and for what is large in float32."""
    own, other = dtypes.of(x.dtype), dtypes.of(weight.dtype)
    if not transposed and bias is not None and bias.dtype != x.dtype:
        raise RuntimeError(f"Input type ({own.word}) and bias type ({dtypes.of(bias.dtype).word}) should be the same")
    if weight.dtype != x.dtype:
        large = x.shape[0] > 1 or groups > 1 or x.size > 20480 or (weight.ndim > 3 and min(weight.shape[-2:]) > 3)
        half = x.dtype.itemsize == 2 and x.dtype.kind not in "iu"
        if (half or (x.dtype == np.float32 and large)) and not transposed:
            shown = ["CPUBFloat16Type" if d.title == "BFloat16" else f"torch.{d.title}Tensor" for d in (own, other)]
            raise RuntimeError(
                f"Input type ({shown[0]}) and weight type ({shown[1]}) should be the same or input should be a MKLDNN tensor and weight is a dense "
                "tensor"
            )
        raise RuntimeError(f"expected scalar type {own.title} but found {other.title}")
    if bias is not None and bias.dtype != x.dtype:
        raise RuntimeError(f"Input type ({own.word}) and bias type ({dtypes.of(bias.dtype).word}) should be the same")


def _check_output_padding(stride: Ints, dilation: Ints, output_padding: Ints) -> None:
    if all(o < s or o < d for o, s, d in zip(output_padding, stride, dilation, strict=True)):
        return
    names = _AXES[len(stride)]
    given = " ".join(
        f"{label}_{name}: {value}"
        for label, values in (("output_padding", output_padding), ("stride", stride), ("dilation", dilation))
        for name, value in zip(names, values, strict=True)
    )
    raise RuntimeError(f"output padding must be smaller than either stride or dilation, but got {given}")


def _convolve(x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, transposed: bool, output_padding: Ints, groups: int) -> Any:
    if not transposed:
        return correlate(x, w, stride, padding, dilation, groups)
    shape = (x.shape[0], w.shape[1] * groups, *_transposed_sizes(x, w, stride, padding, dilation, output_padding))
    return correlate_input_grad(x, w, shape, stride, padding, dilation, groups)


def _input_grad(grad: Any, input: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints, transposed: bool, groups: int) -> Any:
    if transposed:
        found = correlate_again(grad, weight.conj(), stride, padding, dilation, groups)
        # Where output_padding is a stride or more, windows fit into the result that no input made.
        return lax.slice(found, (0,) * found.ndim, (*found.shape[:2], *input.shape[2:]))
    return correlate_input_grad(grad, weight.conj(), input.shape, stride, padding, dilation, groups)


def _weight_grad(grad: Any, input: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints, transposed: bool, groups: int) -> Any:
    if transposed:
        return correlate_weight_grad(input.conj(), grad, weight.shape, stride, padding, dilation, groups)
    return correlate_weight_grad(grad, input.conj(), weight.shape, stride, padding, dilation, groups)


@op(
    "convolution(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, "
    "int groups)",
    validate=_check_convolution, method=False, toplevel=False, multilinear=True, order=CONVOLVED,
    grads={"input": _input_grad, "weight": _weight_grad, "bias": lambda grad: grad.sum((0, *range(2, grad.ndim)))},
    numpy_of=numpy_windows.convolution, numpy_grads=numpy_windows.convolution_grads,
    shows=("input", "weight"), attributes="output_padding bias_sym_sizes_opt")  # fmt: skip
def convolution(x: Any, w: Any, bias: Any, stride: Ints, padding: Ints, dilation: Ints, transposed: bool, output_padding: Ints, groups: int) -> Any:
    """A batched convolution of any number of spatial dimensions, or its transpose."""
    if bias is not None and x.dtype.itemsize == 2 and _lowering(x, w, stride, dilation, groups) == "shifts":  # rounded after the bias
        out = _convolve(wide(x), wide(w), stride, padding, dilation, transposed, output_padding, groups)
        return (out + lax.expand_dims(wide(bias), (0, *range(2, out.ndim)))).astype(x.dtype)
    out = _convolve(x, w, stride, padding, dilation, transposed, output_padding, groups)
    return out if bias is None else out + lax.expand_dims(bias, (0, *range(2, out.ndim)))


# ---------------------------------------------------------------------- sliding blocks


def _blocks(x: Any, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Any:
    sizes = output_sizes(x.shape[2:], kernel, stride, padding, dilation)
    padded = _zero_padded(x, padding)
    parts = [shifted(padded, tuple(a * d for a, d in zip(k, dilation, strict=True)), sizes, stride) for k in np.ndindex(*kernel)]
    return lax.reshape(jnp.stack(parts, 2), (x.shape[0], x.shape[1] * math.prod(kernel), math.prod(sizes)))


def _batched(function: Any, x: Any, ndim: int) -> Any:
    return function(x) if x.ndim == ndim else function(x[None])[0]


@op("im2col(Tensor self, int[] kernel_size, int[] dilation, int[] padding, int[] stride)", node="Im2ColBackward0", linear=True,
    validate=refusing("im2col_out_cpu", "iu"), method=False, toplevel=False,
    attributes="kernel_size dilation padding stride self_sym_argsize_minus_1 self_sym_argsize_minus_2",
    numpy=numpy_windows.COLUMNS, numpy_vjp=numpy_windows.COLUMNS_BACK)  # fmt: skip
def im2col(x: Any, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Any:
    """Every block of (N, C, H, W) as a column of (N, C * prod(kernel_size), L); without N also."""
    return _batched(lambda y: _blocks(y, kernel_size, dilation, padding, stride), x, 4)


@op("col2im(Tensor self, int[] output_size, int[] kernel_size, int[] dilation, int[] padding, int[] stride)", node="Col2ImBackward0", linear=True,
    validate=refusing("col2im_out_cpu", "iu"), method=False, toplevel=False, numpy=numpy_windows.ADDED_UP,
    numpy_vjp=numpy_windows.ADDED_UP_BACK)  # fmt: skip
def col2im(x: Any, output_size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Any:
    """Columns added up where their blocks lie: the transpose of `im2col`."""

    def added(columns: Any) -> Any:
        image = jax.ShapeDtypeStruct((columns.shape[0], columns.shape[1] // math.prod(kernel_size), *output_size), x.dtype)
        return jax.linear_transpose(lambda y: _blocks(y, kernel_size, dilation, padding, stride), image)(columns)[0]

    if x.dtype == np.bool_:
        x = x.astype(np.int32)
        return _batched(added, x, 3).astype(bool)
    return _batched(added, x, 3)
