"""The socket of what carries out operations otherwise than by recording them: forward mode, and function transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.memory.storage import Link
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Lifted


class Interpreter:
    """What `Recorder.level` holds while it is active; `Recorder.rare` counts it. Dispatch asks it first, and goes on where it answers NotImplemented.

    An interpreter that itself calls operations puts another in its place meanwhile, the one outside of it or None.
    """

    __slots__ = ()
    # Whether it is one of a function that is transformed: some of what PyTorch has is refused there.
    transforms = False
    # Whether it only notes operations, which are recorded as ever.
    notes = False

    @property
    def without_tangents(self) -> Interpreter | None:
        """What carries out operations in its place where no tangents are to be passed on."""
        return None

    def apply(self, bound: Any, operands: Sequence[Any]) -> Any:
        """The results of an operation: a Tensor, or a tuple of them."""
        return NotImplemented

    def apply_inplace(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """The first operand, after the operation's result was written into it."""
        return NotImplemented

    def view_made(self, t: Any, out: Any, links: tuple[Link, ...], strides: tuple[int, ...], offset: int) -> None:
        """`out` was just computed from `t` by `links`, and is about to become a view of it."""

    def created(self, t: Any) -> None:
        """`t` was just made from no operand that is recorded."""

    def random(self, shape: tuple[int, ...], draw: Callable[[tuple[int, ...]], Any], into: Any = None) -> Any:
        """A tensor of random numbers of this shape. draw: makes one of a given shape, and takes the numbers from a generator as it does. into: the
        tensor that they will be written to, if any."""
        return draw(shape)

    def random_of(self, draw: Callable[..., Any], tensors: Sequence[Any]) -> Any:
        """What `draw` makes of tensors whose values tell how random numbers are distributed; NotImplemented if it may be called as it is."""
        return NotImplemented

    def mapped_as(self, t: Any, like: Any) -> Any:
        """See the function `mapped_as`."""
        return t

    def by_parts(self, function: Callable[..., Any], tensors: Sequence[Any]) -> Any:
        """See the function `by_parts`."""
        return function(*tensors)

    def detached(self, t: Any) -> Any:
        """`t` without history in this level and those outside, where the latter have one; NotImplemented where they have none."""
        return NotImplemented

    def function(self, cls: Any, args: tuple[Any, ...]) -> Any:
        """What a call of the autograd Function `cls` returns, where this is a level of a transform."""
        raise NotImplementedError

    def function_of_duals(self, cls: Any, args: tuple[Any, ...], tangents: dict[int, Any]) -> Any:
        """`function` where arguments have tangents, by their place among the tensors, of a dual level that was opened inside."""
        raise NotImplementedError

    def stands_for_batch(self, t: Any) -> bool:
        """Whether a tensor stands for all of a batch, here or in a level outside."""
        return False

    def lies(self, t: Any) -> tuple[tuple[int, ...], int]:
        """See the function `lies`."""
        return t._strides(), t._offset()

    def locates(self, t: Any) -> None:
        """It is asked where in its memory a tensor begins."""

    def as_strided(self, t: Any, size: tuple[int, ...], stride: tuple[int, ...], offset: int | None) -> Any:
        """See the function `as_told`."""
        return NotImplemented

    def rewritten(self, t: Any, value: Any, name: str) -> bool:
        """`value` is about to become the content of `t`, which no operation has written. name: of the function that writes. Returns whether that is
        done: what is of a level may not be the content of a tensor outside of it."""
        return False

    def refuses_memory(self, t: Any, new: Any, name: str) -> str | None:
        """Why `t` may not take over the memory of `new`; None if it may. name: of the function that does that, "data" or "set_"."""
        return None

    def meets(self, t: Any, grad: str = "") -> None:
        """A tensor is about to be read or changed otherwise than by an operation. grad: "read" or "written", where it is its `.grad`."""

    def carried(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """What an operator of the user's gives for these arguments, which is what `run` does; op: as `torch.ops` has it."""
        return run()

    def applied(self, outs: Any, node: Any) -> None:
        """An operation on tensors was recorded, with this node or None."""

    def plan(self, plan_of: Callable[[Any, int], Any], sig: Any, mask: int) -> Any:
        """What `plan_of` says of an operation whose operands need gradients as `mask` says, unless its refusal is to come later."""
        return plan_of(sig, mask)

    def departs(self) -> None:
        """Something is about to be done that makes gradients others than those of the operations: a Function of the user's, or a hook."""

    def writes_apart(self, t: Any) -> None:
        """The memory of `t` is about to be written to, of which no graph will tell."""

    def twin_made(self, t: Any) -> None:
        """`t` was just made on the memory of another tensor."""

    def refuses(self, what: str) -> None:
        """`what` is about to begin, of which an interpreter may say that it cannot go together with it."""

    def draws(self, make: Callable[[], Any]) -> Any:
        """What `make` draws at random on the host."""
        return make()

    def renewed(self, group: dict[str, Any], key: str) -> Any:
        """The number under a key of an optimizer's group as a tensor that is read anew wherever what is recorded is run again; None where it is a
        constant."""

    def drew(self, value: Any, make: Callable[[], Any]) -> None:
        """`value` holds what `draws` gave for `make`."""


def settle(t: Any) -> bool:
    """Where a Tensor has outlived the level of a transform, let it be what it stood for outside. Whether that is so."""
    array = (t._value if t._storage is None else t._storage.value).array
    return isinstance(array, Lifted) and array.settle(t)


def in_transform() -> bool:
    """Whether the function that is running is being transformed."""
    rec = per_thread.recorder
    return rec.rare > 0 and rec.level is not None and rec.level.transforms


def by_parts(function: Callable[..., Any], *tensors: Any) -> Any:
    """What a function that looks at values, and has no derivative, returns for tensors: for what stands for a batch it is called with each part."""
    rec = per_thread.recorder
    return function(*tensors) if not rec.rare or rec.level is None else rec.level.by_parts(function, tensors)


def stands_for_batch(t: Any) -> bool:
    """Whether a tensor stands for all of a batch, inside of vmap."""
    rec = per_thread.recorder
    return rec.rare > 0 and rec.level is not None and rec.level.stands_for_batch(t)


def lies(t: Any) -> tuple[tuple[int, ...], int]:
    """The strides and the offset of a tensor as they are told: those of what stands for a batch are the batch's, which lies in memory as a whole."""
    rec = per_thread.recorder
    return (t._strides(), t._offset()) if not rec.rare or rec.level is None else rec.level.lies(t)


def begins(t: Any) -> int:
    """The offset of a tensor as it is told; see `lies`."""
    rec = per_thread.recorder
    if not rec.rare or rec.level is None:
        return t._offset()
    rec.level.locates(t)
    return rec.level.lies(t)[1]


def as_told(t: Any, size: tuple[int, ...], stride: tuple[int, ...], offset: int | None) -> Any:
    """What `as_strided` gives for a tensor by strides as `lies` tells them; NotImplemented where these are those of memory."""
    rec = per_thread.recorder
    return NotImplemented if not rec.rare or rec.level is None else rec.level.as_strided(t, size, stride, offset)


def mapped_as(t: Any, like: Any) -> Any:
    """`t`, just made: where `like` stands for a batch a batch of tensors like it, each to be written to by itself."""
    rec = per_thread.recorder
    return t if not rec.rare or rec.level is None else rec.level.mapped_as(t, like)


def meet(t: Any, grad: str = "") -> None:
    """Tell what carries out operations of a tensor that is about to be read or changed otherwise; see `Interpreter.meets`."""
    level = per_thread.recorder.level
    if level is not None:
        level.meets(t, grad)
