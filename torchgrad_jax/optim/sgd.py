"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.optim.arithmetic import add, add_
from torchgrad_jax.optim.by_parameter import ByParameter
from torchgrad_jax.optim.checks import check_fused, check_lr, check_not_negative
from torchgrad_jax.optim.of_lists import of_lists

__all__ = ["SGD", "sgd"]


class SGD(ByParameter):
    """Stochastic gradient descent. With momentum mu and dampening tau, after Sutskever, Martens, Dahl and Hinton, "On the importance of
    initialization and momentum in deep learning" (2013), but that the learning rate is outside of the velocity:

        g = g + weight_decay * p
        b = mu * b + (1 - tau) * g            (b = g at the first step)
        p = p - lr * b                        (nesterov: p - lr * (g + mu * b))

    ValueError for negative settings, and for nesterov without momentum or with dampening.
    """

    _rule_scalars, _rule_as_pairs, _rule_takes_sparse = (), False, True
    _rule_fused_sparse = "`_fused_sgd` does not support sparse gradients"

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float | Tensor = 0,
        nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        check_lr(lr, takes_nan=True)
        check_not_negative(takes_nan=True, momentum=momentum, weight_decay=weight_decay)
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov, "maximize": maximize,
            "foreach": foreach, "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, defaults)
        check_fused(self, fused, foreach, differentiable)

    @classmethod
    def _rule_names(cls, group: dict[str, Any]) -> Sequence[str]:
        """See ByParameter."""
        return ("momentum_buffer",) if group["momentum"] != 0 else ()

    def _rule_state_of(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """See ByParameter. There is no velocity before the first step."""
        return {}

    @staticmethod
    def _rule_numbers(h: SimpleNamespace, c: SimpleNamespace) -> dict[str, Any]:
        """See ByParameter."""
        return {
            "weight_decay": h.weight_decay, "momentum": h.momentum, "fresh": 1 - h.dampening, "nesterov": h.nesterov, "step_size": -h.lr
        }  # fmt: skip

    @staticmethod
    def _rule_formula(p: Tensor, grad: Tensor, s: SimpleNamespace, n: SimpleNamespace) -> None:
        """See ByParameter."""
        if n.momentum:
            if s.momentum_buffer is None:
                s.momentum_buffer = grad.detach().clone()
            else:
                add_(s.momentum_buffer.mul_(n.momentum), grad, n.fresh)
            grad = add(grad, s.momentum_buffer, n.momentum) if n.nesterov else s.momentum_buffer
        add_(p, grad, n.step_size)


sgd = of_lists(
    SGD, "momentum_buffer_list=momentum_buffer",
    "has_sparse_grad foreach fused grad_scale found_inf", "weight_decay momentum lr dampening nesterov maximize",
)  # fmt: skip
