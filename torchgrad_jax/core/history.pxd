cimport cython

from torchgrad_jax.core.fields cimport NodeFields, TensorFields
from torchgrad_jax.runtime.recorder cimport Recorder


@cython.locals(base=TensorFields, rec=Recorder)
cpdef object rebase(TensorFields t, NodeFields node, nr=*)
