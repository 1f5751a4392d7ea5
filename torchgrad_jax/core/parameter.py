"""Parameter: a Tensor that a Module owns and an optimizer updates. Operations treat it as the plain Tensor that it is but for its class."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

from torchgrad_jax.core.made import created
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.memory.filled import full_value
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.pickles import in_pickles


class _IsParameter(type):
    """A subclass of Tensor keeps its class as a Parameter: it is one by its mark."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        return cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


class Parameter(Tensor, metaclass=_IsParameter):  # type: ignore[misc] - Tensor has a metaclass for the type checker only
    """`nn.Parameter(data, requires_grad=True)`: a leaf on the memory of `data` (an empty tensor if there is none).

    Where `data` is of a subclass of Tensor, so is the Parameter. RuntimeError where such a class's `detach` gives another class, or where a dtype
    that has no gradients is to require them.
    """

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        if data is None:
            data = created(full_value((0,), 0, dtypes.default_float(), CPU))
        if type(data) is Tensor or type(data) is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)
        made = data.detach().requires_grad_(requires_grad)
        if type(made) is not type(data):
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() returns an instance of the same type, "
                f"but return type {type(made).__name__} was found instead. To use the type as a Parameter, please correct the detach() semantics "
                "defined by its __torch_dispatch__() implementation."
            )
        made._is_param = True
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return "Parameter containing:\n" + Tensor.__repr__(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.data.clone(), self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        parts = (self.data, self.requires_grad, OrderedDict())
        return (_rebuild_with_state, (*parts, copy.copy(vars(self)))) if vars(self) else (_rebuild, parts)


@in_pickles("_rebuild_parameter")
def _rebuild(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Any:
    """A Parameter, as pickles and PyTorch's files have it. It is no instance of a subclass: PyTorch's is none, either."""
    made = Parameter(data, requires_grad)
    for hook in (backward_hooks or {}).values():
        made.register_hook(hook)  # type: ignore[attr-defined] - put onto Tensor by autograd
    return made


@in_pickles("_rebuild_parameter_with_state")
def _rebuild_with_state(data: Tensor, requires_grad: bool, backward_hooks: Any, state: Any) -> Any:
    """A Parameter with attributes."""
    made = _rebuild(data, requires_grad, backward_hooks)
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    vars(made).update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(made, name, value)
    return made
