"""`torch.quasirandom`: Sobol' sequences. Points are computed as integers on the host; the direction numbers are SciPy's, which are PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import qmc

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.refusals import unsupported
from torchgrad_jax.functions.creation import tensor
from torchgrad_jax.functions.random import Generator
from torchgrad_jax.functions.random_factories import randint

__all__ = ["SobolEngine"]


class SobolEngine:
    """Points of a Sobol' sequence in the unit cube.

    dimension: of the points, 1 to 21201. scramble: by Owen's method, with random numbers of the global generator or, if `seed` is given, of one of
    its own. ValueError for a dimension out of range.
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.seed, self.scramble, self.dimension = seed, scramble, dimension
        # SciPy has no public name for the direction numbers; to compute them from points takes 2**29 of these.
        directions = qmc.Sobol(dimension, scramble=False, bits=self.MAXBIT)._sv.astype(np.int64)  # type: ignore[attr-defined]
        shift = np.zeros(dimension, np.int64)
        if scramble:
            directions, shift = self._scrambled(directions)
        self.sobolstate, self.shift = tensor(directions), tensor(shift)
        self.quasi = self.shift.clone()
        self._first_point = (self.quasi / 2**self.MAXBIT).reshape(1, -1)
        self.num_generated = 0

    def _scrambled(self, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The direction numbers, each bit of which depends on the higher ones at random, and where the sequence begins."""
        generator = None
        if self.seed is not None:
            generator = Generator()
            generator.manual_seed(self.seed)
        places = np.arange(self.MAXBIT)
        bits = randint(2, (self.dimension, self.MAXBIT), generator=generator).numpy()
        mixing = np.tril(randint(2, (self.dimension, self.MAXBIT, self.MAXBIT), generator=generator).numpy(), -1) + np.eye(
            self.MAXBIT, dtype=np.int64
        )
        highest_first = places[::-1]
        mixed = np.einsum("dpq,dkq->dkp", mixing, (directions[:, :, None] >> highest_first) & 1) % 2
        return (mixed << highest_first).sum(-1), (bits << places).sum(-1)

    def _advanced(self, n: int) -> np.ndarray:
        """The next n points as integers, (n, dimension). The last of them is where the sequence stands then."""
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}, {self.dimension}]")
        counts = np.arange(self.num_generated - 1, self.num_generated - 1 + n) if self.num_generated else np.arange(n)
        lowest_zero = np.log2(~counts & (counts + 1)).astype(np.int64)
        steps = np.concatenate([self.quasi.numpy()[None], self.sobolstate.numpy().T[lowest_zero]])
        points = np.bitwise_xor.accumulate(steps)
        self.quasi.copy_(tensor(points[-1]))
        return points[1:]

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: dtypes.dtype | None = None) -> Tensor:
        """The next n points, (n, dimension), of the default dtype. out: a tensor to put them in, which is resized."""
        if not isinstance(n, int):
            raise TypeError(f"_sobol_engine_draw(): argument 'n' (position 2) must be int, not {type(n).__name__}")
        wanted = dtypes.get_default_dtype() if dtype is None else dtype
        fresh = self.num_generated == 0
        parts: list[Any] = [self._first_point.to(wanted).numpy()] if fresh else []
        if not (fresh and n == 1):
            if wanted not in (dtypes.float32, dtypes.float64):
                raise unsupported("_sobol_engine_draw", wanted.np)
            parts.append((self._advanced(n - fresh).astype(wanted.np) / 2**self.MAXBIT).astype(wanted.np))
        self.num_generated += n
        points = tensor(np.concatenate(parts))
        return points if out is None else out.resize_as_(points).copy_(points)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: dtypes.dtype | None = None) -> Tensor:
        """The next 2**m points. ValueError where all points would not be a power of 2 then."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1) != 0:
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: n={self.num_generated}+2**{m}={total}. "
                "If you still want to do this, please use 'SobolEngine.draw()' instead."
            )
        return self.draw(n=n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Begin anew, with the same scrambling."""
        self.quasi.copy_(self.shift)
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out the next n points."""
        self._advanced(max(n - (self.num_generated == 0), 0))
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        told = [f"dimension={self.dimension}"]
        if self.scramble:
            told.append("scramble=True")
        if self.seed is not None:
            told.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(told)})"
