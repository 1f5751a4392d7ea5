"""What `torch.autograd.functional` asks of what it is given, in PyTorch's words: tensors or tuples of them, vectors that fit, and in strict mode
results that depend on the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import zeros_like

OUTPUTS = "outputs of the user-provided function"
STRICT = " This is not allowed in strict mode."
NO_GRAPH = (
    "Output {} of the user-provided function does not require gradients. The outputs must be computed in a differentiable manner from the input "
    "when running in strict mode."
)
INDEPENDENT_ROW = "Output {} of the user-provided function is independent of input {}." + STRICT
LINEAR = "The {} of the user-provided function is independent of input {}. This is not allowed in strict mode when create_graph=True."
LINEAR_IN_HESSIAN = (
    "While computing the hessian, found that the jacobian of the user-provided function with respect to input {} is independent of the input."
    + STRICT
    + " You should ensure that your function is twice differentiable and that the jacobian depends on the inputs (this would be violated by a "
    "linear function for example)."
)
# Which derivative is missing, by what it is the derivative of.
OF_OUTPUTS = "The output of the user-provided function is independent of input {}." + STRICT
OF_JACOBIAN = "The jacobian of the user-provided function is independent of input {}." + STRICT
OF_GRADIENTS = (
    "The gradient with respect to the input is independent of entry {} in the grad_outputs when using the double backward trick to compute forward "
    "mode gradients." + STRICT
)
OF_GRADIENTS_OF_JACOBIAN = (
    "The hessian of the user-provided function is independent of entry {} in the grad_jacobian. This is not allowed in strict mode as it prevents "
    "from using the double backward trick to replace forward mode AD."
)


def as_tensors(given: Any, what: str, function: str | None) -> tuple[bool, tuple[Tensor, ...]]:
    """Whether `given` is a tuple, and the tensors in it. TypeError where it is something else. what, function: how the error names it."""
    several = isinstance(given, tuple)
    tensors = given if several else (given,)
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            found = f"the value at index {i} has" if several else f"the given {what} has"
            raise TypeError(f"The {what} given to {function} must be either a Tensor or a tuple of Tensors but {found} type {type(t)}.")
    return several, tensors


def check_vector(v: Sequence[Tensor], like: Sequence[Tensor], several: bool) -> None:
    """RuntimeError where `v` has not the shapes of `like`. several: whether those are in a tuple."""
    if len(v) != len(like):
        if several:
            raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(v)}.")
        raise RuntimeError("The given v should contain a single Tensor.")
    for i, (given, t) in enumerate(zip(v, like, strict=True)):
        if given.size() != t.size():
            entry = f"Entry {i} in v" if several else "v"
            raise RuntimeError(f"{entry} has invalid size: should be {t.size()} but got {given.size()}.")


def check_single(tensors: Sequence[Tensor], told: str) -> None:
    """RuntimeError where a vector may not be left out: for other than one tensor with one element. told: what that tensor should have been."""
    if len(tensors) != 1 or tensors[0].numel() != 1:
        raise RuntimeError(f"The vector v can only be None if {told} a single Tensor with a single element.")


def check_scalar(outputs: Sequence[Tensor], several: bool, function: str) -> Tensor:
    """The one output of a function that has a Hessian. RuntimeError where there are several, or it has not exactly one element."""
    if several or len(outputs) != 1:
        raise RuntimeError(f"The function given to {function} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {function} should contain a single element")
    return outputs[0]


def check_requires_grad(tensors: Sequence[Tensor], strict: bool, told: str = NO_GRAPH) -> None:
    """In strict mode, RuntimeError for a tensor that does not depend on anything that requires a gradient."""
    if strict:
        for i, t in enumerate(tensors):
            if not t.requires_grad:
                raise RuntimeError(told.format(i))


def filled(found: Sequence[Tensor | None], like: Sequence[Tensor], strict: bool, told: str, linear: str = "") -> tuple[Tensor, ...]:
    """Derivatives, with zeros where there is none. In strict mode RuntimeError instead, and also for one that does not depend on the inputs where
    it must. linear: what such a derivative is called; empty where it need not depend on them."""
    made = []
    for i, (g, t) in enumerate(zip(found, like, strict=True)):
        if strict and g is None:
            raise RuntimeError(told.format(i))
        if strict and linear and g is not None and not g.requires_grad:
            raise RuntimeError(LINEAR.format(linear, i))
        made.append(zeros_like(t) if g is None else g)
    return tuple(made)
