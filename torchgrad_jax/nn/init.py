"""`torch.nn.init`: initial contents of parameters. The same seed gives PyTorch's numbers. All write in place, without a graph, and return the
tensor.

Packages build initializers of their own on those that begin with `_no_grad_`, which have PyTorch's names.

As in PyTorch modes and subclasses are asked about four of them, by which modules fill most of their parameters: a mode that leaves these out is how
a module is made without being filled. Of the others they are asked about what these call.
"""

from __future__ import annotations

import math
from typing import Any

from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.calling.for_users import handle_torch_function, has_torch_function_unary, make_known
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import eye as identity
from torchgrad_jax.functions.matrices.decompositions import linalg_qr
from torchgrad_jax.functions.random_factories import randperm
from torchgrad_jax.runtime.user_code import warn_user

__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_", "orthogonal_", "sparse_",
    "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_", "uniform", "normal", "constant", "eye", "dirac", "xavier_uniform",
    "xavier_normal", "kaiming_uniform", "kaiming_normal", "orthogonal", "sparse",
]  # fmt: skip

_PLAIN = "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid"
_GAINS: dict[str, float] = {name: 1 for name in _PLAIN}
_GAINS |= {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """How much to widen initial weights before this nonlinearity; param: the slope of "leaky_relu". ValueError for others."""
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    if nonlinearity != "leaky_relu":
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    if param is None:
        param = 0.01
    elif isinstance(param, bool) or not isinstance(param, (int, float)):
        raise ValueError(f"negative_slope {param} not a valid number")
    return math.sqrt(2.0 / (1 + param**2))


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """From how many inputs an output is computed, and how many outputs an input goes into. ValueError below two dimensions."""
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform numbers of [a, b)."""
    if has_torch_function_unary(tensor):
        return handle_torch_function(uniform_, (tensor,), tensor=tensor, a=a, b=b, generator=generator)
    return _no_grad_uniform_(tensor, a, b, generator)


def _no_grad_uniform_(tensor: Tensor, a: float, b: float, generator: Any = None) -> Tensor:
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal numbers."""
    if has_torch_function_unary(tensor):
        return handle_torch_function(normal_, (tensor,), tensor=tensor, mean=mean, std=std, generator=generator)
    return _no_grad_normal_(tensor, mean, std, generator)


def _no_grad_normal_(tensor: Tensor, mean: float, std: float, generator: Any = None) -> Tensor:
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One number everywhere."""
    if has_torch_function_unary(tensor):
        return handle_torch_function(constant_, (tensor,), tensor=tensor, val=val)
    return _no_grad_fill_(tensor, val)


def _no_grad_fill_(tensor: Tensor, val: float) -> Tensor:
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return _no_grad_fill_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return _no_grad_zero_(tensor)


def _no_grad_zero_(tensor: Tensor) -> Tensor:
    with no_grad():
        return tensor.zero_()


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Glorot's uniform numbers: of the variance gain² · 2 / (fan_in + fan_out)."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    bound = math.sqrt(3.0) * (gain * math.sqrt(2.0 / float(fan_in + fan_out)))
    return _no_grad_uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Glorot's normal numbers: of the variance gain² · 2 / (fan_in + fan_out)."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return _no_grad_normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(fan_in + fan_out)), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float | None:
    if 0 in tensor.shape:
        warn_user("Initializing zero-element tensors is a no-op", UserWarning)
        return None
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """He's uniform numbers: of the variance gain² / fan."""
    if has_torch_function_unary(tensor):
        return handle_torch_function(
            kaiming_uniform_, (tensor,), tensor=tensor, a=a, mode=mode, nonlinearity=nonlinearity, generator=generator
        )  # fmt: skip
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3.0) * std
    return _no_grad_uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """He's normal numbers: of the variance gain² / fan."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else _no_grad_normal_(tensor, 0.0, std, generator)


def _normal_distribution(x: float) -> float:
    return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None) -> Tensor:
    """Normal numbers of [a, b]. Warns where the mean is far outside."""
    return _no_grad_trunc_normal_(tensor, mean, std, a, b, generator)


def _no_grad_trunc_normal_(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any = None) -> Tensor:
    if mean < a - 2 * std or mean > b + 2 * std:
        warn_user("mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be incorrect.", UserWarning)
    low, high = (a - mean) / std, (b - mean) / std
    likely = _normal_distribution(high) - _normal_distribution(low) > 0.3
    with no_grad():
        # All numbers are drawn in each round, and those that are still missing taken from it.
        found, missing = _candidates(tensor, mean, std, a, b, low, high, likely, generator)
        while bool(missing.any()):
            again, refused = _candidates(tensor, mean, std, a, b, low, high, likely, generator)
            found, missing = again.where(missing, found), missing & refused
        return tensor.copy_(found)


def _candidates(
    like: Tensor, mean: float, std: float, a: float, b: float, low: float, high: float, likely: bool, generator: Any
) -> tuple[Tensor, Tensor]:
    """Numbers, and which of them are to be refused: where [a, b] is likely normal ones outside of it, else uniform ones of it by their
    density (Robert, Statistics and Computing 5, 1995)."""
    made: Tensor = like.detach().clone()
    if likely:
        made = made.normal_(mean, std, generator=generator)
        return made, (made < a) | (made > b)
    made = made.uniform_(low, high, generator=generator)
    chance = like.detach().clone().uniform_(generator=generator)
    densest = low if low > 0 else high if high < 0 else 0.0
    return made * std + mean, chance > ((densest * densest - made * made) / 2).exp()


def _expect_dimensions(tensor: Tensor, allowed: tuple[int, ...], said: str) -> None:
    if tensor.dim() not in allowed:
        raise ValueError(f"Only tensors with {said} dimensions are supported")


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Rows, or columns if they are fewer, that are orthonormal (Saxe et al. 2013), times gain. ValueError below two dimensions."""
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if not tensor.numel():
        return tensor
    rows = tensor.shape[0]
    with no_grad():
        drawn = tensor.new_empty((rows, tensor.numel() // rows)).normal_(0, 1, generator=generator)
        wide = rows < drawn.shape[1]
        q, r = linalg_qr(drawn.t() if wide else drawn)
        q = q * r.diagonal().sign()
        return tensor.copy_((q.t() if wide else q).reshape(tensor.shape) * gain)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal numbers, in each column a share `sparsity` of them replaced by zero. ValueError unless there are two dimensions."""
    _expect_dimensions(tensor, (2,), "2")
    rows, columns = tensor.shape
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            tensor[randperm(rows)[: math.ceil(sparsity * rows)], column] = 0
    return tensor


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix. ValueError unless there are two dimensions."""
    _expect_dimensions(tensor, (2,), "2")
    with no_grad():
        return tensor.copy_(identity(*tensor.shape))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Weights of a convolution that passes on as many channels as it can in each group. ValueError unless there are 3, 4 or 5 dimensions."""
    _expect_dimensions(tensor, (3, 4, 5), "3, 4, or 5")
    out, channels = tensor.shape[:2]
    if out % groups:
        raise ValueError("dim 0 must be divisible by groups")
    center = tuple(n // 2 for n in tensor.shape[2:])
    with no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(out // groups, channels)):
                tensor[(group * (out // groups) + channel, channel, *center)] = 1
    return tensor


for _asking in (uniform_, normal_, constant_, kaiming_uniform_):
    make_known(_asking, f"torch.nn.init.{_asking.__name__}")


def _former(function: Any) -> Any:
    """The function under its former name, without the underscore."""
    name = function.__name__[:-1]

    def call(*args: Any, **kwargs: Any) -> Tensor:
        warn_user(f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.", FutureWarning)
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Former name of `{name}_`."
    return call


uniform, normal, constant, eye, dirac, orthogonal, sparse = map(_former, (uniform_, normal_, constant_, eye_, dirac_, orthogonal_, sparse_))
xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal = map(_former, (xavier_uniform_, xavier_normal_, kaiming_uniform_, kaiming_normal_))
