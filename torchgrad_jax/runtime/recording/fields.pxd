cdef class FormFields:
    cdef public object function
    cdef public bint ahead
    cdef public Py_ssize_t used
    cdef public double spent


cdef class ProgramFields:
    cdef public FormFields form
    cdef public Py_ssize_t seen, repeats


cdef class CallFields:
    cdef public object signature, slot
    cdef public tuple args, numbers
    cdef public Py_ssize_t end


cdef class SignatureFields:
    cdef public object bop, check, cut, kind
    cdef public tuple avals
    cdef public bint single, numbered
    cdef public Py_ssize_t nbytes
    cdef public dict plans
