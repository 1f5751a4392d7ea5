"""What JAX has no public name for, each with the versions it was tried with and what happens without it. Nothing else touches such names.

Tried with jax 0.10.2 and 0.11.2.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer


def call_x64(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function` of what is no tracer while JAX has 64-bit types in this thread, as PyTorch has, and computes at once, although a transformation
    of the user's may be under way. Whatever happens, the user's own setting is back afterwards.

    `jax.enable_x64(True)` as a context is the public way and the one without the private names. Either makes JAX look again at what it calls: this
    takes 1 to 1.4 us of a launch. A signal may raise at any call: so the setting is read first, and changed within the `try`.
    """
    before = _own_setting()
    try:
        _set(True)
        return function(*arguments) if _is_outside() else _at_once(function, *arguments)
    finally:
        _set(before)


def trace_x64(function: Callable[..., Any], *arguments: Any) -> Any:
    """As `call_x64`, for a function that traces: what it computes belongs to its own trace, and computed at once would be compiled by itself."""
    before = _own_setting()
    try:
        _set(True)
        return function(*arguments)
    finally:
        _set(before)


def _at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    with jax.ensure_compile_time_eval():
        return function(*arguments)


def x64(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is called by `call_x64`."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        return call_x64(functools.partial(function, **options) if options else function, *arguments)

    return call


def has_x64() -> bool:
    """Whether JAX has 64-bit types where this is asked: inside of `call_x64` it has, inside a transformation of the user's as the user says."""
    return jax.config.read("jax_enable_x64")


def as_x64(function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
    """Call `function` of `arrays` by `call_x64`, but by the present setting where one is a tracer: what is lowered by it is traced by it."""
    if any([isinstance(a, Tracer) for a in arrays]):
        return function(*arrays)
    return call_x64(function, *arrays)


def traced_by_user(wide: bool, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as it is traced where it calls the user's own JAX code: with 64-bit types or without, and with `jax.jit` and JAX's loops, which
    `trace` turns off."""

    def call(*arrays: Any) -> Any:
        with jax.enable_x64(wide), jax.disable_jit(False):
            return function(*arrays)

    return call


def _call_in_context(function: Callable[..., Any], *arguments: Any) -> Any:
    with jax.enable_x64(True):
        return _at_once(function, *arguments)


def _trace_in_context(function: Callable[..., Any], *arguments: Any) -> Any:
    with jax.enable_x64(True):
        return function(*arguments)


try:
    from jax._src.core import trace_state_clean as _is_outside

    _state: Any = jax.enable_x64
    _own_setting, _set = _state.get_local, _state.set_local
    _set(_own_setting())
except (ImportError, AttributeError, TypeError):
    call_x64, trace_x64 = _call_in_context, _trace_in_context

    def _is_outside() -> bool:
        return False


def traced_around() -> bool:
    """Whether a transformation of JAX's is under way."""
    return not _is_outside()


def trace(function: Callable[..., Any], name: str, inputs: Sequence[tuple[tuple[int, ...], np.dtype]]) -> Any:
    """The `ClosedJaxpr` of a function of arrays of these shapes and dtypes that returns a tuple of arrays.

    `jax.make_jaxpr` does the same with machinery around it that takes as long again (pytrees, debug information): without the private
    names it is what is called.
    Functions of JAX's that it calls are traced in place: by themselves under `jit`, as most of jax.numpy is, they take two to four times as long.
    """
    with jax.disable_jit():
        try:
            return trace_x64(_traced, function, name, inputs)
        except RecursionError as error:
            # A signal handler or a finalizer that records while JAX is filling one of its caches: they cannot be asked for what they are filling.
            if not str(error).startswith("Recursively calling"):
                raise
            jax.clear_caches()
            return trace_x64(_traced, function, name, inputs)


def _traced(function: Callable[..., Any], name: str, inputs: Sequence[tuple[tuple[int, ...], np.dtype]]) -> Any:
    private = _tracing()
    if private is None:
        return jax.make_jaxpr(function)(*[jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in inputs])
    core, linear_util, partial_eval = private
    avals = [core.ShapedArray(shape, dtype) for shape, dtype in inputs]
    debug = linear_util.DebugInfo("operation", name, tuple([f"x{i}" for i in range(len(avals))]), None)
    jaxpr, _, consts = partial_eval.trace_to_jaxpr_dynamic(linear_util.wrap_init(function, debug_info=debug), avals)[:3]
    return core.ClosedJaxpr(jaxpr, consts)


def without_dead_code(closed: Any) -> Any:
    """A `ClosedJaxpr` without what no result is computed from; itself where JAX has no such thing under this name."""
    private = _tracing()
    if private is None:
        return closed
    core, _, partial_eval = private
    return core.ClosedJaxpr(partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), True)[0], closed.consts)


def function_of(closed: Any) -> str:
    """The name of the function that a `ClosedJaxpr` is the trace of; "" where it is not known."""
    about = getattr(getattr(closed.jaxpr, "debug_info", None), "func_src_info", None)
    return about.partition(" ")[0] if isinstance(about, str) else ""


def directly(compiled: Any) -> Callable[..., Any]:
    """What a `jax.stages.Compiled` that has been called once calls in its turn, by 0.6 us the quicker; itself where there is no such thing."""
    return getattr(compiled, "_call", None) or compiled


try:  # the class of JAX's concrete arrays, to tell them from tracers by one comparison; without it they are asked what they are
    from jax._src.array import ArrayImpl as array_class
except ImportError:
    array_class: Any = None


def synchronous_cpu() -> Any:
    """A CPU device of a client of its own, which runs programs in the thread that calls them; None where jaxlib has no such thing.

    JAX's own CPU client hands every program to another thread: 22 to 80 us where the caller has been doing Python, five times what a small
    program takes. `jax_cpu_enable_async_dispatch` would turn that off for the whole process, the user's own JAX code included.
    """
    try:
        from jaxlib import xla_client

        return xla_client.make_cpu_client(asynchronous=False).devices()[0]
    except (ImportError, AttributeError, TypeError, RuntimeError):
        return None


_names: Any = ()


def _tracing() -> Any:
    global _names
    if _names == ():
        try:
            from jax._src import core, linear_util
            from jax._src.interpreters import partial_eval

            _names = core, linear_util, partial_eval
            _try_tracing()
        except (ImportError, AttributeError, TypeError, ValueError, AssertionError):  # another version of JAX: make_jaxpr serves
            _names = None
    return _names


def _try_tracing() -> None:
    closed = _traced(lambda x: (x,), "trial", [((2,), np.dtype(np.float32))])
    assert closed.out_avals[0].shape == (2,)


def refuse_as_array(kind: type, refuse: Callable[[Any], Any]) -> None:
    """Let `refuse` raise where JAX asks what array an object of class `kind` is. Without the private name JAX's own words stand, which recommend what
    has been done: to register the class as a pytree."""
    try:
        from jax._src.core import pytype_aval_mappings
    except ImportError:
        return
    pytype_aval_mappings[kind] = refuse


def share_ir_contexts() -> None:
    """Let all programs of this process be lowered in one context of MLIR. JAX makes one for each and keeps it with what was compiled: 1.2 MiB and
    14 ms a program, which is most of both where programs are small. Without effect where JAX has it elsewhere."""
    try:
        from jax._src.interpreters import mlir

        make = mlir.make_ir_context
    except (ImportError, AttributeError):
        return
    if not hasattr(make, "cache_info"):
        mlir.make_ir_context = functools.cache(make)
