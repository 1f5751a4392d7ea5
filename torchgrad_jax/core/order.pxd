cimport cython

from torchgrad_jax.core.fields cimport TensorFields
from torchgrad_jax.memory.fields cimport ViewFields
from torchgrad_jax.memory.storage cimport read_through
from torchgrad_jax.runtime.value cimport Value


@cython.locals(value=Value)
cpdef TensorFields arrange(TensorFields t, object order, object strides=*)
cpdef TensorFields in_rows(TensorFields t)
@cython.locals(view=ViewFields)
cpdef bint plain(TensorFields t) except -1
cdef bint _unplaced(TensorFields t) except -1
@cython.locals(several=tuple, t=TensorFields, view=ViewFields, seen=list)
cpdef object keep_order(object made, object operands, object bound=*)
@cython.locals(t=TensorFields, view=ViewFields, seen=list)
cpdef tuple kinds_of(object results, object operands)
@cython.locals(several=tuple)
cpdef object order_by_rule(object bound, object order, object made, object operands)
