from libc.stdint cimport int64_t

from torchgrad_jax.runtime.native cimport convolving, looping, multiplying, ordering, pooling, recurring, reducing, resampling, rowwise, sampling, sharing


cdef void share(sharing.tj_piece piece, const void* work, int64_t pieces) noexcept
