cimport cython

from torchgrad_jax.runtime.baseline cimport within
from torchgrad_jax.runtime.counters cimport Counters
from torchgrad_jax.runtime.native cimport arrays as of_c
from torchgrad_jax.runtime.recorder cimport Recorder
from torchgrad_jax.runtime.recording.epoch cimport Epoch
from torchgrad_jax.runtime.recording.fields cimport FormFields, ProgramFields
from torchgrad_jax.runtime.recording cimport holding
from torchgrad_jax.runtime.recording.step cimport Step
from torchgrad_jax.runtime.value cimport Value


cdef dict _modes, _observed, _kept
cdef object _ndarray, _scalar, _asarray


cdef class Settled:
    cdef public ProgramFields program
    cdef public bytes alive
    cdef public list slots, inputs, calls, template, places, checks, numbers, said
    cdef public bint compiled, long, multiplies
    cdef public Py_ssize_t left
    cdef public double cost


@cython.locals(step=Step, values=dict, found=Settled, alive=bytes, arrays=list, totals=Counters, form=FormFields, reasons=dict)
cpdef object run_settled(Recorder rec, Epoch epoch, str reason)
@cython.locals(epoch=Epoch, new=Epoch)
cpdef run_pending(Recorder rec, str reason)
@cython.locals(step=Step, leaves=dict, arrays=list, i=Py_ssize_t, leaf=Value, said=tuple)
cdef list _arrays(Settled found, Epoch epoch)
cdef _interpret(Recorder rec, Settled found, list arrays)
cdef _owned(object array)
cdef bint _is_usual()
@cython.locals(values=dict, value=Value, i=Py_ssize_t)
cpdef keep(Epoch epoch, object outs)
