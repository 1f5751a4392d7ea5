"""Resilient backpropagation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import full_like, zeros_like
from torchgrad_jax.optim.by_parameter import ByParameter, step_count
from torchgrad_jax.optim.checks import check_lr
from torchgrad_jax.optim.of_lists import of_lists

__all__ = ["Rprop", "rprop"]


class Rprop(ByParameter):
    """Resilient backpropagation: Riedmiller and Braun, "A Direct Adaptive Method for Faster Backpropagation Learning: The RPROP Algorithm" (1993).

        each element's step size is multiplied by etas[1] where its gradient has the sign of before and by etas[0] where it has the other one, and
        kept within step_sizes; where the sign is the other one, the gradient counts as 0 in this step and the next one
        p = p - sign(g) * step size

    lr: the step sizes to begin with. ValueError where not 0 < etas[0] < 1 < etas[1].
    """

    _rule_remembered = ("prev", "step_size")

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-2, etas: tuple[float, float] = (0.5, 1.2), step_sizes: tuple[float, float] = (1e-6, 50), *,
        capturable: bool = False, foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _rule_state_of(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """See ByParameter."""
        sizes = full_like(p, 1 + 1j if p.is_complex() else 1) * group["lr"]
        return {"step": step_count(group, p), "prev": zeros_like(p), "step_size": sizes}

    @staticmethod
    def _rule_numbers(h: SimpleNamespace, c: SimpleNamespace) -> dict[str, Any]:
        """See ByParameter."""
        return {"less": h.etas[0], "more": h.etas[1], "least": h.step_sizes[0], "most": h.step_sizes[1]}

    @staticmethod
    def _rule_formula(p: Tensor, grad: Tensor, s: SimpleNamespace, n: SimpleNamespace) -> None:
        """See ByParameter."""
        sign = (grad * s.prev.clone()).sign()
        turned = sign < 0
        factor = sign.masked_fill(sign > 0, n.more).masked_fill(turned, n.less).masked_fill(sign == 0, 1)
        s.step_size.mul_(factor).clamp_(n.least, n.most)
        grad = grad.masked_fill(turned, 0)
        p.addcmul_(grad.sign(), s.step_size, value=-1)
        s.prev.copy_(grad)


rprop = of_lists(
    Rprop, "prevs=prev step_sizes=step_size state_steps=step",
    "foreach capturable maximize differentiable has_complex", "step_size_min step_size_max etaminus etaplus",
)  # fmt: skip
