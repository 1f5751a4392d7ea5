"""The classes of nodes by their names, a function whose gradient is undefined, and one whose gradient is an error."""

from typing import Any as _Any

from torchgrad_jax.autograd.function import Function as _Function
from torchgrad_jax.autograd.function import FunctionMeta as _FunctionMeta
from torchgrad_jax.core.history import CopySlices
from torchgrad_jax.core.node import AccumulateGrad
from torchgrad_jax.core.node import Node as _Node
from torchgrad_jax.core.op_node import node_class as _node_class
from torchgrad_jax.core.refusal import DelayedError as Error
from torchgrad_jax.core.tensor import Tensor as _Tensor

__all__ = ["AccumulateGrad", "CopySlices", "DelayedError", "Error", "UndefinedGrad"]


class UndefinedGrad(_Node):
    """``UndefinedGrad()(input)`` is `input`, to which backward passes no gradient."""

    def __call__(self, input: _Tensor) -> _Tensor:
        """Apply the function."""
        return _Applied.apply(input)


class DelayedError(_Node):
    """``DelayedError(message, count)(*inputs)`` are the `count` inputs, whose backward raises a RuntimeError with the message."""

    def __init__(self, message: str, count: int) -> None:
        self._message, self._count = message, count

    def __call__(self, *inputs: _Tensor) -> _Any:
        """Apply the function. RuntimeError for another number of inputs."""
        if len(inputs) != self._count:
            raise RuntimeError(f"DelayedError was made for {self._count} inputs, but got {len(inputs)}")
        outs = tuple(Error.outputs(inputs, self._message)) if any(t.requires_grad for t in inputs) else tuple(t.detach() for t in inputs)
        return outs[0] if len(outs) == 1 else outs


_Applied: _Any = _FunctionMeta(
    "UndefinedGrad",
    (_Function,),
    {"forward": staticmethod(lambda ctx, input: input.detach()), "backward": staticmethod(lambda ctx, *grad_outputs: None)},
)


def __getattr__(name: str) -> type[_Node]:
    if "Backward" in name:
        return _node_class(name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
