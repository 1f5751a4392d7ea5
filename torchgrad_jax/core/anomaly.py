"""Anomaly mode: nodes note by which of the user's lines they were made, and what a failing backward pass says is that line.

It leaves the short paths of dispatch as every mode does: `Recorder.rare` has bits for it, so while it is off nobody asks. While it is on

- each node notes, when it is made, the user's frames, and which node was running then: under `create_graph` the node of the forward
  pass whose derivative it is a part of, for a pass within a pass the one around it (`note_node`);
- a backward pass walks the graph node by node, looks at each gradient, and names the first node that gave NaN (`PassWatch`, which the
  engine calls);
- where that is asked for, each operation's result is looked at (`check_operation`).

To look at a value is to compute it. Inside of `jit` there is nothing to look at while the function is traced: there the questions
become part of the program, which answers with the number of the first that is to be answered with yes (`raise_where`, `FirstOf`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

from jax import numpy as jnp

from torchgrad_jax.core.node import AccumulateGrad, Node
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.memory.sparse_content import is_sparse
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.operation import ArgSpec, Signature
from torchgrad_jax.runtime.recorder import ANOMALY, CHECK_NAN, Recorder, anomaly_of, call_values
from torchgrad_jax.runtime.user_code import user_stack, warn_user
from torchgrad_jax.runtime.value import Lifted, Value, watches

# The keys of a node's metadata, which are PyTorch's.
TRACEBACK, PARENT = "traceback_", "parent_"

CAUSED = "Error detected in {}. Traceback of forward call that caused the error:\n"
INDUCED = "\n\nPrevious calculation was induced by {}. Traceback of forward call that induced the previous calculation:\n"
CALLED = "Error detected in {}. Traceback of the call:\n"
NOT_NOTED = "Error detected in {}. No forward pass information available. Enable detect anomaly during forward pass for more information."


# ---------------------------------------------------------------------- what nodes note, and what is told of it


def note_node(rec: Recorder, node: Node) -> None:
    """Note by which line, and while which other node ran, `node` was made, if anomaly mode is on."""
    if not rec.rare & ANOMALY:
        return
    lines = user_stack()
    _note(node, lines, rec.flags.evaluating)
    for target, _ in node.next:
        if type(target) is AccumulateGrad and TRACEBACK not in target.metadata:  # the leaf was first used here
            _note(target, lines, rec.flags.evaluating)


def _note(node: Node, lines: list[str], evaluating: Node | None) -> None:
    notes = node.metadata
    notes[TRACEBACK] = lines
    if evaluating is not None:
        notes[PARENT] = evaluating


def texts_about(node: Node) -> list[str]:
    """Where `node` comes from, in PyTorch's words: the line that made it, then for each node that it was made by that one's line."""
    texts = [_text(node, CAUSED)]
    parent = node.metadata.get(PARENT)
    while parent is not None:
        texts.append(_text(parent, INDUCED))
        parent = parent.metadata.get(PARENT)
    return texts


def _text(node: Node, heading: str) -> str:
    lines = node.metadata.get(TRACEBACK)
    return NOT_NOTED.format(node.name()) if lines is None else heading.format(node.name()) + "".join(lines)


def tell(text: str) -> None:
    """Warn. Where warnings are errors it is printed: what is raised is the error that it goes with."""
    try:
        warn_user(text)
    except Warning as warning:
        print(f"{type(warning).__name__}: {warning}", file=sys.stderr)


# ---------------------------------------------------------------------- looking for NaN


class Question:
    """A question about arrays, as an operation that is recorded: a BoundOp."""

    __slots__ = ("name", "device", "signatures", "differentiable")
    keeps_order, order = False, None

    def __init__(self, name: str) -> None:
        self.name, self.differentiable = name, False
        self.device: device | None = None
        self.signatures: dict[tuple[ArgSpec, ...], Signature] = {}

    def check(self, specs: Sequence[ArgSpec]) -> None:
        """Its result is what it has found."""


class NewNaN(Question):
    """Whether there is NaN in an array, and none in those after it."""

    __slots__ = ()

    def specialize(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        """See the runtime's BoundOp."""

        def new_nan(array: Any, *others: Any) -> Any:
            found = jnp.isnan(array).any()
            for other in others:
                found = found & ~jnp.isnan(other).any()
            return found

        return new_nan


class FirstOf(Question):
    """Which of several answers is the first yes, counted from 1; 0 where none is."""

    __slots__ = ()

    def specialize(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        """See the runtime's BoundOp."""

        def first_of(*answers: Any) -> Any:
            every = jnp.stack([a.any() for a in answers])
            return jnp.where(every.any(), jnp.argmax(every) + 1, 0).astype("int32")

        return first_of


_NEW_NAN, _FIRST_OF = NewNaN("new_nan"), FirstOf("first_of")


class Fault:
    """What is to be said where a program that was traced answers a question with yes. text: of the error; warnings: given before it."""

    __slots__ = ("text", "warnings")

    def __init__(self, text: str, warnings: Sequence[str]) -> None:
        self.text, self.warnings = text, warnings

    def error(self) -> RuntimeError:
        """The error, after the warnings were given."""
        for text in self.warnings:
            tell(text)
        return RuntimeError(self.text)


def first_of(answers: Sequence[Value]) -> Value:
    """Which of the answers is the first yes, counted from 1; 0 where none is."""
    return call_values(_FIRST_OF, tuple(answers))


def may_be_nan(value: Any) -> bool:
    """Whether there can be NaN in an operand: in floating point and complex numbers."""
    return type(value) is Value and value.aval.size > 0 and dtypes.is_float(value.aval.dtype)


def raise_where(answer: Value, text: str, about: Callable[[], Sequence[str]]) -> None:
    """RuntimeError with `text` where `answer`, a bool or a batch of them, is true. In a function that is being traced that is told when its program
    has run: what the warnings are to say, which are given first then, is made by `about` now. Where JAX itself transforms the function there is no
    answer."""
    if isinstance(answer.array, Lifted):
        answer = answer.array.innermost()
    for watch in watches:
        if watch.hides(answer):
            watch.suspect(answer, Fault(text, about()))
            return
    found = answer.everything()
    if found is not None and found.any():
        raise RuntimeError(text)


def check_operation(rec: Recorder, bound: Any, operands: Sequence[Any], outs: Any) -> None:
    """RuntimeError where there is NaN among the results of an operation and none among its operands."""
    running = rec.flags.evaluating
    if running is not None and not running.runs_without_gradient:  # what the engine computes is looked at node by node
        return
    if any(o != o for o in operands if type(o) in (float, complex)):
        return
    given = [o for o in operands if may_be_nan(o)]
    name = bound.name.removesuffix("_number").removesuffix("_tensor")
    for i, out in enumerate((outs,) if type(outs) is Value else outs):
        # A level of a transform has carried it out outside, where it was looked at.
        if may_be_nan(out) and not isinstance(out.array, Lifted):
            text = f"Operation '{name}' returned nan values in its {i}th output, and there were none in its inputs."
            raise_where(call_values(_NEW_NAN, (out, *given)), text, lambda: [CALLED.format(name) + "".join(user_stack())])


# ---------------------------------------------------------------------- a backward pass


class PassWatch:
    """What anomaly mode does in a backward pass; the engine tells it what happens. outer: the node that the pass runs inside of."""

    __slots__ = ("recorder", "outer")

    def __init__(self, rec: Recorder) -> None:
        self.recorder, self.outer = rec, rec.flags.evaluating

    def begins(self, node: Node) -> None:
        """`node` is about to run, with its hooks, or goes on."""
        self.recorder.flags.evaluating = node

    def gave(self, node: Node, grads: Sequence[Any], needed: Collection[Node] | None) -> None:
        """`node` and its hooks have given these gradients, along its edges. RuntimeError where there is NaN in one. needed: see `Calculus`."""
        rec = self.recorder
        if not rec.rare & CHECK_NAN:
            return
        for place, grad, (target, _) in zip(node.edge_places, grads, node.next, strict=False):
            if target.hidden or (needed is not None and node.skips_unneeded and target not in needed):  # it goes nowhere
                continue
            value = grad if grad is None or type(grad) is Value else grad._content()
            if value is not None and is_sparse(value):
                value = value.array.parts[-1]._content()
            if may_be_nan(value):
                text = f"Function '{node.name()}' returned nan values in its {place}th output."
                raise_where(call_values(_NEW_NAN, (value,)), text, lambda: texts_about(node))

    def failed(self) -> None:
        """An exception has come out of the node that runs: say where that comes from."""
        node = self.recorder.flags.evaluating
        if node is not None and node is not self.outer and not self.recorder.quiet:
            for text in texts_about(node):
                tell(text)

    def ends(self) -> None:
        """The pass is over, well or not."""
        self.recorder.flags.evaluating = self.outer


def watch_of(rec: Recorder) -> PassWatch | None:
    """What watches a pass that begins; None while anomaly mode is off."""
    return PassWatch(rec) if anomaly_of(rec) else None
