"""From a line of the table to what the interpreter makes a plan of."""

from __future__ import annotations

import json
import mmap
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from torchgrad_jax.runtime.baseline import Plan, plan_of
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.value import Aval, aval_of
from torchgrad_jax.runtime.vectors import LENGTH

# Operations on more elements may be done otherwise.
MOST_ELEMENTS = 1 << 14
# The parameters that are shapes.
SIZES = {"shape", "new_sizes"}
# The line that tells of which version of JAX the traces are.
VERSION = "#jax"
_TABLE = Path(__file__).with_name("table.txt")
_SHAPES = {(): "", (LENGTH,): "*"}
_NUMBERS = {bool: "bool", int: "int", float: "float", complex: "complex"}


class Found(NamedTuple):
    """The plan of an operation that is written down, what its results are like, and whether it gives one that is no tuple."""

    plan: Plan
    avals: tuple[Aval, ...]
    single: bool


def specs_text(specs: Sequence[Any], sizes: dict[int, str]) -> str | None:
    """Operands in words: dtypes, with a star for a vector of the length that stands for all, and shapes, in which equal sizes are one letter (of
    `sizes`, to which more are added) and 0 and 1 themselves. None on accelerators, or where operands are large: then it may be done otherwise."""
    parts = []
    for spec in specs:
        if isinstance(spec, type):
            parts.append(_NUMBERS[spec])
        elif spec.device is not CPU or spec.size > MOST_ELEMENTS:
            return None
        else:
            parts.append(dtype_text(spec.dtype) + _shape_text(spec.shape, sizes))
    return ",".join(parts)


def _shape_text(shape: tuple[int, ...], sizes: dict[int, str]) -> str:
    if shape in _SHAPES:
        return _SHAPES[shape]
    return f"[{','.join([str(n) if n < 2 else sizes.setdefault(n, chr(97 + len(sizes))) for n in shape])}]"


def key_of(bop: Any, specs: Sequence[Any], sizes: dict[int, str]) -> str | None:
    """What the table calls an operation; None where it has none like it. sizes: see `specs_text`."""
    told = getattr(bop, "told", None)
    name = None if told is None else told(sizes)
    operands = None if name is None else specs_text(specs, sizes)
    return None if operands is None else f"{name} {operands}"


def find(bop: Any, specs: Sequence[Any]) -> Found | None:
    """What is written down of an operation; None where nothing is, or the interpreter has no rule for it here."""
    sizes: dict[int, str] = {}
    key = key_of(bop, specs, sizes)
    text = None if key is None else _line(key.encode())
    return None if text is None else _found(text, tuple(sizes))


def table() -> dict[str, str]:
    """All that is written down: for each operation its jaxpr; and the version of JAX whose traces they are."""
    return dict([line.split("\t") for line in _TABLE.read_text("utf-8").splitlines()])


def write(found: dict[str, str]) -> None:
    """Write the table."""
    _TABLE.write_bytes(b"".join(sorted([f"{key}\t{text}\n".encode() for key, text in found.items()])))
    _opened.cache_clear()


@cache
def _opened() -> Any:
    """The table: its pages are read as they are needed."""
    try:
        with _TABLE.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):  # it is empty, or in an archive
        return b""


def _line(key: bytes) -> bytes | None:
    """What stands behind a key: lines are in the order of their bytes, so it takes twelve steps to find one."""
    text, low = _opened(), 0
    high = len(text)
    while low < high:
        start = text.rfind(b"\n", low, (low + high) // 2) + 1 or low
        tab = text.find(b"\t", start)
        found = text[start:tab]
        if found == key:
            return text[tab + 1 : text.find(b"\n", tab)]
        low, high = (text.find(b"\n", tab) + 1, high) if found < key else (low, start)
    return None


def _found(text: bytes, sizes: tuple[int, ...]) -> Found | None:
    single, body = json.loads(text)
    closed = _Jaxpr(body, sizes)
    plan: Any = plan_of(closed)  # type: ignore[arg-type] - it has of a jaxpr what a plan is made of
    return None if plan is None else Found(plan, tuple([v.aval for v in closed.outvars]), bool(single))


@cache
def dtype_text(dtype: np.dtype) -> str:
    """A dtype in two characters; three, if it is none of NumPy's."""
    return dtype.name if dtype.kind == "V" else f"{dtype.kind}{dtype.itemsize}"


@cache
def dtype_of(text: str) -> np.dtype:
    """The dtype of such a text."""
    return np.dtype(getattr(ml_dtypes, text, text))


@lru_cache(256)
def _aval(kind: str, sizes: tuple[int, ...]) -> Aval:
    """What a variable is like: a dtype and, in brackets, a shape; or a star."""
    dtype, bracket, shape = kind.partition("[")
    if not bracket:
        return aval_of((LENGTH,), dtype_of(kind[:-1])) if kind.endswith("*") else aval_of((), dtype_of(kind))
    return aval_of(_shape(shape[:-1], sizes), dtype_of(dtype))


def _shape(text: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([int(n) if n.isdigit() else sizes[ord(n) - 97] for n in text.split(",")]) if text else ()


class Variable:
    """A variable of a jaxpr."""

    __slots__ = ("aval",)

    def __init__(self, aval: Aval) -> None:
        self.aval = aval


class Literal:
    """A number in a jaxpr, or a small array."""

    __slots__ = ("aval", "val")

    def __init__(self, dtype: str, value: Any) -> None:
        kind = dtype_of(dtype)
        self.val = np.asarray(complex(*value) if kind.kind == "c" else value, kind)
        self.aval = aval_of(self.val.shape, kind)


class Primitive(NamedTuple):
    """As much of a primitive as rules ask for."""

    name: str
    multiple_results: bool


class Equation:
    """An equation of a jaxpr: [name, operands, results, parameters], the latter only where there are any."""

    __slots__ = ("primitive", "invars", "outvars", "params")

    def __init__(self, parts: list[Any], variables: list[Variable], sizes: tuple[int, ...]) -> None:
        name, operands, results = parts[:3]
        self.primitive = Primitive(name, type(results) is list)
        self.invars = [_atom(a, variables) for a in operands]
        self.outvars = [Variable(_aval(r, sizes)) for r in (results if type(results) is list else (results,))]
        self.params = (
            {key: _shape(value, sizes) if key in SIZES else _param(value, sizes) for key, value in parts[3].items()} if len(parts) > 3 else {}
        )
        if name == "convert_element_type":
            self.params["new_dtype"] = self.outvars[0].aval.dtype
        variables += self.outvars


class _About(NamedTuple):
    func_src_info: str


class _Jaxpr:
    """A jaxpr and, as it has no constants, itself closed: [name, inputs, equations, outputs]."""

    effects, consts, constvars = (), (), ()

    def __init__(self, body: list[Any], sizes: tuple[int, ...]) -> None:
        about, inputs, equations, outputs = body
        variables = [Variable(_aval(i, sizes)) for i in inputs]
        self.invars = variables[:]
        self.eqns = [Equation(e, variables, sizes) for e in equations]
        self.outvars = [_atom(o, variables) for o in outputs]
        self.debug_info = _About(about)

    @property
    def jaxpr(self) -> _Jaxpr:
        return self


def _atom(atom: Any, variables: list[Variable]) -> Any:
    return variables[atom] if type(atom) is int else Literal(*atom)


def _param(value: Any, sizes: tuple[int, ...]) -> Any:
    if type(value) is dict:
        ((kind, inner),) = value.items()
        return dtype_of(inner) if kind == "dtype" else _Jaxpr(inner, sizes)
    return tuple([_param(v, sizes) for v in value]) if type(value) is list else value
