from torchgrad_jax.runtime.baseline cimport moving
from torchgrad_jax.runtime.native cimport arrays


cpdef contiguous(object array)
cpdef copied(object array)
cpdef own(object array)
cdef bint _is_plain(object array)
cpdef reshaped(object array, object shape)
