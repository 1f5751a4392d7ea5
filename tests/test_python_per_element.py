"""`apply_`, `map_`: a Python function called for every element; questions about a tensor's content and memory."""

from __future__ import annotations

import pytest
from side_by_side import like_pytorch

CALLS = {
    "apply_": lambda m: m.arange(3).apply_(lambda a: a * 2.7),
    "apply_ to a number": lambda m: m.tensor(3.0).apply_(lambda a: a * 2),
    "apply_ to nothing": lambda m: m.ones(0).apply_(lambda a: a),
    "apply_ what cannot be called": lambda m: m.ones(2).apply_(3),
    "apply_ to what needs a gradient": lambda m: m.ones(2, requires_grad=True).apply_(abs),
    "map_": lambda m: m.ones(2, 2).map_(m.tensor([3.0, 4.0]), lambda a, b: a + b),
    "map_ of another shape": lambda m: m.ones(2).map_(m.ones(3), lambda a, b: a),
    "map_ of a number": lambda m: m.ones(2).map_(3, lambda a, b: a),
    "map_ of what needs a gradient": lambda m: m.ones(2).map_(m.ones(2, requires_grad=True), lambda a, b: a),
    "map2_": lambda m: m.ones(2).map2_(m.ones(2), m.ones(2), lambda a, b, c: a + b + c),
    "is_nonzero": lambda m: [m.ones(1, 1).is_nonzero(), m.is_nonzero(m.zeros(1)), m.ones(2).is_nonzero()],
    "is_nonzero of nothing": lambda m: m.ones(0).is_nonzero(),
    "_assert_async": lambda m: [m._assert_async(m.ones(1, 1)), m._assert_async(m.tensor(0.5), "no")],
    "_assert_async of zero": lambda m: m._assert_async(m.tensor(False)),
    "_assert_async with words": lambda m: m._assert_async(m.zeros(1), assert_msg="no"),
    "_assert_async of two": lambda m: m._assert_async(m.ones(2)),
    "_assert_async of a number": lambda m: m._assert_async(1),
    "_assert_async with what is no text": lambda m: m._assert_async(m.ones(1), 3),
    "is_same_size": lambda m: [m.ones(2).is_same_size(m.zeros(2)), m.is_same_size(m.ones(2), m.ones(2, 1))],
    "memory": lambda m: [m.ones(1).is_pinned(), m.ones(1).is_shared(), m.ones(1).is_distributed(), m.is_signed(m.ones(1, dtype=m.uint8))],
}


@pytest.mark.parametrize("name", CALLS)
def test_like_pytorch(name):
    like_pytorch(CALLS[name])()


@like_pytorch
def test_a_base_sees_what_was_applied_to_its_view(m):
    base = m.ones(3)
    base[1:].apply_(lambda x: x + 1)
    return base


@like_pytorch
def test_tensors_are_set_to_each_other_where_they_are_one_part_of_one_memory(m):
    base = m.ones(3)
    return [base[1:].is_set_to(base[1:]), base.is_set_to(base[1:]), base.view(3, 1).is_set_to(base), m.ones(3).is_set_to(base)]
