cimport cython

from torchgrad_jax.core.fields cimport CalculusFields, OpNodeFields
from torchgrad_jax.declaration.fields cimport PlanFields
from torchgrad_jax.runtime.value cimport Value


@cython.locals(plan=PlanFields, edges=tuple, value=Value)
cpdef tuple run_operator(OpNodeFields node, CalculusFields calculus, list grads)
