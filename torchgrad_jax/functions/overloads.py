"""Functions that choose among operators, or are made of several: overloads of `add`, `pow`, `div`, `where`, `matmul` ..."""

from __future__ import annotations

import inspect
import math
from functools import partial
from typing import Any

import numpy as np

from torchgrad_jax.calling.expecting import not_a_tensor
from torchgrad_jax.calling.generate import announce_writing, writing_of_two
from torchgrad_jax.calling.out import check_out, write_out
from torchgrad_jax.calling.overrides import Public, announce, guard
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.called import MISSING, binary, unary
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.hot import Called, Products, Writing, product_of, write_plainly
from torchgrad_jax.core.hot import of_two as of_two_tensors
from torchgrad_jax.core.level import by_parts
from torchgrad_jax.core.made import created
from torchgrad_jax.core.order import arrange, in_rows, keep_order, plain
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import apply_inplace
from torchgrad_jax.declaration import dtypes, promotion
from torchgrad_jax.declaration.converting import broadcast_shapes
from torchgrad_jax.declaration.operator import ARRAY, NUMBERS, Static, plain_number
from torchgrad_jax.functions.conversion import cast
from torchgrad_jax.functions.creation import from_data
from torchgrad_jax.functions.indexing import places_of
from torchgrad_jax.functions.matmul import DOT, MM, MV, general_matmul
from torchgrad_jax.functions.views import expand
from torchgrad_jax.memory.at_hand import places_in
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.recorder import LEAST_INT, MOST_INT, per_thread
from torchgrad_jax.runtime.user_code import warn_once


def _tensor_or_number(name: str, x: Any, label: str = "other") -> Any:
    """An operand: a Tensor, or a Python number (NumPy's become one). TypeError for anything else."""
    if isinstance(x, Tensor) or type(x) in NUMBERS:
        return x
    if isinstance(x, (*NUMBERS, np.number, np.bool_)):
        return plain_number(x)
    raise TypeError(f"{name}(): argument '{label}' (position {1 + (label == 'other')}) must be Tensor, not {type(x).__name__}")


# ---------------------------------------------------------------------- arithmetic with alpha, rounding modes


def _with_scale(name: str, input: Any, other: Any, legacy: tuple[Any, ...], alpha: Any) -> tuple[Any, Any, Any]:
    """The operands of `add` or `sub`, and what scales the second: None for 1. ``add(a, 2, b)`` is an old way to say ``add(a, b, alpha=2)``.
    TypeError, RuntimeError for what does not fit."""
    if len(legacy) > 1:
        raise TypeError(f"{name}() takes from 2 to 3 positional arguments but {2 + len(legacy)} were given")
    if legacy:
        other, alpha = legacy[0], other
        if not isinstance(alpha, NUMBERS):
            given = ", ".join(type(x).__name__ for x in (input, alpha, other))
            raise TypeError(f"{name}() received an invalid combination of arguments - got ({given})")
    if other is MISSING:
        raise TypeError(f'{name}() missing 1 required positional arguments: "other"')
    input, other = _tensor_or_number(name, input, "input"), _tensor_or_number(name, other)
    if isinstance(alpha, (Tensor, np.generic)):
        alpha = alpha.item()
    if type(alpha) is int and alpha == 1:
        return input, other, None
    promotion.check_factor("alpha", alpha, [x._aval if isinstance(x, Tensor) else type(x) for x in (input, other)])
    return input, other, alpha


def _with_alpha(name: str, namespace: str) -> Any:
    public = Public(f"{namespace}.{name}")
    fast = registry[name].bind((ARRAY, ARRAY))
    scaled = registry[name + "_scaled"].bind((ARRAY, ARRAY, ARRAY))

    def general(input: Any, other: Any = MISSING, *legacy: Any, alpha: Any = 1, out: Any = None) -> Any:
        input, other, alpha = _with_scale(name, input, other, legacy, alpha)
        if out is not None:
            check_out(name, (input, other, out))
        made = apply(fast, (input, other)) if alpha is None else apply(scaled, (input, other, alpha))
        return made if out is None else write_out(name, out, made, inputs=(input, other))

    made = binary(fast, name, guard(general, public))
    made.__doc__ = f"{registry[name].schema.text}\n\n{registry[name].__doc__ or ''} `alpha` multiplies other."
    announce(made, public)
    return made


def _inplace_with_alpha(name: str) -> Any:
    public = Public(f"torch.Tensor.{name}_")
    bound = registry[name].bind((ARRAY, ARRAY))
    scaled = registry[name + "_scaled"].bind((ARRAY, ARRAY, ARRAY))

    def write(self: Tensor, other: Any = MISSING, *legacy: Any, alpha: Any = 1) -> Tensor:
        self, other, alpha = _with_scale(name + "_", self, other, legacy, alpha)
        return apply_inplace(bound, (self, other)) if alpha is None else write_plainly(scaled, (self, other, alpha))

    write.__name__ = write.__qualname__ = name + "_"
    write.__doc__ = f"In-place version of `{name}`."
    general = guard(write, public)

    def with_names(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if len(args) == len(kwargs) == 1 and type(args[0]) in (Tensor, float, int):
            plain = type(self) is Tensor or type(self) is Parameter
            alpha = kwargs.get("alpha")
            if plain and type(alpha) in (float, int) and not per_thread.recorder.rare:
                other = args[0]
                # Of real floating-point tensors no other alpha is to be told apart, and none to be refused.
                if alpha != 1 and type(other) is Tensor and self._aval.dtype.kind == other._aval.dtype.kind == "f":
                    return write_plainly(scaled, (self, other, alpha))
                return write(self, other, alpha=alpha)
        return general(self, *args, **kwargs)

    return announce_writing(write, public, Writing(bound, with_names, True))


add = public("torch.add")(_with_alpha("add", "torch"))
sub = public("torch.sub", "torch.subtract")(_with_alpha("sub", "torch"))
public("torch.Tensor")(_with_alpha("add", "torch.Tensor"))
public("torch.Tensor", "torch.Tensor.subtract")(_with_alpha("sub", "torch.Tensor"))
add_ = public("torch.Tensor.add_")(_inplace_with_alpha("add"))
sub_ = public("torch.Tensor.sub_", "torch.Tensor.subtract_")(_inplace_with_alpha("sub"))


def with_number(name: str, x: Tensor, number: Any) -> Any:
    """ "add", "sub", "mul" or "div" of a tensor and a number, as PyTorch's own functions call it: the node has no entry for the number."""
    if not dtypes.is_float(x._aval.dtype):  # no node, and perhaps another dtype
        return apply(registry[name].bind((ARRAY, ARRAY)), (x, number))
    return apply(registry[f"_{name}_number"].bind((ARRAY, ARRAY)), (x, number))


def may_divide_by_zero(a: Any, b: Any) -> bool:
    """Whether integers are divided by what is not known yet, so that the program must look. RuntimeError where a divisor is known to be 0."""
    if dtypes.category(promotion.result_type([x._aval if isinstance(x, Tensor) else type(x) for x in (a, b)])) != dtypes.INT:
        return False
    known = b._read().at_hand() if isinstance(b, Tensor) else b
    if known is None:
        return True
    if np.any(known == 0) if isinstance(known, np.ndarray) else known == 0:
        raise RuntimeError("ZeroDivisionError")
    return False


def _division(a: Any, b: Any, rounding_mode: Any) -> Any:
    """The operator for `div` with these operands."""
    if rounding_mode in (MISSING, None):
        return registry["div" if rounding_mode is MISSING else "_div_unrounded"].bind((ARRAY, ARRAY))
    if rounding_mode not in ("trunc", "floor"):
        raise RuntimeError(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'")
    return registry["div_rounded_checked" if may_divide_by_zero(a, b) else "div_rounded"].bind((ARRAY, ARRAY, Static(rounding_mode)))


def _general_div_(self: Tensor, other: Any, *, rounding_mode: Any = MISSING) -> Tensor:
    """In-place version of `div`."""
    other = _tensor_or_number("div_", other)
    return apply_inplace(_division(self, other, rounding_mode), (self, other))


_general_div_.__name__ = _general_div_.__qualname__ = "div_"
div_ = public("torch.Tensor.div_", "torch.Tensor.divide_", "torch.Tensor.true_divide_")(
    writing_of_two(_general_div_, Public("torch.Tensor.div_"), registry["div"])
)


@public("torch.Tensor", "torch.Tensor.__ipow__")
def pow_(self: Tensor, exponent: Any) -> Tensor:
    """In-place version of `pow`."""
    if isinstance(exponent, Tensor):
        return apply_inplace(registry["pow_tensor"].bind((ARRAY, ARRAY)), (self, exponent))
    return apply_inplace(registry["pow_scalar"].bind((ARRAY, Static(_tensor_or_number("pow_", exponent)))), (self,))


def _of_second(made: Tensor, first: Any, second: Tensor) -> Tensor:
    """A result that lies in memory as PyTorch's does, which takes the operands the other way round."""
    if isinstance(first, Tensor) and not (plain(first) and plain(second)):
        keep_order(in_rows(made), (first, second), registry["sub"].bind((ARRAY, ARRAY)))
    return made


@public("torch")
def rsub(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """other - alpha * input."""
    _check_tensors("rsub", input=input)
    other = _tensor_or_number("rsub", other)
    promotion.check_factor("alpha", alpha, [x._aval if isinstance(x, Tensor) else type(x) for x in (input, other)])
    if type(alpha) is int and alpha == 1:
        return _of_second(apply(registry["rsub"].bind((ARRAY, ARRAY)), (input, other)), other, input)
    return apply(registry["rsub_scaled"].bind((ARRAY, ARRAY, ARRAY)), (input, other, alpha))


def _general_div(input: Any, other: Any, *, rounding_mode: Any = MISSING, out: Any = None) -> Tensor:
    """input / other; rounded towards zero ("trunc") or down ("floor") if asked."""
    if not isinstance(input, (Tensor, *NUMBERS)):
        raise not_a_tensor("div", input)
    other = _tensor_or_number("div", other)
    if out is not None:
        check_out("div", (input, other, out))
    made = apply(_division(input, other, rounding_mode), (input, other))
    return made if out is None else write_out("div", out, made, inputs=(input, other))


def _div(namespace: str) -> Any:
    public = Public(f"{namespace}.div")
    made = binary(registry["div"].bind((ARRAY, ARRAY)), "div", guard(_general_div, public))
    made.__doc__ = _general_div.__doc__
    announce(made, public)
    return made


div = public("torch.div", "torch.divide", "torch.true_divide")(_div("torch"))
public("torch.Tensor", "torch.Tensor.divide", "torch.Tensor.true_divide")(_div("torch.Tensor"))


def _pow(namespace: str, method: str = "pow") -> Any:
    """`pow` as function, method or operator. A number as exponent is part of the operator, so each has a function of its own."""
    public = Public(f"{namespace}.{method}", in_python=method != "pow")
    public.signature = inspect.signature(_power)
    powers: dict[Any, Any] = {}

    def general(input: Any, exponent: Any, *, out: Any = None) -> Tensor:
        if out is not None:
            check_out("pow", (input, exponent, out))
        made = _power(input, exponent)
        return made if out is None else write_out("pow", out, made, inputs=(input, exponent))

    general.__name__ = general.__qualname__ = method
    guarded = guard(general, public)

    def pow(input: Any, exponent: Any, *, out: Any = None) -> Tensor:
        """input ** exponent, element by element; either may be a number."""
        if type(exponent) not in (int, float) or out is not None or type(input) is not Tensor:
            return guarded(input, exponent) if out is None else guarded(input, exponent, out=out)
        found = powers.get((type(exponent), exponent))
        if found is None:
            bound = registry["pow_scalar"].bind((ARRAY, Static(exponent)))
            found = powers[type(exponent), exponent] = unary(bound, "pow", lambda t: guarded(t, exponent))
        return found(input)

    pow.__name__ = pow.__qualname__ = method
    announce(pow, public)
    return pow


def _power(input: Any, exponent: Any) -> Tensor:
    if isinstance(exponent, Tensor):
        made = apply(registry["pow_tensor"].bind((ARRAY, ARRAY)), (input, exponent))
        return made if isinstance(input, Tensor) else in_rows(made)
    if not isinstance(input, Tensor):
        raise TypeError(f"pow() received an invalid combination of arguments - got ({type(input).__name__}, {type(exponent).__name__})")
    return apply(registry["pow_scalar"].bind((ARRAY, Static(_tensor_or_number("pow", exponent)))), (input,))


pow = public("torch.pow")(_pow("torch"))
public("torch.Tensor")(_pow("torch.Tensor"))


# ---------------------------------------------------------------------- choosing


_WHERE = registry["where_self"].bind((ARRAY,) * 3)


# The largest number of each floating dtype, by its bytes: of larger ones another error is told.
_LARGEST = {dtype().itemsize: float(np.finfo(dtype).max) for dtype in (np.float16, np.float32, np.float64)}


def _where_of_alike(condition: Any, input: Any, other: Any) -> Any:
    """The operator of `where` where nothing has to be made alike, as most often: for tensors of one shape and dtype, or for one and a number that its
    dtype has. None for others."""
    if not isinstance(condition, Tensor) or condition._aval.dtype != np.bool_:
        return None
    aval, shape = None, condition._aval.shape
    for x in (input, other):
        if isinstance(x, Tensor):
            if x._aval.shape != shape or (aval is not None and x._aval.dtype != aval.dtype):
                return None
            aval = x._aval
    if aval is None:
        return None
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        return _WHERE
    number = other if isinstance(input, Tensor) else input
    if aval.dtype.kind != "f" or type(number) not in (float, int) or _LARGEST[aval.dtype.itemsize] < abs(number) < math.inf:
        return None
    if type(number) is int and not LEAST_INT <= number <= MOST_INT:
        return None
    return registry["where_converted"].bind((*(ARRAY,) * 3, Static(aval.dtype)))


@public("torch")
def where(condition: Tensor, input: Any = MISSING, other: Any = MISSING, *, out: Any = None) -> Any:
    """input where `condition` holds, else other; with the condition alone, the indices where it does."""
    bound = _where_of_alike(condition, input, other) if out is None else None
    if bound is not None:
        return apply(bound, (condition, input, other))
    operands = [plain_number(x) for x in (input, other)]
    if isinstance(condition, Tensor) and input is MISSING and other is MISSING:
        return _columns(condition, "where")
    if not isinstance(condition, Tensor) or not all(isinstance(x, (Tensor, *NUMBERS)) for x in operands):
        given = ", ".join(type(x).__name__ for x in (condition, *operands) if x is not MISSING)
        raise TypeError(f"where() received an invalid combination of arguments - got ({given})")
    if condition._aval.dtype not in (np.bool_, np.uint8):
        raise RuntimeError(f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype.title}")
    if condition._aval.dtype == np.uint8:
        warn_once(
            "where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future version of PyTorch. Use a boolean "
            "condition instead."
        )
    if out is not None:
        check_out("where", (*operands, out))
    target = promotion.result_type([x._aval if isinstance(x, Tensor) else type(x) for x in operands])
    broadcast_shapes(condition._aval.shape, *(x._aval.shape for x in operands if isinstance(x, Tensor)))
    full = [cast(x, dtypes.of(target)) if isinstance(x, Tensor) else created(from_data(x, dtypes.of(target), condition.device)) for x in operands]
    # What requires a gradient is converted without a node of its own.
    full = [x if isinstance(x, Tensor) and x._rg and dtypes.is_float(x._aval.dtype) else y for x, y in zip(operands, full, strict=True)]
    alike = all(x._aval.dtype == target for x in full)
    bound = _WHERE if alike else registry["where_converted"].bind((*(ARRAY,) * 3, Static(target)))
    made = apply(bound, (condition, *full))
    if out is not None and out._aval.dtype != target:
        raise RuntimeError(f"Expected out type to be {dtypes.of(target).title} but got {out.dtype.title}")
    return made if out is None else write_out("where", out, made, inputs=(condition, *operands))


@public("torch.Tensor.where")
def _where_method(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """self where `condition` holds, else other."""
    return where(condition, self, other)


@public("torch", "torch.Tensor")
def nonzero(input: Tensor, *, out: Any = None, as_tuple: bool = False) -> Any:
    """The indices of the elements that are not zero: a matrix with a row for each, or a tuple of columns. Looks at the values."""
    if as_tuple:
        return _columns(input, "nonzero_numpy")
    matrix = np.array(_places(input, "nonzero"), np.int64).T[:, : input._aval.ndim]
    made = created(from_data(matrix, None, input.device))
    return arrange(made, (1, 0)) if out is None else write_out("nonzero", out, made)


def _places(input: Tensor, asked: str) -> tuple[np.ndarray, ...]:
    array = np.asarray(input._concrete(asked))
    return places_in(array if array.ndim else array.reshape(1))


def _columns(input: Tensor, asked: str) -> tuple[Tensor, ...]:
    """`nonzero` as a tuple. asked: by which function."""
    return tuple([created(from_data(np.asarray(i, np.int64), None, input.device)) for i in _places(input, asked)])


def _first_places(size: int, fill_value: int, input: Tensor) -> Tensor:
    found = np.asarray(nonzero(input)._concrete())[:size]
    matrix = np.full((size, input._aval.ndim), fill_value, np.int64)
    matrix[: len(found)] = found
    return created(from_data(matrix, None, input.device))


@public("torch", "torch.Tensor")
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1, out: Any = None) -> Tensor:
    """The first `size` rows of `nonzero`, with rows of `fill_value` where there are fewer. Looks at the values."""
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    made = by_parts(partial(_first_places, size, fill_value), input)
    return made if out is None else write_out("nonzero", out, made)


@public("torch", "torch.Tensor")
def argwhere(input: Tensor) -> Tensor:
    """The indices of the elements that are not zero, a row for each. Looks at the values."""
    return by_parts(nonzero, input)


@public("torch", "torch.Tensor")
def masked_select(input: Tensor, mask: Tensor, *, out: Any = None) -> Tensor:
    """The elements where `mask` is true, in one dimension. Looks at the mask."""
    if mask._aval.dtype != np.bool_:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    shape = broadcast_shapes(input._aval.shape, mask._aval.shape) or (1,)
    found = _places(mask if mask._aval.shape == shape else expand(mask.detach(), shape), "masked_select")
    indices = places_of(found, shape, input.device, mask)
    made = apply(registry["_masked_select"].bind((ARRAY, len(indices), Static(shape))), (input, *indices))
    return made if out is None else write_out("masked_select", out, made, (input, mask))


# ---------------------------------------------------------------------- matrix products


def _matmul(namespace: str) -> tuple[Any, Any, Products]:
    """The function, what it does with two operands, and those of them that are one operation."""
    public = Public(f"{namespace}.matmul")
    guarded = guard(general_matmul, public)
    products = Products(*[Called(bound, "matmul", guarded, True) for bound in (MM, MV, DOT)])

    def of_two(input: Any, other: Any) -> Tensor:
        plain = (type(other) is Tensor or type(other) is Parameter) and (type(input) is Tensor or type(input) is Parameter)
        called = product_of(products, input, other) if plain else None
        return guarded(input, other) if called is None else of_two_tensors(called, input, other)

    def matmul(input: Any = MISSING, other: Any = MISSING, *more: Any, out: Any = None, **named: Any) -> Tensor:
        """The matrix product by NumPy's rule: vectors, matrices, batches that broadcast."""
        if named or more or other is MISSING or out is not None:
            return guarded(*[x for x in (input, other) if x is not MISSING], *more, **named, **({} if out is None else {"out": out}))
        return of_two(input, other)

    announce(matmul, public)
    return matmul, of_two, products


matmul, *_ = _matmul("torch")
_method, matmul_of_two, products = _matmul("torch.Tensor")
public("torch", "torch.linalg")(matmul)
public("torch.Tensor")(_method)


# ---------------------------------------------------------------------- Python results


def _check_tensors(name: str, **given: Any) -> None:
    for position, (argument, x) in enumerate(given.items(), 1):
        if not isinstance(x, Tensor):
            raise not_a_tensor(name, x, argument, position)


@public("torch", "torch.Tensor")
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether shapes and all elements are equal."""
    if type(input) is not Tensor or type(other) is not Tensor:
        _check_tensors("equal", input=input, other=other)
    a, b = np.asarray(input._concrete("equal")), np.asarray(other._concrete("equal"))
    return a.shape == b.shape and bool(np.logical_and.reduce(a == b, None))


@public("torch", "torch.Tensor")
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are close: abs(input - other) <= atol + rtol * abs(other)."""
    _check_tensors("allclose", input=input, other=other)
    for position, (name, limit) in enumerate((("rtol", rtol), ("atol", atol)), 3):
        if not isinstance(limit, (float, int)) or isinstance(limit, bool):
            raise TypeError(f"allclose(): argument '{name}' (position {position}) must be float, not {type(limit).__name__}")
        if limit < 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {limit:g}")
    if not isinstance(equal_nan, bool):
        raise TypeError(f"allclose(): argument 'equal_nan' (position 5) must be bool, not {type(equal_nan).__name__}")
    if input._aval.dtype != other._aval.dtype:
        raise RuntimeError(f"{_c(input)} did not match {_c(other)}")
    broadcast_shapes(input._aval.shape, other._aval.shape)
    a, b = np.asarray(input._concrete("allclose")), np.asarray(other._concrete("allclose"))
    found = _are_close(a, b, rtol, atol)
    return bool(np.allclose(a, b, rtol, atol, equal_nan)) if found is None else found


def _are_close(a: np.ndarray, b: np.ndarray, rtol: float, atol: float) -> bool | None:
    """What `np.allclose`, which takes five times as long, says of real numbers that are finite; None for others."""
    if a.dtype.char not in "fd":
        return None
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
        if not np.maximum.reduce(apart, None, initial=0) < np.inf:
            return None
        return bool(np.logical_and.reduce(apart <= atol + rtol * np.abs(b), None))


def _c(x: Tensor) -> str:
    return x.dtype.title


def is_inference(input: Tensor) -> bool:
    """Whether the tensor's memory was allocated in inference mode. TypeError for anything but a tensor."""
    if not isinstance(input, Tensor):
        raise not_a_tensor("is_inference", input)
    return input.is_inference()
