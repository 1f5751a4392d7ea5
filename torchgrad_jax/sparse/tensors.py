"""SparseTensor: a Tensor that consists of the places of its elements and of their values, two ordinary tensors.

Its graph is that of its values: what is computed of it is written with ordinary operations on them, and the gradient with respect to it is one with
respect to its values. A node of its own leads to those, for what knows of sparse tensors as wholes: a Function of the user's.

Public functions find its answers by `__torch_function__`, so they cost tensors of the ordinary kind nothing. What has no answer is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import getattr_static
from typing import Any, TypeGuard, TypeVar

from torchgrad_jax.calling.overrides import is_pytorchs, publics
from torchgrad_jax.core.fields import TensorFields
from torchgrad_jax.core.made import detached, wrap
from torchgrad_jax.core.node import Calculus, Edge, Node
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.only_named import LAYOUTS
from torchgrad_jax.memory.sparse_content import SparseContent
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Aval, Value, aval_of, constant

_F = TypeVar("_F", bound=Callable[..., Any])
_new = TensorFields.__new__
COO, CSR, CSC = LAYOUTS["sparse_coo"], LAYOUTS["sparse_csr"], LAYOUTS["sparse_csc"]
COMPRESSED = (CSR, CSC)

# What public functions of these names do where one of their arguments is sparse.
answers: dict[str, Callable[..., Any]] = {}


def answer(*names: str) -> Callable[[_F], _F]:
    """What is decorated answers the public functions, methods and attributes (``"grad.__get__"``) of these names."""

    def note(function: _F) -> _F:
        answers.update(dict.fromkeys(names, function))
        return function

    return note


class SparseTensor(Tensor):
    """See above. Programs do not see the class: what they see is a Tensor whose `layout` says what it is."""

    __slots__ = ()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_pytorchs(func):
            return NotImplemented
        name = publics[func].name if func in publics else f"torch.{func.__name__}"
        place, _, last = name.rpartition(".")
        if last in ("__get__", "__set__", "__delete__"):
            last = f"{place.rpartition('.')[2]}.{last}"
        found = answers.get(last)
        if found is None:
            raise NotImplementedError(refusal(last, [*args, *(kwargs or {}).values()]))
        return found(*args, **(kwargs or {}))

    @property
    def content(self) -> SparseContent:
        """What it is made of."""
        return self._value.array

    def _edge(self) -> Edge:
        return (PatternNode(self.content, self._value.aval) if self._node is None else self._node), 0


SparseTensor.__name__ = SparseTensor.__qualname__ = "Tensor"
SparseTensor.__module__ = "torchgrad_jax"

# What is asked of a tensor's shape and kind is answered as for any.
for _name in ("shape", "size", "dtype", "device", "ndim", "dim", "ndimension", "numel", "nelement", "element_size", "itemsize", "nbytes",
              "is_floating_point", "is_complex", "is_signed", "is_cuda", "is_cpu", "is_meta", "is_xla", "__len__", "__hash__", "requires_grad",
              "is_leaf", "grad_fn", "output_nr", "get_device"):  # fmt: skip
    _found: Any = getattr_static(Tensor, _name)
    setattr(SparseTensor, _name, _found)
    _asked: Any = _found.fget if isinstance(_found, property) else _found
    answers[_name] = answers[f"{_name}.__get__"] = _asked


def refusal(name: str, given: list[Any]) -> str:
    """What is said of a function that takes no sparse tensors, here or in PyTorch."""
    layout = next((a.layout for a in given if isinstance(a, SparseTensor)), COO)
    backend = "SparseCPU" if layout is COO else "SparseCsrCPU"
    plain = name.removesuffix(".__get__").removesuffix(".__set__")
    return (
        f"Could not run 'aten::{plain}' with arguments from the '{backend}' backend. torchgrad_jax has no {plain} of tensors of the layout {layout}: "
        "to_dense() gives an ordinary tensor; coalesce().values() and indices() are what this one is made of, and can be computed with."
    )


def is_sparse(t: Any) -> TypeGuard[SparseTensor]:
    """Whether it is a sparse tensor, of whatever layout."""
    return isinstance(t, SparseTensor)


# ---------------------------------------------------------------------- made of parts


def of_value(value: Value, known_as: str | None = None) -> SparseTensor:
    """The tensor whose Value this is, with the history of its values. known_as: the name of its node, where it was computed."""
    made = _new(SparseTensor)
    made._value = value
    made._storage = made._view = made._node = made._extra = None
    made._nr = 0
    content: SparseContent = value.array
    made._rg = content.parts[-1]._rg
    if made._rg:
        made._node = PatternNode(content, value.aval, known_as)
    return made


def value_of(size: tuple[int, ...], parts: tuple[Tensor, ...], layout: Any = COO, coalesced: bool = False, known: Any = None) -> Value:
    """The Value of a sparse tensor of these parts."""
    values = parts[-1]
    return constant(SparseContent(layout, parts, coalesced, known), aval_of(tuple(size), values._aval.dtype, values._aval.device))


def made_of(
    size: tuple[int, ...], parts: tuple[Tensor, ...], layout: Any = COO, coalesced: bool = False, known: Any = None, known_as: str | None = None
) -> SparseTensor:  # fmt: skip
    """A sparse tensor of these parts, the values last, whose history it has while a graph is recorded. known: see `SparseContent`."""
    if parts[-1]._rg and not per_thread.recorder.grad_enabled:
        parts = (*parts[:-1], detached(parts[-1]))
    return of_value(value_of(size, parts, layout, coalesced, known), known_as)


def of_coordinates(
    indices: Tensor, values: Tensor, size: tuple[int, ...], coalesced: bool = False, known: Any = None, known_as: str | None = None
) -> SparseTensor:  # fmt: skip
    """A sparse tensor of the layout `sparse_coo`."""
    return made_of(size, (indices, values), COO, coalesced or values._aval.shape[0] < 2, known, known_as)


def with_values(s: SparseTensor, values: Tensor, coalesced: bool | None = None) -> SparseTensor:
    """A tensor that has other values, perhaps of another dtype, where `s` has its own."""
    content = s.content
    kept = content.coalesced if coalesced is None else coalesced
    node = values._node
    return made_of(s._aval.shape, (*content.parts[:-1], values), content.layout, kept, content.known, None if node is None else node.name())


def replace(s: SparseTensor, new: SparseTensor) -> SparseTensor:
    """`s`, which becomes what `new` is."""
    s._value, s._rg, s._node = new._value, new._rg, new._node
    return s


def own_values(values: Tensor) -> Tensor:
    """Values for a new tensor, on the memory of the user's: with their history while a graph is recorded."""
    return values if values._rg and per_thread.recorder.grad_enabled else detached(values)


def seen(s: SparseTensor, found: SparseTensor) -> SparseTensor:
    """`found`, a view of `s`: made while no graph is recorded it is a leaf that requires a gradient if `s` does, as PyTorch's is."""
    if s._rg and not found._rg:
        found.requires_grad_()
    return found


def parts_of(s: SparseTensor) -> tuple[Tensor, Tensor]:
    """The indices and the values of a tensor of the layout `sparse_coo`, as they are."""
    indices, values = s.content.parts
    return indices, values


def values_of(s: SparseTensor) -> Tensor:
    """The values of a tensor of whatever layout."""
    return s.content.parts[-1]


# ---------------------------------------------------------------------- the graph


class PatternNode(Node):
    """The node of a sparse tensor: of a gradient with respect to it, dense or sparse, it passes on the elements that the tensor has."""

    __slots__ = ("pattern", "aval", "known_as")
    # What takes of a gradient the elements that a tensor of these parts has: `sparse/coordinates.py` puts it here.
    taken: Callable[[Tensor, SparseContent, Aval], Tensor]

    def __init__(self, content: SparseContent, aval: Aval, known_as: str | None = None) -> None:
        rec = per_thread.recorder
        self.next, self.hooks = (content.parts[-1]._edge(),), None
        self.seq = rec.sequence
        rec.sequence += 1
        # Without the values, which lead to what has made them.
        self.pattern = SparseContent(content.layout, content.parts[:-1], content.coalesced, content.known)
        self.aval, self.known_as = aval, known_as

    def name(self) -> str:
        """See Node."""
        if self.known_as is not None:
            return self.known_as
        return "SparseCooTensorWithDimsAndTensorsBackward0" if self.pattern.layout is COO else "SparseCompressedTensorBackward0"

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """See Node."""
        return (self.aval,)

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        found = PatternNode.taken(as_tensor(calculus, grads[0]), self.pattern, self.aval)
        return (found if calculus.tensors else found._read(),)


def as_tensor(calculus: Calculus, grad: Any) -> Tensor:
    """A gradient as a node gets it, dense or sparse, as a tensor."""
    if calculus.tensors:
        return grad
    return of_value(grad) if type(grad.array) is SparseContent else wrap(calculus.recorder.alias(grad))


SparseContent.tensor = staticmethod(of_value)
