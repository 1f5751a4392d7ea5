"""`grad`, `grad_and_value` and `vjp`: reverse mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from torchgrad_jax.autograd.grad_mode import set_grad_enabled
from torchgrad_jax.autograd.undisturbed import undisturbed
from torchgrad_jax.core.messages import FREED_MESSAGE
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.func.arguments import (
    ArgNums,
    check_outputs,
    checked_argnums,
    chosen,
    differentiable_leaves,
    differentiating,
    map_aux,
    map_tensors,
    split_aux,
)
from torchgrad_jax.functions.creation import ones_like, zeros_like
from torchgrad_jax.lifting.levels import GradLevel, grad_level
from torchgrad_jax.lifting.remembered import transform
from torchgrad_jax.lifting.trees import tree_flatten, tree_leaves, treespec_pprint


class Pullback:
    """The graph of a level, which may have been left, as a function from gradients of its results to those of its inputs.

    outputs, inputs: tensors of the level, kept as their edges. primals: what the inputs held. reached: which outputs have a graph.
    Made inside the level.
    """

    __slots__ = ("level", "outputs", "reached", "inputs", "primals")

    def __init__(self, level: GradLevel, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        self.level = level
        self.reached = [out.requires_grad and level.owns(out) for out in outputs]
        self.outputs = [out._edge() if there else None for out, there in zip(outputs, self.reached, strict=True)]
        self.inputs = [x._edge() for x in inputs]
        self.primals = [level.unwrap(x) for x in inputs]

    def found(self, cotangents: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradient of each input for one gradient of each output; None where it is not reached."""
        kept = [(out, cotangent) for out, cotangent, there in zip(self.outputs, cotangents, self.reached, strict=True) if there]
        if not (kept and self.inputs):
            return [None] * len(self.inputs)
        outs, grads = zip(*kept, strict=True)
        return self.level.along(outs, self.inputs, grads)

    def filled(self, gradients: Sequence[Tensor | None]) -> list[Tensor]:
        """The gradients with zeros for None. Outside of the level."""
        return [zeros_like(x) if g is None else g for g, x in zip(gradients, self.primals, strict=True)]

    def __call__(self, cotangents: Sequence[Tensor]) -> list[Tensor]:
        """The gradient of each input for one gradient of each output; zeros where it is not reached. Outside of the level."""
        return self.filled(self.found(cotangents))


# ---------------------------------------------------------------------- gradients of a number


def grad_and_value(func: Callable[..., Any], argnums: ArgNums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that computes gradients of `func`, which returns a tensor of no dimensions, and what it returns.

    argnums: the positional argument (a tree of tensors) to differentiate, or a tuple of these; it says too whether one gradient or a tuple is given.
    has_aux: `func` returns ``(output, aux)``, and ``(gradients, (output, aux))`` is given instead of ``(gradients, output)``. What `func` does not
    depend on has the gradient 0. The grad mode outside of the call is of no matter for what is done inside.

    RuntimeError where the result is no real number as a tensor, where there is no such argument, or where it has no floating point dtype; ValueError
    where it holds what is no tensor.

        >>> torch.func.grad_and_value(lambda x: (x**2).sum())(torch.tensor([1.0, 2.0]))
        (tensor([2., 4.]), tensor(5.))
    """
    return _with_gradients("grad_and_value", func, argnums, has_aux, lambda gradients, value, aux: (gradients, (value, *aux) if aux else value))


def grad(func: Callable[..., Any], argnums: ArgNums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that computes gradients of `func`, which returns a tensor of no dimensions. `grad_and_value` says what the arguments mean.

    With `has_aux` it returns ``(gradients, aux)``.

        >>> torch.func.grad(torch.sin)(torch.tensor(0.0))
        tensor(1.)
    """
    return _with_gradients("grad", func, argnums, has_aux, lambda gradients, value, aux: (gradients, *aux) if aux else gradients)


def _with_gradients(name: str, func: Callable[..., Any], argnums: ArgNums, has_aux: bool, put_together: Callable[..., Any]) -> Callable[..., Any]:
    def gradients(*args: Any, **kwargs: Any) -> Any:
        return put_together(*_gradients(func, checked_argnums(argnums, len(args)), has_aux, args, kwargs))

    return transform(name, func, (argnums, has_aux), gradients)


def _gradients(func: Callable[..., Any], argnums: ArgNums, has_aux: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any]:
    """The gradients, the result, and () or (aux,)."""
    call = "grad_and_value(f)(*args)"
    with differentiating(), grad_level() as level:
        inside, inside_kwargs = map_tensors(level.wrap, (args, kwargs))
        wanted = chosen(inside, argnums)
        inputs = differentiable_leaves(wanted)
        for x in inputs:
            level.require_grad(x)
        output = func(*inside, **inside_kwargs)
        aux: Any = ()
        if has_aux:
            output, auxiliary = split_aux(call, "f", output)
            aux = (map_aux(level.unwrap, auxiliary),)
        _check_number(call, output)
        value = level.unwrap(output)
        # Before the level is left: arguments that were written to have their new content outside from then on.
        pull = Pullback(level, [output], inputs)
        found = pull.found([ones_like(output)])
    return tree_flatten(wanted)[1].unflatten(pull.filled(found)), value, aux


def _check_number(call: str, output: Any) -> None:
    if not isinstance(output, Tensor):
        raise RuntimeError(f"{call}: Expected f(*args) to return a Tensor, got {type(output)}")
    if output.dim():
        raise RuntimeError(
            f"{call}: Expected f(*args) to return a scalar Tensor, got tensor with {output.dim()} dims. Maybe you wanted to use the vjp or "
            "jacrev APIs instead?"
        )
    if output.is_complex():
        raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {output.dtype}")


# ---------------------------------------------------------------------- vector-Jacobian products


@undisturbed
def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """What `func` returns for `primals`, and the function from cotangents, a tree as these results, to a tuple with a gradient for each primal.

    primals: trees of tensors. has_aux: `func` returns ``(output, aux)``, and ``(output, vjp_fn, aux)`` is given. The function may be called any
    number of times, later too, and inside other transforms; ``vjp_fn(cotangents, retain_graph=False)`` is the last time.

    RuntimeError where the results are not all floating point or complex tensors, ValueError where the primals hold what is no tensor. The function
    raises RuntimeError where the cotangents do not fit the results.

        >>> output, vjp_fn = torch.func.vjp(torch.sin, torch.zeros(2))
        >>> vjp_fn(torch.ones(2))
        (tensor([1., 1.]),)
    """
    call = "vjp(f, *primals)"
    with differentiating(), grad_level() as level:
        inside = map_tensors(level.wrap, primals)
        inputs = differentiable_leaves(inside)
        for x in inputs:
            level.require_grad(x)
        found = func(*inside)
        aux: Any = ()
        if has_aux:
            found, auxiliary = split_aux(call, "f", found)
            aux = (map_aux(level.unwrap, auxiliary),)
        outputs, spec = tree_flatten(found)
        check_outputs(call, outputs)
        for out in outputs:
            if not (out.is_floating_point() or out.is_complex()):
                raise RuntimeError(f"vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got Tensor with dtype {out.dtype}")
        values = [level.unwrap(out) for out in outputs]
        pull: Pullback | None = Pullback(level, outputs, inputs)
    inputs_spec = tree_flatten(inside)[1]

    @undisturbed
    def vjp_fn(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> tuple[Any, ...]:
        nonlocal pull
        given, given_spec = tree_flatten(cotangents)
        if given_spec != spec:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. cotangents: "
                f"{treespec_pprint(given_spec)}, primal output: {treespec_pprint(spec)}"
            )
        if pull is None:
            raise RuntimeError(FREED_MESSAGE)
        grads = [fitting_cotangent(i, g, out) for i, (g, out) in enumerate(zip(given, values, strict=True))]
        with nullcontext() if create_graph is None else set_grad_enabled(create_graph):
            gradients = pull(grads)
        if not retain_graph:
            pull = None
        return inputs_spec.unflatten(gradients)

    return (spec.unflatten(values), vjp_fn, *aux)


def fitting_cotangent(i: int, given: Any, output: Tensor) -> Tensor:
    """The gradient of an output, checked: RuntimeError, TypeError with PyTorch's texts. None stands for 1 where the output is a number."""
    if given is None:
        if output.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if output.is_complex():
            raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {output.dtype}")
        return ones_like(output)
    if not isinstance(given, Tensor):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(given).__name__}")
    if given.shape != output.shape:
        raise RuntimeError(f"Mismatch in shape: grad_output[{i}] has a shape of {given.shape} and output[{i}] has a shape of {output.shape}.")
    if given.is_complex() != output.is_complex():
        raise RuntimeError(
            f"For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: grad_output[{i}] has a dtype "
            f"of {given.dtype} and output[{i}] has a dtype of {output.dtype}."
        )
    return given if given.dtype == output.dtype else given.to(output.dtype)


def flat_vjp(vjp_fn: Callable[..., Any], structure: Any) -> Callable[..., list[Tensor]]:
    """A function of `vjp` of flat cotangents that gives flat gradients."""
    return lambda *cotangents: tree_leaves(vjp_fn(structure.unflatten(cotangents)))
