"""The classes of nodes by their names, and a function whose gradient is undefined."""

from typing import Any as _Any

from torchgrad_jax.autograd.function import Function as _Function
from torchgrad_jax.autograd.function import FunctionMeta as _FunctionMeta
from torchgrad_jax.tensor.inplace import CopySlices
from torchgrad_jax.tensor.node import Node as _Node
from torchgrad_jax.tensor.node import node_class as _node_class
from torchgrad_jax.tensor.tensor import AccumulateGrad
from torchgrad_jax.tensor.tensor import Tensor as _Tensor

__all__ = ["AccumulateGrad", "CopySlices", "UndefinedGrad"]


class UndefinedGrad(_Node):
    """``UndefinedGrad()(input)`` is `input`, to which backward passes no gradient."""

    def __call__(self, input: _Tensor) -> _Tensor:
        """Apply the function."""
        return _Applied.apply(input)


_Applied: _Any = _FunctionMeta(
    "UndefinedGrad",
    (_Function,),
    {"forward": staticmethod(lambda ctx, input: input.detach()), "backward": staticmethod(lambda ctx, *grad_outputs: None)},
)


def __getattr__(name: str) -> type[_Node]:
    if "Backward" in name:
        return _node_class(name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
