cimport cython

from torchgrad_jax.core.fields cimport OpNodeFields, TensorFields, content_of, edge_of, read
from torchgrad_jax.declaration.fields cimport PlanFields
from torchgrad_jax.memory.fields cimport ViewFields
from torchgrad_jax.runtime.recorder cimport Recorder, record
from torchgrad_jax.runtime.recording.fields cimport SignatureFields


@cython.locals(node=OpNodeFields)
cpdef object make_node(Recorder rec, SignatureFields sig, mask, operands, values, outs)
@cython.locals(rec=Recorder, t=TensorFields, view=ViewFields, given=list, ordered=bint, turned=bint, follows=bint)
cpdef object apply(object bound, object operands)
