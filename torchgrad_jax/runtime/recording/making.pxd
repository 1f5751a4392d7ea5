from torchgrad_jax.runtime.recording.step cimport Step
from torchgrad_jax.runtime.value cimport Value


cdef inline Value value(type cls):
    return Value.__new__(Value)


cdef inline Step step(type cls):
    return Step.__new__(Step)
