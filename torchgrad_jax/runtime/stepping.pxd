cimport cython

from torchgrad_jax.runtime.baseline.carrying cimport Prepared, Product
from torchgrad_jax.runtime.recording.fields cimport CallFields
from torchgrad_jax.runtime.structure cimport operands, store


@cython.locals(call=CallFields, ready=Prepared, flags=list, i=Py_ssize_t)
cpdef list step_through(list calls, list plans, list dying, dict env, dict numbers, object alone)


@cython.locals(function=object, places=tuple, outs=list, product=Product, step=tuple)
cdef object _quickly(tuple steps, list given)
