"""Adafactor: a second moment of which matrices keep the sums of rows and columns alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import tensor, zeros_like
from torchgrad_jax.functions.limits import finfo
from torchgrad_jax.optim.arithmetic import lerp_, smaller
from torchgrad_jax.optim.by_parameter import ByParameter, scalar_dtype
from torchgrad_jax.optim.of_lists import of_lists

__all__ = ["Adafactor", "adafactor"]


class Adafactor(ByParameter):
    """Adafactor: Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost" (2018), with the differences that PyTorch's has:
    lr is the most that a relative step size is, and eps[0] (None: the dtype's) bounds the estimate of the variance.

        b = t^beta2_decay; rho = min(lr, 1 / sqrt(t)); a = max(eps[1], rms(p)) * rho
        p = p - lr * weight_decay * p
        R = R + b * (mean over a row of g^2 - R), C likewise over columns, V = R C / mean(R); of vectors V = V + b * (g^2 - V)
        u = g / sqrt(max(V, eps[0]^2))
        p = p - a * u / max(1, rms(u) / d)

    ValueError for settings out of their range, RuntimeError in a step for complex parameters.
    """

    # Of vectors only the last one, of all else the others.
    _rule_remembered = ("row_var", "col_var", "variance")

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-2, beta2_decay: float = -0.8, eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0,
        weight_decay: float = 0.0, *, foreach: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not lr >= 0.0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not eps[0] >= 0.0:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not eps[1] >= 0.0:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        defaults = {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize
        }  # fmt: skip
        super().__init__(params, defaults)

    @staticmethod
    def _rule_check(group: dict[str, Any], p: Tensor) -> None:  # type: ignore[override] - see ByParameter
        """See ByParameter."""
        if p.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")

    def _rule_state_of(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """See ByParameter."""
        state: dict[str, Any] = {"step": tensor(0.0, dtype=scalar_dtype())}
        if p.dim() > 1:
            *batch, rows, columns = p.shape
            state["row_var"] = p.grad.new_zeros((*batch, rows, 1))
            state["col_var"] = p.grad.new_zeros((*batch, 1, columns))
        else:
            state["variance"] = zeros_like(p.grad)
        return state

    @staticmethod
    def _rule_numbers(h: SimpleNamespace, c: SimpleNamespace) -> dict[str, Any]:
        """See ByParameter."""
        return {
            "fresh": c.step**h.beta2_decay, "relative": smaller(h.lr, 1 / c.step**0.5), "eps1": h.eps[0],
            "least": None if h.eps[0] is None else h.eps[0] * h.eps[0], "eps2": h.eps[1], "d": h.d,
            "shrunk": None if h.weight_decay == 0 else 1 - h.lr * h.weight_decay,
        }  # fmt: skip

    @staticmethod
    def _rule_formula(p: Tensor, grad: Tensor, s: SimpleNamespace, n: SimpleNamespace) -> None:
        """See ByParameter. Root mean squares are rounded to the parameter's dtype, what is made of them is not."""
        eps = finfo(p.dtype).eps
        eps1, least = (eps, eps * eps) if n.eps1 is None else (n.eps1, n.least)
        size = p.norm(2).to(dtypes.float64) / p.numel() ** 0.5
        if n.shrunk is not None:
            p.mul_(n.shrunk)
        if grad.dim() > 1:
            for moment, dim in ((s.row_var, -1), (s.col_var, -2)):
                lerp_(moment, grad.norm(dim=dim, keepdim=True).square() / grad.size(dim), n.fresh)
            variance = s.row_var @ s.col_var / s.row_var.mean(dim=-2, keepdim=True).clamp(min=eps1)
        else:
            variance = lerp_(s.variance, grad * grad, n.fresh)
        update = variance.clamp(min=least).rsqrt() * grad
        too_large = (update.norm(2).to(dtypes.float64) / update.numel() ** 0.5 / n.d).clamp(min=1.0)
        p.sub_(update * (size.clamp(min=n.eps2) * n.relative / too_large))


adafactor = of_lists(
    Adafactor, "row_vars=row_var col_vars=col_var variances=variance state_steps=step",
    "foreach grad_scale found_inf has_complex", "d lr beta2_decay weight_decay eps1 eps2 maximize",
)  # fmt: skip
