from torchgrad_jax.runtime.baseline cimport moving


cpdef contiguous(object array)
cpdef copied(object array)
cpdef own(object array)
cdef bint _is_plain(object array)
cpdef reshaped(object array, object shape)
