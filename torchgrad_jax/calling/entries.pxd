cimport cython

from torchgrad_jax.core.fields cimport TensorFields, content_of
from torchgrad_jax.core.hot cimport Called
from torchgrad_jax.runtime.value cimport Value


cdef class Like:
    cdef public object aval, strides, known, low, high
    cdef public bint needs


cdef class Several:
    cdef public object kind
    cdef public tuple items


cdef class Part:
    cdef public object bound, known, begin
    cdef public tuple places, numbers
    cdef public Called called
    cdef public bint viewing, in_rows


cdef class Entry:
    cdef public tuple args, names, values, places, numbers, parts, twins
    cdef public Entry after
    cdef public bint follows, named, silent
    cdef public Py_ssize_t pick
    cdef public object bound, known, begin, together, wrap, array, order
    cdef public Called called


cdef class Calls:
    cdef public dict entries, unclear
    cdef public Py_ssize_t count
    cdef public Entry last
    cdef public Py_ssize_t left
    cdef public bint bounds, makes, alike, writes, joins, divides
    cdef object __weakref__


cpdef object mark(tuple args)
@cython.locals(t=TensorFields)
cdef object _aval(object argument)
@cython.locals(content=Value, whole=Value)
cpdef Value told_of(TensorFields t)
