"""The ways in which a program runs: interpreted at first, compiled, or one operation after the other."""

import contextlib

from torchgrad_jax.runtime import baseline_tier, execution_mode

WAYS = {"interpreted": contextlib.nullcontext, "compiled": lambda: baseline_tier(False), "eager": lambda: execution_mode("eager")}
