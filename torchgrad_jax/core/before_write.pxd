cimport cython

from torchgrad_jax.core.fields cimport TensorFields
from torchgrad_jax.memory.fields cimport CounterFields, ViewFields


@cython.locals(view=ViewFields, base=TensorFields, counter=CounterFields)
cpdef tuple before_write(TensorFields target)
