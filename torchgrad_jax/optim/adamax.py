"""Adamax: Adam with the largest gradient in the place of the second moment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.optim.arithmetic import addcdiv_, lerp_
from torchgrad_jax.optim.by_parameter import ByParameter
from torchgrad_jax.optim.checks import check_betas, check_lr, check_not_negative
from torchgrad_jax.optim.of_lists import of_lists

__all__ = ["Adamax", "adamax"]


class Adamax(ByParameter):
    """Adamax: Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2015), section 7.1.

        m = beta1 * m + (1 - beta1) * g
        u = max(beta2 * u, |g| + eps)
        p = p - lr / (1 - beta1^t) * m / u

    ValueError for settings out of their range.
    """

    _rule_remembered = ("exp_avg", "exp_inf")

    def __init__(
        self, params: Any, lr: float | Tensor = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
        foreach: bool | None = None, *, maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_not_negative(epsilon=eps)
        check_betas(betas)
        check_not_negative(weight_decay=weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    @staticmethod
    def _rule_numbers(h: SimpleNamespace, c: SimpleNamespace) -> dict[str, Any]:
        """See ByParameter."""
        beta1, beta2 = h.betas
        return {
            "weight_decay": h.weight_decay, "toward": 1 - beta1, "beta2": beta2, "eps": h.eps, "step_size": -(h.lr / (1 - beta1**c.step))
        }  # fmt: skip

    @staticmethod
    def _rule_formula(p: Tensor, grad: Tensor, s: SimpleNamespace, n: SimpleNamespace) -> None:
        """See ByParameter."""
        lerp_(s.exp_avg, grad, n.toward)
        s.exp_inf.copy_((s.exp_inf * n.beta2).maximum(grad.abs() + n.eps))
        addcdiv_(p, s.exp_avg, s.exp_inf, n.step_size)


adamax = of_lists(
    Adamax, "exp_avgs=exp_avg exp_infs=exp_inf state_steps=step",
    "foreach maximize differentiable capturable has_complex", "eps beta1 beta2 lr weight_decay",
)  # fmt: skip
