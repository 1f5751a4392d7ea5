"""What comes before the formula of any optimizer, and what it is carried out on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.views import view_as_real
from torchgrad_jax.optim.arithmetic import add
from torchgrad_jax.runtime.recorder import per_thread

# What a step does to one parameter, in place: given the parameter, its gradient, its state, and the numbers and settings of the step. It may ask of a
# number whether it is zero, and else do nothing with it but pass it on: what it makes of it would be the same in every later step.
Formula = Callable[[Tensor, Tensor, SimpleNamespace, SimpleNamespace], None]


@cache
def whole_formula(formula: Formula, as_pairs: bool) -> Formula:
    """An optimizer's formula with what is common to all before it: `maximize`, `weight_decay` or `keep`, and (as_pairs) complex numbers as pairs of
    real ones. It leaves the tensors that nodes of a graph may have saved of the state as they are."""

    def plain(p: Tensor, grad: Tensor, s: SimpleNamespace, n: SimpleNamespace) -> None:
        if n.maximize:
            grad = -grad
        weight_decay, keep = getattr(n, "weight_decay", 0), getattr(n, "keep", None)
        if isinstance(weight_decay, Tensor) or weight_decay:
            grad = add(grad, p, weight_decay)
        if keep is not None:
            p.mul_(keep)
        if as_pairs and p.is_complex():
            p, grad = view_as_real(p), view_as_real(grad)
            s = SimpleNamespace(**{k: view_as_real(v) if v is not None and v.is_complex() else v for k, v in vars(s).items()})
        formula(p, grad, s, n)

    def whole(p: Tensor, grad: Tensor, s: SimpleNamespace, n: SimpleNamespace) -> None:
        if n.fused and p.element_size() == 2:  # PyTorch's fused kernels round once
            wide, apart = p.to(dtypes.float32), _copied(s, lambda t: t.to(dtypes.float32))
            plain(wide, grad.to(dtypes.float32), apart, n)
            p.copy_(wide)
            _put_back(s, apart, p)
        elif per_thread.recorder.grad_enabled:
            apart = _copied(s, Tensor.clone)
            plain(p, grad, apart, n)
            _put_back(s, apart, p)
        else:
            plain(p, grad, s, n)

    return whole


def _copied(s: SimpleNamespace, copy: Callable[[Tensor], Tensor]) -> SimpleNamespace:
    return SimpleNamespace(**{k: None if v is None else copy(v) for k, v in vars(s).items()})


def _put_back(s: SimpleNamespace, changed: SimpleNamespace, p: Tensor) -> None:
    """Let a state be what its copy has become."""
    for name, t in vars(changed).items():
        if t is None:
            continue
        own = getattr(s, name)
        if own is None:
            setattr(s, name, t.to(p.dtype))
        else:
            own.copy_(t)
