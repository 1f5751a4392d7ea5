"""`torch.nn.parameter`: Parameter and Buffer, those whose shape is not known yet, and the factories by which modules make what they hold."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.calling.overrides import guarded
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.replacing import set_data
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions import creation
from torchgrad_jax.nn.modules.registry import Buffer

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "UninitializedTensorMixin", "is_lazy"]

# The factories that users call, not implementations: modes are asked about what a module consists of, as in PyTorch, which is how one is made on
# another device or with another dtype.
_factories: Any = guarded("torch", {name: getattr(creation, name) for name in ("empty", "ones", "tensor", "zeros")})
empty, ones, tensor, zeros = (_factories[name] for name in ("empty", "ones", "tensor", "zeros"))

_NO_SHAPE = (
    "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` when trying to load an "
    "uninitialized parameter into an initialized one. Call `forward` to initialize the parameters before accessing their attributes."
)
_NOT_SHARED = (
    "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters before calling `module.share_memory()`."
)
_USED = (
    "Attempted to use an uninitialized parameter in {}. This error happens when you are using a `LazyModule` or explicitly manipulating "
    "`torch.nn.parameter.{}` objects. When using LazyModules Call `forward` with a dummy batch to initialize the parameters before calling torch "
    "functions"
)
# What says nothing of elements, and what converts or moves.
_ALLOWED = frozenset((
    "__hash__", "size", "copy_", "is_complex", "is_floating_point", "half", "float", "double", "char", "short", "int", "long", "cuda", "cpu", "to",
    "get_device",
))  # fmt: skip
_ATTRIBUTES = frozenset(("__get__", "__set__", "__delete__"))


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """The device, dtype and memory_format among the arguments of a module, as arguments for `torch.empty` and its kin. TypeError for others, and for
    what is given both here and in an argument `factory_kwargs`."""
    if kwargs is None:
        return {}
    unexpected = kwargs.keys() - {"device", "dtype", "memory_format", "factory_kwargs"}
    if unexpected:
        raise TypeError(f"unexpected kwargs {unexpected}")
    made = dict(kwargs.get("factory_kwargs", {}))
    for name in ("device", "dtype", "memory_format"):
        if name in kwargs:
            if name in made:
                raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
            made[name] = kwargs[name]
    return made


def is_lazy(param: Any) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedTensorMixin:
    """What a tensor without a shape can do: tell its dtype and device, change them, and become a tensor."""

    cls_to_become: type

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become a tensor of this shape, whose content is arbitrary."""
        data: Any = self.data  # type: ignore[attr-defined] - a tensor's
        set_data(self, empty(shape, device=device or data.device, dtype=dtype or data.dtype))  # type: ignore[arg-type] - a tensor
        self.__class__ = self.cls_to_become

    @property
    def shape(self) -> Any:
        """RuntimeError."""
        raise RuntimeError(_NO_SHAPE)

    def share_memory_(self) -> Any:
        """RuntimeError."""
        raise RuntimeError(_NOT_SHARED)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.requires_grad,)  # type: ignore[attr-defined] - a tensor's

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _ALLOWED or name in _ATTRIBUTES:
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[misc] - a tensor's
        raise ValueError(_USED.format(func, cls.__name__))


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A Parameter whose shape is not known yet: `materialize` gives it one. Before that, what asks for elements is a ValueError, for the shape a
    RuntimeError."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return Tensor._make_subclass(cls, empty(0, device=device, dtype=dtype), requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.data.device, self.data.dtype)
        return memo[id(self)]


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """As UninitializedParameter, for a buffer."""

    cls_to_become = Tensor

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True) -> Any:
        made = Tensor._make_subclass(cls, empty(0, device=device, dtype=dtype), requires_grad)
        made.persistent, made._is_buffer = persistent, True
        return made
