"""Sampling recipes of PyTorch's CPU kernels on a stream of raw MT19937 draws.

Every function takes the source of draws first; `Generator` documents arguments, results and errors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.converting import broadcast_shapes
from torchgrad_jax.operators.kernels import drawing, normals, rounded, twister
from torchgrad_jax.runtime.user_code import warn_user

Shape = tuple[int, ...]

_F32 = np.dtype(np.float32)
_F64 = np.dtype(np.float64)
_F16 = np.dtype(np.float16)
_BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATING = (_F16, _BF16, _F32, _F64)
REAL_OF = {np.dtype(np.complex64): _F32, np.dtype(np.complex128): _F64}
WIDE_UNSIGNED = (np.dtype(np.uint16), np.dtype(np.uint32), np.dtype(np.uint64))
# Significand bits: every integer up to 2**digits is represented.
_DIGITS = {_F16: 11, _BF16: 8, _F32: 24, _F64: 53}


class Draws(Protocol):
    """A stream of 32-bit draws."""

    rejecting: Any  # `rejecting`'s functions, perhaps as C's

    def samples(self, kind: int, n: int, span: int = 0, base: int = 0) -> np.ndarray: ...

    def shuffled(self, n: int) -> np.ndarray: ...

    def random32(self, n: int) -> np.ndarray: ...


def name_of(dtype: np.dtype) -> str:
    return dtypes.of(dtype).title


def _cpp_name(dtype: np.dtype) -> str:
    return dtypes.of(dtype).word


def unsupported(kernel: str, dtype: np.dtype) -> NotImplementedError:
    return NotImplementedError(f"\"{kernel}\" not implemented for '{name_of(dtype)}'")


def number(x: float) -> str:
    """`x` as a C++ stream prints it."""
    return f"{x:g}"


def acc_dtype(dtype: np.dtype) -> np.dtype:
    """The type in which a recipe for `dtype` computes: float64 for itself, float32 otherwise."""
    return _F64 if dtype == _F64 else _F32


def finish(x: np.ndarray, dtype: np.dtype, shape: Shape) -> np.ndarray:
    """`x` in `dtype` and `shape`; what a narrow dtype cannot hold becomes infinite, as in PyTorch."""
    if x.dtype == dtype:
        return x.reshape(shape)
    with np.errstate(over="ignore", invalid="ignore"):
        # PyTorch reaches the 16-bit types by way of float32.
        x = x.astype(np.float32) if dtype in (_F16, _BF16) else x
        return x.astype(dtype).reshape(shape)


def in_order(order: Sequence[int] | None) -> bool:
    """Whether dimensions lie in memory as they stand."""
    return order is None or list(order) == sorted(order)


def ordered(shape: Shape, order: Sequence[int] | None, sample: Callable[[Shape], np.ndarray]) -> np.ndarray:
    """What `sample` draws for dimensions that lie in memory from slowest to fastest as `order` says (None: as they stand)."""
    if order is None or in_order(order):
        return sample(shape)
    return sample(tuple(shape[d] for d in order)).transpose(np.argsort(order)) if shape else sample(shape)


# ---- exact arithmetic -----------------------------------------------------------------------------------------------


def _split(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Veltkamp's splitting of float64 into two halves of 26 bits."""
    t = a * 134217729.0
    high = t - (t - a)
    return high, a - high


def _fma64(a: np.ndarray, b: float, c: float) -> np.ndarray:
    """a * b + c in float64 with one rounding (Boldo and Melquiond, IEEE Trans. Computers 57(4), 2008)."""
    if max(abs(b), abs(c)) > 2.0**900:
        return a * b + c
    ah, al = _split(a)
    bh, bl = _split(np.asarray(b, np.float64))
    p = a * b
    pe = al * bl - (((p - ah * bh) - al * bh) - ah * bl)
    uh, ul = rounded.two_sum(np.asarray(c, np.float64), pe)
    th, tl = rounded.two_sum(p, uh)
    return th + rounded.round_odd_sum(tl, ul)


def _scale_shift(a: np.ndarray, scale: Any, shift: Any) -> np.ndarray:
    """a * scale + shift, where nobody else has a, with the fused multiply-add that PyTorch's vectorised kernels compile to."""
    if scale == 1 and shift == 0:
        return a
    if a.dtype == _F64:
        return _fma64(a, float(scale), float(shift))
    drawing.scale(a, scale, shift)
    return a


# ---- uniform --------------------------------------------------------------------------------------------------------


def unit64(g: Draws, n: int) -> np.ndarray:
    """float64 uniforms of [0, 1): the low 53 bits of a pair of draws."""
    return g.samples(twister.WIDE, n)


def hits(g: Draws, n: int, p: float) -> np.ndarray:
    """Which of `unit64` are less than p <= 1: by the bits, as which they are drawn."""
    found = g.samples(twister.HIT, n, min(math.ceil(p * 2.0**53) << 11, 2**64 - 1))
    return np.ones(n, np.bool_) if p == 1 else found


def unit(g: Draws, n: int, acc: np.dtype) -> np.ndarray:
    return g.samples(twister.WIDE if acc == _F64 else twister.UNIT, n)


_largest = functools.cache(lambda dtype: float(ml_dtypes.finfo(dtype).max))


def _check_uniform_bounds(dtype: np.dtype, low: float, high: float) -> None:
    top = _largest(dtype)
    for what, value in (("from", low), ("to", high)):
        if not -top <= value <= top:
            raise RuntimeError(f"{what} is out of bounds for {_cpp_name(dtype)}")
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={number(low)} > to={number(high)}")
    if high - low > top:
        raise RuntimeError(
            f"uniform_ expects to-from <= std::numeric_limits<{name_of(dtype)}>::max(), but found to={number(high)} "
            f"and from={number(low)} which result in to-from to exceed the limit"
        )


def uniform(g: Draws, shape: Shape, dtype: np.dtype, low: float, high: float) -> np.ndarray:
    if low == 0 and high == 1 and dtype in (_F32, _F64):
        return unit(g, math.prod(shape), dtype).reshape(shape)
    if dtype in REAL_OF:
        return uniform(g, (*shape, 2), REAL_OF[dtype], low, high).view(dtype)[..., 0]
    if dtype not in FLOATING:
        raise unsupported("check_uniform_bounds", dtype)
    low, high = float(low), float(high)
    if (low, high) != (0.0, 1.0):
        _check_uniform_bounds(dtype, low, high)
    acc = acc_dtype(dtype)
    u = unit(g, math.prod(shape), acc)
    lo, hi = acc.type(low), acc.type(high)
    out = _scale_shift(u, hi - lo, lo).astype(dtype, copy=False)
    # Rounding may reach the excluded end, which PyTorch then replaces by the included one.
    if dtype.itemsize == 2 or lo != 0:
        out[out == dtype.type(hi)] = dtype.type(lo)
    return out.reshape(shape)


# ---- normal ---------------------------------------------------------------------------------------------------------


def _box_muller(u: np.ndarray, mean: float, std: float) -> np.ndarray:
    """Box-Muller transform of blocks of 16 uniforms, shape (16 blocks,): radii from the first 8, angles from the last."""
    if u.dtype == _F32:
        return _scale_shift(normals.in_blocks(u), np.float32(std), np.float32(mean))
    u = u.reshape(-1, 16)
    out = np.empty_like(u)
    radius = np.sqrt(-2.0 * np.log(1.0 - u[:, :8]))
    theta = 2.0 * math.pi * u[:, 8:]
    out[:, :8] = _scale_shift(radius * np.cos(theta), std, mean)
    out[:, 8:] = _scale_shift(radius * np.sin(theta), std, mean)
    return out.reshape(-1)


def _normal_stream(g: Draws, n: int) -> np.ndarray:
    """`n` standard normals in float64, in turn."""
    z = np.empty(n)
    g.rejecting.stream(g, z)
    return z


def standard_normal(g: Draws, shape: Shape, dtype: np.dtype) -> np.ndarray:
    """`normal` of mean 0 and standard deviation 1."""
    n = math.prod(shape)
    if n and dtype == _F32:  # what is plain asks for nothing else
        return (_normal_stream(g, n).astype(_F32) if n < 16 else normals.drawn(g, n)).reshape(shape)
    return normal(g, shape, dtype, 0.0, 1.0)


def normal(g: Draws, shape: Shape, dtype: np.dtype, mean: float, std: float, blocks: bool = True) -> np.ndarray:
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {number(std)}")
    if dtype in REAL_OF:
        parts = normal(g, (*shape, 2), REAL_OF[dtype], mean, std / math.sqrt(2), blocks)
        return parts.view(dtype)[..., 0]
    n = math.prod(shape)
    if not n:
        return np.empty(shape, dtype)
    if dtype not in FLOATING:
        raise unsupported("normal_kernel_cpu", dtype)
    mean, std = float(mean), float(std)
    if n < 16 or not blocks:
        return finish(_scale_shift(_normal_stream(g, n), std, mean), dtype, shape)
    if dtype == _F32:
        return _scale_shift(normals.drawn(g, n), np.float32(std), np.float32(mean)).reshape(shape)
    whole = n - n % 16
    # The 16-bit kernels draw block by block; the others fill all n first, of which the rest is then overwritten.
    drawn = whole if dtype.itemsize == 2 else n
    tail = 16 if n % 16 else 0
    u = unit(g, drawn + tail, acc_dtype(dtype))
    out = _box_muller(u[:whole], mean, std)
    if tail:
        # The last 16 samples, overlapping the last whole block, come from 16 further draws.
        out = np.concatenate([out[: n - 16], _box_muller(u[drawn:], mean, std)])
    return out.astype(dtype, copy=False).reshape(shape)


def check_normal(mean: Any, std: Any) -> tuple[Shape, np.dtype]:
    """The shape and dtype of normal samples around arrays."""
    m, s = np.asarray(mean), np.asarray(std)
    if s.dtype in REAL_OF:
        raise RuntimeError("normal expects standard deviation to be non-complex")
    if not isinstance(std, np.ndarray):
        if not float(s) >= 0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {number(float(s))}")
    elif s.size and not (np.minimum.reduce(s, None) >= 0):
        raise RuntimeError("normal expects all elements of std >= 0.0")
    return broadcast_shapes(m.shape, s.shape), m.dtype if isinstance(mean, np.ndarray) else s.dtype


def scaled_shifted(z: np.ndarray, mean: Any, std: Any) -> np.ndarray:
    """Standard normal samples times std plus mean, each product and sum rounded to the samples' dtype."""
    if z.dtype.itemsize > 2 and z.ndim and all([isinstance(x, np.ndarray) and x.dtype == z.dtype and x.shape == z.shape for x in (mean, std)]):
        z *= std
        z += mean
        return z
    scale, shift = (_for_arithmetic(z, x) for x in (std, mean))
    scaled = (z.astype(np.result_type(acc_type(z.dtype), scale)) * scale).astype(z.dtype)
    return (scaled.astype(np.result_type(acc_type(z.dtype), shift)) + shift).astype(z.dtype)


def acc_type(dtype: np.dtype) -> np.dtype:
    """The type in which arithmetic on `dtype` is done: float32 for the 16-bit ones, else itself."""
    return _F32 if dtype.itemsize == 2 else dtype


def _for_arithmetic(z: np.ndarray, x: Any) -> np.ndarray:
    """An operand as PyTorch takes it beside `z`: numbers and arrays without dimensions in its type, others in their own."""
    x = np.asarray(x)
    return x.astype(acc_type(z.dtype if not x.ndim else x.dtype))


def normal_tensor(g: Draws, mean: Any, std: Any) -> np.ndarray:
    return normal_around(mean, std, lambda shape, dtype, spread: normal(g, shape, dtype, 0.0, spread))


def normal_around(mean: Any, std: Any, draw: Callable[[Shape, np.dtype, float], np.ndarray]) -> np.ndarray:
    """Normal samples around arrays; `draw` gives those of mean 0 for a shape, a dtype and a standard deviation."""
    shape, dtype = check_normal(mean, std)
    if isinstance(std, np.ndarray):
        return scaled_shifted(draw(shape, dtype, 1.0), mean, std)
    return scaled_shifted(draw(shape, dtype, float(std)), mean, 1.0)


def log_normal(g: Draws, shape: Shape, dtype: np.dtype, mean: float, std: float) -> np.ndarray:
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={number(std)}")
    if dtype not in FLOATING:
        raise unsupported("log_normal_cpu", dtype)
    z = _normal_stream(g, math.prod(shape)) * std + mean
    with np.errstate(over="ignore"):
        z = np.exp(z)
    return finish(z, dtype, shape)


# ---- integers -------------------------------------------------------------------------------------------------------


@functools.cache
def _int_limits(dtype: np.dtype) -> tuple[int, int]:
    if dtype == np.bool_:
        return 0, 1
    if dtype in FLOATING:
        top = int(float(ml_dtypes.finfo(dtype).max))
        return -top, top
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


_FAR = -(2**53)


def _check_random_bounds(dtype: np.dtype, low: int, last: int) -> None:
    if dtype in REAL_OF:
        raise RuntimeError("check_random_bounds handles only integral, floating-point and boolean types")
    if dtype == np.int64 and low > _FAR and last < -_FAR:
        return
    least, greatest = _int_limits(dtype)
    bounds = (("from", low), ("to - 1", last))
    for what, value in bounds:
        # PyTorch holds bounds in signed 64 bits, which also limits uint64.
        if not least <= value <= greatest or (value >= 2**63 and dtype == np.uint64):
            raise RuntimeError(f"{what} is out of bounds for {_cpp_name(dtype)}")
    digits = _DIGITS.get(dtype, 64)
    for what, value in bounds:
        if abs(value) > 2**digits:
            warn_user(
                f"{what} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision limitations "
                f"{_cpp_name(dtype)} can support discrete uniform distribution only within this range. "
                "This warning will become an error in version 1.7 release, please fix the code in advance",
                UserWarning,
            )


def _modulo(g: Draws, n: int, span: int, base: int, wide: bool) -> np.ndarray:
    """Draws modulo `span` plus `base`, wrapping as 64-bit integers, int64 of shape (n,). A span of 2**64 is raw."""
    return g.samples(twister.WIDE_REST if wide else twister.REST, n, span % 2**64, base)


def _representable_bounds(dtype: np.dtype, low: int, high: int) -> tuple[int, int]:
    """Moves bounds that are not exact in a floating `dtype` inwards, so that no sample rounds out of the range."""
    digits = _DIGITS[dtype]
    least, greatest = _int_limits(dtype)
    if not least <= low <= high - 1 <= greatest:
        return low, high
    up = int(float(dtype.type(low + 1)))
    if up < low:
        low = up + (1 << (abs(low + 1).bit_length() - digits))
    down = int(float(dtype.type(high - 1)))
    # PyTorch reads 2**63 back as the least integer, which leaves the bound as it is.
    if high <= down < 2**63:
        high = down - (1 << (abs(high - 1).bit_length() - digits))
    return low, high


def random_from_to(g: Draws, shape: Shape, dtype: np.dtype, low: int, high: int) -> np.ndarray:
    low, high = int(low), int(high)
    if not (-(2**63) <= low < 2**63 and -(2**63) <= high < 2**63):
        raise ValueError("Overflow when unpacking long long")
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if dtype in FLOATING:
        low, high = _representable_bounds(dtype, low, high)
        if low >= high:
            raise RuntimeError(f"random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got from={low} >= to={high}")
    _check_random_bounds(dtype, low, high - 1)
    span = high - low
    return _modulo(g, math.prod(shape), span, low, span >= 2**28).astype(dtype, copy=False).reshape(shape)


def _random_all_bits(g: Draws, shape: Shape, dtype: np.dtype) -> np.ndarray:
    if not math.prod(shape):
        return np.empty(shape, dtype)
    if dtype in REAL_OF or dtype in (np.bool_, _F16) or dtype in WIDE_UNSIGNED:
        raise unsupported("random_full_64_bits_range_kernel_cpu", dtype)
    if dtype not in (np.int64, _F64, _F32, _BF16):
        raise RuntimeError("random_full_64_bits_range_kernel_cpu handles only int64, double, float and bfloat16")
    return g.samples(twister.WIDE_REST, math.prod(shape)).astype(dtype, copy=False).reshape(shape)


def random_from(g: Draws, shape: Shape, dtype: np.dtype, low: int) -> np.ndarray:
    if not -(2**63) <= low < 2**63:
        raise ValueError("Overflow when unpacking long long")
    if low == -(2**63):
        return _random_all_bits(g, shape, dtype)
    if dtype in REAL_OF:
        raise RuntimeError("random_from_to_impl handles only integral, floating-point and boolean types")
    if dtype in FLOATING:
        last = 2 ** _DIGITS[dtype]
        low = _representable_bounds(dtype, low, low + 1)[0]
    else:
        last = _int_limits(dtype)[1]
    if dtype in FLOATING and last <= low <= _int_limits(dtype)[1]:
        raise RuntimeError(
            f"random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' casted to dtype, but got from={low} > to_inc={last}"
        )
    _check_random_bounds(dtype, low, last)
    span = last - low + 1
    return _modulo(g, math.prod(shape), span, low, span >= 2**28).astype(dtype, copy=False).reshape(shape)


def random_full(g: Draws, shape: Shape, dtype: np.dtype) -> np.ndarray:
    n = math.prod(shape)
    if not n:
        return np.empty(shape, dtype)
    if dtype in _DIGITS:
        out = _modulo(g, n, 2 ** _DIGITS[dtype] + 1, 0, dtype == _F64)
    elif dtype in REAL_OF or dtype in WIDE_UNSIGNED:
        raise unsupported("random_kernel_cpu", dtype)
    else:
        out = _modulo(g, n, _int_limits(dtype)[1] + 1, 0, dtype == np.int64)
    return out.astype(dtype, copy=False).reshape(shape)


def randperm(g: Draws, n: int, dtype: np.dtype) -> np.ndarray:
    n = int(n)
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    if dtype not in REAL_OF and dtype != np.bool_:
        _check_randperm_size(n, dtype)
    if dtype == np.bool_ or dtype in REAL_OF or dtype in WIDE_UNSIGNED:
        raise unsupported("randperm", dtype)
    if n < 2:
        return np.arange(n).astype(dtype)
    return g.shuffled(n).astype(dtype, copy=False)


def _check_randperm_size(n: int, dtype: np.dtype) -> None:
    if dtype in _DIGITS:
        most, shown = {_F16: (2049, "2049"), _F32: (2**24 + 1, "2^24+1"), _F64: (2**53 + 1, "2^53+1")}.get(dtype, (2**63, ""))
        if n > most:
            raise RuntimeError(f"n cannot be greater than {shown} for {name_of(dtype)} type.")
    elif n > _int_limits(dtype)[1] + 1:
        raise RuntimeError(f"value cannot be converted to type {dtype.name}_t without overflow")


# ---- other distributions --------------------------------------------------------------------------------------------


def standard_exponential(g: Draws, n: int) -> np.ndarray:
    """`n` float64 samples of the exponential distribution of rate 1."""
    x = unit64(g, n)
    return np.negative(np.log1p(np.negative(x, x), x), x)


def exponential(g: Draws, shape: Shape, dtype: np.dtype, lambd: float) -> np.ndarray:
    if dtype not in FLOATING:
        raise RuntimeError(
            f"Exponential distribution is a continuous probability distribution. dtype must be a floating point but you specified {name_of(dtype)}"
        )
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={number(lambd)}")
    x = -1.0 / lambd * np.log1p(-unit64(g, math.prod(shape)))
    if dtype.itemsize > 2 and lambd > 1e-3:  # at most 37 / lambd
        return x.astype(dtype, copy=False).reshape(shape)
    return finish(x, dtype, shape)


def geometric(g: Draws, p: float, shape: Shape, dtype: np.dtype) -> np.ndarray:
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={number(p)}")
    if dtype == np.bool_ or dtype in REAL_OF or dtype in WIDE_UNSIGNED:
        raise unsupported("geometric_cpu", dtype)
    with np.errstate(divide="ignore"):
        x = np.ceil(np.log(unit64(g, math.prod(shape))) / math.log1p(-p))
    return finish(x, dtype, shape)


def cauchy(g: Draws, shape: Shape, dtype: np.dtype, median: float, sigma: float) -> np.ndarray:
    if dtype not in FLOATING:
        raise RuntimeError(
            f"Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you specified {_cpp_name(dtype)}"
        )
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={number(sigma)}")
    x = median + sigma * np.tan(math.pi * (unit64(g, math.prod(shape)) - 0.5))
    return finish(x, dtype, shape)
