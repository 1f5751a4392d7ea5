"""What ran in a forward pass and in its recomputation, for the errors of a checkpoint with ``debug=True``."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from torchgrad_jax._ops import overload_of
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.through import Through
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.runtime.user_code import user_line
from torchgrad_jax.runtime.value import Aval
from torchgrad_jax.utils.checkpointing.errors import CheckpointError


class Trace(Through):
    """Notes operations: their names, operands, results, and the user's lines."""

    __slots__ = ("operations", "numbers")

    def __init__(self) -> None:
        self.operations: list[tuple[str, str]] = []
        # Each tensor's number, by the Value that it had, which is kept so that its id stays its own.
        self.numbers: dict[int, tuple[int, Any]] = {}

    def __enter__(self) -> Any:
        self.operations.clear()
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.numbers.clear()

    def apply(self, bound: Any, operands: Sequence[Any]) -> Any:
        """See Interpreter."""
        given = [self._name(o) for o in operands]
        made = self.outside(bound, operands)
        self._note(bound, given, made)
        return made

    def apply_inplace(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """See Interpreter."""
        given = [self._name(o) for o in operands]
        made = self.write_outside(bound, operands)
        self._note(bound, given, made, "_")
        return made

    def _note(self, bound: Any, given: list[str], made: Any, suffix: str = "") -> None:
        outs = made if type(made) is tuple else (made,)
        shown = ", ".join(f"{self._name(t)}: {_shown(t._aval)}" for t in outs)
        op = overload_of(bound)
        self.operations.append((f"{shown} = {bound.name if op is None else op.packet}{suffix}({', '.join(given)})", user_line()))

    def _name(self, x: Any) -> str:
        if not isinstance(x, Tensor):
            return repr(x)
        value = x._content()
        number, _ = self.numbers.setdefault(id(value), (len(self.numbers), value))
        return f"${number}"

    def told(self, where: str) -> str:
        """All operations with their lines."""
        lines = [f"{what}   ({i} of {len(self.operations)} in {where})\n    {line}\n" for i, (what, line) in enumerate(self.operations, 1)]
        return "\n".join(lines) or "none\n"


def _shown(aval: Aval) -> str:
    return f"{dtypes.of(aval.dtype).word}{list(aval.shape)}"


class Traces:
    """The traces of a checkpoint's forward pass and of its recomputation."""

    def __init__(self) -> None:
        self.forward, self.again = Trace(), Trace()

    def contexts(self) -> tuple[contextlib.AbstractContextManager[Any], contextlib.AbstractContextManager[Any]]:
        """The contexts in which the two run."""
        return self.forward, self.again

    def explained(self, error: CheckpointError) -> CheckpointError:
        """The error together with what ran."""
        return CheckpointError(
            "An error happened while unpacking tensors; dumping logs of latest computation because you passed `debug=True` to "
            "`torch.utils.checkpoint.checkpoint()`. Scroll all the way down for guidance on how to navigate these logs.\n\n"
            f"1. Operations that ran in the original forward\n\n{self.forward.told('original')}\n"
            f"2. Operations that ran during recomputation\n\n{self.again.told('recompute')}\n"
            f"3. The error\n\n{error}\n\nOperation n of one list belongs to operation n of the other; the first pair that differs is where "
            "recomputation left the way of the forward pass."
        )
