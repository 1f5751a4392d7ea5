"""Vectors of complex decompositions are given up to a phase each: a loss that depends on these has no gradient, which backward says."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.core.level import in_transform
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.tensor import Tensor

_EIGENVECTORS = (
    "linalg_{}_backward: The eigenvectors in the complex case are specified up to multiplication by e^{{i phi}}. The specified loss function depends "
    "on this quantity, so it is ill-defined."
)
_SINGULAR_VECTORS = (
    "{}_backward: The singular vectors in the complex case are specified up to multiplication by e^{{i phi}}. The specified loss function depends on "
    "this phase term, making it ill-defined."
)


def of_eigenvectors(name: str, made: Any) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors, whose node refuses gradients along their phases."""
    return _refusing(made, (1,), _EIGENVECTORS, name, 1e-2)


def of_singular_vectors(made: Any) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and Vh, whose node refuses gradients along the phases that columns of U and rows of Vh have in common."""
    return _refusing(made, (0, 2), _SINGULAR_VECTORS, "svd", 5e-3)


def _refusing(made: Any, places: tuple[int, ...], text: str, name: str, tolerance: float) -> Any:
    vectors = made[places[0]]
    if not (vectors.requires_grad and vectors.is_complex()) or in_transform():
        return made
    kept = {i: made[i]._read() for i in places}
    count = min(made[places[0]].shape[-1], made[places[-1]].shape[-2])

    def look(grads: tuple[Tensor | None, ...]) -> None:
        along: Any = None
        for i, value in kept.items():
            t, grad = wrap(value), grads[i]
            if grad is None or not grad._content().readable:
                continue
            turned = grad.detach()
            # Of rows the phase is that of the adjoint.
            part = (t * turned.conj()).sum(-1)[..., :count] if i == 2 else (t.conj() * turned).sum(-2)[..., :count]
            along = part if along is None else along + part
        if along is not None and not bool((along.imag.abs() <= tolerance).all()):
            raise RuntimeError(text.format(name))

    vectors.grad_fn.register_prehook(look)
    return made
