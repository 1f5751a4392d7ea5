cimport cython

from torchgrad_jax.autograd.interrupted cimport Undo
from torchgrad_jax.core.fields cimport CalculusFields, NodeFields, OpNodeFields
from torchgrad_jax.core.op_node cimport run_operator


@cython.locals(calculus=CalculusFields, node=NodeFields, received=list, buffers=dict, missing=dict, undo=Undo, edges=tuple, retain=bint, runs=bint)
cpdef object run_nodes(object task, object nodes)
@cython.locals(node=NodeFields, later=NodeFields, seen=set, stack=list, order=list, ordered=bint)
cpdef tuple ordered_nodes(object roots, dict missing)
