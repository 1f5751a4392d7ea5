from torchgrad_jax.runtime.value cimport Value


cdef class TensorFields:
    cdef public Value _value
    cdef public object _storage, _view, _node, _extra, _nr
    cdef public bint _rg


cdef class NodeFields:
    cdef public object next, seq, hooks # what is the user's own Function's may be anything


cdef class OpNodeFields(NodeFields):
    cdef public object plan, saved
