"""What JAX has no public name for, each with the versions it was tried with and what happens without it. Nothing else touches such names.

Tried with jax 0.10.2 and 0.11.2.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from torchgrad_jax.runtime.compiling.result_avals import rules


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


@functools.cache
def import_dialects() -> None:
    """Import what JAX imports when it first lowers a program, in a thread: there no signal comes. A module of these that an exception has ended
    halfway cannot be imported again ("Dialect namespace 'builtin' is already registered"), and nothing could be compiled any more in this process.

    Without these names JAX imports them itself, and a Ctrl-C at that very moment is not survived.
    """
    thread = threading.Thread(target=_import_dialects, name="torchgrad_jax: imports for the compiler")
    thread.start()
    thread.join()


def _import_dialects() -> None:
    for name in ("builtin", "mhlo"):
        with suppress(ImportError):
            importlib.import_module(f"jaxlib.mlir.dialects.{name}")


def traced_around() -> bool:
    """Whether a transformation of JAX's is under way."""
    return not _is_outside()


def trace(function: Callable[..., Any], name: str, inputs: Sequence[tuple[tuple[int, ...], np.dtype]]) -> Any:
    """The `ClosedJaxpr` of a function of arrays of these shapes and dtypes that returns a tuple of arrays.

    `jax.make_jaxpr` does the same in two to four times the time (see `_Trace`): without the private names it is what is called.
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
    shortened = _shortened()
    if shortened is not None:
        return shortened(function, name, inputs)
    return jax.make_jaxpr(function)(*[jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in inputs])


def without_dead_code(closed: Any) -> Any:
    """A `ClosedJaxpr` without what no result is computed from; itself where JAX has no such thing under this name."""
    try:
        from jax._src.interpreters.partial_eval import dce_jaxpr
    except ImportError:
        return closed
    return closed.replace(jaxpr=dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), True)[0])


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


try:
    from jax._src import core, dtypes, linear_util, literals, mesh, source_info_util
    from jax._src.interpreters import partial_eval

    _JaxTrace: Any = partial_eval.DynamicJaxprTrace
    _JaxTracer: Any = partial_eval.DynamicJaxprTracer
    _Equation = partial_eval.TracingEqn
    _aval = functools.lru_cache(maxsize=1 << 14)(core.ShapedArray)
    _SOURCE, _typed = source_info_util.new_source_info(), literals.TypedNdArray
except (ImportError, AttributeError, TypeError):
    _JaxTrace = _JaxTracer = object

_CONVERT = jax.lax.convert_element_type_p
_FORWARDED = {_CONVERT, jax.lax.broadcast_in_dim_p}  # what changes nothing is its operand


class _Tracer(_JaxTracer):
    """What stands for an array in a `_Trace`. Where its operators meet another one like it, or a number of Python's, they are primitives at once: the
    functions of jax.numpy that they are otherwise take 100 us to find that there is nothing to convert and to broadcast."""

    __slots__ = ()


def _operator(name: str, primitive: Any, kinds: str, reversed: bool = False, **params: Any) -> None:
    """Give tracers an operator that is a primitive for operands of one aval, of a dtype of these kinds, and for real numbers beside floating ones."""
    plain = getattr(_JaxTracer, name)

    def apart(self: Any, other: Any) -> Any:
        one, two = self.aval, other.aval
        if one.dtype != two.dtype or one.dtype.kind not in kinds or one.weak_type or two.weak_type or not _broadcast(one.shape, two.shape):
            return plain(self, other)
        rank = max(len(one.shape), len(two.shape))
        a, b = _in_rank(self, rank), _in_rank(other, rank)
        return primitive.bind(b, a, **params) if reversed else primitive.bind(a, b, **params)

    def operate(self: Any, other: Any) -> Any:
        aval, there = self.aval, other
        if type(other) is not _Tracer:
            if not (type(other) in (int, float) and aval.dtype.kind == "f"):
                return plain(self, other)
            there = _typed(np.asarray(other, aval.dtype), aval=_aval((), aval.dtype))
        elif other.aval is not aval:
            return apart(self, other)
        if aval.dtype.kind not in kinds or aval.weak_type:
            return plain(self, other)
        return primitive.bind(there, self, **params) if reversed else primitive.bind(self, there, **params)

    setattr(_Tracer, name, operate)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two shapes broadcast together."""
    return all([n == m or n == 1 or m == 1 for n, m in zip(a[::-1], b[::-1], strict=False)])


def _in_rank(x: Any, rank: int) -> Any:
    """With as many dimensions more in front; a number as it is."""
    own = x.aval.shape
    more = rank - len(own)
    if not more or not own:
        return x
    shape = (*(1,) * more, *own)
    return jax.lax.broadcast_in_dim_p.bind(x, shape=shape, broadcast_dimensions=tuple(range(more, rank)), sharding=None)


def _alone(name: str, primitive: Any, kinds: str) -> None:
    """Give tracers an operator of one operand."""
    plain = getattr(_JaxTracer, name)

    def operate(self: Any) -> Any:
        aval = self.aval
        return primitive.bind(self) if aval.dtype.kind in kinds and not aval.weak_type else plain(self)

    setattr(_Tracer, name, operate)


def _method(name: str, short: Callable[..., Any], kinds: str) -> None:
    """Give tracers a short way of a method, for dtypes of these kinds; it returns None where it is not for the arguments."""
    plain = getattr(_JaxTracer, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        aval = self.aval
        found = short(self, *args) if aval.dtype.kind in kinds and not (aval.weak_type or kwargs) and len(args) < 2 else None
        return plain(self, *args, **kwargs) if found is None else found

    setattr(_Tracer, name, method)


def _summed(x: Any, axis: Any = None) -> Any:
    rank = len(x.aval.shape)
    axes = tuple(range(rank)) if axis is None else axis if type(axis) is tuple else (axis,)
    if x.aval.dtype.itemsize < 4 or not all([type(d) is int and -rank <= d < rank for d in axes]):  # half precision is added up otherwise
        return None
    dims = tuple([d % rank for d in axes])
    return jax.lax.reduce_sum(x, dims) if len({*dims}) == len(dims) else None


def _as_dtype(x: Any, dtype: Any = None) -> Any:
    return x if dtype == x.aval.dtype else None


def _give_operators() -> None:
    lax = jax.lax
    for name, primitive, kinds in (("add", lax.add_p, "iufcV"), ("sub", lax.sub_p, "iufcV"), ("truediv", lax.div_p, "fV")):
        _operator(f"__{name}__", primitive, kinds)
        _operator(f"__r{name}__", primitive, kinds, reversed=True)
    _operator("__mul__", lax.mul_p, "iufcV", out_dtype=None)
    _operator("__rmul__", lax.mul_p, "iufcV", reversed=True, out_dtype=None)
    _operator("__and__", lax.and_p, "b")
    _operator("__or__", lax.or_p, "b")
    _alone("__neg__", lax.neg_p, "ifcV")
    _alone("__invert__", lax.not_p, "b")
    _method("conj", lambda x: x, "iuf")
    _method("sum", _summed, "fc")
    _method("astype", _as_dtype, "biufc")
    for name, primitive in (("lt", lax.lt_p), ("le", lax.le_p), ("gt", lax.gt_p), ("ge", lax.ge_p), ("eq", lax.eq_p), ("ne", lax.ne_p)):
        _operator(f"__{name}__", primitive, "iufV")


class _Trace(_JaxTrace):
    """JAX's trace with a short way for the primitives that have a rule.

    Half to two thirds of the time that a trace takes goes to the avals of results at sizes that JAX has not met yet, for which it asks many rules
    (dtypes, shardings, meshes, memory spaces). What is traced here lies on one device, and `result_avals` tells those of the common primitives. All
    others go JAX's way. The equations are the same, but for the lines of source that they are said to come from.
    """

    __slots__ = ("_context",)

    def __init__(self, debug: Any, parent: Any) -> None:
        super().__init__(debug, parent_trace=parent)
        self._context = core.current_jaxpr_eqn_context()

    def argument(self, aval: Any) -> Any:
        """One more argument of what is traced."""
        variable = self.frame.gensym(aval)
        self.frame.invars.append(variable)
        return _Tracer(self, aval, variable, _SOURCE)

    def var_to_tracer(self, var: Any, source_info: Any, parent: Any = None) -> Any:
        """As JAX's own, which is asked where a primitive has no rule."""
        if getattr(var.aval, "has_qdd", False):
            return super().var_to_tracer(var, source_info, parent)
        return _Tracer(self, var.aval, var, source_info, parent)

    def process_primitive(self, primitive: Any, tracers: Sequence[Any], params: dict[str, Any], /) -> Any:
        """As JAX's own."""
        rule = rules.get(primitive)
        if rule is not None and any([type(t) is _Tracer for t in tracers]):
            read = [t if type(t) is _Tracer and t._trace is self else self.to_jaxpr_tracer(t, _SOURCE) for t in tracers]
            is_folded = primitive is _CONVERT and type(read[0].val) is core.Literal
            found = None if is_folded else rule([t.aval for t in read], params)
            if type(found) is tuple:
                found = _aval(*found)
            if found is not None:
                if found is read[0].aval and primitive in _FORWARDED:
                    return read[0]
                variable = self.frame.gensym(found)
                equation = _Equation(read, [variable], primitive, params, core.no_effects, _SOURCE, self._context)
                self.frame.tracing_eqns.append(equation)
                return _Tracer(self, found, variable, _SOURCE, equation)
        return super().process_primitive(primitive, tracers, params)


def _traced_shortly(function: Callable[..., Sequence[Any]], name: str, inputs: Sequence[tuple[tuple[int, ...], np.dtype]]) -> Any:
    debug = linear_util.DebugInfo("operation", name, tuple([f"x{i}" for i in range(len(inputs))]), None)
    if not mesh.get_abstract_mesh().empty:  # then avals tell of it
        wrapped = linear_util.wrap_init(function, debug_info=debug)
        jaxpr, _, consts = partial_eval.trace_to_jaxpr_dynamic(wrapped, [core.ShapedArray(*i) for i in inputs])[:3]
        return core.ClosedJaxpr(jaxpr, consts)
    trace = _Trace(debug, core.trace_ctx.trace)
    try:
        with source_info_util.reset_name_stack():
            tracers = [trace.argument(_aval(*i)) for i in inputs]
            with core.set_current_trace(trace):
                results = function(*tracers)
            partial_eval._check_returned_jaxtypes(debug, results)
            results = [trace.to_jaxpr_tracer(dtypes.canonicalize_value(r), _SOURCE) for r in results]
            jaxpr, consts = trace.frame.to_jaxpr(trace, results, debug, _SOURCE)
    finally:
        trace.invalidate()  # or it lives until the garbage collector comes
    return core.ClosedJaxpr(jaxpr, consts)


# With which versions a short trace was held against what it has to give; with others it is where the first one is asked for, which takes 0.7 ms.
_TRIED = ("0.10.2", "0.11.2")


@functools.cache
def _shortened() -> Any:
    """What traces with less of JAX's machinery around it; None where this version of JAX has other names for it, or it gives something else there."""
    try:
        _give_operators()
        if jax.__version__ not in _TRIED:
            try_traces()
    except (NameError, AttributeError, TypeError, ValueError, KeyError, AssertionError):
        return None
    return _traced_shortly


def try_traces() -> None:
    """Trace some functions with less of JAX's machinery around them. AssertionError, or what it raises, where that gives something else."""
    lax = jax.lax

    def trial(x: Any, y: Any) -> tuple[Any, ...]:
        moved = lax.reshape(lax.transpose(lax.broadcast_in_dim(x, (1, 2, 3), (1, 2)), (2, 0, 1)), (3, 2))
        chosen = lax.select(x > y, x, lax.convert_element_type(y, x.dtype))
        return lax.dot(chosen, moved), lax.reduce_sum(lax.squeeze(lax.reshape(x, (1, 6)), (0,)), (0,)), lax.reduce_max(y, (1,))

    shapes = [a.shape for a in _traced_shortly(trial, "trial", [((2, 3), np.dtype(np.float32))] * 2).out_avals]
    assert shapes == [(2, 2), (), (2,)]


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
