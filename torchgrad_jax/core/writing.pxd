cimport cython

from torchgrad_jax.core cimport blank
from torchgrad_jax.core.dispatch cimport make_node
from torchgrad_jax.core.elements cimport fill_at_hand
from torchgrad_jax.core.fields cimport NodeFields, TensorFields, content_of, needs_grad, read
from torchgrad_jax.core.history cimport before_write, links_to_write, rebase, repeats
from torchgrad_jax.memory.fields cimport CounterFields, StorageFields, ViewFields
from torchgrad_jax.memory.storage cimport begin_view, put_content, write_through
from torchgrad_jax.runtime.recorder cimport Recorder, record
from torchgrad_jax.runtime.value cimport Value


@cython.locals(storage=object, view=ViewFields, rec=Recorder, content=Value, counter=object, base=TensorFields)
cpdef object overwrite(TensorFields t, Value value)
@cython.locals(storage=object, view=ViewFields, counter=object, base=TensorFields)
cpdef object part_written(TensorFields t, Value value, Value content)
@cython.locals(view=ViewFields, base=TensorFields)
cpdef object check_differentiable(TensorFields t)
@cython.locals(t=TensorFields, view=ViewFields)
cpdef bint check_memory(object name, tuple operands)
cpdef object _followed(tuple operands)
cdef object _extends_graph(Recorder rec, object bound, tuple operands)
@cython.locals(rec=Recorder, target=TensorFields, old=Value, out=Value, expanded=bint, values=tuple)
cpdef object apply_inplace(object bound, tuple operands)
@cython.locals(parent=ViewFields, base=TensorFields, skip=int, view=ViewFields)
cpdef ViewFields view_of(TensorFields base_of, tuple links, object strides, object offset, object made_in)
cpdef object make_view(Recorder rec, TensorFields base_of, TensorFields out, tuple links, object strides, object offset, object made_in)
@cython.locals(value=Value)
cpdef object place_view(TensorFields out, ViewFields view, object storage)
