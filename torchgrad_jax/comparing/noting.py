"""Notes of a program: every public function that it calls, with its results, and every gradient that arrives at them.

It stands on modes of `__torch_function__` and on hooks of tensors, which both libraries have, so the same code notes a program under either.
"""

from __future__ import annotations

import functools
import linecache
import os
import pickle
import sys
import weakref
from pathlib import Path
from typing import Any

from torchgrad_jax.comparing.calls import Call, NotKept
from torchgrad_jax.comparing.derivatives import leaves_of
from torchgrad_jax.comparing.figures import KEPT, Figures, figures_of

# Which noted result: (number of the record, number of the result in it).
Place = tuple[int, int]
INPUT, HOOK = "input", "hook"
# What computes derivatives, of what may be written anywhere.
PASSES = frozenset({"grad", "backward"})
# Functions that tell or set something of a tensor, or make one of it in the way of the library's own code.
_SILENT = frozenset({
    "register_hook", "retain_grad", "numpy", "tolist", "storage", "untyped_storage", "_set_grad_enabled", "is_inference", "_version", "size", "dim",
    "stride", "data_ptr", "__repr__", "__format__", "__str__", "__len__", "__contains__", "__hash__", "__reduce_ex__", "__deepcopy__", "__array__",
    "_make_dual", "_unpack_dual", "make_dual", "unpack_dual", "is_floating_point", "is_complex", "numel", "element_size", "get_device",
})  # fmt: skip
# Functions whose results hold whatever was in memory: both sides shall have the same there.
_UNSET = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"})
# Functions that do not read what they write to. Those of them that a library's own code calls, as modules do for their parameters, are other ones in
# the other library: what they gave is compared where it is used.
_OVERWRITING = frozenset({
    "uniform_", "normal_", "fill_", "zero_", "copy_", "random_", "bernoulli_", "exponential_", "trunc_normal_", "constant_", "ones_", "zeros_",
    "eye_", "dirac_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "orthogonal_", "sparse_", "set_",
})  # fmt: skip
_LIBRARIES = ("torch", "torchgrad_jax", "jax", "jaxlib", "functorch")


class Record:
    """A call of a public function. where: the user's ``file:line``. text: that line. inputs: which results its tensors are. results: their figures.
    path: under which name the function is found. numbers: those of Python among its arguments."""

    __slots__ = ("name", "path", "where", "text", "inputs", "numbers", "results", "verdict")

    def __init__(self, name: str, path: str, where: str, text: str, inputs: list[Place], numbers: list[Any] | None = None) -> None:
        self.name, self.path, self.where, self.text, self.inputs, self.numbers = name, path, where, text, inputs, numbers or []
        self.results: list[Figures] = []
        # What `Call.run` gave on the arguments of the other side, where it was asked: (own results, those of the other side,
        # those in wider dtypes).
        self.verdict: Any = None


class Arrival:
    """A gradient that arrived at a result, for the nth time. behind: how many records there were then."""

    __slots__ = ("place", "nth", "figures", "behind")

    def __init__(self, place: Place, nth: int, figures: Figures, behind: int) -> None:
        self.place, self.nth, self.figures, self.behind = place, nth, figures, behind


class Notes:
    """All of a program. cut: whether it had more than was kept."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.arrivals: list[Arrival] = []
        self.cut = False

    def save(self, path: str | Path) -> None:
        """Write the notes to a file, which `load` trusts."""
        kept = (
            [[getattr(r, name) for name in Record.__slots__] for r in self.records],
            [[getattr(a, name) for name in Arrival.__slots__] for a in self.arrivals],
            self.cut,
        )
        with open(path, "wb") as file:
            pickle.dump(kept, file, protocol=pickle.HIGHEST_PROTOCOL)

    @classmethod
    def load(cls, path: str | Path) -> Notes:
        """The notes that a process of this program wrote: to be used for no other file, since it is a pickle."""
        with open(path, "rb") as file:
            records, arrivals, cut = pickle.load(file)
        notes = cls()
        notes.cut = cut
        for kept in records:
            record = Record(*kept[:6])
            record.results, record.verdict = kept[6:]
            notes.records.append(record)
        notes.arrivals = [Arrival(*kept) for kept in arrivals]
        return notes


class Limits:
    """kept: elements of each result. bytes: how much is kept of all of them; after that of each result 64 elements. records: how many calls."""

    def __init__(self, kept: int = KEPT, bytes: int = 1 << 29, records: int = 1_000_000) -> None:
        self.kept, self.bytes, self.records = kept, bytes, records


class Probe:
    """Calls to be kept in a folder as they are met (`checks` False), or computed once more on what another program kept there (True).

    places: by the number of the record, the number in the file's name.
    """

    def __init__(self, folder: str | Path, places: dict[int, int], checks: bool) -> None:
        self.folder, self.places, self.checks = Path(folder), places, checks

    def file(self, number: int) -> Path:
        """Where the call of a record is."""
        return self.folder / f"call{self.places[number]}.npz"


class _Known:
    """A tensor that was met. hooked: the node on which its gradients are noted, `_LEAF` where that is the tensor itself."""

    __slots__ = ("tensor", "place", "version", "hooked")

    def __init__(self, tensor: Any, place: Place, version: int) -> None:
        self.tensor, self.place, self.version = tensor, place, version
        self.hooked: Any = None


_LEAF = object()


class Noting:
    """A context manager that notes what is called in its block, in this thread. torch: the library, PyTorch or this package."""

    def __init__(self, torch: Any, limits: Limits | None = None, probe: Probe | None = None) -> None:
        self.torch, self.limits, self.probe = torch, limits or Limits(), probe
        self.notes, self._room = Notes(), self.limits.bytes
        self._known: dict[int, _Known] = {}  # by the id of the tensor
        self._arrived: dict[Place, int] = {}
        self._mode = _mode(torch, self)
        _roots.cache_clear()  # a library may have been imported since
        _kind.cache_clear()

    def __enter__(self) -> Noting:
        self._mode.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._mode.__exit__(*exc)

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the mode does in place of a call."""
        path = _path(self.torch, func)
        name = short(path)
        if name == "register_hook" and len(args) == 2 and callable(args[1]):
            return func(args[0], self._followed(args[1], *user_line()))
        if name in _UNSET:
            made = func(*args, **kwargs)
            made.data.zero_()
            return made
        if name in _SILENT or path.endswith((".__set__", ".__delete__")) or self.notes.cut or (name in _OVERWRITING and _by_library()):
            return func(*args, **kwargs)
        if _in_own_way():
            return func(*args, **kwargs)
        return self._noted(func, name, path, args, kwargs)

    def _noted(self, func: Any, name: str, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        where, text = user_line()
        read = (args[1:] if name in _OVERWRITING else args, kwargs)
        leaves = list(leaves_of(self.torch, read))
        tensors = [x for x in leaves if isinstance(x, self.torch.Tensor)]
        inputs = [] if name in PASSES else [self._met(x, f"{name}:{i}", where, text) for i, x in enumerate(tensors)]
        record = Record(name, path, where, text, inputs, [x for x in leaves if x is not None and not isinstance(x, self.torch.Tensor)])
        writes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        kept = self._keep(len(self.notes.records), func, path, args, kwargs) if self.probe is not None else None
        result = func(*args, **kwargs)
        given = args[0] if result is None and writes and args else result
        found = [x for x in leaves_of(self.torch, given) if isinstance(x, (self.torch.Tensor, float, complex))]
        if found:
            self._add(record, found)
            if kept is not None:
                self._probe(record, *kept)
        return result

    def _add(self, record: Record, found: list[Any]) -> None:
        number = len(self.notes.records)
        self.notes.records.append(record)
        self.notes.cut = number + 1 >= self.limits.records
        record.results = [self._figures(x) for x in found]
        for i, x in enumerate(found):
            if isinstance(x, self.torch.Tensor):
                self._place(x, (number, i))

    def _figures(self, x: Any) -> Figures:
        kept = self.limits.kept if self._room > 0 else min(64, self.limits.kept)
        figures = figures_of(self.torch, x, kept)
        self._room -= 0 if figures.sample is None else figures.sample.nbytes
        return figures

    def _met(self, x: Any, use: str, where: str, text: str) -> Place:
        """The place of an operand; one that no call gave, or that was written to since, gets a record of its own. use: of which call it is which."""
        known = self._known.get(id(x))
        if known is None or known.tensor() is not x or known.version != _version(x):
            self._add(Record(INPUT, f"{use} {tuple(x.shape)}", where, text, []), [x])
            return (len(self.notes.records) - 1, 0)
        if known.hooked is None and x.requires_grad:
            self._place(x, known.place)
        return known.place

    def _place(self, x: Any, place: Place) -> None:
        """`x` is the result at `place`; gradients that arrive at it are noted."""
        key, version = id(x), _version(x)
        known = self._known.get(key)
        hookable = None if not x.requires_grad else _LEAF if x.is_leaf else x.grad_fn
        if known is not None and known.tensor() is x and known.hooked is hookable and hookable is not None:
            known.version = version
            if hookable is _LEAF:  # else the same result once more, whose first place stays
                known.place = place
            return
        made = _Known(weakref.ref(x, functools.partial(_forget, self._known, key)), place, version)
        if hookable is not None and self._hook(x, made):
            made.hooked = hookable
        self._known[key] = made

    def _hook(self, x: Any, known: _Known) -> bool:
        def arrived(gradient: Any) -> None:
            if gradient is not None:
                self._arrival(known.place, gradient)

        try:
            x.register_hook(arrived)
        except RuntimeError:  # such as for what a transform refuses hooks
            return False
        return True

    def _arrival(self, place: Place, gradient: Any) -> None:
        nth = self._arrived[place] = self._arrived.get(place, -1) + 1
        self.notes.arrivals.append(Arrival(place, nth, self._figures(gradient), len(self.notes.records)))

    def _followed(self, hook: Any, where: str, text: str) -> Any:
        """A hook of the user's that notes what it was given and what it made of that."""

        @functools.wraps(hook, updated=())
        def followed(gradient: Any) -> Any:
            made = hook(gradient)
            record = Record(HOOK, getattr(hook, "__name__", type(hook).__name__), where, text, [])
            self.notes.records.append(record)
            record.results = [self._figures(gradient), self._figures(gradient if made is None else made)]
            return made

        return followed

    def _keep(self, number: int, func: Any, path: str, args: Any, kwargs: Any) -> Any:
        """What a probe of the call that is about to be made needs of before it; None for a call that is not asked for."""
        assert self.probe is not None
        if number not in self.probe.places:
            return None
        state = self.torch.get_rng_state()
        if self.probe.checks:
            return number, None, state
        try:
            return number, Call.of(self.torch, path, args, kwargs, ":".join(user_line()[:1])), state
        except NotKept as why:
            return number, str(why), state

    def _probe(self, record: Record, number: int, call: Any, state: Any) -> None:
        assert self.probe is not None
        file = self.probe.file(number)
        try:
            if not self.probe.checks:
                if isinstance(call, Call):
                    call.compute(self.torch, state)
                    call.save(file)
                else:
                    record.verdict = call
            elif file.exists():
                call = Call.load(file)
                if short(call.name) == record.name:
                    record.verdict = (call.run(self.torch, state), call.results, call.exact)
        except (NotKept, RuntimeError, TypeError, ValueError, NotImplementedError, IndexError) as error:
            record.verdict = f"{type(error).__name__}: {error}"


def _forget(known: dict[int, _Known], key: int, reference: Any) -> None:
    if key in known and known[key].tensor is reference:
        del known[key]


def _version(x: Any) -> int:
    try:
        return x._version
    except RuntimeError:  # inference tensors count none
        return -1


def _mode(torch: Any, noting: Noting) -> Any:
    class Mode(torch.overrides.TorchFunctionMode):
        """Passes each call on to `Noting`."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return noting.called(func, tuple(args), kwargs or {})

    return Mode()


@functools.cache
def _resolved(torch: Any) -> dict[Any, str]:
    """Names of what `resolve_name` does not know, which PyTorch dispatches in Python."""
    return {torch.autograd.grad: "torch.autograd.grad", torch.autograd.backward: "torch.autograd.backward"}


def _path(torch: Any, func: Any) -> str:
    """The name under which a function is found, the same in both libraries."""
    try:
        found = _resolved(torch).get(func) or torch.overrides.resolve_name(func)
    except TypeError:
        found = None
    return (found or getattr(func, "__name__", repr(func))).replace("torch.functional.", "torch.")


def short(path: str) -> str:
    """The last part of a function's name: `add` of ``torch.Tensor.add``."""
    parts = path.split(".")
    return ".".join(parts[-2:]) if parts[-1] in ("__get__", "__set__", "__delete__") else parts[-1]


@functools.cache
def _roots() -> tuple[str, ...]:
    """The folders of the libraries' own code, and of what else stands between them and the user."""
    found = [os.path.dirname(os.path.abspath(functools.__file__)) + os.sep + name for name in ("contextlib.py", "functools.py", "runpy.py")]
    for name in _LIBRARIES:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            found.append(os.path.dirname(os.path.abspath(file)) + os.sep)
    return (*found, "<frozen")


def _by_library() -> bool:
    """Whether the function that is called is so by a library's own code."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_dispatching()):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_code.co_filename.startswith(_roots())


def _in_own_way() -> bool:
    """Whether the function is called by code that each library writes in its own way, so that the two call other functions: optimizers, initial
    values, the clipping of gradients, loaders; and whatever a numerical check of derivatives calls, as often as it likes, the user's function too.
    What comes of it is seen where it is used."""
    by_user, frame = False, sys._getframe(1)
    while frame is not None:
        kind = _kind(frame.f_code.co_filename)
        if kind is _CHECKS or (kind is _OWN_WAY and not by_user):
            return True
        by_user = by_user or kind is _BY_USER
        frame = frame.f_back  # type: ignore[assignment]
    return False


_BY_USER, _BY_LIBRARY, _OWN_WAY, _CHECKS = range(4)
_PARTS = {
    _OWN_WAY: [part.replace("/", os.sep) for part in ("/optim/", "/utils/data/", "/nn/init.py", "/nn/utils/clip_grad.py")],
    _CHECKS: [part.replace("/", os.sep) for part in ("/autograd/gradcheck.py", "/autograd/checking/")],
}


@functools.cache
def _kind(file: str) -> int:
    """Whose code a file is."""
    if not file.startswith(_roots()):
        return _BY_USER
    return next((kind for kind, parts in _PARTS.items() if any(part in file for part in parts)), _BY_LIBRARY)


@functools.cache
def _dispatching() -> tuple[str, ...]:
    """Where calls pass through on their way to a mode."""
    here = os.path.dirname(os.path.abspath(__file__))
    around = os.path.dirname(here)
    return (here + os.sep, os.path.join(around, "calling") + os.sep, os.path.join(around, "overrides.py"))


def user_line() -> tuple[str, str]:
    """``file:line`` of the innermost frame outside the libraries, and that line's text."""
    roots, frame = _roots(), sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(roots):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return "", ""
    file, line = frame.f_code.co_filename, frame.f_lineno
    return f"{file}:{line}", linecache.getline(file, line, frame.f_globals).strip()


def user_line_of(error: BaseException) -> str:
    """``file:line`` of the innermost frame outside the libraries that an exception passed."""
    roots, found, trace = _roots(), "", error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(roots):
            found = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
