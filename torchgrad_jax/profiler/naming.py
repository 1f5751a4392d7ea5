"""What PyTorch calls the operations that a profile sees, and the shapes of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from typing import Any

from torchgrad_jax._ops import overload_of
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.value import Value

_SPACES = {"torch.linalg": "linalg_", "torch.special": "special_", "torch.fft": "fft_"}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Functions of PyTorch's that are written in Python, whose operations are seen one by one, and questions that are no operations.
_NO_OPERATION = _words("""
    backward grad register_hook register_post_accumulate_grad_hook retain_grad requires_grad_ as_subclass is_shared share_memory_ data_ptr storage
    untyped_storage element_size size dim ndimension nelement numel stride storage_offset is_contiguous is_complex is_floating_point is_signed is_conj
    is_neg is_inference is_tensor is_nonzero_ type_as_ get_device is_set_to is_same_size has_names names apply_ map_ map2_ tolist numpy new type
    result_type can_cast promote_types broadcast_shapes _is_view _guarded set_ make_dual unpack_dual gradcheck lu unique jit
    __array__ __array_wrap__ __deepcopy__ __dlpack__ __dlpack_device__ __format__ __len__ __reduce_ex__ __repr__ __reversed__ __getitem__ __setitem__
    __contains__ __iter__ __hash__ __index__ __dir__ __complex__ to_dlpack from_dlpack from_numpy asarray
    adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices affine_grid dropout1d dropout2d dropout3d
    gaussian_nll_loss grid_sample gumbel_softmax interpolate local_response_norm lp_pool1d lp_pool2d lp_pool3d multi_head_attention_forward
    multilabel_soft_margin_loss normalize softmin softsign tanhshrink triplet_margin_with_distance_loss upsample upsample_bilinear
    upsample_nearest
""")
# Names that PyTorch's operators have not.
_OTHERWISE = {
    "cross_entropy": "cross_entropy_loss", "logsigmoid": "log_sigmoid", "nll_loss": "nll_loss_nd", "kl_div": "kl_div", "__bool__": "is_nonzero",
    "__float__": "item", "__int__": "item", "__eq__": "eq", "__invert__": "bitwise_not", "__pow__": "pow", "__rpow__": "pow", "__ipow__": "pow_",
    "__floordiv__": "floor_divide", "__rfloordiv__": "floor_divide", "__rsub__": "rsub", "__rtruediv__": "div", "__rdiv__": "div",
    "__rmatmul__": "matmul", "__rmod__": "remainder", "__pos__": "positive", "__truediv__": "div", "__mod__": "remainder", "__neg__": "neg",
    "__abs__": "abs", "__and__": "__and__", "tensor": "lift_fresh", "as_tensor": "lift_fresh", "new_tensor": "lift_fresh", "fold": "col2im",
    "T.__get__": "numpy_T", "mT.__get__": "mT", "H.__get__": "matrix_H", "mH.__get__": "mH", "real.__get__": "real", "imag.__get__": "imag",
}  # fmt: skip
_OTHERWISE |= dict.fromkeys(_words("bfloat16 bool byte cdouble cfloat char double float half int long short cpu cuda"), "to")


@cache
def call_name(dotted: str) -> str | None:
    """What a public function is in a profile, ``aten::mul`` for ``torch.Tensor.__mul__``. None for those whose operations are seen one by one."""
    space, _, name = dotted.rpartition(".")
    if name.endswith("__") and name.startswith(("__get", "__set", "__del")) and "Tensor." in space:
        space, _, attribute = space.rpartition(".")
        name = f"{attribute}.{name}"
        return f"aten::{_OTHERWISE[name]}" if name in _OTHERWISE else None
    if name in _NO_OPERATION or space in ("torch.autograd", "torch.autograd.forward_ad"):
        return None
    if name in _OTHERWISE and not name.startswith("__and"):
        return f"aten::{_OTHERWISE[name]}"
    if name.startswith("__") and name.endswith("__"):
        bare = name[2:-2]
        if bare.startswith("i") and bare[1:] in _BINARY:
            return f"aten::{_BINARY[bare[1:]]}_"
        if bare.startswith("r") and bare[1:] in _BINARY:
            return f"aten::{_BINARY[bare[1:]]}"
        return f"aten::{_BINARY.get(bare, name)}"
    return f"aten::{_SPACES.get(space, '')}{name}"


_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "div": "div", "matmul": "matmul", "and": "__and__", "or": "__or__", "xor": "__xor__",
    "lshift": "__lshift__", "rshift": "__rshift__", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "ne": "ne", "mod": "remainder",
    "floordiv": "floor_divide",
}  # fmt: skip


# ATen's names where neither a declaration's nor its node's says them.
_OPERATIONS = {"aten::linear_addmm": "aten::addmm"}
_CONSTANTS = {0: "aten::zeros", 1: "aten::ones"}


def operation_name(bound: Any) -> str:
    """What an operation that runs is in a profile: the operator's name in ATen; of a derivative that of its node."""
    found = overload_of(bound)
    if found is None:
        return bound.name
    name = f"aten::{found.packet.__name__}"
    if name == "aten::constant":
        return _CONSTANTS[bound.statics["fill_value"]]
    return _OPERATIONS.get(name, name)


def shapes_of(values: Sequence[Any]) -> list[list[int]]:
    """The shapes of Tensors or Values; empty for what is neither."""
    return [list(v._aval.shape) if isinstance(v, Tensor) else list(v.aval.shape) if type(v) is Value else [] for v in values]


@cache
def _parameters(func: Any) -> tuple[str, ...]:
    try:
        return tuple(name for name in inspect.signature(func).parameters if name != "out")
    except (TypeError, ValueError):
        return ()


def call_shapes(public: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[list[int]], list[Any]]:
    """The shapes of a call's arguments, in the order of the parameters, and those that are no tensors as they are."""
    names = _parameters(public.func) if not public.name.endswith("__") else ()
    given: list[Any] = list(args)
    places = len(names)
    numbers = [type(a) is int for a in given]
    first = 0 if all(numbers) else 1
    if places and len(given) > first + 1 and all(numbers[first:]) and _takes_sizes(names, first):
        given[first:] = [given[first:]]  # a size as several numbers
    for name in names[len(given) :]:
        given.append(kwargs.get(name))
    return shapes_of(given), [a if _is_plain(a) else None for a in given]


def _takes_sizes(names: tuple[str, ...], place: int) -> bool:
    return len(names) > place and names[place] in ("size", "shape", "dims", "sizes", "repeats")


def _is_plain(value: Any) -> bool:
    """Whether an argument is kept as it is: numbers, words, dtypes and the like, and short sequences of numbers. Nothing that holds memory."""
    if isinstance(value, (list, tuple)):
        return len(value) <= 16 and all([isinstance(v, (int, float, complex)) for v in value])
    return not isinstance(value, (Tensor, dict)) and (isinstance(value, (int, float, complex, str)) or hasattr(value, "itemsize"))
