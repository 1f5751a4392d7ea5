cimport cython

from torchgrad_jax.core.fields cimport TensorFields
from torchgrad_jax.runtime.recorder cimport Recorder
from torchgrad_jax.runtime.value cimport Value


@cython.locals(storage=object, view=object, rec=Recorder)
cpdef object overwrite(TensorFields t, Value value)
