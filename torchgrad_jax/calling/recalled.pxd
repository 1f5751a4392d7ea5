cimport cython

from torchgrad_jax.calling.entries cimport Calls, Entry, Like, Part, Several, mark, told_of
from torchgrad_jax.core.dispatch cimport apply
from torchgrad_jax.core.fields cimport TensorFields, content_of, needs_grad
from torchgrad_jax.core.hot cimport Called, of_one, of_two, write_plainly
from torchgrad_jax.core.order cimport in_rows
from torchgrad_jax.core.viewing cimport known_as, made_again, made_together
from torchgrad_jax.memory.fields cimport ViewFields
from torchgrad_jax.runtime.recorder cimport Recorder
from torchgrad_jax.runtime.recording.epoch cimport Epoch
from torchgrad_jax.runtime.recording.step cimport Step
from torchgrad_jax.runtime.value cimport Value


cdef dict _warnings, _devices
@cython.locals(rec=Recorder, got=list, found=Entry, epoch=Epoch, before=Step)
cpdef object recall(Calls calls, object otherwise, tuple args, dict kwargs)
@cython.locals(last=Entry, entry=Entry, alike=list)
cdef Entry _found(Calls calls, bint follows, tuple args, dict kwargs, list got)
@cython.locals(known=tuple)
cdef bint _fits(Entry entry, tuple args, dict kwargs, list got) except -1
@cython.locals(first=Py_ssize_t, again=Py_ssize_t, pair=tuple)
cdef bint _are_twins(tuple twins, list got) except -1
@cython.locals(i=Py_ssize_t)
cdef bint _are_alike(tuple items, object values, list got) except -1
@cython.locals(like=Like, t=TensorFields, view=ViewFields, several=Several)
cdef bint _alike(object item, object value, list got) except -1
cdef bint _is_within(Like like, Value content) except -1
@cython.locals(known=Entry)
cdef object _written(Calls calls, Recorder rec, object found, list got, object otherwise, tuple args, dict kwargs)
@cython.locals(called=Called, second=Py_ssize_t)
cdef object _again(Entry entry, list got)
@cython.locals(part=Part, called=Called, second=Py_ssize_t)
cdef object _in_parts(Entry entry, list got)
cdef list _operands(Entry entry, list got)
@cython.locals(operands=list, i=Py_ssize_t, place=Py_ssize_t)
cdef list _of(tuple places, tuple numbers, list got)
