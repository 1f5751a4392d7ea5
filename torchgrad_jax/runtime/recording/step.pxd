cdef class Step:
    cdef public dict next
    cdef public Step parent, last, only
    cdef public object first, signature, aval, slot, bop, a, b, numbered, line, settled
    cdef public tuple args, numbers
    cdef public dict counts, programs
    cdef public Py_ssize_t end, due, inputs, nbytes
    cdef public bint several

    cpdef Step after(self, object key)
    cpdef Step follow(self, object key, Step step)
    cpdef object key(self)
