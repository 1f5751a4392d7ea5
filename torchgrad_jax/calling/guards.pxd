cimport cython

from torchgrad_jax.calling.entries cimport Calls
from torchgrad_jax.calling.recalled cimport recall
from torchgrad_jax.core.viewing cimport indexed, picked_beside
from torchgrad_jax.core.elements cimport put_at_hand, put_quickly


cdef class Active:
    cdef public Py_ssize_t modes


cdef class Ways:
    cdef public object at_first, looked_through, answer


cdef Active _active
cdef Ways _ways
cpdef bint hold_plain(object arguments)
cdef tuple _kinds(tuple args, dict kwargs)
