cimport cython

from torchgrad_jax.core.fields cimport CalculusFields, FunctionFields, TensorFields
from torchgrad_jax.core.saved cimport save
from torchgrad_jax.runtime.recorder cimport Recorder


cdef class _Call:
    cdef public tuple is_tensor, needs, inputs, outputs, edges, carries
    cdef public object seq
    cdef public dict others, users


@cython.locals(rec=Recorder, ctx=FunctionFields, call=_Call, own=dict, recording=bint, first=TensorFields, several=bint, differentiable=bint)
cpdef object record_call(object cls, tuple args, object forward, bint separate)
@cython.locals(t=TensorFields, needs=list, avals=list, edges=list, needed=bint)
cdef tuple _described(tuple args, tuple tensors, object level, bint recording)
cdef object _called(object cls, object ctx, tuple args, object forward, bint separate)
@cython.locals(ctx=FunctionFields, call=_Call, own=dict)
cdef object _put_aside_users(object node, object hooks)
@cython.locals(ctx=FunctionFields, call=_Call)
cdef list _lift(object node, CalculusFields calculus, list grads)
@cython.locals(ctx=FunctionFields, call=_Call, lifted=list)
cdef tuple _run(object node, CalculusFields calculus, list grads)
