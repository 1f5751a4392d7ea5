"""Averaged stochastic gradient descent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import zeros_like
from torchgrad_jax.optim.arithmetic import add_, larger
from torchgrad_jax.optim.by_parameter import ByParameter, step_count
from torchgrad_jax.optim.checks import check_lr, check_not_negative
from torchgrad_jax.optim.of_lists import of_lists

__all__ = ["ASGD", "asgd"]


class ASGD(ByParameter):
    """Averaged stochastic gradient descent: Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging" (1992).

        p = (1 - lambd * eta) * p - eta * g
        a = a + mu * (p - a)                    the average, "ax" in the state
        eta = lr / (1 + lambd * lr * t)^alpha, mu = 1 / max(1, t - t0)          for the next step

    ValueError for a negative lr or weight_decay.
    """

    _rule_remembered = ("ax",)
    _rule_scalars = ("step", "eta", "mu")

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6, weight_decay: float = 0,
        foreach: bool | None = None, maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_not_negative(weight_decay=weight_decay)
        defaults = {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _rule_state_of(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """See ByParameter."""
        eta = step_count(group, p).copy_(group["lr"]) if isinstance(group["lr"], Tensor) else step_count(group, p).fill_(group["lr"])
        return {"step": step_count(group, p), "eta": eta, "mu": step_count(group, p).fill_(1.0), "ax": zeros_like(p)}

    @staticmethod
    def _rule_numbers(h: SimpleNamespace, c: SimpleNamespace) -> dict[str, Any]:
        """See ByParameter."""
        return {
            "weight_decay": h.weight_decay, "shrunk": 1 - h.lambd * c.eta, "step_size": -c.eta, "mu": c.mu,
            "averaged": isinstance(c.mu, Tensor) or c.mu != 1,
        }  # fmt: skip

    @staticmethod
    def _rule_settle(h: SimpleNamespace, c: SimpleNamespace) -> None:
        """See ByParameter."""
        c.eta = h.lr / (1 + h.lambd * h.lr * c.step) ** h.alpha
        c.mu = 1 / larger(c.step - h.t0, 1)

    @staticmethod
    def _rule_formula(p: Tensor, grad: Tensor, s: SimpleNamespace, n: SimpleNamespace) -> None:
        """See ByParameter."""
        add_(p.mul_(n.shrunk), grad, n.step_size)
        if n.averaged:
            s.ax.add_((p - s.ax) * n.mu)
        else:
            s.ax.copy_(p)


asgd = of_lists(
    ASGD, "axs=ax mus=mu etas=eta state_steps=step",
    "foreach maximize differentiable capturable has_complex", "lambd lr t0 alpha weight_decay",
)  # fmt: skip
