from torchgrad_jax.runtime.recording.step cimport Step


cdef class Epoch:
    cdef public object recorder, outcomes, first_failure, wanted, lock
    cdef public Step step, begun
    cdef public dict values, leaves, numbers, foreign, lines
    cdef public list aliases, on_host, writes, results
    cdef public Py_ssize_t bytes, largest, limit
    cdef public bint ended

    cpdef note_foreign(self, object value, object slot)
    cpdef note_alias(self, object twin)
    cpdef note_on_host(self, object index)
    cpdef note_line(self, object slot, object line)
    cpdef finish(self)
