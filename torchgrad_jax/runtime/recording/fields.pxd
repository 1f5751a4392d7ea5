cdef class SignatureFields:
    cdef public object bop, check
    cdef public tuple avals
    cdef public bint single, numbered
    cdef public Py_ssize_t nbytes
    cdef public dict plans
