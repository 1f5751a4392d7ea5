"""BoundOp: an operator with its static arguments. Signature: a BoundOp at given input avals, ready to run or to trace."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol
from warnings import catch_warnings, filterwarnings

import jax
import numpy as np
from jax import lax

from torchgrad_jax.runtime import jaxprs, keeping, modes
from torchgrad_jax.runtime._jax_compat import trace, without_dead_code
from torchgrad_jax.runtime.baseline import Forms, NumPyForm, Plan, plan_of
from torchgrad_jax.runtime.baseline.cost import IMPORT
from torchgrad_jax.runtime.compiling.convolutions import by_loops
from torchgrad_jax.runtime.compiling.for_xla import for_xla, misleads, traced_for_xla
from torchgrad_jax.runtime.compiling.platforms import traced_for_cpu
from torchgrad_jax.runtime.compiling.primitives import by_foreign
from torchgrad_jax.runtime.compiling.products import NONE, Exchanged, by_blas, exchangeable, exchanging
from torchgrad_jax.runtime.compiling.writes import Sizes, sizes_in
from torchgrad_jax.runtime.device import CPU, device, placed
from torchgrad_jax.runtime.kinship import Kind, Learned, pattern, untracked
from torchgrad_jax.runtime.observing.observer import TRACING, timed
from torchgrad_jax.runtime.recording.fields import SignatureFields
from torchgrad_jax.runtime.recording.step import NUMBER_DTYPES
from torchgrad_jax.runtime.value import Aval, aval_of
from torchgrad_jax.runtime.vectors import Vectors, as_vectors, filled_length, filling_up, with_length

ArgSpec = Aval | type
Check = Callable[..., Exception]


class BoundOp(Protocol):
    """What the runtime asks of an operator whose static arguments are fixed."""

    name: str
    signatures: dict[tuple[ArgSpec, ...], Signature]
    device: device | None

    def specialize(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        """The JAX function of arrays (Python numbers as 0-dim arrays) for inputs like `specs`. It returns an array or
        a tuple of them. Raises PyTorch's error for inputs that do not fit together."""
        ...

    # It may have `require`, too, which raises the same where more than shapes and dtypes that can be told alike have to fit together: then
    # `specialize` is called when its function is needed. And `as_another`: the Signature, or None, of an operator that does the same and of which
    # more is known.

    def check(self, specs: Sequence[ArgSpec]) -> Check | None:
        """None, or what makes the exception of what the function finds: its last output, an integer that is 0 where the inputs' values are
        allowed."""
        ...


class Expansion(NamedTuple):
    """An operation that is made of others.

    steps: the operations, whose arguments are slots: results of earlier ones from 0 on, operands of the whole as -1, -2, ...; a type stands for a
    number. operands: which operand of the whole each negative slot is; numbers: which operand each number is, in the order of the steps.
    results: the slots that are the results of the whole; avals: theirs.
    """

    steps: list[Any]
    operands: list[int]
    numbers: list[int]
    results: list[int]
    avals: tuple[Aval, ...]


# YNNPACK's kernels, XLA's choice for reductions on a CPU with all that is element-wise before them, take NaN for less than any number: the largest of
# 4,096 elements, or the sum of max(x, 0), is a number where it has to be NaN. They round no half precision in between, and convolve slowly.
NO_YNN = {"xla_cpu_experimental_ynn_fusion_type": ""}
_TRITON = "xla_gpu_enable_triton_gemm"


def rounding_options(where: device) -> dict[str, Any]:
    """XLA's options for half precision: it keeps float32 between operations; PyTorch rounds after each."""
    return {"xla_allow_excess_precision": False, **_options(where)}


def _options(where: device) -> dict[str, Any]:
    return NO_YNN if where.type == "cpu" else {}


def compiler_options(signatures: Iterable[Signature], where: device) -> dict[str, Any] | None:
    """XLA's options for a program of these signatures. Products on a GPU are cuBLAS's: XLA would compile and time dozens of kernels of its own for
    each, 7 s for one product of float32."""
    found = rounding_options(where) if any([sig.half for sig in signatures]) else _options(where)
    if where.type == "cuda" and _TRITON not in os.environ.get("XLA_FLAGS", ""):
        found = found | {_TRITON: False}
    return found or None


class Signature(SignatureFields):
    """A BoundOp specialized to input avals: its output avals, and how it is run.

    half: whether half precision is among its inputs or outputs; nbytes: of its outputs; numbered: whether Python
    numbers are among its inputs. `warm`: the function has been compiled by itself; used, executable: see `keeping`.
    `plans` and `batched` belong to the layer that differentiates, `cut` to `cutting`.
    """

    __slots__ = (
        "specs", "half", "warm", "_made", "_jaxpr", "_function", "_in_programs",
        "_alone", "_traced", "_baseline", "_listed", "_exchangeable", "_sizes", "used", "executable", "batched", "__weakref__",
    )  # fmt: skip

    def __init__(self, bop: BoundOp, specs: tuple[ArgSpec, ...]) -> None:
        self.bop, self.specs = bop, specs
        self.check = bop.check(specs)
        self.warm = False
        self.cut = None
        self.used = self.executable = 0
        self.plans: dict[Any, Any] = _NO_PLANS
        self.batched: dict[Any, Any] | None = None
        self._function: Any = None
        self._in_programs: Any = None
        self._traced: Any = None
        self._alone: Any = None
        self._exchangeable: Exchanged | None = None
        self._sizes: Sizes | None = None
        self._baseline: Any = None
        self._listed: Plan | NumPyForm | None = None
        self._made = self._jaxpr = None
        self.kind = None
        require = getattr(bop, "require", None)
        if require is not None:
            require(specs)
        known = expansion(bop, specs)
        if known is not None:
            self.avals, self.single = known.avals, False
        else:
            self._find()
        untracked(specs)
        untracked(self.avals)
        self.nbytes = sum([a.nbytes for a in self.avals])
        first = self if self.kind is None else self.kind.first
        if first is not self:
            self.numbered, self.half = first.numbered, first.half
            return
        self.numbered = any([isinstance(s, type) for s in specs])
        self.half = any([a.dtype.itemsize == 2 and a.dtype.kind not in "iu" for a in (*specs, *self.avals) if isinstance(a, Aval)])

    def keep_plan(self, key: Any, plan: Any) -> None:
        """Keep how it is differentiated."""
        if self.plans is _NO_PLANS:
            self.plans = {key: plan}
        else:
            self.plans[key] = plan

    @property
    def _raw(self) -> Callable[..., Any]:
        """The JAX function of its arrays."""
        if self._made is None:  # of what has a form, or is of a kind that is known, nobody asks for it
            made = self.bop.specialize(self.specs)
            elsewhere = any([not isinstance(s, type) and s.device is not CPU for s in self.specs])
            self._made = in_asked_precision(made) if elsewhere else made
        return self._made

    @property
    def function(self) -> Callable[..., Any]:
        """The JAX function under `jax.jit`: always a tuple of results, the outcome of its check last if it has one."""
        if self._function is None:  # making it takes 50 us, and what is interpreted never asks
            self._function = jax.jit(_as_tuple(self._raw, self.bop.name))
        return self._function

    def in_programs(self, exchanged: Exchanged = NONE, apart: bool = True) -> Callable[..., Any]:
        """`function` as programs call it: traced in place and once, however many programs it is part of. exchanged: which arrays it is handed, and
        returns, with their last two dimensions exchanged. apart: whether what is written into an array is kept in memory of its own."""
        if self._in_programs is None:
            self._in_programs = {}
        found = self._in_programs.get((exchanged, apart))
        if found is None:
            found = self._in_programs[exchanged, apart] = jax.jit(self._for_xla(exchanged, apart))
        return found

    @property
    def exchangeable(self) -> Exchanged:
        """What matrix products alone read and give of its inputs and outputs: see `in_programs`."""
        if self._exchangeable is None:
            self._exchangeable = exchangeable(self.closed().jaxpr)
        return self._exchangeable

    @property
    def sizes(self) -> Sizes:
        """How many elements the arrays have that it writes into, or gives other dimensions."""
        if self._sizes is None:
            self._sizes = sizes_in(self.closed().jaxpr)
        return self._sizes

    def closed(self) -> Any:
        """Its jaxpr, kept until it is compiled."""
        self._jaxpr = self._jaxpr or _jaxpr_of(_as_tuple(self._raw, self.bop.name), self.bop.name, self.specs)
        return self._jaxpr

    @property
    def alone(self) -> Callable[..., Any]:
        """`function` as it is called outside of any program: it rounds half precision after each operation."""
        if self._alone is None:
            where = common_device(self.specs, self.bop.device)
            self._alone = jax.jit(self._for_xla(), compiler_options=compiler_options([self], where), **placed(where))
        return self._alone

    def let_go(self) -> None:
        """Let go of what is compiled of it by itself."""
        self._alone, self.warm, self.executable = None, False, 0

    @property
    def traced(self) -> Callable[..., Any]:
        """`function` for inputs that are tracers of the user's."""
        if self._traced is None:
            misleading = misleads(_jaxpr_of(_as_tuple(self._raw, self.bop.name), self.bop.name, self.specs).jaxpr)
            self._traced = traced_for_xla(self.function) if misleading else self.function
        return self._traced

    def in_32_bits(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """What `traced` returns, for tracers where the user has not set `jax_enable_x64`: 32 bits where the operator says 64.

        Numbers stay NumPy's: where an index is packed into one with a size, it needs all its bits.
        """
        function = _as_tuple(self._raw, self.bop.name)
        given = [np.asarray(a, NUMBER_DTYPES[s]) if isinstance(s, type) else None for a, s in zip(arguments, self.specs, strict=True)]

        def call(*arrays: Any) -> tuple[Any, ...]:
            rest = iter(arrays)
            return function(*[next(rest) if number is None else number for number in given])

        with catch_warnings():
            filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
            return traced_for_xla(call)(*[a for a, number in zip(arguments, given, strict=True) if number is None])

    def _for_xla(self, exchanged: Exchanged = NONE, apart: bool = True) -> Callable[..., Any]:
        from jax.extend.core import jaxpr_as_fun

        closed, self._jaxpr = self.closed(), None  # what is compiled by itself is seldom interpreted too
        if exchanged != NONE:
            closed = trace(exchanging(jaxpr_as_fun(closed), exchanged), self.bop.name, exchanged.given(closed.in_avals))
        closed = for_xla(closed, apart)
        if common_device(self.specs, self.bop.device) is CPU:
            closed = by_foreign(by_loops(by_blas(closed)))
        run = jaxpr_as_fun(closed)

        def function(*arrays: Any) -> Any:
            return run(*arrays)

        function.__name__ = self.bop.name
        return function

    @property
    def baseline(self) -> Plan | NumPyForm | None:
        """Its plan for the interpreter; None where there is none: something in it has no rule."""
        found = self._baseline
        if found is None:
            with timed(TRACING):
                found = self._baseline = self._plan() or False
        elif type(found) is NumPyForm and found.left:
            found.left -= 1
            if not found.left:
                found = self._baseline = self.in_lists
        return found or None

    @property
    def in_lists(self) -> Plan | NumPyForm | None:
        """`baseline` where it is to be part of a list of calls that is run again and again. A form's last digits may be others than its plan's."""
        found = self._baseline if self._baseline is not None else self.baseline
        if isinstance(found, NumPyForm) and found.planned and not (modes.deterministic or modes.same_tier_blocks):
            if self._listed is None:
                with timed(TRACING):
                    self._listed = self._plan() or found
            return self._listed
        return found or None

    def _plan(self) -> Plan | None:
        return plan_of(self._jaxpr if self._jaxpr is not None else _jaxpr_of(_as_tuple(self._raw, self.bop.name), self.bop.name, self.specs))

    def _find(self) -> None:
        """Find the output avals, and what is known of the plan: that of its kind, of those that differ in sizes alone, if that is known."""
        find = getattr(self.bop, "kin", None)
        kinds, given = (None, ()) if find is None else find(self.specs)
        if kinds is None:
            self._ask(None, ())
            return
        key, sizes = pattern(given)
        kind = kinds.get(key)
        if kind is None:
            kind = Kind()
            self._ask(kind, sizes)
            kind.begin(self, sizes)
            kinds[key] = kind
        elif not self._of_kind(kind, sizes):
            self._ask(kind, sizes)
        self.kind = kind if kind.has(self) else None

    def _of_kind(self, kind: Kind, sizes: tuple[int, ...]) -> bool:
        """Whether what is known of its kind tells all."""
        if kind.formed:
            forms = kind.forms
            if self._by_numpy(self.bop.numpy_form(self.specs) if forms is None else forms, kind):  # type: ignore[attr-defined]
                return True
        first, avals = kind.first, None
        if kind.elementwise:
            avals = kind.predicted(sizes)
        elif kind.learned is not None:
            first, avals = kind.learned.first, kind.learned.avals(sizes)
        if avals is None:
            return False
        self.avals, self.single, self._baseline = avals, first.single, first.baseline
        if kind.elementwise and avals[0].size > _FEW_ELEMENTS:
            self._baseline = self._baseline.for_elements(avals[0].size, first.avals[0].size)
        return True

    def _ask(self, kind: Kind | None, sizes: tuple[int, ...]) -> None:
        """Ask the operator, or trace it, and let the kind know what serves others."""
        find = getattr(self.bop, "numpy_form", None)
        if self._by_another():
            return
        forms = None if find is None else find(self.specs)
        if forms is not None and self._by_numpy(forms):
            if kind is not None and kind.first is None:
                kind.formed, kind.forms = True, forms if getattr(self.bop, "one_form", False) else None
                if kind.forms is not None and forms.steps is forms.takes is forms.fused is None and not forms.often:
                    kind.form = self._baseline
            return
        if not hasattr(self.bop, "require"):
            self._raw  # noqa: B018 - it raises where they do not fit together
        if self._as_of_vectors():
            if kind is not None:
                kind.elementwise = type(self._baseline) is Plan and self._baseline.cost < IMPORT
        elif self.check is None and hasattr(self.bop, "kin") and self._as_written():
            if kind is not None:
                kind.learned = Learned(self, sizes)
        else:
            self._trace()
            if kind is not None and kind.learned is not None:
                kind.learned.learn(self, sizes, self._jaxpr)
            elif kind is not None and self.check is None:
                kind.learned = Learned(self, sizes, self._jaxpr)

    def _by_another(self) -> bool:
        """Whether there is an operator of which more is known that does the same: then its plan is this one's."""
        find = getattr(self.bop, "as_another", None)
        found = find(self.specs) if find is not None else None
        if found is None or self.check is not None:
            return False
        self.avals, self.single, self._baseline = found.avals, found.single, found.baseline or False
        return True

    def _by_numpy(self, forms: Forms | None, kind: Kind | None = None) -> bool:
        """Whether forms for NumPy arrays, if it has them, tell the outputs' avals, run on arrays without memory: then they are the plan."""
        if forms is None:
            return False
        where = common_device(self.specs, self.bop.device) if kind is None else kind.first.avals[0].device
        given = [_ZERO[s] if isinstance(s, type) else stand_in(s.shape, s.dtype) for s in self.specs]
        try:
            outs = (forms.result or forms.function)(*given)
        except (TypeError, ValueError, IndexError, ZeroDivisionError):
            outs = None  # if they do not fit together, the trace says so
        if outs is None:
            return False
        alone = not isinstance(outs, tuple)
        outs = (outs,) if alone else outs
        self.avals = tuple([aval_of(o.shape, o.dtype, where) for o in (outs if self.check is None else outs[:-1])])
        self.single = alone or (self.check is not None and len(self.avals) == 1)
        shared = None if kind is None or outs[0].size > _FEW_ELEMENTS else kind.form
        self._baseline = _form_of(forms, alone, given, outs) if shared is None else shared
        return True

    def _as_of_vectors(self) -> bool:
        """Whether it does element by element what its operator does with vectors: then the plan for these is its own."""
        bop = of_vectors(self.bop) if self.check is None else None
        if bop is None:
            return False
        try:
            vectors = as_vectors(self.specs)
            if vectors is None:
                return False
            known = signature(bop, vectors.specs)
        except (TypeError, ValueError, RuntimeError, IndexError, NotImplementedError):
            return False  # it has requirements of its own; if its operands do not fit, the trace says so
        plan: Any = known.baseline
        if getattr(plan, "everywhere", False):
            if not plan.reaches(vectors.shape, self.specs):
                return False
            elements = math.prod(vectors.shape)
            found: Any = (plan if vectors.overwrites else plan.broadcasting).for_elements(elements, known.avals[0].size)
        else:
            alike = bop is self.bop and all([aval.ndim for aval in known.avals])  # a loss that is added up has no dimension
            found = self._filled_up(vectors) if plan is not None and plan.compiling > _TRACED_SOON and alike else None
        if found is None:
            return False
        self.avals = tuple([aval_of(vectors.shape, aval.dtype, aval.device) for aval in known.avals])
        self.single, self._baseline = known.single, found
        return True

    def _filled_up(self, vectors: Vectors) -> NumPyForm | None:
        """What fills vectors up to one of a few lengths, where a plan serves one length only: its loop ends when all elements are done."""
        length = filled_length(vectors.shape)
        specs = with_length(self.specs, length)
        if not length or specs == self.specs:
            return None
        plan: Any = signature(self.bop, specs).baseline
        if plan is None:
            return None
        function = filling_up(plan, vectors.shape, length)
        return NumPyForm(Forms(function, fresh=True), False, 0, 1, plan.cost)

    def _as_written(self) -> bool:
        """Whether its jaxpr is written down, for operands of all sizes."""
        found = jaxprs.find(self.bop, self.specs) if modes.baseline and modes.table else None
        if found is None:
            return False
        self._baseline, self.avals, self.single = found
        return True

    def traced_anew(self) -> tuple[Any, bool]:
        """Its jaxpr, and whether its function gives one result that is no tuple."""
        kinds: list[type] = []
        closed = _jaxpr_of(_as_tuple(self._raw, self.bop.name, kinds), self.bop.name, self.specs)
        return closed, not issubclass(kinds[0], (tuple, list))

    def _trace(self) -> None:
        """Find the output avals, and keep the jaxpr, which is what finding them takes."""
        bop, where = self.bop, common_device(self.specs, self.bop.device)
        known = self._raw.closed if type(self._raw) is Known else None
        if known is not None and _inputs(self.specs) == [(a.shape, a.dtype) for a in known.in_avals]:
            self._jaxpr, alone = known, len(known.out_avals) == 1
        else:
            try:
                self._jaxpr, alone = self.traced_anew()
            except (TypeError, ValueError, ZeroDivisionError) as error:
                # What an operator's own checks let pass and JAX refuses: one sentence, not a trace of JAX's frames.
                raise RuntimeError(f"{bop.name}: {str(error).splitlines()[0]}") from None
        outs = self._jaxpr.out_avals if self.check is None else self._jaxpr.out_avals[:-1]
        self.avals = tuple([aval_of(tuple(o.shape), np.dtype(o.dtype), where) for o in outs])
        self.single = alone or (self.check is not None and len(outs) == 1)


def _form_of(forms: Forms, alone: bool, given: list[Any], outs: tuple[Any, ...]) -> NumPyForm:
    """Forms as a plan. given, outs: what operands and results are like; alone: whether it gives one that is no tuple."""
    size = max([o.size for o in (*given[:1], *outs)])
    products, fused = [0.0 if told is None else told(*given) for told in (forms.takes, forms.fused)]
    found = NumPyForm(forms, alone, 0 if forms.takes is not None else _moved(forms, given, outs), size, products, fused)
    if forms.steps is not None:
        found.step_by(forms.steps, given)
    return found


def of_vectors(bop: Any) -> Any:
    """The BoundOp that does with vectors what this one does element by element: itself, if it asks for no shape. None where there is none."""
    if getattr(bop, "elementwise", False):
        return bop
    find = getattr(bop, "of_vectors", None)
    return None if find is None else find()


def _as_tuple(raw: Callable[..., Any], name: str, kinds: list[type] | None = None) -> Callable[..., tuple[Any, ...]]:
    """A function whose result is always a tuple. The class of its own result goes into `kinds`."""

    def function(*arrays: Any) -> tuple[Any, ...]:
        outs = raw(*arrays)
        if kinds is not None:
            kinds.append(type(outs))
        # Weakly typed outputs would key a second executable: make every output's dtype its own.
        every = outs if isinstance(outs, (tuple, list)) else (outs,)
        return tuple([lax.convert_element_type(o, o.dtype) if getattr(o, "weak_type", True) else o for o in every])

    function.__name__ = name
    return function


def in_asked_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose products of float32 are as `torch.set_float32_matmul_precision` says: accelerators round operands unless told otherwise."""

    def call(*arrays: Any) -> Any:
        with jax.default_matmul_precision(modes.PRECISIONS[modes.matmul_precision]):
            return function(*arrays)

    return call


def _jaxpr_of(function: Callable[..., Any], name: str, specs: Sequence[ArgSpec]) -> Any:
    arrays = [s for s in specs if not isinstance(s, type)]
    with traced_for_cpu() if arrays and all([a.device is CPU for a in arrays]) else nullcontext():
        return trace(function, name, _inputs(specs))


def _inputs(specs: Sequence[ArgSpec]) -> list[tuple[tuple[int, ...], np.dtype]]:
    return [((), NUMBER_DTYPES[s]) if isinstance(s, type) else (s.shape, s.dtype) for s in specs]


def operands_read(function: Callable[..., Any], specs: Sequence[ArgSpec]) -> set[int]:
    """Which of its operands the results of a function are computed from. It takes a trace."""
    return Traced(function, specs).read


class Known:
    """A function whose jaxpr is known for arrays like its `in_avals`. (No attribute of a function: `jax.vmap` copies those to what it makes.)"""

    __slots__ = ("_function", "closed")

    def __init__(self, function: Callable[..., Any], closed: Any) -> None:
        self._function, self.closed = function, closed

    def __call__(self, *arrays: Any) -> Any:
        return self._function(*arrays)


class Traced:
    """A function of arrays like `specs`, traced once: `read`, which of its operands its results are computed from, and the function without the rest,
    which is differentiated the sooner. Of a tuple of one result it returns that. closed: its jaxpr.

    Called with arrays of other shapes or dtypes it is the function itself, and so it is on accelerators: there the precision that is asked for when
    it is called counts.
    """

    __slots__ = ("read", "closed", "_function", "_on_host")

    def __init__(self, function: Callable[..., Any], specs: Sequence[ArgSpec]) -> None:
        self._function = function
        self._on_host = all([isinstance(s, type) or s.device is CPU for s in specs])
        self.closed = without_dead_code(_jaxpr_of(_as_tuple(function, "read"), "read", specs))
        jaxpr = self.closed.jaxpr
        read = {v for v in jaxpr.outvars if not hasattr(v, "val")}
        for equation in reversed(jaxpr.eqns):
            if not read.isdisjoint(equation.outvars):
                read.update([v for v in equation.invars if not hasattr(v, "val")])
        self.read = {i for i, v in enumerate(jaxpr.invars) if v in read}

    def __call__(self, *arrays: Any) -> Any:
        from jax.extend.core import jaxpr_as_fun

        kinds = [(a.shape, a.dtype) for a in self.closed.in_avals]
        if not self._on_host or [(getattr(a, "shape", None), getattr(a, "dtype", None)) for a in arrays] != kinds:
            return self._function(*arrays)
        outs = jaxpr_as_fun(self.closed)(*arrays)
        return outs[0] if len(outs) == 1 else tuple(outs)

    def of(self, operands: Sequence[int]) -> Any:
        """Its jaxpr as one of these operands alone, which are all that it reads."""
        jaxpr = self.closed.jaxpr
        return self.closed.replace(jaxpr=jaxpr.replace(invars=[jaxpr.invars[i] for i in operands]))


def _moved(forms: Forms, given: Sequence[Any], outs: Sequence[np.ndarray]) -> int:
    """How many bytes a form copies: nothing where it gives views, and what is written where it may write into its first operand."""
    if forms.overwriting is not None:
        return sum([a.nbytes for a in given[1:]])
    if forms.result is not None:
        return max(sum([a.nbytes for a in (given[1:] if forms.picks else given)]), sum([o.nbytes for o in outs]))
    return sum([o.nbytes for o in outs if o.flags.owndata])


# What a Signature has that is not differentiated, as most backward operations: nobody adds to it.
_NO_PLANS: dict[Any, Any] = {}
# What a plan costs is told for these elements, not for as many to a factor of four, where they are more.
_FEW_ELEMENTS = 1 << 14
# A plan of so few primitives is made as soon as what fills up operands.
_TRACED_SOON = 8
_NOTHING = bytes(16)
_ZERO = {kind: dtype.type(0) for kind, dtype in NUMBER_DTYPES.items()}


def stand_in(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of this shape and dtype that takes no memory: its elements are all the same one."""
    return np.ndarray(shape, dtype, _NOTHING, 0, (0,) * len(shape))


def expansion(bop: BoundOp, specs: tuple[ArgSpec, ...]) -> Expansion | None:
    """The operations that `bop` is made of, where it is made of others and was for inputs like `specs`."""
    expand = getattr(bop, "expand", None)
    return None if expand is None else expand(specs)


def signature(bop: BoundOp, specs: tuple[ArgSpec, ...]) -> Signature:
    """The one Signature of `bop` at `specs`. PyTorch's error where they do not fit."""
    found = bop.signatures.get(specs)
    if found is None:
        with timed(TRACING):
            found = bop.signatures[specs] = Signature(bop, specs)
        keeping.new_signature()
    return found


def common_device(specs: Sequence[ArgSpec], otherwise: device | None = None) -> device:
    """The device of all the avals. RuntimeError with PyTorch's text where they differ."""
    found = otherwise
    for spec in specs:
        if not isinstance(spec, type):
            if found is None:
                found = spec.device
            elif found is not spec.device:
                raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {found} and {spec.device}!")
    return found or CPU
