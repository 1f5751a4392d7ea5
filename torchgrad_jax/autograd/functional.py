"""`torch.autograd.functional`: Jacobians, Hessians and their products with vectors, of a Python function of tensors.

The function is called once, on tensors that stand for its inputs, and what it returns is differentiated. Neither the inputs nor their `.grad` are
touched. A whole Jacobian is one recorded operation wherever no Python of the user's must run in the backward passes; see `basis.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.autograd.backward import grad
from torchgrad_jax.autograd.basis import construct_standard_basis_for, gradients_of_elements, gradients_together
from torchgrad_jax.autograd.forward_basis import jacobian_by_tangents
from torchgrad_jax.autograd.functional_checks import (
    INDEPENDENT_ROW,
    LINEAR,
    LINEAR_IN_HESSIAN,
    OF_GRADIENTS,
    OF_GRADIENTS_OF_JACOBIAN,
    OF_JACOBIAN,
    OF_OUTPUTS,
    OUTPUTS,
    as_tensors,
    check_requires_grad,
    check_scalar,
    check_single,
    check_vector,
    filled,
)  # fmt: skip
from torchgrad_jax.autograd.grad_mode import enable_grad
from torchgrad_jax.autograd.passes import as_one_operation
from torchgrad_jax.autograd.undisturbed import repeated
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import zeros, zeros_like
from torchgrad_jax.functions.shaping import stack

__all__ = ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"]

Tensors = Tensor | tuple[Tensor, ...]
_construct_standard_basis_for = construct_standard_basis_for  # private in PyTorch, and used by programs nevertheless


@repeated
def vjp(func: Callable[..., Any], inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """What `func` returns at `inputs`, and the product of `v` with its Jacobian there.

    func: takes tensors and returns a tensor or a tuple of them. v: of the shapes of what `func` returns; may be left out where that is one element.
    create_graph: both results can be differentiated. strict: an input that the outputs do not depend on is an error; its product is zeros otherwise.
    Returns ``(outputs, product)``, the product of the shapes and dtypes of the inputs. TypeError for what is no tensor, RuntimeError for a `v`
    that does not fit, and in strict mode.
    """
    with enable_grad():
        several, xs = as_tensors(inputs, "inputs", "vjp")
        xs = _prepared(xs, create_graph)
        several_outputs, outputs = as_tensors(func(*xs), OUTPUTS, "vjp")
        check_requires_grad(outputs, strict)
        vector = _vector(v, outputs, several_outputs, create_graph, "vjp", "the user-provided function returns")
        products = filled(_grad(outputs, xs, vector, create_graph), xs, strict, OF_OUTPUTS, "jacobian" if create_graph else "")
        return _results(outputs, several_outputs, create_graph), _results(products, several, create_graph)


@repeated
def jvp(func: Callable[..., Any], inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """What `func` returns at `inputs`, and the product of its Jacobian there with `v`, by two backward passes.

    func: takes tensors and returns a tensor or a tuple of them. v: of the shapes of `inputs`; may be left out where those are one element.
    create_graph: both results can be differentiated. strict: an input that the outputs do not depend on is an error; it counts as zero otherwise.
    Returns ``(outputs, product)``, the product of the shapes and dtypes of the outputs. TypeError for what is no tensor, RuntimeError for a `v`
    that does not fit, and in strict mode.
    """
    with enable_grad():
        several, xs = as_tensors(inputs, "inputs", "jvp")
        xs = _prepared(xs, create_graph)
        vector = _vector(v, xs, several, create_graph, "jvp", "the input to the user-provided function is")
        several_outputs, outputs = as_tensors(func(*xs), OUTPUTS, "jvp")
        check_requires_grad(outputs, strict)

        def compute() -> tuple[Tensor, ...]:
            units = tuple([zeros_like(o, requires_grad=True) for o in outputs])
            gradients = filled(_grad(outputs, xs, units, True), xs, strict, OF_OUTPUTS)
            return filled(_grad(gradients, units, vector, create_graph), outputs, strict, OF_GRADIENTS, "jacobian" if create_graph else "")

        products = compute() if create_graph else as_one_operation(("jvp", strict), outputs, xs, vector or (), compute)
        return _results(outputs, several_outputs, create_graph), _results(products, several_outputs, create_graph)


@repeated
def vhp(func: Callable[..., Any], inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """What `func` returns at `inputs`, and the product of `v` with its Hessian there.

    func: takes tensors and returns a tensor with one element. v: of the shapes of `inputs`; may be left out where those are one element.
    create_graph: both results can be differentiated. strict: an input that the output or its gradient does not depend on is an error; its product
    is zeros otherwise. Returns ``(output, product)``, the product of the shapes and dtypes of the inputs. TypeError for what is no tensor,
    RuntimeError for another number of elements, for a `v` that does not fit, and in strict mode.
    """
    with enable_grad():
        several, xs, vector, outputs = _called(func, inputs, v, create_graph, strict, "vhp")

        def compute() -> tuple[Tensor, ...]:
            found = _grad(_gradients(outputs, xs, strict), xs, vector, create_graph)
            return filled(found, xs, strict, OF_JACOBIAN, "hessian" if create_graph else "")

        products = compute() if create_graph else as_one_operation(("vhp", strict), outputs, xs, vector or (), compute)
        return _results(outputs, False, create_graph), _results(products, several, create_graph)


@repeated
def hvp(func: Callable[..., Any], inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """What `func` returns at `inputs`, and the product of its Hessian there with `v`.

    The arguments, results and errors of `vhp`, which takes one backward pass less: the two differ where the Hessian is not symmetric.
    """
    with enable_grad():
        several, xs, vector, outputs = _called(func, inputs, v, create_graph, strict, "hvp")

        def compute() -> tuple[Tensor, ...]:
            units = tuple([zeros_like(x, requires_grad=True) for x in xs])
            twice = filled(_grad(_gradients(outputs, xs, strict), xs, units, True), xs, False, "")
            found = _grad(twice, units, vector, create_graph)
            return filled(found, xs, strict, OF_GRADIENTS_OF_JACOBIAN, "hessian" if create_graph else "")

        products = compute() if create_graph else as_one_operation(("hvp", strict), outputs, xs, vector or (), compute)
        return _results(outputs, False, create_graph), _results(products, several, create_graph)


def _called(
    func: Callable[..., Any], inputs: Any, v: Any, create_graph: bool, strict: bool, name: str
) -> tuple[bool, tuple[Tensor, ...], tuple[Tensor, ...] | None, tuple[Tensor, ...]]:
    """Whether the inputs are a tuple, what stands for them, the vector, and the function's output, which is one number."""
    several, xs = as_tensors(inputs, "inputs", name)
    xs = _prepared(xs, create_graph)
    vector = _vector(v, xs, several, create_graph, name, "the input to the user-provided function is")
    several_outputs, outputs = as_tensors(func(*xs), OUTPUTS, name)
    check_requires_grad(outputs, strict)
    check_scalar(outputs, several_outputs, name)
    return several, xs, vector, outputs


def _gradients(outputs: Sequence[Tensor], xs: Sequence[Tensor], strict: bool) -> tuple[Tensor, ...]:
    """The gradients of a number, which can be differentiated."""
    found = _grad(outputs, xs, None, True)
    if strict:
        for i, g in enumerate(found):
            if g is None or not g.requires_grad:
                raise RuntimeError((OF_OUTPUTS if g is None else LINEAR_IN_HESSIAN).format(i))
    return filled(found, xs, False, "")


# ---------------------------------------------------------------------- whole matrices


@repeated
def jacobian(
    func: Callable[..., Any], inputs: Tensors, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The Jacobian of `func` at `inputs`.

    func: takes tensors and returns a tensor or a tuple of them. create_graph: the result can be differentiated. strict: an output that does not
    depend on an input is an error; that part is zeros otherwise. vectorize: all elements are differentiated together, so that hooks and Functions
    run once for all of them. strategy: ``"reverse-mode"`` or, with `vectorize` alone, ``"forward-mode"``: one pass for each input element.

    Returns for a tensor as input and as output a tensor of shape ``output.shape + input.shape``, else a tuple of such with one entry for each input
    or output, and a tuple of tuples ``[output][input]`` where both are tuples; of the dtype of the input (forward mode: of the output).
    TypeError for what is no tensor, AssertionError for another strategy, NotImplementedError and RuntimeError for options that do not go together,
    RuntimeError in strict mode.
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs than inputs, "forward-mode" '
            'tends to be more performant. Otherwise, prefer to use "reverse-mode".'
        )
    several, xs = as_tensors(inputs, "inputs", "jacobian")
    if strategy == "forward-mode":
        _check_forward(create_graph, strict, vectorize)
        return jacobian_by_tangents(func, several, xs)
    with enable_grad():
        xs = _prepared(xs, create_graph)
        several_outputs, outputs = as_tensors(func(*xs), OUTPUTS, "jacobian")
        rows = _rows(outputs, xs, create_graph, strict, vectorize)
        made = [_results(row, several, create_graph) for row in rows]
        if not made:
            raise IndexError("tuple index out of range")
        return tuple(made) if several_outputs else made[0]


@repeated
def hessian(
    func: Callable[..., Any], inputs: Tensors, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The Hessian of `func` at `inputs`: the Jacobian of its gradient.

    func: takes tensors and returns a tensor with one element. create_graph, strict, vectorize: see `jacobian`. outer_jacobian_strategy: how the
    gradient is differentiated.

    Returns for a tensor as input a tensor of its shape twice, else a tuple of tuples: ``[i][j]`` of shape ``inputs[i].shape + inputs[j].shape``.
    TypeError, AssertionError, NotImplementedError, RuntimeError as `jacobian`, and RuntimeError where `func` returns another number of elements.
    """
    several, xs = as_tensors(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def scalar(*given: Tensor) -> Tensor:
        several_outputs, outputs = as_tensors(func(*given), OUTPUTS, "hessian")
        check_requires_grad(outputs, strict)
        return check_scalar(outputs, several_outputs, "hessian").squeeze()

    if outer_jacobian_strategy == "forward-mode":
        _check_forward(create_graph, strict, vectorize)
        found = jacobian_by_tangents(lambda *given: jacobian(scalar, tuple(map(_requiring_grad, given)), create_graph=True), True, xs)
        return found if several else found[0][0]
    with enable_grad():
        xs = _prepared(xs, create_graph)
        given = _prepared(xs, True)
        rows = _hessian_rows(scalar(*given), given, xs, create_graph, strict, vectorize)
        made = tuple([_results(row, several, create_graph) for row in rows])
        return _results(made, several, True)


def _hessian_rows(
    output: Tensor, given: tuple[Tensor, ...], xs: tuple[Tensor, ...], create_graph: bool, strict: bool, vectorize: bool
) -> list[tuple[Tensor, ...]]:
    """For each input the Jacobians of its gradient with respect to all of them. given: what the function was called with, views of `xs`."""

    def compute() -> list[Tensor]:
        gradients = _row(0, output, given, True, False)
        if not gradients:
            raise IndexError("tuple index out of range")
        check_requires_grad(gradients, strict, LINEAR_IN_HESSIAN)
        return [g for row in _rows(gradients, xs, create_graph, strict, vectorize) for g in row]

    blocks = compute() if create_graph else as_one_operation(("hessian", strict, vectorize), (output,), xs, (), compute)
    return [tuple(blocks[i : i + len(xs)]) for i in range(0, len(blocks), len(xs))]


def _requiring_grad(t: Tensor) -> Tensor:
    t.requires_grad = True
    return t


def _check_forward(create_graph: bool, strict: bool, vectorize: bool) -> None:
    if create_graph:
        raise NotImplementedError(
            'torch.autograd.functional.jacobian: `create_graph=True` and `strategy="forward-mode"` are not supported together (yet). Please either '
            'set `create_graph=False` or `strategy="reverse-mode"`.'
        )
    if strict:
        raise RuntimeError(
            'torch.autograd.functional.jacobian: `strict=True` and `strategy="forward-mode"` are not supported together (yet). Please either set '
            '`strict=False` or `strategy="reverse-mode"`.'
        )
    if not vectorize:
        raise NotImplementedError("Computing Jacobian using forward-AD or forward-over-reverse Hessian isonly implemented for `vectorize=True`.")


def _rows(outputs: Sequence[Tensor], xs: tuple[Tensor, ...], create_graph: bool, strict: bool, vectorize: bool) -> list[tuple[Tensor, ...]]:
    """The Jacobians of each output with respect to each input."""
    check_requires_grad(outputs, strict)
    if not vectorize:
        return [_row(i, o, xs, create_graph, strict) for i, o in enumerate(outputs)]
    if strict:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. Please either set "
            "`strict=False` or `vectorize=False`."
        )
    if not outputs:
        raise AssertionError("Expected at least one tensor")
    there = [o for o in outputs if o.requires_grad]
    found = iter(gradients_together(there, xs, create_graph) if there else ())
    return [_with_zeros(o, next(found) if o.requires_grad else [None for _ in xs], xs) for o in outputs]


def _row(i: int, output: Tensor, xs: tuple[Tensor, ...], create_graph: bool, strict: bool) -> tuple[Tensor, ...]:
    """The Jacobians of the i-th output with respect to each input."""
    found = gradients_of_elements(output, xs, create_graph) if output.requires_grad else [None for _ in xs]
    if not output.numel():
        stack([])  # raises what PyTorch raises
    for j, g in enumerate(found):
        if strict and g is None:
            raise RuntimeError(INDEPENDENT_ROW.format(i, j))
        if strict and create_graph and g is not None and not g.requires_grad:
            raise RuntimeError(LINEAR.format("jacobian", i))  # PyTorch names the output here
    return _with_zeros(output, found, xs)


def _with_zeros(output: Tensor, row: Sequence[Tensor | None], xs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple([zeros(output.shape + x.shape, dtype=x.dtype, device=x.device) if g is None else g for g, x in zip(row, xs, strict=True)])


# ---------------------------------------------------------------------- what all have in common


def _prepared(tensors: Sequence[Tensor], create_graph: bool) -> tuple[Tensor, ...]:
    """What stands for the inputs: tensors on their memory that require a gradient; views of them where the results lead back to them."""
    return tuple([t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_() for t in tensors])


def _vector(v: Any, like: Sequence[Tensor], several: bool, create_graph: bool, name: str, told: str) -> tuple[Tensor, ...] | None:
    """The vector's tensors, of the shapes of `like`; None where it is left out."""
    if v is None:
        check_single(like, told)
        return None
    _, given = as_tensors(v, "v", name)
    given = tuple([t.view_as(t) if create_graph and t.requires_grad else t.detach() for t in given])
    check_vector(given, like, several)
    return given


def _grad(outputs: Sequence[Tensor], inputs: Sequence[Tensor], vector: Sequence[Tensor] | None, create_graph: bool) -> Sequence[Tensor | None]:
    """`torch.autograd.grad` of those outputs that require a gradient; None where an input gets none."""
    there = [i for i, o in enumerate(outputs) if o.requires_grad]
    if not there:
        return [None for _ in inputs]
    given = None if vector is None else [vector[i] for i in there]
    return grad([outputs[i] for i in there], inputs, given, create_graph=create_graph, allow_unused=True)


def _results(tensors: Sequence[Tensor], several: bool, create_graph: bool) -> Any:
    """What the user gets: without history unless it is to be differentiated, in a tuple if that was given."""
    if not tensors:
        raise IndexError("tuple index out of range")
    made = tuple(tensors) if create_graph else tuple([t.detach() for t in tensors])
    return made if several else made[0]
