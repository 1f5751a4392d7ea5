"""What a transform of values is, and transforms made of others."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import torchgrad_jax.distributions.constraints as C
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.distributions.utils import sum_rightmost
from torchgrad_jax.functions.shaping import cat, stack


class Transform:
    """A function of values, with its inverse and the logarithm of the derivative's determinant.

    A subclass has `domain` and `codomain` (constraints), `bijective`, `_call(x)`, `_inverse(y)`, `log_abs_det_jacobian(x, y)`, and `sign`
    where it is monotonic.

    Args:
        cache_size: 1, to keep the last pair of values: the inverse of the last result is then that very input. Else 0.
    """

    bijective: Any = False
    domain: Any
    codomain: Any
    # The last input with its result, where they are kept.
    _cached_x_y: tuple[Any, Any] = (None, None)

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._cached_x_y = None, None
        self._inv: Any = None
        super().__init__()

    @property
    def inv(self) -> Any:
        """The inverse; its inverse is this transform."""
        if self._inv is None:
            self._inv = _InverseTransform(self)
        return self._inv

    @property
    def event_dim(self) -> int:
        """How many of the last dimensions are one value, for which there is one derivative."""
        before, after = self.domain.event_dim, self.codomain.event_dim
        if before != after:
            raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")
        return before

    @property
    def sign(self) -> Any:
        """1 where the transform is increasing, -1 where it is decreasing. NotImplementedError where it is neither."""
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> Any:
        """The like with this `cache_size`, which the transforms that it is made of have too."""
        if cache_size == self._cache_size:
            return self
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        made = copy(self)
        made.__dict__.update({name: _cached(value, cache_size) for name, value in vars(self).items() if name != "_inv"})
        made._cache_size, made._cached_x_y, made._inv = cache_size, (None, None), None
        return made

    def __call__(self, x: Any) -> Any:
        return self._remembering(x, 0, self._call)

    def _inv_call(self, y: Any) -> Any:
        return self._remembering(y, 1, self._inverse)

    def _remembering(self, given: Any, side: int, function: Any) -> Any:
        """`function(given)`, `given` being an input (side 0) or a result (1)."""
        if self._cache_size == 0:
            return function(given)
        if self._cached_x_y[side] is not given:
            found = function(given)
            self._cached_x_y = (found, given) if side else (given, found)
        return self._cached_x_y[1 - side]

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the determinant's absolute value, of the derivative at `x`, where the result is `y`."""
        raise NotImplementedError

    def forward_shape(self, shape: Any) -> Any:
        """The shape of results for inputs of a shape."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of inputs for results of a shape."""
        return shape

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment] - as in PyTorch: they are equal by their settings

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_cached_x_y": (None, None)}


def _cached(value: Any, cache_size: int) -> Any:
    """A transform, or those in a list, with a cache; anything else as it is."""
    if isinstance(value, list):
        return [_cached(v, cache_size) for v in value]
    return value.with_cache(cache_size) if cache_size and isinstance(value, Transform) else value


class _InverseTransform(Transform):
    """A transform the other way round."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(transform._cache_size)
        self._inv = transform

    domain = property(lambda self: self._inv.codomain)
    codomain = property(lambda self: self._inv.domain)
    bijective = property(lambda self: self._inv.bijective)
    sign = property(lambda self: self._inv.sign)

    def with_cache(self, cache_size: int = 1) -> Any:
        return self._inv.with_cache(cache_size).inv

    def __call__(self, x: Any) -> Any:
        return self._inv._inv_call(x)

    def _inv_call(self, y: Any) -> Any:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self._inv.log_abs_det_jacobian(y, x).neg()

    def forward_shape(self, shape: Any) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._inv.forward_shape(shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"


def _widened(region: Any, dims: int) -> Any:
    return C.independent(region, dims) if dims > 0 else region


class ComposeTransform(Transform):
    """Transforms one after another."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts: list[Any] = _cached(list(parts), cache_size)

    @C.dependent_property
    def domain(self) -> Any:  # type: ignore[override] - told of an object only
        return _widened(self.parts[0].domain, self._beyond()[0]) if self.parts else C.real

    @C.dependent_property
    def codomain(self) -> Any:  # type: ignore[override] - told of an object only
        return _widened(self.parts[-1].codomain, self._beyond()[-1]) if self.parts else C.real

    def _beyond(self) -> list[int]:
        """For each part, and the end, how many dimensions the values have beyond its own event: one part may need more than another has."""
        # The level of each part: dimensions of values before it, less those of the first.
        levels = [0]
        for part in self.parts:
            levels.append(levels[-1] + part.codomain.event_dim - part.domain.event_dim)
        whole = max(part.domain.event_dim - level for part, level in zip(self.parts, levels, strict=False))
        beyond = [whole + level - part.domain.event_dim for part, level in zip(self.parts, levels, strict=False)]
        return [*beyond, whole + levels[-1] - self.parts[-1].codomain.event_dim]

    bijective = property(lambda self: all(part.bijective for part in self.parts))

    @property
    def sign(self) -> Any:
        found: Any = 1
        for part in self.parts:
            found = part.sign * found
        return found

    @property
    def inv(self) -> Any:
        if self._inv is None:
            self._inv = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv._inv = self
        return self._inv

    def __call__(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    def _inv_call(self, y: Any) -> Any:
        return self.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return x.new_zeros(x.shape)
        total: Any = 0
        for i, (part, dims) in enumerate(zip(self.parts, self._beyond(), strict=False)):
            after = y if i == len(self.parts) - 1 else part(x)
            total = total + sum_rightmost(part.log_abs_det_jacobian(x, after), dims)
            x = after
        return total

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        return self.inv.forward_shape(shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    def __repr__(self) -> str:
        listed = ",\n    ".join(map(repr, self.parts))
        return f"{type(self).__name__}(\n    {listed}\n)"


identity_transform: Any = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform of which `reinterpreted_batch_ndims` more dimensions are one value."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform: Any = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @C.dependent_property
    def domain(self) -> Any:  # type: ignore[override] - told of an object only
        return C.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @C.dependent_property
    def codomain(self) -> Any:  # type: ignore[override] - told of an object only
        return C.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    bijective = property(lambda self: self.base_transform.bijective)
    sign = property(lambda self: self.base_transform.sign)

    def _call(self, x: Tensor) -> Tensor:
        _expect_dims(x.dim(), self.domain.event_dim)
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        _expect_dims(y.dim(), self.codomain.event_dim)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


def _expect_dims(there: int, least: int) -> None:
    if there < least:
        raise ValueError("Too few dimensions on input")


class ReshapeTransform(Transform):
    """Values of another shape: the last dimensions are `in_shape` before, `out_shape` afterwards."""

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size)

    @C.dependent_property
    def domain(self) -> Any:  # type: ignore[override] - told of an object only
        return C.independent(C.real, len(self.in_shape))

    @C.dependent_property
    def codomain(self) -> Any:  # type: ignore[override] - told of an object only
        return C.independent(C.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(_batch(x, self.in_shape) + self.out_shape)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(_batch(y, self.out_shape) + self.in_shape)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(_batch(x, self.in_shape))

    def forward_shape(self, shape: Any) -> Size:
        return _exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Size:
        return _exchanged(shape, self.out_shape, self.in_shape)


def _batch(x: Tensor, event: Size) -> Size:
    return x.shape[: x.dim() - len(event)]


def _exchanged(shape: Any, old: Size, new: Size) -> Size:
    _expect_dims(len(shape), len(old))
    at = len(shape) - len(old)
    if tuple(shape[at:]) != tuple(old):
        raise ValueError(f"Shape mismatch: expected {shape[at:]} but got {old}")
    return Size(shape[:at]) + new


class _Pieces(Transform):
    """Transforms of the parts of a value along `dim`."""

    def __init__(self, tseq: Sequence[Any], dim: int, cache_size: int) -> None:
        assert all(isinstance(t, Transform) for t in tseq), "All elements of tseq must be Transform instances"
        super().__init__(cache_size)
        self.transforms = _cached(list(tseq), cache_size)
        self.dim = dim

    bijective = property(lambda self: all(t.bijective for t in self.transforms))

    def _split(self, x: Tensor) -> list[Tensor]:
        raise NotImplementedError

    def _joined(self, parts: list[Tensor]) -> Tensor:
        raise NotImplementedError

    def _call(self, x: Tensor) -> Tensor:
        return self._joined([t(part) for t, part in zip(self.transforms, self._split(x), strict=True)])

    def _inverse(self, y: Tensor) -> Tensor:
        return self._joined([t.inv(part) for t, part in zip(self.transforms, self._split(y), strict=True)])

    def _log_dets(self, x: Tensor, y: Tensor) -> list[Tensor]:
        pairs = zip(self._split(x), self._split(y), strict=True)
        return [t.log_abs_det_jacobian(a, b) for t, (a, b) in zip(self.transforms, pairs, strict=True)]


class CatTransform(_Pieces):
    """Transforms of parts of `lengths` along `dim`, the results joined again."""

    def __init__(self, tseq: Sequence[Any], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        assert len(self.lengths) == len(self.transforms), f"tseq has length {len(self.transforms)}, lengths {len(self.lengths)}"

    event_dim: Any = property(lambda self: max(t.event_dim for t in self.transforms))
    length = property(lambda self: sum(self.lengths))

    @C.dependent_property
    def domain(self) -> Any:  # type: ignore[override] - told of an object only
        return C.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @C.dependent_property
    def codomain(self) -> Any:  # type: ignore[override] - told of an object only
        return C.cat([t.codomain for t in self.transforms], self.dim, self.lengths)

    def _split(self, x: Tensor) -> list[Tensor]:
        assert -x.dim() <= self.dim < x.dim(), f"dim {self.dim} out of range for input with {x.dim()} dims"
        assert x.size(self.dim) == self.length, f"x.size({self.dim}) = {x.size(self.dim)} must equal length {self.length}"
        return list(x.split(self.lengths, self.dim))

    def _joined(self, parts: list[Tensor]) -> Tensor:
        return cat(parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        most = self.event_dim
        found = [sum_rightmost(d, most - t.event_dim) for t, d in zip(self.transforms, self._log_dets(x, y), strict=True)]
        dim = (self.dim if self.dim < 0 else self.dim - x.dim()) + most
        if dim < 0:
            return cat(found, dim)
        total: Any = sum(found)
        return total


class StackTransform(_Pieces):
    """Transforms of the slices along `dim`, the results stacked again."""

    def __init__(self, tseq: Sequence[Any], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)

    @C.dependent_property
    def domain(self) -> Any:  # type: ignore[override] - told of an object only
        return C.stack([t.domain for t in self.transforms], self.dim)

    @C.dependent_property
    def codomain(self) -> Any:  # type: ignore[override] - told of an object only
        return C.stack([t.codomain for t in self.transforms], self.dim)

    def _split(self, x: Tensor) -> list[Tensor]:
        assert -x.dim() <= self.dim < x.dim(), f"dim {self.dim} out of range for input with {x.dim()} dims"
        there, wanted = x.size(self.dim), len(self.transforms)
        assert there == wanted, f"x.size({self.dim}) = {there} must equal len(transforms) {wanted}"
        return list(x.unbind(self.dim))

    def _joined(self, parts: list[Tensor]) -> Tensor:
        return stack(parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return stack(self._log_dets(x, y), self.dim)


class CumulativeDistributionTransform(Transform):
    """From the values of a distribution to their probabilities, by its `cdf`."""

    bijective, codomain, sign = True, C.unit_interval, 1  # type: ignore[assignment] - sign is no property here

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    domain: Any = property(lambda self: self.distribution.support)

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)
