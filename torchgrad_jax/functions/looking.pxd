cimport cython

from torchgrad_jax.core.fields cimport TensorFields, aval_of_tensor, content_of, needs_grad
from torchgrad_jax.runtime.recorder cimport Recorder
from torchgrad_jax.runtime.value cimport Value

cdef object _ndarray, _asarray
cdef dict _ASKED, _observed
cdef list watches


@cython.locals(value=Value, rec=Recorder)
cpdef content(TensorFields t, str name, str asked=*)
cpdef on_host(TensorFields t, bint force)
cdef _refuse_turned(TensorFields t)
cdef _number(TensorFields t, str name, str asked)
@cython.locals(whole=Value)
cdef object _at_hand(TensorFields t)
cdef _only_element(TensorFields t, str asked)
cdef _real(TensorFields t, str c_type, str asked)
