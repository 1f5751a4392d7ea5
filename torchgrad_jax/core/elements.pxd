cimport cython

from torchgrad_jax.core.fields cimport TensorFields, aval_of_tensor, needs_grad
from torchgrad_jax.core.made cimport wrap
from torchgrad_jax.memory.at_hand cimport array_of, computed, content, number_for, part_of, rounded, writable
from torchgrad_jax.memory.fields cimport StorageFields, ViewFields
from torchgrad_jax.memory.storage cimport put_content
from torchgrad_jax.runtime.recorder cimport Recorder
from torchgrad_jax.runtime.value cimport Aval, Value


@cython.locals(rec=Recorder, place=Py_ssize_t, aval=Aval)
cpdef bint put_at_hand(TensorFields t, tuple keys, object value) except -1
cpdef bint put_part_at_hand(Recorder rec, TensorFields t, tuple keys, tuple shape, object value) except -1
@cython.locals(rec=Recorder, picking=list, arrays=Py_ssize_t, others=Py_ssize_t)
cpdef bint put_picked_at_hand(TensorFields t, tuple keys, object value) except -1
@cython.locals(aval=Aval)
cdef object _index_at_hand(Recorder rec, TensorFields index)
@cython.locals(rec=Recorder, aval=Aval)
cpdef bint change_at_hand(str name, TensorFields t, object other) except -1
@cython.locals(rec=Recorder, view=ViewFields, aval=Aval)
cpdef bint fill_at_hand(TensorFields t, object number) except -1
@cython.locals(place=Py_ssize_t, made=Value)
cdef bint _change_element(Recorder rec, str name, TensorFields t, Aval aval, object other) except -1
@cython.locals(end=Py_ssize_t, stride=Py_ssize_t, i=Py_ssize_t, shape=tuple)
cdef Py_ssize_t end_of(ViewFields view, Aval aval) except -1
@cython.locals(one=ViewFields, other=ViewFields)
cpdef bint overlap_in_part(object a, object b) except -1
@cython.locals(view=ViewFields)
cdef bint _change_part(Recorder rec, str name, TensorFields t, Aval aval, object other) except -1
@cython.locals(storage=object, plain=StorageFields, whole=Value, aval=Aval)
cpdef object memory_of(Recorder rec, TensorFields t)
@cython.locals(storage=StorageFields, whole=Value, made=Value, base=TensorFields, view=ViewFields, held=bint)
cdef object _write(TensorFields t, object write, object where, object what)
@cython.locals(view=ViewFields, place=Py_ssize_t, offset=Py_ssize_t, dim=Py_ssize_t, n=Py_ssize_t, begin=Py_ssize_t)
cdef Py_ssize_t _place_of(TensorFields t, tuple keys, tuple shape) except -2
cpdef object number_of(Recorder rec, TensorFields t, object dtype)
@cython.locals(view=ViewFields)
cpdef object array_at_hand(Recorder rec, TensorFields t, object dtype)
@cython.locals(storage=object, plain=StorageFields, whole=Value)
cdef object _readable(Recorder rec, TensorFields t, object dtype)
@cython.locals(rec=Recorder, made=Value, aval=Aval)
cpdef object computed_at_hand(str name, TensorFields x, object other)
