from torchgrad_jax.runtime.value cimport Value


cdef class CounterFields:
    cdef public Py_ssize_t version
    cdef public object writer


cdef class StorageFields:
    cdef public Value value
    cdef public CounterFields counter
    cdef public Py_ssize_t writes
    cdef public object siblings, _address


cdef class LinkFields:
    cdef public object read, write
    cdef public tuple numbers


cdef class ViewFields:
    cdef public object base, strides, offset, made_in, plain
    cdef public tuple links
    cdef public Py_ssize_t skip, seen, node_seen
    cdef public bint asked, replay, rows
