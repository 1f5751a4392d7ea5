cimport cython

from torchgrad_jax.memory.fields cimport ViewFields
from torchgrad_jax.memory.storage cimport read_through
from torchgrad_jax.runtime.value cimport Aval, Value


cdef class TensorFields:
    cdef public Value _value
    cdef public ViewFields _view
    cdef public object _storage, _node, _nr
    cdef public Extra _extra
    cdef public bint _rg


cdef class NodeFields:
    cdef public object next, seq, hooks # what is the user's own Function's may be anything


cdef class Extra:
    cdef public object grad, accumulator, hooks, post_hooks, tangent, hooked, nested
    cdef public bint retains_grad
    cdef object __weakref__


cdef class LeafFields(NodeFields):
    cdef public object variable


cdef class OpNodeFields(NodeFields):
    cdef public object plan, saved


cdef class FunctionFields(NodeFields):
    cdef public object _recorded_call
    cdef public tuple _recorded_saved


cdef class SavedFields:
    cdef public Value value
    cdef public object kept, source, nr, unpack_hook
    cdef public tuple packed
    cdef public bint own, freed


cdef class CalculusFields:
    cdef public object recorder, call, add, unpack, placed, needed
    cdef public bint tensors, records


cdef class CopySlicesFields(NodeFields):
    cdef public object inner, aval, refusal
    cdef public tuple links
    cdef public bint through_self, has_base, repeats, freed


cpdef Aval aval_of_tensor(TensorFields t)
@cython.locals(view=ViewFields, value=Value)
cpdef Value content_of(TensorFields t)
@cython.locals(view=ViewFields, base=TensorFields)
cpdef Value read(TensorFields t)
@cython.locals(view=ViewFields, base=TensorFields)
cpdef bint needs_grad(TensorFields t)
cpdef object storage_of(TensorFields t)
@cython.locals(view=ViewFields)
cpdef tuple strides_of(TensorFields t)
@cython.locals(view=ViewFields)
cpdef object offset_of(TensorFields t)
@cython.locals(view=ViewFields)
cpdef object present_node(TensorFields t)
@cython.locals(extra=Extra)
cpdef tuple edge_of(TensorFields t)
