cimport cython

from torchgrad_jax.core.fields cimport TensorFields, needs_grad, read
from torchgrad_jax.runtime.value cimport Value


cdef class Reached:
    cdef public list key, tensors, containers
    cdef dict _functions, _objects, _classes, _names
    cdef set _looked_up

    cpdef add(self, value)
    cdef _add_object(self, value, kind, look_into)
    cpdef complete(self)
    @cython.locals(t=TensorFields, value=Value, i=Py_ssize_t, captured=Py_ssize_t)
    cpdef list contents(self, tuple args, dict kwargs, bint grad_enabled)
    @cython.locals(t=TensorFields, value=Value, i=Py_ssize_t)
    cpdef tuple as_key(self, list values, tuple settings)
    cdef _add_callable(self, value, kind)
    cpdef add_transform(self, tuple parts)
    cdef _add_function(self, function)


cpdef bint _is_made_of_plain(object given)
