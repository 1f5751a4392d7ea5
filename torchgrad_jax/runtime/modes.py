"""The execution modes: `fused` records and runs whole programs, `eager` runs each operation at once."""

from __future__ import annotations

import os
from types import TracebackType

from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.native.handlers import work_alone

MODES = ("fused", "eager")

execution: str = os.environ.get("TORCHGRAD_JAX_EXECUTION", "fused")
if execution not in MODES:
    raise ValueError(f"TORCHGRAD_JAX_EXECUTION must be one of {MODES}, not {execution!r}")

# Whether new programs are interpreted before they are compiled; without, everything runs by XLA.
_SWITCH = os.environ.get("TORCHGRAD_JAX_BASELINE", "on")
if _SWITCH not in ("on", "off"):
    raise ValueError(f"TORCHGRAD_JAX_BASELINE must be on or off, not {_SWITCH!r}")
baseline: bool = _SWITCH == "on"
# Whether operations whose jaxprs are written down are not traced for the interpreter: see `jaxprs`.
_SWITCH = os.environ.get("TORCHGRAD_JAX_TABLE", "on")
if _SWITCH not in ("on", "off"):
    raise ValueError(f"TORCHGRAD_JAX_TABLE must be on or off, not {_SWITCH!r}")
table: bool = _SWITCH == "on"
# When checks of values are made: at the "look" at what depends on them, or "now", at the call, as PyTorch makes them (at the price of running
# each program up to there).
checks: str = os.environ.get("TORCHGRAD_JAX_CHECK", "look")
if checks not in ("look", "now"):
    raise ValueError(f"TORCHGRAD_JAX_CHECK must be look or now, not {checks!r}")
# Whether a program keeps the tier that it began with: `torch.use_deterministic_algorithms(True)`.
deterministic: bool = False
# Anomaly mode, of the whole process: the bits that each thread's `Recorder.rare` has for it, 0 while it is off. See `recorder.set_anomaly`.
anomaly: int = 0
# How many blocks of code are active in which each operation is run by itself.
same_tier_blocks: int = 0

# Why XLA neither compiles nor runs anything in this process, so that only what can be interpreted runs; empty where it does.
without_xla: str = ""
FORKED = "this process was forked from one that had used XLA, whose threads stayed there"
_ADVICE = "Start workers by multiprocessing.set_start_method('spawn') or 'forkserver', or fork before the first computation"
_instead: str = ""


# PyTorch's names of how float32 is multiplied on accelerators -> JAX's. The CPU always multiplies exactly.
PRECISIONS = {"highest": "highest", "high": "tensorfloat32", "medium": "bfloat16"}
matmul_precision: str = "highest"


class baseline_tier:
    """Context manager (or plain call) that sets whether new programs are interpreted on the host before they are compiled (default), or all is
    run by XLA.

    It holds for all threads, for programs met from then on: one that is known keeps what was decided for it.
    """

    def __init__(self, mode: bool) -> None:
        global baseline
        self.previous = baseline
        baseline = bool(mode)

    def __enter__(self) -> baseline_tier:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        global baseline
        baseline = self.previous


class same_tier:
    """Context manager in which each operation is run by itself, in all threads: the same one gives the same bits whichever program it is in.

    What can be interpreted is; the rest XLA runs one by one.
    """

    def __enter__(self) -> None:
        global same_tier_blocks
        same_tier_blocks += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        global same_tier_blocks
        same_tier_blocks -= 1


def note_fork() -> None:
    """In the child of a fork."""
    if counters.ever_compiled:
        do_without_xla(FORKED, _ADVICE)


def do_without_xla(why: str, instead: str) -> None:
    """From now on nothing is compiled in this process, nor run by XLA. why: for whom; instead: what to do where something cannot be interpreted."""
    global without_xla, _instead
    without_xla, _instead = why, instead
    work_alone()


def interprets() -> bool:
    """Whether what has a form for NumPy may be run by it."""
    return baseline or bool(without_xla)


def refuse_xla(name: str) -> None:
    """RuntimeError where the operator `name` would be run by XLA in a process that does without: after a fork it would wait for ever for threads
    that stayed in the parent."""
    if without_xla:
        raise RuntimeError(f"torchgrad_jax cannot run {name} here: it has no form for NumPy, and {without_xla}. {_instead}")


def set_deterministic(mode: bool) -> None:
    """Let each program keep the tier that it began with, or be compiled when it is hot (default)."""
    global deterministic
    deterministic = mode


def set_matmul_precision(precision: str) -> None:
    """Multiply float32 on accelerators as one of `PRECISIONS` says, in operations that are new from here on."""
    global matmul_precision
    matmul_precision = precision


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=note_fork)
