"""What all distributions have: parameters declared in one table, shapes that follow from these, checks, copies of another batch shape."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import torchgrad_jax.distributions.constraints as C
from torchgrad_jax.autograd.backward import grad
from torchgrad_jax.autograd.grad_mode import enable_grad, no_grad
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.distributions.utils import sum_rightmost, tensors
from torchgrad_jax.functions.questions import _is_all_true, broadcast_shapes
from torchgrad_jax.functions.shaping import broadcast_tensors, stack
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["Distribution"]

_SCALAR = Size()
_PACKAGE = __name__.rpartition(".")[0]


def _undefined(doc: str, complaint: str = "") -> property:
    """A property that subclasses define."""

    def ask(self: Any) -> Any:
        raise NotImplementedError(f"{type(self)}{complaint}") if complaint else NotImplementedError

    return property(ask, doc=doc)


class Distribution:
    """A probability distribution over events of shape `event_shape`; a batch of them, of shape `batch_shape`.

    A subclass lists its parameters in `arg_constraints`: the name of each and where it may lie. The last `event_dim` dimensions of the
    constraint belong to one distribution, those before are the batch. From the list follow broadcasting (`_law_given`), checks, `expand`,
    `repr`.

    Args:
        batch_shape, event_shape: shapes of the batch and of one event.
        validate_args: whether parameters and values are checked, which looks at them. None: as `set_default_validate_args` says.
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args: bool = __debug__
    # Event dimensions of the parameters, where `arg_constraints` can be told of objects only.
    _law_ranks: ClassVar[dict[str, int]] = {}
    # Attributes, beside the parameters, that a copy of another batch shape has too. Distributions among them are expanded.
    _law_carried: ClassVar[tuple[str, ...]] = ()
    # Parameters that were given, though others are kept, of which they are computed.
    _law_standing_for_given: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions made from now on check their arguments."""
        if value is not True and value is not False:
            raise ValueError
        Distribution._validate_args = value

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # parameters are attributes

    def __init__(self, batch_shape: Any = _SCALAR, event_shape: Any = _SCALAR, validate_args: bool | None = None) -> None:
        self._batch_shape, self._event_shape = batch_shape, event_shape
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._law_check_parameters()
        super().__init__()

    # ------------------------------------------------------------------ parameters

    def _law_given(self, validate_args: bool | None, event: tuple[str, int] | None = None, /, **parameters: Any) -> None:
        """Take the parameters: make their batches one, keep them as attributes, then initialize. `event` names the parameter that has the event, and
        says of how many dimensions that is."""
        ranks = {name: self._law_rank(name) for name in parameters}
        values = dict(zip(parameters, tensors(*parameters.values()), strict=True))
        if len(values) == 1:
            [(name, value)] = values.items()
            batch = value.shape[: value.dim() - ranks[name]]
        elif not any(ranks.values()):
            values = dict(zip(values, broadcast_tensors(*values.values()), strict=True))
            batch = next(iter(values.values())).shape
        else:
            batch = broadcast_shapes(*(v.shape[: v.dim() - ranks[name]] for name, v in values.items()))
            values = {name: _with_batch(v, batch, ranks[name]) for name, v in values.items()}
        vars(self).update(values)
        Distribution.__init__(self, batch, values[event[0]].shape[-event[1] :] if event else _SCALAR, validate_args)

    @classmethod
    @cache
    def _law_tables(cls) -> dict[str, Any]:
        """The constraints of all parameters, those that a subclass does not list again too. Those told of objects only are None.
        Asked once of each class, as long as the process lives."""
        found: dict[str, Any] = dict.fromkeys(cls._law_ranks)
        for kind in reversed(cls.__mro__):
            table = vars(kind).get("arg_constraints")
            if isinstance(table, dict):
                found.update(table)
        return found

    @classmethod
    def _law_rank(cls, name: str) -> int:
        """How many of a parameter's last dimensions belong to one distribution."""
        region = cls._law_tables()[name]
        return cls._law_ranks[name] if region is None else region.event_dim

    def _law_check_parameters(self) -> None:
        try:
            table = self.arg_constraints
        except NotImplementedError:
            warn_user(
                f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize the distribution with "
                "`validate_args=False` to turn off validation."
            )
            return
        # What follows from another parameter is computed only when it is asked for: what is checked was given, or stands for what was.
        given = {**vars(self), **{name: getattr(self, name) for name in self._law_standing_for_given}}
        asked = [(name, c, given[name]) for name, c in table.items() if name in given and not C.is_dependent(c)]
        answers = {name: _is_all_true(c.check(value)) for name, c, value in asked if not c.holds(value)}
        if not answers or _looked_at(list(answers.values())):
            return
        name = next(name for name, fine in answers.items() if not fine)
        value = getattr(self, name)
        raise ValueError(
            f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
            f"{table[name]!r}, but found invalid values:\n{value}"
        )

    # ------------------------------------------------------------------ shapes

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one event, without batch."""
        return self._event_shape

    def _extended_shape(self, sample_shape: Any = _SCALAR) -> Size:
        """The shape of `sample_shape` samples of the whole batch."""
        return Size(tuple(sample_shape) + self._batch_shape + self._event_shape)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The distribution with its parameters expanded (not copied) to `batch_shape`.

        `_instance` is for subclasses with an `__init__` of their own: an object, made by `_get_checked_instance`, to be filled. Raises
        NotImplementedError where a subclass has one, and does not redefine `expand`."""
        made = self._get_checked_instance(_of_library(type(self)), _instance)
        self._law_fill(made, Size(batch_shape))
        return made

    def _law_fill(self, made: Any, batch: Size) -> None:
        """Let `made`, not initialized, be this distribution with another batch shape."""
        mine = vars(self)
        names = [name for name in self._law_tables() if name in mine]
        if not names and not self._law_carried:
            raise NotImplementedError
        for name in names:
            vars(made).setdefault(name, _with_batch(mine[name], batch, self._law_rank(name)))
        for name in self._law_carried:
            value = getattr(self, name)
            setattr(made, name, value.expand(batch) if isinstance(value, Distribution) else value)
        Distribution.__init__(made, batch, self._event_shape, validate_args=False)
        made._validate_args = self._validate_args

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """An object of this class, not initialized, or the given one."""
        if _instance is not None:
            return _instance
        if type(self).__init__ is not cls.__init__:
            kind = type(self).__name__
            raise NotImplementedError(
                f"Subclass {kind} of {cls.__name__} that defines a custom __init__ method must also define a custom .expand() method."
            )
        return self.__new__(type(self))

    # ------------------------------------------------------------------ what subclasses define

    arg_constraints: Any = _undefined("Where each parameter may lie, by its name.")
    support: Any = _undefined("Where samples lie.")
    mean: Any = _undefined("The mean.")
    mode: Any = _undefined("The most probable value.", " does not implement mode")
    variance: Any = _undefined("The variance.")
    stddev: Any = property(lambda self: self.variance.sqrt(), doc="The standard deviation.")

    def sample(self, sample_shape: Any = _SCALAR) -> Tensor:
        """Samples, `sample_shape` for each distribution of the batch, without gradients."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = _SCALAR) -> Tensor:
        """Samples that are differentiable functions of the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """`n` samples. Deprecated: `sample((n,))`."""
        warn_user("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning)
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or probability, at `value`."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of not more than `value`."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values, along a new first dimension; `expand`: for each distribution of the batch."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy, in nats."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return self.entropy().exp()

    # ------------------------------------------------------------------ values

    def _law_checked(self, value: Any) -> Any:
        """The value, after it was checked where that is wanted."""
        if self._validate_args:
            self._validate_sample(value)
        return value

    def _validate_sample(self, value: Any) -> None:
        """Raises ValueError where `value` is no tensor, has not the shape of events or batch, or does not lie within the support."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        shape, event = value.shape, self._event_shape
        if shape[len(shape) - len(event) :] != event or len(shape) < len(event):
            raise ValueError(f"The right-most size of value must match event_shape: {shape} vs {event}.")
        whole = self._batch_shape + event
        if any(a != b and 1 not in (a, b) for a, b in zip(reversed(shape), reversed(whole), strict=False)):
            raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {shape} vs {whole}.")
        try:
            support = self.support
        except NotImplementedError:
            warn_user(
                f"{type(self)} does not define `support` to enable sample validation. Please initialize the distribution with "
                "`validate_args=False` to turn off validation."
            )
            return
        if not support.holds(value) and not _is_all_true(support.check(value)):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(shape)}) to be within the support ({support!r}) of the "
                f"distribution {self!r}, but found invalid values:\n{value}"
            )

    def __repr__(self) -> str:
        shown = {name: vars(self)[name] for name in self.arg_constraints if name in vars(self)}
        listed = ", ".join(f"{name}: {value if value.numel() == 1 else value.size()}" for name, value in shown.items())
        return f"{type(self).__name__}({listed})"


def _looked_at(answers: list[Tensor]) -> bool:
    """Whether all are true: one look for all of them."""
    return bool(stack(answers).all() if len(answers) > 1 else answers[0])


def _with_batch(value: Tensor, batch: Size, rank: int) -> Tensor:
    shape = batch + value.shape[value.dim() - rank :]
    return value if value.shape == shape else value.expand(shape)


def _of_library(kind: type) -> type:
    """The nearest class that is not a user's."""
    return next(c for c in kind.__mro__ if c.__module__.startswith(_PACKAGE))


class ExponentialFamily(Distribution):
    """Densities exp(t(x) . theta - F(theta) + k(x)): natural parameters theta, log-normalizer F, carrier measure k.

    Its first derivative by theta is the mean of t; so entropies and divergences within a family follow from F alone (Nielsen & Nock, "Entropies
    and cross-entropies of exponential families", ICIP 2010)."""

    _natural_params: Any = _undefined("theta.")
    _mean_carrier_measure: Any = _undefined("The mean of k.")

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    def _law_normalizer(self) -> tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]:
        """F, theta and the means of t."""
        with enable_grad():
            theta = tuple(p.detach().requires_grad_() for p in self._natural_params)
            value = self._log_normalizer(*theta)
            return value, theta, grad(value.sum(), theta, create_graph=True)

    def entropy(self) -> Tensor:
        carried = self._mean_carrier_measure
        value, theta, means = self._law_normalizer()
        return value - carried - sum(sum_rightmost(t * m, t.dim() - value.dim()) for t, m in zip(theta, means, strict=True))
