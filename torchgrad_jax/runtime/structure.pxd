cimport cython

from torchgrad_jax.runtime.recording.fields cimport CallFields, SignatureFields
from torchgrad_jax.runtime.recording.step cimport Step


cdef class Call(CallFields):
    pass


@cython.locals(call=CallFields, read=set)
cpdef list inputs_of(list calls, object outputs)
@cython.locals(call=CallFields, met=bytearray, found=list, dying=list, least=Py_ssize_t, most=Py_ssize_t, n=Py_ssize_t)
cpdef list last_uses(list calls, object outputs)
@cython.locals(given=CallFields, found=list)
cpdef list operands(dict env, dict numbers, object call, object args=*)
@cython.locals(made=CallFields, sig=SignatureFields)
cpdef object store(dict env, object call, object outs, list flags)
@cython.locals(found=list)
cdef list _steps_to(Step step)
@cython.locals(call=CallFields, sig=SignatureFields, found=list)
cdef list _needed(list calls, set wanted)
@cython.locals(part=CallFields, call=Call, given=list, outer=list, args=list, numbers=list, numbers_left=list, first=Py_ssize_t, free=Py_ssize_t)
cdef Py_ssize_t _insert(list calls, Step whole, object known, dict renamed, Py_ssize_t at) except -1
