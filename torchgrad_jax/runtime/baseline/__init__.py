"""The baseline tier: a jaxpr carried out with NumPy, primitive by primitive. What runs for the first time needs no compiler.

It gives XLA's results: in every bit where IEEE 754 says what they are, else within some units of the last place. One thing NumPy does right that XLA
does not on a CPU: numbers below the smallest normal one are no zeros.
"""

# Families of rules enter themselves.
from torchgrad_jax.runtime.baseline import (
    attention,
    control,
    converting,
    convolutions,
    elementwise,
    fourier,
    indexing,
    linear_algebra,
    loops,
    products,
    reducing,
    shaping,
    special,
)
from torchgrad_jax.runtime.baseline.carrying import carry_out
from torchgrad_jax.runtime.baseline.form import Forms, NumPyForm
from torchgrad_jax.runtime.baseline.inlining import contains, jaxprs_in
from torchgrad_jax.runtime.baseline.likeness import same_plan
from torchgrad_jax.runtime.baseline.merging import Merged, Part
from torchgrad_jax.runtime.baseline.plan import Plan, is_elementwise, plan_of
from torchgrad_jax.runtime.baseline.surroundings import quiet_context, quietly

__all__ = [
    "Forms", "Merged", "NumPyForm", "Part", "Plan", "attention", "carry_out", "contains", "control", "converting", "convolutions", "elementwise",
    "fourier",
    "indexing", "is_elementwise", "jaxprs_in", "linear_algebra", "loops", "plan_of", "products", "quiet_context", "quietly",
    "reducing", "same_plan", "shaping", "special",
]  # fmt: skip
