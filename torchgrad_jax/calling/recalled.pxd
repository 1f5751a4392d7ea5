cimport cython

from torchgrad_jax.core.dispatch cimport apply
from torchgrad_jax.core.fields cimport TensorFields, content_of, needs_grad
from torchgrad_jax.core.hot cimport Called, of_one, of_two
from torchgrad_jax.core.viewing cimport made_again, made_together
from torchgrad_jax.memory.fields cimport ViewFields
from torchgrad_jax.runtime.recorder cimport Recorder
from torchgrad_jax.runtime.recording.epoch cimport Epoch
from torchgrad_jax.runtime.recording.step cimport Step
from torchgrad_jax.runtime.value cimport Value


cdef class Like:
    cdef public object aval, strides, known, low, high
    cdef public bint needs


cdef class Several:
    cdef public object kind
    cdef public tuple items


cdef class Entry:
    cdef public tuple args, names, values, places, numbers
    cdef public Entry after
    cdef public bint follows, named
    cdef public object bound, known, begin, together, wrap
    cdef public Called called


cdef class Calls:
    cdef public list entries
    cdef public Entry last
    cdef public Py_ssize_t left
    cdef public bint bounds
    cdef object __weakref__


cdef dict _warnings
cdef frozenset _SEQUENCES, _PLAIN
@cython.locals(rec=Recorder, got=list, found=Entry, epoch=Epoch, before=Step)
cpdef object recall(Calls calls, object otherwise, tuple args, dict kwargs)
@cython.locals(last=Entry, entry=Entry)
cdef Entry _found(Calls calls, bint follows, tuple args, dict kwargs, list got)
@cython.locals(known=tuple, i=Py_ssize_t)
cdef bint _fits(Entry entry, tuple args, dict kwargs, list got) except -1
@cython.locals(like=Like, t=TensorFields, view=ViewFields, several=Several, i=Py_ssize_t)
cdef bint _alike(object item, object value, list got) except -1
cdef bint _may_be_known(TensorFields t) except -1
cdef bint _is_within(Like like, Value content) except -1
@cython.locals(called=Called, operands=list, i=Py_ssize_t, place=Py_ssize_t, second=Py_ssize_t)
cdef object _again(Entry entry, list got)
