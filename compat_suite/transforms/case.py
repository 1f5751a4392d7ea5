"""One call of an operator as a function of its tensors, and what results are compared by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import torchgrad_jax as tj
from compat_suite.counting import TOLERANCES, Difference


def tensors(value: Any) -> list[Any]:
    """The tensors in a value, in order."""
    if isinstance(value, tj.Tensor):
        return [value]
    if isinstance(value, list | tuple | dict):
        return [t for v in (value.values() if isinstance(value, dict) else value) for t in tensors(v)]
    return []


def replaced(value: Any, made: Iterator[Any]) -> Any:
    """The value with its tensors taken from `made`, in the order of `tensors`."""
    if isinstance(value, tj.Tensor):
        return next(made)
    if isinstance(value, list | tuple):
        parts = [replaced(v, made) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return {k: replaced(v, made) for k, v in value.items()} if isinstance(value, dict) else value


def is_float(t: Any) -> bool:
    """Whether a tensor can have a gradient."""
    return t.is_floating_point() or t.is_complex()


class Case:
    """A call of ours.

    function: what is called; derived: as it is differentiated. theirs: what the same call is in PyTorch, given arrays for its tensors and of which
    of their dimensions each is mapped over by the vmaps from the outermost on; None where there is no PyTorch.
    arrays: the content of its tensors. leaves: which of them are differentiated. unfilled: that what results hold is not said.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        derived: Callable[..., Any] | None = None,
        theirs: Callable[[list[np.ndarray], Sequence[Sequence[int | None]]], Any] | None = None,
        unfilled: bool = False,
    ) -> None:
        self._given, self._function, self._derived = (arguments, keywords), function, derived or function
        self.theirs, self.unfilled = theirs, unfilled
        found = tensors(self._given)
        self.arrays = [np.array(t.detach()._concrete()) for t in found]
        self.leaves = [i for i, t in enumerate(found) if t.requires_grad]

    def call(self, given: Sequence[Any]) -> Any:
        """What the call returns for these tensors."""
        tj.manual_seed(0)
        return self._called(self._function, given)

    def results(self, given: Sequence[Any]) -> list[Any]:
        """The tensors that the call returns."""
        return tensors(self.call(given))

    def differentiated(self, leaves: Sequence[Any]) -> list[Any]:
        """The results that can have gradients, as they are differentiated, for these leaves."""
        tj.manual_seed(0)
        return self.unseeded_of_leaves(*leaves)

    def unseeded_of_leaves(self, *leaves: Any) -> list[Any]:
        """`differentiated`, where random numbers are whatever comes next."""
        given: list[Any] = [tensor(a) for a in self.arrays]
        for i, t in zip(self.leaves, leaves, strict=True):
            given[i] = t
        return [t for t in tensors(self._called(self._derived, given)) if is_float(t)]

    def unseeded(self, *given: Any) -> list[Any]:
        """The tensors that the call returns, where random numbers are whatever comes next."""
        return tensors(self._called(self._function, given))

    def _called(self, function: Callable[..., Any], given: Sequence[Any]) -> Any:
        arguments, keywords = replaced(self._given, iter(given))
        return function(*arguments, **keywords)


def tensor(array: np.ndarray) -> Any:
    """A tensor of its own."""
    return tj.tensor(array)


def array(t: Any) -> np.ndarray:
    """The content of a tensor, copied."""
    return np.array(t.detach()._concrete())


def others(given: np.ndarray, size: int) -> list[np.ndarray]:
    """`size` arrays like this one that are apart: smaller ones, so that signs, symmetries and domains stay; of integers their order is turned."""
    if given.dtype.kind in "iub":
        turned = given[..., ::-1] if given.ndim else given
        return [turned if i % 2 else given for i in range(size)]
    return [(given * (1 - i / 8)).astype(given.dtype) for i in range(size)]


def like(given: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Random numbers for one of the results or operands."""
    found = random.uniform(0.5, 1.5, given.shape)
    if given.dtype.kind == "c":
        found = found + 1j * random.uniform(-0.5, 0.5, given.shape)
    return found.astype(given.dtype)


def same(found: Any, expected: np.ndarray, what: str, tolerance: float = 1.0, unfilled: bool = False) -> None:
    """Compare a tensor with what it must be. Difference where they are not alike."""
    same_arrays(array(found), expected, what, tolerance, unfilled)


def same_arrays(x: np.ndarray, y: np.ndarray, what: str, tolerance: float = 1.0, unfilled: bool = False) -> None:
    """The same for arrays."""
    if x.shape != y.shape or x.dtype != y.dtype:
        raise Difference(f"{what}: {x.dtype}{list(x.shape)}, expected {y.dtype}{list(y.shape)}")
    if unfilled:
        return
    near = TOLERANCES.get(y.dtype.name)
    if near is None:
        agree = np.array_equal(x, y)
        apart = x != y
    else:
        relative, absolute = (n * tolerance for n in near)
        if y.dtype.kind == "V" or y.dtype.name == "bfloat16":
            x, y = x.astype(np.float32), y.astype(np.float32)
        with np.errstate(all="ignore"):
            apart = ~np.isclose(x, y, rtol=relative, atol=absolute, equal_nan=True)
        agree = not apart.any()
    if not agree:
        at = np.unravel_index(np.argmax(apart), apart.shape)
        raise Difference(f"{what} {y.dtype}{list(y.shape)} at {tuple(map(int, at))}: {x[at]}, expected {y[at]}")


def inner(a: Sequence[np.ndarray | None], b: Sequence[np.ndarray | None]) -> tuple[float, float]:
    """The real inner product, where what is missing is zero; and the sum of its terms' sizes."""
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    terms = [np.real(np.conj(x) * y) for x, y in pairs]
    return float(sum(t.sum() for t in terms)), float(sum(np.abs(t).sum() for t in terms))
