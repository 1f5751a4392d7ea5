cimport cython

from torchgrad_jax.core cimport blank
from torchgrad_jax.core.fields cimport OpNodeFields, TensorFields, content_of, edge_of, needs_grad, read
from torchgrad_jax.core.made cimport result, wrap
from torchgrad_jax.core.elements cimport change_at_hand, computed_at_hand
from torchgrad_jax.core.writing cimport part_written
from torchgrad_jax.declaration.fields cimport PlanFields
from torchgrad_jax.memory.fields cimport StorageFields, ViewFields
from torchgrad_jax.memory.storage cimport put_content, written_at_once
from torchgrad_jax.runtime.recorder cimport Recorder, record
from torchgrad_jax.runtime.recording cimport making
from torchgrad_jax.runtime.recording.epoch cimport Epoch
from torchgrad_jax.runtime.recording.fields cimport SignatureFields
from torchgrad_jax.runtime.recording.step cimport Step
from torchgrad_jax.runtime.value cimport Value


@cython.locals(epoch=Epoch, before=Step, step=Step, value=Value, values=dict)
cpdef Value record1(Recorder rec, object bop, Value a)
@cython.locals(epoch=Epoch, before=Step, step=Step, value=Value, values=dict, second=Value)
cpdef Value record2(Recorder rec, object bop, Value a, object b)


cdef class Called:
    cdef object bound, name, otherwise, real, whole, exact
    cdef bint follows, ordered, copies


cdef object _ndarray


@cython.locals(view=ViewFields)
cdef object _in_general(Called called, tuple operands)
cdef bint _lies_otherwise(Called called, TensorFields t) except -1


@cython.locals(value=Value, view=ViewFields)
cdef bint _is_loose(TensorFields t) except -1
@cython.locals(value=Value)
cdef bint _is_counted(TensorFields t) except -1
cdef object _at_once(Called called, TensorFields x, object other)
cdef object _answered(Called called, TensorFields x, object other, object declined)


cdef class Products:
    cdef Called mm, mv, dot


@cython.locals(a=Py_ssize_t, b=Py_ssize_t)
cpdef Called product_of(Products products, TensorFields x, TensorFields y)
@cython.locals(rec=Recorder, a=Value, value=Value, view=ViewFields, sig=SignatureFields, plan=PlanFields, node=OpNodeFields)
cpdef object of_one(Called called, TensorFields x)
@cython.locals(rec=Recorder, a=Value, y=TensorFields, value=Value, view=ViewFields, sig=SignatureFields, plan=PlanFields, node=OpNodeFields, mask=int)
cpdef object of_two(Called called, TensorFields x, object other)
@cython.locals(rec=Recorder, t=TensorFields, o=TensorFields, a=Value, value=Value)
cpdef object write_of_two(object bound, object otherwise, object x, object other)
@cython.locals(
    storage=StorageFields, o=TensorFields, a=Value, value=Value, content=Value, v=object, memory=object, told=tuple, numbers=tuple
)
cdef bint _write_part(Recorder rec, object bound, TensorFields t, object other) except -1
cdef class Writing:
    cdef public object bound, otherwise
    cdef public bint numbers


@cython.locals(rec=Recorder, t=TensorFields, target=TensorFields, a=Value, value=Value, values=list)
cpdef object write_plainly(object bound, tuple operands)
