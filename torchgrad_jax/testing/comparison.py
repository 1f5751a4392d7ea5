"""`assert_close`: what is compared is first taken apart into pairs, then pair by pair compared."""

from __future__ import annotations

import cmath
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.promotion import promote_types
from torchgrad_jax.functions.arrays import as_tensor

Message = str | Callable[[str], str] | None

# Relative and absolute tolerance; (0, 0) for every other dtype.
TOLERANCES = {
    dtypes.float16: (1e-3, 1e-5), dtypes.bfloat16: (1.6e-2, 1e-5), dtypes.float32: (1.3e-6, 1e-5), dtypes.float64: (1e-7, 1e-7),
    dtypes.complex64: (1.3e-6, 1e-5), dtypes.complex128: (1e-7, 1e-7),
}  # fmt: skip
OF_NUMBERS = {int: (0.0, 0.0), float: TOLERANCES[dtypes.float64], complex: TOLERANCES[dtypes.complex128]}
OF_ALLCLOSE = {dtypes.float16: (1e-3, 1e-3), dtypes.float32: (1e-4, 1e-5), dtypes.float64: (1e-5, 1e-8)}
DEPRECATED = (
    "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a future release. Please use "
    "`torch.testing.assert_close()` instead. You can find detailed upgrade instructions in https://github.com/pytorch/pytorch/issues/61844."
)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Message = None,
) -> None:
    """Assert that `actual` and `expected` are close: ``|actual - expected| <= atol + rtol * |expected|`` for all elements.

    Both are tensors, arrays, Python numbers, bools or None, or sequences or mappings of such. They must have the same shape and, unless
    switched off, device, layout and dtype; with `check_stride` also the same strides. `rtol` and `atol` are given both or neither: by default
    they depend on the dtype, and are 0 for integers. NaN is close to NaN only with `equal_nan`. `msg` replaces the error's text, or makes one
    of it. Without `allow_subclasses` the types must be the same.

    AssertionError where they are not close; TypeError for what cannot be compared; ValueError for one tolerance without the other;
    RuntimeError for a negative one.
    """
    __tracebackhide__ = True  # pytest shows the test's own line
    if (rtol is None) != (atol is None):
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {'rtol' if rtol is None else 'atol'}.")
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance is not None and tolerance < 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {tolerance}")
    tolerances = None if rtol is None or atol is None else (rtol, atol)
    rules = Rules(allow_subclasses, tolerances, equal_nan, check_device, check_dtype, check_layout, check_stride)
    for where, compare in _pairs(actual, expected, rules, ""):
        text = compare()
        if text is not None:
            raise AssertionError(_worded(text + _suffix(where), msg))


def assert_allclose(actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = True, msg: str = "") -> None:
    """Assert that two tensors, or what becomes a tensor, are close, whatever their dtypes. Deprecated by PyTorch for `assert_close`."""
    warnings.warn(DEPRECATED, FutureWarning, stacklevel=2)
    actual, expected = as_tensor(actual), as_tensor(expected)
    if rtol is None and atol is None:
        rtol, atol = _looser(*(OF_ALLCLOSE.get(t.dtype, (0.0, 0.0)) for t in (actual, expected)))
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg or None)


@dataclass(frozen=True)
class Rules:
    """What `assert_close` was asked to compare, and how strictly."""

    allow_subclasses: bool
    tolerances: tuple[float, float] | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool


def _worded(text: str, msg: Message) -> str:
    return msg(text) if callable(msg) else text if msg is None else msg


def _suffix(where: str) -> str:
    return f"\n\nThe failure occurred for item {where}" if where else ""


def _looser(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return max(a[0], b[0]), max(a[1], b[1])


# ---------------------------------------------------------------------- into pairs


def _pairs(actual: Any, expected: Any, rules: Rules, where: str) -> list[tuple[str, Callable[[], str | None]]]:
    """The comparisons to be made, each with its place. AssertionError where the structures differ, TypeError for an unknown type."""
    if actual is None or expected is None:
        return [(where, lambda: None if actual is expected else f"None mismatch: {actual} is not {expected}")]
    if _both(actual, expected, Sequence) and not _both(actual, expected, str):
        if len(actual) != len(expected):
            raise AssertionError(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}{_suffix(where)}")
        return [pair for i, (a, e) in enumerate(zip(actual, expected, strict=True)) for pair in _pairs(a, e, rules, f"{where}[{i}]")]
    if _both(actual, expected, Mapping):
        if actual.keys() != expected.keys():
            missing, additional = (_ordered(set(x) - set(y)) for x, y in ((expected, actual), (actual, expected)))
            raise AssertionError(
                f"The keys of the mappings do not match:\nMissing keys in the actual mapping: {missing}\n"
                f"Additional keys in the actual mapping: {additional}{_suffix(where)}"
            )
        return [pair for key in _ordered(expected) for pair in _pairs(actual[key], expected[key], rules, f"{where}[{key!r}]")]
    if _both(actual, expected, (bool, np.bool_)):
        return [(where, lambda: None if bool(actual) is bool(expected) else f"Booleans mismatch: {actual} is not {expected}")]
    if _both(actual, expected, (int, float, complex, np.number)) and not any(isinstance(x, bool) for x in (actual, expected)):
        a, e = (x.item() if isinstance(x, np.number) else x for x in (actual, expected))
        return [(where, lambda: _numbers(a, e, rules))]
    related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
    if related and (rules.allow_subclasses or type(actual) is type(expected)):
        first, second = _as_tensor(actual), _as_tensor(expected)
        if first is not None and second is not None:
            return [(where, lambda: _tensors(first, second, rules))]
    raise TypeError(f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.{_suffix(where)}")


def _both(actual: Any, expected: Any, types: Any) -> bool:
    return isinstance(actual, types) and isinstance(expected, types)


def _ordered(keys: Any) -> list[Any]:
    try:
        return sorted(keys)
    except TypeError:  # of several types
        return list(keys)


def _as_tensor(x: Any) -> Tensor | None:
    """`x` as a tensor, None where it cannot be one."""
    if isinstance(x, (str, bytes, type, int, float, complex)):  # numbers are compared as numbers, or not at all
        return None
    try:
        return as_tensor(x)
    except (TypeError, ValueError, RuntimeError):
        return None


# ---------------------------------------------------------------------- pair by pair: what is wrong, or None


def _numbers(actual: Any, expected: Any, rules: Rules) -> str | None:
    if rules.check_dtype and type(actual) is not type(expected):
        return f"The (d)types do not match: {type(actual)} != {type(expected)}."
    kinds = (next(t for t in OF_NUMBERS if isinstance(x, t)) for x in (actual, expected))
    rtol, atol = rules.tolerances or _looser(*(OF_NUMBERS[k] for k in kinds))
    if _close_numbers(actual, expected, rtol, atol, rules.equal_nan):
        return None
    return _scalar_text(actual, expected, rtol, atol)


def _close_numbers(actual: Any, expected: Any, rtol: float, atol: float, equal_nan: bool) -> bool:
    if actual == expected:
        return True
    if cmath.isnan(actual) and cmath.isnan(expected):
        return equal_nan
    return cmath.isfinite(actual) and abs(actual - expected) <= atol + rtol * abs(expected) < float("inf")


def _scalar_text(actual: Any, expected: Any, rtol: float, atol: float) -> str:
    difference = abs(actual - expected)
    relative = float("inf") if expected == 0 else difference / abs(expected)
    allowed = ["", ""] if _exact(rtol, atol) else [f" (up to {x} allowed)" for x in (atol, rtol)]
    return (
        f"Scalars are not {_wanted(rtol, atol)}!\n\nExpected {expected} but got {actual}.\n"
        f"Absolute difference: {difference}{allowed[0]}\nRelative difference: {relative}{allowed[1]}"
    )


def _exact(rtol: float, atol: float) -> bool:
    return rtol == 0 and atol == 0


def _wanted(rtol: float, atol: float) -> str:
    return "equal" if _exact(rtol, atol) else "close"


def _tensors(actual: Tensor, expected: Tensor, rules: Rules) -> str | None:
    for name, checked, a, e in (
        ("shape", True, actual.shape, expected.shape),
        ("layout", rules.check_layout, actual.layout, expected.layout),
        ("stride()", rules.check_stride, actual.stride(), expected.stride()),
        ("device", rules.check_device, actual.device, expected.device),
        ("dtype", rules.check_dtype, actual.dtype, expected.dtype),
    ):
        if checked and a != e:
            return f"The values for attribute '{name}' do not match: {a} != {e}."
    actual, expected = (t.detach().to_dense() for t in (actual, expected))
    rtol, atol = rules.tolerances or _looser(*(TOLERANCES.get(t.dtype, (0.0, 0.0)) for t in (actual, expected)))
    common = promote_types(actual._aval.dtype, expected._aval.dtype)
    a, e = (np.asarray(t.detach()._concrete()).astype(common) for t in (actual, expected))
    with np.errstate(all="ignore"):  # what is not finite has its own rules
        matches = _close(a, e, rtol, atol, rules.equal_nan)
        if bool(np.all(matches)):
            return None
        return _scalar_text(a.item(), e.item(), rtol, atol) if a.ndim == 0 else _elements_text(a, e, matches, rtol, atol)


def _close(a: np.ndarray, e: np.ndarray, rtol: float, atol: float, equal_nan: bool) -> np.ndarray:
    close = a == e
    if not _exact(rtol, atol):
        if a.dtype.kind in "biu":
            a, e = a.astype(np.float64), e.astype(np.float64)
        allowed = atol + np.abs(rtol * e)
        close |= np.isfinite(allowed) & (np.abs(a - e) <= allowed)
    return close | (np.isnan(a) & np.isnan(e)) if equal_nan and a.dtype.kind not in "biu" else close


def _elements_text(a: np.ndarray, e: np.ndarray, matches: np.ndarray, rtol: float, atol: float) -> str:
    integral = a.dtype.kind in "biu"
    if integral:
        a, e = a.astype(np.int64), e.astype(np.int64)
    absolute, size = np.abs(a - e), np.abs(e)
    division = dtypes.default_float() if integral else absolute.dtype
    relative = absolute.astype(division) / size.astype(division)
    lines = [f"Mismatched elements: {np.sum(~matches)} / {matches.size} ({np.mean(~matches):.1%})"]
    for word, differences, tolerance in (("absolute", absolute, atol), ("relative", relative, rtol)):
        differences = np.where(matches, np.zeros((), differences.dtype), differences)
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(differences)), differences.shape))
        allowed = "" if _exact(rtol, atol) else f" (up to {tolerance} allowed)"
        lines.append(f"Greatest {word} difference: {differences[index].item()} at index {index}{allowed}")
    return f"Tensor-likes are not {_wanted(rtol, atol)}!\n\n" + "\n".join(lines)
