from torchgrad_jax.runtime.recording.fields cimport CallFields, SignatureFields


cdef class Step(CallFields):
    cdef public dict next
    cdef public Step parent, last, only
    cdef public object first, aval, bop, a, b, numbered, line, settled, cut
    cdef public dict counts, programs
    cdef public Py_ssize_t due, inputs, nbytes
    cdef public bint several

    cpdef object begin(self, Step parent, SignatureFields sig, tuple args, object aval, object slot, Py_ssize_t end)
    cpdef Step after(self, object key)
    cpdef Step follow(self, object key, Step step)
    cpdef object key(self)
