"""Distributions of angles (Mardia & Jupp, "Directional Statistics", 2000)."""

from __future__ import annotations

import math
from typing import Any

import torchgrad_jax.distributions.constraints as C
from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.distributions.distribution import Distribution
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.functions.overloads import where
from torchgrad_jax.functions.random_factories import rand


class VonMises(Distribution):
    """Angles about `loc`; the larger the `concentration`, the nearer to it."""

    arg_constraints = {"loc": C.real, "concentration": C.positive}
    support = C.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._law_given(validate_args, loc=loc, concentration=concentration)

    mean: Any = property(lambda self: self.loc)
    mode: Any = property(lambda self: self.loc)
    variance: Any = property(lambda self: 1 - call("special_i1e", self.concentration) / call("special_i0e", self.concentration))

    def log_prob(self, value: Tensor) -> Tensor:
        k = self.concentration
        log_bessel = call("special_i0e", k).log() + k
        return k * (self._law_checked(value) - self.loc).cos() - math.log(2 * math.pi) - log_bessel

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """By rejection from a wrapped Cauchy distribution (Best & Fisher, "Efficient simulation of the von Mises distribution", 1979), in float64.
        Looks at whether all are accepted."""
        shape = self._extended_shape(sample_shape)
        with no_grad():
            k = self.concentration.to(dtypes.float64)
            r = _proposal(k).expand(shape)
            k, angle, done = k.expand(shape), k.new_zeros(shape), k.new_zeros(shape, dtype=dtypes.bool_)
            while not done.all():
                turn, accept, side = rand((3, *shape), dtype=k.dtype, device=k.device).unbind(0)
                z = (math.pi * turn).cos()
                cosine = (1 + r * z) / (r + z)
                c = k * (r - cosine)
                fits = (c * (2 - c) > accept) | ((c / accept).log() + 1 - c >= 0)
                angle = angle.where(~fits, (side - 0.5).sign() * cosine.acos())
                done = done | fits
            whole = (angle + math.pi + self.loc.to(dtypes.float64)) % (2 * math.pi) - math.pi
            return whole.to(self.loc.dtype)


def _proposal(k: Tensor) -> Tensor:
    """The parameter of the wrapped Cauchy distribution to reject from; its series where the concentration is too small for the formula."""
    tau = 1 + (1 + 4 * k.square()).sqrt()
    rho = (tau - (2 * tau).sqrt()) / (2 * k)
    return where(k < 1e-5, 1 / k + k, (1 + rho.square()) / (2 * rho))
