from torchgrad_jax.core.fields cimport TensorFields


cpdef bint settle(TensorFields t)
cpdef bint in_transform()
cpdef meet(object t, str grad=*)
