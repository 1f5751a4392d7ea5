"""What running a program costs, by estimate: interpreted, and compiled. See `tiers`, which decides by it.

This is compiled where there is a compiler (`torchgrad_jax/_typed`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.baseline.cost import FUSED, STEP, ChainCosts
from torchgrad_jax.runtime.device import CPU, device
from torchgrad_jax.runtime.recording.fields import CallFields

# Estimated nanoseconds, measured on 2 cores of an AMD EPYC.
COMPILE, COMPILE_PRIMITIVE = 25e6, 1.25e6  # compiling any executable; and for each primitive in it that is fused
FIRST, MANY = 2.2, 50  # how much of the latter the first ones that have plans take besides, and how many these are
OPERATION = 500.0  # what the interpreter spends on an operation beside its primitives
AGAIN = 0.3  # the share of the latter that an operation takes again, which is fused with the one before it
ALONE = 20_000.0  # an operation by its own compiled function
CALL, OUTPUT = 20_000.0, 3_000.0  # calling a compiled program; and for each of its outputs
SETTLED = 12_000.0  # so much of the former is saved where nothing is left to be decided (`runtime.settled`)
# What compiling saves of a program that has become one list of calls has to be more than this share, by estimate: of seven where it was less four
# were slower when compiled, by 4 to 11 %, and none of the others had won what compiling takes after 1,000 turns.
LEAST_SAVED = 0.1
# XLA's CPU client wakes another thread where more than eight kernels could begin at once, as where so many operations read inputs alone, and waits
# for it: 70 to 130 us of programs that take 100 to 200 on one processor, seen on 2 cores of a Xeon.
AT_ONCE, WAKING = 8, 50_000.0
KERNEL = 500.0  # what XLA takes for each kernel in a loop, beside what it computes
# So few operations XLA has nothing to fuse with: it takes as long for each as the interpreter.
FEW = 2
# An operation estimated above this is XLA's from the first time on: compiling it costs about as much as interpreting it once.
MOST = 3e7
# How many primitives an operation without a plan is taken for.
UNKNOWN_SIZE = 10
# What is read of a device by the interpreter takes so long, and so long a byte: taken for what PCIe gives, not measured.
READ, READ_BYTE = 20_000.0, 0.1
# An operation on an accelerator that reads or makes more bytes than this is XLA's: they need not be on the host as well.
MOST_BYTES = 1 << 25


class Prices(NamedTuple):
    """What a device takes, as the constants above: `compiling`, and each `primitive` of it; `calling`; which share of the interpreter's time the
    same primitives take when compiled (`fused`), and others (`alike`); and above which an operation is XLA's."""

    compiling: float
    primitive: float
    calling: float
    fused: float
    alike: float
    most: float


# Measured on an NVIDIA H200, beside 16 cores: 0.1 s for an operation, 0.3 for a step of three layers with Adam (283 primitives), 1.3 for a ResNet's
# (1,908), 3.6 for a Transformer's of six layers (4,487). A compiled program runs while Python goes on.
ON_ACCELERATORS = Prices(1e8, 8e5, 60_000.0, 0.0, 0.0, 1e8)


def prices(where: device) -> Prices:
    """Those of a device."""
    return Prices(COMPILE, COMPILE_PRIMITIVE, CALL, FUSED, 1.0, MOST) if where is CPU else ON_ACCELERATORS


class Estimate:
    """What a program's plans say about it, in estimated nanoseconds: `interpreting` it, `calling` its compiled form, `compiling` it, and `one`
    operation by itself.

    plans: for each call its plan, None where XLA runs it by itself. planned: whether any has one; whole: whether all have. small: whether all have
    plans, and calling what is compiled would even then cost no less than interpreting. refined: whether it is told of what the plans have become.
    """

    __slots__ = ("plans", "planned", "whole", "small", "interpreting", "calling", "compiling", "one", "refined", "_steps", "_fusible")

    def __init__(self, calls: list[Any], outputs: int, where: device) -> None:
        price = prices(where)
        self.one, self._fusible, self.refined = price.compiling, 0.0, False
        self.compiling, self.interpreting = price.compiling, 0.0 if where is CPU else _reading(calls)
        running = self._add(calls, price, where is CPU)
        self.calling = price.calling + OUTPUT * outputs + running + (WAKING if where is CPU and _beginnings(calls) > AT_ONCE else 0.0)
        self.planned, self.whole = any(self.plans), all(self.plans)
        self.small = self.whole and self.interpreting <= self.calling
        self._steps = OPERATION * len(calls) + (STEP * sum([plan.size for plan in self.plans]) if self.whole else 0.0)

    def refine(self, calls: int, chains: ChainCosts) -> None:
        """All plans have become one list of so many calls, with these chains. What is called again and again has become the cheaper, too."""
        if not self.whole or self.refined:
            return
        self.refined = True
        self.interpreting += chains.chained - chains.apart + STEP * calls - self._steps
        self.calling += chains.compiled - min(chains.unfused, self._fusible) - SETTLED
        self.small = (1 - LEAST_SAVED) * self.interpreting <= self.calling

    def saved_by_loops(self, calls: int, chains: ChainCosts) -> float:
        """What a call of the program with loops, compiled, saves of a run of it by the interpreter, of so many calls, with these chains."""
        interpreting = self.interpreting + chains.chained - chains.apart + STEP * calls - self._steps
        calling = self.calling + chains.compiled - min(chains.unfused, self._fusible) + KERNEL * calls
        return interpreting - calling if (1 - LEAST_SAVED) * interpreting > calling else 0.0

    def _add(self, calls: list[Any], price: Prices, on_host: bool) -> float:
        """Find the plans, and add what interpreting and compiling the calls takes. Returns what running them takes when they are compiled."""
        plans: list[Any] = []
        met: set[Any] = set()
        follows = False  # upon an operation that is fused
        interprets, by_xla = modes.interprets(), not modes.without_xla
        primitives, known, interpreting, running, fusible = 0.0, 0.0, 0.0, 0.0, 0.0
        most, of_alike, of_fused = price.most, price.alike, price.fused
        least = 1.0 if on_host and len(calls) <= FEW else 0.0
        for c in calls:
            call: CallFields = c
            plan = call.signature.baseline if interprets else None
            cost, alike = (0.0, 0.0) if plan is None else (plan.cost, plan.alike)
            if by_xla and plan is not None and (cost - alike > most or (not on_host and is_large(call.signature))):
                plan = None
            plans.append(plan)
            if plan is None:
                primitives += UNKNOWN_SIZE
                interpreting += ALONE
                continue
            share = AGAIN if alike == 0.0 and follows and call.signature in met else 1.0
            follows = alike == 0.0
            met.add(call.signature)
            primitives += share * plan.compiling
            known += share * plan.compiling
            interpreting += OPERATION + cost
            # Products, factorizations, running sums and the like are not the faster for being compiled.
            running += of_alike * alike
            rest = max(cost - alike, 0.0)
            fusible += max(least * rest, of_fused * rest + (plan.unfused if on_host else 0.0))
        self.plans = plans
        self.interpreting += interpreting
        self._fusible = fusible
        self.compiling += price.primitive * (primitives + (FIRST * min(known, MANY) if on_host else 0.0))
        return running + fusible


def _beginnings(calls: list[Any]) -> int:
    """How many operations read nothing that the program computes, up to one more than AT_ONCE."""
    found = 0
    for c in calls:
        call: CallFields = c
        for a in call.args:
            if type(a) is int and a >= 0:
                break
        else:
            found += 1
            if found > AT_ONCE:
                break
    return found


def _reading(calls: list[Any]) -> float:
    """What it takes to read a program's inputs of a device."""
    read = {a: spec for call in calls for a, spec in zip(call.args, call.signature.specs, strict=True) if type(a) is int and a < 0}
    return sum([READ + READ_BYTE * spec.nbytes for spec in read.values()])


def is_large(sig: Any) -> bool:
    """Whether an operation reads or makes too many bytes for the interpreter of what is on an accelerator."""
    return sum([a.nbytes for a in (*sig.specs, *sig.avals) if not isinstance(a, type)]) > MOST_BYTES
