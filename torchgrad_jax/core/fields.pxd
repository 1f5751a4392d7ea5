from torchgrad_jax.runtime.value cimport Value


cdef class TensorFields:
    cdef public Value _value
    cdef public object _storage, _view, _node, _extra, _nr
    cdef public bint _rg


cdef class NodeFields:
    cdef public tuple next
    cdef public object seq, hooks


cdef class OpNodeFields(NodeFields):
    cdef public object plan, saved
