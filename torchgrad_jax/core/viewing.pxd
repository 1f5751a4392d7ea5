cimport cython

from torchgrad_jax.core cimport blank
from torchgrad_jax.core.elements cimport bounds, fits, is_whole, number_of
from torchgrad_jax.core.fields cimport TensorFields, aval_of_tensor, needs_grad
from torchgrad_jax.core.hot cimport Called, of_one, of_two
from torchgrad_jax.core.made cimport wrap
from torchgrad_jax.core.writing cimport make_view, view_of
from torchgrad_jax.memory.fields cimport LinkFields, ViewFields
from torchgrad_jax.runtime.recorder cimport Recorder
from torchgrad_jax.runtime.value cimport Aval, Value


cdef class Latest:
    cdef public object known, link, together


cdef Latest _latest


cdef class _Chosen:
    cdef list knowns
    cdef Value value


@cython.locals(parent=ViewFields, rec=Recorder, kind=_Chosen, begins=list, follows=bint)
cdef object _chosen_by(TensorFields t, tuple keys, Py_ssize_t several)
@cython.locals(out=TensorFields, known=_Known, place=Py_ssize_t)
cdef object _followed(TensorFields t, list knowns, list begins)
@cython.locals(parent=ViewFields, known=_Known, link=LinkFields, links=list, out=TensorFields, view=ViewFields, place=Py_ssize_t, offset=Py_ssize_t, begin=Py_ssize_t)
cdef object _unread(Recorder rec, TensorFields t, _Chosen kind, list begins)
@cython.locals(found=list, own=Py_ssize_t, numbers=Py_ssize_t, n=Py_ssize_t, begin=Py_ssize_t)
cdef object _layout(tuple keys, tuple shape, Py_ssize_t several, list begins)
@cython.locals(out=TensorFields)
cdef object _one_by_one(TensorFields t, tuple keys)
@cython.locals(dim=Py_ssize_t, own=Py_ssize_t, several=Py_ssize_t)
cdef list _operations(tuple keys, tuple shape, list begins)


cpdef Value _of_aval(object aval)
cpdef object _note_order(_Known known, object shape)


cdef class Beside:
    cdef public object along


cdef Beside _beside


cdef class _Known:
    cdef Called called
    cdef public object bound
    cdef object link, strides, plain
    cdef Py_ssize_t offset, step
    cdef bint rows, begins


cpdef object viewed_as(object name, TensorFields t, tuple arguments)
@cython.locals(link=LinkFields)
cpdef object made_again(_Known known, TensorFields t, object begin)
cpdef object part_of(object name, TensorFields t, object begin, tuple arguments)
cpdef object known_as(object bound, TensorFields t)
@cython.locals(parent=ViewFields)
cpdef _Known _known_view(object name, TensorFields t, tuple arguments)
@cython.locals(parent=ViewFields, view=ViewFields, rec=Recorder)
cpdef object _made(TensorFields t, _Known known, TensorFields out, tuple links, object offset, object node=*)
@cython.locals(known=_Known, link=LinkFields, made=list, links=list)
cpdef tuple made_together(TensorFields t, object outs, object dim, object parts, bint drop, object node)
@cython.locals(shape=tuple, used=Py_ssize_t, count=Py_ssize_t)
cpdef object indexed(TensorFields t, tuple keys)
@cython.locals(index=TensorFields, at=Py_ssize_t, i=Py_ssize_t, used=Py_ssize_t, dim=Py_ssize_t, several=Py_ssize_t)
cpdef object part_beside(TensorFields t, tuple keys)
cpdef object picked_beside(TensorFields t, tuple keys)
