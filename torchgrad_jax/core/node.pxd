cimport cython

from torchgrad_jax.core.fields cimport Extra, TensorFields
from torchgrad_jax.memory.fields cimport ViewFields


@cython.locals(view=ViewFields, extra=Extra)
cpdef tuple end_of_graph(TensorFields t)
