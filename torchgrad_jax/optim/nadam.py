"""NAdam: Adam with Nesterov's momentum."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import zeros_like
from torchgrad_jax.optim.adam import averaging, decay, move_averages
from torchgrad_jax.optim.arithmetic import addcdiv_
from torchgrad_jax.optim.by_parameter import ByParameter, step_count
from torchgrad_jax.optim.checks import check_betas, check_lr, check_not_negative
from torchgrad_jax.optim.of_lists import of_lists

__all__ = ["NAdam", "nadam"]


class NAdam(ByParameter):
    """NAdam: Dozat, "Incorporating Nesterov Momentum into Adam" (2016).

        mu_t = beta1 * (1 - 0.96^(t * momentum_decay) / 2)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g^2
        p = p - lr * ((1 - mu_t) / (1 - mu_1 ... mu_t) * g + mu_(t+1) / (1 - mu_1 ... mu_(t+1)) * m) / (sqrt(v / (1 - beta2^t)) + eps)

    decoupled_weight_decay: see `Adam`. ValueError for settings out of their range.
    """

    _rule_remembered = ("exp_avg", "exp_avg_sq")
    _rule_scalars = ("step", "mu_product")

    def __init__(
        self, params: Any, lr: float | Tensor = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
        momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *, foreach: bool | None = None, maximize: bool = False,
        capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_not_negative(epsilon=eps)
        check_betas(betas)
        check_not_negative(weight_decay=weight_decay, momentum_decay=momentum_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _rule_state_of(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """See ByParameter."""
        return {
            "step": step_count(group, p), "mu_product": step_count(group, p).fill_(1.0), "exp_avg": zeros_like(p), "exp_avg_sq": zeros_like(p)
        }  # fmt: skip

    @staticmethod
    def _rule_advance(h: SimpleNamespace, c: SimpleNamespace) -> None:
        """See ByParameter."""
        c.step = c.step + 1
        c.mu_product = c.mu_product * NAdam._rule_mu(h, c.step)

    @staticmethod
    def _rule_mu(h: SimpleNamespace, step: Any) -> Any:
        return h.betas[0] * (1 - 0.5 * 0.96 ** (step * h.momentum_decay))

    @staticmethod
    def _rule_numbers(h: SimpleNamespace, c: SimpleNamespace) -> dict[str, Any]:
        """See ByParameter."""
        mu, following = NAdam._rule_mu(h, c.step), NAdam._rule_mu(h, c.step + 1)
        return {
            **decay(h, h.decoupled_weight_decay), **averaging(h), "bias": 1 - h.betas[1] ** c.step, "eps": h.eps,
            "by_gradient": -h.lr * (1 - mu) / (1 - c.mu_product), "by_momentum": -h.lr * following / (1 - c.mu_product * following),
        }  # fmt: skip

    @staticmethod
    def _rule_formula(p: Tensor, grad: Tensor, s: SimpleNamespace, n: SimpleNamespace) -> None:
        """See ByParameter."""
        move_averages(s, grad, n)
        denominator = (s.exp_avg_sq / n.bias).sqrt() + n.eps
        addcdiv_(p, grad, denominator, n.by_gradient)
        addcdiv_(p, s.exp_avg, denominator, n.by_momentum)


nadam = of_lists(
    NAdam, "exp_avgs=exp_avg exp_avg_sqs=exp_avg_sq mu_products=mu_product state_steps=step",
    "decoupled_weight_decay foreach capturable differentiable has_complex maximize", "beta1 beta2 lr weight_decay momentum_decay eps",
)  # fmt: skip
