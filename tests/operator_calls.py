"""Performs calls given as text, with tensors of either library."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np


def operands(m: Any, tracked: str | None = None) -> dict[str, Any]:
    """What the names in a call stand for. Lower-case letters are leaves that require grad (only the one named `tracked`, if given)."""
    random = np.random.default_rng(0)

    def leaf(*shape: int, low: float = 0.1, high: float = 0.9, complex: bool = False) -> Any:
        array = random.uniform(low, high, shape)
        if complex:
            array = array + 1j * random.uniform(low, high, shape)
        return m.tensor(array.tolist(), dtype=m.complex64 if complex else m.float32)

    square = random.normal(size=(3, 3))
    leaves = {
        "x": leaf(3, 4), "y": leaf(3, 4), "w": leaf(3, 4), "u": leaf(4), "v": leaf(4), "r": leaf(3), "s": leaf(), "k": leaf(),
        "a": leaf(3, 3), "b": leaf(3, 3), "c": leaf(4, 5), "d": m.tensor((square @ square.T + 4 * np.eye(3)).tolist(), dtype=m.float32),
        "f": leaf(2, 3, 4), "g": leaf(2, 4, 5), "h": leaf(2, 3, 3), "n": leaf(2, 3, 5), "q": leaf(2, 2, 3, 4),
        "i": leaf(2, 3, 8, 8), "j": leaf(5, 3, 3, 3), "l": leaf(5), "o": leaf(2, 3, 8), "p": leaf(5, 3, 3), "t": leaf(2, 3, 6, 6, 6),
        "e": leaf(6, 4), "z": leaf(3, 4, complex=True), "zz": leaf(3, 4, complex=True), "za": leaf(3, 3, complex=True),
        "kk": leaf(2, 2, 5, 4), "vv": leaf(2, 2, 5, 4), "am": leaf(3, 5), "w3": leaf(5, 3, 3, 3, 3), "long": leaf(30, 4), "bl": leaf(5, 4, 4),
    }  # fmt: skip
    for name, tensor in leaves.items():
        if tracked is None or name == tracked:
            tensor.requires_grad_()
    constants = {
        "torch": m, "F": m.nn.functional, "linalg": m.linalg, "special": m.special, "inf": float("inf"),
        "X": leaf(3, 4), "U": leaf(4), "A": leaf(3, 3),
        "MASK": m.tensor([[True, False, True, False]] * 3), "MASK4": m.tensor([True, False, True, True]),
        "ROWS": m.tensor([0, 2, 1]), "TWO": m.tensor([0, 1]), "PICK": m.tensor([[0, 1, 2, 1], [1, 0, 2, 2]]), "LABELS": m.tensor([1, 0, 3]),
        "SIGNS": m.tensor([1, -1, 1]), "INTS": m.tensor([[1, 2, 3, 4]] * 3), "WORDS": m.tensor([[0, 2, 5], [1, 1, 3]]),
        "MAP": m.zeros(2, 8, 8, dtype=m.int64), "BIG": m.ones(2, 2, 3, 5, dtype=m.bool), "OFFSETS": m.tensor([0, 2]),
        "PIVOTS": m.tensor([1, 2, 3], dtype=m.int32), "FLAT": m.tensor([0, 2, 1, 2, 0, 1]),
    }  # fmt: skip
    return leaves | constants


LEAVES = {name for name, value in operands(__import__("torch")).items() if getattr(value, "requires_grad", False)}


def leaves_in(call: str) -> list[str]:
    """The leaves that a call names, in their order."""
    names = [n.id for n in ast.walk(ast.parse(call)) if isinstance(n, ast.Name)]
    return [n for n in dict.fromkeys(names) if n in LEAVES]


def perform(m: Any, call: str, tracked: str | None = None) -> tuple[Any, dict[str, Any]]:
    """The result of a call in library `m`, and the leaves. Statements before the last ``;`` come first."""
    names = operands(m, tracked)
    *statements, last = call.split("; ")
    m.manual_seed(0)
    for statement in statements:
        exec(statement, names)
    return eval(last, names), {n: names[n] for n in LEAVES}
