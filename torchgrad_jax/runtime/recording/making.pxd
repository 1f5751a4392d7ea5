from torchgrad_jax.runtime.recording.step cimport Step
from torchgrad_jax.runtime.value cimport Value


cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void*)


cdef inline void untrack(object leaf) noexcept:
    PyObject_GC_UnTrack(<void*> leaf)


cdef inline Value value(type cls):
    return Value.__new__(Value)


cdef inline Step step(type cls):
    return Step.__new__(Step)
