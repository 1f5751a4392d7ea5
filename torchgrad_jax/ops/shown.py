"""What PyTorch's nodes show as ``grad_fn._saved_*`` though no derivative of ours needs it: arguments of the operation, shapes of its operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torchgrad_jax.ops.declare import BoundOperator
from torchgrad_jax.runtime.operation import Signature
from torchgrad_jax.runtime.value import Aval

# By operator: names of arguments, of shapes (`X_sym_sizes`, `X_sym_numel`), or ``name=constant``.
_SHAPE, _PART = "self_sym_sizes", "offset dim1 dim2"
_NAMES = {
    "sum": _SHAPE, "mean": f"{_SHAPE} self_sym_numel", "sum_dim": f"dim keepdim {_SHAPE}", "mean_dim": f"dim keepdim {_SHAPE} self_sym_numel",
    "prod_dim": "dim keepdim", "cumprod": "dim", "logcumsumexp": "dim", "trace": _SHAPE,
    "add": "alpha=1", "sub": "alpha=1", "rsub": "alpha=1",
    "view": _SHAPE, "_unsafe_view": _SHAPE, "_reshape_alias": _SHAPE, "expand": _SHAPE,
    "squeeze": _SHAPE, "squeeze_dim": _SHAPE, "squeeze_dims": _SHAPE, "unsqueeze": "dim",
    "permute": "dims", "transpose": "dim0 dim1", "flip": "dims", "roll": "shifts dims", "rot90": "k dims", "repeat": f"repeats {_SHAPE}",
    "select": f"dim {_SHAPE}", "slice": f"dim step {_SHAPE}", "diagonal": f"{_PART} {_SHAPE}",
    "unfold": f"dimension size step {_SHAPE}", "as_strided": "size stride storage_offset", "as_strided_scatter": "size stride storage_offset",
    "diag_embed": _PART, "tril": "diagonal", "triu": "diagonal",
    "unbind": "dim", "split": f"dim split_size {_SHAPE}", "split_with_sizes": f"dim split_sizes {_SHAPE}",
    "unsafe_split": f"dim split_size {_SHAPE}", "unsafe_split_with_sizes": f"dim split_sizes {_SHAPE}", "cat": "dim", "_stack": "dim",
    "select_scatter": "dim", "slice_scatter": "dim step", "diagonal_scatter": _PART,
    "index": _SHAPE, "index_select": f"dim {_SHAPE}", "index_put": "accumulate", "gather": "dim sparse_grad=False",
    "masked_scatter": "source_sym_sizes", "mm": f"{_SHAPE} mat2_sym_sizes", "addmm": "mat1_sym_sizes mat2_sym_sizes",
    "linear_addmm": "mat1_sym_sizes mat2_sym_sizes alpha=1 beta=1", "div_rounded": "rounding_mode",
    "_div_unrounded": "rounding_mode=None",
    "convolution": "output_padding bias_sym_sizes_opt", "pixel_shuffle": "upscale_factor",
    "im2col": "kernel_size dilation padding stride self_sym_argsize_minus_1 self_sym_argsize_minus_2",
    "addbmm": "batch1_sym_argsize_0 batch1_sym_argsize_1 batch2_sym_argsize_2",
    "_avg_pool2d": "kernel_size padding ceil_mode count_include_pad divisor_override",
    "multi_margin_loss": "p margin weight reduction", "multilabel_margin_loss": "reduction",
    "native_batch_norm": "eps training=True running_mean=None running_var=None", "native_batch_norm_eval": "eps training=False",
    "native_group_norm": "eps", "pdist": "p", "_cdist": "p", "embedding": "sparse=False weight_sym_argsize_0",
}  # fmt: skip
for _modes, _scales in (
    ("nearest1d nearest_exact1d linear1d", "scales"),
    ("nearest2d nearest_exact2d bilinear2d bicubic2d", "scales_h scales_w"),
    ("nearest3d nearest_exact3d trilinear3d", "scales_d scales_h scales_w"),
):
    for _mode in _modes.split():
        _NAMES[f"_upsample_{_mode}"] = f"output_size {_scales} {_SHAPE}" + ("" if _mode.startswith("nearest") else " align_corners")
_CONSTANTS = {"True": True, "False": False, "None": None, "1": 1}
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def names_shown(bound: BoundOperator) -> list[str]:
    """The names beyond those that formulas ask for."""
    return [entry.partition("=")[0] for entry in _entries(bound)]


def _entries(bound: BoundOperator) -> list[str]:
    name = bound.operator.name.removesuffix("_checked")
    return (_NAMES.get(name) or _NAMES.get(name.removesuffix("_copy"), "")).split()


def shown_value(sig: Signature, name: str) -> Any:
    """An argument of the operation, or the shape of an operand, by its name. PyTorch's integers have no sign here."""
    bound: Any = sig.bop
    constants = dict(entry.split("=") for entry in _entries(bound) if "=" in entry)
    if name in constants:
        return _CONSTANTS[constants[name]]
    if name in bound.statics and name not in _DERIVED:
        kind, value = bound.operator.schema.by_name[name].type, bound.statics[name]
        return _REDUCTIONS[value] if name == "reduction" else _unsigned(value) if kind.startswith("int") else value
    if name in _DERIVED:
        argument, derive = _DERIVED[name]
        given = bound.statics[argument]
        return None if given is None else derive(given)
    return _from_shape(sizes(sig), *name.split("_sym_"))


# By name: the argument that an attribute is made from, and how, unless that is None.
_DERIVED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "split_size": ("parts", lambda parts: parts[0][1]),
    "split_sizes": ("parts", lambda parts: tuple(length for _, length in parts)),
    "scales": ("scales", lambda factors: factors[0]),
    "scales_d": ("scales", lambda factors: factors[-3]),
    "scales_h": ("scales", lambda factors: factors[-2]),
    "scales_w": ("scales", lambda factors: factors[-1]),
}


def _unsigned(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_unsigned, value))
    return value + (1 << 64) if isinstance(value, int) and value < 0 else value


def _from_shape(shapes: dict[str, tuple[int, ...]], operand: str, what: str = "") -> Any:
    """``sizes``, ``numel``, ``argsize_1`` or ``argsize_minus_1`` of an operand; ``sizes_opt`` of one that may be missing. None for anything else."""
    shape = shapes.get(f"{operand}_sym_sizes")
    if what == "sizes_opt":
        return (0,) if shape is None else shape
    if shape is None or not what:
        return None
    if what.startswith("argsize_"):
        return shape[int(what.removeprefix("argsize_").replace("minus_", "-"))]
    return math.prod(shape) if what == "numel" else shape


def sizes(sig: Signature) -> dict[str, tuple[int, ...]]:
    """The operands' shapes, by the names under which formulas ask for them: a formula that needs no more saves no more."""
    bound: Any = sig.bop
    return {f"{n}_sym_sizes": spec.shape for n, spec in zip(bound.names, sig.specs, strict=True) if isinstance(spec, Aval)}
