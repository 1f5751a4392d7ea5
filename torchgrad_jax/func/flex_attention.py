"""`torch.nn.attention.flex_attention`: attention whose scores a function changes, and another masks.

The whole matrix of scores is computed, as PyTorch does where it does not compile: XLA has no kernel that leaves blocks of it out. A function of one
score is mapped over all of them by `vmap`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, TypedDict

import numpy as np

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.func.vmapping import vmap
from torchgrad_jax.functions.creation import arange, zeros

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks", "create_block_mask", "create_mask", "flex_attention", "noop_mask",
    "or_masks",
]  # fmt: skip

_BLOCK = 128
_MORE = "...\nTo print out more, set BlockMask.to_string(limit=N)\nYou can also index (BlockMask[batch, head]) to choose a specific batch or head"
_SLICED = (
    "Cannot use mask_mod from a sliced BlockMask. When you slice a BlockMask using [], the mask_mod attribute is reset: set that of the sliced one "
    "to what it is to be, made from the mask_mod of the original BlockMask."
)


class AuxRequest(NamedTuple):
    """What else `flex_attention` is to return: the logarithms of the sums of each row's exponentials, the rows' largest scores."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for by an `AuxRequest`: of shape (B, Hq, L), in float32 at least. None for the rest."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


class FlexKernelOptions(TypedDict, total=False):
    pass


FlexKernelOptions.__doc__ = "Options of PyTorch's kernels in Triton, which change nothing here."


# ---------------------------------------------------------------------- masks


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """True: every query sees every key."""
    return batch.new_ones((), dtype=dtypes.bool_)


def and_masks(*mask_mods: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """What is true where all of these are."""
    _check_callable(mask_mods)

    def and_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = b.new_ones((), dtype=dtypes.bool_)
        for mask in mask_mods:
            result = result & mask(b, h, q_idx, kv_idx)
        return result

    return and_mask


def or_masks(*mask_mods: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """What is true where one of these is."""
    _check_callable(mask_mods)

    def or_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = b.new_zeros((), dtype=dtypes.bool_)
        for mask in mask_mods:
            result = result | mask(b, h, q_idx, kv_idx)
        return result

    return or_mask


def _check_callable(mask_mods: Sequence[Any]) -> None:
    if not all(map(callable, mask_mods)):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")


def _of_all(function: Callable[..., Tensor], sizes: Sequence[int], where: Any, scores: Tensor | None = None, kind: Any = dtypes.int64) -> Tensor:
    """A function of a batch, a head, a query's and a key's place (and, first, a score) at all of them. kind: the dtype of places."""
    given = [arange(n, device=where, dtype=kind) for n in sizes]
    for mapped in reversed(range(4)):
        places = [0 if i == mapped else None for i in range(4)]
        function = vmap(function, tuple(places if scores is None else [0, *places]))
    return function(*given) if scores is None else function(scores, *given)


def create_mask(mod_fn: Callable[..., Tensor], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None) -> Tensor:
    """The mask (B, H, Q_LEN, KV_LEN) of a function of four places, or where one that changes scores makes none of them -inf."""
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    count = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in inspect.signature(mod_fn).parameters.values())
    if count == 4:
        mask = _of_all(mod_fn, sizes, device)
        if mask.dtype is not dtypes.bool_:
            raise AssertionError(f"mask.dtype must be torch.bool, got {mask.dtype}")
        return mask
    if count != 5:
        raise AssertionError(f"Expected 4 or 5 positional args, got {count}")
    return ~_of_all(mod_fn, sizes, device, zeros(*sizes, device=device)).isneginf()


def create_block_mask(
    mask_mod: Callable[..., Tensor], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _BLOCK, _compile: bool = False, separate_full_blocks: bool = True, compute_dq_write_order: bool = False,
    dq_kv_order: bool = True,
) -> BlockMask:  # fmt: skip
    """The `BlockMask` of a function of four places. B, H: None for a mask that is the same for all. separate_full_blocks: whether blocks without a
    masked element are listed apart. NotImplementedError for compute_dq_write_order: there is no kernel that it would order."""
    if compute_dq_write_order:
        raise NotImplementedError("create_block_mask(compute_dq_write_order=True): XLA orders the sums of gradients, the same in each run on a CPU")
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    rows, columns = size = _pair(BLOCK_SIZE)
    down, across = math.ceil(Q_LEN / rows), math.ceil(KV_LEN / columns)
    padded = zeros(*mask.shape[:2], down * rows, across * columns, dtype=dtypes.bool_, device=mask.device)
    padded[:, :, :Q_LEN, :KV_LEN] = mask
    seen = padded.view(*mask.shape[:2], down, rows, across, columns).sum((3, 5))
    full = seen == rows * columns
    partial = (seen > 0) & ~full if separate_full_blocks else seen > 0
    listed = [*_ordered(partial), *(_ordered(full) if separate_full_blocks else (None, None))]
    made = BlockMask.from_kv_blocks(*listed, BLOCK_SIZE=size, mask_mod=mask_mod, seq_lengths=(Q_LEN, KV_LEN))
    made._listed = False
    return made


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(size)


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks each row has, and all columns, those with a block first."""
    blocks = blocks.to(dtypes.int32)
    return blocks.sum(-1, dtype=dtypes.int32), blocks.argsort(dim=-1, descending=True, stable=True).to(dtypes.int32)


def _dense(count: Tensor, indices: Tensor) -> Tensor:
    """Where blocks are, 0 or 1, from what `_ordered` gives."""
    columns = indices.shape[-1]
    there = arange(columns, device=count.device) < count[..., None]
    return zeros(*indices.shape, dtype=dtypes.int32, device=count.device).scatter(-1, indices.long(), there.to(dtypes.int32))


def _sliced(*places: Tensor) -> NoReturn:
    raise RuntimeError(_SLICED)


_PAIRS = (
    ("kv_num_blocks", "kv_indices"), ("full_kv_num_blocks", "full_kv_indices"), ("q_num_blocks", "q_indices"),
    ("full_q_num_blocks", "full_q_indices"),
)  # fmt: skip
_TENSORS = tuple(name for pair in _PAIRS for name in pair)
_ORDERS = ("dq_write_order", "dq_write_order_full", "dq_kv_order", "dq_kv_order_spt")


class BlockMask:
    """Which blocks of queries and keys meet, and by `mask_mod` which of their elements do.

    kv_num_blocks (B, H, rows of blocks), kv_indices (B, H, rows, columns): how many blocks of keys each block of queries meets of which a part is
    masked, and which these are; full_...: the same of those without a masked element; q_...: the other way round.
    """

    def __init__(
        self, seq_lengths: tuple[int, int], kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None, q_num_blocks: Tensor | None, q_indices: Tensor | None, full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None, BLOCK_SIZE: tuple[int, int] = (_BLOCK, _BLOCK), mask_mod: Callable[..., Tensor] = noop_mask,
        *, dq_write_order: Any = None, dq_write_order_full: Any = None, dq_kv_order: Any = None, dq_kv_order_spt: bool | None = None,
    ) -> None:  # fmt: skip
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = seq_lengths, BLOCK_SIZE, mask_mod
        self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices = (
            kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices
        )  # fmt: skip
        self.q_num_blocks, self.q_indices, self.full_q_num_blocks, self.full_q_indices = q_num_blocks, q_indices, full_q_num_blocks, full_q_indices
        self.dq_write_order, self.dq_write_order_full = dq_write_order, dq_write_order_full
        self.dq_kv_order, self.dq_kv_order_spt = dq_kv_order, dq_kv_order_spt
        self._listed = True  # whether the blocks say more than `mask_mod`

    @classmethod
    def from_kv_blocks(
        cls, kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None = None, full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = _BLOCK, mask_mod: Callable[..., Tensor] | None = None, seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True, *, dq_write_order: Any = None, dq_write_order_full: Any = None, dq_kv_order: Any = None,
    ) -> BlockMask:  # fmt: skip
        """The mask of these blocks. seq_lengths: of queries and keys; by default whole blocks. RuntimeError for less than 2 dimensions."""
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        rows, columns = size = _pair(BLOCK_SIZE)
        by_keys: list[Any] = [None] * 4
        if compute_q_blocks:
            by_keys[:2] = _ordered(_dense(kv_num_blocks, kv_indices).mT)
            if full_kv_num_blocks is not None and full_kv_indices is not None:
                by_keys[2:] = _ordered(_dense(full_kv_num_blocks, full_kv_indices).mT)
        return cls(
            seq_lengths or (kv_indices.shape[-2] * rows, kv_indices.shape[-1] * columns), kv_num_blocks, kv_indices, full_kv_num_blocks,
            full_kv_indices, *by_keys, BLOCK_SIZE=size, mask_mod=mask_mod or noop_mask, dq_write_order=dq_write_order,
            dq_write_order_full=dq_write_order_full, dq_kv_order=dq_kv_order,
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, queries, keys)."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """The number of elements of the whole mask."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """The share of the mask that no block covers, in percent; below 0 where blocks reach far over the end."""
        blocks = self.kv_num_blocks.sum() if self.full_kv_num_blocks is None else self.kv_num_blocks.sum() + self.full_kv_num_blocks.sum()
        return 100 * (1 - blocks.item() * math.prod(self.BLOCK_SIZE) / self.numel())

    def to_dense(self) -> Tensor:
        """Where there is a block: (B, H, rows of blocks, columns), 0 or 1 in int32."""
        partial = _dense(self.kv_num_blocks, self.kv_indices)
        count, indices = self.full_kv_num_blocks, self.full_kv_indices
        return partial if count is None or indices is None else partial | _dense(count, indices)

    def to(self, device: Any) -> BlockMask:
        """The mask on a device."""
        return self._with(lambda x: x.to(device), self.mask_mod)

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """Everything that it consists of. flatten: without tuples in it."""
        inner = [getattr(self, name) for name in (*_TENSORS, *_ORDERS)]
        return (*self.seq_lengths, *inner, *self.BLOCK_SIZE, self.mask_mod) if flatten else (self.seq_lengths, *inner, self.BLOCK_SIZE, self.mask_mod)

    def __getitem__(self, index: Any) -> BlockMask:
        """Of some batches, heads and rows of blocks, whose dimensions stay. Its `mask_mod` raises until another is set."""
        index = index if isinstance(index, tuple) else (index,)
        kept = tuple([[i] if isinstance(i, int) else i for i in index])

        def part(x: Tensor) -> Tensor:
            for d, i in enumerate(kept):
                x = x[(slice(None),) * d + (i,)]
            return x

        return self._with(part, _sliced, len(index) < 3)

    def _with(self, change: Callable[[Tensor], Tensor], mask_mod: Callable[..., Tensor], both: bool = True) -> BlockMask:
        """With every tensor changed. both: those by keys too; else they are made anew."""
        found = [None if x is None else change(x) for x in (getattr(self, name) for name in _TENSORS[: 8 if both else 4])]
        if both:
            made = BlockMask(self.seq_lengths, *found, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=mask_mod)  # type: ignore[arg-type] - the first are there
        else:
            made = BlockMask.from_kv_blocks(*found, self.BLOCK_SIZE, mask_mod, self.seq_lengths, self.q_indices is not None)  # type: ignore[arg-type]
        made._listed = self._listed
        return made

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """Its upper left corner, of these lengths."""
        rows, columns = (math.ceil(n / size) for n, size in zip((new_q_len, new_kv_len), self.BLOCK_SIZE, strict=True))
        pairs = [(self.kv_num_blocks, self.kv_indices), (self.full_kv_num_blocks, self.full_kv_indices)]
        cut = [x for n, i in pairs for x in ((None, None) if n is None or i is None else _ordered(_dense(n, i)[..., :rows, :columns]))]
        made = BlockMask.from_kv_blocks(*cut, self.BLOCK_SIZE, self.mask_mod, (new_q_len, new_kv_len), self.q_indices is not None)  # type: ignore[arg-type]
        made._listed = self._listed
        return made

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """A picture of each batch's and head's blocks, up to `limit` of them. grid_size: how many characters it has down and across at most; -1 for
        one for each block."""
        blocks = np.asarray(self.to_dense().numpy(force=True))
        shown, found = list(np.ndindex(*blocks.shape[:-2])), []
        for place in shown[:limit]:
            found.append(f"{tuple(map(int, place))}\n" + "".join(f"{line}\n" for line in _picture(blocks[place], grid_size)))
        return "\n".join([*found, *([_MORE] if len(shown) > limit else [])])

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().strip()}\n)"

    def __repr__(self) -> str:
        shapes = {name: getattr(self, name) for name in _TENSORS}
        lines = [f"{name}={None if x is None else x.shape}" for name, x in shapes.items()]
        lines += [f"BLOCK_SIZE={self.BLOCK_SIZE}", f"shape={self.shape}", f"sparsity={self.sparsity():.2f}%"]
        lines.append(f"mask_mod={getattr(self.mask_mod, '__name__', self.mask_mod)}")
        return "BlockMask(\n    " + ",\n    ".join(lines) + "\n)"


def _picture(blocks: np.ndarray, grid_size: Any) -> Iterator[str]:
    """Lines of two characters for so many blocks that they fit into the grid: full, in part, empty."""
    down, across = blocks.shape if grid_size == -1 else _pair(grid_size)
    rows, columns = (max(1, math.ceil(n / of)) for n, of in zip(blocks.shape, (down, across), strict=True))
    for i in range(0, blocks.shape[0], rows):
        cells = [blocks[i : i + rows, j : j + columns] for j in range(0, blocks.shape[1], columns)]
        yield "".join(["██" if cell.all() else "░░" if cell.any() else "  " for cell in cells])


# ---------------------------------------------------------------------- attention


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Tensor] | None = None, block_mask: BlockMask | None = None,
    scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False, kernel_options: FlexKernelOptions | None = None,
    *, return_aux: AuxRequest | None = None,
) -> Any:  # fmt: skip
    """softmax(score_mod(query @ key.mT * scale)) @ value where `block_mask` lets queries see keys.

    query: (B, Hq, L, E); key: (B, Hkv, S, E); value: (B, Hkv, S, Ev). The result is (B, Hq, L, Ev), 0 for queries that see nothing.
    score_mod: of a score and the places of its batch, head, query and key. scale: by default 1 / sqrt(E). enable_gqa: whether several heads of
    queries share one of keys. return_lse, return_aux: see `AuxRequest`; with either the result is a pair. kernel_options: of PyTorch's kernels,
    changes nothing.

    ValueError and NotImplementedError for sizes that do not fit.
    """
    if return_lse and return_aux is not None:
        raise ValueError(
            "Cannot specify both return_lse and return_aux. return_lse is deprecated, please use return_aux=AuxRequest(lse=True) instead."
        )
    _check(query, key, value, block_mask, enable_gqa)
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    wide = dtypes.float32 if query.dtype in (dtypes.float16, dtypes.bfloat16) else query.dtype
    scores = query.to(wide) @ key.to(wide).mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if score_mod is not None:
        scores = _of_all(score_mod, scores.shape, query.device, scores, dtypes.int32)
    if block_mask is not None:
        scores = scores.masked_fill(~_seen(block_mask, scores), -math.inf)
    highest = scores.detach().amax(-1, keepdim=True) if scores.shape[-1] else scores.new_full((*scores.shape[:-1], 1), -math.inf)
    highest = highest.masked_fill(highest.isneginf(), 0.0)
    weights = (scores - highest).exp()
    total = weights.sum(-1, keepdim=True)
    out = (weights / total.masked_fill(total == 0, 1.0)).to(value.dtype) @ value
    out = out.to(query.dtype)
    asked = AuxRequest(lse=True) if return_lse else return_aux
    if asked is None:
        return out
    lse = (total.log() + highest).squeeze(-1) if asked.lse else None
    return (out, lse) if return_lse else (out, AuxOutput(lse, scores.amax(-1) if asked.max_scores else None))


def _seen(block_mask: BlockMask, scores: Tensor) -> Tensor:
    """Where queries see keys: by the function, and by the blocks where they were listed by hand."""
    mask = _of_all(block_mask.mask_mod, scores.shape, scores.device, kind=dtypes.int32)
    if not block_mask._listed:
        return mask

    def elements(blocks: Tensor) -> Tensor:
        rows, columns = block_mask.BLOCK_SIZE
        return blocks.bool().repeat_interleave(rows, -2).repeat_interleave(columns, -1)[..., : scores.shape[-2], : scores.shape[-1]]

    mask = mask & elements(_dense(block_mask.kv_num_blocks, block_mask.kv_indices))
    if block_mask.full_kv_num_blocks is not None and block_mask.full_kv_indices is not None:
        mask = mask | elements(_dense(block_mask.full_kv_num_blocks, block_mask.full_kv_indices))
    return mask


def _check(query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None, enable_gqa: bool) -> None:
    if not query.dim() == key.dim() == value.dim() == 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"Expect query and key/value to have the same embedding dimension but got E={query.shape[-1]} and E={key.shape[-1]}.")
    heads, shared = query.shape[1], key.shape[1]
    if not enable_gqa and heads != shared:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={shared}. Try setting enable_gqa=True for GQA."
        )
    if enable_gqa and heads % shared:
        raise ValueError(f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={heads} and Hkv={shared}.")
    if query.shape[0] != key.shape[0] and (block_mask is None or key.shape[0] != 1):
        raise ValueError(
            "Expect query and key/value to have the same batch size, or non-none block_mask, but got "
            f"block_mask={None if block_mask is None else block_mask.shape}, Bq={query.shape[0]}, and Bkv={key.shape[0]}."
        )
    if block_mask is not None:
        _check_lengths(block_mask, query.shape[2], key.shape[2])


def _check_lengths(block_mask: BlockMask, q_len: int, kv_len: int) -> None:
    q_of_mask, kv_of_mask = block_mask.shape[-2:]
    if (q_of_mask, kv_of_mask) == (q_len, kv_len):
        return
    text = (
        f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={q_len} and kv_len={kv_len}. As the block mask was created "
        "for a "
    )
    if q_of_mask < q_len or kv_of_mask < kv_len:
        raise ValueError(f"{text}smaller length than you're using it for, you likely need to create a new block mask.")
    raise ValueError(
        f"{text}larger length than you're using it for, you can either 1. create a new block mask with the correct length, or 2. 'adjust' the "
        "existing block mask to the correct length by calling block_mask._adjust(q_len, kv_len). This essentially 'crops' the block mask to the "
        "upper left corner, which does not work for all mask_mods!"
    )
