"""`torch.nn.utils.clip_grad`: gradients that are not larger than they may be."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import tensor
from torchgrad_jax.functions.matrices.norms import vector_norm
from torchgrad_jax.functions.shaping import stack

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_"]


def _tensors(given: Any) -> list[Tensor]:
    return [given] if isinstance(given, Tensor) else list(given)


def _grads(parameters: Any) -> list[Tensor]:
    return [grad for p in _tensors(parameters) if (grad := p.grad) is not None]


def _on(where: Any, t: Tensor) -> Tensor:
    return t if t._aval.device is where else t.to(where)


@no_grad()
def get_total_norm(
    tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The norm of all elements of all tensors, as one vector: the norm of the tensors' norms. 0 for no tensors. foreach: as PyTorch's; what is
    recorded is one program either way. RuntimeError (error_if_nonfinite) where it is no number."""
    given, norm_type = _tensors(tensors), float(norm_type)
    if not given:
        return tensor(0.0)
    first = given[0]._aval.device
    total = vector_norm(stack([_on(first, vector_norm(t, norm_type)) for t in given]), norm_type)
    if error_if_nonfinite and bool(total.isfinite().logical_not()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped. To disable this error and "
            "scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


@no_grad()
def clip_grads_with_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None) -> None:
    """Multiply the gradients by max_norm / (total_norm + 1e-6) in place, if that is less than 1."""
    _clip(_grads(parameters), max_norm, total_norm)


def _clip(grads: list[Tensor], max_norm: float, total_norm: Tensor) -> None:
    factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(_on(grad._aval.device, factor))


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """Let the norm of all gradients, as one vector, be at most `max_norm`, in place. Returns what it was. RuntimeError: see `get_total_norm`."""
    grads = _grads(parameters)
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    _clip(grads, max_norm, total)
    return total


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The name of `clip_grad_norm_` from before. Warns."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.", category=FutureWarning, stacklevel=2
    )  # fmt: skip
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Let each element of the gradients be in [-clip_value, clip_value], in place."""
    clip_value = float(clip_value)
    for grad in _grads(parameters):
        grad.clamp_(-clip_value, clip_value)
