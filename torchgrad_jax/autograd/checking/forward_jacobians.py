"""The forward half of `gradcheck`: tangents compared with finite differences, with one another in a batch, and where some are missing.

Forward mode is checked for functions of real inputs. Where an input is complex, the function is checked as one of the imaginary and as one of the
real parts; a complex output is compared as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchgrad_jax.autograd.batched import levels
from torchgrad_jax.autograd.checking.finite_differences import directional, host, partials
from torchgrad_jax.autograd.checking.jacobians import GradcheckError, Problem, Vectors, check_constant, explained, floats
from torchgrad_jax.autograd.forward_ad import dual_level, make_dual_plainly, unpack_dual_plainly
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.operator import ARRAY
from torchgrad_jax.functions.creation import zeros_like
from torchgrad_jax.functions.random import drawn
from torchgrad_jax.functions.random_factories import randn_like
from torchgrad_jax.functions.shaping import stack
from torchgrad_jax.operators import registry

MISMATCH = "{}Jacobian computed with forward mode mismatch for output {} with respect to input {},\nnumerical:{}\nanalytical:{}\n"
BATCHED_HINT = (
    "gradcheck failed while testing batched gradient computation with forward-mode AD.\n"
    "A batch of tangents is computed by one call of the function whose tangents have one more dimension in front. Pass\n"
    "`check_batched_forward_grad=False` if the function cannot be called so, for instance because it looks at the values of its tangents."
)


def check_forward(problem: Problem, fast: bool) -> None:
    """Compare the Jacobians by forward mode with finite differences: every element, or along one direction. GradcheckError where they differ."""
    for part in _parts(problem):
        considered = f"While considering the {part} part of complex inputs only, "
        _check_real(_of_parts(problem, part) if part else problem, considered, problem.inputs, fast)


def _parts(problem: Problem) -> tuple[str, ...]:
    """The parts of its inputs that the function is checked as a function of; an empty word for real inputs."""
    return ("imaginary", "real") if any(isinstance(x, Tensor) and x.is_complex() for x in problem.arguments) else ("",)


def _of_parts(problem: Problem, part: str, again: bool = True) -> Problem:
    """The function of one part of its complex inputs, the other part kept. again: whether it is called to see what it returns."""
    arguments = problem.arguments
    split = [isinstance(x, Tensor) and x.requires_grad and x.is_complex() for x in arguments]

    def whole(*given: Any) -> Any:
        joined = []
        for x, g, there in zip(arguments, given, split, strict=True):
            joined.append(g if not there else _complex(x.real, g) if part == "imaginary" else _complex(g, x.imag))
        return problem.func(*joined)

    parts = []
    for x, there in zip(arguments, split, strict=True):
        parts.append((x.imag if part == "imaginary" else x.real).detach().clone().requires_grad_() if there else x)
    return problem.of(whole, tuple(parts), again)


def _complex(real: Tensor, imag: Tensor) -> Tensor:
    return apply(registry["complex"].bind((ARRAY, ARRAY)), (real, imag))


def _check_real(problem: Problem, considered: str, originals: Sequence[Tensor], fast: bool) -> None:
    if not fast and not problem.outputs:
        check_constant(problem, fast)
        return
    notes = [considered if x.is_complex() else "" for x in originals]
    (_compare_along if fast else _compare_elements)(problem, notes)


def _compare_elements(problem: Problem, notes: Sequence[str]) -> None:
    numerical = [partials(problem.evaluate, problem.outputs, x, problem.eps) for x in problem.inputs]
    analytical = [_columns(problem, j) for j in range(len(notes))]
    for i in range(len(problem.outputs)):
        for j, note in enumerate(notes):
            n, a = numerical[j][i][0], analytical[j][i]
            if not problem.close(a, n):
                raise GradcheckError(MISMATCH.format(note, i, j, drawn(n), drawn(a)))


def _compare_along(problem: Problem, notes: Sequence[str]) -> None:
    us = [u[0] for u in Vectors().of_inputs(problem.inputs)]
    outputs = floats(problem.results)

    def evaluate() -> list[Tensor]:
        return floats(problem.func(*problem.arguments))

    numerical = [directional(evaluate, outputs, x, u * problem.eps, problem.eps, "") for x, u in zip(problem.inputs, us, strict=True)]
    analytical = [_pushed(problem, _only(problem, j, u)) for j, u in enumerate(us)]
    for i in range(len(outputs)):
        for j, u in enumerate(us):
            n, a = numerical[j][i].ravel(), analytical[j][i].ravel()
            if not problem.close(a, n, float(np.sum(np.abs(u)))):
                text = MISMATCH.format(notes[j], i, j, drawn(n), drawn(a))
                n, a = partials(evaluate, outputs, problem.inputs[j], problem.eps)[i][0], _columns(problem, j)[i]
                raise GradcheckError(text + explained(problem, n, a))


# ---------------------------------------------------------------------- tangents


def _outputs_of(problem: Problem, tangents: Sequence[Tensor | None]) -> list[Tensor]:
    """The outputs that could have a tangent, of the function called with dual inputs. A level is open."""
    given = iter(tangents)
    called = []
    for x in problem.arguments:
        if isinstance(x, Tensor) and x.requires_grad:
            tangent = next(given)
            x = x.detach() if tangent is None else make_dual_plainly(x.detach(), tangent)
        called.append(x)
    return floats(problem.func(*called))


def _tangents(problem: Problem, tangents: Sequence[Tensor | None]) -> list[Tensor]:
    """The tangents of the outputs for those of the inputs that require grad; zeros where an output has none."""
    with dual_level():
        found = []
        for o in _outputs_of(problem, tangents):
            tangent = unpack_dual_plainly(o).tangent
            if tangent is not None and problem.check_dtypes and tangent.is_complex() != o.is_complex():
                raise GradcheckError("Forward AD gradient has dtype mismatch.")
            found.append(zeros_like(o).detach() if tangent is None else tangent)
        return found


def _only(problem: Problem, j: int, tangent: np.ndarray) -> list[Tensor]:
    """Tangents for all inputs: zeros but for one of them."""
    made = [zeros_like(x).detach() for x in problem.inputs]
    made[j] = drawn(tangent.astype(problem.inputs[j]._aval.dtype), problem.inputs[j].device)
    return made


def _pushed(problem: Problem, tangents: Sequence[Tensor | None]) -> list[np.ndarray]:
    found = [host(t) for t in _tangents(problem, tangents)]
    return [np.real(t) if t.dtype.kind == "c" and not o.is_complex() else t for t, o in zip(found, floats(problem.results), strict=True)]


def _columns(problem: Problem, j: int) -> list[np.ndarray]:
    """The Jacobians of all outputs with respect to one input: a call for each of its elements."""
    aval = problem.inputs[j]._aval
    rows = []
    for index in np.ndindex(*aval.shape):
        unit = np.zeros(aval.shape, aval.dtype)
        unit[index] = 1
        rows.append([t.ravel() for t in _pushed(problem, _only(problem, j, unit))])
    if not rows:
        return [np.zeros((0, o.numel()), o._aval.dtype) for o in floats(problem.results)]
    return [np.stack(column) for column in zip(*rows, strict=True)]


# ---------------------------------------------------------------------- missing tangents, and batches of them


def check_undefined_tangents(problem: Problem) -> None:
    """An input without a tangent counts as one with a zero tangent, the other inputs having some. GradcheckError where not."""
    for part in _parts(problem):
        _check_undefined(_of_parts(problem, part, again=False) if part else problem)


def _check_undefined(problem: Problem) -> None:
    us = [drawn(u[0].astype(x._aval.dtype), x.device) for x, u in zip(problem.inputs, Vectors().of_inputs(problem.inputs), strict=True)]
    for j, x in enumerate(problem.inputs):
        missing: list[Tensor | None] = list(us)
        missing[j] = zeros_like(x).detach()
        expected = _tangents(problem, missing)
        missing[j] = None
        for i, (got, wanted) in enumerate(zip(_tangents(problem, missing), expected, strict=True)):
            if not np.allclose(host(got), host(wanted)):
                raise GradcheckError(
                    "Mismatch in tangent values for output with index: ", i, " when input: ", x, " has an undefined tangent value. ",
                    " Got: ", wanted, " but expected: ", got,
                )  # fmt: skip


def check_batched_tangents(problem: Problem) -> None:
    """Two tangents of an input at once lead to those that they lead to one by one. GradcheckError where not, or where they cannot be had."""
    for j, x in enumerate(problem.inputs):
        vectors = [randn_like(x.detach()) for _ in range(2)]

        def push(v: Tensor, j: int = j) -> list[Tensor]:
            return _tangents(problem, [v if k == j else None for k in range(len(problem.inputs))])

        single = [push(v) for v in vectors]
        try:
            together = levels.mapped(push, [stack(vectors)], [0])
        except RuntimeError as error:
            raise GradcheckError(f"While computing batched gradients, got: {error}\n\n{BATCHED_HINT}") from error
        for i, (got, *expected) in enumerate(zip(together, *single, strict=True)):
            wanted = stack(expected)
            if not np.allclose(host(got), host(wanted)):
                raise GradcheckError(f"For output {i} and input {j}:\n\n{BATCHED_HINT}\n\nGot:\n{got}\n\nExpected:\n{wanted}\n")
