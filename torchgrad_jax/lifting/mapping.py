"""The level of vmap: its tensors stand for all of a batch, and lack the dimension that counts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.autograd.function import Function
from torchgrad_jax.autograd.function_forward import push_function
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.duals import without_duals
from torchgrad_jax.core.level import by_parts, lies, mapped_as
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.messages import NO_STORAGE
from torchgrad_jax.core.strided import as_strided
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.viewing import part_of, viewed
from torchgrad_jax.core.writing import apply_inplace
from torchgrad_jax.declaration.batching import batched
from torchgrad_jax.declaration.strides import contiguous_strides
from torchgrad_jax.functions import views
from torchgrad_jax.functions.shaping import stack
from torchgrad_jax.functions.views import clone
from torchgrad_jax.lifting.functions import Info, rule_of
from torchgrad_jax.lifting.level import ESCAPED, Held, Level, held
from torchgrad_jax.lifting.striding import ACROSS, refuse_beyond, told
from torchgrad_jax.lifting.trees import tree_flatten, tree_unflatten
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Aval, Value, aval_of, constant

ASK = "Please file an issue at https://github.com/pytorch/pytorch/issues if you need this feature."
DYNAMIC = f"vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over aten::{{}}. {ASK}"
LOOKED = {
    **{name: DYNAMIC.format(name) for name in ("nonzero", "_unique2", "unique_dim", "unique_consecutive", "where")},
    **{name: f"Batching rule not implemented for aten::{name}. We could not generate a fallback." for name in ("nonzero_numpy", "equal")},
    "mask": "vmap: We do not support batching operators that can support dynamic shape. Attempting to batch over indexing with a boolean mask.",
    "masked_select": "vmap: Attempted to vmap over `mask` in torch.masked_select(self, mask) We cannot support this because for each batch this "
    f"would return a differently shaped Tensor. {ASK}",
    "allclose": f"vmap over torch.allclose isn't supported yet. {ASK}",
    "item": "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, please try to rewrite "
    "what you're doing with other operations. If error is occurring somewhere inside PyTorch internals, please file a bug report.",
    "is_nonzero": "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that yet, please file "
    "an issue at https://github.com/pytorch/pytorch/issues .",
    "numpy": NO_STORAGE,
    "tolist": NO_STORAGE,
    "": "vmap: We do not support batching operators that can output dynamic shape, or that look at values: inside vmap a tensor stands for all of a "
    "batch.",
}
RANDOM = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness flags on vmap or perform "
    "the randomness operation out of vmap"
)
SAME_WRITTEN = (
    "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same randomness. If this is necessary for your "
    "usage, please file an issue with functorch."
)
SAME_OF_BATCH = "Vmap does not currently support same randomness with a batched tensor input. Please file an issue with functorch"

MAPPED = (
    "vmap: {0}(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has more elements than `self`. This "
    "happened due to `other` being vmapped over but `self` not being vmapped over {1}. Please try to use out-of-place operators instead of {0}. If "
    "said operator is being called inside the PyTorch framework, please file a bug report instead."
)
# In-place operators of which PyTorch says that they are arithmetic; those that it names as users do; what our names have more than PyTorch's.
ARITHMETIC = frozenset(("add", "sub", "mul", "div", "copy", "masked_fill", "clamp_min", "clamp_max", "logical_and", "logical_or", "logical_xor"))
AS_CALLED = frozenset(("fill", "index_add", "index_fill", "index_put", "scatter_add", "scatter_reduce"))
VARIANTS = ("_checked", "_number", "_tensor", "_tensors", "_scalar", "_scaled", "_rounded", "_src", "_value")


def _mapped_into(name: str, depth: int) -> str:
    """Why an operator may not write what stands for a batch to what does not."""
    for variant in VARIANTS:
        name = name.removesuffix(variant)
    if name in ARITHMETIC:
        return MAPPED.format("inplace arithmetic", "in a vmap")
    if name in AS_CALLED:
        return MAPPED.format(name + "_", "in a vmap")
    return MAPPED.format(f"aten::{name}_", f"at level {depth}")


class Mapped(Held):
    """A tensor of the level outside whose first dimension is the batch."""

    __slots__ = ()
    batch = True

    def settle(self, t: Tensor) -> bool:
        """See Lifted: a batch is nothing outside."""
        return False

    def concrete(self, asked: str = "") -> Any:
        """See Lifted."""
        level: Any = self.level
        raise RuntimeError(level.refusal_to_look(asked) if level.open else ESCAPED)

    @property
    def readable(self) -> bool:
        """See Lifted."""
        return False

    def shown(self) -> str:
        """See Lifted."""
        return self._shown("BatchedTensor", "bdim=0, ")


class BatchLevel(Level):
    """See the module. size: of the batch. randomness: "error", "different" or "same": what random operations do."""

    __slots__ = ("size", "randomness")
    has_graph = False

    def __init__(self, size: int, randomness: str = "error") -> None:
        super().__init__()
        self.size, self.randomness = size, randomness

    def wrap(self, t: Tensor, dim: int | None) -> Tensor:
        """What the function is given for `t`: a tensor that lacks `dim`, or the tensor itself. IndexError where there is no such dimension."""
        if dim is None:
            if isinstance(t, Tensor):
                self.lies_outside(t, t)
            return t
        with self.outside:
            first = _first(t, dim)
        return self.argument(self.mapped(first), first)

    def mapped(self, t: Tensor) -> Tensor:
        """The tensor of this level whose batch is the first dimension of `t`."""
        return wrap(self._value(t))

    def _value(self, t: Tensor) -> Value:
        aval = t._aval
        return constant(Mapped(self, t), aval_of(aval.shape[1:], aval.dtype, aval.device))

    def is_mapped(self, t: Tensor) -> bool:
        """Whether a tensor stands for a batch of this level."""
        array = held(t)
        return isinstance(array, Mapped) and array.level is self

    def content(self, t: Tensor) -> Tensor:
        """See Level."""
        return super().content(t) if self.is_mapped(t) else self.unwrap(t)

    def unwrap(self, t: Tensor, dim: int | None = 0) -> Tensor:
        """The tensor of the level outside that has the batch as its dimension `dim`: what is no batch is repeated. dim None: it must be none.

        ValueError where `dim` is None for a batch.
        """
        if not self.is_mapped(t):
            inner = super().content(t) if self.owns(t) else t
            if dim is None:
                return inner
            with self.outside:
                return _moved(viewed("expand", inner, (self.size, *inner._aval.shape)), 0, dim)
        if dim is None:
            raise ValueError("vmap: out_dims is None for a result that is mapped over")
        inner = self.content(t)
        with self.outside:
            return _moved(inner, 0, dim)

    def refusal_to_look(self, asked: str) -> str:
        """Why the value of what stands for a batch is not given. asked: by what function of a tensor, if known."""
        return LOOKED.get(asked, LOOKED[""])

    # ------------------------------------------------------------------ operations

    def apart(self, bound: Any, operands: Sequence[Any]) -> Any:
        """See Level: it is an operation of the level outside."""
        with self.outside:
            return apply(bound, operands)

    def write_outside(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """See Level: what is no batch may be written to with what is none."""
        if any([isinstance(o, Tensor) and self.owns(o) for o in operands]):
            raise RuntimeError(_mapped_into(bound.operator.name, self.depth))
        with self.outside:
            return apply_inplace(bound, operands)

    def lies(self, t: Tensor) -> tuple[tuple[int, ...], int]:
        """See Interpreter."""
        if not self.is_mapped(t):
            with self.outside:
                return lies(t)
        inner, steps, begin = self._memory(t)
        return told(t, inner._aval.shape[1:], steps[1:], begin) or (t._strides(), t._offset())

    def as_strided(self, t: Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int | None) -> Any:
        """See Interpreter. RuntimeError for what reaches beyond the tensor."""
        if not self.is_mapped(t):
            with self.outside:
                return views.as_strided(t, size, stride, offset)
        if len(size) != len(stride):
            return NotImplemented
        inner, steps, begin = self._memory(t)
        lying = told(t, inner._aval.shape[1:], steps[1:], begin)
        if lying is None:
            return NotImplemented
        start = lying[1] if offset is None else offset
        refuse_beyond(t._aval.shape, *lying, size, stride, start)
        if steps[1:] == contiguous_strides(inner._aval.shape[1:]):  # each part lies by itself, as it does in the level
            return as_strided(t, size, stride, start - begin)
        with self.outside:
            found = self.mapped(views.as_strided(inner, (self.size, *size), (steps[0], *stride), start))
        held(found).apart = ACROSS
        return found

    def stands_for_batch(self, t: Tensor) -> bool:
        """See Interpreter."""
        return self.is_mapped(t) or super().stands_for_batch(t)

    def rewritten(self, t: Tensor, value: Value, name: str) -> bool:
        """See Interpreter. RuntimeError for a batch as the content of what is none."""
        array = value.array
        if not (isinstance(array, Mapped) and array.level is self) or self.is_mapped(t):
            return super().rewritten(t, value, name)
        raise RuntimeError(_mapped_into(name, self.depth))

    def refuses_memory(self, t: Tensor, new: Tensor, name: str) -> str | None:
        """See Interpreter."""
        mapped = self.is_mapped(t), self.is_mapped(new)
        if True not in mapped:
            return super().refuses_memory(t, new, name)
        if name == "data":
            return "mutating directly with `.data` under vmap transform is not allowed."
        return None if mapped[0] else _mapped_into("set", self.depth)

    def created(self, t: Tensor) -> None:
        """See Interpreter: it is made for all of the batch, outside."""
        if self.outside.level is not None:
            self.outside.level.created(t)

    def random(self, shape: tuple[int, ...], draw: Callable[[tuple[int, ...]], Any], into: Any = None) -> Any:
        """See Interpreter. RuntimeError where it may not be, or where numbers that differ would be written to what is no batch."""
        self._refuse_randomness()
        if self.randomness == "same":
            return self.random_outside(shape, draw)
        if into is not None and not self.is_mapped(into):
            raise RuntimeError(SAME_WRITTEN)
        return self.mapped(self.random_outside((self.size, *shape), draw))

    def random_of(self, draw: Callable[..., Any], tensors: Sequence[Any]) -> Any:
        """See Interpreter. RuntimeError where it may not be."""
        self._refuse_randomness()
        mapped = any(map(self.is_mapped, tensors))
        if self.randomness == "same":
            if mapped:
                raise RuntimeError(SAME_OF_BATCH)
            with self.outside:
                return draw(*tensors)
        given = [self.unwrap(t) for t in tensors]
        with self.outside:
            return self.mapped(draw(*given))

    def mapped_as(self, t: Any, like: Any) -> Any:
        """See Interpreter."""
        mapped, model = self.is_mapped(like), super().content(like) if self.owns(like) else like
        with self.outside:
            inner = mapped_as(t, model)
            if not mapped:
                return inner
            whole = clone(viewed("expand", inner, (self.size, *inner._aval.shape)))
        return self.mapped(whole)

    def by_parts(self, function: Callable[..., Any], tensors: Sequence[Any]) -> Any:
        """See Interpreter."""
        mapped = [self.is_mapped(t) for t in tensors]
        given = [self.content(t) if there else t for t, there in zip(tensors, mapped, strict=True)]
        with self.outside:
            if True not in mapped:
                return by_parts(function, *given)
            found = [
                by_parts(function, *[part_of("select", t, i, (0,)) if there else t for t, there in zip(given, mapped, strict=True)])
                for i in range(self.size)
            ]
            if isinstance(found[0], tuple):
                whole: Any = tuple([stack(list(row)) for row in zip(*found, strict=True)])
            else:
                whole = stack(found)
        return tuple([self.mapped(t) for t in whole]) if isinstance(whole, tuple) else self.mapped(whole)

    def _refuse_randomness(self) -> None:
        if self.randomness == "error":
            raise RuntimeError(RANDOM)

    def function(self, cls: Any, args: tuple[Any, ...]) -> Any:
        """See Level: by the user's `vmap`, or by that of what forward and backward do, if the Function says so."""
        # A rule of the user's is given containers of arguments too, as they are outside; what is made from forward and backward maps what is in them.
        flat, spec = tree_flatten(args) if cls.vmap is not Function.vmap else (args, None)
        if not any([isinstance(a, Tensor) and self.is_mapped(a) for a in flat]):
            with self.outside:
                return cls.apply(*args)
        made = rule_of(cls, BatchLevel)
        dims: Any = tuple([0 if isinstance(a, Tensor) and self.is_mapped(a) else None for a in flat])
        given = [a if dim is None and not (isinstance(a, Tensor) and self.owns(a)) else self._held(a) for a, dim in zip(flat, dims, strict=True)]
        if spec is not None:
            dims, given = tree_unflatten(dims, spec), tree_unflatten(given, spec)
        with self.outside:
            found, out_dims = made(Info(self.size, self.randomness), dims, given)
        return self._mapped_again(found, out_dims)

    def function_of_duals(self, cls: Any, args: tuple[Any, ...], tangents: dict[int, Tensor]) -> Any:
        """See Interpreter: tangents by the user's `jvp`, which sees one part of the batch as `forward` does."""
        with without_duals(per_thread.recorder):
            found = self.function(cls, args)
            ctx = cls._backward_cls()
            ctx.needs_input_grad, ctx._recorded_saved = (False,) * len(args), ()
            cls.setup_context(ctx, args, found)
        outs = found if isinstance(found, tuple) else (found,)
        ctx.saved_for_forward = ctx.saved_for_forward or ()
        push_function(ctx, args, outs, outs, tangents)
        return found

    def held_again(self, t: Tensor, inner: Tensor) -> Tensor:
        """See Level."""
        return self.mapped(inner) if self.is_mapped(t) else self.lift(inner)

    def _held(self, t: Tensor) -> Tensor:
        return self._below(t._read())

    def _mapped_again(self, found: Any, dims: Any) -> Any:
        if isinstance(found, (tuple, list)):
            several = dims if isinstance(dims, (tuple, list)) else (dims,) * len(found)
            if len(several) != len(found):
                raise RuntimeError(f"Expected the vmap staticmethod to give an out_dim for each output: got {len(several)} for {len(found)}")
            return type(found)([self._mapped_again(t, dim) for t, dim in zip(found, several, strict=True)])
        if not isinstance(found, Tensor) or dims is None:
            return found
        with self.outside:
            first = _first(found, dims)
        return self.mapped(first)

    def call(self, bound: Any, values: tuple[Any, ...]) -> tuple[Any, Signature]:
        """See Level."""
        mapped = tuple([type(v) is Value and type(v.array) is Mapped and v.array.level is self for v in values])
        if True not in mapped:
            return super().call(bound, values)
        sig = signature(bound, tuple([v.aval if type(v) is Value else type(v) for v in values]))  # of one part of the batch
        given = [self._below(v) for v in values]
        with self.outside:
            found = apply(batched(sig, mapped), given)
        return self._lifted_batch(found, sig.avals), sig

    def _lifted_batch(self, found: Any, avals: Sequence[Aval]) -> Any:
        if type(found) is tuple:
            return tuple([constant(Mapped(self, t), aval) for t, aval in zip(found, avals, strict=True)])
        return constant(Mapped(self, found), avals[0])


def _first(t: Tensor, dim: int) -> Tensor:
    """`t` with dimension `dim` as its first."""
    return _moved(t, _checked(t, dim), 0) if t._aval.ndim else t


def _checked(t: Tensor, dim: int) -> int:
    """A dimension of `t` counted from the front. IndexError where there is none."""
    ndim = t._aval.ndim
    if not -ndim <= dim < ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})")
    return dim % ndim


def _moved(t: Tensor, source: int, target: int) -> Tensor:
    """`t` with its dimension `source` at `target`, which may be negative."""
    ndim = t._aval.ndim
    target = _checked(t, target)
    if source == target:
        return t
    order = [i for i in range(ndim) if i != source]
    order.insert(target, source)
    return viewed("permute", t, tuple(order))


def batch_level(size: int, randomness: str = "error") -> BatchLevel:
    """Opens a level of vmap for a block."""
    return BatchLevel(size, randomness)


def open_batch_level(depth: int) -> BatchLevel:
    """The level of vmap of this depth. RuntimeError where none is open."""
    level: Any = per_thread.recorder.level
    while level is not None and level.depth != depth:
        level = level.outside.level
    if not isinstance(level, BatchLevel):
        raise RuntimeError(f"vmap: there is no level {depth} open")
    return level


def add_batch_dim(tensor: Tensor, batch_dim: int, level: int) -> Tensor:
    """What a function is given for `tensor` in the level of vmap of this depth, where it is mapped over `batch_dim`."""
    return open_batch_level(level).wrap(tensor, batch_dim)


def remove_batch_dim(tensor: Tensor, level: int, batch_size: int, out_dim: int) -> Tensor:
    """The tensor outside of the level of vmap of this depth, with the batch as its dimension `out_dim`; what is no batch is repeated."""
    return open_batch_level(level).unwrap(tensor, out_dim % (tensor._aval.ndim + 1))
