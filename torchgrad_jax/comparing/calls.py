"""One call of an operator as a file: its name and arguments, and what it gave, so that it can be computed again by either library."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from torchgrad_jax.comparing.derivatives import derive, measured, on_the_side, tensor_like
from torchgrad_jax.comparing.figures import WIDER, array_of

FORM = 1
_PLAIN = (bool, int, float, str, type(None))


class NotKept(Exception):
    """A call that cannot be put into a file: its text says why."""


class Call:
    """A call of an operator.

    name: where the function is found, such as ``torch.nn.functional.linear``. tree: its arguments, positional and by name, with tensors as numbers
    of `arrays`. line: the user's line. results: of the library named in `by`, as `derivatives.measured` gives them; exact: the same in wider dtypes,
    empty where there are none.
    """

    def __init__(self, name: str, tree: Any, arrays: list[np.ndarray], line: str = "") -> None:
        self.name, self.tree, self.arrays, self.line = name, tree, arrays, line
        self.by = ""
        self.results: dict[str, list[Any]] = {}
        self.exact: dict[str, list[Any]] = {}

    @classmethod
    def of(cls, torch: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any], line: str = "") -> Call:
        """The call of the function `name` with these arguments. NotKept where one is no tensor, number, text, dtype or container of such."""
        if not name.startswith("torch.") or _found(torch, name) is None:
            raise NotKept(f"{name} is not found by its name")
        arrays: list[np.ndarray] = []
        return cls(name, [_packed(torch, list(args), arrays), _packed(torch, kwargs, arrays)], arrays, line)

    def compute(self, torch: Any, state: Any = None) -> None:
        """Let `results` be what a library gives. state: of the random numbers."""
        self.by, self.results = torch.__spec__.name, self.run(torch, state)
        with contextlib.suppress(RuntimeError, TypeError, NotImplementedError, ValueError):
            self.exact = self.run(torch, state, wide=True)

    def run(self, torch: Any, state: Any = None, order: int = 2, wide: bool = False) -> dict[str, list[Any]]:
        """What the call gives with its derivatives, as `derivatives.measured` gives them; those that raise an error are missing.

        state: of the random numbers. wide: of operands in wider dtypes.
        """
        function: Any = _found(torch, self.name)
        if function is None:
            raise NotKept(f"{self.name} is not there")
        for n in range(order, -1, -1):
            leaves: list[Any] = []
            with on_the_side(torch, state):
                args, kwargs = (_unpacked(torch, part, self.arrays, leaves, wide) for part in self.tree)
                try:
                    return measured(torch, derive(torch, lambda: _results(function, args, kwargs), leaves, n))  # noqa: B023 - called at once
                except (RuntimeError, NotImplementedError):
                    if n == 0:
                        raise
        raise AssertionError("unreachable")

    def save(self, path: str | Path) -> None:
        """Write the call to a file."""
        arrays = list(self.arrays)

        def put(one: Any) -> Any:
            if one is None:
                return None
            arrays.append(one[1])
            return [one[0], len(arrays) - 1]

        results, exact = ({order: [put(one) for one in found] for order, found in kept.items()} for kept in (self.results, self.exact))
        text = json.dumps({
            "form": FORM, "name": self.name, "tree": self.tree, "line": self.line, "by": self.by, "results": results, "exact": exact,
            "count": len(self.arrays),
        })  # fmt: skip
        named: dict[str, Any] = {"call": np.array(text), **{f"a{i}": a for i, a in enumerate(arrays)}}
        np.savez(str(path), **named)

    @classmethod
    def load(cls, path: str | Path) -> Call:
        """The call that a file holds. ValueError for another file, OSError where there is none."""
        try:
            with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
                kept = json.loads(str(file["call"]))
                arrays = [file[f"a{i}"] for i in range(len(file.files) - 1)]
        except (KeyError, ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"{path} is no file of a call: {error}") from error
        except OSError:
            raise
        except Exception as error:  # a damaged archive: zipfile has errors of its own
            raise ValueError(f"{path} is no file of a call: {error}") from error
        if not isinstance(kept, dict) or kept.get("form") != FORM:
            raise ValueError(f"{path} is no file of a call that this version reads")
        call = cls(kept["name"], kept["tree"], arrays[: kept["count"]], kept["line"])
        call.by = kept["by"]
        call.results, call.exact = (
            {order: [None if one is None else (one[0], arrays[one[1]]) for one in found] for order, found in kept[part].items()}
            for part in ("results", "exact")
        )
        return call

    def told(self) -> str:
        """The call as a line of text, with shapes in place of tensors."""
        args, kwargs = self.tree
        parts = [self._shown(a) for a in args["list"]] + [f"{k}={self._shown(v)}" for k, v in kwargs["dict"]]
        return f"{self.name}({', '.join(parts)})"

    def _shown(self, packed: Any) -> str:
        if not isinstance(packed, dict):
            return repr(packed)
        (kind, value), *_ = packed.items()
        if kind == "tensor":
            return f"{packed['dtype']}{list(self.arrays[value].shape)}"
        if kind in ("list", "tuple"):
            return f"{'[('[kind == 'tuple']}{', '.join(map(self._shown, value))}{'])'[kind == 'tuple']}"
        if kind == "slice":
            return f"slice({', '.join(map(self._shown, value))})"
        if kind == "dict":
            return "{" + ", ".join(f"{k!r}: {self._shown(v)}" for k, v in value) + "}"
        return str(value)


def _found(torch: Any, name: str) -> Callable[..., Any] | None:
    """The function of a dotted name such as ``torch.Tensor.T.__get__``."""
    found: Any = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    return found if callable(found) else None


def _results(function: Any, args: Any, kwargs: Any) -> Any:
    """What a call gives; of what returns None, such as ``t[0] = x``, what became of its first argument."""
    result = function(*args, **kwargs)
    return args[0] if result is None and args else result


def _packed(torch: Any, x: Any, arrays: list[np.ndarray]) -> Any:
    """An argument as JSON has it, with tensors put into `arrays`."""
    if isinstance(x, torch.Tensor):
        try:
            arrays.append(array_of(torch, x))
        except (RuntimeError, TypeError, NotImplementedError) as error:
            raise NotKept(f"a tensor cannot be read: {error}") from None
        return {"tensor": len(arrays) - 1, "dtype": str(x.dtype).removeprefix("torch."), "grad": bool(x.requires_grad)}
    if isinstance(x, _PLAIN):
        return x
    if isinstance(x, complex):
        return {"complex": [x.real, x.imag]}
    if isinstance(x, slice):
        return {"slice": [_packed(torch, part, arrays) for part in (x.start, x.stop, x.step)]}
    if isinstance(x, (list, tuple)):
        return {"list" if isinstance(x, list) else "tuple": [_packed(torch, part, arrays) for part in x]}
    if isinstance(x, dict) and all(isinstance(key, str) for key in x):
        return {"dict": [[key, _packed(torch, value, arrays)] for key, value in x.items()]}
    if x is Ellipsis:
        return {"name": "..."}
    if isinstance(x, (torch.dtype, torch.memory_format)):
        return {"name": str(x)}
    if isinstance(x, torch.device):
        return {"device": str(x)}
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind in "biufc":
        arrays.append(np.array(x))
        return {"array": len(arrays) - 1}
    raise NotKept(f"an argument is a {type(x).__name__}")


def _unpacked(torch: Any, packed: Any, arrays: list[np.ndarray], leaves: list[Any], wide: bool) -> Any:
    """An argument again; tensors that can have a gradient are made of leaves, so that they may be written to."""
    if not isinstance(packed, dict):
        return packed
    (kind, value), *_ = packed.items()
    if kind == "tensor":
        name: str = packed["dtype"]
        made = tensor_like(torch, arrays[value], getattr(torch, WIDER.get(name, name) if wide else name))
        if not packed["grad"]:
            return made
        leaves.append(made.requires_grad_())
        return made.clone()
    if kind in ("list", "tuple", "slice"):
        parts = [_unpacked(torch, part, arrays, leaves, wide) for part in value]
        return parts if kind == "list" else tuple(parts) if kind == "tuple" else slice(*parts)
    if kind == "dict":
        return {key: _unpacked(torch, part, arrays, leaves, wide) for key, part in value}
    if kind == "array":
        return np.array(arrays[value])
    if kind == "complex":
        return complex(*value)
    if kind == "device":
        return torch.device(value)
    return Ellipsis if value == "..." else getattr(torch, value.removeprefix("torch."))
