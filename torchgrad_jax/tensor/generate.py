"""From the declared operators: `torch.X`, `Tensor.X`, the in-place `X_`, `out=`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.ops.declare import ARRAY, NUMBERS, Operator
from torchgrad_jax.runtime.checks import warn_user
from torchgrad_jax.runtime.recorder import DeviceChange, TracedInput, per_thread, record, record2
from torchgrad_jax.tensor.dispatch import LEVEL, apply, binary, unary
from torchgrad_jax.tensor.inplace import apply_inplace, fit, overwrite
from torchgrad_jax.tensor.overrides import Public, announce, guard
from torchgrad_jax.tensor.parameter import Parameter
from torchgrad_jax.tensor.return_types import ReturnType, return_type
from torchgrad_jax.tensor.tensor import Tensor

_OF_TWO = (["Tensor", "Tensor|Scalar"], ["Tensor", "Tensor"], ["Tensor|Scalar", "Tensor|Scalar"])


def is_tensor(x: Any) -> bool:
    """Whether `x` is a Tensor."""
    return isinstance(x, Tensor)


def function_of(operator: Operator, name: str | None = None) -> Callable[..., Any]:
    """The function of a declared operator; with a dotted name it is a public one, which looks for overrides."""
    public = None if name is None else Public(name)
    general = _general(operator, public)
    parameters = operator.schema.parameters
    made = general
    if operator.results is None and operator.order is None and all(p.default is not None for p in parameters):
        kinds = [p.type for p in parameters]
        if kinds == ["Tensor"]:
            made = unary(operator.bind((ARRAY,)), operator.name, general)
        elif kinds in _OF_TWO:
            made = binary(operator.bind((ARRAY, ARRAY)), operator.name, general, kinds[1] != "Tensor")
    made.__doc__ = _docstring(operator, operator.schema.text)
    if public is not None:
        announce(made, public)
    return made


def _general(operator: Operator, public: Public | None) -> Callable[..., Any]:
    named = _result_type(operator)
    kinds = [p.type for p in operator.schema.parameters]
    if named is not None or operator.order is not None:
        return _of_any(operator, named, public)
    if kinds[:1] == ["Tensor"] and not any(p.is_tensor or p.is_number for p in operator.schema.parameters[1:]):
        return _of_one_tensor(operator, public)
    return _of_any(operator, named, public)


def _of_one_tensor(operator: Operator, public: Public | None) -> Callable[..., Any]:
    """An operator of one tensor and static arguments: each combination of arguments that was used once has a function of its own, since
    working out what arguments mean costs more than the operation."""
    any_arguments = _of_any(operator, None, public)
    known: dict[Any, Callable[..., Any]] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        rest = args[1:]
        try:
            # 1, 1.0 and True are equal, but not the same argument.
            key = (rest, *map(type, rest), *kwargs.items(), *map(type, kwargs.values())) if kwargs else (rest, *map(type, rest))
            found = known.get(key)
        except TypeError:  # a list, or something else that has no hash
            return any_arguments(*args, **kwargs)
        if found is not None and args:
            return found(args[0])
        made = any_arguments(*args, **kwargs)
        if args and type(args[0]) is Tensor and "out" not in kwargs and not any(isinstance(a, Tensor) for a in (*rest, *kwargs.values())):
            with contextlib.suppress(TypeError):  # names that only the guard understands
                bound, _ = operator.parse(args, kwargs, is_tensor)
                known[key] = unary(bound, operator.name, lambda t, rest=rest, kwargs=kwargs: any_arguments(t, *rest, **kwargs))
        return made

    call.__name__ = call.__qualname__ = operator.name
    return call


def _of_any(operator: Operator, named: Any, public: Public | None) -> Callable[..., Any]:
    understood = Understood(operator)

    def call(*args: Any, **kwargs: Any) -> Any:
        out: Any = kwargs.pop("out", None) if operator.out else None
        if out is not None:
            if operator.out == "dtype":
                kwargs["dtype"] = _computed_in(kwargs.get("dtype"), out)
            check_out(operator.name, (*args, *kwargs.values(), *(out if isinstance(out, (tuple, list)) else (out,))))
        bound, operands = understood(args, kwargs)
        outs: Any = apply(bound, operands)
        if named is not None:
            outs = named(outs)
        if out is None:
            return outs
        if operator.out == "same" and not (operands[0].is_complex() and not outs.is_complex()):  # parts of complex numbers are converted
            _check_same_dtype(out, outs)
        return write_out(operator.name, out, outs)

    call.__name__ = call.__qualname__ = operator.name
    call.schema = operator.schema  # type: ignore[attr-defined] - which names the function knows
    return call if public is None else guard(call, public)


def _computed_in(dtype: Any, out: Tensor) -> Any:
    """The dtype that is computed in where `out` says it. RuntimeError where another one is asked for."""
    if dtype is not None and dtype is not out.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {dtype.word}, but got {out.dtype.word} instead")
    return out.dtype


class Understood:
    """Calls of one operator, each kind worked out once: which bound operator, and which arguments are its operands. Working out what the
    arguments of a call mean costs more than recording it."""

    __slots__ = ("_operator", "_dynamic", "_typed", "_by_name", "_known", "_fixed")

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        parameters = operator.schema.parameters
        self._dynamic = tuple(p.is_tensor or p.is_number for p in parameters)
        self._typed = all(self._dynamic)
        self._by_name = {p.name: i for i, p in enumerate(parameters)}
        self._fixed = not any(p.type in ("Tensor[]", "int...") for p in parameters)
        self._known: dict[Any, tuple[Any, tuple[Any, ...]]] = {}

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The BoundOperator and the operands. TypeError for arguments that do not fit the schema."""
        if not self._fixed:
            return self._operator.parse(args, kwargs, is_tensor)
        try:
            key = self._key(args, kwargs)
            found = self._known.get(key)
        except (TypeError, KeyError):  # an argument without a hash, or of another name
            return self._operator.parse(args, kwargs, is_tensor)
        if found is not None:
            bound, places = found
            return bound, [args[p] if type(p) is int else kwargs[p] for p in places]
        bound, operands = self._operator.parse(args, kwargs, is_tensor)
        places = self._places(args, kwargs)
        if len(places) == len(operands):  # else a default is an operand
            self._known[key] = bound, places
        return bound, operands

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if self._typed:
            return (len(args), *map(type, args), *kwargs, *map(type, kwargs.values()))
        # 1, 1.0 and True are equal, but not the same argument: static ones are told apart by type, too.
        key: list[Any] = [type(a) if dynamic else (type(a), a) for a, dynamic in zip(args, self._dynamic, strict=False)]
        key.append(len(args))
        for name, a in kwargs.items():
            key += (name, type(a) if self._dynamic[self._by_name[name]] else (type(a), a))
        return tuple(key)

    def _places(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Where the operands stand in a call, in the schema's order: positions and keywords."""
        found: list[Any] = []
        for i, p in enumerate(self._operator.schema.parameters):
            if self._dynamic[i]:
                value = args[i] if i < len(args) else kwargs.get(p.name)
                if isinstance(value, Tensor) and not p.is_number or type(value) in NUMBERS:
                    found.append(i if i < len(args) else p.name)
        return tuple(found)


def _result_type(operator: Operator) -> Any:
    if operator.results is None:
        return None
    return return_type(operator.name, operator.results)


def fast_inplace(bound: Any, otherwise: Callable[[Tensor, Any], Tensor]) -> Callable[[Tensor, Any], Tensor]:
    """An in-place operation of a tensor and another one or a number, written out for the common case: no graph, same shape and dtype.
    `otherwise` is its general form."""

    def call(self: Tensor, other: Any) -> Tensor:
        rec = per_thread.recorder
        if rec.rare or (type(self) is not Tensor and type(self) is not Parameter):
            return otherwise(self, other)
        view = self._view
        if view is not None:
            return apply_inplace(bound, (self, other))
        # A view of the target, or one whose base has changed, wants a closer look.
        if (self._rg and rec.grad_enabled) or (type(other) is Tensor and (other._view is not None or (other._rg and rec.grad_enabled))):
            return apply_inplace(bound, (self, other))
        storage = self._storage
        if storage is not None and type(other) is Tensor and other._view is not None:  # it may be part of this tensor's memory
            return apply_inplace(bound, (self, other))
        a = self._value if storage is None else storage.value
        b = other if type(other) is not Tensor else other._value if other._storage is None else other._read()
        try:
            value = record2(rec, bound, a, b)
        except (TracedInput, DeviceChange):
            return apply_inplace(bound, (self, other))
        if value.aval is not a.aval:
            value = fit(rec, value, a.aval)
        if storage is None:
            storage = self._shared()
        storage.write(value)
        return self

    return call


def write_plainly(bound: Any, operands: tuple[Any, ...]) -> Tensor:
    """`apply_inplace` for the common case of several operands: plain tensors, no graph, no view, a result like the target."""
    rec = per_thread.recorder
    target = operands[0]
    values = []
    for o in operands:
        if type(o) is Tensor or type(o) is Parameter:
            if o._view is not None or (o._rg and rec.grad_enabled):
                return apply_inplace(bound, operands)
            o = o._value if o._storage is None else o._read()
        elif isinstance(o, Tensor):
            return apply_inplace(bound, operands)
        values.append(o)
    if rec.rare:
        return apply_inplace(bound, operands)
    try:
        value = record(rec, bound, tuple(values))
    except (TracedInput, DeviceChange):
        return apply_inplace(bound, operands)
    aval = values[0].aval
    storage = target._storage or target._shared()
    storage.write(value if value.aval is aval else fit(rec, value, aval))
    return target


def inplace_of(operator: Operator, name: str) -> Callable[..., Tensor]:
    """The twin of a declared operator that writes its result into `self`, by its dotted name."""
    understood = Understood(operator)
    public = Public(name)

    def write(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        bound, operands = understood((self, *args), kwargs)
        return write_plainly(bound, tuple(operands))

    write.schema = operator.schema  # type: ignore[attr-defined] - which names the function knows
    write.__name__ = write.__qualname__ = name.rpartition(".")[2]
    write.__doc__ = _docstring(operator, f"In-place version of `{write.__name__[:-1]}`. ")
    general = guard(write, public)
    kinds = [p.type for p in operator.schema.parameters]
    if kinds not in _OF_TWO:
        return general
    taken = (Tensor,) if kinds[1] == "Tensor" else (Tensor, float, int)
    fast = fast_inplace(operator.bind((ARRAY, ARRAY)), general)

    def call(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if len(args) == 1 and not kwargs and type(args[0]) in taken:
            return fast(self, args[0])
        return general(self, *args, **kwargs)

    call.__name__, call.__qualname__, call.__doc__ = write.__name__, write.__qualname__, write.__doc__
    announce(call, public)
    return call


def _docstring(operator: Operator, lead: str) -> str:
    return f"{lead}\n\n{operator.__doc__ or ''}"


def check_out(name: str, tensors: Any) -> None:
    """RuntimeError where autograd would have to follow a write into an `out=` tensor."""
    if per_thread.recorder.grad_enabled and any(isinstance(t, Tensor) and t.requires_grad for t in tensors):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad."
        )


def _check_same_dtype(out: Any, made: Tensor) -> None:
    if out.dtype is not made.dtype:
        raise RuntimeError(f"Found dtype {out.dtype.title} but expected {made.dtype.title}")


# What PyTorch says of an `out=` tensor that has not the result's own dtype, by functions that convert nothing.
_EXPECTED = "Expected out tensor to have dtype {0.word}, but got {1.word} instead"
_SAME = "{2}(): self and result must have the same scalar type"
_MATCHING = "Expected the dtype for input and out to match, but got {0.title} for input's dtype and {1.title} for out's dtype."
_UNCONVERTED: dict[str, str] = {
    **dict.fromkeys(("mm", "matmul", "addmm", "bmm", "baddbmm"), _EXPECTED),
    **dict.fromkeys(("signbit", "isposinf", "isneginf"), "{2} does not support non-boolean outputs."),
    **dict.fromkeys(("gather", "take_along_dim", "argmax", "argmin", "max_dim", "min_dim"), _EXPECTED),
    **dict.fromkeys(("sort", "topk", "aminmax", "diag", "tril", "triu"), _EXPECTED),
    **dict.fromkeys(("index_select", "masked_select"), _SAME),
    **dict.fromkeys(("amax", "amin"), _MATCHING),
    "kthvalue": "output values must be of same type as input",
    "cummax": "expected scalar_type {0.title} but found {1.title}",
    "cummin": "expected scalar_type {0.title} but found {1.title}",
    "nonzero": "nonzero: Expected out tensor to have scalar type {0.title} but got scalar type{1.title}",
    "quantile": "quantile() out tensor must be same dtype as the input tensor",
    "nanquantile": "quantile() out tensor must be same dtype as the input tensor",
    "searchsorted": "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or Long(int64) depending on whether out_int32 "
    "flag is True, but we got output tensor's dtype {1.title} and out_int32 flag is {3}",
}  # fmt: skip


def _check_dtype(name: str, made: Any, target: Any) -> None:
    """RuntimeError where results of `made`'s dtype are not written to `target`'s; cat's is a TypeError."""
    from torchgrad_jax.ops import dtypes, promotion

    a, b = dtypes.of(made.dtype), dtypes.of(target.dtype)
    if name in _UNCONVERTED and a is not b:
        raise RuntimeError(_UNCONVERTED[name].format(a, b, name, a is dtypes.int32))
    if not promotion.can_cast(made.dtype, target.dtype):
        if name in ("cat", "stack"):
            raise TypeError(f"torch.cat(): input types can't be cast to the desired output type {b.title}")
        raise RuntimeError(f"result type {a.title} can't be cast to the desired output type {b.title}")


def write_out(name: str, out: Any, outs: Any, apart: Sequence[Any] = ()) -> Any:
    """``out=``: the results written into given tensors. RuntimeError where autograd, the dtype or shared memory forbids it. apart: what may share
    none with a result, since it is read while that is written."""
    from torchgrad_jax.tensor.inplace import OVERLAP, REPEATED, cast_to, overlaps, repeats

    targets = out if isinstance(out, (tuple, list)) else (out,)
    results = outs if isinstance(outs, tuple) else (outs,)
    check_out(name, (*targets, *results))
    for target, made in zip(targets, results, strict=True):
        a, b = made._aval, target._aval
        _check_dtype(name, a, b)
        if any(t is target or overlaps(target, t) for t in apart):
            raise RuntimeError(OVERLAP)
        if target._view is not None and repeats(target._view, b):
            raise RuntimeError(REPEATED)
        value = made._read()
        if a.dtype != b.dtype:
            value = apply(cast_to(b.dtype), (made,))._read()
        if a.shape != b.shape:
            resize(target, value)
        else:
            overwrite(target, value)
    _refuse_tangents(name, (*targets, *results))
    return return_type(f"{type(outs).__name__}_out", outs.__match_args__)(targets) if isinstance(outs, ReturnType) else out


def _refuse_tangents(name: str, tensors: Any) -> None:
    """NotImplementedError where a result that was written, as PyTorch does first, should have a tangent."""
    rec = per_thread.recorder
    if rec.rare and rec.flags.get(LEVEL) is not None and not rec.inference:
        from torchgrad_jax.tensor.duals import tangents_of

        if tangents_of(tensors):
            raise NotImplementedError(f"Trying to use forward AD with {name}_out that does not support it because it is an out= function")


def resize(target: Tensor, value: Any) -> None:
    """An `out=` tensor takes the shape of the result."""
    if target._aval.size:
        warn_user(
            f"An output with one or more elements was resized since it had shape {list(target._aval.shape)}, which does not match the required "
            f"output shape {list(value.aval.shape)}. This behavior is deprecated, and in a future PyTorch release outputs will not be resized unless "
            "they have zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero elements with t.resize_(0).",
            UserWarning,
        )
    version = target._version
    if target._view is not None:
        from torchgrad_jax.tensor.memory import take_size

        take_size(target, value.aval.shape)
    overwrite(target, value)
    storage: Any = target._storage
    storage.set_version(version + 1)  # it was written to once
    target._content().version = version + 1


