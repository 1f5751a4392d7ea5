cimport cython

from torchgrad_jax.core.fields cimport NodeFields, OpNodeFields
from torchgrad_jax.declaration.fields cimport PlanFields
from torchgrad_jax.runtime.value cimport Value


@cython.locals(node=NodeFields, op=OpNodeFields, value=Value, operands=list, place=dict, index=dict, parts=list, stack=list)
cpdef object fingerprint(object roots, object grads, object captures, bint accumulate)
cdef object _numbered(object node, dict index, list parts, list stack)
@cython.locals(op=OpNodeFields, plan=PlanFields)
cpdef object release(list nodes)
