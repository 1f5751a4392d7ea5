"""Autograd Functions inside vmap: by the user's rule, or by one made from forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torchgrad_jax.autograd.function import Function, FunctionCtx
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.lifting.trees import broadcast, tree_flatten

DOCS = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"
Dims = tuple[int | None, ...]


class Info(NamedTuple):
    """What a Function's `vmap` is told: how large the batch is, and what random operations do."""

    batch_size: int
    randomness: str

    def __repr__(self) -> str:
        return f"VmapInfo(batch_size={self.batch_size}, randomness={self.randomness!r})"


Rule = Callable[[Info, Dims, Sequence[Any]], tuple[Any, Any]]


def rule_of(cls: Any, opened: Callable[[int, str], Any]) -> Rule:
    """What carries out a call of `cls` for a batch: given the arguments outside of the level and which have a batch as their first dimension, the
    results and where theirs is. opened: makes a level of vmap, given its size and what random operations do.

    RuntimeError where the Function has no rule, or two."""
    own = cls.vmap is not Function.vmap
    if own and cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overridden vmap staticmethod. Please set "
            f"generate_vmap_rule=False or delete the overridden vmap staticmethod to avoid ambiguity. {DOCS}"
        )
    if own:
        return lambda info, dims, args: _by_user(cls, info, dims, args)
    if not cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please override and implement the vmap staticmethod or set "
            f"generate_vmap_rule=True. {DOCS}"
        )
    return lambda info, dims, args: _by_parts(cls, opened, info, dims, args)


def _by_user(cls: Any, info: Info, dims: Dims, args: Sequence[Any]) -> tuple[Any, Any]:
    found = cls.vmap(info, dims, *args)
    if not (isinstance(found, tuple) and len(found) == 2):
        raise RuntimeError(
            "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible with the output. Got a "
            f"{type(found)} instead"
        )
    spec = tree_flatten(found[0])[1]
    if broadcast(found[1], spec) is None:
        raise RuntimeError(
            f"The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple. Expected out_dims={found[1]} to be "
            f"compatible with the structure of `output`. out_dims has structure {tree_flatten(found[1])[1]} but output has structure {spec}. {DOCS}"
        )
    return found


# ---------------------------------------------------------------------- a rule made from forward and backward


class PartOfBatch(FunctionCtx):
    """The `ctx` of the user's methods, which see one part of the batch each. The tensors saved by it are the whole's `whole`, a ctx outside.

    mapped: for each that was saved, whether it is a batch.
    """

    def __init__(self, whole: Any) -> None:
        self.whole = whole
        self.mapped: list[bool | None] = []
        self.given: tuple[Any, ...] = ()

    @property
    def needs_input_grad(self) -> tuple[bool, ...]:  # type: ignore[override] - a plain attribute there
        """See FunctionCtx."""
        return self.whole.needs_input_grad

    def mark_dirty(self, *args: Any) -> None:
        """See FunctionCtx. RuntimeError: what is written to is one part of a batch."""
        raise RuntimeError(
            "vmap: a Function with generate_vmap_rule=True may not mark_dirty its inputs. Please override the vmap staticmethod, or "
            "return a new tensor."
        )

    def mark_non_differentiable(self, *args: Any) -> None:
        """See FunctionCtx."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """See FunctionCtx."""
        self.whole.set_materialize_grads(value)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved, as the user's methods see it."""
        return self.given


def _by_parts(cls: Any, opened: Any, info: Info, dims: Dims, args: Sequence[Any]) -> tuple[Any, Any]:
    several: list[bool] = []
    found = _whole(cls, opened, info, dims, several).apply(*args)
    return found, (0,) * len(found) if several[0] else 0


def _whole(cls: Any, opened: Any, info: Info, dims: Dims, several: list[bool]) -> Any:
    """A Function of the whole batch whose methods are the user's for each part of it. several: is told whether there is more than one result."""

    def parts(level: Any, values: Sequence[Any], mapped: Sequence[Any]) -> list[Any]:
        return [level.wrap(v, 0) if isinstance(v, Tensor) and m else v for v, m in zip(values, mapped, strict=True)]

    def together(level: Any, v: Any) -> Any:
        return level.unwrap(v, 0) if isinstance(v, Tensor) else v

    there = [dim is not None for dim in dims]

    class Whole(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*args: Any) -> Any:
            with opened(*info) as level:
                found = cls.forward(*parts(level, args, there))
                several.append(isinstance(found, tuple))
                return tuple([together(level, v) for v in found]) if isinstance(found, tuple) else together(level, found)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.part = part = PartOfBatch(ctx)
            outs = output if isinstance(output, tuple) else (output,)
            with opened(*info) as level:
                given = [level.wrap(v, 0) if isinstance(v, Tensor) else v for v in outs]
                cls.setup_context(part, tuple(parts(level, inputs, there)), tuple(given) if isinstance(output, tuple) else given[0])
                part.mapped = [t is not None and level.is_mapped(t) for t in part.to_save or ()]
                saved = [t if t is None or not m else level.unwrap(t, 0) for t, m in zip(part.to_save or (), part.mapped, strict=True)]
                marked = [o for o, v in zip(outs, given, strict=True) if any(v is m for m in part.non_differentiable or ())]
            ctx.save_for_backward(*saved)
            ctx.save_for_forward(*saved)
            ctx.mark_non_differentiable(*marked)
            part.to_save = None

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            with opened(*info) as level:
                ctx.part.given = tuple(parts(level, ctx.saved_tensors, ctx.part.mapped))
                method = cls.vjp if cls.vjp is not Function.vjp else cls.backward
                found = method(ctx.part, *[g if g is None else level.wrap(g, 0) for g in grads])
                found = found if isinstance(found, tuple) else (found,)
                whole = [together(level, g) for g in found]
            return tuple([g if g is None or mapped else g.sum(0) for g, mapped in zip(whole, there, strict=False)])

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            with opened(*info) as level:
                ctx.part.given = tuple(parts(level, ctx.saved_tensors, ctx.part.mapped))
                found = cls.jvp(ctx.part, *parts(level, tangents, there))
                return tuple([together(level, t) for t in found]) if isinstance(found, tuple) else together(level, found)

    Whole.__name__ = Whole.__qualname__ = "Vmapped" + cls.__name__
    return Whole
