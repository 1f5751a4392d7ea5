"""`jit`: a function that runs as one XLA program, found by its arguments and by what it reaches."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

from torchgrad_jax.core.autocasting import Under, autocast_key
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.lifting.compiled import MISS, Compiled, Traced
from torchgrad_jax.lifting.differentiating import backward_of, node_maker
from torchgrad_jax.lifting.finding import Lifted, find
from torchgrad_jax.lifting.reach import Reach
from torchgrad_jax.lifting.structures import Refused, changed, containers_in, key_of
from torchgrad_jax.lifting.tracing import Refusal, TraceRecorder, TracingError, traced
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.observing import observer
from torchgrad_jax.runtime.pickles import in_pickles
from torchgrad_jax.runtime.recorder import Recorder, other_modes, per_thread
from torchgrad_jax.runtime.user_code import warn_once, warn_user
from torchgrad_jax.runtime.value import is_tracer

# So many programs are kept of one kind of call, and after so many traces in a row of which none was called again no more are made.
MOST_PROGRAMS = 16
MOST_IN_VAIN = 8


# All functions under `jit`, in the order in which they were made.
living: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()

MODE = "called as it is: a mode is active that sees each operation (eager execution, a __torch_function__ mode, hooks on saved tensors, forward mode)"


# What the key of a call begins with.
_MODES_OF_KEYS = "grad mode", "inference mode", "autocast", "the default dtype", "the precision of matrix products"


class Kind:
    """The calls whose arguments have the same key. entries: what was traced, the latest first, each with what it reached. in_vain: how many traces in
    a row were not called again. plainly: why it is no longer traced, "" while it is."""

    __slots__ = ("entries", "in_vain", "plainly")

    def __init__(self) -> None:
        self.entries: list[tuple[Reach, Compiled]] = []
        self.in_vain = 0
        self.plainly = ""


class Jitted:
    """A function that is recorded at its first call with arguments of a kind and runs as one XLA program from the second on. name: what it is to be
    called where it is told of, if not by its own."""

    def __init__(self, function: Callable[..., Any], fullgraph: bool, name: str = "") -> None:
        functools.update_wrapper(self, function, updated=("__dict__",) if isinstance(function, types.FunctionType) else ())
        self._function, self._fullgraph, self.name = function, fullgraph, name
        self._kinds: dict[Any, Kind] = {}
        self._record: list[str] = []
        self._warned = False
        living[self] = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        rec = per_thread.recorder
        if (rec.rare != rec.inference and other_modes(rec) != rec.inference) or modes.execution == "eager" or modes.without_xla:
            return self._as_it_is(rec, args, kwargs)
        tensors: list[Tensor] = []
        objects: list[Any] = []
        try:
            key: Any = (
                rec.grad_enabled, rec.rare, autocast_key(rec), dtypes.default_float(), modes.matmul_precision, key_of(args, tensors, objects),
                key_of(kwargs, tensors, objects) if kwargs else None,
            )  # fmt: skip
        except Refused as refused:
            return self._refuse(str(refused), args, kwargs)
        if len(tensors) > 1 and len(set(map(id, tensors))) < len(tensors):
            tensors, key = _told_apart(tensors, key)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = Kind()
        elif kind.plainly:
            return self._function(*args, **kwargs)
        try:
            for reach, entry in kind.entries:
                if reach.holds():
                    found = entry.call(rec, tensors)
                    if found is not MISS:
                        kind.in_vain = 0
                        return found
            if any(is_tracer(t._content().array) for t in tensors):
                return self._function(*args, **kwargs)
        except Traced:
            return self._function(*args, **kwargs)
        return self._trace(kind, tensors, objects, args, kwargs)

    def _as_it_is(self, rec: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not isinstance(rec, TraceRecorder):
            self._note(f"called as it is: {modes.without_xla}" if modes.without_xla else MODE)
        return self._function(*args, **kwargs)

    def _refuse(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._fullgraph:
            raise TracingError(f"this function cannot be compiled whole: {reason}")
        self._warn(reason)
        return self._function(*args, **kwargs)

    def _trace(self, kind: Kind, tensors: list[Tensor], objects: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kind.entries:
            self._note(f"traced again: {_why(kind, tensors)}")
        elif len(self._kinds) > 1:
            self._note(f"traced for other arguments: {self._other_arguments(kind)}")
        kind.in_vain += 1
        if kind.in_vain > MOST_IN_VAIN:
            kind.plainly = f"traced {MOST_IN_VAIN} times in a row without one trace being of use: {_why(kind, tensors)}"
            kind.entries.clear()
            return self._refuse(kind.plainly, args, kwargs)
        reach, given = Reach(self._function, objects), containers_in((args, *kwargs.values()))
        result, found = traced(
            lambda: self._function(*args, **kwargs), self._fullgraph, tensors, lambda rec, result: find(rec, result, tensors, given, reach)
        )
        if isinstance(found, Lifted):
            try:
                entry = _with_backward(found)
            except Refusal as refusal:
                found = str(refusal)
            else:
                self._note(f"traced: {_shown(tensors)}")
                reach.renewed(found.renewed)
                reach.spent = not reach.holds()
                kind.entries.insert(0, (reach, entry))
                del kind.entries[MOST_PROGRAMS:]
        if isinstance(found, str):
            kind.plainly = found
            self._warn(found)
        return result

    def _other_arguments(self, kind: Kind) -> str:
        """In what the calls of a kind differ from those of the kind before."""
        key, before = [k for k, known in self._kinds.items() if known is kind][0], [k for k, known in self._kinds.items() if known is not kind][-1]
        if len(key) != len(before):  # see `_told_apart`
            return "one tensor is given twice, or two are that were one"
        named = [name for name, was, now in zip(_MODES_OF_KEYS, before, key, strict=False) if was != now]
        return f"{named[0]} is not what it was" if named else changed(before, key)

    def _warn(self, reason: str) -> None:
        self._note(f"not compiled: {reason}")
        if not self._warned:
            self._warned = True
            name = getattr(self._function, "__name__", type(self._function).__name__)
            warn_user(f"{name} is not compiled whole, and runs as it would without jit: {reason}")

    def _note(self, text: str) -> None:
        for one in observer.active:
            one.under_jit(self, text)
        if text not in self._record:
            self._record.append(text)

    @property
    def _torchdynamo_orig_callable(self) -> Any:
        """The function, under the name by which PyTorch's compiled functions have it."""
        return self._function

    @property
    def recompilations(self) -> list[str]:
        """What was traced, what was traced again and why, and what was not compiled and why; each said once, in order."""
        return list(self._record)

    def explain(self) -> str:
        """`recompilations` as lines of text, after how many programs there are."""
        programs = sum([len(kind.entries) for kind in self._kinds.values()])
        compiled = sum([entry.function is not None for kind in self._kinds.values() for _, entry in kind.entries])
        return "\n".join([f"{programs} traced, {compiled} of them compiled", *self._record])

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> Any:
        """What a function is to pickles and copies: where it is found by its name. What has none, and what belongs to an object, is compiled anew."""
        named = not isinstance(self._function, types.MethodType) and getattr(self, "__qualname__", None)
        return named or (_compiled_anew, (self._function, self._fullgraph, self.name))


def _with_backward(lifted: Lifted) -> Compiled:
    """What calls a Lifted, whose outputs have a gradient where they had one."""
    try:
        if not lifted.roots:
            return Compiled(lifted)
        with Under(present=False):  # backward is outside of blocks of autocast
            backward, living = backward_of(lifted)
        if backward is None:
            return Compiled(lifted, living=living)
        return Compiled(lifted, *node_maker(lifted, backward), living)
    finally:
        lifted.let_go()


def _told_apart(tensors: list[Tensor], key: Any) -> tuple[list[Tensor], Any]:
    """The tensors without those that were given twice, and a key that says which are the same."""
    places: dict[int, int] = {}
    pattern = tuple([places.setdefault(id(t), len(places)) for t in tensors])
    return list({id(t): t for t in tensors}.values()), (key, pattern)


def _why(kind: Kind, tensors: list[Tensor]) -> str:
    reach, entry = kind.entries[0] if kind.entries else (None, None)
    if reach is None or entry is None:
        return "nothing could be kept"
    if not reach.holds():
        return reach.changed()
    return entry.lifted.differs(tensors)


def _shown(tensors: list[Tensor]) -> str:
    return ", ".join([f"{t.dtype.word}{list(t._aval.shape)}" for t in tensors]) or "without tensors among its arguments"


@in_pickles("_compiled_anew")
def _compiled_anew(function: Any, fullgraph: bool, name: str = "") -> Any:
    return Jitted(function, fullgraph, name)


def jit(function: Any = None, *, fullgraph: bool = False) -> Any:
    """`function` (or a module) as one XLA program: forward, backward, and updates of whatever tensors it reaches.

    The first call with arguments of a kind runs as it would without, while what it reads and changes is noted; from the second on a compiled program
    runs in its place. Without a function, a decorator. The result has `recompilations` and `explain()`; of a module it is an OptimizedModule.

    fullgraph: a function that cannot be one program raises TracingError, with the line and why; else it warns once and runs as without. TypeError
    for what cannot be called.
    """
    if function is None:
        return functools.partial(jit, fullgraph=fullgraph)
    if not callable(function):
        raise TypeError(f"jit() takes a function or a module, not {type(function).__name__}")
    return _jitted(function, bool(fullgraph), "")


def _jitted(function: Any, fullgraph: bool, name: str) -> Any:
    return function if isinstance(function, Jitted) else _made_of(function, Jitted(getattr(function, "_orig_mod", function), fullgraph, name))


def _made_of(function: Any, called: Any) -> Any:
    """What stands for a function that is called so: of modules an object that nn makes."""
    return function.__optimized__(called) if hasattr(type(function), "__optimized__") else called


class InvalidBackend(RuntimeError):
    """`torch.compile` was given the name of a backend that there is none of."""

    def __init__(self, name: Any) -> None:
        super().__init__(f"Invalid backend: {name!r}, see `torch._dynamo.list_backends()` for available backends.")


# PyTorch's own backends, all of which compute what the model itself does; those in the second line run it as it is.
_BACKENDS = ("inductor", "aot_eager", "cudagraphs", "openxla", "tvm", "aot_eager_decomp_partition", "onnxrt")
_AS_IT_IS = ("eager",)
_MODES = (None, "default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """`torch.compile`: `model`, a function or a module, as one XLA program; see `torchgrad_jax.jit`. Without one, a decorator. A class is given back.

    fullgraph: whether what cannot be one program raises. dynamic: whatever it is, each combination of shapes is a program of its own, as XLA's are.
    backend: any of PyTorch's own, XLA in each case; "eager" runs the model as it is. mode: one of PyTorch's, which makes no difference: XLA has one
    effort. name: of the result, as `explain` tells it. isolate_recompiles: the programs of each result are its own in any case. options,
    recompile_limit, shapes_spec: those of PyTorch's compiler; warns that they change nothing. disable: gives the model itself. NotImplementedError
    for a backend of the user's, which would be given PyTorch's graphs. RuntimeError for other backends (InvalidBackend) and modes of "inductor",
    AssertionError for what cannot be called.
    """
    if callable(backend):
        raise NotImplementedError("torch.compile(): torchgrad_jax has no FX graphs to give to a backend; leave out backend=")
    if backend not in (*_BACKENDS, *_AS_IT_IS):
        raise InvalidBackend(backend)
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if backend == "inductor" and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(map(str, _MODES[1:]))}")
    limits = [limit for limit, given in (("recompile_limit", recompile_limit), ("shapes_spec", shapes_spec)) if given is not None]
    for unused in filter(None, (options, limits)):
        warn_once(f"torch.compile(): options are those of PyTorch's compiler and change nothing here: {', '.join(unused)}")
    if model is None:
        return functools.partial(compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, name=name, disable=disable)
    if not callable(model):
        raise AssertionError(f"A callable function is expected, but {type(model)} is provided.")
    if disable or isinstance(model, type):
        return model
    if backend in _AS_IT_IS:
        return _made_of(model, getattr(model, "_orig_mod", model))
    return _jitted(model, bool(fullgraph), name or "")
