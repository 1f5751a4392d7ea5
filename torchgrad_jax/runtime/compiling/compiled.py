"""A program as one XLA executable."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import jax
from jax import numpy as jnp

from torchgrad_jax.runtime._jax_compat import call_x64
from torchgrad_jax.runtime.baseline import jaxprs_in
from torchgrad_jax.runtime.compiling.kept import slots_to_keep
from torchgrad_jax.runtime.compiling.transposed import in_memory, transposed_slots
from torchgrad_jax.runtime.device import device, placed
from torchgrad_jax.runtime.observing.observer import COMPILING, TRACING, timed
from torchgrad_jax.runtime.operation import compiler_options
from torchgrad_jax.runtime.structure import operands, store

# A program with loops is there to save compilations: on a CPU XLA takes 0.6 times as long for it by these, and its runs as long as by all of XLA's
# effort. (Other programs gain less and lose up to 15 %.)
_QUICKLY = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
# Where matrix products take so few multiplications, in the mean, a pool of threads is asked for nothing: 0.4 us each. (The smallest would be
# quicker by another 1 us without YNNPACK's kernels, but take three times as long to compile.) And LLVM's first level does with them what its third
# does: 24 layers of width 32 are compiled in 0.4 s instead of 0.9, 50 steps of an RNN in 1.1 instead of 1.5, and run as fast.
_SMALL_PRODUCT = 100_000
_FOR_SMALL_PRODUCTS = {"xla_cpu_multi_thread_eigen": False, "xla_backend_optimization_level": 1}


def jitted(function: Callable[..., Any], calls: list[Any], where: device, donate: tuple[int, ...] = (), quickly: bool = False) -> Callable[..., Any]:
    """The function of a program that makes `calls` under `jax.jit`: on its device, with XLA's options. quickly: to be compiled with less effort."""
    options = compiler_options([c.signature for c in calls], where)
    if quickly and where.type == "cpu":
        options = {**(options or {}), **_quickly()}
    return jax.jit(function, donate_argnums=donate, compiler_options=options, **placed(where))


@cache
def _quickly() -> dict[str, Any]:
    """Those of `_QUICKLY` that this XLA has: JAX 0.11's has no `xla_cpu_use_fusion_emitters`."""
    return {name: value for name, value in _QUICKLY.items() if _has_option(name, value)}


def _has_option(name: str, value: Any) -> bool:
    """Asked by compiling next to nothing, 10 ms: there is no other way."""
    try:
        call_x64(jax.jit(operator.neg, compiler_options={name: value}).lower(0).compile)
    except Exception as error:
        if "No such compile option" not in str(error):
            raise
        return False
    return True


def ahead_of_time(function: Any, arguments: Sequence[Any]) -> Any:
    """What is compiled of a function under `jax.jit` for such arguments on a CPU, by itself: JAX keeps two thirds more memory with it for being
    called otherwise."""
    with timed(TRACING):
        traced = function.trace(*arguments)
    options = options_of_products(list(multiplications(traced.jaxpr.jaxpr)))
    with timed(COMPILING):
        try:
            return traced.lower().compile(compiler_options=options)
        except Exception as error:  # an XLA without such an option takes somewhat longer, and that is all
            if options is None or "No such compile option" not in str(error):
                raise
            return traced.lower().compile()


def options_of_products(sizes: list[int]) -> dict[str, Any] | None:
    """XLA's options for a program on a CPU whose matrix products take so many multiplications each."""
    mean = sum(sizes) / len(sizes) if sizes else _SMALL_PRODUCT
    return _FOR_SMALL_PRODUCTS if mean < _SMALL_PRODUCT else None


def multiplications(jaxpr: Any) -> Iterator[int]:
    """How many each matrix product takes, within loops and branches too."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            shape = eqn.invars[0].aval.shape
            yield math.prod(eqn.outvars[0].aval.shape) * math.prod([shape[i] for i in contracted])
        for inner in jaxprs_in(eqn):
            yield from multiplications(inner)


def replay(calls: list[Any], inputs: list[int], outputs: list[int], kinds: list[str]) -> Callable[..., list[Any]]:
    """The program as a JAX function: of its arrays of numbers, of the `kinds`, and its inputs, to its outputs and the first failed check."""
    transposed, kept = transposed_slots(calls), slots_to_keep(calls, outputs)

    def program_of_operations(*arguments: Any) -> list[Any]:
        numbers = dict(zip(kinds, arguments, strict=False))
        env: dict[int, Any] = {-1 - index: a for index, a in zip(inputs, arguments[len(kinds) :], strict=True)}
        flags: list[Any] = []
        read = dict(env) if transposed else env  # what element-wise operations read
        for call in calls:
            known = read if transposed and getattr(call.signature.bop, "pointwise", False) else env
            store(env, call, call.signature.in_programs(*operands(known, numbers, call)), flags)
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
