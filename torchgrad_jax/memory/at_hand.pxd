cimport cython

from torchgrad_jax.runtime.native cimport arrays as of_c
from torchgrad_jax.runtime.recorder cimport Recorder
from torchgrad_jax.runtime.value cimport Aval, Value

cdef object _ndarray
cdef dict _observed, _modes
cdef list watches


cpdef object array_of(Recorder rec, Value whole)
cpdef object number_for(object value, str kind)
cpdef object rounded(object value, str kind)
cpdef Value computed(str name, object a, object b, Aval aval)
cpdef object part_of(object memory, tuple shape, object strides, Py_ssize_t offset)
@cython.locals(offset=Py_ssize_t, number=int)
cpdef object change(object memory, str name, tuple place, object given, object context)
@cython.locals(offset=Py_ssize_t)
cpdef object put(object memory, tuple place, object given)
@cython.locals(array=object)
cpdef object writable(Value whole, Py_ssize_t holders)
cpdef tuple _references(Value whole)
@cython.locals(whole=Value)
cpdef tuple _references_of_one()
