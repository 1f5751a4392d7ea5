"""Adagrad."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import full_like
from torchgrad_jax.optim.arithmetic import addcdiv_
from torchgrad_jax.optim.by_parameter import ByParameter, step_count
from torchgrad_jax.optim.checks import check_fused, check_lr, check_not_negative
from torchgrad_jax.optim.of_lists import of_lists
from torchgrad_jax.sparse.tensors import is_sparse

__all__ = ["Adagrad", "adagrad"]


class Adagrad(ByParameter):
    """Adagrad: Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization" (2011).

        s = s + g^2
        p = p - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)

    The state is there before the first step: s is initial_accumulator_value then. ValueError for negative settings.
    """

    _rule_remembered, _rule_takes_sparse = ("sum",), True

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-2, lr_decay: float = 0, weight_decay: float = 0, initial_accumulator_value: float = 0,
        eps: float = 1e-10, foreach: bool | None = None, *, maximize: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_not_negative(lr_decay=lr_decay, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value, epsilon=eps)
        defaults = {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay, "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach, "maximize": maximize, "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_fused(self, fused, foreach, differentiable)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p].update(self._rule_state_of(p, group))

    def share_memory(self) -> None:
        """Put the sums where other processes can read them. See `Tensor.share_memory_`."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    def _rule_state_of(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """See ByParameter."""
        start = group["initial_accumulator_value"]
        return {"step": step_count(group, p), "sum": full_like(p, complex(start, start) if p.is_complex() else start)}

    @classmethod
    def _rule_check_sparse(cls, group: dict[str, Any]) -> None:
        """See ByParameter. RuntimeError where weights decay."""
        super()._rule_check_sparse(group)
        if group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")

    @staticmethod
    def _rule_numbers(h: SimpleNamespace, c: SimpleNamespace) -> dict[str, Any]:
        """See ByParameter."""
        return {"weight_decay": h.weight_decay, "eps": h.eps, "step_size": -(h.lr / (1 + (c.step - 1) * h.lr_decay))}

    @staticmethod
    def _rule_formula(p: Tensor, grad: Tensor, s: SimpleNamespace, n: SimpleNamespace) -> None:
        """See ByParameter."""
        if is_sparse(grad):
            _add_sparse(p, grad.coalesce(), s.sum, n)
            return
        s.sum.addcmul_(grad, grad)
        addcdiv_(p, grad, s.sum.sqrt() + n.eps, n.step_size)


def _add_sparse(p: Tensor, grad: Any, sum: Tensor, n: SimpleNamespace) -> None:
    """The step where the gradient has some elements only: of these alone."""
    places, values = tuple(grad.indices().unbind(0)), grad.values()
    sums = sum[places] + values * values
    sum.index_put_(places, sums)
    p.index_put_(places, values / (sums.sqrt() + n.eps) * n.step_size, accumulate=True)


adagrad = of_lists(
    Adagrad, "state_sums=sum state_steps=step",
    "fused grad_scale found_inf has_sparse_grad foreach differentiable has_complex", "lr weight_decay lr_decay eps maximize",
)  # fmt: skip
