"""The baseline tier: a jaxpr carried out with NumPy, primitive by primitive. What runs for the first time needs no compiler."""

from torchgrad_jax.runtime.baseline.likeness import same_plan
from torchgrad_jax.runtime.baseline.merging import Merged, Part
from torchgrad_jax.runtime.baseline.plan import Plan, plan_of
from torchgrad_jax.runtime.baseline.surroundings import carrying_out

__all__ = ["Merged", "Part", "Plan", "carrying_out", "plan_of", "same_plan"]
