cimport cython

from torchgrad_jax.runtime.recording.fields cimport CallFields


cdef class Estimate:
    cdef public list plans
    cdef public bint planned, whole, small, refined
    cdef public double interpreting, calling, compiling, one, _steps, _fusible

    @cython.locals(call=CallFields, plans=list, met=set, follows=bint, interprets=bint, by_xla=bint, primitives=double, known=double, share=double,
                   interpreting=double, running=double, fusible=double, rest=double, least=double,
                   most=double, of_alike=double, of_fused=double, cost=double, alike=double)
    cdef double _add(self, list calls, object price, bint on_host) except -1


@cython.locals(call=CallFields, found=Py_ssize_t)
cdef Py_ssize_t _beginnings(list calls) except -1
