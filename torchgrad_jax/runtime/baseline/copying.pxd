cimport cython

from torchgrad_jax.runtime.baseline cimport moving
from torchgrad_jax.runtime.native cimport arrays


cpdef contiguous(object array)
cpdef in_one_piece(object array)
cpdef copied(object array)
cpdef written(object part, object array)
cpdef joined(object given, Py_ssize_t axis)
cpdef stacked(object given, Py_ssize_t axis)
cpdef own(object array)
cdef bint _is_plain(object array)
cpdef reshaped(object array, object shape)


@cython.locals(gaps=list, size=Py_ssize_t, following=Py_ssize_t, i=Py_ssize_t, n=Py_ssize_t, stride=Py_ssize_t)
cdef bint _is_view(tuple given, tuple strides, object shape)
