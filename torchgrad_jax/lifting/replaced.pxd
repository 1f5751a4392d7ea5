cimport cython

from torchgrad_jax.lifting cimport tags

cdef list _watched
cdef unsigned long long _tags
cdef Py_ssize_t _state


@cython.locals(total="unsigned long long", names=dict)
cpdef state()
cdef _looked(unsigned long long total)
