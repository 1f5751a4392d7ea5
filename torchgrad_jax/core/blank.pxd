from torchgrad_jax.core.fields cimport OpNodeFields, TensorFields
from torchgrad_jax.memory.fields cimport LinkFields, ViewFields

cdef extern from *:
    """
    static CYTHON_INLINE PyObject *torchgrad_jax_make(PyTypeObject *base, PyTypeObject *cls, PyObject *nothing) {
        return base->tp_new(cls, nothing, NULL);
    }
    """
    object make "torchgrad_jax_make"(type base, type cls, object nothing)


cdef inline TensorFields tensor(type cls):
    return <TensorFields>make(TensorFields, cls, ())


cdef inline OpNodeFields node(type cls):
    return <OpNodeFields>make(OpNodeFields, cls, ())


cdef inline ViewFields view(type cls):
    return <ViewFields>make(ViewFields, cls, ())


cdef inline LinkFields link(type cls):
    return <LinkFields>make(LinkFields, cls, ())
