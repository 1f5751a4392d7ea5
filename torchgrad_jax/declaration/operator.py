"""How an operator is declared, and what a declaration is made into for the runtime and for autograd.

    @op("mul(Tensor self, Tensor|Scalar other)", promote="common",
        grads={"self": lambda grad, other: grad * other.conj(), "other": lambda grad, self: grad * self.conj()})
    def mul(x, y):
        return lax.mul(x, y)

The function is a pure JAX function of arrays (in the schema's order) and of the static arguments by keyword. A gradient
formula names what it needs: `grad`, inputs, `result`, static arguments; what it names is what backward saves. Formulas follow
PyTorch's convention for complex numbers. Without formulas the derivative is JAX's own.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any

import numpy as np

from torchgrad_jax.declaration import dtypes, numpy_forms, promotion
from torchgrad_jax.declaration.converting import convert, is_half
from torchgrad_jax.declaration.memory_order import Order
from torchgrad_jax.declaration.numpy_forms import Form
from torchgrad_jax.declaration.operands import PREPARE, converting, number_dtypes, on_list, on_list_of_one, same_dtypes
from torchgrad_jax.declaration.schema import NUMBERS, Parameter, Schema, plain_number, real_number, static, wrong_type
from torchgrad_jax.runtime import keeping, recorder
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.operation import ArgSpec, Signature
from torchgrad_jax.runtime.recording.step import NUMBER_DTYPES
from torchgrad_jax.runtime.value import Aval

# The gradient of an input that equals the output's gradient (summed over what was broadcast).
SAME: Any = object()


class Together:
    """The gradient of the input `name`, by a formula that gives those of several inputs in one dict. It is called once, with None for the gradient of
    a result that is not defined, where others are called with zeros."""

    __slots__ = ("formula", "name", "__code__")

    def __init__(self, formula: Callable[..., dict[str, Any]], name: str) -> None:
        self.formula, self.name = formula, name
        self.__code__ = formula.__code__


# The node of an operator that PyTorch has no derivative of: its edges are those of the inputs that need a gradient.
NOT_IMPLEMENTED = "torch::autograd::NotImplemented"

registry: dict[str, Operator] = {}
bound_ever: list[weakref.ref[Any]] = []
# How many layouts of one operator stay whether they are used or not, and so many kinds of signatures of one of these.
FEW = 64
# What may have sizes among its static arguments has so many signatures before they are of kinds.
SEVERAL = 4


@dataclass(eq=False, repr=False)
class Operator:
    """A declared operator. See `op` for the meaning of the options."""

    text: InitVar[str]
    function: Callable[..., Any]
    _: KW_ONLY
    promote: str | None = None
    grads: dict[str, Any] | None = None
    elementwise: bool = None  # type: ignore[assignment] - told by `promote`, see below
    keeps_order: bool | str = None  # type: ignore[assignment] - told by `promote`, see below
    order: Order | None = None
    opmath: bool = False
    linear: bool | tuple[str, ...] = False
    multilinear: bool = False
    differentiable: bool = True
    node: str | Callable[..., str] = ""
    constants: dict[str, str] = field(default_factory=dict)
    keeps: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    transpose: Callable[..., Any] | None = None
    trivial: Callable[[Any], bool] | None = None
    windows: bool = False
    skips: Callable[..., bool] | None = None
    again: tuple[str, ...] = ()
    real: str | None = None
    number_node: str | None = None
    edges: tuple[str, ...] | None = None
    attributes: str = ""
    unlike: str = "expected scalar type {a.title} but found {b.title}"
    gives_views: bool = False
    repeats: bool = False
    by_strides: bool = True
    into_expanded: tuple[str, str] | None = None
    names_c_types: bool = False
    undefined: Callable[..., bool] | None = None
    once: tuple[str, Callable[..., bool], str] | None = None
    view: Callable[..., Any] | None = None
    permutation: Callable[..., tuple[int, ...]] | None = None
    validate: Callable[..., None] | None = None
    check: Callable[..., Any] | None = None
    numpy: Form | None = None
    numpy_vjp: Form | None = None
    numpy_grads: Callable[[tuple[str, ...]], Forms] | None = None
    numpy_of: Callable[[Any, Any], Forms | None] | None = None
    results: tuple[str, ...] | None = None
    inplace: bool | str = False
    written: str | None = None
    method: bool = True
    toplevel: bool = True
    out: bool | str = True
    aliases: tuple[str, ...] = ()
    numpy_first: bool = False

    def __post_init__(self, text: str) -> None:
        self.schema = Schema(text)
        self.name = self.schema.name
        if self.elementwise is None:
            self.elementwise = self.promote in ("common", "float")
        if self.keeps_order is None:
            self.keeps_order = self.elementwise
        self.node = self.node or _camel(self.name) + "Backward0"
        self.bound: dict[Any, BoundOperator] = {}
        self.plans: dict[Any, Any] = {}
        self.__doc__ = self.function.__doc__

    def bind(self, layout: tuple[Any, ...], where: device | None = None) -> BoundOperator:
        """The BoundOperator whose parameters are filled by `layout`: for each, ARRAY, a count of arrays (for a sequence
        of tensors), or a `Static`."""
        found = self.bound.get((layout, where))
        if found is None:
            found = self.bound.setdefault((layout, where), BoundOperator(self, layout, where))
        return found

    def parse(self, args: tuple[Any, ...], kwargs: dict[str, Any], is_tensor: Callable[[Any], bool]) -> tuple[BoundOperator, list[Any]]:
        """The BoundOperator of a call, and the call's operands: tensors and run-time numbers in order."""
        layout: list[Any] = []
        operands: list[Any] = []
        schema = self.schema
        for position, (p, value) in enumerate(zip(schema.parameters, schema.arguments(args, kwargs), strict=True), 1):
            if p.is_tensor or p.is_number:
                layout.append(_operand(schema, p, value, position, operands, is_tensor))
            else:
                layout.append(Static(static(schema, p, value, position)))
        return self.bind(tuple(layout)), operands

    def has_edge(self, p: Parameter, specs: Sequence[ArgSpec]) -> bool:
        """Whether `next_functions` has an entry for a parameter: a gradient could go there, whatever needs one in this call."""
        if self.number_node is not None and isinstance(specs[0] if specs else None, type):
            return False
        if self.edges is not None:
            return p.name in self.edges
        if self.grads is not None:
            return p.is_tensor and p.name in self.grads
        if isinstance(self.linear, tuple):
            return p.name in self.linear
        whole = p.type == "Tensor" and bool(specs) and all(isinstance(s, Aval) and not dtypes.is_float(s.dtype) for s in specs)
        return p.is_tensor and not whole

    def __repr__(self) -> str:
        return f"<operator {self.schema.text}>"


class _Array:
    def __repr__(self) -> str:
        return "_"


ARRAY = _Array()


class Static(tuple[Any]):
    """A static argument in a layout. Its type is part of it: 1, 1.0 and True are different programs."""

    def __new__(cls, value: Any) -> Static:
        return super().__new__(cls, (type(value), value))

    @property
    def value(self) -> Any:
        """The argument itself."""
        return self[1]

    def __str__(self) -> str:
        return repr(self[1])


def _operand(schema: Schema, p: Parameter, value: Any, position: int, operands: list[Any], is_tensor: Callable[[Any], bool]) -> Any:
    if p.type == "Tensor[]":
        if not isinstance(value, (tuple, list)):
            raise wrong_type(schema, p, value, position)
        for i, v in enumerate(value):
            if not is_tensor(v):
                raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(v).__name__}")
        operands.extend(value)
        return len(value)
    if p.is_tensor and is_tensor(value):
        operands.append(value)
        return ARRAY
    if p.type != "Tensor":
        if type(value) in NUMBERS:
            operands.append(value)
            return ARRAY
        if isinstance(value, (*NUMBERS, np.number, np.bool_)):
            operands.append(plain_number(value))
            return ARRAY
        if p.is_number and is_tensor(value) and value.numel() == 1:
            operands.append(value.item())
            return ARRAY
    if value is None and (p.optional or p.default is None):
        return Static(None)
    raise wrong_type(schema, p, value, position)


class BoundOperator:
    """An operator with its static arguments: the runtime's BoundOp."""

    __slots__ = ("operator", "layout", "name", "signatures", "device", "statics", "names", "differentiable", "keeps_order", "order", "_kindred",
                 "_kindred_vjps", "_laid_out", "_places", "_named", "__weakref__")  # fmt: skip

    def __init__(self, operator: Operator, layout: tuple[Any, ...], where: device | None) -> None:
        self.operator, self.layout, self.name, self.device = operator, layout, operator.name, where
        self.signatures: dict[tuple[ArgSpec, ...], Signature] = {}
        self.statics: dict[str, Any] = {}
        self.names: list[str] = []
        self._named: dict[str, Any] | None = None
        self.differentiable, self.keeps_order, self.order = operator.differentiable, operator.keeps_order, operator.order
        self._kindred: dict[Any, Any] | None = None
        self._kindred_vjps: dict[Any, dict[Any, Any]] | None = None
        self._laid_out: keeping.Memo | None = None
        for p, item in zip(operator.schema.parameters, layout, strict=True):
            if type(item) is Static:
                self.statics[p.name] = real_number(item.value) if p.type == "number" and item.value is not None else item.value
            else:
                self.names.extend([p.name] * (1 if item is ARRAY else item))
        self._places = self._argument_places()
        bound_ever.append(weakref.ref(self))

    def told(self, sizes: dict[int, str]) -> str | None:
        """What it is, in words that are the same in every process; None where more than its layout tells that."""
        return None if self.device or dtypes.get_default_dtype() is not dtypes.float32 else f"{self.name}({','.join(map(str, self.layout))})"

    def require(self, specs: Sequence[ArgSpec]) -> None:
        """See the runtime's BoundOp."""
        operator = self.operator
        if operator.validate is not None:
            operator.validate(*self._arguments(specs), **self._keywords())
        if operator.promote == "same":
            same_dtypes(self, specs)

    def specialize(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        """See the runtime's BoundOp."""
        self.require(specs)
        prepare = PREPARE[self.operator.promote](self, specs)
        function, keywords, single = self._function(specs), self._keywords(), tuple(self.layout) == (ARRAY,) * len(self.layout)
        if single:
            return lambda *arrays: function(*prepare(arrays))
        return lambda *arrays: function(*self._arguments(prepare(arrays)), **keywords)

    def kin(self, specs: tuple[ArgSpec, ...]) -> tuple[dict[Any, Any] | None, tuple[ArgSpec, ...]]:
        """Where the kinds of signatures that differ in sizes alone are kept, and what their sizes are those of. Nowhere for the first ones of what
        may have sizes among its static arguments, as `view` has: most of these are met once or twice."""
        if self._is_seldom():
            return None, specs
        if self._kindred is None:
            self._kindred = {}
        return self._kindred, specs

    def kin_of_vjps(self, inputs: tuple[int, ...], which: Any) -> dict[Any, Any] | None:
        """The same of those of a derivative."""
        if self._is_seldom():
            return None
        if self._kindred_vjps is None:
            self._kindred_vjps = {}
        return self._kindred_vjps.setdefault((inputs, which), {})

    def _is_seldom(self) -> bool:
        few = len(self.signatures) < SEVERAL
        return few and (self.operator.view is not None or any([isinstance(value, tuple) for value in self.statics.values()]))

    @property
    def laid_out(self) -> keeping.Memo:
        """By its operands' shapes and strides those of its results, where these are not row-major."""
        if self._laid_out is None:
            self._laid_out = keeping.Memo()
        return self._laid_out

    def numpy_form(self, specs: Sequence[ArgSpec]) -> Forms | None:
        """Its functions on NumPy arrays, in the operands' order; None where it has none."""
        form = self.operator.numpy
        if self.operator.numpy_of is not None:
            return self.operator.numpy_of(self, specs)
        if form is None or self.operator.promote not in (None, "same"):
            return None
        targets = number_dtypes(self, specs)
        if not all([numpy_forms.convertible(NUMBER_DTYPES[specs[i]], t) for i, t in targets]):  # type: ignore[index] - a number's
            return None
        on_operands = self._on_operands()
        return numpy_forms.applied(form, (lambda function: converting(on_operands(function), targets)) if targets else on_operands)

    def _on_operands(self) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """What makes of a function of its array arguments, and by keyword the static ones, one of the operands alone."""
        keywords, counts = self._keywords(), [item for item in self.layout if type(item) is int]
        if counts == [len(self.names)]:
            return lambda function: on_list(function, keywords)
        if counts == [1] and len(keywords) == len(self.statics) and self.layout[1] == 1 and len(self.names) == 2:
            return lambda function: on_list_of_one(function, keywords)
        if counts or len(keywords) < len(self.statics):  # several lists, or a tensor that is absent
            return lambda function: lambda *arrays: function(*self._arguments(arrays), **keywords)
        return (lambda function: functools.partial(function, **keywords)) if keywords else (lambda function: function)

    def _function(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        function = self.operator.function
        if not self.operator.opmath or not is_half(target := self.common_dtype(specs)):
            return function
        return lambda *arrays, **keywords: convert(function(*arrays, **keywords), target)

    def check(self, specs: Sequence[ArgSpec]) -> Callable[..., Exception] | None:
        """See the runtime's BoundOp."""
        found = self.operator.check
        code = getattr(found, "__code__", None)
        if found is None or code is None or not code.co_kwonlyargcount:
            return found
        statics = self._keywords()
        return functools.partial(found, **{name: statics[name] for name in code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]})

    def _arguments(self, arrays: Sequence[Any]) -> list[Any]:
        """The array arguments in the schema's order: sequences as lists, an absent tensor as None."""
        return [None if p is None else arrays[p] if type(p) is int else list(arrays[p]) for p in self._places]

    def _argument_places(self) -> list[int | slice | None]:
        """Where among the operands each array argument is."""
        found: list[int | slice | None] = []
        at = 0
        for p, item in zip(self.operator.schema.parameters, self.layout, strict=True):
            if item is ARRAY:
                found.append(at)
                at += 1
            elif type(item) is int:
                found.append(slice(at, at + item))
                at += item
            elif p.is_tensor or p.is_number:
                found.append(None)
        return found

    def _keywords(self) -> dict[str, Any]:
        """The static arguments that are no absent tensors or numbers. Not to be changed."""
        found = self._named
        if found is None:
            parameters = self.operator.schema.by_name
            found = self._named = {n: v for n, v in self.statics.items() if not (parameters[n].is_tensor or parameters[n].is_number)}
        return found

    @property
    def plans(self) -> dict[Any, Any] | None:
        """Where it is kept how such operators are differentiated, whatever their static arguments, of those that are linear in one tensor. None for
        others."""
        operator = self.operator
        alike = operator.linear is True and operator.grads is None and self.names == ["self"]
        return operator.plans if alike and isinstance(operator.node, str) and not operator.keeps and not operator.shows else None

    @property
    def one_form(self) -> bool:
        """Whether `numpy_form` gives the same for operands of all sizes."""
        return self.operator.numpy_of is None

    @property
    def pointwise(self) -> bool:
        """Whether elements are made of the operands' elements at the same place (and then perhaps reduced)."""
        return self.operator.promote in ("common", "float")

    @property
    def elementwise(self) -> bool:
        """The same, of operands that broadcast, of which the operator itself need not convert any."""
        return self.operator.elementwise

    @property
    def reshapes(self) -> bool:
        """Whether its result is all elements of its operand, in their order: its gradient's form says so."""
        return self.operator.numpy_vjp is numpy_forms.reshape_vjp

    def permutation(self, specs: Sequence[Any]) -> tuple[int, ...] | None:
        """Which dimension of its operand each of the result is, of an operator that permutes them."""
        permutation = self.operator.permutation
        return None if permutation is None else tuple([d % specs[0].ndim for d in permutation(specs[0].ndim, **self._keywords())])

    def common_dtype(self, specs: Sequence[ArgSpec]) -> np.dtype:
        """The dtype that operands like `specs` are brought to, if the operator converts them."""
        found = promotion.result_type([s for s, role in zip(specs, self.number_roles(), strict=True) if role or not isinstance(s, type)])
        return promotion.to_float(found) if self.operator.promote == "float" else found

    def number_roles(self) -> list[bool]:
        """For each operand, whether a number there takes part in type promotion."""
        return [self.operator.schema.by_name[n].type == "Tensor|Scalar" for n in self.names]

    def kept(self, inputs: Sequence[int] | None = None) -> list[str]:
        """What `keeps` names: all of it, or what is kept where these operands need a gradient."""
        entries = [entry.partition(" if ") for entry in self.operator.keeps]
        needed = set(self.names) if inputs is None else {self.names[i] for i in inputs}
        return [name for name, _, other in entries if not other or other in needed]

    def is_index(self) -> list[bool]:
        """For each operand, whether it is a run-time int that keeps its type."""
        return [self.operator.schema.by_name[n].type == "Index" for n in self.names]

    def given(self, name: str) -> Any:
        """A static argument as it was given: a number in its own type."""
        return next(item.value for p, item in zip(self.operator.schema.parameters, self.layout, strict=True) if p.name == name)

    def formulas(self) -> list[Any] | None:
        """The gradient formula of each operand, None for JAX's derivative of all of them."""
        grads = self.operator.grads
        return None if grads is None else [grads.get(n) for n in self.names]

    def undefined(self) -> bool:
        """Whether backward gives no gradient."""
        found = self.operator.undefined
        return found is not None and found(**self._keywords())

    def node(self, specs: Sequence[ArgSpec]) -> str:
        """The name of its node."""
        found = self.operator.node
        if self.operator.number_node is not None and any(isinstance(s, type) and role for s, role in zip(specs, self.number_roles(), strict=True)):
            return self.operator.number_node
        return found if isinstance(found, str) else found(**self._keywords())

    def edges(self, specs: Sequence[ArgSpec]) -> list[int | None]:
        """The entries of its node's `next_functions`: the operand that each belongs to, None for a tensor that is not given."""
        found: dict[str, list[int | None]] = {}
        operator, at = self.operator, 0
        for p, item in zip(operator.schema.parameters, self.layout, strict=True):
            count = 1 if item is ARRAY else item if type(item) is int else 0
            if operator.has_edge(p, specs[at : at + count]):
                found[p.name] = list(range(at, at + count)) or [None]
            at += count
        return [i for name in operator.edges or found for i in found.get(name, ())]

    def __repr__(self) -> str:
        return f"<{self.name}{self.statics or ''}>"


def all_bound() -> list[Any]:
    """All that have signatures: operators with their static arguments, and derivatives."""
    known = list(bound_ever)
    found = [one for reference in known if (one := reference()) is not None]
    bound_ever[: len(known)] = [weakref.ref(one) for one in found]  # another thread may have added one behind
    return found


def forget_signatures() -> None:
    """Forget what was derived from the default dtype, in every operator and every program."""
    recorder.recorder().flush("default dtype")
    for one in all_bound():
        if hasattr(one, "kin") and (kinds := one.kin(())[0]) is not None:
            kinds.clear()
        one.signatures.clear()
    for root in list(recorder.roots.values()):
        root.forget()
    keeping.steps = keeping.signatures = 0
    recorder.recorder().begin()


def _forget(used: set[Signature]) -> int:
    """Forget the signatures that are not `used`, and what static arguments were bound to that have none left. Returns how many there are then."""
    left = 0
    for one in all_bound():
        signatures = one.signatures
        for specs in [specs for specs in list(signatures) if signatures[specs] not in used]:
            signatures.pop(specs).plans.clear()  # they refer to each other
        if hasattr(one, "kin") and len(kinds := one.kin(())[0] or {}) > FEW:
            kinds.clear()
        left += len(signatures)
    for operator in registry.values():
        if len(operator.bound) > FEW:
            for key in [key for key in list(operator.bound) if not operator.bound[key].signatures]:
                del operator.bound[key]
    return left


keeping.after_signatures.append(_forget)
dtypes.after_default_changed.append(forget_signatures)


def op(schema: str, **options: Any) -> Callable[[Callable[..., Any]], Operator]:
    """Declare an operator. TypeError for an option that there is not.

    promote: "common" brings all operands to one dtype and shape by PyTorch's rules; "float" also makes integers floating
        point; "same" demands equal dtypes of the tensors; None leaves them alone.
    elementwise: each element of the result is made of the operands' elements at that place, once they are broadcast; so it is wherever `promote` is
        "common" or "float", if the function does not go on to reduce.
    keeps_order: the result lies in memory as the operands do; so it does of element-wise operators. "exactly": see `result_layout`.
    order: the rules by which results lie in memory that do not lie as the operands do. See `memory_order`.
    opmath: half precision is computed in float32, numbers and 0-dim tensors with all their digits, and the result rounded.
    grads: gradient formula by input name; an input without one gets no gradient. `SAME` where it is the output's gradient, `Together` where one
        formula gives several.
    linear: the function is linear in its tensors, so backward saves nothing of them and JAX transposes it; or the names of those
        it is linear in, the others being saved.
    transpose: of a linear function of one tensor, its transpose, where JAX's own would take long: function of (grad, shape of the tensor, **statics).
    keeps: operands and results, by name, that PyTorch's node saves though the gradient is made without them or depends on them by comparisons
        alone: writing to them before backward is an error, and gradients of gradients do not lead to them. "x if y": only where y needs one.
    shows: as `keeps`, but where one of the wanted gradients is made of them it depends on them.
    copies: operands, by name, of which PyTorch's node saves a copy: they may be written to before backward.
    parts: operands, by name, that PyTorch has within another one: hooks of saved tensors are not asked about them.
    windows: each element of the gradient is found by comparing several elements of the input: compiled programs keep it in memory, as each
        operation that reads it would look for it again.
    trivial: of an operand, whether it is so small that its gradient is the result's: then nothing saved matters to it.
    skips: of an operand, whether the function leaves it out: its gradient is zeros that no graph leads to.
    again: what was saved, by name, that the node of the gradient saves again though the gradient's own derivative may do without.
    multilinear: the function is linear in each of its tensors, or a sum of such: its forward derivative is made of itself.
    constants: tensors that may not need a gradient, each with the name that PyTorch's error gives the function.
    real: its name in PyTorch's refusal, where complex results have no derivative.
    differentiable: False for results that carry no gradient (comparisons, indices).
    node: name of the grad_fn, where it is not the operator's name in CamelCase and `Backward0`; or a function of the static arguments that
        gives it. number_node: its name where a number stands for a tensor, if that is another: such a number has no edge.
    edges: the parameters that `next_functions` has entries for, in its order, where they are not the tensors that may get a gradient.
    attributes: what its node shows as `_saved_X` beyond what the formulas name: names of arguments, of shapes (`self_sym_sizes`,
        `self_sym_numel`), or ``name=constant``. See `shown`.
    unlike: of `promote="same"`, the RuntimeError's text where dtypes `a` and `b` differ.
    gives_views: whether each of its several results is made a view of its tensor.
    repeats: of a view, whether several of its elements may be one place in memory. by_strides: whether strides lead from the base to it.
    into_expanded: of what PyTorch lets be written to a tensor whose elements are one place in memory, with a warning: what that calls it,
        and the form of indexing that does it too.
    names_c_types: whether PyTorch's refusal to write its result into a tensor of another dtype calls that by C's name.
    undefined: a function of the static arguments that says where backward gives no gradient at all, not even zeros.
    once: where a gradient cannot be differentiated again: the input whose it is, a function of what the formulas name that says whether
        the content makes it so, and the RuntimeError's text.
    permutation: of an operator that only permutes dimensions: which of its tensor's each of the result is; function of (ndim, **statics).
    view: the inverse that writes, for a result that shares memory with `self`: function of (base, new, **statics).
    validate: function of (avals..., **statics) that raises PyTorch's error for what does not fit.
    check: makes the exception from the offending number, and from static arguments that are its keywords; then the function's last output is an
        int64 pair (bad, number).
    numpy: the function once more, on NumPy arrays, for what NumPy does at once (views, filled arrays): the shape of the result is then found, and a
        new program interpreted, without tracing. See `numpy_forms`.
    numpy_vjp: the gradient of the first tensor likewise: function of (grad, aval of the tensor, what its formula saves..., **statics). Of several
        results it is given the list of their gradients, None for one that is not defined; where the first parameter is a list of tensors it is
        given their avals and returns the gradients of all.
    numpy_grads: the form of all gradients of the operands of these names: function of (grad, their avals, what their formulas save..., **statics).
    numpy_of: gives the form for a BoundOperator and what its operands are like, where it is made for these (`numpy_losses.py`).
    results: field names of a named tuple result.
    inplace: also make the twin that writes into `self`; the name of another operator where the twin is differentiated as that one.
    written: of an operator that carries no gradient: the operator that its twin is to autograd nevertheless, of the operands and the result.
    method, toplevel, out: whether there is `Tensor.name`, `torch.name`, an `out=` argument ("same": of just the result's dtype; "dtype": it
        tells the dtype to compute in). aliases: further names.
    """

    def declare(function: Callable[..., Any]) -> Operator:
        made = Operator(schema, function, **options)
        assert made.name not in registry, made.name
        registry[made.name] = made
        return made

    return declare


def _camel(name: str) -> str:
    return "".join(w[:1].upper() + w[1:] for w in name.split("_"))
