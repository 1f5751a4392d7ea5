"""Text form of tensors: what ``repr`` prints, and the options that control it.

Nothing here knows about tensors proper: the functions take a NumPy array together with the facts that
only the tensor knows (gradient state, device, data type name) and give back text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

__all__ = ["get_printoptions", "needs_dtype_suffix", "printoptions", "set_printoptions", "tensor_str"]

AUTO = "auto"
"""Value of ``dtype_suffix`` that asks `tensor_str` to decide from the array's own data type."""

# Scientific notation takes over beyond these bounds on the finite, nonzero magnitudes.
_SCI_RATIO = 1000.0
_SCI_LARGE = 1.0e8
_SCI_SMALL = 1.0e-4

_COMPLEX_OF_DEFAULT = {"float64": "complex128"}


@dataclass(frozen=True)
class _PrintOptions:
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: float = 80
    sci_mode: bool | None = None


_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}

_options = _PrintOptions()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: float | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed. Options left as None keep their value, except ``sci_mode``.

    Args:
        precision: digits after the decimal point (4 at first).
        threshold: number of elements above which a tensor is summarised (1000 at first).
        edgeitems: elements shown at each end of a summarised dimension (3 at first).
        linewidth: columns per line (80 at first).
        profile: ``"default"``, ``"short"`` or ``"full"``, applied before the other arguments; a name that
            is none of these is ignored.
        sci_mode: True or False forces scientific notation on or off; None, also when simply not given,
            goes back to deciding from the values.
    """
    global _options
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    changes = dict(_PROFILES.get(profile, {})) if profile is not None else {}
    changes.update({name: value for name, value in given.items() if value is not None})
    _options = replace(_options, **changes, sci_mode=sci_mode)


def get_printoptions() -> dict[str, Any]:
    """Return the current print options as a new dictionary, ready to pass to `set_printoptions`."""
    return asdict(_options)


@contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """Context manager that sets print options as `set_printoptions` does and restores them on exit."""
    global _options
    saved = _options
    set_printoptions(**kwargs)
    try:
        yield
    finally:
        _options = saved


def needs_dtype_suffix(dtype_name: str, default_dtype_name: str, numel: int) -> bool:
    """Whether the data type must be printed because the elements alone do not imply it.

    Names are given with or without the ``torch.`` in front. Without elements only the default floating
    type is implied; with elements also int64, bool and the complex type that goes with the default.
    """
    name = dtype_name.removeprefix("torch.")
    default = default_dtype_name.removeprefix("torch.")
    if numel == 0:
        return name != default
    return name not in (default, _COMPLEX_OF_DEFAULT.get(default, "complex64"), "int64", "bool")


def tensor_str(
    array: np.ndarray,
    *,
    dtype_suffix: str | None = AUTO,
    requires_grad: bool = False,
    grad_fn_name: str | None = None,
    device_suffix: str | None = None,
    tangent: str | None = None,
    prefix: str = "tensor(",
    default_dtype: str = "float32",
    elements: bool = True,
) -> str:
    """Return the text that ``repr`` gives for a tensor with the values of ``array``.

    Args:
        array: the values; bfloat16 and the 8-bit floating types come as ``ml_dtypes`` arrays.
        dtype_suffix: the whole text, such as ``"dtype=torch.float64"``; None prints none, and the default
            decides from ``array.dtype`` and ``default_dtype`` by `needs_dtype_suffix`.
        requires_grad: whether to print ``requires_grad=True`` (not done beside a ``grad_fn``).
        grad_fn_name: class name of the node that produced the tensor, such as ``"MulBackward0"``.
        device_suffix: the whole text, such as ``"device='cuda:0'"``; None prints none.
        tangent: the text of its tangent; None prints none.
        prefix: opening text; the width of its last line is the indentation of the lines that follow.
        default_dtype: name of the default floating type; used only to decide on the data type suffix.
        elements: whether there are any to show; else dots and the shape stand for them.
    """
    options = _options
    array = np.asarray(array)
    indent = len(prefix.rpartition("\n")[2])
    contents, size_shown = _contents(array, indent, options) if elements else ("...", True)
    if dtype_suffix == AUTO:
        name = array.dtype.name
        dtype_suffix = f"dtype=torch.{name}" if needs_dtype_suffix(name, default_dtype, array.size if elements else 0) else None

    suffixes = [device_suffix, f"size={array.shape}" if size_shown else None, dtype_suffix]
    if grad_fn_name is not None:
        suffixes.append(f"grad_fn=<{grad_fn_name}>")
    elif requires_grad:
        suffixes.append("requires_grad=True")
    if tangent is not None:
        suffixes.append(f"tangent={tangent}")
    return _append_suffixes(prefix + contents, [s for s in suffixes if s], indent, options) + ")"


def with_suffixes(text: str, suffixes: Sequence[str], indent: int, apart: bool) -> str:
    """A text that is not closed yet with its suffixes, each on a line of its own where it would not fit. apart: whether the first one is always."""
    return _append_suffixes(text, suffixes, indent, _options, apart)


def _append_suffixes(text: str, suffixes: Sequence[str], indent: int, options: _PrintOptions, apart: bool = False) -> str:
    """Add the suffixes, each moved to a line of its own where it would not fit on the current one; the first one always if `apart`."""
    # PyTorch counts two columns more than the elements take, though not once a suffix has moved.
    column = len(text) - (text.rfind("\n") + 1) + 2
    for suffix in suffixes:
        if apart or column + len(suffix) + 2 > options.linewidth:
            apart = False
            text += ",\n" + " " * indent + suffix
            column = indent + len(suffix)
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text


def _contents(array: np.ndarray, indent: int, options: _PrintOptions) -> tuple[str, bool]:
    """Return the bracketed elements, and whether the shape has to be printed since they do not show it."""
    if array.size == 0:
        return "[]", array.ndim != 1
    summarise = array.size > options.threshold
    if summarise and options.edgeitems == 0 and array.ndim > 0:
        return "[...]", True
    size_shown = options.edgeitems == 0  # PyTorch does so even where nothing is left out
    elided = [summarise and size > 2 * options.edgeitems for size in array.shape]
    if any(elided):
        # Index all dimensions at once, so that only the elements shown are ever copied.
        array = array[np.ix_(*map(_shown_indices, array.shape, elided, [options.edgeitems] * array.ndim))]
    cells, cell_width = _format_cells(array.ravel(), options)
    if array.ndim == 0:
        return cells[0], size_shown
    grid = np.array(cells, dtype=object).reshape(array.shape)
    return _nest(grid, elided, indent, cell_width, options), size_shown


def _shown_indices(size: int, elided: bool, edgeitems: int) -> np.ndarray:
    if not elided:
        return np.arange(size)
    return np.r_[0:edgeitems, size - edgeitems : size]


def _nest(grid: np.ndarray, elided: Sequence[bool], indent: int, cell_width: int, options: _PrintOptions) -> str:
    """Lay out formatted elements in brackets, one line or more per row and blank lines between blocks."""
    if grid.ndim == 1:
        return _row(grid.tolist(), elided[0], indent, cell_width, options)
    parts = [_nest(block, elided[1:], indent + 1, cell_width, options) for block in grid]
    if elided[0]:
        parts.insert(options.edgeitems, "...")
    separator = "," + "\n" * (grid.ndim - 1) + " " * (indent + 1)
    return "[" + separator.join(parts) + "]"


def _row(cells: list[str], elided: bool, indent: int, cell_width: int, options: _PrintOptions) -> str:
    if elided:
        # The extra space sets the ellipsis of a row apart from that of a whole block.
        cells = [*cells[: options.edgeitems], " ...", *cells[options.edgeitems :]]
    per_line = max(1, math.floor((options.linewidth - indent) / (cell_width + 2)))
    lines = [", ".join(cells[start : start + per_line]) for start in range(0, len(cells), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _format_cells(values: np.ndarray, options: _PrintOptions) -> tuple[list[str], int]:
    """Format the elements shown, aligned; return also the width that counts when lines are filled."""
    name = values.dtype.name
    if name.startswith("complex"):
        return _format_complex(values, options)
    if name.startswith(("float", "bfloat")):
        return _format_floats(values.astype(np.float64).tolist(), options)
    texts = [str(value) for value in values.tolist()]
    width = max(map(len, texts))
    return [text.rjust(width) for text in texts], width


def _format_complex(values: Any, options: _PrintOptions) -> tuple[list[str], int]:
    reals, real_width = _format_floats(values.real.astype(np.float64).tolist(), options)
    imags, imag_width = _format_floats(values.imag.astype(np.float64).tolist(), options)
    cells = []
    for real, imag in zip(reals, map(str.strip, imags), strict=True):
        sign = "" if imag.startswith("-") else "+"
        cells.append(f"{real}{sign}{imag}j")
    return cells, real_width + imag_width + 1


def _format_floats(values: list[float], options: _PrintOptions) -> tuple[list[str], int]:
    """Format floating values in one notation; zeros and nonfinite values have no say in it or in the width."""
    deciding = [value for value in values if math.isfinite(value) and value != 0]
    integral = all(value.is_integer() for value in deciding)
    scientific = bool(deciding) and _is_scientific([abs(value) for value in deciding], integral, options)

    if scientific:
        spec, point = f".{options.precision}e", ""
    elif integral:
        spec, point = ".0f", "."
    else:
        spec, point = f".{options.precision}f", ""

    def text(value: float) -> str:
        return format(value, spec) + (point if math.isfinite(value) else "")

    width = max((len(text(value)) for value in deciding), default=1)
    return [text(value).rjust(width) for value in values], width


def _is_scientific(magnitudes: list[float], integral: bool, options: _PrintOptions) -> bool:
    if options.sci_mode is not None:
        return options.sci_mode
    largest, smallest = max(magnitudes), min(magnitudes)
    if largest / smallest > _SCI_RATIO or largest > _SCI_LARGE:
        return True
    return not integral and smallest < _SCI_SMALL
