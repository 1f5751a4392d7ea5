"""Adadelta."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.optim.arithmetic import add_, addcmul_
from torchgrad_jax.optim.by_parameter import ByParameter
from torchgrad_jax.optim.checks import check_lr, check_not_negative
from torchgrad_jax.optim.of_lists import of_lists

__all__ = ["Adadelta", "adadelta"]


class Adadelta(ByParameter):
    """Adadelta: Zeiler, "ADADELTA: An Adaptive Learning Rate Method" (2012).

        v = rho * v + (1 - rho) * g^2
        d = sqrt(u + eps) / sqrt(v + eps) * g
        u = rho * u + (1 - rho) * d^2
        p = p - lr * d

    ValueError for settings out of their range.
    """

    _rule_remembered = ("square_avg", "acc_delta")

    def __init__(
        self, params: Any, lr: float | Tensor = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0, foreach: bool | None = None, *,
        capturable: bool = False, maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_not_negative(epsilon=eps, weight_decay=weight_decay)
        defaults = {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize, "capturable": capturable, "foreach": foreach,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    @staticmethod
    def _rule_numbers(h: SimpleNamespace, c: SimpleNamespace) -> dict[str, Any]:
        """See ByParameter."""
        return {"weight_decay": h.weight_decay, "rho": h.rho, "fresh": 1 - h.rho, "eps": h.eps, "step_size": -h.lr}

    @staticmethod
    def _rule_formula(p: Tensor, grad: Tensor, s: SimpleNamespace, n: SimpleNamespace) -> None:
        """See ByParameter."""
        addcmul_(s.square_avg.mul_(n.rho), grad, grad, n.fresh)
        delta = (s.acc_delta + n.eps).sqrt() / (s.square_avg + n.eps).sqrt() * grad
        addcmul_(s.acc_delta.mul_(n.rho), delta, delta, n.fresh)
        add_(p, delta, n.step_size)


adadelta = of_lists(
    Adadelta, "square_avgs=square_avg acc_deltas=acc_delta state_steps=step",
    "capturable foreach differentiable has_complex", "lr rho eps weight_decay maximize",
)  # fmt: skip
