cimport cython

from torchgrad_jax.core.fields cimport TensorFields, aval_of, needs_grad
from torchgrad_jax.core.made cimport wrap
from torchgrad_jax.memory.at_hand cimport array_of, computed, number_for, rewritten, rounded
from torchgrad_jax.memory.fields cimport ViewFields
from torchgrad_jax.memory.storage cimport put_content
from torchgrad_jax.runtime.recorder cimport Recorder
from torchgrad_jax.runtime.value cimport Value


@cython.locals(rec=Recorder, place=Py_ssize_t)
cpdef bint put_at_hand(TensorFields t, tuple keys, object value) except -1
@cython.locals(rec=Recorder, place=Py_ssize_t, made=Value)
cpdef bint change_at_hand(str name, TensorFields t, object other) except -1
@cython.locals(storage=object, whole=Value)
cpdef object memory_of_element(Recorder rec, TensorFields t)
@cython.locals(storage=object, whole=Value, made=Value, base=TensorFields, held=bint)
cdef object _put_number(TensorFields t, Py_ssize_t place, object content)
@cython.locals(view=ViewFields, place=Py_ssize_t, offset=Py_ssize_t, dim=Py_ssize_t, n=Py_ssize_t, begin=Py_ssize_t)
cdef Py_ssize_t _place_of(TensorFields t, tuple keys, tuple shape) except -2
@cython.locals(view=ViewFields, storage=object)
cpdef object number_of(Recorder rec, TensorFields t, object dtype)
@cython.locals(rec=Recorder, made=Value)
cpdef object computed_at_hand(str name, TensorFields x, object other)
