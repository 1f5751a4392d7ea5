from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release

from torchgrad_jax.runtime.native cimport arrays

# The memory of several contiguous arrays at once.
cdef enum:
    MOST_BUFFERS = 16

cdef struct Buffers:
    Py_buffer views[MOST_BUFFERS]
    int held  # at first 0


# Those that are given from `written` on may be written to, but for the last one, which says how. Whatever happens, what is held is to be let go of.
cdef inline int hold(Buffers* found, tuple given, int written) except -1:
    cdef int count = len(given)
    while found.held < count:
        arrays.view(given[found.held], &found.views[found.held], PyBUF_C_CONTIGUOUS | (PyBUF_WRITABLE if written <= found.held < count - 1 else 0))
        found.held += 1
    return 0


cdef inline void let_go(Buffers* found) noexcept:
    while found.held > 0:
        found.held -= 1
        PyBuffer_Release(&found.views[found.held])
