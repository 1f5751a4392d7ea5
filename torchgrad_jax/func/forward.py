"""`jvp` and `linearize`: how results move with arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.autograd import forward_ad
from torchgrad_jax.autograd.undisturbed import undisturbed
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.func.arguments import check_outputs, differentiating, map_aux, split_aux
from torchgrad_jax.func.reverse import Pullback
from torchgrad_jax.functions.creation import zeros_like
from torchgrad_jax.functions.views import clone
from torchgrad_jax.lifting.levels import forward_level, grad_level
from torchgrad_jax.lifting.remembered import transform
from torchgrad_jax.lifting.trees import tree_flatten


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> tuple[Any, ...]:
    """What `func` returns for `primals`, and how it moves when they move along `tangents`: forward mode.

    primals, tangents: tuples of trees of tensors, one as the other. strict: an output that does not depend on the inputs is an error; else its
    tangent is 0. has_aux: `func` returns ``(output, aux)``, and ``(output, tangent, aux)`` is given.

    RuntimeError where primals and tangents do not fit or the results are not all tensors, ValueError for primals or tangents of another dtype than
    floating point or complex.

        >>> torch.func.jvp(torch.sin, (torch.zeros(2),), (torch.ones(2),))
        (tensor([0., 0.]), tensor([1., 1.]))
    """
    return transform("jvp", func, (strict, has_aux), lambda x, v: _moved(func, x, v, strict, has_aux))(primals, tangents)


def _moved(func: Callable[..., Any], primals: Any, tangents: Any, strict: bool, has_aux: bool) -> tuple[Any, ...]:
    call = "jvp(f, primals, tangents)"
    if forward_ad._current_level >= 0:  # PyTorch's `jvp` opens a dual level
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    spec, points, directions = _checked(call, primals, tangents)
    with differentiating(), forward_level() as level:
        found = func(*spec.unflatten([level.dual(x, v) for x, v in zip(points, directions, strict=True)]))
        aux: Any = ()
        if has_aux:
            found, auxiliary = split_aux(call, "f", found)
            aux = (map_aux(lambda t: level.unpack(t)[0], auxiliary),)
        outputs, structure = tree_flatten(found)
        check_outputs(call, outputs)
        pairs = [level.unpack(out) for out in outputs]
    if strict and any(move is None for _, move in pairs):
        raise RuntimeError(
            "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not allowed with strict=True."
        )
    moves = [zeros_like(value) if move is None else move for value, move in pairs]
    return (structure.unflatten([value for value, _ in pairs]), structure.unflatten(moves), *aux)


def _checked(call: str, primals: Any, tangents: Any) -> tuple[Any, list[Tensor], list[Tensor]]:
    """The structure of the primals, their leaves and those of the tangents."""
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{call}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")
    points, spec = tree_flatten(primals)
    directions, tangents_spec = tree_flatten(tangents)
    if spec != tangents_spec:
        raise RuntimeError(
            f"{call}: Expected primals and tangents to have the same python structure. For example, if primals is a tuple of 3 tensors, "
            f"tangents also must be. Got primals with structure {spec} and tangents with structure {tangents_spec}"
        )
    for what, leaves in (("primals", points), ("tangents", directions)):
        if not leaves:
            raise RuntimeError(f"{call}: Expected {what} to contain at least one Tensor.")
        for leaf in leaves:
            if not isinstance(leaf, Tensor):
                raise RuntimeError(f"{call}: Expected {what} to only contain Tensors, got {type(leaf)}")
    for point, direction in zip(points, directions, strict=True):
        for what, t in (("primal", point), ("tangent", direction)):
            if not (t.is_floating_point() or t.is_complex()):
                raise ValueError(f"Expected {what} to be floating point or complex, but got: {t.dtype}")
        if point.shape != direction.shape:
            raise RuntimeError(
                "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. Tensor is of "
                f"size {list(point.shape)} while the given forward gradient is of size {list(direction.shape)}."
            )
    return spec, points, directions


# ---------------------------------------------------------------------- the linear part of a function


@undisturbed
def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """What `func` returns for `primals`, and the linear function from tangents, given as the primals are, to how its results move.

    `func` is called once, here: the linear function is the transpose of the one that `vjp` gives, and runs only what depends on the tangents. Random
    numbers that `func` drew are part of it.

    ValueError where the primals are not all floating point or complex tensors, RuntimeError where the results are not all tensors. The linear
    function raises RuntimeError where structure, shape, dtype or device of the tangents are not the primals'.

        >>> output, jvp_fn = torch.func.linearize(torch.sin, torch.zeros(2))
        >>> jvp_fn(torch.ones(2))
        tensor([1., 1.])
    """
    points, spec = tree_flatten(primals)
    for point in points:
        if not isinstance(point, Tensor):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(point)}")
        if not (point.is_floating_point() or point.is_complex()):
            raise ValueError(f"Expected primal to be floating point or complex, but got: {point.dtype}")
    with differentiating(), grad_level() as level:
        inside = [level.require_grad(level.lift(point)) for point in points]
        # The function may write to its arguments, which leaves would refuse.
        given = [level.argument(clone(x), point) for x, point in zip(inside, points, strict=True)]
        outputs, structure = tree_flatten(func(*spec.unflatten(given)))
        check_outputs("linearize(f, *primals)", outputs)
        values = [level.unwrap(out) for out in outputs]
        pull = Pullback(level, outputs, inside)
    push = _transposed(pull, values)

    @undisturbed
    def jvp_fn(*tangents: Any) -> Any:
        directions, given_spec = tree_flatten(tangents)
        if given_spec != spec:
            raise RuntimeError(f"Expected the tangents {given_spec} to have the same argspec as the primals {spec}")
        for i, (point, direction) in enumerate(zip(points, directions, strict=True)):
            _check_tangent(i, point, direction)
        return structure.unflatten(push(directions))

    return structure.unflatten(values), jvp_fn


def _transposed(pull: Pullback, values: Sequence[Tensor]) -> Callable[[Sequence[Tensor]], list[Tensor]]:
    """From tangents of the inputs to those of the outputs: the gradient of ``pull(cotangents)``, which is linear, at any cotangents."""
    at = [zeros_like(value) for value, there in zip(values, pull.reached, strict=True) if there]
    with differentiating(), grad_level() as level:
        cotangents = [level.require_grad(level.wrap(zero)) for zero in at]
        given = iter(cotangents)
        push = Pullback(level, pull([next(given) if there else value for there, value in zip(pull.reached, values, strict=True)]), cotangents)

    def function(directions: Sequence[Tensor]) -> list[Tensor]:
        found = iter(push(directions))
        return [next(found) if there else zeros_like(value) for there, value in zip(pull.reached, values, strict=True)]

    return function


def _check_tangent(i: int, point: Tensor, direction: Any) -> None:
    if not isinstance(direction, Tensor):
        raise RuntimeError(f"tangent:{i} in flattened pytree is no Tensor but {type(direction)}.")
    for what in ("shape", "dtype", "device"):
        given, expected = getattr(direction, what), getattr(point, what)
        if given != expected:
            raise RuntimeError(
                f"tangent:{i} with {what} {given} in flattened pytree doesn't match the {what} {expected} of the corresponding primal."
            )
