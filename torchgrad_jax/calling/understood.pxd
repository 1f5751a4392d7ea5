from torchgrad_jax.core.hot cimport write_plainly


cdef class Understood:
    cdef object _operator
    cdef tuple _dynamic
    cdef bint _typed, _fixed
    cdef dict _by_name
    cdef object _known

    cdef tuple _key(self, tuple args, dict kwargs)
