cimport cython

from torchgrad_jax.runtime.baseline.blocks cimport Chain
from torchgrad_jax.runtime.baseline.copying cimport contiguous, in_one_piece, joined, stacked, written
from torchgrad_jax.runtime.native cimport arrays as of_c
from torchgrad_jax.runtime.native cimport handlers


@cython.locals(
    call=tuple, arity=Py_ssize_t, a=Py_ssize_t, b=Py_ssize_t, c=Py_ssize_t, given=tuple, product=Product, chain=Chain, operands=tuple, i=Py_ssize_t,
)
cpdef carry_out(list calls, list values)


cdef class Prepared:
    cdef public list _calls, _template, _outputs
    cdef public Py_ssize_t _inputs

    cpdef prepare(self)
    @cython.locals(values=list, i=Py_ssize_t)
    cpdef list of(self, list arrays)


cdef class Product:
    cdef public bint turned, other, mirrored
    cdef public object otherwise

    cpdef of(self, object a, object b)
    cpdef with_bias(self, object a, object b, object bias)
    cdef _of_pieces(self, object a, object b, object bias)


cdef class Added:
    cdef public Product product


cdef class Batches:
    cdef public Product product
    cdef public tuple left, right


cdef class Part:
    cdef public Py_ssize_t dim, length, step
    cdef public object otherwise


@cython.locals(part=object, i=Py_ssize_t)
cpdef bint put(object x, object value, tuple begins, tuple dims, tuple lengths, tuple steps) except -1


cdef class Joined:
    cdef public Py_ssize_t axis
    cdef public bint apart


cdef class Taken:
    cdef public Py_ssize_t dim


cdef class Reduced:
    cdef public int which, first, after
    cdef public list others
    cdef public object otherwise


cdef class Spread:
    cdef public object count, index, dtype
    cdef public tuple shape
    cdef public bint fresh


cdef class Loop:
    cdef public int of
    cdef public object how
    cdef public list results
