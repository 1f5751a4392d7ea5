cimport cython

from torchgrad_jax.core.fields cimport TensorFields
from torchgrad_jax.memory.fields cimport ViewFields


cdef class without_duals:
    cdef object _recorder
    cdef tuple _before


@cython.locals(view=ViewFields, base=TensorFields)
cpdef object tangent_of(TensorFields t)
cpdef dict tangents_of(object operands)
cpdef dict _pushed(object bound, object operands, dict tangents, tuple results)
