cimport cython

from torchgrad_jax.memory.fields cimport CounterFields, LinkFields, StorageFields, ViewFields
from torchgrad_jax.runtime.recorder cimport Recorder
from torchgrad_jax.runtime.recording.epoch cimport Epoch
from torchgrad_jax.runtime.value cimport Value


@cython.locals(link=LinkFields)
cpdef object read_through(Recorder rec, tuple links, object value, object call=*)
@cython.locals(link=LinkFields)
cpdef object write_through(Recorder rec, tuple links, object base, object new, object call=*)
@cython.locals(link=LinkFields, kind=tuple, found=tuple, place=Py_ssize_t)
cpdef tuple written_at_once(tuple links, Value base)
cpdef object _recorded(Recorder rec, object bound, tuple operands)
@cython.locals(own=StorageFields, content=Value, before=Value, rec=Recorder)
cpdef object _spread(object written, Value value)
@cython.locals(counter=CounterFields, told=object, epoch=Epoch)
cpdef object put_content(StorageFields storage, Value value)
@cython.locals(laid=ViewFields)
cpdef tuple links_between(object base, ViewFields view, object storage)
@cython.locals(told=object)
cpdef object begin_view(
    ViewFields view, object base, tuple links, Py_ssize_t skip, StorageFields storage, object strides, object offset, object made_in
)
