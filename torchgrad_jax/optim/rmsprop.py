"""RMSprop."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.optim.arithmetic import add_, addcdiv_, addcmul_, lerp_
from torchgrad_jax.optim.by_parameter import ByParameter
from torchgrad_jax.optim.checks import check_lr, check_not_negative
from torchgrad_jax.optim.of_lists import of_lists

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(ByParameter):
    """RMSprop: Tieleman and Hinton, lecture 6 of "Neural Networks for Machine Learning" (2012); centered: Graves, "Generating Sequences With
    Recurrent Neural Networks" (2013).

        v = alpha * v + (1 - alpha) * g^2;  centered: a = alpha * a + (1 - alpha) * g, and v - a^2 in the place of v
        p = p - lr * g / (sqrt(v) + eps);   with momentum: b = momentum * b + g / (sqrt(v) + eps), p = p - lr * b

    ValueError for negative settings.
    """

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0, momentum: float = 0,
        centered: bool = False, capturable: bool = False, foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_not_negative(epsilon=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        defaults = {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered, "weight_decay": weight_decay,
            "capturable": capturable, "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("momentum", 0)
            group.setdefault("centered", False)

    @classmethod
    def _rule_names(cls, group: dict[str, Any]) -> Sequence[str]:
        """See ByParameter."""
        return "square_avg", *(["momentum_buffer"] if group["momentum"] > 0 else []), *(["grad_avg"] if group["centered"] else [])

    @staticmethod
    def _rule_numbers(h: SimpleNamespace, c: SimpleNamespace) -> dict[str, Any]:
        """See ByParameter."""
        return {
            "weight_decay": h.weight_decay, "alpha": h.alpha, "fresh": 1 - h.alpha, "eps": h.eps, "momentum": h.momentum, "centered": h.centered,
            "step_size": -h.lr,
        }  # fmt: skip

    @staticmethod
    def _rule_formula(p: Tensor, grad: Tensor, s: SimpleNamespace, n: SimpleNamespace) -> None:
        """See ByParameter."""
        variance = addcmul_(s.square_avg.mul_(n.alpha), grad, grad, n.fresh)
        if n.centered:
            lerp_(s.grad_avg, grad, n.fresh)
            variance = variance.addcmul(s.grad_avg, s.grad_avg, value=-1)
        deviation = variance.sqrt() + n.eps
        if n.momentum:
            add_(p, s.momentum_buffer.mul_(n.momentum).addcdiv_(grad, deviation), n.step_size)
        else:
            addcdiv_(p, grad, deviation, n.step_size)


rmsprop = of_lists(
    RMSprop, "square_avgs=square_avg grad_avgs=grad_avg momentum_buffer_list=momentum_buffer state_steps=step",
    "foreach maximize differentiable capturable has_complex", "lr alpha eps weight_decay momentum centered",
)  # fmt: skip
