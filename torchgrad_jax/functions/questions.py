"""Yes or no questions about tensors and pairs of them, and what answers a plain question about shapes."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.calling.factory_options import check_memory
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.operator import NUMBERS
from torchgrad_jax.functions.conversion import cast
from torchgrad_jax.functions.creation import tensor
from torchgrad_jax.memory import formats
from torchgrad_jax.runtime.device import gpus
from torchgrad_jax.runtime.user_code import warn_user
from torchgrad_jax.runtime.value import Contentless, Lifted


@public("torch", "torch.Tensor")
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero. RuntimeError where it is not the only one."""
    if input._aval.size != 1:
        raise RuntimeError(f"Boolean value of Tensor with {'more than one value' if input._aval.size else 'no values'} is ambiguous")
    return bool(input)


@public("torch")
def _assert_async(input: Tensor, assert_msg: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    """RuntimeError with the message where the only element is zero, or where it is not the only one. A look at the value, as on a CPU in PyTorch."""
    if not isinstance(input, Tensor):
        raise TypeError(f"_assert_async(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    if not isinstance(assert_msg, str):
        raise TypeError(f"_assert_async(): argument 'assert_msg' (position 2) must be str, not {type(assert_msg).__name__}")
    if not is_nonzero(input):
        raise RuntimeError(assert_msg)


@public("torch")
def _is_all_true(input: Tensor) -> Tensor:
    """Whether all elements of a tensor of booleans are true: within `vmap`, whether they are for the whole batch, which may be looked at."""
    return _of_all_batches(input).all()


@public("torch")
def _is_any_true(input: Tensor) -> Tensor:
    """Whether any element of a tensor of booleans is true: within `vmap`, whether one is for any of the batch, which may be looked at."""
    return _of_all_batches(input).any()


def _of_all_batches(t: Tensor) -> Tensor:
    if t.dtype is not dtypes.bool_:
        raise RuntimeError(f"Expected a tensor of booleans, but got one of {t.dtype}")
    value = t._content()
    array = value.array
    return t if not isinstance(array, Lifted) or isinstance(array, Contentless) else wrap(array.innermost())


@public("torch.Tensor._cdata")
@property
def _cdata(self: Tensor) -> int:
    """A number by which this tensor is told from all others that there are."""
    return id(self)


@public("torch")
def _shape_as_tensor(input: Tensor) -> Tensor:
    """The shape as a tensor of integers. TypeError for what is no tensor."""
    if not isinstance(input, Tensor):
        raise TypeError(f"_shape_as_tensor(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    return tensor(input._aval.shape, dtype=dtypes.int64)


@public("torch", "torch.Tensor")
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether the shapes are equal."""
    return input._aval.shape == other._aval.shape


@public("torch.Tensor")
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same part of one memory."""
    return (
        self._storage is not None and self.data_ptr() == tensor.data_ptr()
        and self._aval.shape == tensor._aval.shape and self._strides() == tensor._strides()
    )  # fmt: skip


@public("torch.Tensor.is_shared", "torch.Tensor.is_distributed")
def never(self: Tensor) -> bool:
    """False: there is no such memory here."""
    return False


@public("torch.Tensor")
def share_memory_(self: Tensor) -> Tensor:
    """NotImplementedError: processes have no arrays in common, since JAX's are never written to."""
    raise NotImplementedError(
        "share_memory_(): torchgrad_jax has no tensors that processes share: what one process writes no other would see. Use threads, or send "
        "tensors between processes as NumPy arrays"
    )


@public("torch.Tensor")
def is_pinned(self: Tensor, device: Any = None) -> bool:
    """False, for every `device`: there is no pinned memory here."""
    return False


@public("torch.Tensor")
def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """The tensor itself: JAX cannot pin memory of the host, and copies from ordinary memory to a GPU without waiting. RuntimeError where there is no
    GPU, or the tensor is on one."""
    if device is not None:
        warn_user("The argument 'device' of Tensor.pin_memory() is deprecated. Please do not pass this argument.", DeprecationWarning)
    if not gpus():
        raise RuntimeError("Cannot access accelerator device when none is available.")
    if self.device.type != "cpu":
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
    return self


@public("torch.Tensor")
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor in the dtype of another one."""
    return cast(self, other.dtype)


@public("torch")
def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that all of `shapes` (tuples, or numbers for one dimension) expand to. RuntimeError where there is none."""
    given = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    found: list[int] = [1] * max(map(len, given), default=0)
    for at, shape in enumerate(given):
        for i in range(-1, -1 - len(shape), -1):
            if shape[i] in (1, found[i]):
                continue
            if found[i] != 1:
                raise RuntimeError(
                    f"Attempting to broadcast a dimension of length {shape[i]} at {i}! Mismatching argument at index {at} had {shape}; but expected "
                    f"shape should be broadcastable to {found}"
                )
            found[i] = shape[i]
    return Size(found)


@public("torch")
def get_device(input: Tensor) -> int:
    """The number of the GPU that a tensor is on; -1 where it is on none."""
    return -1 if input._aval.device.type == "cpu" else input._aval.device.index or 0


@public("torch.Tensor")
def dim_order(self: Tensor, *, ambiguity_check: bool | list[Any] = False) -> tuple[int, ...]:
    """The dimensions in the order in which they lie in memory, the outermost first.

    ambiguity_check: whether another order would do as well, where dimensions have size 1 or the same stride, is an error; a list of memory formats
    narrows the question to these. RuntimeError where it is one, TypeError for what is no memory format.
    """
    if not isinstance(ambiguity_check, bool) and not (
        isinstance(ambiguity_check, (list, tuple)) and all(isinstance(f, formats.memory_format) for f in ambiguity_check)
    ):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    strides, shape = self._strides(), self._aval.shape
    found = tuple(sorted(range(len(shape)), key=lambda d: -strides[d]))
    if ambiguity_check is True and _has_several_orders(strides, shape):
        raise RuntimeError(_AMBIGUOUS)
    if isinstance(ambiguity_check, (list, tuple)):
        fitting = [f for f in ambiguity_check if formats.lies_in(shape, strides, f)]
        if len(fitting) > 1 or not fitting:
            raise RuntimeError(_AMBIGUOUS)
        return fitting[0].order(len(shape))
    return found


_AMBIGUOUS = "The tensor does not have unique dim order, or cannot map to exact one of the given memory formats."


def _has_several_orders(strides: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return any(n == 1 for n in shape) or len(set(strides)) < len(strides)


@public("torch")
def typename(obj: Any, /) -> str:
    """The type of an object as text: of tensors that of `Tensor.type`, of classes and functions their own name."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(kind, "__module__", None)
    name = kind.__qualname__
    return name if module in (None, "builtins") else f"{module}.{name}"


@public("torch")
def scalar_tensor(
    s: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, requires_grad: bool = False
) -> Tensor:
    """A 0-dim tensor of the default dtype. TypeError for what is no number."""
    check_memory("scalar_tensor", {"layout": layout, "pin_memory": pin_memory})
    if not isinstance(s, NUMBERS):
        raise TypeError(f"scalar_tensor(): argument 's' (position 1) must be Number, not {type(s).__name__}")
    return tensor(s, dtype=dtype or dtypes.get_default_dtype(), device=device, requires_grad=requires_grad)


for _attribute in (Tensor.is_signed, Tensor.numel, Tensor.is_floating_point, Tensor.is_complex):
    public("torch")(_attribute)


@public("torch.Tensor")
def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """The tensor itself, since all are dense, or in another dtype."""
    return self if dtype is None or dtype is self.dtype else cast(self, dtype)


@public("torch.Tensor")
def sparse_dim(self: Tensor) -> int:
    """0: no dimension is sparse."""
    return 0


@public("torch.Tensor")
def dense_dim(self: Tensor) -> int:
    """The number of dimensions: all are dense."""
    return self._aval.ndim


def _of_sparse(name: str, layout: str) -> None:
    def refuse(self: Tensor) -> Any:
        raise RuntimeError(f"{name} expected {layout} tensor layout but got Strided")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"RuntimeError, always: this is asked of tensors of a {layout} layout."
    public("torch.Tensor")(refuse)


for _name in ("coalesce", "is_coalesced", "indices"):
    _of_sparse(_name, "sparse coordinate")
_of_sparse("values", "sparse")
for _name in ("crow_indices", "col_indices"):
    _of_sparse(_name, "sparse row compressed")
for _name in ("ccol_indices", "row_indices"):
    _of_sparse(_name, "sparse column compressed")
