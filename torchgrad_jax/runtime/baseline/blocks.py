"""Loops over numbers, compiled where there is a compiler, and used only there but for matrices.

A chain of element-wise operations is carried out block by block: what lies between its operands and its results never leaves the processor's cache,
and 13 operations on 10 numbers take 1.7 us instead of NumPy's 6. Rows are added to others one after the other: 500 of 8 take 1.7 us instead of 50.
Small matrices are factorized, and triangular systems solved. Half precision is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from types import FunctionType, MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from torchgrad_jax.runtime.baseline import lanes
from torchgrad_jax.runtime.baseline.copying import contiguous, copied
from torchgrad_jax.runtime.native import arrays as of_c
from torchgrad_jax.runtime.native import vectors

# How many elements a block has at most, and how much a chain may hold.
BLOCK, MOST_SLOTS, MOST_OPERATIONS = 512, 64, 64
# From so many elements, and so many times operations, on threads share it: less takes 30 us, and waking them 10.
SHARED, SHARED_WORK = 1 << 15, 1 << 18
# As how many operations a transcendental function counts there; and from so many elements on one by itself is shared, and of a cheap one.
FUNCTION_WORK, SHARED_FUNCTION, SHARED_OPERATION = 6, 1 << 16, 1 << 18
# How a smaller operand is spread: each of its elements so many times, of rows of so many elements, each so many times; all of that again and again.
Pattern = tuple[int, int, int]
AS_IT_IS: Pattern = (0, 0, 0)
# Of a dimension along which elements are repeated, in the index of each once.
FIRST = slice(0, 1)
# The transcendental functions, and those that take as long.
_FUNCTIONS = frozenset([*range(lanes.EXP, lanes.COS + 1), *range(lanes.REM, lanes.FLOOR_DIVIDE + 1)])
SINGLE, _INTS = np.dtype(np.float32), np.dtype(np.int32)
BFLOAT16, BITS = np.dtype(ml_dtypes.bfloat16), np.dtype(np.uint16)  # of which there are no buffers, and in place of which its bits are read


class Chain:
    """Operations on arrays of one shape. Called with its operands, it returns its result, or the list of several.

    dtype: of the numbers in registers, float32 or float64. operands: for each the letter of its dtype, how many elements it has, and whether it is
    one number for all of the others'. results: the letter of each. code: for each operation its number (`lanes`), and which slots it writes and
    reads: operands, results, registers. registers: how many there are behind one for each such number. strided: the operands that are not
    contiguous, and copied; sliced: those that are read as they lie. otherwise: does the same with operands whose memory is not as it is said here.
    patterns: of operands that are spread (`pattern_of`). repeated: of operands that repeat elements, the index of each element once. brains: the
    operands and results of bfloat16.
    """

    __slots__ = (
        "shape", "dtypes", "strided", "brains", "repeated", "otherwise", "_letter", "_size", "_weight", "_registers", "_inputs", "_outputs",
        "_operations", "_letters", "_sizes", "_patterns", "_numbers", "_sliced", "_code",
    )  # fmt: skip

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype, operands: Sequence[tuple[str, int, bool]], results: Sequence[str],
        code: Sequence[tuple[int, int, int, int, int]], registers: int, strided: Sequence[int], otherwise: Callable[..., Any],
        patterns: Mapping[int, Pattern] = MappingProxyType({}), repeated: Mapping[int, tuple[Any, ...]] = MappingProxyType({}),
        sliced: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.shape, self.strided, self.otherwise, self._letter = shape, list(strided), otherwise, ord(dtype.char)
        self.repeated = dict(repeated)
        self.dtypes = [BFLOAT16 if letter == BFLOAT16.char else np.dtype(letter) for letter in results]
        self._inputs, self._outputs, self._operations = len(operands), len(results), len(code)
        self._weight = sum([FUNCTION_WORK if which in _FUNCTIONS else 1 + (which >= lanes.MUL_ADD) for which, *_ in code])
        self._registers = registers + sum([number for _, _, number in operands])
        self._size = 1
        for n in shape:
            self._size *= n
        slots = [*operands, *[(letter, self._size, False) for letter in results]]
        self.brains = [i for i, (letter, _, _) in enumerate(slots) if letter == BFLOAT16.char]
        self._letters = _padded([lanes.BRAIN if letter == BFLOAT16.char else ord(letter) for letter, _, _ in slots], MOST_SLOTS)
        self._sizes = _padded([size for _, size, _ in slots], MOST_SLOTS)
        unused = [0] * (lanes.PATTERN - len(AS_IT_IS))
        self._patterns = _padded([n for i in range(len(operands)) for n in (*patterns.get(i, AS_IT_IS), *unused)], lanes.PATTERN * MOST_SLOTS)
        self._sliced = _padded([int(i in sliced) for i in range(len(slots))], MOST_SLOTS)
        self._numbers = _padded([int(number) for _, _, number in slots], MOST_SLOTS)
        self._code = _padded([n for operation in code for n in operation], 5 * MOST_OPERATIONS)

    def __call__(self, *arrays: Any) -> Any:
        return self.of(list(arrays))

    def of(self, arrays: list[Any]) -> Any:
        """What calling it with these operands gives."""
        made = [of_c.empty(self.shape, dtype) for dtype in self.dtypes]
        try:
            self._carry_out(self.slots(arrays, made))
        except (BufferError, ValueError):  # not contiguous, or of another dtype
            return self.otherwise(*arrays)
        return made[0] if len(made) == 1 else made

    def work(self) -> int:
        """How many numbers its operations write; two that are one pass count once."""
        return self._size * self._operations

    def is_shared(self) -> bool:
        """Whether threads share it."""
        return self._size >= SHARED and self._size * self._weight >= SHARED_WORK

    def reads(self) -> int:
        """How many operands it has."""
        return self._inputs

    def slots(self, arrays: Sequence[Any], made: list[Any]) -> list[Any]:
        """The arrays as they are read and written. BufferError where one is of another dtype."""
        slots = [*arrays, *made]
        for i, index in self.repeated.items():
            slots[i] = once(slots[i], index)
        for i in self.strided:
            slots[i] = contiguous(slots[i])
        for i in self.brains:
            slots[i] = bits(slots[i])
        return slots

    def _carry_out(self, slots: list[Any]) -> None:
        if not self.is_shared():
            alone = lanes.scratch(self._registers, BLOCK * lanes.width(self._letter), self._letter)
            lanes.first(alone).patterns = self._patterns
            self._prepare(slots, alone)
            lanes.run_alone(alone)
            return
        work = lanes.works(1)
        try:
            self.provide(work)
            self._prepare(slots, work)
            lanes.run_shared(work)
        finally:
            lanes.let_go(work, 1)

    def provide(self, works: Any) -> None:
        """Give work memory of its own, as other threads of Python may call the chain meanwhile."""
        work, count = lanes.first(works), self._inputs + self._outputs + self._registers
        work.start, work.step = lanes.starts(count), lanes.steps(count)
        work.room = lanes.room(self._registers, BLOCK * lanes.width(self._letter), self._letter)
        work.patterns = lanes.copied_patterns(self._patterns, self._inputs)

    def _prepare(self, slots: list[Any], works: Any) -> None:
        """Tell what `lanes` needs to know. BufferError, ValueError where an array is not as it is said here."""
        work, length = lanes.first(works), BLOCK * lanes.width(self._letter)
        known = self._inputs + self._outputs
        work.letter, work.operations, work.size, work.most = self._letter, self._operations, self._size, BLOCK
        work.code, work.letters, work.sizes = self._code, self._letters, self._sizes
        start, step, room = work.start, work.step, work.room
        for i in range(known):
            step[i] = lanes.width(self._letters[i])
            if self._sliced[i]:
                if lanes.slices(slots[i], step[i] * self._sizes[i], self._letters[i], work.patterns, i):
                    start[i] = lanes.begin_of(slots[i])
                    continue
                slots[i] = copied(slots[i])
            start[i] = lanes.memory(slots[i], step[i] * self._sizes[i], self._letters[i], i >= self._inputs)
        used = 0
        for i in range(self._inputs):
            if self._numbers[i]:
                source = start[i]
                start[i] = lanes.register(room, used, length)
                step[i] = 0
                lanes.fill(self._letter, self._letters[i], source, start[i], min(BLOCK, self._size))
                used += 1
        for i in range(self._registers - used):
            start[known + i] = lanes.register(room, used + i, length)
            step[known + i] = 0
        work.first, work.registers = known, self._registers - used


class Together:
    """Chains of which none reads what another makes, as one function of the operands of all, which returns the list of all their results. Threads
    share them."""

    __slots__ = ("chains", "_places")

    def __init__(self, chains: Sequence[Chain]) -> None:
        self.chains = list(chains)
        ends = list(accumulate([c.reads() for c in chains]))
        self._places = [slice(end - c.reads(), end) for c, end in zip(chains, ends, strict=True)]

    def __call__(self, *arrays: Any) -> list[Any]:
        made = [[of_c.empty(c.shape, dtype) for dtype in c.dtypes] for c in self.chains]
        try:
            _carry_out_all(self.chains, [c.slots(arrays[at], own) for c, at, own in zip(self.chains, self._places, made, strict=True)])
        except (BufferError, ValueError):
            found = [c(*arrays[at]) for c, at in zip(self.chains, self._places, strict=True)]
            made = [f if type(f) is list else [f] for f in found]
        return [array for own in made for array in own]


def _carry_out_all(chains: list[Chain], slots: list[Any]) -> None:
    count = len(chains)
    work = lanes.works(count)
    try:
        for i in range(count):
            chain: Chain = chains[i]
            chain.provide(lanes.nth(work, i))
            chain._prepare(slots[i], lanes.nth(work, i))
        lanes.run_together(work, count)
    finally:
        lanes.let_go(work, count)


def once(array: Any, index: tuple[Any, ...]) -> Any:
    """Each of the elements that an array repeats, once. BufferError where it does not repeat them."""
    strides = array.strides
    if len(strides) != len(index) or any([kept is FIRST and step for kept, step in zip(index, strides, strict=True)]):
        raise BufferError
    return array[index]


def bits(array: Any) -> Any:
    """The memory of bfloat16. BufferError where it is of another dtype."""
    if array.dtype != BFLOAT16:
        raise BufferError
    return array.view(BITS)


class Function:
    """One operation of one operand (its number in `lanes`) on arrays of float32, or of float64, by itself, as it is in chains: to the bit."""

    __slots__ = ("dtype", "_letter", "_number")

    def __init__(self, number: int, dtype: np.dtype = SINGLE) -> None:
        self._number, self.dtype, self._letter = number, dtype, ord(dtype.char)

    def __call__(self, array: Any) -> Any:
        return self._into(array, of_c.empty(array.shape, self.dtype))

    def over(self, array: Any) -> Any:
        """The same, written into the operand where it can be."""
        return self._into(array, array) if array.flags.c_contiguous and array.flags.writeable else self(array)

    def _into(self, array: Any, made: Any) -> Any:
        size = made.size
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        length = size * lanes.width(self._letter)
        operand, result = lanes.memory(array, length, self._letter, False), lanes.memory(made, length, self._letter, True)
        if size >= SHARED_FUNCTION:
            lanes.lane_shared(self._letter, self._number, operand, result, size)
        else:
            lanes.lane(self._letter, self._number, operand, operand, operand, result, size)
        return made


class Operation:
    """One operation (its number in `lanes`) on arrays of float32 or float64 by itself, as it is in chains: to the bit. otherwise: does the same with
    arrays of any floating dtype."""

    __slots__ = ("otherwise", "_number")

    def __init__(self, number: int, otherwise: Callable[..., Any]) -> None:
        self._number, self.otherwise = number, otherwise

    def __call__(self, *arrays: Any) -> Any:
        return self.of(list(arrays))

    def of(self, arrays: list[Any]) -> Any:
        """What calling it with these operands gives."""
        dtype, shape, alike = arrays[0].dtype, (), True
        letter = ord(dtype.char)
        for array in arrays:
            own = array.shape
            alike = alike and array.dtype == dtype
            if own != shape and own:
                if shape:
                    return self.of([np.ascontiguousarray(array) for array in np.broadcast_arrays(*arrays)])
                shape = own
        if not alike or letter not in (102, 100):
            return self.otherwise(*arrays)
        made = of_c.empty(shape, dtype)
        size, width = made.size, 4 if letter == 102 else 8
        given = [contiguous(array) if array.shape else np.asarray(array) for array in arrays]
        first, second, third = given[0], given[len(given) // 2], given[-1]  # the second of two is the third, too
        a, b = lanes.memory(first, width * first.size, letter, False), lanes.memory(second, width * second.size, letter, False)
        c, out = lanes.memory(third, width * third.size, letter, False), lanes.memory(made, width * size, letter, True)
        shared = size >= (SHARED if lanes.REM <= self._number <= lanes.FLOOR_DIVIDE else SHARED_OPERATION)
        if size:
            lanes.operation(letter, self._number, a, first.size, b, second.size, c, third.size, out, size, shared)
        return made


# ---------------------------------------------------------------------- half precision

# Below, the conversion of the elements one by one takes no longer, float16's by NumPy and bfloat16's by ml_dtypes.
_FEW, _FEW_BRAINS = 256, 1024
# What converts between dtypes of these letters: the operation, and the letters of the memory.
_CONVERSIONS = {
    ("e", "f"): (lanes.WIDEN_HALF, lanes.HALF, ord("f")), (BFLOAT16.char, "f"): (lanes.WIDEN_BRAIN, lanes.BRAIN, ord("f")),
    ("f", "e"): (lanes.NARROW_HALF, ord("f"), lanes.HALF), ("f", BFLOAT16.char): (lanes.NARROW_BRAIN, ord("f"), lanes.BRAIN),
}  # fmt: skip


def converted(x: Any, target: np.dtype) -> Any:
    """An array of another dtype, in memory of its own: what `astype` gives, of half precision by loops of C's where they are compiled."""
    how = _CONVERSIONS.get((x.dtype.char, target.char)) if x.size >= _FEW and by_numbers else None
    if how is None:
        return x.astype(target)
    number, of, to = how
    if x.size < _FEW_BRAINS and lanes.BRAIN in (of, to):
        return x.astype(target)
    flags = x.flags
    if not flags.c_contiguous:
        return converted(x.T, target).T if flags.f_contiguous else converted(copied(x), target)
    made = of_c.empty(x.shape, target)
    _convert(x, made, number, of, to)
    return made


def widened(x: Any) -> Any:
    """Half precision as float32; anything else as it is."""
    return converted(x, SINGLE) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x


def _convert(source: Any, target: Any, number: int, of: int, to: int) -> None:
    """Write the numbers of an array into another one, both contiguous and of the letters `of` and `to`, by an operation of `lanes`."""
    size = target.size
    if of == lanes.BRAIN:
        source = bits(source)
    if to == lanes.BRAIN:
        target = bits(target)
    given, made = lanes.memory(source, lanes.width(of) * size, of, False), lanes.memory(target, lanes.width(to) * size, to, True)
    lanes.lane(102, number, given, given, given, made, size)


# ---------------------------------------------------------------------- rows and matrices


def add_rows(rows: Any, places: Any, updates: Any) -> None:
    """Add each of the updates (n, length) to the row at its place, int64, one after the other; what has none is dropped. All contiguous, of float32
    or float64."""
    letter = ord(rows.dtype.char)
    width = 4 if letter == 102 else 8
    target = lanes.memory(rows, width * rows.size, letter, True)
    count = places.size
    where = lanes.memory(places, 8 * count, ord(places.dtype.char), False)
    source = lanes.memory(updates, width * updates.size, letter, False)
    lanes.add_at(letter, target, where, source, count, rows.shape[0], rows.shape[1])


def factorize(a: Any, pivots: Any, order: Any) -> None:
    """`lanes.factorize` of a contiguous batch of matrices (n, rows, columns), with room for their pivots and orders, int32."""
    letter, width = ord(a.dtype.char), a.dtype.itemsize
    matrix = lanes.memory(a, a.nbytes, letter, True)
    exchanged, rows_now = lanes.memory(pivots, 4 * pivots.size, 105, True), lanes.memory(order, 4 * order.size, 105, True)
    count, rows, columns = a.shape
    for i in range(count):
        pivot = lanes.at(exchanged, 4, i * min(rows, columns))
        lanes.factorize(letter, lanes.at(matrix, width, i * rows * columns), pivot, lanes.at(rows_now, 4, i * rows), rows, columns)


def factors(a: Any) -> tuple[Any, Any, Any, int]:
    """Of one square matrix, float32 or float64: both triangles of its LU factorization in one, the pivots from 0, the order of the rows, and which of
    the diagonal's elements is the first 0, from 1; 0 for none."""
    letter, size = ord(a.dtype.char), a.shape[0]
    lu, pivots, order = np.array(a, order="C"), np.empty(size, _INTS), np.empty(size, _INTS)
    matrix = lanes.memory(lu, lu.nbytes, letter, True)
    lanes.factorize(letter, matrix, lanes.memory(pivots, 4 * size, 105, True), lanes.memory(order, 4 * size, 105, True), size, size)
    return lu, pivots, order, lanes.first_zero(letter, matrix, size)


def solve(lu: Any, x: Any) -> None:
    """Write the solution of L U X = x over the right side, contiguous, of one column or several. lu: see `factors`."""
    letter, size = ord(lu.dtype.char), lu.shape[0]
    matrix, right = lanes.memory(lu, lu.nbytes, letter, False), lanes.memory(x, x.nbytes, letter, True)
    columns = x.size // size
    lanes.substitute(letter, matrix, right, size, columns, False, True, True)
    lanes.substitute(letter, matrix, right, size, columns, False, False, False)


def cholesky(a: Any) -> None:
    """`lanes.cholesky` of a contiguous batch of matrices (n, size, size)."""
    letter, width = ord(a.dtype.char), a.dtype.itemsize
    matrix = lanes.memory(a, a.nbytes, letter, True)
    count, size = a.shape[:2]
    for i in range(count):
        lanes.cholesky(letter, lanes.at(matrix, width, i * size * size), size)


def substitute(a: Any, x: Any, turned: bool, lower: bool, unit: bool) -> None:
    """`lanes.substitute` of contiguous batches of matrices (n, size, size) and right sides (n, size, columns)."""
    letter, width = ord(a.dtype.char), a.dtype.itemsize
    matrix, right = lanes.memory(a, a.nbytes, letter, False), lanes.memory(x, x.nbytes, letter, True)
    count, size, columns = x.shape
    for i in range(count):
        system = lanes.at(matrix, width, i * size * size)
        lanes.substitute(letter, system, lanes.at(right, width, i * size * columns), size, columns, turned, lower, unit)


def through_pairs(direction: Any, scale: Any, changes: Any, steps: Any, ro: Any, factors: Any) -> None:
    """The two loops of L-BFGS over pairs of contiguous vectors of float32 or float64, the newest of which is the last: write the direction over what
    is the gradient with the opposite sign, and the pairs' factors into `factors`. ro: a number of each pair. Nocedal and Wright, "Numerical
    Optimization" (2006), algorithm 7.4."""
    letter, size, length = ord(direction.dtype.char), direction.size, direction.nbytes
    made = lanes.memory(direction, length, letter, True)
    for i in range(len(ro) - 1, -1, -1):
        factors[i] = vectors.dot(letter, lanes.memory(steps[i], length, letter, False), made, size) * ro[i]
        vectors.add_times(letter, made, lanes.memory(changes[i], length, letter, False), -factors[i], size)
    direction *= scale
    for i in range(len(ro)):
        along = vectors.dot(letter, lanes.memory(changes[i], length, letter, False), made, size)
        vectors.add_times(letter, made, lanes.memory(steps[i], length, letter, False), factors[i] - along * ro[i], size)


def _padded(numbers: list[int], length: int) -> list[int]:
    return numbers + [0] * (length - len(numbers))


# Whether blocks are C's, and no longer NumPy's.
by_numbers = not isinstance(Chain.__call__, FunctionType)
