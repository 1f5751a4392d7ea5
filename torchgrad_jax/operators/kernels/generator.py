"""PyTorch's CPU random number generator on NumPy: the same 32-bit stream, state layout and sampling recipes.

`torch.Generator` on the CPU is an MT19937 engine with one cached normal sample. NumPy's `RandomState` runs the same
engine with the same seeding, so its raw draws are PyTorch's; the recipes that turn draws into samples are in
`torchgrad_jax.operators.kernels.distributions`.
"""

from __future__ import annotations

import itertools
import os
import secrets
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from torchgrad_jax.operators.kernels import drawing, rejecting, twister

from . import counts as _c
from . import distributions as _d
from . import gammas as _g

__all__ = ["Generator"]

DEFAULT_SEED = 67280421310721

_MT_WORDS = 624
# So many uniforms are drawn one by one before it pays to keep the state.
_ONE_BY_ONE = 64
# Of each kind of samples.
_DTYPES = {
    twister.UNIT: np.dtype(np.float32), twister.WIDE: np.dtype(np.float64), twister.HIT: np.dtype(np.bool_), twister.REST: np.dtype(np.int64),
    twister.WIDE_REST: np.dtype(np.int64),
}  # fmt: skip
# Seed, draws left in the block, seeded flag, index of the next word.
_STATE_HEAD = struct.Struct("<QiiQ")
# Box-Muller scratch (x, cached normal, rho), its validity, cached float normal and its validity.
_STATE_TAIL = struct.Struct("<dddi4xfB3x")
_STATE_SIZE = _STATE_HEAD.size + 8 * _MT_WORDS + _STATE_TAIL.size

ShapeLike = int | Sequence[int]


def _shape(shape: ShapeLike) -> tuple[int, ...]:
    if type(shape) is tuple and _are_ints(map(type, shape)) and (not shape or min(shape) >= 0):
        return shape
    dims = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(d) for d in shape)
    for d in dims:
        if d < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {d}: {list(dims)}")
    return dims


_are_ints = frozenset((int,)).issuperset


def _size(shape: tuple[int, ...]) -> int:
    n = 1
    for d in shape:
        n *= d
    return n


_positions = itertools.count()


@lru_cache(256)
def _scale_of_kept(p: float, dtype: np.dtype) -> Any:
    acc = _d.acc_dtype(dtype)
    return (acc.type(1) / acc.type(1 - p)).astype(dtype)


class Generator:
    """Counterpart of a CPU `torch.Generator`: an MT19937 stream that yields PyTorch's samples as NumPy arrays.

    The integer and uniform samples and the raw stream are PyTorch's bit for bit. float32 normal samples follow the
    arithmetic of PyTorch's AVX2 kernels; transcendental functions in float64 may differ in the last place.

    Attributes:
        device: left to the caller, `"cpu"` by default.
        bernoulli_method: `"mt19937"`, `"mkl"` or None for the former; at first what the `TORCHGRAD_JAX_BERNOULLI`
            environment variable says; see `bernoulli`.
        position: a number that stands for the state: it is another one as soon as the state may be.
    """

    def __init__(self, device: Any = "cpu") -> None:
        self.device = device
        self.bernoulli_method: str | None = os.environ.get("TORCHGRAD_JAX_BERNOULLI") or None
        self._bits = np.random.MT19937(0)
        self._engine = np.random.RandomState(self._bits)
        inside: Any = self._bits.state["state"]
        known = drawing.knows(self._bits, inside["key"], inside["pos"])
        self._loops, self.rejecting = (drawing, drawing) if known else (twister, rejecting)
        self.manual_seed(DEFAULT_SEED)

    # ---- seed and state ---------------------------------------------------------------------------------------------

    def manual_seed(self, seed: int) -> Generator:
        """Restarts the stream from `seed` in [-2**63, 2**64); negative seeds wrap modulo 2**64. Returns self.

        Raises:
            RuntimeError: `seed` is not an integer.
            ValueError: `seed` does not fit.
        """
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
        seed = int(seed)
        if not -(2**63) <= seed < 2**64:
            raise ValueError("Overflow when unpacking long long")
        self._seed = seed % 2**64
        self.position = next(_positions)
        # The engine itself is seeded from the low word only.
        self._engine.seed(self._seed & 0xFFFFFFFF)
        self._fresh = True
        self._next_normal: float | None = None
        self._next_float_normal = (0.0, 0)
        return self

    def seed(self) -> int:
        """Seeds the generator from the operating system's entropy and returns the 64-bit seed."""
        self.manual_seed(secrets.randbits(64))
        return self._seed

    def initial_seed(self) -> int:
        """The seed last given, as an unsigned 64-bit integer."""
        return self._seed

    def get_state(self) -> np.ndarray:
        """The state as a uint8 array of 5056 bytes, in the layout of `torch.Generator.get_state` (CPU)."""
        state: Any = self._engine.get_state()
        key, pos = state[1:3]
        if pos == _MT_WORDS:
            left, following = 1, 0 if self._fresh else _MT_WORDS
        else:
            left, following = _MT_WORDS + 1 - pos, pos
        cached = self._next_normal
        head = _STATE_HEAD.pack(self._seed, left, 1, following)
        tail = _STATE_TAIL.pack(0.0, cached or 0.0, 0.0, cached is not None, *self._next_float_normal)
        return np.frombuffer(head + key.astype("<u8").tobytes() + tail, np.uint8).copy()

    def set_state(self, new_state: np.ndarray) -> Any:
        """Restores a state from `get_state`, or from a CPU `torch.Generator` by way of NumPy. Returns self.

        Raises:
            TypeError: `new_state` is not a uint8 array.
            RuntimeError: wrong size or contents.
        """
        if not hasattr(new_state, "dtype"):
            raise TypeError(f"expected a torch.ByteTensor, but got {type(new_state).__name__}")
        state = np.asarray(new_state)
        if state.dtype != np.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        if state.size != _STATE_SIZE:
            raise RuntimeError(f"Expected a CPUGeneratorImplState of size {_STATE_SIZE} but found the input RNG state size to be {state.size}")
        data = state.tobytes()
        seed, left, seeded, following = _STATE_HEAD.unpack_from(data)
        if not seeded or not 0 < left <= _MT_WORDS or following > _MT_WORDS:
            raise RuntimeError("Invalid mt19937 state")
        key = np.frombuffer(data, "<u8", _MT_WORDS, _STATE_HEAD.size).astype(np.uint32)
        _, cached, _, valid, float_normal, float_valid = _STATE_TAIL.unpack_from(data, _STATE_SIZE - _STATE_TAIL.size)
        self._seed = seed
        self.position = next(_positions)
        self._fresh = following == 0
        self._engine.set_state(("MT19937", key, _MT_WORDS if left == 1 else following, 0, 0.0))
        self._next_normal = cached if valid else None
        self._next_float_normal = (float_normal, float_valid)
        return self

    def clone_state(self) -> Any:
        """A new generator in the same state."""
        other = type(self)(self.device)
        other.bernoulli_method = self.bernoulli_method
        other.set_state(self.get_state())
        return other

    # ---- raw draws --------------------------------------------------------------------------------------------------

    def moved(self) -> None:
        """To be called when there were draws: the state is another one."""
        self._fresh, self.position = False, next(_positions)

    def samples(self, kind: int, n: int, span: int = 0, base: int = 0) -> np.ndarray:
        """The next `n` samples of a kind, see `twister`, of shape (n,)."""
        made = np.empty(n, _DTYPES[kind])
        if n:
            self.moved()
            self._loops.draw(self._bits, kind, made, span, base)
        return made

    def shuffled(self, n: int) -> np.ndarray:
        """0 to n - 1 shuffled, int64 of shape (n,)."""
        order = np.arange(n)
        if n > 1:
            self.moved()
            self._loops.shuffle(self._bits, order)
        return order

    def random32(self, n: int) -> np.ndarray:
        """The next `n` 32-bit draws, uint32 of shape (n,)."""
        if n:
            self.moved()
        return self._bits.random_raw(n).astype(np.uint32)

    def random64(self, n: int) -> np.ndarray:
        """The next `n` pairs of draws, first draw in the high word, uint64 of shape (n,)."""
        return self.samples(twister.WIDE_REST, n).view(np.uint64)

    @contextmanager
    def lookahead(self) -> Iterator[Iterator[float]]:
        """An iterator of 53-bit uniforms, of which many are drawn in blocks; on exit the stream stands after the last one taken."""
        start, taken = None, 0

        def uniforms() -> Iterator[float]:
            nonlocal start, taken
            for _ in range(_ONE_BY_ONE):
                yield float(self.samples(twister.WIDE, 1)[0])
            start = self._engine.get_state()
            while True:
                for u in self.samples(twister.WIDE, 1024).tolist():
                    taken += 1
                    yield u

        try:
            yield uniforms()
        finally:
            if start is not None:
                self._engine.set_state(start)
                self.random64(taken)

    # ---- uniform and normal -----------------------------------------------------------------------------------------

    def uniform(self, shape: ShapeLike, dtype: Any = np.float32, low: float = 0.0, high: float = 1.0) -> np.ndarray:
        """`torch.rand` and `Tensor.uniform_`: samples of [low, high), of any floating (or, for [0, 1), complex) dtype.

        Raises:
            NotImplementedError: `dtype` is not floating.
            RuntimeError: low > high, or a bound or their distance is outside the dtype's range.
        """
        return _d.uniform(self, _shape(shape), np.dtype(dtype), low, high)

    def normal(self, shape: ShapeLike, dtype: Any = np.float32, mean: float = 0.0, std: float = 1.0, blocks: bool = True) -> np.ndarray:
        """`torch.randn` and `Tensor.normal_`: normal samples of any floating dtype by the Box-Muller transform.

        From 16 samples on they are drawn in blocks of 16, which PyTorch does where the target is contiguous; if not
        `blocks`, in pairs. Complex dtypes (mean 0 only) draw real and imaginary parts of standard deviation `std / sqrt(2)`.

        Raises:
            NotImplementedError: `dtype` is not floating or complex.
            RuntimeError: std < 0.
        """
        return _d.normal(self, _shape(shape), np.dtype(dtype), mean, std, blocks)

    def normal_tensor(self, mean: Any, std: Any) -> np.ndarray:
        """`torch.normal` where `mean`, `std` or both are arrays; the shape is their broadcast.

        Raises:
            RuntimeError: an element of std is negative.
        """
        return _d.normal_tensor(self, mean, std)

    def log_normal(self, shape: ShapeLike, dtype: Any = np.float32, mean: float = 1.0, std: float = 2.0) -> np.ndarray:
        """`Tensor.log_normal_`: exp of normal samples; RuntimeError unless std > 0."""
        return _d.log_normal(self, _shape(shape), np.dtype(dtype), mean, std)

    # ---- integers ---------------------------------------------------------------------------------------------------

    def randint(self, low: int, high: int, shape: ShapeLike, dtype: Any = np.int64) -> np.ndarray:
        """`torch.randint`: integers of [low, high) in `dtype`.

        Raises:
            RuntimeError: low >= high, or a bound is outside the dtype's range.
            ValueError: a bound does not fit in 64 bits.
        """
        return _d.random_from_to(self, _shape(shape), np.dtype(dtype), low, high)

    def random(self, shape: ShapeLike, dtype: Any = np.float32, from_: int | None = None, to: int | None = None) -> np.ndarray:
        """`Tensor.random_`: `random_()`, `random_(to)` (pass `to` alone) and `random_(from, to)`.

        `from_` alone is `random_(from, None)`: up to the greatest integer that `dtype` represents exactly.

        Raises:
            NotImplementedError: PyTorch has no such sampler for `dtype`.
            RuntimeError: from >= to, or a bound is outside the dtype's range.
        """
        dims, dt = _shape(shape), np.dtype(dtype)
        if from_ is None and to is None:
            return _d.random_full(self, dims, dt)
        if to is None:
            return _d.random_from(self, dims, dt, int(from_ or 0))
        return _d.random_from_to(self, dims, dt, 0 if from_ is None else from_, to)

    def randperm(self, n: int, dtype: Any = np.int64) -> np.ndarray:
        """`torch.randperm`: a permutation of 0 .. n-1 by the Fisher-Yates shuffle, of shape (n,).

        Raises:
            RuntimeError: n is negative or too large for `dtype`.
            NotImplementedError: `dtype` is bool, complex or an unsigned type wider than 8 bits.
        """
        return _d.randperm(self, n, np.dtype(dtype))

    # ---- Bernoulli --------------------------------------------------------------------------------------------------

    def _bernoulli_method(self) -> str:
        method = self.bernoulli_method or "mt19937"
        if method not in ("mt19937", "mkl"):
            raise ValueError(f'the Bernoulli method must be "mt19937" or "mkl", but got {method!r}')
        return method

    def bernoulli(self, p: float, shape: ShapeLike, dtype: Any = np.float32) -> np.ndarray:
        """`Tensor.bernoulli_(p)` with a number p: ones with probability p, of any real dtype or bool.

        Two recipes exist among PyTorch's builds. `"mt19937"` compares one 53-bit uniform an element with p: all
        processors in current releases. `"mkl"` seeds MKL's MCG31m1 stream with one draw: older releases built with
        MKL, on Intel processors. `bernoulli_method` chooses.

        Raises:
            RuntimeError: p outside [0, 1].
            NotImplementedError: complex dtype.
        """
        return _c.bernoulli(self, p, _shape(shape), np.dtype(dtype), self._bernoulli_method())

    def bernoulli_tensor(self, p: Any, dtype: Any = None) -> np.ndarray:
        """`torch.bernoulli(p)` and `Tensor.bernoulli_(p)` with a floating array p; `dtype` is p's unless given.

        Raises:
            RuntimeError: an element of p is outside [0, 1].
            NotImplementedError: p is not floating.
        """
        p = np.asarray(p)
        return _c.bernoulli_tensor(self, p, p.dtype if dtype is None else np.dtype(dtype))

    def dropout_mask(self, shape: ShapeLike, p: float = 0.5, dtype: Any = np.float32) -> np.ndarray:
        """What `F.dropout(x, p, training=True)` multiplies x by: 0 with probability p, else 1 / (1 - p), in `dtype`.

        p of 0 or 1 and empty shapes draw nothing.

        Raises:
            RuntimeError: p outside [0, 1].
        """
        dims, dt = _shape(shape), np.dtype(dtype)
        if not 0 <= p <= 1:
            raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p:g}")
        if p == 0 or not _size(dims):
            return np.ones(dims, dt)
        if p == 1:
            return np.zeros(dims, dt)
        kept, scale = self.bernoulli(1 - p, dims, np.bool_), _scale_of_kept(float(p), dt)
        return np.multiply(kept, scale) if dt.char in "fd" else kept.astype(dt) * scale

    # ---- other distributions ----------------------------------------------------------------------------------------

    def exponential(self, shape: ShapeLike, dtype: Any = np.float32, lambd: float = 1.0) -> np.ndarray:
        """`Tensor.exponential_`: -log(1 - u) / lambd; RuntimeError unless lambd > 0 and dtype is floating."""
        return _d.exponential(self, _shape(shape), np.dtype(dtype), lambd)

    def geometric(self, p: float, shape: ShapeLike, dtype: Any = np.float32) -> np.ndarray:
        """`Tensor.geometric_`: trials up to the first success, ceil(log u / log(1 - p)).

        Raises:
            RuntimeError: p outside (0, 1).
            NotImplementedError: `dtype` is bool, complex or an unsigned type wider than 8 bits.
        """
        return _d.geometric(self, p, _shape(shape), np.dtype(dtype))

    def cauchy(self, shape: ShapeLike, dtype: Any = np.float32, median: float = 0.0, sigma: float = 1.0) -> np.ndarray:
        """`Tensor.cauchy_`: median + sigma tan(pi (u - 1/2)); RuntimeError unless sigma > 0 and dtype is floating."""
        return _d.cauchy(self, _shape(shape), np.dtype(dtype), median, sigma)

    def multinomial(self, probs: Any, num_samples: int, replacement: bool = False, order: Sequence[int] | None = None) -> np.ndarray:
        """`torch.multinomial`: int64 indices of shape (num_samples,), or (rows, num_samples) for 2-d weights.

        order: the dimensions of the weights from the slowest to the fastest in memory, where that is not row-major.

        Raises:
            RuntimeError: weights not 1- or 2-d or floating, negative or non-finite entries, a row that sums to zero,
                num_samples not positive, or above the number of categories without replacement.
        """
        return _c.multinomial(self, np.asarray(probs), num_samples, replacement, order)

    def poisson(self, rate: Any) -> np.ndarray:
        """`torch.poisson`: counts of the rates' shape and dtype; RuntimeError for a negative rate."""
        return _c.poisson(self, np.asarray(rate))

    def binomial(self, count: Any, prob: Any) -> np.ndarray:
        """`torch.binomial`: successes among `count` trials of probability `prob`; the shape is their broadcast.

        Raises:
            ValueError: an array is not floating.
            RuntimeError: their dtypes differ.
            NotImplementedError: their dtype is float16 or bfloat16.
        """
        return _c.binomial(self, np.asarray(count), np.asarray(prob))

    def standard_gamma(self, concentration: Any) -> np.ndarray:
        """`torch._standard_gamma`: gamma samples of rate 1, at least the least normal number of the dtype.

        Raises:
            NotImplementedError: the dtype is neither float32 nor float64.
        """
        return _g.standard_gamma(self, np.asarray(concentration))

    def dirichlet(self, concentration: Any) -> np.ndarray:
        """`torch._sample_dirichlet`: samples along the last dimension, in the open interval (0, 1).

        Raises:
            NotImplementedError: the dtype is neither float32 nor float64.
        """
        return _g.dirichlet(self, np.asarray(concentration))
