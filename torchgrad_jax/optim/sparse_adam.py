"""SparseAdam: Adam for sparse gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import zeros_like
from torchgrad_jax.optim.checks import check_betas
from torchgrad_jax.optim.optimizer import Optimizer, evaluated
from torchgrad_jax.sparse.tensors import is_sparse

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam that changes, of parameters and moments, the elements alone that a sparse gradient has, such as that of `nn.Embedding(sparse=True)`.

        m = m + (1 - beta1) * (g - m)
        v = v + (1 - beta2) * (g^2 - v)
        p = p - lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + eps)

    RuntimeError for dense gradients. ValueError for settings out of their range and for complex parameters.
    """

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, maximize: bool = False
    ) -> None:  # fmt: skip
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not lr > 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        places = [[i, j] for i, group in enumerate(self.param_groups) for j, p in enumerate(group["params"]) if p.is_complex()]
        if places:
            raise ValueError(f"Complex params at indices {places}: SparseAdam does not support complex parameters")

    @no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """See Optimizer. RuntimeError where a parameter has a dense gradient."""
        loss = evaluated(closure)
        for group in self.param_groups:
            given = [(p, p.grad) for p in group["params"] if p.grad is not None]
            if not all(is_sparse(grad) for _, grad in given):
                raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
            for p, grad in given:
                state = self.state[p]
                if not state:
                    state.update(step=0, exp_avg=zeros_like(p), exp_avg_sq=zeros_like(p))
                state["step"] += 1
                _change(p, (-grad if group["maximize"] else grad).coalesce(), state, group)
        return loss


def _change(p: Tensor, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
    """The step of one parameter, of the elements that the gradient has."""
    if not grad._nnz():
        return
    (beta1, beta2), step = group["betas"], state["step"]
    places, values = tuple(grad.indices().unbind(0)), grad.values()
    moments = []
    for name, beta, of in (("exp_avg", beta1, values), ("exp_avg_sq", beta2, values * values)):
        old = state[name][places]
        moments.append(old + (of - old) * (1 - beta))
        state[name].index_put_(places, moments[-1])
    step_size = group["lr"] * math.sqrt(1 - beta2**step) / (1 - beta1**step)
    p.index_put_(places, moments[0] / (moments[1].sqrt() + group["eps"]) * -step_size, accumulate=True)
