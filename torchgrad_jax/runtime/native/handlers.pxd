from libc.stdint cimport int64_t

from torchgrad_jax.runtime.native cimport arrays, attending, convolving, looping, multiplying, ordering, pooling, recurring, reducing, resampling, rowwise, sampling, sharing, special


cdef object _PLACES

cpdef object multiplied(object x, object y, bint left, bint right, object bias=*, object rest=*, bint mirrored=*)
cpdef object added(object x, object y, bint left, bint right, object onto, bint mirrored=*)
cpdef object reduced(object x, int which, int first, int after)
cdef void share(sharing.tj_piece piece, const void* work, int64_t pieces, bint light) noexcept
