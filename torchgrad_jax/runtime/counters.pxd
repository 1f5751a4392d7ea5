cdef class Counters:
    cdef public Py_ssize_t recorded, flushed, compiled, compiled_ops, ran, interpreted, stepped, settled, failed, _compiled_before
    cdef public dict reasons
