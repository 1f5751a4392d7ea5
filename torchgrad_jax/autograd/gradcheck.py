"""`gradcheck` and `gradgradcheck`: backward compared with finite differences, in full or along one random direction."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.autograd.backward import grad
from torchgrad_jax.autograd.checking import forward_jacobians, jacobians
from torchgrad_jax.autograd.checking.finite_differences import host
from torchgrad_jax.autograd.checking.jacobians import GradcheckError, Problem, get_analytical_jacobian, get_numerical_jacobian
from torchgrad_jax.autograd.checking.jacobians import get_numerical_jacobian_wrt_specific_input as get_numerical_jacobian_wrt_specific_input
from torchgrad_jax.autograd.function import Function
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import zeros_like
from torchgrad_jax.functions.random import drawn, uniform_between
from torchgrad_jax.functions.random_factories import randn_like
from torchgrad_jax.functions.shaping import stack
from torchgrad_jax.runtime.modes import same_tier

__all__ = [
    "GradcheckError", "get_analytical_jacobian", "get_numerical_jacobian", "get_numerical_jacobian_wrt_specific_input", "gradcheck",
    "gradgradcheck",
]  # fmt: skip

NO_INPUT = "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
IMPRECISE = (
    "Input #{} requires gradient and is not a double precision floating point or complex. "
    "This check will likely fail if all the inputs are not of double precision floating point or complex. "
)
OVERLAPPING = (
    "The {}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping to be able to compute the numerical "
    "gradients correctly. You should call .contiguous on the input before passing it to gradcheck."
)
UNDEFINED_NOTE = 'Please look at "Notes about undefined output gradients" in "tools/autograd/derivatives.yaml"'
UNDEFINED_WARNING = (
    "Backwards compatibility: New undefined gradient support checking feature is enabled by default, but it may break existing callers of "
    'this function. If this is true for you, you can call this function with "check_undefined_grad=False" to disable the feature'
)
BATCHED_HINT = (
    "gradcheck or gradgradcheck failed while testing batched gradient computation.\n"
    "A batch of gradients is computed by one backward pass whose gradients have one more dimension in front. Pass `check_batched_grad=False`\n"
    "if the function's backward cannot be run so, for instance because it looks at the values of its gradients."
)


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether the derivatives of `func` agree with finite differences at `inputs`, for every input that requires grad.

    func: takes `inputs` (a tensor, or a sequence of tensors and other arguments) and returns a tensor or several. A complex output is
    checked as two functions, its imaginary and its real part. The inputs should be float64 or complex128.

    eps: how far an element is moved. atol, rtol: `analytical` passes if ``|analytical - numerical| <= atol + rtol * |numerical|``.
    nondet_tol: by how much two backward passes over the same graph may differ. check_undefined_grad: outputs without a gradient must
    count as outputs with a zero one. check_grad_dtypes: a gradient must have its input's dtype. check_batched_grad: gradients must be
    the same when `grad` computes several at once. check_backward_ad, check_forward_ad: which mode is checked. check_batched_forward_grad: two
    tangents of an input at once must lead to what they lead to one by one. fast_mode: compare ``v @ J @ u`` for fixed random unit vectors instead
    of every element of the Jacobian J. masked concerns sparse tensors only, of which there are none.

    Raises GradcheckError where a check fails, or returns False if `raise_exception` is False. ValueError where no input requires grad,
    RuntimeError for an expanded input; errors of `func` itself are passed on.
    """
    _check_modes(check_forward_ad, check_backward_ad, check_batched_grad, check_batched_forward_grad)
    arguments = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    _check_inputs(arguments)
    try:
        with same_tier():
            problem = Problem(func, arguments, eps, atol, rtol, nondet_tol, check_grad_dtypes)
            if check_backward_ad:
                _check_backward(problem, fast_mode)
            if check_forward_ad:
                forward_jacobians.check_forward(problem, fast_mode)
            if check_batched_forward_grad:
                forward_jacobians.check_batched_tangents(problem)
            if check_forward_ad and check_undefined_grad:
                forward_jacobians.check_undefined_tangents(problem)
            if check_backward_ad and problem.outputs:
                if check_batched_grad:
                    _check_batched(problem)
                _check_linear_in_gradient(problem)
                if check_undefined_grad:
                    _check_undefined(problem)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Whether the second derivatives agree with finite differences: `gradcheck` of the gradients, as a function of the inputs and of the
    outputs' gradients.

    grad_outputs: a gradient for each differentiable output; drawn from the default generator where None, and then of another stride than
    the output's if `gen_non_contig_grad_outputs`. check_rev_over_rev, check_fwd_over_rev: whether the gradients' derivatives are
    computed by backward, and by forward mode. The other arguments and the errors are those of `gradcheck`.
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    if check_undefined_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_undefined_grad=True requires check_rev_over_rev to be True")
    if check_batched_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_batched_grad=True requires check_rev_over_rev to be True")
    arguments = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    if grad_outputs is None:
        outputs = jacobians.differentiable(func(*arguments))
        gradients = tuple(_random_gradient(o, gen_non_contig_grad_outputs) for o in outputs)
    else:
        gradients = tuple(grad_outputs) if isinstance(grad_outputs, (tuple, list)) else (grad_outputs,)

    # Forward mode is given inputs without a graph.
    needed = [isinstance(x, Tensor) and x.requires_grad for x in arguments]

    def gradients_of(*given: Any) -> tuple[Tensor, ...]:
        own = given[: len(arguments)]
        wanted = [x.requires_grad_() for x, there in zip(own, needed, strict=True) if there]
        outputs = jacobians.differentiable(func(*own))
        found = grad(outputs, wanted, given[len(arguments) :], create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradients_of, (*arguments, *gradients), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes, check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev, check_backward_ad=check_rev_over_rev, fast_mode=fast_mode, masked=masked,
    )  # fmt: skip


def _random_gradient(output: Tensor, noncontiguous: bool) -> Tensor:
    """Uniform numbers of [-1, 1), a part of memory twice as large if they are not to be contiguous."""
    aval = output._aval
    shape, dtype = aval.shape, aval.dtype
    if noncontiguous and aval.size > 1:
        wide = uniform_between((*shape[:-1], 2 * shape[-1]), dtype, -1.0, 1.0)
        return drawn(wide, output.device)[..., 1::2].detach().requires_grad_()
    return drawn(uniform_between(shape, dtype, -1.0, 1.0), output.device, requires_grad=True)


# ---------------------------------------------------------------------- the single checks


def _check_modes(forward: bool, backward: bool, batched: bool, batched_forward: bool) -> None:
    if not (forward or backward):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if batched and not backward:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if batched_forward and not forward:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")


def _check_inputs(arguments: Sequence[Any]) -> None:
    found = False
    for i, x in enumerate(arguments):
        if not (isinstance(x, Tensor) and x.requires_grad):
            continue
        found = True
        if x.dtype not in (dtypes.float64, dtypes.complex128):
            warnings.warn(IMPRECISE.format(i), UserWarning, stacklevel=3)
        if any(stride == 0 and n > 1 for n, stride in zip(x.shape, x.stride(), strict=True)):
            raise RuntimeError(OVERLAPPING.format(i))
    if not found:
        raise ValueError(NO_INPUT)


def _check_backward(problem: Problem, fast: bool) -> None:
    if not problem.outputs:
        jacobians.check_constant(problem, fast)
    else:
        (jacobians.check_fast if fast else jacobians.check_slow)(problem)


def _nonzero(gradients: Sequence[Any]) -> bool:
    return any(g is not None and bool(np.any(host(g) != 0)) for g in gradients)


def _check_linear_in_gradient(problem: Problem) -> None:
    zeros = [zeros_like(o) for o in problem.outputs]
    if _nonzero(grad(problem.outputs, problem.inputs, zeros, retain_graph=True, allow_unused=True)):
        raise GradcheckError("backward not multiplied by grad_output")


class _Undefined(Function):
    """Passes its input on, and no gradient back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> None:
        return None


def _check_undefined(problem: Problem) -> None:
    """Gradients that are missing, all of them and one at a time, count as zeros."""
    everyone = set(range(len(problem.outputs)))
    for missing in (everyone, *({i} for i in everyone if len(everyone) > 1)):
        outputs = problem.evaluate()
        roots = [_Undefined.apply(o) if i in missing else o for i, o in enumerate(outputs)]
        try:
            found = grad(roots, problem.inputs, [zeros_like(o) for o in outputs], allow_unused=True)
        except RuntimeError as error:
            warnings.warn(UNDEFINED_WARNING, UserWarning, stacklevel=3)
            raise GradcheckError(f"Expected backward function to handle undefined output grads. {UNDEFINED_NOTE}") from error
        if _nonzero(found):
            warnings.warn(UNDEFINED_WARNING, UserWarning, stacklevel=3)
            raise GradcheckError(f"Expected all input grads to be undefined or zero when all output grads are undefined or zero. {UNDEFINED_NOTE}")


def _check_batched(problem: Problem) -> None:
    """Two gradients computed at once are those computed one by one."""
    for i, output in enumerate(problem.outputs):
        vectors = [randn_like(output) for _ in range(2)]
        single = [grad(output, problem.inputs, v, retain_graph=True, allow_unused=True) for v in vectors]
        try:
            together = grad(output, problem.inputs, stack(vectors), retain_graph=True, allow_unused=True, is_grads_batched=True)
        except RuntimeError as error:
            raise GradcheckError(f"While computing batched gradients, got: {error}\n\n{BATCHED_HINT}") from error
        for j, (got, *expected) in enumerate(zip(together, *single, strict=True)):
            if got is None:
                continue
            wanted = stack(expected)
            if not np.allclose(host(got), host(wanted)):
                raise GradcheckError(f"For output {i} and input {j}:\n\n{BATCHED_HINT}\n\nGot:\n{got}\n\nExpected:\n{wanted}\n")
