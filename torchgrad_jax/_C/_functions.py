"""The classes of nodes that are no operator's, and a function whose gradient is undefined."""

from typing import Any

from torchgrad_jax.autograd.function import Function, FunctionMeta
from torchgrad_jax.tensor.tensor import AccumulateGrad, Tensor

__all__ = ["AccumulateGrad", "UndefinedGrad"]


class UndefinedGrad:
    """``UndefinedGrad()(input)`` is `input`, to which backward passes no gradient."""

    def __call__(self, input: Tensor) -> Tensor:
        """Apply the function."""
        return _UndefinedGrad.apply(input)


_UndefinedGrad: Any = FunctionMeta(
    "UndefinedGrad",
    (Function,),
    {"forward": staticmethod(lambda ctx, input: input.detach()), "backward": staticmethod(lambda ctx, *grad_outputs: None)},
)
