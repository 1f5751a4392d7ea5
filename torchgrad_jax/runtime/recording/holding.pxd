from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject
from libc.string cimport memcpy

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject *)
    PyObject *item_of "PyList_GET_ITEM"(list, Py_ssize_t)


cdef inline bytes held(dict values):
    cdef Py_ssize_t at = 0
    cdef PyObject *key
    cdef PyObject *value
    cdef bytes found = PyBytes_FromStringAndSize(NULL, len(values))
    cdef char *flag = PyBytes_AS_STRING(found)
    while PyDict_Next(values, &at, &key, &value):
        flag[0] = Py_REFCNT(value) > 1
        flag += 1
    return found


cdef inline bytes with_aliased(bytes alive, list aliases):
    cdef Py_ssize_t i, slot
    cdef list kept = []
    cdef bytes found = PyBytes_FromStringAndSize(NULL, len(alive))  # of one given byte it would be everybody's
    cdef char *flags = PyBytes_AS_STRING(found)
    memcpy(flags, PyBytes_AS_STRING(alive), len(alive))
    for i in range(len(aliases)):
        if Py_REFCNT(item_of(aliases, i)) > 1:
            twin = aliases[i]
            kept.append(twin)
            slot = twin.slot
            flags[slot] = 1
    aliases[:] = kept
    return found
