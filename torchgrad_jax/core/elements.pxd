cimport cython

from torchgrad_jax.core.fields cimport TensorFields, aval_of_tensor, content_of, needs_grad, offset_of, strides_of
from torchgrad_jax.core.made cimport wrap
from torchgrad_jax.memory.at_hand cimport array_of, change, computed, number_for, part_of, put, rounded, writable
from torchgrad_jax.memory.fields cimport CounterFields, StorageFields, ViewFields
from torchgrad_jax.memory.storage cimport put_content
from torchgrad_jax.runtime.native cimport arrays as of_c
from torchgrad_jax.runtime.recorder cimport Recorder, record
from torchgrad_jax.runtime.value cimport Aval, Value


@cython.locals(rec=Recorder, place=Py_ssize_t, aval=Aval)
cpdef bint put_at_hand(TensorFields t, tuple keys, object value) except -1
cpdef bint put_part_at_hand(Recorder rec, TensorFields t, tuple place, object value) except -1
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
@cython.locals(end=Py_ssize_t, stride=Py_ssize_t, i=Py_ssize_t)
cpdef Py_ssize_t end_of(tuple shape, tuple strides, Py_ssize_t offset) except? -1
cpdef bint overlap_in_part(object a, object b) except -1
@cython.locals(begin=Py_ssize_t, other=Py_ssize_t, alike=tuple, like=tuple)
cpdef bint place_overlaps(tuple place, object t) except -1
@cython.locals(view=ViewFields)
cdef bint _change_part(Recorder rec, str name, TensorFields t, Aval aval, object other) except -1
@cython.locals(storage=object, plain=StorageFields, whole=Value, aval=Aval)
cpdef object memory_of(Recorder rec, TensorFields t)
@cython.locals(storage=StorageFields, counter=CounterFields, version=Py_ssize_t, whole=Value, made=Value, base=TensorFields, view=ViewFields, held=bint)
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
cpdef bint put_quickly(object t, tuple keys, object value) except -1
@cython.locals(rec=Recorder, whole=Value, made=Value, begins=list, aval=Aval, given=Aval)
cpdef bint put_part(TensorFields t, tuple keys, object value) except -1
@cython.locals(dims=list, lengths=list, steps=list, shape=list, dim=Py_ssize_t, rest=Py_ssize_t, several=Py_ssize_t, n=Py_ssize_t)
cdef object _part(tuple keys, tuple whole, list begins)
cdef object _source(Recorder rec, TensorFields value)
@cython.locals(strides=list, offset=Py_ssize_t, i=Py_ssize_t, dim=Py_ssize_t, stride=Py_ssize_t, dims=tuple, lengths=tuple, steps=tuple)
cdef tuple _place_of_part(tuple kind, tuple whole, tuple shape, list begins)
@cython.locals(view=ViewFields, aval=Aval)
cdef bint _is_itself(TensorFields value, tuple place) except -1
@cython.locals(view=ViewFields, aval=Aval)
cdef bint _is_its_row(TensorFields value, Aval whole, tuple keys) except -1
@cython.locals(made=Value)
cdef object _again(Recorder rec, TensorFields t, object storage, Value whole)
@cython.locals(begin=object, end=object, step=object)
cpdef bint fits(object k, Py_ssize_t n) except -1
cpdef bint is_whole(slice k, Py_ssize_t n) except -1
@cython.locals(first=Py_ssize_t, last=Py_ssize_t, step=Py_ssize_t)
cpdef tuple bounds(slice k, Py_ssize_t n)
