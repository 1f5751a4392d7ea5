"""Activation functions: functions of `nn.functional` with their options kept."""

from __future__ import annotations

from typing import ClassVar

import torchgrad_jax.nn.functional as F
import torchgrad_jax.nn.init as init
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.modules.multihead import MultiheadAttention
from torchgrad_jax.nn.parameter import empty
from torchgrad_jax.runtime.user_code import warn_user

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish",
    "MultiheadAttention", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus",
    "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


class _Activation(Module):
    """What has options, named in `__constants__`, and shows them: `inplace` where it is set."""

    __constants__: ClassVar[list[str]] = []

    def extra_repr(self) -> str:
        """See Module."""
        options = {name: getattr(self, name) for name in self.__constants__}
        shown = [f"{name}={value!r}" for name, value in options.items() if name != "inplace"]
        return ", ".join([*shown, "inplace=True"] if options.get("inplace") else shown)


class _OnlyInplace(_Activation):
    """An activation whose one option is whether it writes into its input."""

    __constants__ = ["inplace"]

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


# ---------------------------------------------------------------------- clipped and piecewise linear


class ReLU(_OnlyInplace):
    """max(input, 0)."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.relu`."""
        return F.relu(input, inplace=self.inplace)


class Hardtanh(_Activation):
    """The input, kept between min_val and max_val, which were once called min_value and max_value. AssertionError where they are in the wrong
    order."""

    __constants__ = ["min_val", "max_val", "inplace"]

    def __init__(
        self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False, min_value: float | None = None, max_value: float | None = None
    ) -> None:
        super().__init__()
        if min_value is not None:
            warn_user("keyword argument `min_value` is deprecated and renamed to `min_val`", FutureWarning)
            min_val = min_value
        if max_value is not None:
            warn_user("keyword argument `max_value` is deprecated and renamed to `max_val`", FutureWarning)
            max_val = max_value
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace
        if self.max_val <= self.min_val:
            raise AssertionError(f"max_val ({self.max_val}) must be greater than min_val ({self.min_val})")

    def forward(self, input: Tensor) -> Tensor:
        """See `F.hardtanh`."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)


class ReLU6(Hardtanh):
    """The input, kept between 0 and 6."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        """See Module."""
        return "inplace=True" if self.inplace else ""


class Threshold(_Activation):
    """The input where it is above threshold, else value."""

    __constants__ = ["threshold", "value", "inplace"]

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Tensor) -> Tensor:
        """See `F.threshold`."""
        return F.threshold(input, self.threshold, self.value, self.inplace)


class LeakyReLU(_Activation):
    """The input where positive, else negative_slope * input."""

    __constants__ = ["inplace", "negative_slope"]

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Tensor) -> Tensor:
        """See `F.leaky_relu`."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)


class RReLU(_Activation):
    """Leaky relu; in training the slope of each negative element is drawn from [lower, upper]."""

    __constants__ = ["lower", "upper", "inplace"]

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        """See `F.rrelu`."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class PReLU(Module):
    """The input where positive, else weight * input. weight: (num_parameters,), one for all or one for each channel; `init` to begin with."""

    __constants__ = ["num_parameters"]

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: object = None, dtype: object = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weights to what they were to begin with."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """See `F.prelu`."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """See Module."""
        return f"num_parameters={self.num_parameters}"


class _Shrink(Module):
    """What shrinks by `lambd`."""

    __constants__ = ["lambd"]

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        """See Module."""
        return str(self.lambd)


class Hardshrink(_Shrink):
    """The input where its magnitude is above lambd, else 0."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.hardshrink`."""
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """The input brought lambd nearer to 0, and 0 where it is nearer than that."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.softshrink`."""
        return F.softshrink(input, self.lambd)


class Tanhshrink(Module):
    """input - tanh(input)."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.tanhshrink`."""
        return F.tanhshrink(input)


class _Unshown(_OnlyInplace):
    """An activation that PyTorch shows without its option."""

    def extra_repr(self) -> str:
        """See Module."""
        return ""


class Hardsigmoid(_Unshown):
    """relu6(input + 3) / 6."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.hardsigmoid`."""
        return F.hardsigmoid(input, self.inplace)


class Hardswish(_Unshown):
    """input * relu6(input + 3) / 6."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.hardswish`."""
        return F.hardswish(input, self.inplace)


# ---------------------------------------------------------------------- exponential


class ELU(_Activation):
    """The input where positive, else alpha * (exp(input) - 1)."""

    __constants__ = ["alpha", "inplace"]

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        """See `F.elu`."""
        return F.elu(input, self.alpha, self.inplace)


class CELU(_Activation):
    """The input where positive, else alpha * (exp(input / alpha) - 1)."""

    __constants__ = ["alpha", "inplace"]

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        """See `F.celu`."""
        return F.celu(input, self.alpha, self.inplace)


class SELU(_OnlyInplace):
    """ELU with the constants of self-normalizing networks (Klambauer et al. 2017)."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.selu`."""
        return F.selu(input, self.inplace)


class SiLU(_OnlyInplace):
    """input * sigmoid(input)."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.silu`."""
        return F.silu(input, inplace=self.inplace)


class Mish(_OnlyInplace):
    """input * tanh(softplus(input))."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.mish`."""
        return F.mish(input, inplace=self.inplace)


class GELU(_Activation):
    """input times the normal distribution function of it."""

    __constants__ = ["approximate"]

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """See `F.gelu`."""
        return F.gelu(input, approximate=self.approximate)


class Softplus(_Activation):
    """log(1 + exp(beta * input)) / beta; the input itself where beta * input is above threshold."""

    __constants__ = ["beta", "threshold"]

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        """See `F.softplus`."""
        return F.softplus(input, self.beta, self.threshold)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """See `torch.tanh`."""
        return input.tanh()


class Sigmoid(Module):
    """1 / (1 + exp(-input))."""

    def forward(self, input: Tensor) -> Tensor:
        """See `torch.sigmoid`."""
        return input.sigmoid()


class LogSigmoid(Module):
    """log(sigmoid(input))."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.logsigmoid`."""
        return F.logsigmoid(input)


class Softsign(Module):
    """input / (1 + abs(input))."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.softsign`."""
        return F.softsign(input)


# ---------------------------------------------------------------------- along a dimension


class GLU(_Activation):
    """The first half of `dim` times the sigmoid of the second half."""

    __constants__ = ["dim"]

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """See `F.glu`."""
        return F.glu(input, self.dim)


class _AlongClasses(_Activation):
    """A softmax along `dim`; None, which warns, for the dimension that its number of dimensions suggests."""

    __constants__ = ["dim"]

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim


class Softmax(_AlongClasses):
    """exp(input) over its sum along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.softmax`."""
        return F.softmax(input, self.dim, _stacklevel=5)


class Softmin(_AlongClasses):
    """Softmax of -input along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.softmin`."""
        return F.softmin(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongClasses):
    """The logarithm of the softmax along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.log_softmax`."""
        return F.log_softmax(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """Softmax over the channels of images (N, C, H, W) or (C, H, W). ValueError for another number of dimensions."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.softmax`."""
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3, _stacklevel=5)
