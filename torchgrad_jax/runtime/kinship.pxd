cimport cython

from torchgrad_jax.runtime.recording cimport making
from torchgrad_jax.runtime.value cimport Aval


@cython.locals(sizes=dict, parts=list, aval=Aval, shape=tuple)
cpdef tuple pattern(object specs)
cpdef object untracked(object leaf)
