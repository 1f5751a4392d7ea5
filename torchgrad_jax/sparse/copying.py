"""Sparse tensors as text, and under `copy` and `pickle`."""

from __future__ import annotations

import copy
from typing import Any

from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions import formatting
from torchgrad_jax.runtime.pickles import in_pickles
from torchgrad_jax.sparse.coordinates import nnz
from torchgrad_jax.sparse.making import sparse_compressed_tensor, sparse_coo_tensor
from torchgrad_jax.sparse.tensors import COO, CSR, SparseTensor, answer, of_value, value_of

# ---------------------------------------------------------------------- text


def _text_of(t: Tensor, indent: int) -> str:
    if not t.numel():
        return f"tensor([], size={tuple(t._aval.shape)})"
    array = t.detach()._concrete("is_nonzero")
    text = formatting.tensor_str(array, dtype_suffix=None, prefix=" " * indent + "tensor(", default_dtype=dtypes.get_default_dtype().name)
    return text[indent:]


@answer("__repr__", "__str__", "__format__")
def text(self: SparseTensor, *args: Any, **kwargs: Any) -> str:
    """The tensor's parts, size and layout."""
    content, parts = self.content, self.content.parts
    names = ["indices"] if content.layout is COO else ["crow_indices", "col_indices"] if content.layout is CSR else ["ccol_indices", "row_indices"]
    lines = [f"{name}={_text_of(part, 7 + len(name) + 1)}" for name, part in zip([*names, "values"], parts, strict=True)]
    suffixes = [] if self.is_cpu else [f"device='{self.device}'"]
    suffixes += [f"size={tuple(self._aval.shape)}", f"nnz={nnz(self)}"]
    if formatting.needs_dtype_suffix(self.dtype.name, dtypes.get_default_dtype().name, 1):
        suffixes.append(f"dtype={self.dtype}")
    suffixes.append(f"layout={content.layout}")
    if self._node is not None:
        suffixes.append(f"grad_fn=<{self._node.name()}>")
    elif self._rg:
        suffixes.append("requires_grad=True")
    text = "tensor(" + (",\n" + " " * 7).join(lines)
    return formatting.with_suffixes(text, suffixes, 7, content.layout is COO) + ")"


# ---------------------------------------------------------------------- copies


@answer("__deepcopy__")
def deep_copy(self: SparseTensor, memo: dict[int, Any]) -> SparseTensor:
    """A leaf of the same content. RuntimeError for what was computed of a tensor that requires a gradient."""
    if id(self) in memo:
        return memo[id(self)]
    if self._node is not None:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  "
            "If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, "
            "see https://github.com/pytorch/pytorch/pull/103001"
        )
    content = self.content
    parts = tuple([copy.deepcopy(part, memo) for part in content.parts])
    made = of_value(value_of(self._aval.shape, parts, content.layout, content.coalesced))
    made._node, made._rg = None, self._rg
    vars(made).update(copy.deepcopy(vars(self), memo))
    memo[id(self)] = made
    return made


@answer("__reduce_ex__")
def reduce(self: SparseTensor, protocol: Any = 2) -> Any:
    """What pickles have: the layout, and the parts as tensors."""
    parts, layout = [part.detach() for part in self.content.parts], self.content.layout
    if layout is COO:
        return rebuild, (layout, (*parts, Size(self._aval.shape), self.content.coalesced))
    return rebuild, (layout, (*parts, Size(self._aval.shape)))


@in_pickles("_rebuild_sparse_tensor")
def rebuild(layout: Any, data: tuple[Any, ...]) -> Tensor:
    """What pickles call: a sparse tensor of a layout, of its parts, its size and whether it is coalesced."""
    if layout is COO:
        indices, values, size, *coalesced = data
        return sparse_coo_tensor(indices, values, size, is_coalesced=bool(coalesced and coalesced[0]))
    return sparse_compressed_tensor(*data, layout=layout)
