cimport cython

from torchgrad_jax.core cimport blank
from torchgrad_jax.core.fields cimport TensorFields
from torchgrad_jax.runtime.recorder cimport Recorder
from torchgrad_jax.runtime.value cimport Value


@cython.locals(t=TensorFields)
cpdef TensorFields wrap(Value value)
@cython.locals(t=TensorFields)
cpdef TensorFields result(Value value, object node, object nr)
@cython.locals(t=TensorFields)
cpdef TensorFields fresh(Recorder rec, Value value)
@cython.locals(rec=Recorder, t=TensorFields)
cpdef TensorFields created(Value value)
