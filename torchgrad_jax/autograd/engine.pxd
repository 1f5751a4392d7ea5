cimport cython

from torchgrad_jax.autograd.interrupted cimport Undo
from torchgrad_jax.core.fields cimport CalculusFields, Extra, TensorFields
from torchgrad_jax.core.made cimport fresh
from torchgrad_jax.runtime.value cimport Value


@cython.locals(variable=TensorFields)
cpdef object accumulate_grad(CalculusFields calculus, object leaf, object grad, Undo undo=*, bint own=*)
@cython.locals(variable=TensorFields, extra=Extra, value=Value)
cdef object _add_grad(CalculusFields calculus, object leaf, object grad, Undo undo, bint own)
