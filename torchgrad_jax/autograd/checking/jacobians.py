"""Jacobians by finite differences and by backward, and their comparison: the middle of `gradcheck`.

A Jacobian is a host array of shape (elements of the input, elements of the output). Of a complex output each part is a function of its
own: its imaginary part is what the gradient ``1j * v`` picks out, its real part what ``v`` does.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.autograd.backward import grad
from torchgrad_jax.autograd.checking.finite_differences import directional, host, joined, partials, real_dtype, units_of
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.random import drawn
from torchgrad_jax.operators.kernels.generator import Generator

REENTRANT = (
    "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives different values, although "
    "analytical gradient matches numerical gradient.The tolerance for nondeterminism was {}.\n\n"
    "If the function is meant to differ from run to run, pass a `nondet_tol` that allows for it."
)
MISMATCH = "{}Jacobian mismatch for output {} with respect to input {},\nnumerical:{}\nanalytical:{}\n"
SLOWLY = (
    "\nThe above quantities relating the numerical and analytical jacobians are computed \n"
    "in fast mode. See: https://github.com/pytorch/pytorch/issues/53876 for more background \n"
    "about fast mode. Below, we recompute numerical and analytical jacobians in slow mode:\n\n"
    "Numerical:\n {}\nAnalytical:\n{}\n\nThe max per-element difference (slow mode) is: {}.\n"
)
FAST_ONLY = (
    "\nFast gradcheck failed but element-wise differences are small. This means that the\n"
    "test might've passed in slow_mode!\n"
    "Pass `fast_mode=False` to check element by element.\n"
)
DEPRECATED = (
    "`{}` was part of PyTorch's private API and not meant to be exposed. We are deprecating it and it will be removed in a future version of "
    "PyTorch. If you have a specific use for this or feature request for this to be a stable API, please file us an issue at "
    "https://github.com/pytorch/pytorch/issues/new"
)


class GradcheckError(RuntimeError):
    """A check of `gradcheck` or `gradgradcheck` has failed."""

    __module__ = "torchgrad_jax.autograd.gradcheck"  # where users find it


def as_outputs(found: Any) -> tuple[Any, ...]:
    """What a function returned, as a tuple."""
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def differentiable(found: Any) -> tuple[Tensor, ...]:
    """Those of a function's results that require grad."""
    return tuple(o for o in as_outputs(found) if o.requires_grad)


def floats(found: Any) -> list[Tensor]:
    """Those of a function's results that could have a derivative."""
    return [o for o in as_outputs(found) if o.is_floating_point() or o.is_complex()]


class Problem:
    """A function at the point where it is checked.

    inputs: the tensors that require grad. results: all that the function returned at them; outputs: those that have a graph.
    """

    def __init__(
        self, func: Callable[..., Any], arguments: tuple[Any, ...], eps: float, atol: float, rtol: float, nondet_tol: float, check_dtypes: bool
    ) -> None:
        self.func, self.arguments = func, arguments
        self.eps, self.atol, self.rtol, self.nondet_tol, self.check_dtypes = eps, atol, rtol, nondet_tol, check_dtypes
        self.inputs = [x for x in arguments if isinstance(x, Tensor) and x.requires_grad]
        self.results = as_outputs(func(*arguments))
        self.outputs = differentiable(self.results)

    def of(self, func: Callable[..., Any], arguments: tuple[Any, ...], again: bool) -> Problem:
        """Another function under the same tolerances that has the same outputs. again: whether it is called to get them."""
        made = copy.copy(self)
        made.func, made.arguments = func, arguments
        made.inputs = [x for x in arguments if isinstance(x, Tensor) and x.requires_grad]
        if again:
            made.results = as_outputs(func(*arguments))
            made.outputs = differentiable(made.results)
        return made

    def evaluate(self) -> tuple[Tensor, ...]:
        """The differentiable outputs at the inputs' present contents."""
        return differentiable(self.func(*self.arguments))

    def parts(self) -> Sequence[str]:
        """The real functions that the outputs are made of, in the order of their checks."""
        return ("imaginary", "real") if any(o.is_complex() for o in self.outputs) else ("real",)

    def close(self, analytical: Any, numerical: Any, scale: float = 1.0) -> bool:
        """Whether two Jacobians, or two products with them, agree. NaN agrees with nothing."""
        return bool(np.allclose(analytical, numerical, self.rtol, self.atol * scale))


def check_constant(problem: Problem, fast: bool) -> None:
    """A function none of whose results has a graph must be constant."""

    def evaluate() -> list[Tensor]:
        return floats(problem.func(*problem.arguments))

    outputs = floats(problem.results)
    for x, u in zip(problem.inputs, Vectors().of_inputs(problem.inputs), strict=True):
        if fast:
            for step in u:
                _expect_zero(directional(evaluate, outputs, x, step * problem.eps, problem.eps, ""))
        else:
            for found in partials(evaluate, outputs, x, problem.eps):
                _expect_zero(found)


def _expect_zero(derivatives: Sequence[np.ndarray]) -> None:
    if any(bool(np.any(d != 0)) for d in derivatives):
        raise GradcheckError("Numerical gradient for function expected to be zero")


# ---------------------------------------------------------------------- every element


def check_slow(problem: Problem) -> None:
    """Compare the Jacobians element by element. GradcheckError for the first pair of output and input where they differ."""
    numerical = [partials(problem.evaluate, problem.outputs, x, problem.eps) for x in problem.inputs]
    for part in problem.parts():
        analytical = [_rows(problem, o, part) for o in problem.outputs]
        for i, output in enumerate(problem.outputs):
            for j, found in enumerate(numerical):
                a, n = analytical[i][j], _jacobian(found[i], part)
                if not problem.close(a, n):
                    raise GradcheckError(MISMATCH.format(_considered(output, part), i, j, drawn(n), drawn(a)))


def _jacobian(derivatives: Sequence[np.ndarray], part: str) -> Any:
    return joined(*(_part(d, part) for d in derivatives))


def _part(array: np.ndarray, part: str) -> np.ndarray:
    return array if array.dtype.kind != "c" else np.imag(array) if part == "imaginary" else np.real(array)


def _considered(output: Tensor, part: str) -> str:
    return f"While considering the {part} part of complex outputs only, " if output.is_complex() else ""


def _rows(problem: Problem, output: Tensor, part: str) -> list[np.ndarray]:
    """The Jacobians of one part of an output with respect to all inputs, by backward."""
    first, second = _two_passes(problem.inputs, output, 1j if part == "imaginary" and output.is_complex() else 1, problem.check_dtypes)
    _check_deterministic(first, second, problem.nondet_tol)
    return first


def _two_passes(inputs: Sequence[Tensor], output: Tensor, unit: complex, check_dtypes: bool) -> list[list[np.ndarray]]:
    """Twice the Jacobians of `output`: one backward pass for each of its elements, whose gradient is `unit`."""
    aval = output._aval
    found = []
    for _ in range(2):
        columns: list[list[np.ndarray]] = [[] for _ in inputs]
        for index in np.ndindex(*aval.shape):
            v = np.zeros(aval.shape, aval.dtype)
            v[index] = unit
            for column, product in zip(columns, _products(inputs, output, v, check_dtypes), strict=True):
                column.append(product.ravel())
        found.append([np.stack(c, 1) if c else np.zeros((x.numel(), 0), x._aval.dtype) for c, x in zip(columns, inputs, strict=True)])
    return found


def _products(inputs: Sequence[Tensor], output: Tensor, v: np.ndarray, check_dtypes: bool) -> list[np.ndarray]:
    """The gradients of one output with respect to all inputs for the output's gradient `v`; zeros where there is none."""
    gradients = grad(output, inputs, drawn(v, output.device), retain_graph=True, allow_unused=True)
    if check_dtypes and any(g is not None and g.dtype != x.dtype for x, g in zip(inputs, gradients, strict=True)):
        raise GradcheckError("Gradient has dtype mismatch")
    return [np.zeros(x._aval.shape, x._aval.dtype) if g is None else host(g) for x, g in zip(inputs, gradients, strict=True)]


def _reentrant(first: Sequence[np.ndarray], second: Sequence[np.ndarray], tolerance: float) -> bool:
    with np.errstate(all="ignore"):
        return not any(bool(np.any(np.abs(a - b) > tolerance)) for a, b in zip(first, second, strict=True))


def _check_deterministic(first: Sequence[np.ndarray], second: Sequence[np.ndarray], tolerance: float) -> None:
    if not _reentrant(first, second, tolerance):
        raise GradcheckError(REENTRANT.format(tolerance))


# ---------------------------------------------------------------------- along one direction


class Vectors:
    """Random unit vectors, the same in every check: a real one for each of the real and the imaginary parts of a tensor."""

    def __init__(self) -> None:
        self.generator = Generator()

    def of(self, t: Tensor) -> np.ndarray:
        """A unit vector of the tensor's shape."""
        aval = t._aval
        vector = self.generator.uniform(aval.shape, dtypes.default_float()).astype(real_dtype(aval.dtype))
        return vector / np.linalg.norm(vector.ravel()).astype(vector.dtype) if aval.size else vector

    def of_inputs(self, inputs: Sequence[Tensor]) -> list[list[np.ndarray]]:
        """The directions in which each input is moved: one if it is real; two, the second imaginary, if it is complex."""
        return [[self.of(x) * unit for unit in units_of(x)] for x in inputs]


def check_fast(problem: Problem) -> None:
    """Compare ``v @ J @ u`` for one pair of unit vectors. GradcheckError, with the Jacobians themselves, where the two differ."""
    vectors = Vectors()
    us = vectors.of_inputs(problem.inputs)
    vs = [vectors.of(o) for o in problem.outputs]
    moved = [
        [directional(problem.evaluate, problem.outputs, x, step * problem.eps, problem.eps, "") for step in u]
        for x, u in zip(problem.inputs, us, strict=True)
    ]
    for part in problem.parts():
        analytical = [_twice(problem, o, v * (1j if part == "imaginary" and o.is_complex() else 1)) for o, v in zip(problem.outputs, vs, strict=True)]
        for i, v in enumerate(vs):
            for j, u in enumerate(us):
                n = joined(*(np.sum(_part(d[i], part) * v) for d in moved[j]))
                a = _along(analytical[i][j], u)
                size = float(np.sum(v)) * sum(float(np.sum(np.abs(x))) for x in u)
                if not problem.close(a, n, size):
                    raise GradcheckError(_compared_slowly(problem, i, j, part, n, a))


def _twice(problem: Problem, output: Tensor, v: np.ndarray) -> list[np.ndarray]:
    first, second = (_products(problem.inputs, output, v.astype(output._aval.dtype), problem.check_dtypes) for _ in range(2))
    _check_deterministic(first, second, problem.nondet_tol)
    return first


def _along(product: np.ndarray, u: Sequence[np.ndarray]) -> Any:
    if len(u) == 1:
        return np.sum(product * u[0])
    return joined(np.sum(np.real(product) * u[0]), np.sum(np.imag(product) * np.imag(u[1])))


def _compared_slowly(problem: Problem, i: int, j: int, part: str, numerical: Any, analytical: Any) -> str:
    output = problem.outputs[i]
    n = _jacobian(partials(problem.evaluate, problem.outputs, problem.inputs[j], problem.eps)[i], part)
    a = _rows(problem, output, part)[j]
    return MISMATCH.format(_considered(output, part), i, j, numerical.item(), analytical.item()) + explained(problem, n, a)


def explained(problem: Problem, numerical: Any, analytical: Any) -> str:
    """What a failure of fast mode says of the Jacobians themselves."""
    with np.errstate(all="ignore"):
        text = SLOWLY.format(drawn(numerical), drawn(analytical), float(np.max(np.abs(numerical - analytical))))
    return text + FAST_ONLY if problem.close(analytical, numerical) else text


# ---------------------------------------------------------------------- PyTorch's deprecated functions


def get_numerical_jacobian(fn: Callable[..., Any], inputs: Any, target: Any = None, eps: float = 1e-3, grad_out: float = 1.0) -> tuple[Tensor, ...]:
    """The Jacobians of ``fn(inputs)``, of its first output, by finite differences: of shape (elements of the input, elements of the output),
    for each tensor of `target` (default: `inputs`) that requires grad. Deprecated by PyTorch.

    ValueError for a complex output, and for a `grad_out` other than 1.0.
    """
    warnings.warn(DEPRECATED.format("get_numerical_jacobian"), FutureWarning, stacklevel=2)
    if grad_out != 1.0:
        raise ValueError("Expected grad_out to be 1.0. get_numerical_jacobian no longer supports values of grad_out != 1.0.")

    def evaluate() -> tuple[Any, ...]:
        return as_outputs(fn(inputs))

    outputs = evaluate()
    if any(o.is_complex() for o in outputs):
        raise ValueError("Expected output to be non-complex. get_numerical_jacobian no longer supports functions that return complex outputs.")
    wanted = [x for x in as_outputs(inputs if target is None else target) if isinstance(x, Tensor) and x.requires_grad]
    return tuple(drawn(joined(*partials(evaluate, outputs, x, eps)[0])) for x in wanted)


def get_numerical_jacobian_wrt_specific_input(
    fn: Callable[..., Any], input_idx: int, inputs: Sequence[Any], outputs: Sequence[Tensor], eps: float, input: Any = None,
    is_forward_ad: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The Jacobians of every output of ``fn(*inputs)`` with respect to one input (`inputs[input_idx]`, or `input` if given) by finite
    differences. AssertionError for a complex output, unless the input is real and `is_forward_ad`."""
    x = inputs[input_idx] if input is None else input
    if any(o.is_complex() for o in outputs) and (x.is_complex() or not is_forward_ad):
        raise AssertionError("Expected ds_dx to be real-valued, not complex")
    return tuple(drawn(joined(*found)) for found in partials(lambda: as_outputs(fn(*inputs)), outputs, x, eps))


def get_analytical_jacobian(
    inputs: Sequence[Any], output: Tensor, nondet_tol: float = 0.0, grad_out: float = 1.0
) -> tuple[tuple[Tensor, ...], bool, bool, bool]:
    """The Jacobians of `output` by backward with respect to every input that requires grad; whether a second pass gave the same; whether
    all gradients had the right sizes; and the right dtypes. Deprecated by PyTorch.

    ValueError for a complex output, and for a `grad_out` other than 1.0.
    """
    warnings.warn(DEPRECATED.format("get_analytical_jacobian"), FutureWarning, stacklevel=2)
    if grad_out != 1.0:
        raise ValueError("Expected grad_out to be 1.0. get_analytical_jacobian no longer supports values of grad_out != 1.0.")
    if output.is_complex():
        raise ValueError("Expected output to be non-complex. get_analytical_jacobian no longer supports functions that return complex outputs.")
    wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    first, second = _two_passes(wanted, output, 1, False)
    reentrant = _reentrant(first, second, nondet_tol)
    return tuple(map(drawn, first)), reentrant, True, True  # backward raises for a gradient that does not fit its input
