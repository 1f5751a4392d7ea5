"""Where the values of parameters and samples may lie. A constraint is a question about values (`check`), with how many of the last dimensions one
answer is about (`event_dim`) and whether the values are discrete.

Most are rows of a table: a name, the bounds, the question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.core.level import in_transform
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.limits import finfo
from torchgrad_jax.functions.matrices.decompositions import cholesky_ex, eigvalsh
from torchgrad_jax.functions.shaping import cat as concatenate
from torchgrad_jax.functions.shaping import stack as stacked

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than",
    "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky",
    "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_definite", "positive_integer",
    "positive_semidefinite", "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip

# How far rounding may carry sums of probabilities, and matrices from their transposes.
_ROUNDING = 1e-6


class Constraint:
    """A region of values.

    Attributes: `is_discrete`, whether it has isolated points only; `event_dim`, the number of last dimensions that make one value.
    """

    is_discrete: Any = False
    event_dim: Any = 0

    def check(self, value: Any) -> Tensor:
        """Whether each value lies within: booleans of `value`'s shape without its last `event_dim` dimensions."""
        raise NotImplementedError

    def holds(self, value: Tensor) -> bool:
        """Whether all values are at hand, on the host, and lie within: then `check`, which is recorded and run, need not be asked."""
        return False

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}()"


class _Bounded(Constraint):
    """A region with bounds, which are attributes by the names in `bounds`."""

    bounds: tuple[str, ...] = ()

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={getattr(self, name)}" for name in self.bounds)
        return f"{super().__repr__()[:-1]}{listed})"


class _Below(_Bounded):
    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound


class _Above(_Bounded):
    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class _Within(_Bounded):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


_BY_BOUNDS: dict[tuple[str, ...], type[Constraint]] = {
    (): Constraint, ("upper_bound",): _Below, ("lower_bound",): _Above, ("lower_bound", "upper_bound"): _Within,
}  # fmt: skip


def _region(name: str, question: Callable[..., Tensor], *bounds: str, discrete: bool = False, event_dim: int = 0, base: Any = None) -> Any:
    """The class of the regions in which `question(value, *bounds)` is answered by yes."""

    def check(self: Any, value: Any) -> Tensor:
        return question(value, *(getattr(self, bound) for bound in bounds))

    def holds(self: Any, value: Tensor) -> bool:
        of_numbers = type(self).check is check and all([isinstance(getattr(self, bound), (int, float)) for bound in bounds])
        array = _at_hand(value) if of_numbers and event_dim < 2 else None  # questions about matrices are asked of tensors only
        if array is None or array.ndim < event_dim:
            return False
        with np.errstate(invalid="ignore"):
            return bool(np.all(check(self, array)))

    contents = {
        "__module__": __name__, "__doc__": question.__doc__, "check": check, "holds": holds, "is_discrete": discrete, "event_dim": event_dim,
        "bounds": bounds,
    }  # fmt: skip
    return type(name, (base or _BY_BOUNDS[bounds],), contents)


def _at_hand(value: Any) -> np.ndarray | None:
    return value._read().at_hand() if type(value) is Tensor and not in_transform() else None


def _whole(value: Any, inside: Any) -> Any:
    """Which values are integers and `inside`."""
    floating = value.dtype.kind not in "biu" if isinstance(value, np.ndarray) else value.is_floating_point()
    return (value % 1 == 0) & inside if floating else inside


def _all_along(answers: Any, dims: int) -> Any:
    """Whether all are true along the last `dims` dimensions."""
    if isinstance(answers, np.ndarray):
        return answers.all(tuple(range(-dims, 0)))
    return answers.flatten(-dims).all(-1) if dims else answers


# ---------------------------------------------------------------------- numbers

_Real = _region("_Real", lambda x: x == x)
_Boolean = _region("_Boolean", lambda x: (x == 0) | (x == 1), discrete=True)
_GreaterThan = _region("_GreaterThan", lambda x, low: x > low, "lower_bound")
_GreaterThanEq = _region("_GreaterThanEq", lambda x, low: x >= low, "lower_bound")
_LessThan = _region("_LessThan", lambda x, high: x < high, "upper_bound")
_Interval = _region("_Interval", lambda x, low, high: (x >= low) & (x <= high), "lower_bound", "upper_bound")
_HalfOpenInterval = _region("_HalfOpenInterval", lambda x, low, high: (x >= low) & (x < high), "lower_bound", "upper_bound")
_IntegerInterval = _region("_IntegerInterval", lambda x, low, high: _whole(x, (x >= low) & (x <= high)), "lower_bound", "upper_bound", discrete=True)
_IntegerLessThan = _region("_IntegerLessThan", lambda x, high: _whole(x, x <= high), "upper_bound", discrete=True)
_IntegerGreaterThan = _region("_IntegerGreaterThan", lambda x, low: _whole(x, x >= low), "lower_bound", discrete=True)

# ---------------------------------------------------------------------- vectors


def _is_one_hot(x: Tensor) -> Tensor:
    return _all_along((x == 0) | (x == 1), 1) & (x.sum(-1) == 1)


def _is_simplex(x: Tensor) -> Tensor:
    return _all_along(x >= 0, 1) & (abs(x.sum(-1) - 1) < _ROUNDING)


def _are_counts(x: Tensor, total: Any) -> Tensor:
    return _all_along(x >= 0, 1) & (x.sum(-1) <= total)


_OneHot = _region("_OneHot", _is_one_hot, discrete=True, event_dim=1)
_Simplex = _region("_Simplex", _is_simplex, event_dim=1)
_Multinomial = _region("_Multinomial", _are_counts, "upper_bound", discrete=True, event_dim=1)
_Multinomial.__repr__ = Constraint.__repr__

# ---------------------------------------------------------------------- matrices


def _is_square(x: Tensor) -> Tensor:
    rows, columns = x.shape[-2:]
    return x.new_ones(x.shape[:-2]).bool() if rows == columns else x.new_zeros(x.shape[:-2]).bool()


def _is_symmetric(x: Tensor) -> Tensor:
    if x.shape[-2] != x.shape[-1]:
        return _is_square(x)
    return _all_along(x.isclose(x.mT, atol=_ROUNDING), 2)


def _is_definite(x: Tensor) -> Tensor:
    answer = _is_symmetric(x)
    return answer & (cholesky_ex(x).info == 0) if x.shape[-2] == x.shape[-1] else answer


def _is_semidefinite(x: Tensor) -> Tensor:
    answer = _is_symmetric(x)
    return answer & _all_along(eigvalsh(x) >= 0, 1) if x.shape[-2] == x.shape[-1] else answer


def _is_lower(x: Tensor) -> Tensor:
    return _all_along(x == x.tril(), 2)


def _is_factor(x: Tensor) -> Tensor:
    return _is_lower(x) & _all_along(x.diagonal(dim1=-2, dim2=-1) > 0, 1)


def _is_factor_of_correlations(x: Tensor) -> Tensor:
    far = (x.square().sum(-1).sqrt() - 1).abs()
    return _is_factor(x) & _all_along(far <= 10 * x.shape[-1] * finfo(x.dtype).eps, 1)


_Square = _region("_Square", _is_square, event_dim=2)
_Symmetric = _region("_Symmetric", _is_symmetric, event_dim=2, base=_Square)
_PositiveSemidefinite = _region("_PositiveSemidefinite", _is_semidefinite, event_dim=2, base=_Symmetric)
_PositiveDefinite = _region("_PositiveDefinite", _is_definite, event_dim=2, base=_Symmetric)
_LowerTriangular = _region("_LowerTriangular", _is_lower, event_dim=2)
_LowerCholesky = _region("_LowerCholesky", _is_factor, event_dim=2)
_CorrCholesky = _region("_CorrCholesky", _is_factor_of_correlations, event_dim=2)

# ---------------------------------------------------------------------- made of others


class _IndependentConstraint(Constraint):
    """Values of which the last `reinterpreted_batch_ndims` batch dimensions must all lie within another region."""

    def __init__(self, base_constraint: Any, reinterpreted_batch_ndims: int) -> None:
        _expect_constraint(base_constraint)
        assert reinterpreted_batch_ndims >= 0, f"reinterpreted_batch_ndims must be >= 0, got {reinterpreted_batch_ndims}"
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim + self.reinterpreted_batch_ndims)

    def check(self, value: Tensor) -> Tensor:
        answers = self.base_constraint.check(value)
        if answers.dim() < self.reinterpreted_batch_ndims:
            least = self.event_dim
            raise ValueError(f"Expected value.dim() >= {least} but got {value.dim()}")
        return _all_along(answers, self.reinterpreted_batch_ndims)

    def holds(self, value: Tensor) -> bool:
        """See `Constraint`."""
        return value.dim() >= self.event_dim and self.base_constraint.holds(value)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}{self.base_constraint}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """Values that lie within the region of every component, these being along the last batch dimension."""

    def __init__(self, base_constraint: Any) -> None:
        _expect_constraint(base_constraint)
        self.base_constraint = base_constraint

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim)

    def check(self, value: Tensor) -> Tensor:
        """Whether each value is in the support of all components."""
        at = -1 - self.event_dim
        if value.dim() < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return self.base_constraint.check(value.unsqueeze(at)).all(-1)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}{self.base_constraint})"


class _Parts(Constraint):
    """Regions of the parts of a value along a dimension."""

    def __init__(self, cseq: Sequence[Any], dim: int) -> None:
        assert all(isinstance(c, Constraint) for c in cseq), "All elements of cseq must be Constraint instances"
        self.cseq, self.dim = list(cseq), dim

    is_discrete = property(lambda self: any(c.is_discrete for c in self.cseq))


class _Cat(_Parts):
    """Values made of parts of several `lengths` along `dim`, each within a region of its own."""

    def __init__(self, cseq: Sequence[Any], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        assert len(self.lengths) == len(self.cseq), f"cseq has length {len(self.cseq)}, lengths {len(self.lengths)}"

    event_dim = property(lambda self: max(c.event_dim for c in self.cseq))

    def check(self, value: Tensor) -> Tensor:
        assert -value.dim() <= self.dim < value.dim(), f"dim {self.dim} out of range for value of dim {value.dim()}"
        parts = value.narrow(self.dim, 0, sum(self.lengths)).split(self.lengths, self.dim)
        return concatenate([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


class _Stack(_Parts):
    """Values of which each slice along `dim` is within a region of its own."""

    def __init__(self, cseq: Sequence[Any], dim: int = 0) -> None:
        super().__init__(cseq, dim)

    @property
    def event_dim(self) -> int:
        deepest = max(c.event_dim for c in self.cseq)
        return deepest + (self.dim + deepest < 0)

    def check(self, value: Tensor) -> Tensor:
        assert -value.dim() <= self.dim < value.dim(), f"dim {self.dim} out of range for value of dim {value.dim()}"
        return stacked([c.check(value.select(self.dim, i)) for i, c in enumerate(self.cseq)], self.dim)


# ---------------------------------------------------------------------- regions that depend on other values


def _known(name: str) -> property:
    def told(self: Any) -> Any:
        found = vars(self).get(name, NotImplemented)
        if found is NotImplemented:
            raise NotImplementedError(f".{name[1:]} cannot be determined statically")
        return found

    return property(told)


class _Dependent(Constraint):
    """A region that depends on other values; what is known of it beforehand may be said."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    is_discrete, event_dim = _known("_is_discrete"), _known("_event_dim")

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        """The like, with more said of it."""
        said = {"is_discrete": (is_discrete, self._is_discrete), "event_dim": (event_dim, self._event_dim)}
        return _Dependent(**{name: old if new is NotImplemented else new for name, (new, old) in said.items()})

    def check(self, value: Any) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


class _DependentProperty(property, _Dependent):
    """A property that is a region: on the class it is dependent, on an object it is what the function returns. A decorator."""

    def __init__(self, fn: Callable[..., Any] | None = None, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        property.__init__(self, fn)
        _Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Callable[..., Any]) -> _DependentProperty:  # type: ignore[override] - a decorator takes a function
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


def is_dependent(constraint: Any) -> bool:
    """Whether what lies within depends on other values."""
    return isinstance(constraint, _Dependent)


def _expect_constraint(given: Any) -> None:
    assert isinstance(given, Constraint), f"base_constraint must be a Constraint, got {type(given).__name__}"


# ---------------------------------------------------------------------- public names

cat, stack, independent, multinomial = _Cat, _Stack, _IndependentConstraint, _Multinomial
dependent, dependent_property = _Dependent(), _DependentProperty
greater_than, greater_than_eq, less_than = _GreaterThan, _GreaterThanEq, _LessThan
interval, half_open_interval, integer_interval = _Interval, _HalfOpenInterval, _IntegerInterval
real, real_vector, boolean = _Real(), _IndependentConstraint(_Real(), 1), _Boolean()
positive, nonnegative, unit_interval = _GreaterThan(0.0), _GreaterThanEq(0.0), _Interval(0.0, 1.0)
nonnegative_integer, positive_integer = _IntegerGreaterThan(0), _IntegerGreaterThan(1)
one_hot, simplex = _OneHot(), _Simplex()
square, symmetric, positive_definite, positive_semidefinite = _Square(), _Symmetric(), _PositiveDefinite(), _PositiveSemidefinite()
lower_triangular, lower_cholesky, corr_cholesky = _LowerTriangular(), _LowerCholesky(), _CorrCholesky()
