"""Muon: momentum whose matrices are made orthogonal."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import zeros_like
from torchgrad_jax.optim.arithmetic import add_, lerp_
from torchgrad_jax.optim.by_parameter import ByParameter

__all__ = ["Muon"]

_COEFFICIENTS = (3.4445, -4.775, 2.0315)
# How the learning rate of a matrix depends on its sizes.
_ADJUSTMENTS = {
    None: lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "original": lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}


class Muon(ByParameter):
    """Muon, of matrices alone: Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024).

        b = momentum * b + (1 - momentum) * g
        o = g + momentum * (b - g)  if nesterov  else b
        o, divided by its norm, ns_steps times a * o + (b * o o^T + c * (o o^T)^2) o, with (a, b, c) = ns_coefficients, in bfloat16
        p = (1 - lr * weight_decay) * p - lr * r * o

    with r = sqrt(max(1, rows / columns)), or 0.2 sqrt(max(rows, columns)) for adjust_lr_fn="match_rms_adamw" (Liu et al., "Muon is Scalable for LLM
    Training", 2025). ValueError for settings out of their range and for parameters of other dimensions, RuntimeError in a step for complex ones.
    """

    _rule_remembered = ("momentum_buffer",)
    _rule_scalars = ()

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = _COEFFICIENTS, eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None,
    ) -> None:  # fmt: skip
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        for name, value in (("Learning rate", lr), ("momentum", momentum), ("weight decay", weight_decay)):
            if not value >= 0.0:
                raise ValueError(f"{name} should be >= 0 but is: {value}")
        if adjust_lr_fn not in _ADJUSTMENTS:
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "ns_coefficients": ns_coefficients, "eps": eps,
            "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2:
                    raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}")

    @staticmethod
    def _rule_check(group: dict[str, Any], p: Tensor) -> None:  # type: ignore[override] - see ByParameter
        """See ByParameter."""
        if p.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        if group["ns_steps"] >= 100:
            raise ValueError("Number of steps must be less than 100 for computational efficiency")
        if len(group["ns_coefficients"]) != 3:
            raise ValueError("Coefficients must be a tuple of exactly 3 values")

    def _rule_state_of(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """See ByParameter."""
        return {"momentum_buffer": zeros_like(p.grad)}

    @staticmethod
    def _rule_numbers(h: SimpleNamespace, c: SimpleNamespace) -> dict[str, Any]:
        """See ByParameter."""
        return {
            "momentum": h.momentum, "fresh": 1 - h.momentum, "nesterov": h.nesterov, "eps": h.eps, "steps": h.ns_steps, "adjust": h.adjust_lr_fn,
            "keep": 1 - h.lr * h.weight_decay, "step_size": -h.lr, **dict(zip("abc", h.ns_coefficients, strict=True)),
        }  # fmt: skip

    @staticmethod
    def _rule_formula(p: Tensor, grad: Tensor, s: SimpleNamespace, n: SimpleNamespace) -> None:
        """See ByParameter."""
        lerp_(s.momentum_buffer, grad, n.fresh)
        update = _orthogonal(grad.lerp(s.momentum_buffer, n.momentum) if n.nesterov else s.momentum_buffer, n)
        add_(p, update.to(p.dtype) * _ADJUSTMENTS[n.adjust](*p.shape), n.step_size)


def _orthogonal(matrix: Tensor, n: SimpleNamespace) -> Tensor:
    """The matrix with its singular values brought near 1, by Newton and Schulz's iteration: Higham, "Functions of Matrices" (2008), chapter 8."""
    tall = matrix.size(0) > matrix.size(1)
    found = matrix.to(dtypes.bfloat16)
    found = found.mT if tall else found
    found = found / found.norm().clamp(min=n.eps)
    for _ in range(n.steps):
        gram = found @ found.mT
        found = found.addmm(gram.addmm(gram, gram, beta=n.b, alpha=n.c), found, beta=n.a)
    return found.mT if tall else found
