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
from typing import Any

import numpy as np

from torchgrad_jax.ops import dtypes, numpy_forms, promotion
from torchgrad_jax.ops.memory_order import Order
from torchgrad_jax.ops.numpy_forms import Form
from torchgrad_jax.ops.schema import Parameter, Schema, static, wrong_type
from torchgrad_jax.runtime import keeping
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.operation import NUMBER_DTYPES, ArgSpec, Signature
from torchgrad_jax.runtime.value import Aval, aval_of

NUMBERS = (float, int, bool, complex)


def plain_number(x: Any) -> Any:
    """A number whose class is not Python's own (NumPy's scalars, enums) as one whose class is; anything else as it is."""
    if isinstance(x, np.generic):
        return x.item()
    if type(x) in NUMBERS:
        return x
    kind: Any = next((k for k in NUMBERS if isinstance(x, k)), None)
    return x if kind is None else kind(x)


# The gradient of an input that equals the output's gradient (summed over what was broadcast).
SAME: Any = object()


def zeros_like_grad(grad: Any) -> Any:
    """The gradient of an input that the result does not depend on: under `create_graph` no graph leads to it."""
    from jax import numpy as jnp

    return jnp.zeros_like(grad)


# The node of an operator that PyTorch has no derivative of: its edges are those of the inputs that need a gradient.
NOT_IMPLEMENTED = "torch::autograd::NotImplemented"

registry: dict[str, Operator] = {}
_bound: list[weakref.ref[Any]] = []
# How many layouts of one operator stay whether they are used or not.
FEW = 64


class Operator:
    """A declared operator. See `op` for the meaning of the fields."""

    def __init__(self, schema: str, function: Callable[..., Any], **options: Any) -> None:
        self.schema = Schema(schema)
        self.name = self.schema.name
        self.function = function
        self.promote: str | None = options.get("promote")
        self.grads: dict[str, Any] | None = options.get("grads")
        self.elementwise: bool = options.get("elementwise", self.promote in ("common", "float"))
        self.keeps_order: bool | str = options.get("keeps_order", self.elementwise)
        self.order: Order | None = options.get("order")
        self.opmath: bool = options.get("opmath", False)
        self.linear: bool | tuple[str, ...] = options.get("linear", False)
        self.multilinear: bool = options.get("multilinear", False)
        self.differentiable: bool = options.get("differentiable", True)
        self.node: str | Callable[..., str] = options.get("node") or _camel(self.name) + "Backward0"
        self.constants: dict[str, str] = options.get("constants", {})
        self.keeps: tuple[str, ...] = options.get("keeps", ())
        self.shows: tuple[str, ...] = options.get("shows", ())
        self.transpose: Callable[..., Any] | None = options.get("transpose")
        self.trivial: Callable[[Any], bool] | None = options.get("trivial")
        self.skips: Callable[..., bool] | None = options.get("skips")
        self.again: tuple[str, ...] = options.get("again", ())
        self.real: str | None = options.get("real")
        self.number_node: str | None = options.get("number_node")
        self.edges: tuple[str, ...] | None = options.get("edges")
        self.undefined: Callable[..., bool] | None = options.get("undefined")
        self.once: tuple[str, Callable[..., bool], str] | None = options.get("once")
        self.view: Callable[..., Any] | None = options.get("view")
        self.last: Callable[..., int] | None = options.get("last")
        self.validate: Callable[..., None] | None = options.get("validate")
        self.check: Callable[..., Any] | None = options.get("check")
        self.numpy: Form | None = options.get("numpy")
        self.numpy_vjp: Form | None = options.get("numpy_vjp")
        self.results: tuple[str, ...] | None = options.get("results")
        self.inplace: bool | str = options.get("inplace", False)
        self.written: str | None = options.get("written")
        self.method: bool = options.get("method", True)
        self.toplevel: bool = options.get("toplevel", True)
        self.out: bool | str = options.get("out", True)
        self.aliases: tuple[str, ...] = options.get("aliases", ())
        self.numpy_first: bool = options.get("numpy_first", False)
        self.bound: dict[Any, BoundOperator] = {}
        self.__doc__ = function.__doc__

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
        return "ARRAY"


ARRAY = _Array()


class Static(tuple[Any]):
    """A static argument in a layout. Its type is part of it: 1, 1.0 and True are different programs."""

    def __new__(cls, value: Any) -> Static:
        return super().__new__(cls, (type(value), value))

    @property
    def value(self) -> Any:
        """The argument itself."""
        return self[1]


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

    __slots__ = ("operator", "layout", "name", "signatures", "device", "statics", "names", "differentiable", "keeps_order", "order", "kindred",
                 "kindred_vjps", "__weakref__")  # fmt: skip

    def __init__(self, operator: Operator, layout: tuple[Any, ...], where: device | None) -> None:
        self.operator, self.layout, self.name, self.device = operator, layout, operator.name, where
        self.signatures: dict[tuple[ArgSpec, ...], Signature] = {}
        self.statics: dict[str, Any] = {}
        self.names: list[str] = []
        self.differentiable, self.keeps_order, self.order = operator.differentiable, operator.keeps_order, operator.order
        self.kindred: dict[Any, Any] = {}
        self.kindred_vjps: dict[Any, dict[Any, Any]] = {}
        for p, item in zip(operator.schema.parameters, layout, strict=True):
            if type(item) is Static:
                self.statics[p.name] = item.value
            else:
                self.names.extend([p.name] * (1 if item is ARRAY else item))
        _bound.append(weakref.ref(self))

    def specialize(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        """See the runtime's BoundOp."""
        operator = self.operator
        if operator.validate is not None:
            operator.validate(*self._arguments(specs), **self._keywords())
        prepare = _PREPARE[operator.promote](self, specs)
        function, keywords, single = self._function(specs), self._keywords(), tuple(self.layout) == (ARRAY,) * len(self.layout)
        if single:
            return lambda *arrays: function(*prepare(arrays))
        return lambda *arrays: function(*self._arguments(prepare(arrays)), **keywords)

    def kin(self, specs: tuple[ArgSpec, ...]) -> tuple[dict[Any, Any], tuple[ArgSpec, ...]]:
        """Where signatures that differ in sizes alone are kept, and what their sizes are those of."""
        return self.kindred, specs

    def numpy_form(self, specs: Sequence[ArgSpec]) -> Forms | None:
        """Its functions on NumPy arrays, in the operands' order; None where it has none."""
        form = self.operator.numpy
        if form is None or self.operator.promote is not None:
            return None
        targets = _number_dtypes(self, specs)
        if not all([numpy_forms.convertible(NUMBER_DTYPES[specs[i]], t) for i, t in targets]):  # type: ignore[index] - a number's
            return None
        keywords = self._keywords()
        return numpy_forms.applied(form, lambda function: self._on_operands(function, keywords, targets))

    def _on_operands(self, function: Callable[..., Any], keywords: dict[str, Any], targets: list[tuple[int, np.dtype]]) -> Callable[..., Any]:
        counts = [item for item in self.layout if type(item) is int]

        def arranged(*arrays: Any) -> Any:
            return function(*self._arguments(arrays), **keywords)

        if counts == [len(self.names)]:
            on_operands = _on_list(function, keywords)
        elif counts or len(keywords) < len(self.statics):  # several lists, or a tensor that is absent
            on_operands = arranged
        else:
            on_operands = functools.partial(function, **keywords) if keywords else function
        return _converting(on_operands, targets) if targets else on_operands

    def _function(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        function = self.operator.function
        if not self.operator.opmath or not is_half(target := self.common_dtype(specs)):
            return function
        return lambda *arrays, **keywords: convert(function(*arrays, **keywords), target)

    def check(self, specs: Sequence[ArgSpec]) -> Callable[..., Exception] | None:
        """See the runtime's BoundOp."""
        return self.operator.check

    def _arguments(self, arrays: Sequence[Any]) -> list[Any]:
        """The array arguments in the schema's order: sequences as lists, an absent tensor as None."""
        found: list[Any] = []
        at = 0
        for p, item in zip(self.operator.schema.parameters, self.layout, strict=True):
            if item is ARRAY:
                found.append(arrays[at])
                at += 1
            elif type(item) is int:
                found.append(list(arrays[at : at + item]))
                at += item
            elif p.is_tensor or p.is_number:
                found.append(None)
        return found

    def _keywords(self) -> dict[str, Any]:
        parameters = self.operator.schema.by_name
        return {n: v for n, v in self.statics.items() if not (parameters[n].is_tensor or parameters[n].is_number)}

    @property
    def pointwise(self) -> bool:
        """Whether elements are made of the operands' elements at the same place (and then perhaps reduced)."""
        return self.operator.promote in ("common", "float")

    @property
    def elementwise(self) -> bool:
        """The same, of operands that broadcast, of which the operator itself need not convert any."""
        return self.operator.elementwise

    def new_last(self, specs: Sequence[Any]) -> int | None:
        """Which dimension of its operand is the last of the result, of an operator that permutes them."""
        return None if self.operator.last is None or specs[0].ndim < 2 else self.operator.last(specs[0].ndim, **self._keywords())

    def common_dtype(self, specs: Sequence[ArgSpec]) -> np.dtype:
        """The dtype that operands like `specs` are brought to, if the operator converts them."""
        found = promotion.result_type([s for s, role in zip(specs, self.number_roles(), strict=True) if role or not isinstance(s, type)])
        return promotion.to_float(found) if self.operator.promote == "float" else found

    def number_roles(self) -> list[bool]:
        """For each operand, whether a number there takes part in type promotion."""
        return [self.operator.schema.by_name[n].type == "Tensor|Scalar" for n in self.names]

    def is_index(self) -> list[bool]:
        """For each operand, whether it is a run-time int that keeps its type."""
        return [self.operator.schema.by_name[n].type == "Index" for n in self.names]

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
    known = list(_bound)
    found = [one for reference in known if (one := reference()) is not None]
    _bound[: len(known)] = [weakref.ref(one) for one in found]  # another thread may have added one behind
    return found


def forget_signatures() -> None:
    """Forget what was derived from the default dtype, in every operator and every program."""
    from torchgrad_jax.runtime import recorder

    recorder.recorder().flush("default dtype")
    for one in all_bound():
        one.signatures.clear()
        one.kin(())[0].clear()
    for root in list(recorder.roots.values()):
        root.next = {}
    keeping.steps = keeping.signatures = 0
    recorder.recorder().begin()


def _forget(used: set[Signature]) -> int:
    """Forget the signatures that are not `used`, and what static arguments were bound to that have none left. Returns how many there are then."""
    left = 0
    for one in all_bound():
        signatures = one.signatures
        for specs in [specs for specs in list(signatures) if signatures[specs] not in used]:
            signatures.pop(specs).plans.clear()  # they refer to each other
        left += len(signatures)
    for operator in registry.values():
        if len(operator.bound) > FEW:
            for key in [key for key in list(operator.bound) if not operator.bound[key].signatures]:
                del operator.bound[key]
    return left


keeping.after_signatures.append(_forget)


def op(schema: str, **options: Any) -> Callable[[Callable[..., Any]], Operator]:
    """Declare an operator.

    promote: "common" brings all operands to one dtype and shape by PyTorch's rules; "float" also makes integers floating
        point; "same" demands equal dtypes of the tensors; None leaves them alone.
    elementwise: each element of the result is made of the operands' elements at that place, once they are broadcast; so it is wherever `promote` is
        "common" or "float", if the function does not go on to reduce.
    keeps_order: the result lies in memory as the operands do; so it does of element-wise operators. "exactly": see `result_layout`.
    order: the rules by which results lie in memory that do not lie as the operands do. See `memory_order`.
    opmath: half precision is computed in float32, numbers and 0-dim tensors with all their digits, and the result rounded.
    grads: gradient formula by input name; an input without one gets no gradient. `SAME` where it is the output's gradient.
    linear: the function is linear in its tensors, so backward saves nothing of them and JAX transposes it; or the names of those
        it is linear in, the others being saved.
    transpose: of a linear function of one tensor, its transpose, where JAX's own would take long: function of (grad, shape of the tensor, **statics).
    keeps: operands and results, by name, that PyTorch's node saves though the gradient is made without them or depends on them by comparisons
        alone: writing to them before backward is an error, and gradients of gradients do not lead to them.
    shows: as `keeps`, but where one of the wanted gradients is made of them it depends on them.
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
    undefined: a function of the static arguments that says where backward gives no gradient at all, not even zeros.
    once: where a gradient cannot be differentiated again: the input whose it is, a function of what the formulas name that says whether
        the content makes it so, and the RuntimeError's text.
    last: of an operator that only permutes dimensions: which dimension of its tensor is the last of the result; function of (ndim, **statics).
    view: the inverse that writes, for a result that shares memory with `self`: function of (base, new, **statics).
    validate: function of (avals..., **statics) that raises PyTorch's error for what does not fit.
    check: makes the exception from the offending number; then the function's last output is an int64 pair (bad, number).
    numpy: the function once more, on NumPy arrays, for what NumPy does at once (views, filled arrays): the shape of the result is then found, and a
        new program interpreted, without tracing. See `numpy_forms`.
    numpy_vjp: the gradient of the first tensor likewise, if the function is linear or the formula saves nothing: function of (grad, aval of the
        tensor, numbers..., **statics). Of several results it is given the list of their gradients, None for one that is not defined; where the first
        parameter is a list of tensors it is given their avals and returns the gradients of all.
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


# ---------------------------------------------------------------------- bringing operands together


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape all of `shapes` expand to. RuntimeError with PyTorch's text where there is none."""
    found: tuple[int, ...] = ()
    for shape in shapes:
        out = list(shape if len(shape) > len(found) else found)
        for i in range(1, min(len(shape), len(found)) + 1):
            a, b = found[-i], shape[-i]
            if a != b and a != 1 and b != 1:
                raise RuntimeError(f"The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {len(out) - i}")
            out[-i] = b if a == 1 else a
        found = tuple(out)
    return found


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """`x` expanded to `shape` by NumPy's rule."""
    from jax import lax

    if x.shape == shape:
        return x
    offset = len(shape) - x.ndim
    return lax.broadcast_in_dim(x, shape, tuple(range(offset, len(shape)))) if _only_new_dims(x.shape, shape) else _expand(x, shape)


def _only_new_dims(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    return old == new[len(new) - len(old) :]


def _expand(x: Any, shape: tuple[int, ...]) -> Any:
    from jax import lax

    offset = len(shape) - x.ndim
    kept = [i for i, n in enumerate(x.shape) if n == shape[offset + i]]
    squeezed = lax.reshape(x, tuple(x.shape[i] for i in kept))
    return lax.broadcast_in_dim(squeezed, shape, tuple(offset + i for i in kept))


def _common(bound: BoundOperator, specs: Sequence[ArgSpec]) -> Callable[..., list[Any]]:
    target = bound.common_dtype(specs)
    shape = broadcast_shapes(*(s.shape for s in specs if isinstance(s, Aval)))
    # A number stays 0-dim where the function takes it beside the tensors, and is expanded where it stands for one.
    expand = [not isinstance(s, type) or role for s, role in zip(specs, bound.number_roles(), strict=True)]
    opmath = bound.operator.opmath and is_half(target)

    def cast(x: Any) -> Any:
        if opmath:
            return convert(x if x.ndim == 0 and dtypes.category(np.dtype(x.dtype)) == dtypes.FLOAT else convert(x, target), np.dtype(np.float32))
        return convert(x, target)

    def prepare(arrays: Sequence[Any]) -> list[Any]:
        return [broadcast_to(cast(a), shape) if e else cast(a) for a, e in zip(arrays, expand, strict=True)]

    return prepare


def is_half(dtype: np.dtype) -> bool:
    """Whether this is float16 or bfloat16."""
    return dtype.itemsize == 2 and dtype.kind not in "iu"


def wide(x: Any) -> Any:
    """`x` in the precision PyTorch computes in: half precision in float32."""
    return convert(x, np.dtype(np.float32)) if is_half(x.dtype) else x


def rounded(x: Any, like: Any) -> Any:
    """`x` with no more digits than `like` has, in the precision PyTorch computes in."""
    return wide(convert(x, like.dtype))


def convert(x: Any, target: np.dtype) -> Any:
    """`x` as `target`, as PyTorch converts: complex to real drops the imaginary part, to bool is `!= 0`."""
    from jax import lax

    if x.dtype == target:
        return x
    if target == np.bool_:
        return x != 0
    if x.dtype.kind == "c" and target.kind != "c":
        x = lax.real(x)
    if target.kind in "iu" and dtypes.category(np.dtype(x.dtype)) == dtypes.FLOAT and target != np.uint64:
        return _to_integer(x, target)
    return lax.convert_element_type(x, target)


def _to_integer(x: Any, target: np.dtype) -> Any:
    """Floating point to integer as PyTorch's processors do it: what does not fit, and nan, is the smallest number; narrow types wrap around."""
    from jax import lax
    from jax import numpy as jnp

    whole = target if target in (np.int32, np.int64) else np.dtype(np.int64)
    x = x if x.dtype.itemsize >= 4 else lax.convert_element_type(x, np.float32)
    lowest = float(np.iinfo(whole).min)
    x = jnp.where((x >= lowest) & (x < -lowest), x, jnp.asarray(lowest, x.dtype))
    return lax.convert_element_type(lax.convert_element_type(x, whole), target)


def _same(bound: BoundOperator, specs: Sequence[ArgSpec]) -> Callable[..., list[Any]]:
    tensors = [s for s in specs if isinstance(s, Aval)]
    for s in tensors[1:]:
        if s.dtype != tensors[0].dtype:
            a, b = dtypes.of(tensors[0].dtype), dtypes.of(s.dtype)
            if bound.name in _MATRIX_NAMES:
                raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a.word} != {b.word}")
            raise RuntimeError(f"expected scalar type {a.title} but found {b.title}")
    target = tensors[0].dtype
    return lambda arrays: [convert(a, target) if isinstance(s, type) else a for a, s in zip(arrays, specs, strict=True)]


_MATRIX_NAMES = frozenset(("mm", "matmul", "addmm", "linear", "_euclidean_dist"))


def _as_is(bound: BoundOperator, specs: Sequence[ArgSpec]) -> Callable[..., Sequence[Any]]:
    """Tensors untouched; a number becomes what `self` is, or its own kind where `self` is of a lower category."""
    targets = _number_dtypes(bound, specs)
    return (lambda arrays: _converted(arrays, targets, convert)) if targets else lambda arrays: arrays


def _number_dtypes(bound: BoundOperator, specs: Sequence[ArgSpec]) -> list[tuple[int, np.dtype]]:
    """Which operands `_as_is` converts, and to what."""
    first = next((s for s in specs if isinstance(s, Aval)), None)
    numbers = [] if first is None else [i for i, s in enumerate(specs) if isinstance(s, type)]
    if first is None or not numbers:
        return []
    index, main = bound.is_index(), _zero_dims(first.dtype)
    return [(i, promotion.result_type([main, specs[i]])) for i in numbers if not index[i]]


def _converted(arrays: Sequence[Any], targets: Sequence[tuple[int, np.dtype]], convert: Callable[[Any, np.dtype], Any]) -> list[Any]:
    given = list(arrays)
    for i, target in targets:
        given[i] = convert(given[i], target)
    return given


def _on_list(function: Callable[..., Any], keywords: dict[str, Any]) -> Callable[..., Any]:
    return lambda *arrays: function(list(arrays), **keywords)


def _converting(function: Callable[..., Any], targets: Sequence[tuple[int, np.dtype]]) -> Callable[..., Any]:
    """A function of NumPy arrays that converts some of its operands first."""

    def converting(*arrays: Any) -> Any:
        return function(*_converted(arrays, targets, numpy_forms.converted))

    return converting


def _zero_dims(array_type: np.dtype) -> Aval:
    return aval_of((1,), array_type)


_PREPARE: dict[str | None, Callable[..., Callable[..., Any]]] = {
    None: _as_is,
    "common": _common,
    "float": _common,
    "same": _same,
}
