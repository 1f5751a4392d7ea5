cimport cython

from torchgrad_jax.core.fields cimport OpNodeFields, edge_of
from torchgrad_jax.declaration.fields cimport PlanFields
from torchgrad_jax.runtime.recorder cimport Recorder
from torchgrad_jax.runtime.recording.fields cimport SignatureFields


@cython.locals(node=OpNodeFields)
cpdef object make_node(Recorder rec, SignatureFields sig, mask, operands, values, outs)
