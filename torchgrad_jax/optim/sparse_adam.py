"""SparseAdam: Adam for sparse gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.optim.checks import check_betas
from torchgrad_jax.optim.optimizer import Optimizer, evaluated

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam that changes, of parameters and moments, the elements alone that a sparse gradient has. There are no sparse tensors here, so that a step
    finds no gradient that it could use: RuntimeError, as for dense gradients in PyTorch. ValueError for settings out of their range and for complex
    parameters."""

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
        """See Optimizer. RuntimeError where a parameter has a gradient."""
        loss = evaluated(closure)
        if any(p.grad is not None for group in self.param_groups for p in group["params"]):
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        return loss
