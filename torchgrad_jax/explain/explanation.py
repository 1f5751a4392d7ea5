"""An Explanation watches the runtime while it is on, and says what happened."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from time import perf_counter
from types import TracebackType
from typing import Any

from torchgrad_jax.explain.data import Alone, Data, Finding, Flush, Jitted, Program
from torchgrad_jax.explain.findings import findings
from torchgrad_jax.explain.jitted import JittedRecord, watched
from torchgrad_jax.explain.places import Place, here, source
from torchgrad_jax.explain.programs import Met, known_programs, operators, pending, steps_to, why_new
from torchgrad_jax.explain.text import text
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.observing.differences import shown
from torchgrad_jax.runtime.observing.observer import COMPILING, RUNNING, Observer, leave, watch
from torchgrad_jax.runtime.operation import Signature
from torchgrad_jax.runtime.program import Program as RunProgram
from torchgrad_jax.runtime.recording.step import Step

# So many programs are listed; of further ones it is only said how many runs there were.
MOST = 1_000
# With so many that were met last a new one is compared.
COMPARED = 100


class Counted:
    """What was recorded up to a Step, and how often it was run."""

    __slots__ = ("operators", "total", "times")

    def __init__(self, step: Step) -> None:
        self.operators = operators([s for s in steps_to(step) if s.signature is not None])
        self.total, self.times = self.operators.total(), 0


class Explanation(Observer):
    """What was recorded, run and compiled while it was on, in all threads; see `torchgrad_jax.explain`.

    `str()` is the text, `as_dict()` the data; the attributes are those of `data`. What happens is gathered as it happens, so an exception that ends
    the block loses nothing, and it may be asked before its end.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may record and look while this is gathering
        self._thread = threading.get_ident()
        self._began: float | None = None
        self._data: Data | None = None
        self._forget()

    def _forget(self) -> None:
        self._flushes: dict[tuple[str, Place], list[int]] = {}
        self._operators: Counter[str] = Counter()
        self._counted: dict[Step, Counted] = {}
        self._met: dict[Any, Met] = {}
        self._before: list[Met] | None = None
        self._left_out = 0
        self._at: dict[int, Place] = {}
        self._spent: defaultdict[tuple[bool, str], float] = defaultdict(float)
        self._alone: dict[Signature, list[float]] = {}
        self._jitted: dict[Any, JittedRecord] = {}
        self._compiled: dict[Any, defaultdict[str, float]] = {}

    # ------------------------------------------------------------------ on and off

    def __enter__(self) -> Explanation:
        if self._began is not None:
            raise RuntimeError("torchgrad_jax.explain(): an explanation is of one block; make another one for the next")
        self._thread, self._failed = threading.get_ident(), counters.failed
        self._began = perf_counter()
        watch(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        leave(self)
        self._data = self._gathered()
        self._forget()

    # ------------------------------------------------------------------ what the runtime tells

    def flushing(self, recorder: Any, reason: str) -> None:
        """See Observer."""
        step = recorder.epoch.step
        with self._lock:
            place = self._at[threading.get_ident()] = here(reason == "look")
            counted = self._counted.get(step)
            if counted is None:
                if len(self._counted) >= MOST:
                    self._count()
                counted = self._counted[step] = Counted(step)
            counted.times += 1
            tally = self._flushes.setdefault((reason, place), [0, 0])
            tally[0] += 1
            tally[1] += counted.total

    def _count(self) -> None:
        """Add up what was recorded so far."""
        for counted in self._counted.values():
            for name, count in counted.operators.items():
                self._operators[name] += count * counted.times
        self._counted = {}

    def waiting(self) -> None:
        """See Observer."""
        with self._lock:
            self._flushes.setdefault(("wait", here(True)), [0, 0])[0] += 1

    def program(self, step: Any, alive: bytes, program: Any, new: bool) -> None:
        """See Observer."""
        with self._lock:
            found = self._met.get(program)
            if found is None:
                if len(self._met) >= MOST:
                    self._left_out += 1
                    return
                found = Met(len(self._met) + 1, step, alive, program)
                if new:
                    found.new = why_new(found, self._known(program))
                self._met[program] = found
            found.lines[self._at.get(threading.get_ident()) or here()] += 1

    def _known(self, program: Any) -> list[Met]:
        """The programs that a new one is compared with: of those from before, and of those met since, the last."""
        if self._before is None:
            since = {program, *self._met}
            self._before = [one for one in known_programs(COMPARED + len(since)) if one.program not in since]
        return [*self._before, *list(self._met.values())[-COMPARED:]]

    def spent(self, phase: str, seconds: float, on: Any) -> None:
        """See Observer."""
        with self._lock:
            self._spent[threading.get_ident() == self._thread, phase] += seconds
            if isinstance(on, RunProgram):
                self._spent_on_program(phase, seconds, on)
            elif isinstance(on, Signature):
                if phase == COMPILING:
                    times = self._alone.setdefault(on, [0, 0.0])
                    times[0] += 1
                    times[1] += seconds
            elif on is not None:
                times = self._compiled.setdefault(on, defaultdict(float))
                times[phase] += seconds
                times["runs"] += phase == RUNNING

    def _spent_on_program(self, phase: str, seconds: float, program: Any) -> None:
        met = self._met.get(program)
        if met is None:
            return
        if phase == RUNNING:
            met.ran(seconds)
        else:
            met.seconds[phase] += seconds
            met.compiled += phase == COMPILING

    def under_jit(self, function: Any, event: str) -> None:
        """See Observer."""
        with self._lock:
            self._jitted.setdefault(function, JittedRecord()).happened(event, str(here()))

    # ------------------------------------------------------------------ what is told

    def _gathered(self) -> Data:
        with self._lock:
            began = self._began
            if began is None:
                raise RuntimeError("torchgrad_jax.explain(): nothing was watched yet; use it as `with torchgrad_jax.explain() as report: ...`")
            seconds = perf_counter() - began
            self._count()
            own = {phase: s for (mine, phase), s in self._spent.items() if mine}
            others = {phase: s for (mine, phase), s in self._spent.items() if not mine}
            flushes = [
                Flush(reason, place.asked, str(place), place.function, source(str(place)), place.thread, *tally)
                for (reason, place), tally in sorted(self._flushes.items(), key=lambda one: -one[1][0])
            ]
            data = Data(
                seconds, dict(self._operators.most_common()), pending(), [], flushes, [met.data() for met in self._met.values()], self._left_out,
                [Alone(sig.bop.name, ", ".join(map(shown, sig.specs)), int(n), s) for sig, (n, s) in self._alone.items()],
                watched(self._jitted, self._compiled), {"python": seconds - sum(own.values()), **own}, others, counters.failed - self._failed,
            )  # fmt: skip
        data.findings = findings(data)
        return data

    @property
    def data(self) -> Data:
        """What it says, as data; so far, while it is on."""
        return self._gathered() if self._data is None else self._data

    @property
    def findings(self) -> list[Finding]:
        """What costs time and can be helped."""
        return self.data.findings

    @property
    def flushes(self) -> list[Flush]:
        """What ran pending programs, the most frequent first."""
        return self.data.flushes

    @property
    def programs(self) -> list[Program]:
        """The programs that were run, in the order in which they first were."""
        return self.data.programs

    @property
    def jitted(self) -> list[Jitted]:
        """The functions under `jit` that were traced or run."""
        return self.data.jitted

    def as_dict(self) -> dict[str, Any]:
        """All of it as dicts, lists, strings and numbers."""
        return self.data.as_dict()

    def __str__(self) -> str:
        return text(self.data)
