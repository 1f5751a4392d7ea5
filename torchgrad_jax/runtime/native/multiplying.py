"""Matrix products by functions of C's, in compiled modules (`multiplying.pxd`): for XLA, and for the interpreter. Here there are none."""

from __future__ import annotations

from typing import Any


def vector_bits() -> int:
    """The width of this processor's vectors, if there are functions of our own for them, which are quicker than BLAS: 512 or 256; else 0."""
    return 0


def by_thirds() -> bool:
    """Whether products of float32 go by the processor's tiles of bfloat16, three for each number, where that is quicker: see `thirds.h`."""
    return False


def use(single: int, double: int, narrow: bool, bits: int, thirds: bool) -> bool:
    """Whether products can be had from now on. single, double: the addresses of `cblas_sgemm` and `cblas_dgemm`. narrow: whether a product with a
    transposed matrix is quicker in narrow blocks. bits: of the vectors of our own functions, at most `vector_bits()`; 0: BLAS does all.
    thirds: whether products may go `by_thirds`, if the processor can and they are not BLAS's."""
    return False


def handler(minor: int) -> Any:
    """A capsule with the function that XLA calls, None where there is none. minor: the version of XLA's interface, 0.minor."""
    return None


def multiplied(x: Any, y: Any, left: bool, right: bool, bias: Any, rest: Any, mirrored: bool) -> Any:
    """A new array of the products of matrices, or of as many of each: of the transpose of `x` if `left`, of `y` if `right`. bias: None, or what is
    added to each row, contiguous; rest: None, or what is added then, contiguous, as many elements as the result has. mirrored: whether the bits
    are to be those of the product of the transposes in the other order.

    Arrays of float32, or all of float64, of shapes that fit. None where it cannot: rows or columns of an operand do not lie in one piece, its batch
    has more than two strides, there is no element, or BLAS does it sooner: of a vector and a large matrix.
    """
    return None


def added(x: Any, y: Any, left: bool, right: bool, onto: Any, mirrored: bool) -> Any:
    """`onto`, a contiguous matrix, with the product of two matrices added to it: of the transpose of `x` if `left`, of `y` if `right`.

    None, and nothing is added, where the same bits could not be had: of few rows or columns, of more terms than are summed in registers, or where the
    processor's vectors are not known.
    """
    return None
