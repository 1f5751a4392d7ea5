cimport cython

from torchgrad_jax.runtime.recording.epoch cimport Epoch


@cython.final
@cython.freelist(256)
cdef class Value:
    cdef public object aval, array, slot, counter, signature, bounds, made_in, leaf, part, carried
    cdef public Epoch epoch
    cdef public object version
