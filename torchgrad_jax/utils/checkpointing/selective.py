"""Selective checkpoints: what a policy says is kept from the forward pass, the rest is computed again."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax._ops import OpOverload, OpOverloadPacket, overload_of
from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.anomaly import note_node
from torchgrad_jax.core.dispatch import make_node
from torchgrad_jax.core.made import result, wrap
from torchgrad_jax.core.node import Node
from torchgrad_jax.core.op_node import pack_operands, pack_results
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.through import Through, is_view
from torchgrad_jax.declaration.operator import NUMBERS, plain_number
from torchgrad_jax.lifting.trees import tree_flatten
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.operation import signature
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.runtime.value import Value


class CheckpointPolicy(enum.Enum):
    """What becomes of an operation's results: ``*_SAVE`` keeps them, ``*_RECOMPUTE`` computes them again, ``*_CPU_OFFLOAD`` keeps them on the host.
    Nothing here overrides a policy, so ``MUST_*`` and ``PREFER_*`` are the same."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


# Operators that no policy is asked about; it is not asked about views and writes either.
SAC_IGNORED_OPS: set[OpOverload] = set()
_KEPT = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
_OFFLOADED = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)


class SelectiveCheckpointContext:
    """What a policy function is told beside the operation: op_output, its result. is_recompute is False: recomputation asks no policy."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output


Policy = Callable[..., CheckpointPolicy | bool]
# What the n-th operation of each kind gave, where it was kept; None once it was used.
Cache = dict[tuple[Any, int], "_Kept | None"]


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Policy | Sequence[OpOverload], allow_cache_entry_mutation: bool = False
) -> tuple[_Forward, _Again]:
    """The contexts of the forward pass and of the recomputation, for the `context_fn` of `checkpoint`.

    policy_fn_or_list: a function of (context, op, *args, **kwargs), asked about every operation that computes something and is not in place, which
    gives a `CheckpointPolicy`; or a list of operators, whose results are kept while all others are computed again. Operators are
    ``torch.ops.aten.mm.default`` and the like. allow_cache_entry_mutation: whether what is kept may be written to; recomputation uses it as it was.

    TypeError for anything else, ValueError for a list of anything else. RuntimeError in backward where what was kept has been written to, and where
    it is needed a second time.

    Example::

        keep = [torch.ops.aten.mm.default]
        contexts = functools.partial(create_selective_checkpoint_contexts, keep)
        out = checkpoint(fn, x, use_reentrant=False, context_fn=contexts)
    """
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            if not isinstance(op, OpOverload):
                raise ValueError(_not_an_overload(op))
        policy = _keep_these(set(policy_fn_or_list))
    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    cache: Cache = {}
    return _Forward(policy, cache), _Again(cache, allow_cache_entry_mutation)


def _keep_these(kept: set[OpOverload]) -> Policy:
    def policy(ctx: SelectiveCheckpointContext, op: OpOverload, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


def _not_an_overload(op: Any) -> str:
    text = f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}. "
    if isinstance(op, OpOverloadPacket):
        text += (
            f"Please update the OpOverloadPacket to a specific OpOverload.For example, if you have `torch.ops.{op}`, change it to "
            f"`torch.ops.{op}.default`."
        )
    return text


def _asked_about(bound: Any) -> OpOverload | None:
    op = None if is_view(bound) else overload_of(bound)
    return None if op in SAC_IGNORED_OPS else op


class _Kept:
    """The results of an operation: their Values, and the tensors with their versions, which tell whether one was written to."""

    __slots__ = ("tensors", "versions", "device")

    def __init__(self, results: tuple[Tensor, ...], offloaded: bool) -> None:
        self.device: device | None = results[0].device if offloaded and results else None
        with no_grad():
            self.tensors = [t.cpu() if offloaded else t.detach() for t in results]
        self.versions = [t._version for t in self.tensors]

    def values(self, mutable: bool) -> list[Value]:
        """The Values, as they were. RuntimeError where one was written to."""
        if not mutable and any(t._version != v for t, v in zip(self.tensors, self.versions, strict=True)):
            raise RuntimeError("Tensor cached during selective activation checkpoint has been mutated")
        rec = per_thread.recorder
        tensors = self.tensors
        if self.device is not None:
            with no_grad():
                tensors = [t.to(self.device) for t in tensors]
        return [rec.alias(t._content()) for t in tensors]


class _KeptWhole:
    """The results of an operator of the user's, of any structure."""

    __slots__ = ("leaves", "places", "spec", "kept")

    def __init__(self, results: Any, offloaded: bool) -> None:
        self.leaves, self.spec = tree_flatten(results)
        self.places = [i for i, x in enumerate(self.leaves) if isinstance(x, Tensor)]
        self.kept = _Kept(tuple([self.leaves[i] for i in self.places]), offloaded)
        for i in self.places:
            self.leaves[i] = None

    def results(self, mutable: bool) -> Any:
        """The results, as they were. RuntimeError where a tensor was written to."""
        leaves = list(self.leaves)
        for i, value in zip(self.places, self.kept.values(mutable), strict=True):
            leaves[i] = wrap(value)
        return self.spec.unflatten(leaves)


class _Forward(Through):
    """Asks the policy, and keeps."""

    __slots__ = ("policy", "cache", "seen")

    def __init__(self, policy: Policy, cache: Cache) -> None:
        self.policy, self.cache = policy, cache
        self.seen: Counter[Any] = Counter()

    def apply(self, bound: Any, operands: Sequence[Any]) -> Any:
        """See Interpreter."""
        made = self.outside(bound, operands)
        op = _asked_about(bound)
        if op is not None:
            self._ask(op, operands, made, lambda offloaded: _Kept(made if type(made) is tuple else (made,), offloaded))
        return made

    def carried(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """See Interpreter: what it is made of is nobody's affair."""
        rec = per_thread.recorder
        rec.level = self.outer
        try:
            made = super().carried(op, args, run)
        finally:
            rec.level = self
        self._ask(op, args, made, lambda offloaded: _KeptWhole(made, offloaded))
        return made

    def _ask(self, op: Any, args: Sequence[Any], made: Any, kept: Callable[[bool], Any]) -> None:
        key = op, self.seen[op]
        self.seen[op] += 1
        rec = per_thread.recorder
        rec.level = self.outer
        try:
            said = self.policy(SelectiveCheckpointContext(is_recompute=False, op_output=made), op, *args)
        finally:
            rec.level = self
        if isinstance(said, bool):
            said = CheckpointPolicy.MUST_SAVE if said else CheckpointPolicy.PREFER_RECOMPUTE
        if said in _KEPT or said in _OFFLOADED:
            self.cache[key] = kept(said in _OFFLOADED)


class _Again(Through):
    """Gives what was kept instead of computing it, once."""

    __slots__ = ("cache", "mutable", "seen")

    def __init__(self, cache: Cache, mutable: bool) -> None:
        self.cache, self.mutable = cache, mutable

    def __enter__(self) -> Any:
        self.seen: Counter[Any] = Counter()
        return super().__enter__()

    def apply(self, bound: Any, operands: Sequence[Any]) -> Any:
        """See Interpreter."""
        kept = self._taken(_asked_about(bound))
        return self.outside(bound, operands) if kept is None else _as_if_computed(bound, operands, kept.values(self.mutable))

    def carried(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """See Interpreter."""
        kept = self._taken(op)
        if kept is not None:
            return kept.results(self.mutable)
        rec = per_thread.recorder
        rec.level = self.outer
        try:
            return super().carried(op, args, run)
        finally:
            rec.level = self

    def _taken(self, op: Any) -> Any:
        """What was kept of the next call of an operator; None where nothing was. RuntimeError where it has been taken before."""
        key = op, self.seen[op]
        self.seen[op] += 1
        if key not in self.cache:
            return None
        kept, self.cache[key] = self.cache[key], None
        if kept is None:
            raise RuntimeError(
                "Trying to backward an extra time. You are only allowed to backward once on any region computed under selective activation "
                "checkpoint."
            )
        return kept


def _as_if_computed(bound: Any, operands: Sequence[Any], outs: list[Value]) -> Any:
    """The results of an operation, whose Values are known: `dispatch.apply` without its record."""
    rec: Recorder = per_thread.recorder
    values = tuple([o._read() if isinstance(o, Tensor) else o if type(o) in NUMBERS else plain_number(o) for o in operands])
    mask = 0
    if rec.grad_enabled:
        for i, o in enumerate(operands):
            mask |= (isinstance(o, Tensor) and o._rg) << i
    sig = signature(bound, tuple([v.aval if type(v) is Value else type(v) for v in values]))
    node: Node | None = make_node(rec, sig, mask, operands, values, outs[0] if sig.single else tuple(outs)) if mask else None
    if node is None:
        made = tuple([wrap(v) for v in outs])
    else:
        made = tuple([result(v, node, i) if carries else wrap(v) for i, (v, carries) in enumerate(zip(outs, node.plan.outputs, strict=True))])
    found = made[0] if sig.single else made
    if node is not None:
        note_node(rec, node)
        pack_operands(rec, node, operands)
        pack_results(rec, node, found)
    return found
