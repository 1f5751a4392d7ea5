"""What a record of an operator says, and the tensors that its samples are made of. Needs no PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

import torchgrad_jax as tj

BOTH, REAL = ("float64", "complex128"), ("float64",)


class Make:
    """Makes the tensors of samples: ``make(2, 3)`` are leaves of the dtype that is checked, with random numbers."""

    def __init__(self, dtype: str, seed: int = 0) -> None:
        self.name, self.dtype, self.random = dtype, getattr(tj, dtype), np.random.default_rng(seed)

    @property
    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return self.dtype.is_complex

    def __call__(self, *shape: int, low: float = -2.0, high: float = 2.0, gradient: bool = True) -> Any:
        """Uniform numbers, of a complex dtype both parts."""
        array = self.random.uniform(low, high, shape)
        if self.is_complex:
            array = array + 1j * self.random.uniform(low, high, shape)
        return tj.tensor(array, dtype=self.dtype, requires_grad=gradient)

    def real(self, *shape: int, low: float = -2.0, high: float = 2.0) -> Any:
        """Uniform float64 numbers, whatever the dtype is."""
        return tj.tensor(self.random.uniform(low, high, shape), dtype=tj.float64, requires_grad=True)

    def apart(self, *shape: int) -> Any:
        """Numbers that differ by a half at least."""
        size = int(np.prod(shape))
        return tj.tensor((self.random.permutation(size) / 2 - size / 4 + 0.1).reshape(shape), dtype=self.dtype, requires_grad=True)

    def integers(self, *shape: int, low: int = 0, high: int = 5) -> Any:
        """int64 numbers of [low, high)."""
        return tj.tensor(self.random.integers(low, high, shape))

    def bools(self, *shape: int) -> Any:
        """Both truth values."""
        return tj.tensor(self.random.integers(0, 2, shape).astype(bool))

    def matrix(self, *shape: int) -> Any:
        """Matrices far from singular."""
        array = self.random.uniform(-1, 1, shape) + (1j * self.random.uniform(-1, 1, shape) if self.is_complex else 0)
        return tj.tensor(array + 3 * np.eye(*shape[-2:]), dtype=self.dtype, requires_grad=True)

    def permutation(self, n: int) -> Any:
        """The numbers 0 .. n-1 in another order."""
        return tj.tensor(self.random.permutation(n))


Samples = Callable[[Make], Iterable[Any]]


@dataclass(frozen=True)
class Record:
    """One operator, by its name in tiers.txt.

    samples: gives tuples of arguments, of which a dict at the end are keywords; or single arguments.
    jax: the same function of JAX arrays. function: what is called, where the name does not tell. dtypes: in which it is checked.
    derivatives: how many are checked; 0 means that results must not require grad, None that they do but cannot be checked.
    forward: whether forward mode is checked. tolerance: how many times the usual one.
    """

    name: str
    samples: Samples
    jax: Callable[..., Any] | None = None
    function: Callable[..., Any] | None = None
    dtypes: tuple[str, ...] = BOTH
    derivatives: int | None = 2
    forward: bool = True
    tolerance: float = 1.0

    def call(self) -> Callable[..., Any]:
        """Our function. AttributeError where it is missing."""
        return self.function or found(self.name)


def found(name: str) -> Callable[..., Any]:
    """Our function, method or attribute of an operator's name; what stands behind a last dot may be a variant."""
    parts = name.split(".")
    for end in (len(parts), len(parts) - 1):
        place: Any = tj
        for part in parts[:end]:
            place = getattr(place, part, None)
        if end and callable(place) and not isinstance(place, type(tj.float64)):
            return place
    attribute = getattr(tj.Tensor, parts[0])
    return attribute if callable(attribute) else lambda x: getattr(x, parts[0])


def split(sample: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments and keywords of a sample."""
    if not isinstance(sample, tuple):
        return (sample,), {}
    return (sample[:-1], sample[-1]) if sample and isinstance(sample[-1], dict) else (sample, {})


def each(*shapes: tuple[int, ...], low: float = -2.0, high: float = 2.0, **keywords: Any) -> Samples:
    """Samples of one tensor, of each shape."""
    return lambda make: ((make(*s, low=low, high=high), keywords) for s in shapes)


def given(*rows: tuple[Any, ...]) -> Samples:
    """Samples whose first argument is a tensor of the shape that a row begins with; the rest of the row follows it."""
    return lambda make: ((make(*shape), *rest) for shape, *rest in rows)


def pairs(*shapes: tuple[tuple[int, ...], ...], low: float = -2.0, high: float = 2.0) -> Samples:
    """Samples of several tensors, of the shapes in each row."""
    return lambda make: (tuple(make(*s, low=low, high=high) for s in row) for row in shapes)
