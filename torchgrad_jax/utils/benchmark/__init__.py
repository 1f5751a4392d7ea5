"""`torch.utils.benchmark`: statements timed often enough, and tables of the results."""

from torchgrad_jax.utils.benchmark.compare import Compare
from torchgrad_jax.utils.benchmark.measurement import Measurement, TaskSpec, ordered_unique, select_unit, trim_sigfig, unit_to_english
from torchgrad_jax.utils.benchmark.timing import Language, Timer, timer

__all__ = [
    "Compare", "Language", "Measurement", "TaskSpec", "Timer", "ordered_unique", "select_unit", "timer", "trim_sigfig", "unit_to_english",
]  # fmt: skip
