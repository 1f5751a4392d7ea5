from torchgrad_jax.runtime.baseline.carrying cimport carry_out

cdef extern from "Python.h":
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1


cdef inline carried_out(object context, list calls, list values):
    PyContext_Enter(context)
    try:
        carry_out(calls, values)
    finally:
        PyContext_Exit(context)
