"""Memory formats. Arrays have no strides, so a tensor in another order than row-major is a view of a row-major array with its dimensions permuted."""

from __future__ import annotations

from torchgrad_jax.declaration.memory_order import strides_in


class memory_format:
    """In which order a tensor's elements lie in memory. `dims`: the dimensions from the slowest to the fastest, None for row-major or any."""

    __slots__ = ("name", "dims")

    def __init__(self, name: str, dims: tuple[int, ...] | None = None) -> None:
        self.name, self.dims = name, dims

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name

    def order(self, ndim: int) -> tuple[int, ...]:
        """`dims` for a tensor of `ndim` dimensions. RuntimeError where the format has another number of them."""
        if self.dims is None:
            return tuple(range(ndim))
        if len(self.dims) != ndim:
            raise RuntimeError(f"required rank {len(self.dims)} tensor to use {self.name} format")
        return self.dims


memory_format.__module__ = "torchgrad_jax"  # where pickles look for them
contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format("preserve_format")
channels_last, channels_last_3d = memory_format("channels_last", (0, 2, 3, 1)), memory_format("channels_last_3d", (0, 2, 3, 4, 1))
FORMATS = {f.name: f for f in (contiguous_format, preserve_format, channels_last, channels_last_3d)}


def memory_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions from slowest to fastest, whatever lies between their elements; repeated ones stay where they are."""
    order: list[int] = []
    for d in range(len(shape)):
        place = len(order)
        for i in reversed(range(len(order))):
            slower, own = strides[order[i]], strides[d]
            if slower and own and slower != own:
                if slower > own:
                    break
                place = i
        order.insert(place, d)
    return tuple(order)


def lies_in(shape: tuple[int, ...], strides: tuple[int, ...], wanted: memory_format) -> bool:
    """Whether strides are those of a format."""
    if wanted.dims is not None and len(wanted.dims) != len(shape):
        return False
    dense = strides_in(shape, wanted.order(len(shape)))
    return all(s == e or n == 1 for s, e, n in zip(strides, dense, shape, strict=True))
