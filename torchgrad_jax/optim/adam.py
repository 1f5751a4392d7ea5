"""Adam, and what its relatives share with it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import tensor
from torchgrad_jax.optim.arithmetic import addcdiv_, addcmul_, lerp_
from torchgrad_jax.optim.by_parameter import ByParameter
from torchgrad_jax.optim.checks import check_betas, check_fused, check_lr, check_not_negative
from torchgrad_jax.optim.of_lists import of_lists

__all__ = ["Adam", "adam"]


def decay(h: SimpleNamespace, decoupled: bool) -> dict[str, Any]:
    """The numbers by which weights decay: added to the gradient, or (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019) by which
    the parameter is multiplied."""
    if not decoupled:
        return {"weight_decay": h.weight_decay}
    none = not isinstance(h.weight_decay, Tensor) and h.weight_decay == 0
    return {"keep": None if none else 1 - h.lr * h.weight_decay}


def move_averages(s: SimpleNamespace, grad: Tensor, n: SimpleNamespace) -> None:
    """m = m + (1 - beta1) * (g - m), v = beta2 * v + (1 - beta2) * g^2."""
    lerp_(s.exp_avg, grad, n.toward)
    addcmul_(s.exp_avg_sq.mul_(n.beta2), grad, grad, n.fresh)


def averaging(h: SimpleNamespace) -> dict[str, Any]:
    """The numbers of `move_averages`."""
    beta1, beta2 = h.betas
    return {"toward": 1 - beta1, "beta2": beta2, "fresh": 1 - beta2}


class Adam(ByParameter):
    """Adam: Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2015).

        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g^2
        p = p - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)

    amsgrad: the largest v so far in the place of v (Reddi, Kale and Kumar, "On the Convergence of Adam and Beyond", 2018). weight_decay times the
    parameter is added to the gradient, or (decoupled_weight_decay) lr times it is taken away from the parameter. ValueError for settings out of their
    range, and for tensors among them with `foreach` and without `capturable`.
    """

    _rule_sparse_advice = ", please consider SparseAdam instead"

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-3, betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
        differentiable: bool = False, fused: bool | None = None, decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr, foreach, capturable)
        check_not_negative(epsilon=eps)
        check_betas(betas)
        check_not_negative(weight_decay=weight_decay)
        _check_tensors(betas, foreach, capturable)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable, "fused": fused, "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_fused(self, fused, foreach, differentiable)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("amsgrad", False)
            group.setdefault("decoupled_weight_decay", False)

    @classmethod
    def _rule_names(cls, group: dict[str, Any]) -> Sequence[str]:
        """See ByParameter."""
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")

    @staticmethod
    def _rule_numbers(h: SimpleNamespace, c: SimpleNamespace) -> dict[str, Any]:
        """See ByParameter."""
        beta1, beta2 = h.betas
        # Where a graph leads through the step PyTorch computes with its count in single precision.
        step = tensor(c.step, dtype=dtypes.float32) if getattr(h, "differentiable", False) and not isinstance(c.step, Tensor) else c.step
        return {
            **decay(h, h.decoupled_weight_decay), **averaging(h), "amsgrad": h.amsgrad, "root": (1 - beta2**step) ** 0.5, "eps": h.eps,
            "step_size": -(h.lr / (1 - beta1**step)),
        }  # fmt: skip

    @staticmethod
    def _rule_formula(p: Tensor, grad: Tensor, s: SimpleNamespace, n: SimpleNamespace) -> None:
        """See ByParameter."""
        move_averages(s, grad, n)
        square = s.max_exp_avg_sq.copy_(s.max_exp_avg_sq.clone().maximum(s.exp_avg_sq)) if n.amsgrad else s.exp_avg_sq
        addcdiv_(p, s.exp_avg, square.sqrt() / n.root + n.eps, n.step_size)


def _check_tensors(betas: Any, foreach: bool | None, capturable: bool) -> None:
    kinds = [isinstance(beta, Tensor) for beta in betas]
    if kinds[0] != kinds[1] or not all(t or isinstance(b, float) for t, b in zip(kinds, betas, strict=True)):
        raise ValueError("betas must be either both floats or both Tensors")
    for i, beta in enumerate(betas):
        if isinstance(beta, Tensor):
            if foreach and not capturable:
                raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True")
            if beta.numel() != 1:
                raise ValueError(f"Tensor betas[{i}] must be 1-element")


adam = of_lists(
    Adam, "exp_avgs=exp_avg exp_avg_sqs=exp_avg_sq max_exp_avg_sqs=max_exp_avg_sq state_steps=step",
    "foreach capturable differentiable fused grad_scale found_inf has_complex decoupled_weight_decay",
    "amsgrad beta1 beta2 lr weight_decay eps maximize",
)  # fmt: skip
