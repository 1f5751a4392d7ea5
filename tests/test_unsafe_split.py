"""Pieces that are no views: they may be written to."""

from __future__ import annotations

import pytest
from side_by_side import leaf, like_pytorch

CALLS = {
    "unsafe_split": lambda m, x: m.unsafe_split(x, 2),
    "unsafe_split along": lambda m, x: x.reshape(1, 3).unsafe_split(2, dim=1),
    "unsafe_split of no size": lambda m, x: x.unsafe_split(0),
    "unsafe_split of a negative size": lambda m, x: x.unsafe_split(-1),
    "unsafe_split into sizes": lambda m, x: x.unsafe_split([1, 2]),
    "unsafe_split of a number": lambda m, x: m.tensor(1.0).unsafe_split(1),
    "unsafe_split_with_sizes": lambda m, x: m.unsafe_split_with_sizes(x, [1, 2]),
    "unsafe_split_with_sizes that do not add up": lambda m, x: x.unsafe_split_with_sizes([1, 1]),
    "unsafe_chunk": lambda m, x: x.unsafe_chunk(2),
    "unsafe_chunk into none": lambda m, x: x.unsafe_chunk(0),
}


@pytest.mark.parametrize("name", CALLS)
def test_pieces_are_pytorchs(name):
    @like_pytorch
    def check(m):
        made = CALLS[name](m, leaf(m, 1.0, 2.0, 3.0))
        return made, [[t.grad_fn.name(), t._is_view(), t.output_nr] for t in made]

    check()


@like_pytorch
def test_a_piece_may_be_written_to(m):
    x = leaf(m, 1.0, 2.0, 3.0)
    a, b = x.unsafe_chunk(2)
    a.mul_(2)
    (a.sum() + b.sum()).backward()
    return x.grad, a
