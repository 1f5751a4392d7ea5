"""`torch._foreach_*`: one operation on each tensor of a list. What is recorded becomes one program anyway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.calling.kinds import type_name
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.list_node import Part, joined
from torchgrad_jax.core.made import created
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.operator import NUMBERS, plain_number
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.memory.filled import full_value

_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt sigmoid sign sin sinh "
    "sqrt tan tanh trunc"
)
# The end of the node's name by what stands beside the list: a list of tensors, a number, a list of numbers, one tensor.
_NODES = {
    "add": ("0List", "1Scalar", "1ScalarList", "0Tensor"), "sub": ("0List", "1Scalar", "1ScalarList", "1Scalar"),
    "mul": ("0List", "1Scalar", "1ScalarList", "0Tensor"), "div": ("0", "1Scalar", "1ScalarList", "0Tensor"),
    "maximum": ("0List", "0", "1", "0"), "minimum": ("0List", "0", "1", "0"), "pow": ("0", "0Scalar", "1", "0Scalar"),
    "clamp_max": ("1List", "0Scalar", "0ScalarList", "0Scalar"), "clamp_min": ("1List", "0Scalar", "0ScalarList", "0Scalar"),
    "lerp": ("1List", "0Scalar", "0ScalarList", "0Scalar"), "addcmul": ("", "0Scalar", "0ScalarList", "0ScalarList"),
    "addcdiv": ("", "0Scalar", "0ScalarList", "0ScalarList"),
}  # fmt: skip
_LIST, _NUMBER, _NUMBERS, _TENSOR = range(4)
# What the nodes show, by name: arguments by the name of the parameter, what the single nodes have saved by `Part`.
_SHOWN: dict[str, dict[str, Any]] = {
    "ForeachMaximumBackward0": {"scalar": 1, "self": Part("_saved_self")}, "ForeachMaximumBackward1": {"scalars": 1, "self": Part("_saved_self")},
    "ForeachMinimumBackward0": {"scalar": 1, "self": Part("_saved_self")}, "ForeachMinimumBackward1": {"scalars": 1, "self": Part("_saved_self")},
    "ForeachDivBackward0": {"other": Part("_saved_other"), "self": Part("_saved_self")},
    "ForeachPowBackward0": {n: Part(f"_saved_{n}") for n in ("exponent", "result", "self")},
    "ForeachPowBackward1": {"exponent": 1, "self": Part("_saved_self")},
}  # fmt: skip


def _camel(name: str) -> str:
    """The name of a node up to its number: a letter after a digit is large."""
    word = "".join(part.title() for part in name.split("_"))
    return f"Foreach{word}Backward"


def _tensors(name: str, given: Any, label: str = "self", position: int = 1) -> list[Tensor]:
    """A list of tensors. TypeError for anything else, RuntimeError for none."""
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"{name}(): argument '{label}' (position {position}) must be tuple of Tensors, not {type_name(given)}")
    for i, t in enumerate(given):
        if not isinstance(t, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument {position - 1}, but got {type_name(t)}")
    if len(given) == 0:
        raise RuntimeError("Tensor list must have at least one tensor.")
    return list(given)


def _kind(name: str, given: Any) -> int:
    if isinstance(given, Tensor):
        return _TENSOR
    if isinstance(given, (list, tuple)):
        return _LIST if any(isinstance(t, Tensor) for t in given) else _NUMBERS
    if isinstance(plain_number(given), NUMBERS):
        return _NUMBER
    raise TypeError(
        f"{name}() received an invalid combination of arguments - got (list, {type_name(given)}), but expected, beside the tuple of Tensors, one of: "
        "tuple of Tensors, Number, tuple of Scalars, Tensor"
    )


def _spread(name: str, given: Any, count: int) -> tuple[int, list[Any]]:
    """What stands beside a list of `count` tensors: of which kind it is, and what of it belongs to each. RuntimeError for another number."""
    kind = _kind(name, given)
    if kind == _TENSOR:
        if not given._aval.ndim and not given.requires_grad and name.rstrip("_").removeprefix("_foreach_") not in ("mul", "div"):
            return _NUMBER, [given.item()] * count
        return kind, [given] * count
    if kind == _NUMBER:
        return kind, [plain_number(given)] * count
    each = _tensors(name, given, "other", 2) if kind == _LIST else [plain_number(n) for n in given]
    _same_count(kind, each, count)
    return kind, each


def _same_count(kind: int, each: Sequence[Any], count: int) -> None:
    if len(each) != count:
        if kind == _LIST:
            raise RuntimeError(f"Tensor lists must have the same number of tensors, got {count} and {len(each)}")
        raise RuntimeError("Tensor list must have same number of elements as scalar list.")


def _beside(name: str, **given: Any) -> Any:
    """What stands beside a list, which PyTorch names after its kind: what is given by one of these names. TypeError for none and for several."""
    found = {label: value for label, value in given.items() if value is not None}
    if len(found) != 1:
        told = ", ".join(found) if found else "nothing"
        raise TypeError(f"{name}() received an invalid combination of arguments - got {told}, but expected one of: {', '.join(given)}")
    return next(iter(found.values()))


def _publish(name: str, function: Callable[..., Any]) -> None:
    function.__name__ = function.__qualname__ = name
    public("torch")(function)


def _unary(name: str, node: str) -> None:
    method, public_name = getattr, f"_foreach_{name}"

    def of_each(self: Any) -> tuple[Tensor, ...]:
        return joined(node, [method(t, name)() for t in _tensors(public_name, self)], 1, {})

    def write_each(self: Any) -> Any:
        for t in _tensors(public_name + "_", self):
            method(t, name + "_")()
        return self

    of_each.__doc__ = f"`torch.{name}` of each tensor of a list. TypeError for anything but a list of tensors, RuntimeError for an empty one."
    write_each.__doc__ = f"In-place `_foreach_{name}`; returns the list."
    _publish(public_name, of_each)
    if name != "max":
        _publish(public_name + "_", write_each)


def _as_bound(t: Tensor, number: Any) -> Any:
    """A number to be the larger or the smaller one of, with half of the gradient where it is equal."""
    dtype = dtypes.of(t._aval.dtype).np if t._aval.dtype.kind in "fV" or isinstance(number, int) else dtypes.default_float()
    return created(full_value((), number, dtype, t._aval.device))


def _single(name: str, t: Tensor, other: Any, alpha: Any) -> Tensor:
    if alpha is not None:
        return getattr(t, name)(other, alpha=alpha)
    if name in ("maximum", "minimum"):
        return getattr(t, name)(other if isinstance(other, Tensor) else _as_bound(t, other))
    if name in ("maximum_", "minimum_"):
        name = "clamp_min_" if name == "maximum_" else "clamp_max_"
    return getattr(t, name)(other)


def _binary(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The function of each tensor of a list and something beside it, and its in-place twin."""
    public_name, ends = f"_foreach_{name}", _NODES[name]

    def of_each(self: Any, other: Any = None, *, scalar: Any = None, scalars: Any = None, alpha: Any = None) -> tuple[Tensor, ...]:
        tensors = _tensors(public_name, self)
        kind, each = _spread(public_name, _beside(public_name, other=other, scalar=scalar, scalars=scalars), len(tensors))
        node = _camel(name) + ends[kind]
        given = tuple(each) if kind == _NUMBERS else each[0]
        shown = {n: given if what == 1 else what for n, what in _SHOWN.get(node, {}).items()}
        results = [_single(name, t, o, alpha) for t, o in zip(tensors, each, strict=True)]
        return joined(node, results, 2 if kind in (_LIST, _TENSOR) else 1, shown)

    def write_each(self: Any, other: Any = None, *, scalar: Any = None, scalars: Any = None, alpha: Any = None) -> Any:
        tensors, beside = _tensors(public_name + "_", self), _beside(public_name + "_", other=other, scalar=scalar, scalars=scalars)
        for t, o in zip(tensors, _spread(public_name + "_", beside, len(tensors))[1], strict=True):
            _single(name + "_", t, o, alpha)
        return self

    with_alpha = "; alpha: a factor of what stands beside it" if name in ("add", "sub") else ""
    of_each.__doc__ = (
        f"`torch.{name}` of each tensor of a list and a number, a tensor, or those of another list{with_alpha}. RuntimeError for lists of "
        "other lengths."
    )
    write_each.__doc__ = f"In-place `_foreach_{name}`; returns the list."
    write_each.__name__ = write_each.__qualname__ = public_name + "_"
    return of_each, write_each


def _ternary(name: str) -> None:
    """`addcmul` and `addcdiv`, with a number, a list of numbers, or a tensor of numbers."""
    public_name, ends = f"_foreach_{name}", _NODES[name]

    def arguments(self: Any, tensor1: Any, tensor2: Any, value: Any) -> tuple[int, list[tuple[Any, ...]]]:
        lists = [
            _tensors(public_name, given, label, i) for i, (given, label) in enumerate(((self, "self"), (tensor1, "tensor1"), (tensor2, "tensor2")), 1)
        ]
        for other in lists[1:]:
            _same_count(_LIST, other, len(lists[0]))
        kind, each = _spread(public_name, value.tolist() if isinstance(value, Tensor) else value, len(lists[0]))
        return kind, list(zip(*lists, each, strict=True))

    def of_each(self: Any, tensor1: Any, tensor2: Any, value: Any = 1, *, scalars: Any = None) -> tuple[Tensor, ...]:
        kind, each = arguments(self, tensor1, tensor2, value if scalars is None else scalars)
        return joined(_camel(name) + ends[kind], [getattr(t, name)(a, b, value=n) for t, a, b, n in each], 3, {})

    def write_each(self: Any, tensor1: Any, tensor2: Any, value: Any = 1, *, scalars: Any = None) -> Any:
        for t, a, b, n in arguments(self, tensor1, tensor2, value if scalars is None else scalars)[1]:
            getattr(t, name + "_")(a, b, value=n)
        return self

    of_each.__doc__ = (
        f"`torch.{name}` of the tensors of three lists, `value` being a number or one for each. RuntimeError for lists of other lengths."
    )
    write_each.__doc__ = f"In-place `_foreach_{name}`; returns the list."
    _publish(public_name, of_each)
    _publish(public_name + "_", write_each)


def _lerp_arguments(self: Any, tensors1: Any, weight: Any) -> tuple[int, list[tuple[Any, ...]]]:
    tensors, ends = _tensors("_foreach_lerp", self), _tensors("_foreach_lerp", tensors1, "tensors1", 2)
    _same_count(_LIST, ends, len(tensors))
    kind, weights = _spread("_foreach_lerp", weight, len(tensors))
    return kind, list(zip(tensors, ends, weights, strict=True))


@public("torch")
def _foreach_lerp(self: Any, tensors1: Any, weight: Any = None, *, weights: Any = None) -> tuple[Tensor, ...]:
    """`torch.lerp` of the tensors of two lists, by a number, or those of a list. RuntimeError for lists of other lengths."""
    kind, each = _lerp_arguments(self, tensors1, _beside("_foreach_lerp", weight=weight, weights=weights))
    node = _camel("lerp") + _NODES["lerp"][kind]
    return joined(node, [t.lerp(end, w) for t, end, w in each], 3 if kind == _LIST else 2, {})


@public("torch")
def _foreach_lerp_(self: Any, tensors1: Any, weight: Any = None, *, weights: Any = None) -> Any:
    """In-place `_foreach_lerp`; returns the list."""
    for t, end, w in _lerp_arguments(self, tensors1, _beside("_foreach_lerp_", weight=weight, weights=weights))[1]:
        t.lerp_(end, w)
    return self


_power, _power_ = _binary("pow")


@public("torch")
def _foreach_pow(self: Any, exponent: Any) -> tuple[Tensor, ...]:
    """`torch.pow` of each tensor of a list with a number or those of another list, or of a number with each tensor of a list."""
    if isinstance(plain_number(self), NUMBERS):
        exponents = _tensors("_foreach_pow", exponent, "exponent", 2)
        shown = {"self": self, "exponent": Part("_saved_exponent"), "result": Part("_saved_result")}
        return joined("ForeachPowBackward2", [self**t for t in exponents], 1, shown)
    return _power(self, exponent)


@public("torch")
def _foreach_pow_(self: Any, exponent: Any) -> Any:
    """In-place `_foreach_pow`; returns the list."""
    return _power_(self, exponent)


@public("torch")
def _foreach_norm(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The `ord`-norm of each tensor of a list, all its elements taken as one vector."""
    if isinstance(ord, complex):
        raise RuntimeError("foreach_tensor_norm_slow expects ord to be integer or float")
    results = [t.norm(ord, dtype=dtype) for t in _tensors("_foreach_norm", self)]
    return joined("ForeachNormBackward0", results, 1, {"ord": ord, "result": Part("_saved_result"), "self": Part("_saved_self")})


@public("torch")
def _foreach_clone(self: Any, *, memory_format: Any = None) -> tuple[Tensor, ...]:
    """`clone` of each tensor of a list."""
    kept = {} if memory_format is None else {"memory_format": memory_format}
    return joined("ForeachCloneBackward0", [t.clone(**kept) for t in _tensors("_foreach_clone", self)], 1, {})


@public("torch")
def _foreach_zero_(self: Any) -> Any:
    """`zero_` of each tensor of a list; returns the list."""
    for t in _tensors("_foreach_zero_", self):
        t.zero_()
    return self


@public("torch")
def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """`copy_` of each tensor of a list from that of another; returns the list. RuntimeError for lists of other lengths."""
    tensors, sources = _tensors("_foreach_copy_", self), _tensors("_foreach_copy_", src, "src", 2)
    _same_count(_LIST, sources, len(tensors))
    for t, source in zip(tensors, sources, strict=True):
        t.copy_(source, non_blocking)
    return self


@public("torch")
def _amp_foreach_non_finite_check_and_unscale_(self: Any, found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiply each tensor of a list by `inv_scale`, and set `found_inf` to 1 where an element of one is infinite or nan. RuntimeError where those
    two have more than one element, NotImplementedError for what is not floating point."""
    name = "_amp_foreach_non_finite_check_and_unscale_"
    for label, one in (("inv_scale", inv_scale), ("found_inf", found_inf)):
        if one._aval.size != 1:
            raise RuntimeError(f"{label} must be a 1-element tensor.")
    tensors = _tensors(name, self)
    for t in tensors:
        if not t.is_floating_point():
            raise NotImplementedError(f"\"{name}cpu\" not implemented for '{t.dtype.title}'")
    found = call("_any_non_finite", tensors)
    factor = inv_scale.reshape(())
    for t in tensors:
        t.mul_(factor)
    found_inf.copy_(found_inf.maximum(found))


@public("torch")
def _amp_update_scale_(
    self: Tensor, growth_tracker: Tensor, found_inf: Tensor, scale_growth_factor: float, scale_backoff_factor: float, growth_interval: int
) -> Tensor:
    """Write to a scale of losses and its growth tracker what they are after a step. RuntimeError for other than single numbers."""
    for label, one, dtype in (("growth_tracker", growth_tracker, "int"), ("current_scale", self, "float"), ("found_inf", found_inf, "float")):
        if one._aval.size != 1:
            raise RuntimeError(f"{label} must be a 1-element tensor.")
        if one.dtype is not (dtypes.int32 if dtype == "int" else dtypes.float32):
            raise RuntimeError(f"{label} must be {'an int' if dtype == 'int' else 'a float'} tensor.")
    scale, tracker = call("_next_scale", self, growth_tracker, found_inf, float(scale_growth_factor), float(scale_backoff_factor), growth_interval)
    self.copy_(scale)
    growth_tracker.copy_(tracker)
    return self


for _name in _UNARY.split():
    _unary(_name, _camel(_name) + "0")
_unary("max", _camel("max") + "1")
for _name in ("add", "sub", "mul", "div", "maximum", "minimum", "clamp_max", "clamp_min"):
    _made, _written = _binary(_name)
    _publish(f"_foreach_{_name}", _made)
    _publish(f"_foreach_{_name}_", _written)
for _name in ("addcmul", "addcdiv"):
    _ternary(_name)
