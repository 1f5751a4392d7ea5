"""RAdam: Adam whose variance is rectified."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.optim.adam import averaging, decay, move_averages
from torchgrad_jax.optim.by_parameter import ByParameter
from torchgrad_jax.optim.checks import check_betas, check_lr, check_not_negative
from torchgrad_jax.optim.of_lists import of_lists

__all__ = ["RAdam", "radam"]


class RAdam(ByParameter):
    """RAdam: Liu, Jiang, He, Chen, Liu, Gao and Han, "On the Variance of the Adaptive Learning Rate and Beyond" (2020).

        m, v as in Adam; rho_inf = 2 / (1 - beta2) - 1; rho = rho_inf - 2 * t * beta2^t / (1 - beta2^t)
        r = sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))
        p = p - lr * m / (1 - beta1^t) * (r * sqrt(1 - beta2^t) / (sqrt(v) + eps)  if rho > 5  else 1)

    decoupled_weight_decay: see `Adam`. ValueError for settings out of their range.
    """

    _rule_remembered = ("exp_avg", "exp_avg_sq")

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
        decoupled_weight_decay: bool = False, *, foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
        differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_not_negative(epsilon=eps)
        check_betas(betas)
        check_not_negative(weight_decay=weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    @staticmethod
    def _rule_numbers(h: SimpleNamespace, c: SimpleNamespace) -> dict[str, Any]:
        """See ByParameter."""
        beta1, beta2 = h.betas
        bias = 1 - beta2**c.step
        limit = 2 / (1 - beta2) - 1
        rho = limit - 2 * c.step * beta2**c.step / bias
        rectified = rho > 5
        rectification = ((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho)) ** 0.5 if rectified is not False else 0.0
        return {
            **decay(h, h.decoupled_weight_decay), **averaging(h), "bias": 1 - beta1**c.step, "root": bias**0.5, "eps": h.eps, "lr": h.lr,
            "rectified": rectified, "rectification": rectification,
        }  # fmt: skip

    @staticmethod
    def _rule_formula(p: Tensor, grad: Tensor, s: SimpleNamespace, n: SimpleNamespace) -> None:
        """See ByParameter."""
        move_averages(s, grad, n)
        update = s.exp_avg / n.bias * n.lr
        if n.rectified is False:
            p.sub_(update)
            return
        adapted = update * (n.root / (s.exp_avg_sq.sqrt() + n.eps)) * n.rectification
        p.sub_(adapted if n.rectified is True else adapted.where(n.rectified, update))


radam = of_lists(
    RAdam, "exp_avgs=exp_avg exp_avg_sqs=exp_avg_sq state_steps=step",
    "decoupled_weight_decay foreach differentiable capturable has_complex maximize", "beta1 beta2 lr weight_decay eps",
)  # fmt: skip
