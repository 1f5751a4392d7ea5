cimport cython

from torchgrad_jax.runtime.recording cimport making
from torchgrad_jax.runtime.recording.epoch cimport Epoch
from torchgrad_jax.runtime.recording.fields cimport SignatureFields
from torchgrad_jax.runtime.recording.step cimport Step
from torchgrad_jax.runtime.value cimport Aval, Value


cdef dict _modes
cdef object _ndarray


cdef class Recorder:
    cdef public Epoch epoch
    cdef public Step root
    cdef public object device, thread, level, flags, changing, cutting, context
    cdef public Py_ssize_t turned, rare, sequence, new_in_a_row
    cdef public bint grad_enabled, inference, rolling
    cdef public tuple recent
    cdef public list writes
    cdef object __weakref__

    @cython.locals(epoch=Epoch, before=Step, step=Step, owner=Epoch, aval=Aval)
    cpdef object enter(self, Value value)
    @cython.locals(specs=tuple, sig=SignatureFields, avals=tuple, step=Step, last=Step, end=Py_ssize_t)
    cpdef Step extend(self, Step before, object bop, tuple key, tuple operands)
    cpdef Step _add(self, Step before, object key, Step step)
    cpdef object operand(self, object operand)
    @cython.locals(epoch=Epoch, twin=Value)
    cpdef Value alias(self, Value value)
    cpdef Epoch new_epoch(self)
    cpdef flush(self, str reason)


@cython.locals(epoch=Epoch, before=Step, step=Step, value=Value, args=tuple)
cpdef object record(Recorder rec, object bop, tuple operands)
@cython.locals(sig=object, value=Value, made=list, values=dict, numbers=dict, places=tuple, i=Py_ssize_t, single=bint)
cdef object _record_several(Recorder rec, Epoch epoch, Step before, Step step, object bop, tuple operands)
cpdef object after(Recorder rec, Epoch epoch, Step step)
