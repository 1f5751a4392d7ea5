"""`jacrev`, `jacfwd` and `hessian`: whole Jacobians, by one mapped `vjp` or `jvp` over the unit vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.func.arguments import ArgNums, checked_argnums, chosen, differentiable_leaves, of_chosen, refuse_complex
from torchgrad_jax.func.forward import jvp
from torchgrad_jax.func.reverse import flat_vjp, vjp
from torchgrad_jax.func.vmapping import check_randomness, vmap
from torchgrad_jax.functions.creation import arange, zeros_like
from torchgrad_jax.functions.shaping import cat
from torchgrad_jax.functions.views import movedim, narrow, reshape, unsqueeze
from torchgrad_jax.lifting.remembered import transform
from torchgrad_jax.lifting.trees import TreeSpec, tree_flatten, tree_leaves


class UnitVectors:
    """The unit vectors of the space that several tensors make up together, as parts of the tensors' shapes and dtypes."""

    __slots__ = ("like", "sizes", "count")

    def __init__(self, like: Sequence[Tensor]) -> None:
        self.like = like
        self.sizes = [prod(t.shape) for t in like]
        self.count = sum(self.sizes)

    def rows(self, start: int, stop: int) -> list[Tensor]:
        """Vectors `start` to `stop`: a tensor of shape ``(stop - start, *shape)`` for each of the tensors."""
        found, offset = [], 0
        for t, size in zip(self.like, self.sizes, strict=True):
            ones = unsqueeze(arange(start, stop, device=t.device), 1) == arange(offset, offset + size, device=t.device)
            found.append(reshape(ones.to(t.dtype), (stop - start, *t.shape)))
            offset += size
        return found

    def split(self, t: Tensor) -> list[Tensor]:
        """The parts of ``t``, whose first dimension counts the unit vectors, that belong to each tensor."""
        if len(self.sizes) == 1:
            return [t]
        found, offset = [], 0
        for size in self.sizes:
            found.append(narrow(t, 0, offset, size))
            offset += size
        return found


def _nested(outputs: TreeSpec, argnums: ArgNums, arguments: TreeSpec, blocks: Sequence[Sequence[Any]]) -> Any:
    """Blocks by output and input, as a tree of outputs with a tree of inputs in each place; of one argument without the tuple around it."""
    return outputs.unflatten([_of_arguments(argnums, arguments, row) for row in blocks])


def _of_arguments(argnums: ArgNums, arguments: TreeSpec, row: Sequence[Any]) -> Any:
    found = arguments.unflatten(row)
    return found[0] if isinstance(argnums, int) else found


# ---------------------------------------------------------------------- by rows


def jacrev(
    func: Callable[..., Any], argnums: ArgNums = 0, *, has_aux: bool = False, chunk_size: int | None = None, _preallocate_and_copy: bool = False
) -> Callable[..., Any]:
    """A function that computes the Jacobian of `func` by reverse mode: a row for each element of the results.

    argnums: the positional argument to differentiate, or a tuple of them. has_aux: `func` returns ``(output, aux)``, and ``(jacobian, aux)`` is
    given. chunk_size: at most so many rows at a time; 1 computes them one after another without vmap. For an output of shape S and an input of shape
    T the Jacobian has shape (*S, *T); for trees of outputs it is a tree of outputs, with a tree of inputs in each place. _preallocate_and_copy:
    accepted; XLA puts the chunks together in one buffer in either case.

    ValueError for a `chunk_size` below 1; what `vjp` raises; RuntimeError for complex inputs or outputs.

        >>> torch.func.jacrev(torch.sin)(torch.zeros(2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    def jacobian_of(*args: Any) -> Any:
        places = checked_argnums(argnums, len(args))
        primals = chosen(args, places)
        primals = (primals,) if isinstance(places, int) else primals
        found, vjp_fn, *aux = vjp(of_chosen(func, args, places), *primals, has_aux=has_aux)
        inputs, arguments = tree_flatten(primals)
        outputs, structure = tree_flatten(found)
        refuse_complex("jacrev", "inputs", inputs)
        refuse_complex("jacrev", "outputs", outputs)
        units = UnitVectors(outputs)
        columns = _rows(flat_vjp(vjp_fn, structure), units, inputs, chunk_size)
        by_output = zip(*[units.split(column) for column in columns], strict=True)
        blocks = [
            [reshape(block, (*out.shape, *x.shape)) for block, x in zip(row, inputs, strict=True)]
            for row, out in zip(by_output, outputs, strict=True)
        ]
        jacobian = _nested(structure, places, arguments, blocks)
        return (jacobian, *aux) if has_aux else jacobian

    return transform("jacrev", func, (argnums, has_aux, chunk_size), jacobian_of)


def _rows(pull: Callable[..., list[Tensor]], units: UnitVectors, inputs: Sequence[Tensor], chunk_size: int | None) -> list[Tensor]:
    """For each input the gradients of all elements of the outputs, stacked."""
    if not units.count:
        return [zeros_like(x).expand((0, *x.shape)) for x in inputs]
    length = units.count if chunk_size is None else chunk_size
    chunks = []
    for start in range(0, units.count, length):
        rows = units.rows(start, min(start + length, units.count))
        if chunk_size == 1:
            chunks.append([unsqueeze(g, 0) for g in pull(*[row[0] for row in rows])])
        else:
            chunks.append(vmap(pull)(*rows))
    return [parts[0] if len(parts) == 1 else cat(parts, 0) for parts in zip(*chunks, strict=True)]


# ---------------------------------------------------------------------- by columns


def jacfwd(func: Callable[..., Any], argnums: ArgNums | None = 0, has_aux: bool = False, *, randomness: str = "error") -> Callable[..., Any]:
    """A function that computes the Jacobian of `func` by forward mode: a column for each element of the inputs.

    argnums: the positional argument to differentiate, or a tuple of them; None for all. has_aux: `func` returns ``(output, aux)``, and
    ``(jacobian, aux)`` is given. randomness: as for `vmap`, under which `func` is called once. The Jacobian is as `jacrev` gives it.

    RuntimeError for another `randomness`, and for complex inputs or outputs; what `jvp` raises.

        >>> torch.func.jacfwd(torch.sin)(torch.zeros(2))
        tensor([[1., 0.],
                [0., 1.]])
    """

    def jacobian_of(*args: Any) -> Any:
        places = checked_argnums(tuple(range(len(args))) if argnums is None else argnums, len(args))
        check_randomness(randomness)
        primals = chosen(args, places)
        primals = (primals,) if isinstance(places, int) else primals
        inputs, arguments = tree_flatten(primals)
        refuse_complex("jacfwd", "inputs", [x for x in inputs if isinstance(x, Tensor)])
        _check_inputs(inputs)
        columns = _Columns(of_chosen(func, args, places), primals, has_aux)
        units = UnitVectors(inputs)
        moves, aux = columns.all(units, randomness)
        blocks = [
            [_transposed(part, out_shape, x) for part, x in zip(units.split(move), inputs, strict=True)]
            for move, out_shape in zip(moves, columns.shapes, strict=True)
        ]
        jacobian = _nested(columns.structure, places, arguments, blocks)
        return (jacobian, aux) if has_aux else jacobian

    return transform("jacfwd", func, (argnums, has_aux, randomness), jacobian_of)


def _check_inputs(inputs: Sequence[Any]) -> None:
    for x in inputs:
        if isinstance(x, Tensor) and not x.is_floating_point():
            raise ValueError(f"Expected primal to be floating point or complex, but got: {x.dtype}")
    differentiable_leaves(list(inputs))


def _transposed(part: Tensor, shape: Sequence[int], x: Tensor) -> Tensor:
    """Columns, of shape (elements of x, *shape), as a block of shape (*shape, *x.shape)."""
    return reshape(movedim(part, 0, -1), (*shape, *x.shape))


class _Columns:
    """`func` moved along unit vectors. structure, shapes: those of the outputs, after the call."""

    __slots__ = ("func", "primals", "has_aux", "structure", "shapes")
    structure: TreeSpec
    shapes: list[tuple[int, ...]]

    def __init__(self, func: Callable[..., Any], primals: tuple[Any, ...], has_aux: bool) -> None:
        self.func, self.primals, self.has_aux = func, primals, has_aux

    def all(self, units: UnitVectors, randomness: str) -> tuple[list[Tensor], Any]:
        """For each output its tangents, the vectors first; and what is auxiliary."""
        if not units.count:
            moves, aux = self._along(*[zeros_like(x) for x in units.like])
            return [zeros_like(move).expand((0, *move.shape)) for move in moves], aux
        moves, aux = vmap(self._along, randomness=randomness)(*units.rows(0, units.count))
        # Called once for all columns: what is auxiliary is of the first where random numbers make it differ.
        leaves, spec = tree_flatten(aux)
        return moves, spec.unflatten([leaf[0] for leaf in leaves])

    def _along(self, *directions: Tensor) -> tuple[list[Tensor], Any]:
        tangents = tree_flatten(self.primals)[1].unflatten(directions)
        output, moved, *aux = jvp(self.func, self.primals, tangents, has_aux=self.has_aux)
        values, self.structure = tree_flatten(output)
        refuse_complex("jacfwd", "outputs", values)
        self.shapes = [tuple(value.shape) for value in values]
        return tree_leaves(moved), aux[0] if aux else ()


# ---------------------------------------------------------------------- second derivatives


def hessian(func: Callable[..., Any], argnums: ArgNums = 0) -> Callable[..., Any]:
    """A function that computes the Hessian of `func`: ``jacfwd(jacrev(func))``, forward over reverse. RuntimeError as these two.

    >>> torch.func.hessian(lambda x: (x**3).sum())(torch.ones(2))
    tensor([[6., 0.],
            [0., 6.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)
