from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject *)


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
