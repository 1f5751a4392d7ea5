"""A program as one XLA executable."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax import numpy as jnp

from torchgrad_jax.runtime._jax_compat import call_x64, import_dialects
from torchgrad_jax.runtime.baseline import jaxprs_in
from torchgrad_jax.runtime.compiling.exchanges import exchanged_calls
from torchgrad_jax.runtime.compiling.foreign import CONVOLUTION
from torchgrad_jax.runtime.compiling.kept import slots_to_keep
from torchgrad_jax.runtime.compiling.products import NONE
from torchgrad_jax.runtime.compiling.transposed import in_memory, transposed_slots
from torchgrad_jax.runtime.compiling.writes import kept_apart, reshaped_by
from torchgrad_jax.runtime.device import device, placed
from torchgrad_jax.runtime.observing.observer import COMPILING, TRACING, timed
from torchgrad_jax.runtime.operation import NO_YNN, compiler_options
from torchgrad_jax.runtime.structure import operands, store

# LLVM's first level does for what XLA hands to it what its third does: a training step of a transformer is compiled in 2.2 s instead of 3.4, one of
# an LSTM in 0.7 instead of 1.1, and both run as fast, as nearly all that was measured does. What does not: additions by index take twice as long.
_EFFORT = {"xla_backend_optimization_level": 1}
_SCATTERED = 10_000
# Small programs with convolutions are compiled in half of the time, and run as fast, where what is element-wise is compiled as it was before XLA had
# "emitters" for it (0.68 to 0.42 s, 1.4 to 0.8). Large ones take longer by it. Programs that write into parts of arrays, in one of so many equations,
# are compiled in half of the time, too, and run up to 2.4 times as fast (48 writes into a matrix through views: 324 us, and 135).
_NO_EMITTERS = {"xla_cpu_use_fusion_emitters": False}
_FEW_OPERATIONS = 200
_FOR_EACH_WRITE = 100
# Where matrix products take so few multiplications, in the mean, a pool of threads is asked for nothing: 0.4 us each.
_SMALL_PRODUCT = 100_000
_FOR_SMALL_PRODUCTS = {"xla_cpu_multi_thread_eigen": False}
# A program with loops is there to save compilations: on a CPU XLA takes 0.6 times as long for it by these, and its runs as long as by all of XLA's
# effort. (Other programs lose up to 15 %.) Split in four, which threads share, an RNN's is compiled in 0.35 s instead of 0.49.
_QUICKLY = {**_EFFORT, "xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 4}


# Options that this XLA has not, as far as they were asked for: JAX 0.11's has no `xla_cpu_use_fusion_emitters`.
_missing: set[str] = set()


def jitted(function: Callable[..., Any], calls: list[Any], where: device, donate: tuple[int, ...] = ()) -> Callable[..., Any]:
    """The function of a program that makes `calls` under `jax.jit`: on its device, with XLA's options."""
    options = compiler_options([c.signature for c in calls], where)
    return jax.jit(function, donate_argnums=donate, compiler_options=options, **placed(where))


def _has_option(name: str, value: Any) -> bool:
    """Asked by compiling next to nothing, 10 ms: there is no other way."""
    try:
        call_x64(jax.jit(operator.neg, compiler_options={name: value}).lower(0).compile)
    except Exception as error:
        if "No such compile option" not in str(error):
            raise
        return False
    return True


def ahead_of_time(function: Any, arguments: Sequence[Any], quickly: bool = False) -> Any:
    """What is compiled of a function under `jax.jit` for such arguments on a CPU, by itself: JAX keeps two thirds more memory with it for being
    called otherwise. quickly: with less of XLA's effort."""
    with timed(TRACING):
        traced = function.trace(*arguments)
    options = {**options_of(traced.jaxpr.jaxpr), **(_QUICKLY if quickly else {})}
    with timed(COMPILING):
        import_dialects()
        lowered = traced.lower()
        try:
            return lowered.compile(compiler_options=_known(options))
        except Exception as error:  # an XLA without such an option takes somewhat longer, and that is all
            if "No such compile option" not in str(error):
                raise
            _missing.update(name for name, value in options.items() if not _has_option(name, value))
            return lowered.compile(compiler_options=_known(options))


def working_memory(compiled: Any) -> int:
    """How many bytes a run of what was compiled ahead of time takes for what is neither an argument nor a result; 0 where XLA does not say."""
    return getattr(compiled.memory_analysis(), "temp_size_in_bytes", 0)


def _known(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in _missing}


def options_of(jaxpr: Any) -> dict[str, Any]:
    """XLA's options for a program on a CPU, by its matrix products, its convolutions and what it writes into parts of arrays."""
    products: list[int] = []
    convolves, effort = False, _EFFORT
    count = writes = 0
    for eqn in _within(jaxpr):
        name = eqn.primitive.name
        count += 1
        if name == "dot_general":
            products.append(_multiplications(eqn))
        elif name == "conv_general_dilated" or (name == "ffi_call" and eqn.params["target_name"] == CONVOLUTION):
            convolves = True
        elif name.startswith("scatter") and eqn.invars[2].aval.size > _SCATTERED:
            effort = {}
        elif name == "dynamic_update_slice":
            writes += 1
    small = bool(products) and sum(products) < _SMALL_PRODUCT * len(products)
    without = (convolves and len(jaxpr.eqns) <= _FEW_OPERATIONS) or writes * _FOR_EACH_WRITE > count
    return {**NO_YNN, **effort, **(_NO_EMITTERS if without else {}), **(_FOR_SMALL_PRODUCTS if small else {})}


def _within(jaxpr: Any) -> Iterator[Any]:
    """Every equation, within loops and branches too."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jaxprs_in(eqn):
            yield from _within(inner)


def _multiplications(product: Any) -> int:
    (contracted, _), _ = product.params["dimension_numbers"]
    shape = product.invars[0].aval.shape
    return math.prod(product.outvars[0].aval.shape) * math.prod([shape[i] for i in contracted])


def replay(calls: list[Any], inputs: list[int], outputs: list[int], kinds: list[str]) -> Callable[..., list[Any]]:
    """The program as a JAX function: of its arrays of numbers, of the `kinds`, and its inputs, to its outputs and the first failed check."""
    transposed, kept = transposed_slots(calls), slots_to_keep(calls, outputs)
    exchanged, same = exchanged_calls(calls, outputs)
    apart = kept_apart(calls, reshaped_by(calls))

    def program_of_operations(*arguments: Any) -> list[Any]:
        numbers = dict(zip(kinds, arguments, strict=False))
        env: dict[int, Any] = {-1 - index: a for index, a in zip(inputs, arguments[len(kinds) :], strict=True)}
        flags: list[Any] = []
        read = dict(env) if transposed else env  # what element-wise operations read
        for call in calls:
            known = read if transposed and getattr(call.signature.bop, "pointwise", False) else env
            args, how = exchanged.get(call.slot, (call.args, NONE))
            if call.slot in same:
                outs = [env[same[call.slot]]]
            else:
                outs = call.signature.in_programs(how, call.slot in apart)(*operands(known, numbers, call, args))
            store(env, call, outs, flags)
            if call.slot in kept:
                env[call.slot] = in_memory(env[call.slot])
            if transposed:
                read |= {slot: in_memory(env[slot]) if slot in transposed else env[slot] for slot in range(call.slot, call.end)}
        outs = [env[slot] for slot in outputs]
        return [*outs, _first_failure(flags)] if flags else outs

    return program_of_operations


def _first_failure(flags: list[Any]) -> Any:
    code = jnp.zeros(2, jnp.int64)
    for i in reversed(range(len(flags))):
        code = jnp.where(flags[i][0] != 0, jnp.stack([jnp.int64(i + 1), flags[i][1]]), code)
    return code
