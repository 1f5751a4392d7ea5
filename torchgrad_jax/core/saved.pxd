cimport cython

from torchgrad_jax.core.fields cimport SavedFields, TensorFields, read
from torchgrad_jax.runtime.value cimport Value


@cython.locals(value=Value)
cpdef object tensor_for(SavedFields saved, object node)
@cython.locals(made=SavedFields)
cpdef SavedFields blank()
@cython.locals(made=SavedFields, t=TensorFields)
cpdef SavedFields save(object rec, object tensor, object node, bint own, bint holds)
