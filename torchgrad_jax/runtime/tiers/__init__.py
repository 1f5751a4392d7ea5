"""When a program is compiled: by estimated cost alone, so that the same script takes the same decisions, and gives the same bits, every time.

What is new is interpreted. A program is compiled once its interpretations have cost, by estimate, what compiling it costs: whether it comes
back again or not, that is at most twice what the better choice would have cost (the ski-rental rule). What comes back again and again in a row is
a loop's, and compiled the sooner the more often it did, but not before its runs took as long as that. Where a call of the compiled
program would cost more than interpreting it, as with a few operations on small arrays, it never is.
"""

from __future__ import annotations

from typing import Any

from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.recording.fields import FormFields
from torchgrad_jax.runtime.tiers import costs
from torchgrad_jax.runtime.tiers.costs import is_large

# Whoever came back so many times in a row will come back that many times more: by then half of its price is spent enough.
TURNS = 4.5
# The same of programs that differ in how often a loop in them goes round: the next length is another program.
LENGTH_TURNS = 6
# Nobody is to wait for longer than a program has taken so far for what may have been the last time: this share of its price. What compiling saves is
# a tenth to a third of most programs' time, which comes back after thousands of turns: with a third here loops of 1,000 took 1.7 times as long as
# they need have, with this 1.2 times (fourteen programs that are compiled).
PATIENCE = 1.0
# On an accelerator compiling saves most of the time, not a third: this share of that. It was measured there with smaller shares only.
SOONER_ON_ACCELERATORS = 1 / 3
# A program with a loop is compiled first, whatever the number of its lengths, where the one without takes so much longer to compile.
LONG_COMPILE = 5e8
# What compiling a program with a loop takes beside what is in it: 120 ms in all for an RNN's, forward and backward.
LOOP_COMPILE = 4e7
# Which share of its time a program loses by its loops, and how many turns say that it will go on for long enough to compile it again.
ROLLING, LONG_TURNS = 0.15, 20
# More runs need not be foreseen.
MANY_RUNS = 1 << 20
# How many lengths of a loop have to be met until the program with a loop is the better one: unrolled, what is element-wise stays in registers.
LENGTHS = 3

INTERPRETED, COMPILED, ROLLED = "interpreted", "compiled", "rolled"


class Form(FormFields):
    """What is compiled as one: a program, or all those that differ in how often their loops go round.

    ahead: whether it was compiled ahead of its first call, after which no setting of JAX's matters to it: it takes arrays of JAX's as they are.
    spent: what its interpretations have cost, by estimate, beyond what calls of its compiled form would have. members: how many programs it is of;
    turns: how often one of them was interpreted. used, executable: see `keeping`. met: the kinds of arguments that it has been called with, where
    some are given away: with those JAX calls it without Python.
    """

    __slots__ = ("members", "turns", "executable", "met", "__weakref__")

    def __init__(self) -> None:
        self.function: Any = None
        self.ahead = False
        self.spent = 0.0
        self.members = self.turns = self.used = self.executable = 0
        self.met: frozenset[Any] = frozenset()

    def let_go(self) -> None:
        """Let go of what is compiled. It is compiled again when that is worth it again."""
        self.function, self.ahead, self.spent, self.executable = None, False, 0.0, 0
        self.met = frozenset()


def tier_of(program: Any) -> str:
    """How a program is run this time: because it is compiled, or is to be from now on."""
    if modes.without_xla:
        return INTERPRETED
    if modes.same_tier_blocks:
        return INTERPRETED
    if not (modes.deterministic and program.seen):
        program.tier = _chosen(program)
    return program.tier


def cost_of(program: Any) -> float:
    """What interpreting a program once costs beyond a call of what is compiled of it, where all its operations have plans."""
    estimate = program.estimate
    return max(estimate.interpreting - estimate.calling, 0.0)


def lasts_for(program: Any) -> int:
    """For how many more runs at least a program that has been interpreted will be, so that nothing has to be decided meanwhile: half of them or more.
    What they cost is not entered for the program with its loops, which waits for other lengths."""
    if program.tier != INTERPRETED or not program.estimate.whole or not program.searched or modes.deterministic:
        return 0
    if program.common is not None and _is_worth_rolling(program):
        return 0
    runs = 0
    while runs < MANY_RUNS and _share(program, 2 * runs + 1) <= 1:
        runs = 2 * runs + 1
    return runs


def _chosen(program: Any) -> str:
    common = program.common
    if program.form.function is not None:
        return COMPILED
    if program.interpreted is not None and program.small:
        return INTERPRETED
    if common is not None and common.function is not None:
        return ROLLED if common.members >= LENGTHS or not _is_worth_unrolling(program) else COMPILED
    if modes.execution == "eager" or not program.calls:
        return INTERPRETED
    form, estimate = program.form, program.estimate
    if estimate.small and common is None and not form.spent:
        return INTERPRETED
    calls = () if estimate.whole else zip(program.calls, estimate.plans, strict=True)
    cold = {c.signature for c, plan in calls if plan is None and not c.signature.warm}
    if not estimate.planned:
        return _by_xla_alone(program, len(cold))
    cost = cost_of(program) + estimate.one * len(cold)
    form.spent += cost
    if common is not None and _is_rolled_now(program, cost):
        return ROLLED
    if common is not None and common.members >= LENGTHS:
        return INTERPRETED
    # Compiling one operation by itself costs what compiling a small program does: it is no reason to do the latter.
    only_one = len(cold) == 1 and form.spent <= 2 * estimate.one
    return COMPILED if _share(program) > 1 and not only_one else INTERPRETED


def _share(program: Any, more: int = 0) -> float:
    """How much of what has to be before a program is compiled has been: of its price is spent, and of the time that is to pass has passed.

    more: after so many more runs in a row that are interpreted."""
    form, estimate = program.form, program.estimate
    spent = form.spent + more * cost_of(program) if more else form.spent
    return min(spent * (1 + (program.repeats + more) / TURNS), _taken(program, spent, more)) / max(estimate.compiling, 1.0)


def _taken(program: Any, spent: float, more: int = 0) -> float:
    """What the price of compiling a program must not be above: the time that it has taken so far, with what was spent."""
    estimate = program.estimate
    patience = PATIENCE if program.device is CPU else PATIENCE * SOONER_ON_ACCELERATORS
    if estimate.refined:  # what gains the more by it has the less time to lose
        patience *= min(estimate.calling / max(estimate.interpreting, 1.0), 1.0)
    return (spent + (program.seen + more) * estimate.calling) / patience


def reason(program: Any) -> str:
    """Why a program that has just been run was run as it was, in words."""
    if modes.without_xla:
        return modes.without_xla
    if modes.execution == "eager":
        return "eager execution: XLA runs each operation by itself"
    if modes.same_tier_blocks:
        return "inside gradcheck each operation is run by itself, so that the same operation gives the same bits"
    if program.tier == COMPILED:
        return "what interpreting it cost, or its coming back, was worth compiling it"
    if program.tier == ROLLED:
        return "what repeats in it is a loop: one compiled program serves every length"
    if not program.calls:
        return "there is nothing to compute: its results are its inputs"
    estimate = program.estimate
    if not estimate.planned:
        why = _why_by_xla(program, program.calls[0].signature)
        return f"none of its operations can be interpreted ({why}): XLA runs each by itself until it is clear that the program comes back"
    if modes.deterministic:
        return "use_deterministic_algorithms: a program keeps the tier that it began with"
    if program.common is not None and program.common.members >= LENGTHS:
        return "what repeats in it goes round other times in other programs: a turn is the same for all, until compiling one program for all pays"
    if estimate.interpreting <= estimate.calling:
        cost, call = estimate.interpreting / 1e3, estimate.calling / 1e3
        return f"that takes {cost:.0f} us by estimate, and a call of a compiled program would take {call:.0f}"
    return f"compiling it has to pay first: interpreting it has cost {_share(program):.0%} of what that would, by estimate"


def by_xla(program: Any) -> dict[str, str]:
    """The operations of an interpreted program that XLA runs, each by itself, by name; and why."""
    found = {}
    for call, plan in zip(program.calls, program.estimate.plans, strict=True):
        if plan is None:
            found[call.signature.bop.name] = _why_by_xla(program, call.signature)
    return found


def _why_by_xla(program: Any, sig: Any) -> str:
    if not modes.baseline:
        return "the interpreter is switched off"
    if sig.baseline is None:
        return "something in it has no form for NumPy"
    if program.device is not CPU and is_large(sig):
        return "it is too large to be read of the device"
    return "interpreting it takes longer than compiling it, by estimate"


def _is_rolled_now(program: Any, cost: float) -> bool:
    """Whether the program with loops is compiled now: it serves many lengths, or is so much smaller that compiling the long one can wait."""
    common = program.common
    work = program.work() if program.estimate.whole else None
    common.spent += cost if work is None else program.estimate.saved_by_loops(*work)
    common.turns += 1
    if not _is_worth_rolling(program):
        return False
    spent = common.spent * (1 + common.turns / LENGTH_TURNS)
    return (spent if common.members >= LENGTHS else min(spent, _taken(program, common.spent))) > _rolled_price(program)


def _rolled_price(program: Any) -> float:
    """What compiling it with its loops costs."""
    whole = program.estimate.compiling
    return costs.COMPILE + LOOP_COMPILE + (whole - costs.COMPILE) * program.rolled.compiling / len(program.calls)


def _is_worth_rolling(program: Any) -> bool:
    """Whether the program with loops is the one to compile, once its price is spent: for many lengths, or for one that takes much longer to compile
    without loops, if it gains by them."""
    estimate, price = program.estimate, _rolled_price(program)
    if program.common.members >= LENGTHS:
        return True
    gains = (1 - costs.LEAST_SAVED) * estimate.interpreting > (1 + ROLLING) * estimate.calling
    return gains and not program.rolled.packed and estimate.compiling - price > LONG_COMPILE and price < estimate.compiling / 4


def _is_worth_unrolling(program: Any) -> bool:
    """Whether what a loop's program loses by its loops has cost what compiling it without them does."""
    program.form.spent += ROLLING * program.estimate.calling
    return program.form.spent * (1 + program.repeats / LONG_TURNS) > program.estimate.compiling


def _by_xla_alone(program: Any, cold: int) -> str:
    """Without plans nothing is gained by waiting: a loop's program, and one that comes back, is compiled the second time; a new one at once where its
    operations would cost more, compiled one by one."""
    if program.seen:
        hot = program.repeats or len(program.calls) < 150 or program.seen >= 8
    else:
        hot = cold > 1 and program.estimate.one * cold > program.estimate.compiling
    if program.common is not None and program.common.members >= LENGTHS:
        return ROLLED
    return COMPILED if hot else INTERPRETED
