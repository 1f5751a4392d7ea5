"""Programs that are like one another but for a detail, run in turn in one process: what is remembered of one must not be taken for another.

A relative has the statements of a program, one or two of them changed: another operand, the operands of a statement exchanged, another number,
function or flag, a leaf of another kind, a line left out or twice.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

from compat_suite.fuzz.comparison import Difference
from compat_suite.fuzz.search import Look, Step, replay, unstable

# In these lines nothing is changed: what they may be about is the author's to say (`Author.twinnable` and its like).
_LEFT_ALONE = re.compile(r"hook|data\b|detach|as_strided|saved|_\(|^del |out=|\] [-+*/]?= |\n|^\w+ = \w+$|plain|backward\(inputs|\.grad\b")
_NAME = re.compile(r"\bx\d+\b")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(\.\d+)?(?![\w.])")
_ALIKE = [
    ["tanh()", "exp()", "sin()", "cos()", "square()", "sigmoid()", "neg()", "relu()", "abs()", "clone()"], ["sum(", "mean(", "amax(", "prod("],
    [" + ", " - ", " * ", " / "], [" > ", " <= ", " == ", " != "], ["maximum(", "minimum(", "atan2("], ["retain_graph=True", ""],
    ["no_grad", "enable_grad"], [", requires_grad=False", ""], ["seed=1", "seed=2", "seed=3", "seed=5", "seed=7"], ["float32", "float64"],
    [".sum()", ".square().sum()", ".sin().sum()"], ["cat(", "stack("], ["keepdim=True", "keepdim=False"], ["allow_unused=True", "allow_unused=False"],
]  # fmt: skip
_LEAF_SHAPES = ["", "4, ", "2, 3, ", "2, 2, 2, ", "1, 3, "]


def _other(chance: random.Random, statement: str, before: list[str]) -> str:
    """A statement that differs in a detail. before: the names that there are."""
    left, equals, right = statement.rpartition(" = ") if " = " in statement else ("", "", statement)
    kind = chance.choice(["operand", "operand", "exchange", "exchange", "alike", "alike", "alike", "number", "leaf"])
    names = _NAME.findall(right)
    if kind == "operand" and names and before:
        at = chance.choice(list(_NAME.finditer(right)))
        right = right[: at.start()] + chance.choice(before) + right[at.end() :]
    elif kind == "exchange" and len(set(names)) > 1:
        a, b = chance.sample(sorted(set(names)), 2)
        right = _NAME.sub(lambda m: {a: b, b: a}.get(m[0], m[0]), right)
    elif kind == "alike":
        found = [(group, one) for group in _ALIKE for one in group if one and one in right]
        if found:
            group, one = chance.choice(found)
            right = right.replace(one, chance.choice(group), 1)
    elif kind == "number" and "leaf" not in right and (numbers := list(_NUMBER.finditer(right))):
        at = chance.choice(numbers)
        right = right[: at.start()] + chance.choice(["0", "1", "-1", "2", "-2", "3"]) + right[at.end() :]
    elif kind == "leaf" and "leaf(" in right:
        right = re.sub(r"leaf\((\d, )*", "leaf(" + chance.choice(_LEAF_SHAPES), right)
    return left + equals + right


def relative(chance: random.Random, steps: list[Step]) -> list[Step]:
    """A program that differs from this one in a detail or two."""
    made = list(steps)
    for _ in range(chance.choice([1, 1, 2]) if made else 0):
        at = chance.randrange(len(made))
        statement, look = made[at]
        kind = chance.choice(["change"] * 8 + ["look", "leave", "twice"])
        if kind == "look":
            made[at] = Step(statement, chance.choice(list(Look)))
        elif _LEFT_ALONE.search(statement):
            continue
        elif kind == "leave":
            del made[at]
        elif kind == "twice":
            made.insert(at, made[at])
        else:
            before = sorted({name for s, _ in made[:at] for name in _NAME.findall(s.partition(" = ")[0])})
            made[at] = Step(_other(chance, statement, before), look)
    return made


def family(seed: int, steps: list[Step], excluded: Iterable[str], size: int) -> tuple[list[Step], Difference | None]:
    """So many relatives of a program in turn with it, up to the first that differs, where rounding does not decide; the last of them."""
    chance, known, last = random.Random(seed), [steps], steps
    for i in range(size):
        last = steps if i % 3 == 2 else relative(chance, chance.choice(known))
        found = replay(last, excluded)
        if found is not None and not _twice_wrong(found) and not unstable(last, found):
            return last, found
        known.append(last)
    return last, None


def _twice_wrong(found: Difference) -> bool:
    """Whether both libraries refuse a statement: many a relative's is wrong in two ways, and may be refused for either."""
    return found.what == "raised" and bool(found.ours) and bool(found.theirs)
