cimport cython

from torchgrad_jax.runtime.recording.epoch cimport Epoch


cdef class Aval:
    cdef public object shape, dtype, device, ndim, size, nbytes
    cdef object __weakref__


@cython.final
@cython.freelist(256)
cdef class Value:
    cdef public Aval aval
    cdef public object array, slot, counter, signature, bounds, made_in, leaf, part, carried
    cdef public Epoch epoch
    cdef public object version
