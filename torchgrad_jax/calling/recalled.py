"""Calls like one that was made before: what that came to is recorded again, without working out anew what the arguments mean.

Many public functions choose, check and convert, and come to one operation in the end: which one is told by the shapes, dtypes and strides of their
tensors and by their other arguments, whatever the tensors hold. Working that out in Python takes several times as long as recording the operation. So
a guard (`guards.py`) looks here first; what a call came to is read off the program that is pending, without the help of the function: one operation
was recorded, of these arguments, and its results were returned. Compiled where there is a compiler (`torchgrad_jax/_typed`).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from torchgrad_jax.calling.return_types import ReturnType
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.fields import content_of, needs_grad
from torchgrad_jax.core.hot import Called, of_one, of_two
from torchgrad_jax.core.order import plain
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.core.viewing import Latest, latest, made_again, made_together
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.memory.formats import memory_format
from torchgrad_jax.memory.storage import Storage, View
from torchgrad_jax.runtime import user_code
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.runtime.recording.epoch import Epoch
from torchgrad_jax.runtime.recording.step import Step
from torchgrad_jax.runtime.value import Value

# How many kinds of calls are known of one function; how often in vain what a call came to is looked for, before that is given up; for how many calls.
MOST, PATIENCE, PAUSE = 32, 64, 4_000
# Arguments that are the same next time if they are equal and of one class.
_PLAIN = frozenset((int, bool, float, str, type(None), dtypes.dtype, device, memory_format, type))
_SEQUENCES = frozenset((tuple, list, Size))
# Operators that make several views.
_TOGETHER = frozenset(("split", "split_with_sizes", "unbind"))
# The public functions written by hand of which this is true, in whichever of _SPACES they are found. (Of what is made from a declaration it always is.)
# Not among them: what asks a tensor for its elements, draws random numbers, writes, or does otherwise under a flag.
_SPACES = frozenset(("torch", "torch.functional", "torch.Tensor", "torch.linalg", "torch.nn.functional"))
_TOLD = frozenset(
    """
    chunk split unbind tensor_split hsplit vsplit select transpose swapaxes swapdims t permute movedim moveaxis view reshape squeeze unsqueeze flatten unflatten ravel
    expand broadcast_to diagonal unfold adjoint contiguous
    cat concat concatenate stack hstack vstack dstack column_stack where roll flip fliplr flipud rot90 repeat tile tril triu diag diag_embed
    clamp clip clamp_min clamp_max masked_fill add sub subtract mul multiply true_divide pow float_power lerp
    addcmul addcdiv round nan_to_num heaviside rsub
    sum mean max min amax amin aminmax argmax argmin std var std_mean var_mean norm any all prod median nanmedian mode nanmean nansum logsumexp cumsum
    cumprod cummax cummin logcumsumexp count_nonzero sort topk argsort msort kthvalue diff trapezoid
    matmul mm bmm mv dot vdot inner outer ger kron trace cross addmm addmv addbmm baddbmm addr einsum tensordot cdist cosine_similarity
    pairwise_distance vector_norm matrix_norm vecdot
    relu relu6 leaky_relu elu selu celu gelu silu mish softplus softsign hardtanh hardsigmoid hardswish hardshrink softshrink tanhshrink threshold glu
    logsigmoid softmax log_softmax softmin mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits kl_div layer_norm rms_norm
    normalize pad conv1d conv2d conv3d avg_pool1d avg_pool2d max_pool1d max_pool2d pixel_shuffle pixel_unshuffle
    float double half bfloat16 int long short bool to type clone
""".split()
)


# Of these it is true but for indices: they ask for the smallest and the largest one, where that is known.
_TOLD_WITH_BOUNDS = frozenset(("gather", "index_select", "take", "embedding", "one_hot", "nll_loss"))


def recalls(name: str, declared: bool) -> Calls | None:
    """What is known of the calls of a public function, by its dotted name; None for one that is not looked for here. declared: whether it is made
    from a declaration."""
    space, _, own = name.rpartition(".")
    if own.endswith("_") or not (declared or (space in _SPACES and own in _TOLD | _TOLD_WITH_BOUNDS)):
        return None
    return Calls(own in _TOLD_WITH_BOUNDS and not declared)


class Like:
    """Any tensor of an aval and of strides, None for those of rows, in ordinary memory. needs: whether it requires a gradient. known: None where it
    does not matter what it holds, else whether its smallest and largest element were; they were not below `low` and above `high`."""

    __slots__ = ("aval", "strides", "needs", "known", "low", "high")

    def __init__(self, aval: Any, strides: Any, needs: bool) -> None:
        self.aval, self.strides, self.needs = aval, strides, needs
        self.known: Any = None
        self.low: Any = 0
        self.high: Any = -1


class Several:
    """A sequence of such arguments."""

    __slots__ = ("kind", "items")

    def __init__(self, kind: type, items: tuple[Any, ...]) -> None:
        self.kind, self.items = kind, items


class Entry:
    """Calls of one kind. args, names, values: the arguments, tensors as Like, and those by name. follows: whether graphs are recorded. after: what
    kind came after it last.

    bound: the operation that they come to; None where it is not one. places: for each operand which of the tensors it is, or -1 for one of the
    `numbers`. called: where it is one of one or two operands; known, begin: where it is a view; together: where it is several, see `Latest`. wrap: what makes the result of the operation's.
    """

    __slots__ = ("args", "names", "values", "follows", "after", "bound", "places", "numbers", "called", "known", "begin", "together", "wrap", "named")

    def __init__(self, args: tuple[Any, ...], names: tuple[str, ...], values: tuple[Any, ...], follows: bool) -> None:
        self.args, self.names, self.values, self.follows = args, names, values, follows
        self.after: Any = None
        self.bound: Any = None
        self.places: tuple[int, ...] = ()
        self.numbers: tuple[Any, ...] = ()
        self.called: Any = None
        self.known: Any = None
        self.begin: Any = None
        self.together: Any = None
        self.wrap: Any = None
        self.named = False


class Calls:
    """The kinds of calls of one function. last: the kind of the last one. left: how often what a call came to is still looked for in vain. bounds:
    whether it matters between which numbers its tensors of integers are."""

    __slots__ = ("entries", "last", "left", "bounds", "__weakref__")

    def __init__(self, bounds: bool = False) -> None:
        self.bounds = bounds
        self.entries: list[Entry] = []
        self.last: Any = None
        self.left = PATIENCE
        _all.append(weakref.ref(self))

    def forget(self) -> None:
        """What calls come to may be otherwise from now on."""
        self.entries, self.last, self.left = [], None, PATIENCE


_warnings = vars(user_code)
_all: list[weakref.ref[Calls]] = []


def _forget_all() -> None:
    for reference in _all:
        calls = reference()
        if calls is not None:
            calls.forget()


dtypes.after_default_changed.append(_forget_all)


def recall(calls: Calls, otherwise: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of the function `otherwise`."""
    rec: Recorder = per_thread.recorder
    if rec.rare or rec.inference:
        return otherwise(*args, **kwargs)
    if calls.left <= 0:
        calls.left -= 1
        if calls.left < -PAUSE:
            calls.left = PATIENCE
        return otherwise(*args, **kwargs)
    got: list[Any] = []
    found = _found(calls, rec.grad_enabled, args, kwargs, got)
    if found is not None:
        if found.bound is None:
            return otherwise(*args, **kwargs)
        if found.known is None and found.together is None:
            return _again(found, got)
        if not View.replayed_somewhere:
            of = got[found.places[0]]
            if found.known is not None:
                return made_again(found.known, of, found.begin)
            made = made_together(of, apply(found.bound, (of,)), *found.together)
            return made if found.wrap is None else found.wrap(made)
        return otherwise(*args, **kwargs)
    epoch, said = rec.epoch, _warnings["said"]
    before = epoch.step
    made = otherwise(*args, **kwargs)
    calls.left -= 1
    if rec.epoch is epoch and epoch.step is not before and not rec.rare and _warnings["said"] == said:
        _learn(calls, epoch, before, args, kwargs, made)
    return made


# ---------------------------------------------------------------------- what is known


def _found(calls: Calls, follows: bool, args: tuple[Any, ...], kwargs: dict[str, Any], got: list[Any]) -> Any:
    """The Entry of a call, None where there is none. got: where its tensors go, in order."""
    last: Entry = calls.last
    if last is None:
        return None
    entry: Entry = last.after
    if entry is not None and entry.follows == follows and _fits(entry, args, kwargs, got):
        calls.last = entry
        return entry
    for entry in calls.entries:
        got.clear()
        if entry.follows == follows and _fits(entry, args, kwargs, got):
            if calls.left < PATIENCE:
                calls.left += 1
            last.after = calls.last = entry
            return entry
    return None


def _fits(entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], got: list[Any]) -> bool:
    known = entry.args
    if len(known) != len(args) or len(entry.names) != len(kwargs):
        return False
    i = 0
    for a in args:
        if not _alike(known[i], a, got):
            return False
        i += 1
    if kwargs:
        i = 0
        for name, a in kwargs.items():
            if entry.names[i] != name or not _alike(entry.values[i], a, got):
                return False
            i += 1
    return True


def _alike(item: Any, value: Any, got: list[Any]) -> bool:
    """Whether an argument is as one was before."""
    kind = type(value)
    if kind is Tensor or kind is Parameter:
        if type(item) is not Like:
            return False
        like: Like = item
        t: Tensor = value
        view, storage = t._view, t._storage
        if storage is not None and type(storage) is not Storage:
            return False
        if view is None:
            aval = t._value.aval if storage is None else storage.value.aval
            if like.strides is not None:
                return False
        else:
            aval = t._value.aval
            strides = None if view.plain else view.strides
            if like.strides is not strides and like.strides != strides:
                return False
        if aval is not like.aval or (t._rg if view is None else needs_grad(t)) != like.needs:
            return False
        if like.known is not None and (_may_be_known(t) or not _is_within(like, content_of(value))):
            return False
        got.append(value)
        return True
    if item is value:
        return True
    if kind is int or kind is bool:
        return type(item) is kind and item == value
    if type(item) is Several:
        several: Several = item
        if several.kind is not kind or len(several.items) != len(value):
            return False
        i = 0
        for one in value:
            if not _alike(several.items[i], one, got):
                return False
            i += 1
        return True
    if type(item) is not kind or item != value:
        return False
    return kind is not float or value != 0.0 or math.copysign(1.0, item) == math.copysign(1.0, value)


def _applied(bound: Any, *operands: Any) -> Any:
    return apply(bound, operands)


def _may_be_known(t: Tensor) -> bool:
    """Whether a view that is not computed yet has all elements of its memory, of which more may be known."""
    return t._view is not None and t._storage.value.aval.size == t._value.aval.size and content_of(t).array is None


def _is_within(like: Like, content: Value) -> bool:
    """Whether as much is known of what a tensor of integers holds, and that is no more."""
    if content.array is None:
        return not like.known
    found = content.known_bounds()
    return like.known is (found is not None) and (found is None or (like.low <= found[0] and found[1] <= like.high))


def _again(entry: Entry, got: list[Any]) -> Any:
    """Record the operation of an Entry of these tensors."""
    called: Called = entry.called
    if called is not None:
        if len(entry.places) == 1:
            return of_one(called, got[entry.places[0]])
        second = entry.places[1]
        return of_two(called, got[entry.places[0]], got[second] if second >= 0 else entry.numbers[0])
    operands: list[Any] = []
    i = 0
    for place in entry.places:
        if place >= 0:
            operands.append(got[place])
        else:
            operands.append(entry.numbers[i])
            i += 1
    made = apply(entry.bound, operands)
    return made if entry.wrap is None else tuple.__new__(entry.wrap, made) if entry.named else entry.wrap(made)


# ---------------------------------------------------------------------- what is learned


class _Unlike(Exception):
    """An argument is of a kind of which there may be others that look the same."""


def _item(value: Any, tensors: list[Any], bounds: bool) -> Any:
    """What stands for an argument in an Entry."""
    kind = type(value)
    if kind is Tensor or kind is Parameter:
        tensors.append(value)
        view, storage = value._view, value._storage
        if storage is not None and type(storage) is not Storage:
            raise _Unlike
        like = Like(value._aval, None if view is None or view.plain else view.strides, needs_grad(value))
        if bounds and value._aval.dtype.kind in "iu" and value._aval.size:
            if _may_be_known(value):
                raise _Unlike
            _note_bounds(like, content_of(value))
        return like
    if kind in _SEQUENCES:
        return Several(kind, tuple([_item(v, tensors, bounds) for v in value]))
    if kind not in _PLAIN or value != value:
        raise _Unlike
    return value


def _note_bounds(like: Like, content: Value) -> None:
    found = None if content.array is None else content.known_bounds()
    like.known = found is not None
    if found is not None:
        if found[0] < 0:  # it may stand for something else, as for what is to be ignored
            raise _Unlike
        like.low, like.high = 0, found[1]


def _learn(calls: Calls, epoch: Epoch, before: Step, args: tuple[Any, ...], kwargs: dict[str, Any], made: Any) -> None:
    """Take note of what a call came to since the Step `before`, and that it may not be done again where it was not one operation."""
    tensors: list[Any] = []
    try:
        items = tuple([_item(a, tensors, calls.bounds) for a in args])
        named = tuple([_item(a, tensors, calls.bounds) for a in kwargs.values()])
    except _Unlike:
        return
    entry = Entry(items, tuple(kwargs), named, epoch.recorder.grad_enabled)
    if not _read_off(entry, epoch, before, tensors, made):
        entry.bound = None
        if calls.left > PATIENCE // 2:  # the next call may be clearer: of other tensors, or of views that are up to date
            return
    if len(calls.entries) >= MOST:
        del calls.entries[0]
    calls.entries.append(entry)
    if calls.last is not None:
        calls.last.after = entry
    calls.last = entry


def _read_off(entry: Entry, epoch: Epoch, before: Step, tensors: list[Any], made: Any) -> bool:
    """Complete an Entry by the operation that was recorded. False where it was not one, of these tensors, whose results were returned."""
    step = epoch.step
    sig = step.signature
    above: Any = step.parent
    while above is not before:
        if above is None or above.signature is not None:
            return False
        above = above.parent
    if sig is None or not _is_returned(entry, epoch, step, made):
        return False
    slots: dict[int, int] = {}
    for place, t in enumerate(tensors):
        value = t._content()
        slot = value.slot if value.epoch is epoch else epoch.foreign.get(value)
        if slot is None:
            continue
        slots[slot] = -1 if slot in slots else place
    places = [slots.get(arg, -1) if type(arg) is int else -2 for arg in step.args]
    if not places or -1 in places or not set(places).issuperset(range(len(tensors))):  # a tensor may be asked for a number
        return False
    entry.bound, entry.places = step.bop, tuple([max(place, -1) for place in places])
    entry.numbers = tuple([epoch.numbers[place] for place in step.numbers])
    if type(made) is Tensor and made._view is not None:
        return _is_view(entry, step, tensors, made)
    if not sig.single and made[0]._view is not None:
        return _are_views(entry, step, tensors, made)
    if not all([plain(t) for t in tensors]):  # the order of the result's elements in memory may be the function's to say
        return False
    if entry.wrap is None and sig.single and entry.places[0] >= 0:
        if len(places) == 1 or (len(places) == 2 and (entry.places[1] >= 0 or type(entry.numbers[0]) in (int, float))):
            entry.called = Called(step.bop, step.bop.name, partial(_applied, step.bop), True)
    return True


def _is_returned(entry: Entry, epoch: Epoch, step: Step, made: Any) -> bool:
    """Whether what was returned is what the operation gave, and nothing was done to it."""
    single = step.signature.single
    results = [made] if single else made
    if not single and not isinstance(made, (tuple, list)):
        return False
    if len(results) != len(step.signature.avals):
        return False
    for i, t in enumerate(results):
        if type(t) is not Tensor or t._extra is not None or t._value.epoch is not epoch or t._value.slot != step.slot + i:
            return False
        if t._storage is not None and t._view is None:
            return False
        if t._rg and t._node is not None and (t._nr != i or getattr(t._node, "plan", None) is None):
            return False
    if not single and type(made) is not tuple:
        entry.wrap = type(made)
        entry.named = isinstance(made, ReturnType)
    return True


def _is_view(entry: Entry, step: Step, tensors: list[Any], made: Tensor) -> bool:
    """Whether a view is the one that was made last, of the first operand."""
    noted: Latest = latest
    known, view = noted.known, made._view
    if entry.places[0] < 0 or known is None or known.bound is not step.bop or noted.link is not view.links[-1]:
        return False
    parent = tensors[entry.places[0]]._view
    if len(view.links) != 1 + (0 if parent is None else len(parent.links)):
        return False
    entry.known, entry.begin = known, view.links[-1].numbers[0] if view.links[-1].numbers else None
    return True


def _are_views(entry: Entry, step: Step, tensors: list[Any], made: Any) -> bool:
    """Whether several views are those that were made last, of the only operand."""
    noted: Latest = latest
    if len(tensors) != 1 or noted.together is None or step.bop.operator.name not in _TOGETHER:
        return False
    links, entry.together = noted.together
    return len(links) == len(made) and all([t._view is not None and t._view.links[-1] is link for t, link in zip(made, links, strict=True)])
