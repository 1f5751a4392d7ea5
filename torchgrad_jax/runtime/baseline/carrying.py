"""Carrying out what `places.assigned` makes of a plan: the loop that all interpretation goes through. Compiled where there is a compiler."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.blocks import Chain
from torchgrad_jax.runtime.baseline.broadcasting import repeated
from torchgrad_jax.runtime.baseline.copying import LEAST, contiguous, in_one_piece, joined, stacked, written
from torchgrad_jax.runtime.native import arrays as of_c
from torchgrad_jax.runtime.native import handlers

# In place of how many operands a call has: its function is the shape, or the order of dimensions, in which an array is looked at; its place is
# emptied; or the function is a Product, of two operands or with a bias, or a Chain, which are asked without a call of Python's.
RESHAPED, TURNED, DROPPED, MULTIPLIED, CHAINED, WITH_BIAS = -1, -2, -3, -4, -5, -6


def kind_of(function: Any, operands: int) -> int:
    """What stands in a call in place of how many operands it has, or that number."""
    if type(function) is Product:
        return MULTIPLIED if operands == 2 else WITH_BIAS
    return CHAINED if type(function) is Chain else operands


def carry_out(calls: list[tuple[Any, ...]], values: list[Any]) -> None:
    """Make the calls of `assigned` one after the other on `values`."""
    # One, two and three operands are written out: 0.1 us a step instead of 0.25.
    for function, arity, a, b, c, operands, out in calls:
        if arity == 2:
            values[out] = function(values[a], values[b])
        elif arity == 1:
            values[out] = function(values[a])
        elif arity == 3:
            values[out] = function(values[a], values[b], values[c])
        elif arity == -4:
            product = function
            values[out] = product.of(values[a], values[b])
        elif arity == -5:
            chain = function
            values[out] = chain.of([values[i] for i in operands])
        elif arity == -6:
            product = function
            values[out] = product.with_bias(values[a], values[b], values[c])
        elif arity == -1:
            values[out] = values[a].reshape(function)
        elif arity == -2:
            values[out] = values[a].transpose(function)
        elif arity == -3:
            values[out] = None
        else:
            values[out] = function(*[values[i] for i in operands])


class Prepared:
    """What is ready to be carried out: the calls of `assigned`, None before they are asked for, the values that they begin with, how many of them are
    inputs, which are outputs."""

    __slots__ = ("_calls", "_template", "_inputs", "_outputs")
    _calls: list[tuple[Any, ...]] | None
    _template: list[Any]
    _inputs: int
    _outputs: list[int]

    def prepare(self) -> None:
        """Make the calls, the values and the places of the outputs."""
        raise NotImplementedError

    def of(self, arrays: list[Any]) -> list[Any]:
        """The results of these inputs."""
        if self._calls is None:
            self.prepare()
        values = self._template.copy()
        values[: self._inputs] = arrays
        carry_out(self._calls, values)  # type: ignore[arg-type] # they are there
        return [values[i] for i in self._outputs]


class Product:
    """The function of a step that multiplies matrices by C: transposes of the first ones if `turned`, of the others if `other`. It may be given a
    vector to add to each row. otherwise: what multiplies those that C does not, as they are. mirrored: whether it is the transpose of another, to the
    bit."""

    __slots__ = ("turned", "other", "otherwise", "mirrored")

    def __init__(self, turned: bool, other: bool, otherwise: Any, mirrored: bool = False) -> None:
        self.turned, self.other, self.otherwise, self.mirrored = turned, other, otherwise, mirrored

    def __call__(self, a: Any, b: Any, bias: Any = None) -> Any:
        return self.of(a, b) if bias is None else self.with_bias(a, b, bias)

    def transposed(self) -> Product:
        """What gives the transpose, of the operands in the other order."""
        return Product(not self.other, not self.turned, lambda b, a: self.otherwise(a, b).transpose(), not self.mirrored)

    def with_bias(self, a: Any, b: Any, bias: Any) -> Any:
        """The product and a vector added to each row."""
        bias = contiguous(bias)
        found = handlers.multiplied(a, b, self.turned, self.other, bias, None, self.mirrored)
        return self._of_pieces(a, b, bias) if found is None else found

    def of(self, a: Any, b: Any) -> Any:
        """The product alone."""
        found = handlers.multiplied(a, b, self.turned, self.other, None, None, self.mirrored)
        return self._of_pieces(a, b, None) if found is None else found

    def _of_pieces(self, a: Any, b: Any, bias: Any) -> Any:
        """The product, and the bias added to it, of what C does not take as it is."""
        x, y, found = in_one_piece(a), in_one_piece(b), None
        if x is not a or y is not b:
            found = handlers.multiplied(x, y, self.turned, self.other, bias, None, self.mirrored)
        if found is None:
            found = self.otherwise(x, y)
            return found if bias is None else np.add(found, bias)
        return found


class Added:
    """The function of a step that adds a `Product` of two matrices, and a bias if there is one, to a further array of as many elements: to the bit
    what adding it afterwards gives."""

    __slots__ = ("product",)

    def __init__(self, product: Product) -> None:
        self.product = product

    def __call__(self, a: Any, b: Any, *others: Any) -> Any:
        bias, onto = others if len(others) == 2 else (None, others[0])
        product, onto = self.product, contiguous(onto)
        added = None if bias is None else contiguous(bias)
        found = handlers.multiplied(a, b, product.turned, product.other, added, onto, product.mirrored)
        if found is None:
            found = product(a, b, bias)
            found = np.add(found, onto.reshape(found.shape))
        return found

    def into(self, a: Any, b: Any, onto: Any) -> Any:
        """The same, written into the third one."""
        found = handlers.added(a, b, self.product.turned, self.product.other, onto, self.product.mirrored)
        return np.add(onto, self.product.of(a, b), out=onto) if found is None else found


class Batches:
    """A `Product` of matrices whose batches are not in one dimension, but will be, as they would be if the operands were of the shapes `left` and
    `right`: it reads where they lie what would have to be copied for that."""

    __slots__ = ("product", "left", "right")

    def __init__(self, product: Product, left: tuple[int, ...], right: tuple[int, ...]) -> None:
        self.product, self.left, self.right = product, left, right

    def __call__(self, a: Any, b: Any) -> Any:
        found = handlers.multiplied(a, b, self.product.turned, self.product.other)
        if found is None:
            return self.product.otherwise(a.reshape(self.left), b.reshape(self.right))
        return found.reshape((self.left[0], *found.shape[-2:]))


class Part:
    """The function of a step that looks at `length` slices along an array's dimension, every `step`-th, or, if `length` is negative, at one, from an
    index of Python's on. otherwise: what does of an index that counts from the end, or is out of range."""

    __slots__ = ("dim", "length", "step", "otherwise")

    def __init__(self, dim: int, length: int, step: int, otherwise: Any) -> None:
        self.dim, self.length, self.step, self.otherwise = dim, length, step, otherwise

    def __call__(self, x: Any, begin: Any) -> Any:
        found = of_c.part(x, self.dim, begin, self.length, self.step)
        return self.otherwise(x, begin) if found is None else found


def put(x: Any, value: Any, begins: Any, dims: Any, lengths: Any, steps: Any) -> bool:
    """Write a value into a part of an array that begins at `begins` of these dimensions. False, and nothing is written, where that is not inside."""
    part = x
    for i in range(len(dims) - 1, -1, -1):
        part = of_c.part(part, dims[i], begins[i], lengths[i], steps[i])
        if part is None:
            return False
    written(part, value)
    return True


class Joined:
    """The function of a step that puts arrays of one dtype one after the other along a dimension, or along a new one if `apart`."""

    __slots__ = ("axis", "apart")

    def __init__(self, axis: int, apart: bool = False) -> None:
        self.axis, self.apart = axis, apart

    def __call__(self, *given: Any) -> Any:
        return stacked(given, self.axis) if self.apart else joined(given, self.axis)


class Taken:
    """The function of a step that reads a dimension at the places of an array of integers, which are in range."""

    __slots__ = ("dim",)

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def __call__(self, x: Any, index: Any) -> Any:
        found = of_c.taken(x, index, self.dim)
        return x.take(index, self.dim) if found is None else found


class Reduced:
    """The function of a step that reduces runs of neighbouring dimensions by C's loops, one after the other, the last one first: (where it begins,
    where it ends), the first of them by itself. which: as `reducing` tells it; otherwise: what does of arrays that there are no loops for."""

    __slots__ = ("which", "first", "after", "others", "otherwise")

    def __init__(self, which: int, runs: list[tuple[int, int]], otherwise: Any) -> None:
        (self.first, self.after), *self.others = runs
        self.which, self.otherwise = which, otherwise

    def __call__(self, x: Any) -> Any:
        if x.size >= LEAST:
            x = contiguous(x)
        made = handlers.reduced(x, self.which, self.first, self.after)
        if made is None and (row := contiguous(x)) is not x:  # the bits are to be those of a copy
            made = handlers.reduced(row, self.which, self.first, self.after)
        if made is None:
            return self.otherwise(x)
        for first, after in self.others:
            made = handlers.reduced(made, self.which, first, after)
        return made


class Spread:
    """The function of a step that repeats an array, as the gradient of a sum, or first divides it by how many were added, as of a mean.

    count: that number, of the array's dtype, or None; index: gives it its dimensions again, where it needs that; shape: of the result; fresh: whether
    that is memory of its own, or looks at the same elements again and again.
    """

    __slots__ = ("count", "index", "shape", "dtype", "fresh")

    def __init__(self, count: Any, index: Any, shape: tuple[int, ...], dtype: Any, fresh: bool) -> None:
        self.count, self.index, self.shape, self.dtype, self.fresh = count, index, shape, dtype, fresh

    def __call__(self, grad: Any) -> Any:
        if self.count is not None:
            grad = np.divide(grad, self.count)
        if self.index is not None:
            grad = grad[self.index]
        if not self.fresh:
            return repeated(np.asarray(grad), self.shape)
        made = of_c.empty(self.shape, self.dtype)
        made[...] = grad
        return made


# Which of C's loops it is: one over rows (`rowwise`), along a dimension (`looping`), or over an LSTM's times (`recurring`).
ROWS, ALONG, TIMES = range(3)


class Loop:
    """The function of a step that one of C's loops carries out. of: which; how: what that is told; results: their shapes and dtypes. It gives the one
    result, or the list of several."""

    __slots__ = ("of", "how", "results")

    def __init__(self, of: int, how: Any, results: list[tuple[tuple[int, ...], Any]]) -> None:
        self.of, self.how, self.results = of, how, results

    def __call__(self, *given: Any) -> Any:
        made = [of_c.empty(shape, dtype) for shape, dtype in self.results]
        arrays = [contiguous(x) for x in given]
        if self.of == ROWS:
            handlers.by_rows(arrays, made, self.how)
        elif self.of == ALONG:
            handlers.loop(arrays, made, self.how)
        else:
            handlers.recur(arrays, made, self.how)
        return made[0] if len(made) == 1 else made
