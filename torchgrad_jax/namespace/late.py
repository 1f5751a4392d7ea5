"""Names of `torch` that lead to a package which is loaded when one of them is called."""

from __future__ import annotations

from typing import Any

from torchgrad_jax import optim


def _fused_adam_(*args: Any, **kwargs: Any) -> None:
    """A step of Adam, of lists of parameters, gradients and what is remembered of them: see `Adam`."""
    optim._functional.fused_adam(*args, **kwargs)


def _fused_adamw_(*args: Any, **kwargs: Any) -> None:
    """A step of AdamW."""
    optim._functional.fused_adamw(*args, **kwargs)


def _fused_adagrad_(*args: Any, **kwargs: Any) -> None:
    """A step of Adagrad."""
    optim._functional.fused_adagrad(*args, **kwargs)


def _fused_sgd_(*args: Any, **kwargs: Any) -> None:
    """A step of SGD."""
    optim._functional.fused_sgd(*args, **kwargs)


FUNCTIONS = {f.__name__: f for f in (_fused_adam_, _fused_adamw_, _fused_adagrad_, _fused_sgd_)}
