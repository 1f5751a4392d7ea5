from torchgrad_jax.runtime.recording.step cimport Step


cdef class Epoch:
    cdef public object recorder, outcomes, first_failure, wanted, lock
    cdef public Step step, begun
    cdef public dict values, leaves, numbers, foreign, lines
    cdef public list aliases, on_host, writes, results
    cdef public Py_ssize_t bytes, limit
    cdef public bint ended
