cimport cython

from torchgrad_jax.core.fields cimport NodeFields, OpNodeFields
from torchgrad_jax.declaration.fields cimport PlanFields


cdef class Undo:
    cdef public list grads, freed
    cdef public object epoch, rest

    @cython.locals(op=OpNodeFields, plan=PlanFields)
    cpdef free(self, object node, object epoch)
