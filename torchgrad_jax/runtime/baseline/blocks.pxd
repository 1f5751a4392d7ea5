cimport cython

from torchgrad_jax.runtime.baseline cimport lanes
from torchgrad_jax.runtime.native cimport arrays as of_c
from torchgrad_jax.runtime.native cimport vectors


cdef Py_ssize_t BLOCK, SHARED, SHARED_WORK, SHARED_FUNCTION, SHARED_OPERATION


cdef class Chain:
    cdef public tuple shape
    cdef public list dtypes, strided, brains
    cdef public dict repeated
    cdef public object otherwise
    cdef int _letter, _inputs, _outputs, _operations, _registers, _weight
    cdef Py_ssize_t _size
    cdef int[64] _letters
    cdef Py_ssize_t[64] _sizes
    cdef Py_ssize_t[320] _patterns
    cdef bint[64] _numbers, _sliced
    cdef int[320] _code

    cpdef bint is_shared(self)
    @cython.locals(made=list)
    cpdef of(self, list arrays)
    cpdef list slots(self, object arrays, list made)
    @cython.locals(work="lanes.Work*", alone="lanes.Work*")
    cdef _carry_out(self, list slots)
    @cython.locals(work="lanes.Work*", count=int)
    cdef provide(self, lanes.Work* works)
    @cython.locals(
        work="lanes.Work*", length=Py_ssize_t, known=int, start="char**", step="Py_ssize_t*", room="char*", i=int, source="char*", used=int,
    )
    cdef _prepare(self, list slots, lanes.Work* works)


@cython.locals(count=int, work="lanes.Work*", chain=Chain, i=int)
cdef _carry_out_all(list chains, list slots)


@cython.locals(size=Py_ssize_t, given="char*", made="char*")
cdef _convert(object source, object target, int number, int of, int to)


@cython.locals(letter=int, width=int, count=Py_ssize_t, target="char*", where="char*", source="char*")
cpdef add_rows(object rows, object places, object updates)


@cython.locals(
    letter=int, width=int, matrix="char*", exchanged="char*", rows_now="char*", pivot="char*", i=Py_ssize_t, count=Py_ssize_t, rows=Py_ssize_t,
    columns=Py_ssize_t,
)
cpdef factorize(object a, object pivots, object order)


@cython.locals(letter=int, size=Py_ssize_t, matrix="char*")
cpdef tuple factors(object a)


@cython.locals(letter=int, size=Py_ssize_t, columns=Py_ssize_t, matrix="char*", right="char*")
cpdef solve(object lu, object x)


@cython.locals(letter=int, width=int, matrix="char*", i=Py_ssize_t, count=Py_ssize_t, size=Py_ssize_t)
cpdef cholesky(object a)


@cython.locals(
    letter=int, width=int, matrix="char*", right="char*", i=Py_ssize_t, count=Py_ssize_t, size=Py_ssize_t, columns=Py_ssize_t, system="char*",
)
cpdef substitute(object a, object x, bint turned, bint lower, bint unit)


@cython.locals(letter=int, size=Py_ssize_t, length=Py_ssize_t, made="char*", i=Py_ssize_t, along=double)
cpdef through_pairs(object direction, object scale, list changes, list steps, list ro, list factors)


cdef class Function:
    cdef public object dtype
    cdef int _number, _letter

    @cython.locals(size=Py_ssize_t, length=Py_ssize_t, operand="char*", result="char*")
    cdef _into(self, object array, object made)


cdef class Operation:
    cdef public object otherwise
    cdef int _number

    @cython.locals(
        letter=int, alike=bint, size=Py_ssize_t, width=Py_ssize_t, given=list, a="char*", b="char*", c="char*", out="char*", shared=bint,
    )
    cpdef of(self, list arrays)
