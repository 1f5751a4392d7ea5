cimport cython

from torchgrad_jax.core.fields cimport CopySlicesFields, NodeFields, TensorFields, edge_of
from torchgrad_jax.memory.fields cimport CounterFields, StorageFields, ViewFields
from torchgrad_jax.memory.storage cimport links_between, read_through, write_through
from torchgrad_jax.runtime.recorder cimport Recorder


@cython.locals(base=TensorFields, rec=Recorder, view=ViewFields, counter=CounterFields, storage=StorageFields)
cpdef object rebase(TensorFields t, NodeFields node, nr=*)
@cython.locals(made=CopySlicesFields)
cpdef object copy_slices(Recorder rec, TensorFields base, ViewFields view, object storage, object aval, NodeFields inner)
cpdef tuple links_to_write(ViewFields view, tuple links, object aval, object offset, ViewFields base=*)
cpdef bint repeats(ViewFields view, object aval)
@cython.locals(view=ViewFields, base=TensorFields, counter=CounterFields)
cpdef tuple before_write(TensorFields target)
