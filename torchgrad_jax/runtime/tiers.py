"""When a program is compiled: by estimated cost alone, so that the same script takes the same decisions, and gives the same bits, every time.

What is new is interpreted. A program is compiled once its interpretations have cost, by estimate, what compiling it costs: whether it comes
back again or not, that is at most twice what the better choice would have cost (the ski-rental rule). Where a call of the compiled program
would cost more than interpreting it, as with a few operations on small arrays, it never is.
"""

from __future__ import annotations

from typing import Any

from torchgrad_jax.runtime import modes

# Estimated nanoseconds, measured on 2 cores of an AMD EPYC.
COMPILE, COMPILE_PRIMITIVE = 25e6, 2.5e6  # compiling any executable; and for each primitive in it
OPERATION = 1_000.0  # what the interpreter spends on an operation beside its primitives
ALONE = 20_000.0  # an operation by its own compiled function
CALL, OUTPUT = 20_000.0, 3_000.0  # calling a compiled program; and for each of its outputs
FUSED = 0.3  # the share of the interpreter's time that XLA takes for the same primitives
# An operation estimated above this is XLA's from the first time on: compiling it costs about as much as interpreting it once.
MOST = 3e7
# How many primitives an operation without a plan is taken for.
UNKNOWN_SIZE = 5


class Form:
    """What is compiled as one: a program, or all those that differ in how often their loops go round.

    spent: what its interpretations have cost, by estimate, beyond what calls of its compiled form would have.
    """

    __slots__ = ("function", "spent")

    def __init__(self) -> None:
        self.function: Any = None
        self.spent = 0.0


class Estimate:
    """What a program's plans say about it, in estimated nanoseconds: `interpreting` it, `calling` its compiled form, `compiling` it.

    plans: for each call its plan, None where XLA runs it by itself. share: how much of the program is compiled, what repeats in it once.
    """

    __slots__ = ("plans", "interpreting", "calling", "compiling")

    def __init__(self, calls: list[Any], outputs: int, share: float) -> None:
        self.plans: list[Any] = []
        primitives = 0
        self.interpreting, saved = 0.0, 0.0
        for call in calls:
            plan = call.signature.baseline if modes.baseline else None
            if plan is not None and plan.cost > MOST:
                plan = None
            self.plans.append(plan)
            primitives += UNKNOWN_SIZE if plan is None else plan.compiling
            cost = ALONE if plan is None else OPERATION + plan.cost
            self.interpreting += cost
            saved += 0.0 if plan is None else FUSED * plan.cost
        self.calling = CALL + OUTPUT * outputs + saved
        self.compiling = COMPILE + COMPILE_PRIMITIVE * share * primitives


def is_compiled(program: Any) -> bool:
    """Whether a program is called in its compiled form this time: because it is, or because it is to be from now on."""
    form = program.form
    if modes.same_tier_blocks and modes.execution != "eager" and any(program.estimate.plans):
        return False
    if form.function is not None:
        return True
    if modes.execution == "eager" or not program.calls:
        return False
    estimate = program.estimate
    if modes.deterministic and program.seen:
        return False
    cold = {c.signature for c, plan in zip(program.calls, estimate.plans, strict=True) if plan is None and not c.signature.warm}
    if not any(estimate.plans):
        return _by_xla_alone(program, len(cold))
    form.spent += max(estimate.interpreting - estimate.calling, 0.0) + COMPILE * len(cold)
    return form.spent > estimate.compiling and (form.spent > COMPILE * len(cold) or len(cold) > 1)


def _by_xla_alone(program: Any, cold: int) -> bool:
    """Without plans nothing is gained by waiting: a loop's program, and one that comes back, is compiled the second time; a new one at once where its
    operations would cost more, compiled one by one."""
    if program.seen:
        return program.repeats or program.seen >= (1 if len(program.calls) < 150 else 8)
    return cold > 1 and COMPILE * cold > program.estimate.compiling
