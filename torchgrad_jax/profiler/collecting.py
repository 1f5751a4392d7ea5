"""What a profile collects while it is on: when what began and ended, and what memory was made and freed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.operator import BoundOperator
from torchgrad_jax.profiler.compiling import heard
from torchgrad_jax.profiler.flops import flops_of, flops_of_derivative
from torchgrad_jax.profiler.memory import Memory
from torchgrad_jax.profiler.modules import join, leave
from torchgrad_jax.profiler.naming import operation_name
from torchgrad_jax.profiler.records import Options, Record
from torchgrad_jax.profiler.watching import BACKWARD, FORWARD, USER, Watch
from torchgrad_jax.runtime.value import Value

now = time.perf_counter_ns
_numbers: dict[int, int] = {}
_PACKAGE = __name__.partition(".")[0]


def thread_number() -> int:
    """The calling thread's number among those that were profiled, from 1 on."""
    return _numbers.setdefault(threading.get_ident(), len(_numbers) + 1)


class Collector(Watch):
    """Collects what takes place in a thread."""

    def __init__(self, options: Options) -> None:
        super().__init__(options.fused, options.shapes or options.flops)
        self.options = options
        self.records: list[Record] = []
        self.memory = Memory()
        self.thread = thread_number()
        self.native_thread = threading.get_native_id()
        self.on = False
        self.began = self.ended = 0
        self.epoch_ns = 0
        self._annotations: dict[int, Any] = {}

    def start(self) -> None:
        """See Watch. Nothing is recorded before `record`."""
        super().start()
        if self.options.modules:
            join()
        heard.append(self._compiled)

    def record(self) -> None:
        """Record from here on."""
        self.records.clear()
        self.on = True
        self.epoch_ns = time.time_ns()
        self.began = now()

    def stop(self) -> None:
        """See Watch."""
        super().stop()
        self.ended = now()
        heard.remove(self._compiled)
        if self.options.modules:
            leave()
        self.memory.stop()

    # ------------------------------------------------------------------ what takes place

    def begin(
        self, name: str, scope: int = FORWARD, sequence: int = -1, fwd_thread: int = 0, shapes: Any = (), inputs: Any = (), kind: str = "cpu_op"
    ) -> Record:
        """See Watch."""
        made = Record(name, kind, scope, sequence, fwd_thread and self.thread, shapes, inputs)
        made.thread, made.place = self.thread, len(self.records)
        if self.options.stack:
            made.stack = user_stack()
        if self.on:
            self.records.append(made)
        if self.options.annotate is not None:
            self._annotations[id(made)] = entered = self.options.annotate(name)
            entered.__enter__()
        made.start = now()
        return made

    def end(self, begun: Record) -> None:
        """See Watch."""
        begun.end = now()
        if begun.scope == BACKWARD:
            self._join_inner(begun)
        entered = self._annotations.pop(id(begun), None)
        if entered is not None:
            entered.__exit__(None, None, None)

    def called(self, begun: Record, result: Any, given: Sequence[Any]) -> None:
        """See Watch. A call that did nothing and gave nothing new was no operation: a question, or a tensor that was given back as it came."""
        self.end(begun)
        made = [t for t in (result if isinstance(result, (tuple, list)) else (result,)) if isinstance(t, Tensor)]
        if len(self.records) == begun.place + 1 and begun.name not in _ALWAYS:
            begun.shown = any([not any([t is a for a in given]) for t in made])
        self._join_inner(begun)
        if self.options.memory:
            for t in made:
                if t._view is None:
                    self.memory.made((t._value if t._storage is None else t._storage.value).array, begun.end)
        if self.options.flops:
            begun.flops = begun.flops or flops_of(begun.name, begun.shapes, begun.inputs)

    def _join_inner(self, begun: Record) -> None:
        """A call that is one operation is that operation, also where it writes the result: ``add_`` is ``add``. So is a backward function."""
        inner = [r for r in self.records[begun.place + 1 :] if r.bound is not None or r.scope != FORWARD]
        if len(inner) == 1 and inner[0].name in (begun.name, begun.name.rstrip("_")):
            inner[0].shown = False
            begun.flops = inner[0].flops if inner[0].name == begun.name else 0

    def ran(self, begun: Record, given: Sequence[Value], values: Sequence[Value], bound: Any) -> None:
        """See Watch."""
        self.end(begun)
        begun.bound = bound
        if self.options.memory:
            for value in given:  # made before the profile began, perhaps
                self.memory.know(value.array)
            for value in values:
                if _is_view(bound):  # a view is part of the memory of its base
                    self.memory.part(value.array)
                else:
                    self.memory.made(value.array, begun.end)
        if self.options.flops:
            declared = isinstance(bound, BoundOperator)
            begun.flops = flops_of(begun.name, begun.shapes, begun.inputs) if declared else flops_of_derivative(values[0].signature)

    def program(self, begun: Record, how: str, steps: Callable[[], Sequence[Any]], reason: str) -> None:
        """See Watch."""
        self.end(begun)
        begun.name, begun.shown = f"program ({how})", bool(how)
        begun.describe = lambda: self._described(steps(), reason)

    def _described(self, steps: Sequence[Any], reason: str) -> dict[str, Any]:
        found: dict[str, Any] = {
            "Operations": len(steps), "Records": [operation_name(s.signature.bop) for s in steps], "Run because of": reason
        }  # fmt: skip
        if self.options.shapes:
            found["Shapes"] = [[list(a.shape) for a in s.signature.avals] for s in steps]
        return found

    def _compiled(self, name: str, nanoseconds: int) -> None:
        """XLA has compiled for this long until now. Where an operation is compiled apart, that is an event already."""
        if threading.get_ident() != self._recorder.thread or not self.on or self.compiling:
            return
        made = Record(name, "cpu_op", FORWARD, -1, 0, (), ())
        made.thread, made.place, made.end = self.thread, len(self.records), now()
        around = [r.start for r in self.records if not r.end]
        made.start = max([made.end - nanoseconds, self.began, *around])
        made.stack = user_stack() if self.options.stack else []
        self.records.append(made)

    # ------------------------------------------------------------------ the user's ranges

    def begin_range(self, name: str, inputs: Any = ()) -> Record:
        """The user's range begins."""
        return self.begin(name, USER, inputs=inputs, kind="user_annotation")

    def begin_module(self, name: str) -> Record:
        """A module is called."""
        return self.begin(name, FORWARD, kind="python_function")


def _is_view(bound: Any) -> bool:
    """Whether an operation computes nothing: its result is part of the memory of its operand."""
    return isinstance(bound, BoundOperator) and (bound.operator.view is not None or bound.operator.gives_views)


# Calls that give no tensor, and those that may give back their argument and are operations all the same.
_ALWAYS = frozenset(("aten::item", "aten::is_nonzero", "aten::to", "aten::equal", "aten::allclose"))


def user_stack() -> list[str]:
    """The user's frames, innermost first: ``file(line): function``."""
    found, frame = [], sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if frame.f_globals.get("__name__", "").partition(".")[0] not in (_PACKAGE, "jax", "jaxlib", "contextlib"):
            found.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return found
