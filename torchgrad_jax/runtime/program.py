"""Running what is pending: which results are wanted, how the program is run, and what is kept for the next time."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from sys import getrefcount
from typing import Any

import numpy as np

from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.checks import after_run
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.device import CPU, is_default, jax_device, put
from torchgrad_jax.runtime.operation import rounding_options
from torchgrad_jax.runtime.recorder import TURNED, UNHELD, Recorder, Step
from torchgrad_jax.runtime.transposed import in_memory, transposed_slots
from torchgrad_jax.runtime.value import Value

# Operations in a program from which it is compiled in the background while it still runs op by op, unless a loop repeats it at once.
BACKGROUND_OPS = 150
# How often such a program is met before it is worth the processor that compiling it takes from the running ones.
SEEN_OFTEN = 8
# What XLA's CPU compiler takes, in milliseconds: for any executable, and for each operation in it.
COMPILE_ANY, COMPILE_OPERATION = 25.0, 1.2
# Up to this many bytes of results, stepping through a program does not work out when each can be dropped.
KEEP_BYTES = 1 << 25
# XLA's CPU compiler orders nothing by itself and so copies what it was given and still reads: giving away small inputs
# costs more (6 % of a step with 1 MiB weights) than the memory is worth.
DONATE_BYTES = 1 << 22
# Operations that were compiled into this many programs which did not come back are compiled by themselves, for good.
TRIED_WHOLE = 3

_above_unheld = UNHELD.__lt__


class Program:
    """A structure with its wanted outputs: how often it was met, and its compiled function."""

    __slots__ = ("steps", "outputs", "inputs", "donated", "checked", "seen", "function", "compiling", "numbers", "steady")

    def __init__(self, step: Step, alive: bytes, donated: bytes, leaves: list[Value]) -> None:
        self.steps = _needed(step, alive)
        self.checked = any(s.signature.check is not None for s in self.steps)
        self.outputs = [slot for slot, wanted in enumerate(alive) if wanted]
        self.inputs = _inputs(self.steps)
        self.donated = _donated(self, donated, leaves) if any(donated) else set()
        self.seen = 0
        self.function: Callable[..., Any] | None = None
        self.compiling: Future[Any] | None = None
        self.numbers: tuple[Any, list[Any] | None] = (None, None)
        self.steady = False  # whether it was the program run just before: then a loop is at work


def run_pending(rec: Recorder, reason: str) -> None:
    """Run the recorder's pending program, make its living Values concrete, and begin a new one."""
    step, values, leaves = rec.step, rec.values, rec.leaves
    floats, ints, complexes, aliases, checks, epoch = rec.floats, rec.ints, rec.complexes, rec.aliases, rec.checks, rec.epoch
    nbytes = rec.bytes
    rec.clear()
    rec.turned &= ~TURNED  # a program that has just been cut need not be cut where the loop comes round
    # A Value that only our list holds is out of everybody's reach: its operation need not have a result.
    alive = bytes(map(_above_unheld, map(getrefcount, values)))
    if aliases:
        alive = _with_aliases(alive, aliases)
    counters.recorded += len(values)
    counters.flushed += 1
    counters.reasons[reason] += 1
    if not (any(alive) or checks):
        return
    donated = _only_ours(leaves) if nbytes >= DONATE_BYTES or rec.device is not CPU else bytes(len(leaves))
    programs = step.programs
    if programs is None:
        programs = step.programs = {}
    program = programs.get((alive, donated))
    if program is None:
        program = programs[alive, donated] = Program(step, alive, donated, leaves)
    program.steady = step is rec.last_step
    rec.last_step = step
    arguments = _arguments(program, leaves, floats, ints, complexes)
    leaves.clear()
    try:
        outs = _run(program, arguments)
    except BaseException as error:
        _fail(values, alive, aliases, epoch, error)
        raise
    for slot, out in zip(program.outputs, outs, strict=False):
        values[slot].array = out
    for twin in aliases:
        twin.array = values[twin.slot].array
    if program.checked:
        after_run(rec, outs[-1], checks)


def run_copy(rec: Recorder, wanted: Value) -> None:
    """Make one Value of another thread's pending program concrete without touching that thread's recorder.

    The lists only grow and `step` is set last, so `step` read first is consistent with what the lists begin with.
    """
    with rec.lock:
        step, epoch = rec.step, rec.epoch
        leaves, floats, ints, complexes = rec.leaves[:], rec.floats[:], rec.ints[:], rec.complexes[:]
        if wanted.array is not None:
            return
        if wanted.epoch is not epoch:  # flushed meanwhile by its own thread, which is about to set the array
            pending = wanted.epoch
            while wanted.array is None:
                if wanted.epoch is not pending:  # its program failed
                    wanted.concrete()
                time.sleep(1e-4)
            return
        alive = bytes(slot == wanted.slot for slot in range(step.end))
        program = Program(step, alive, bytes(len(leaves)), leaves)
        wanted.array = _step_by_step(program, _arguments(program, leaves, floats, ints, complexes))[0]


# ---------------------------------------------------------------------- what is wanted, what may be given away


def _with_aliases(alive: bytes, aliases: list[Value]) -> bytes:
    marked = bytearray(alive)
    counts = list(map(getrefcount, aliases))  # before anything else refers to them
    held = [twin for twin, count in zip(aliases, counts, strict=True) if count > UNHELD]
    for twin in held:
        marked[twin.slot] = 1
    aliases[:] = held
    return bytes(marked)


def _only_ours(leaves: list[Value]) -> bytes:
    """Which inputs nobody but the pending program holds: their buffers may become outputs."""
    held = bytearray(map(_above_unheld, map(getrefcount, leaves)))
    for i, flag in enumerate(held):
        aval = leaves[i].aval
        if flag or type(leaves[i].array) is np.ndarray or (aval.nbytes < DONATE_BYTES and aval.device is CPU):
            held[i] = 0
        else:  # 2: the Value's slot and the argument of getrefcount.
            held[i] = getrefcount(leaves[i].array) <= 2
    return bytes(held)


def _donated(program: Program, donated: bytes, leaves: list[Value]) -> set[int]:
    """Those of the donatable inputs that some output can take: same shape and dtype, each output once."""
    room = Counter(_aval_of_slot(program.steps)[slot] for slot in program.outputs)
    chosen = set()
    for index in program.inputs:
        aval = leaves[index].aval
        if donated[index] and room[aval] > 0:
            room[aval] -= 1
            chosen.add(index)
    return chosen


def _aval_of_slot(steps: list[Step]) -> dict[int, Any]:
    return {s.slot + i: aval for s in steps for i, aval in enumerate(s.signature.avals)}


def _needed(step: Step | None, alive: bytes) -> list[Step]:
    """The operations that living outputs and checks depend on, in order."""
    wanted = {slot for slot, flag in enumerate(alive) if flag}
    found = []
    while step is not None:
        sig = step.signature
        if sig is not None:
            slot, end = step.slot, step.end
            if slot in wanted or sig.check is not None or (end - slot > 1 and not wanted.isdisjoint(range(slot, end))):
                wanted.update([a for a in step.args if type(a) is int])
                found.append(step)
        step = step.parent
    found.reverse()
    return found


def _inputs(steps: list[Step]) -> list[int]:
    return sorted({-1 - a for s in steps for a in s.args if type(a) is int and a < 0})


# ---------------------------------------------------------------------- running


def _arguments(program: Program, leaves: list[Value], floats: list[float], ints: list[int], complexes: list[complex]) -> list[Any]:
    arguments = _numbers(program, floats, ints, complexes) if floats or ints or complexes else []
    for i in program.inputs:
        arguments.append(leaves[i].array)
    return arguments


def _numbers(program: Program, floats: list[float], ints: list[int], complexes: list[complex]) -> list[Any]:
    """The Python numbers, one array for each of their dtypes. Where they are the last run's they are kept on the device: an array from the
    host costs a program 7 us each time."""
    # The bytes tell 0.0 from -0.0 and know a nan again.
    now = array("d", floats).tobytes(), array("q", ints).tobytes(), repr(complexes) if complexes else ""
    last, arrays = program.numbers
    if last == now:
        if arrays is None:
            where = _device(program) or CPU
            arrays = [put(a, where) for a in _host_numbers(floats, ints, complexes)]
            program.numbers = now, arrays
        return list(arrays)
    program.numbers = now, None
    return _host_numbers(floats, ints, complexes)


def _host_numbers(floats: list[float], ints: list[int], complexes: list[complex]) -> list[Any]:
    return [np.array(n, t) for n, t in ((floats, np.float64), (ints, np.int64), (complexes, np.complex128)) if n]


def _run(program: Program, arguments: list[Any]) -> Any:
    program.seen += 1
    if program.function is None:
        _decide(program, arguments)
    if program.function is not None:
        counters.ran += 1
        return _call(program, program.function, arguments)
    counters.stepped += 1
    return _step_by_step(program, arguments)


def _call(program: Program, function: Callable[..., Any], arguments: list[Any]) -> Any:
    where = _device(program)
    if where is None or is_default(where):
        return function(*arguments)
    import jax

    with jax.default_device(jax_device(where)):
        return function(*arguments)


def _device(program: Program) -> Any:
    return program.steps[0].signature.avals[0].device if program.steps else None


def _decide(program: Program, arguments: list[Any]) -> None:
    """Compile the whole program, now or in the background, or leave it to be run op by op."""
    if modes.execution == "eager" or not program.steps:
        return
    signatures = {part for s in program.steps for part in s.signature.parts}
    size = sum(s.signature.weight for s in program.steps)
    if program.seen == 1:
        if not _whole_at_once(program, signatures, size):
            return
    elif size >= BACKGROUND_OPS and not program.steady and all(s.warm for s in signatures):
        if program.seen < SEEN_OFTEN:
            return
        if program.compiling is None:
            program.compiling = _compile_in_background(program, arguments)
            return
        if not program.compiling.done():
            return
        program.function = program.compiling.result()
        program.compiling = None
        return
    program.function = _whole(program, arguments)
    counters.compiled += 1
    for s in signatures:
        s.compiled_in += 1


def _whole_at_once(program: Program, signatures: set[Any], size: int) -> bool:
    """Whether a structure that was never seen before is compiled whole: if a loop is at work, or if that costs less than compiling its new
    operations one by one, unless programs of these operations have not come back before."""
    if any(getattr(s.signature.bop, "steady", False) for s in program.steps):
        return True
    cold = [s for s in signatures if not s.warm]
    if not cold or all(s.compiled_in >= TRIED_WHOLE for s in cold):
        return False
    return COMPILE_ANY + COMPILE_OPERATION * size <= COMPILE_ANY * len(cold)


def _whole(program: Program, arguments: list[Any]) -> Callable[..., Any]:
    import jax

    head = len(arguments) - len(program.inputs)
    donate = tuple(head + i for i, index in enumerate(program.inputs) if index in program.donated)
    options = rounding_options(_device(program) or CPU) if any(s.signature.half for s in program.steps) else None
    replay = _replay(program, [np.asarray(a).dtype.kind for a in arguments[:head]])
    return jax.jit(replay, donate_argnums=donate, compiler_options=options)


def _compile_in_background(program: Program, arguments: list[Any]) -> Future[Any]:
    import jax

    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments]
    function: Any = _whole(program, arguments)
    counters.compiled += 1
    # Tracing is Python: in another thread it would take the interpreter from this one at every operation. XLA's part is not.
    lowered = function.lower(*shapes)

    def compile_it() -> Callable[..., Any]:
        lowered.compile()
        return function

    return _workers().submit(compile_it)


@cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "torchgrad_jax-compile")


def _replay(program: Program, kinds: list[str]) -> Callable[..., list[Any]]:
    """The program as one JAX function of its number arrays and inputs."""
    steps, inputs, outputs = program.steps, program.inputs, program.outputs
    transposed = transposed_slots(steps)

    def program_of_operations(*arguments: Any) -> list[Any]:
        import jax.numpy as jnp

        numbers = dict(zip(kinds, arguments, strict=False))
        env: dict[int, Any] = {-1 - index: a for index, a in zip(inputs, arguments[len(kinds) :], strict=True)}
        flags = []
        read = dict(env) if transposed else env  # what element-wise operations read
        for step in steps:
            known = read if transposed and getattr(step.signature.bop, "pointwise", False) else env
            _store(env, step, step.signature.function(*_operands(known, numbers, step)), flags)
            if transposed:
                read |= {slot: in_memory(env[slot]) if slot in transposed else env[slot] for slot in range(step.slot, step.end)}
        outs = [env[slot] for slot in outputs]
        if flags:
            code = jnp.zeros(2, jnp.int64)
            for i in reversed(range(len(flags))):
                code = jnp.where(flags[i][0] != 0, jnp.stack([jnp.int64(i + 1), flags[i][1]]), code)
            outs.append(code)
        return outs

    return program_of_operations


def _store(env: dict[int, Any], step: Step, outs: tuple[Any, ...], flags: list[Any]) -> None:
    if step.signature.check is not None:
        flags.append(outs[-1])
        outs = outs[:-1]
    for i, out in enumerate(outs):
        env[step.slot + i] = out


def _operands(env: dict[int, Any], numbers: dict[str, Any], step: Step) -> list[Any]:
    if not step.numbers:
        return [env[a] for a in step.args]
    places = iter(step.numbers)
    found = []
    for a in step.args:
        if type(a) is int:
            found.append(env[a])
        else:
            kind, place = next(places)
            found.append(numbers[kind][place])
    return found


def _step_by_step(program: Program, arguments: list[Any]) -> list[Any]:
    """Run the program one operation at a time, each through its own jitted function."""
    where = _device(program)
    if where is None or is_default(where):
        return _step_on_device(program, arguments)
    import jax

    with jax.default_device(jax_device(where)):
        return _step_on_device(program, arguments)


def _step_on_device(program: Program, arguments: list[Any]) -> list[Any]:
    head = len(arguments) - len(program.inputs)
    # From a device array each number would cost an operation of its own.
    numbers = {a.dtype.kind: np.asarray(a) for a in arguments[:head]}
    env: dict[int, Any] = {-1 - index: a for index, a in zip(program.inputs, arguments[head:], strict=True)}
    steps = program.steps
    dying = _last_uses(program) if steps and steps[-1].nbytes > KEEP_BYTES else None
    flags: list[Any] = []
    for i, step in enumerate(steps):
        sig = step.signature
        for part in sig.parts:
            if not part.warm:
                part.warm = True
                counters.compiled_ops += 1
        outs = sig.stepwise(*_operands(env, numbers, step))
        if sig.single and sig.check is None:
            env[step.slot] = outs[0]
        else:
            _store(env, step, outs, flags)
        if dying is not None:
            for slot in dying[i]:
                env.pop(slot, None)
    results = [env[slot] for slot in program.outputs]
    if flags:
        results.append(_first_failure(flags))
    return results


def _first_failure(flags: list[Any]) -> np.ndarray:
    for i, flag in enumerate(flags):
        bad, offender = np.asarray(flag)
        if bad:
            return np.array([i + 1, offender])
    return np.zeros(2, np.int64)


def _last_uses(program: Program) -> list[list[int]]:
    """For each operation, the slots that nothing after it reads."""
    kept = set(program.outputs)
    last: dict[int, int] = {}
    for i, step in enumerate(program.steps):
        for a in step.args:
            if type(a) is int:
                last[a] = i
        for slot in range(step.slot, step.end):
            last.setdefault(slot, i)
    dying: list[list[int]] = [[] for _ in program.steps]
    for slot, i in last.items():
        if slot not in kept:
            dying[i].append(slot)
    return dying


# ---------------------------------------------------------------------- failure


class _Failed:
    """Stands for the recorder of Values whose program failed: looking at one raises what went wrong."""

    def __init__(self, error: BaseException) -> None:
        self.recorder = self
        self.error = error

    def force(self, value: Value) -> None:
        """Raise the program's error again."""
        raise RuntimeError(f"the program that makes this tensor failed: {self.error}") from self.error


def _fail(values: list[Value], alive: bytes, aliases: list[Value], epoch: Any, error: BaseException) -> None:
    failed: Any = _Failed(error)
    for value in [v for v, flag in zip(values, alive, strict=True) if flag] + aliases:
        value.epoch = failed
