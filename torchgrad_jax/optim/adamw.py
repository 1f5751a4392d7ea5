"""AdamW: Adam with decoupled weight decay."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.optim.adam import Adam
from torchgrad_jax.optim.of_lists import of_lists

__all__ = ["AdamW", "adamw"]


class AdamW(Adam):
    """AdamW: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019). Adam whose parameters are multiplied by 1 - lr * weight_decay
    before each step, in place of an addition to the gradient."""

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-3, betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None, capturable: bool = False,
        differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


adamw = of_lists(
    AdamW, "exp_avgs=exp_avg exp_avg_sqs=exp_avg_sq max_exp_avg_sqs=max_exp_avg_sq state_steps=step",
    "foreach capturable differentiable fused grad_scale found_inf has_complex",
    "amsgrad beta1 beta2 lr weight_decay eps maximize", decoupled_weight_decay=True,
)  # fmt: skip
