"""Indexing: what `x[key]` gives and what `x[key] = value` writes, with gradients and errors.

Each program runs here and, where it is installed, in PyTorch, and must look the same: values, gradients, versions, bases, grad_fn names,
strides, and the class and text of what is raised.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as tj
from compat_suite.fuzz.programs import same
from torchgrad_jax.functions.indexing import known_bounds


def test_ints_slices_none_and_ellipsis_make_views():
    same("""
        x = leaf(2, 2, 2)
        a, b, c, d, e, f = x[0], x[..., -1], x[:, None, 1:], x[1, ..., ::2], x[()], x[None, ..., 0, None]
        assert all(t._base is x for t in (a, b, c, d, e, f))
        (a.sum() + b.square().sum() + d.exp().sum()).backward()
    """)


def test_index_tensors_copy():
    same("""
        x = leaf(3, 2)
        y = x[torch.tensor([2, 0, 2])]
        assert y._base is None
        y.square().sum().backward()
    """)


def test_mixed_indices_place_their_dimensions_as_numpy_does():
    same("""
        x = leaf(2, 3, 2)
        a = x[0, [0, 2]]
        b = x[[0, 1], :, [1, 0]]
        c = x[:, [0, 1], [1, 0]]
        d = x[None, [1], ..., 0]
        e = x[[[0], [1]], [0, 2]]
        (a.sum() + b.square().sum() + c.sum() + d.exp().sum() + e.sum()).backward()
    """)


def test_boolean_masks_choose():
    same("""
        x = leaf(2, 3)
        a = x[x > 0]
        b = x[torch.tensor([True, False])]
        c = x[:, torch.tensor([True, False, True])]
        (a.square().sum() + b.sum() + c.sum()).backward()
    """)


def test_negative_and_listed_indices():
    same("""
        x = leaf(4)
        a, b, c = x[-1], x[[-1, 0]], x[torch.tensor([[-1], [1]])]
        (a + b.sum() + c.square().sum()).backward()
    """)


def test_setitem_writes_numbers():
    same("""
        a = leaf(2, 3)
        x = a * 1
        x[0] = 7
        x[:, 1] = 8
        x[..., -1:] = 2
        x[1, 0] = 3
        x.sum().backward()
    """)


def test_setitem_broadcasts():
    same("""
        a = leaf(2, 3)
        x = a * 1
        p, q, r = leaf(3, seed=1), leaf(2, 1, seed=2), leaf(1, 1, 3, seed=3)
        x[:] = p
        x[:, 1:] = q
        x[0] = r
        x.square().sum().backward()
    """)


def test_setitem_that_does_not_fit_is_refused():
    same("""
        x = leaf(2, 3, requires_grad=False)
        x[0] = leaf(2)
        x[0] = leaf(2, 3)
        x[:, :2] = leaf(3)
        x[[0, 1]] = leaf(2)
        x[x > 0] = leaf(7)
    """)


def test_setitem_at_index_tensors():
    same("""
        a = leaf(4)
        x = a * 1
        p = leaf(2, seed=1)
        x[torch.tensor([0, 3])] = p
        x[[1]] = 5
        (x * leaf(4, seed=2)).sum().backward()
    """)


def test_setitem_at_masks():
    same("""
        a = leaf(2, 3)
        x = a * 1
        x[x > 0] = 2
        x[torch.tensor([True, False])] = leaf(3, seed=1)
        x[:, torch.tensor([False, True, True])] *= 3
        x.square().sum().backward()
    """)


def test_setitem_mixes_indices():
    same("""
        a = leaf(2, 3, 2)
        x = a * 1
        p = leaf(2, seed=1)
        x[0, [0, 2]] = p
        x[[0, 1], :, [1, 0]] = 4
        x[None, :, 1] = leaf(seed=2)
        x.square().sum().backward()
    """)


def test_setitem_of_booleans():
    same("""
        x = leaf(2, requires_grad=False)
        x[True] = 3
        x[False] = 4
        x[None] = 5
    """)


def test_indices_out_of_range_are_refused():
    same("""
        x = leaf(2, 3)
        x[2]
        x[-3]
        x[0, 3]
        x[0, 0, 0]
        x[[0, 2]]
        x[:, [0, -4]]
        x[[0, 1], [0, 1, 2]]
        x[..., 3]
    """)


def test_indices_of_other_types_are_refused():
    same("""
        x = leaf(2, 3)
        x["a"]
        x[1.5]
        x[torch.tensor([1.5])]
        x[::-1]
        x[::0]
        x[torch.tensor([True, False, True])]
        x[:, torch.tensor([True, False])]
    """)


def test_values_of_other_types_are_refused():
    same("""
        x = leaf(2, 3, requires_grad=False)
        x[0] = "a"
        x[0] = [1, 2, 3]
        x[0] = None
    """)


def test_zero_dim_tensors_refuse_indices():
    same("""
        x = leaf() * 1
        x[0]
        x[0:1]
        x[0] = 1
        x[0:1] = 1
        y = x[...]
        x[...] = 4
        x[()] = 5
    """)


def test_failed_setitem_leaves_everything_as_it_was():
    same("""
        a = leaf(2, 3)
        x = a * 1
        x[0, 5] = 1
        x[0] = leaf(4)
        assert x._version == 0
        x.sum().backward()
    """)


def test_double_backward_through_get_and_set():
    same("""
        a = leaf(4)
        x = a.square()
        y = x[[0, 2]] * x[1:3]
        x[1:2] = y[:1]
        g = plain(*grad(x.square().sum(), a, create_graph=True))
        g.sum().backward()
    """)


@pytest.mark.parametrize("key", [[[0, 2]], [[0, 2], [1, 3]], [slice(None), [0, 3]], [..., [2, 3]], [0, slice(None)], [[]], [range(2)]], ids=str)
def test_a_list_of_indices_counts_as_a_tuple_with_a_warning(key):
    torch = pytest.importorskip("torch")
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        ours = tj.arange(16.0).reshape(4, 4)[key]
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        theirs = torch.arange(16.0).reshape(4, 4)[key]
    assert ours.tolist() == theirs.tolist()


def test_a_range_indexes_as_a_list_of_numbers():
    assert tj.arange(4.0)[range(1, 3)].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("key", ["..., 1", ":, ..., 1", "0, None, 0, 1", "None, ..., 1", ":, 0, 1", "0, :, 1", "0, 5", "torch.tensor([0]), :, 1"])
def test_what_is_out_of_bounds_is_told_by_its_place(key):
    same([f"y = leaf(2, 3, 1)[{key}]", f"leaf(2, 3, 1, requires_grad=False)[{key}] = 1.0"])


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin", "aminmax", "max", "min"])
def test_the_extreme_of_nothing_is_told_with_its_dimension(name):
    same([f"y = leaf(2, 0).{name}(dim={dim})" for dim in ((-1, 1) if name not in ("amax", "amin") else (-1, 1, (-1,), (1, 0)))])


def test_a_view_of_all_host_data_is_known_to_be_in_range_or_not():
    x, rows = tj.arange(12.0).reshape(3, 4), tj.tensor([[2, 0], [1, 2]])
    for index in (rows.view(-1), rows.unsqueeze(0), rows.T):
        assert known_bounds(index) == (0, 2)
        assert x[index].shape == (*index.shape, 4)
    assert known_bounds(rows[1:]) in (None, (1, 2)), "not its base's: it has not each of these elements"
    with pytest.raises(IndexError, match="index 2 is out of bounds for dimension 0 with size 2"):
        x[:2][rows.view(-1)]
    with pytest.raises(RuntimeError, match="index 2 is out of bounds for dimension 0 with size 2"):
        x[:2].gather(0, rows.T)
    rows[0, 0] = 7
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 3"):
        x[rows.view(-1)].tolist()


BOUNDS = st.none() | st.integers(-7, 7)
KEYS = st.integers(-4, 4) | st.none() | st.just(Ellipsis) | st.builds(slice, BOUNDS, BOUNDS, st.none() | st.integers(1, 3))


@pytest.mark.operators
@settings(max_examples=200)
@given(st.lists(KEYS, max_size=5).filter(lambda keys: keys.count(...) < 2).map(tuple), st.booleans())
def test_any_basic_key_gives_the_view_that_numpy_gives(key, alone):
    key = key[0] if alone and key else key
    x = np.arange(60.0, dtype=np.float32).reshape(3, 4, 5)
    t = tj.tensor(x, requires_grad=True)
    try:
        expected = x[key]
    except IndexError:
        with pytest.raises((IndexError, RuntimeError)):
            t[key]
        return
    found = t[key]
    assert found.shape == expected.shape and found._is_view()
    np.testing.assert_array_equal(found.detach().numpy(), expected)
    if expected.size:
        assert found.stride() == tuple([n // 4 for n in expected.strides]) or 1 in expected.shape
        assert found.storage_offset() == int(expected.reshape(-1)[0])
    (found * 2).sum().backward()
    counted = np.zeros_like(x)
    counted[key] = 2
    np.testing.assert_array_equal(t.grad.numpy(), counted)
    written = tj.tensor(x)
    written[key] = -1.0
    x[key] = -1
    np.testing.assert_array_equal(written.numpy(), x)


def test_what_a_mask_picks_of_what_is_there_is_taken_at_once():
    """How many elements there are is another number each time: a program would be another one each time."""
    x = tj.arange(12.0).reshape(3, 4)
    picked = x[x > 5]
    assert picked._read().array is not None
    x.mul_(2)
    picked.add_(1)
    assert picked.tolist() == [7.0, 8.0, 9.0, 10.0, 11.0, 12.0] and x[2].tolist() == [16.0, 18.0, 20.0, 22.0]
    assert (x + 1)[tj.tensor([True, False, True])].tolist() == [[1.0, 3.0, 5.0, 7.0], [17.0, 19.0, 21.0, 23.0]]
    x.requires_grad_()
    followed = x[x > 5]
    assert type(followed.grad_fn).__name__ == "IndexBackward0"
    followed.sum().backward()
    assert x.grad.tolist() == (x > 5).float().tolist()
    with tj.no_grad():
        assert not x[x > 5].requires_grad
    with pytest.raises(IndexError, match="shape of the mask"):
        x[tj.tensor([True, False])]
    with tj.inference_mode():
        assert x[x > 5].is_inference()


_VIEWS = {
    "part": lambda i: i[1:4], "column": lambda i: i.unsqueeze(-1), "spread": lambda i: i[1:2].expand(3), "turned": lambda i: i[:4].view(2, 2).T,
    "step": lambda i: i[::2],
}  # fmt: skip


@pytest.mark.parametrize("kind", _VIEWS)
def test_a_view_that_is_out_of_range_is_told_whatever_was_known_of_one_before(kind):
    x, y, view = tj.arange(10.0), tj.ones(3, 10), _VIEWS[kind]
    z = tj.arange(40.0).view(10, 4)[:, :1]
    at, within = (IndexError, "index 44 is out of bounds"), (IndexError, "index out of range in self")
    readers = [
        (lambda i: x[view(i)], at), (lambda i: y[1, view(i)], at), (lambda i: y[:, view(i)], at),
        (lambda i: x.index_select(0, view(i).reshape(-1)), within), (lambda i: tj.nn.functional.embedding(view(i), z), within),
        (lambda i: x.take(view(i)), (IndexError, "tried to access index 44 on a tensor of 10")),
    ]  # fmt: skip
    if kind == "column":
        readers.append((lambda i: z.gather(0, view(i)), (RuntimeError, "index 44 is out of bounds for dimension 0 with size 10")))
    for read, (error, text) in readers:
        for turn in range(20):  # what lies beside a part may be anything
            read(tj.tensor([1, 2, 3, 5 if turn % 2 else 4, 4])).numpy()
        for _ in range(2):
            with pytest.raises(error, match=text):
                read(tj.tensor([44, 44, 44, 44, 44])).numpy()
        if kind in ("part", "step"):
            unread = tj.tensor([44, 2, 3, 4, 5]) if kind == "part" else tj.tensor([1, 44, 3, 44, 5])
            assert read(unread).numpy().size


@pytest.mark.parametrize("kind", ["part", "step"])
def test_what_a_view_of_an_index_leaves_out_may_be_out_of_range_at_any_time(kind):
    x, view = tj.arange(10.0), _VIEWS[kind]
    given = [
        tj.tensor([1, 2, 3, 4, 5]),
        tj.tensor([44, 2, 3, 4, 44]) if kind == "part" else tj.tensor([1, 44, 3, -44, 5]),
        tj.tensor([1, 2, -3, 4, 5]),
    ]
    for _ in range(12):
        for i in given:
            assert x[view(i)].tolist() == [float(n % 10) for n in view(i).tolist()]


@pytest.mark.parametrize("read", [
    lambda x: tj.zeros(3, 4).index_add(0, tj.tensor([7]), x[:1]), lambda x: x[tj.tensor([0, 7])], lambda x: x[:, tj.tensor([-9])],
    lambda x: x[tj.tensor([0]), tj.tensor([9])], lambda x: x.gather(1, tj.tensor([[9]])), lambda x: x.index_select(0, tj.tensor([4])),
])  # fmt: skip
def test_gradients_where_nothing_is_are_computed_in_vain(read):
    """The program tells of the index, and does not fail before that."""
    x = tj.ones(3, 4, requires_grad=True)
    with pytest.raises((IndexError, RuntimeError), match="out of "):
        read(x).sum().backward()
        x.grad.tolist()
    assert tj.ones(3).sum() == 3


def test_setitem_at_lists_that_come_again():
    """They are kept as tensors: each call is as the first."""
    writes = "x[[0, 2]] = x[[2, 0]]; x[[1], :2] = p; x[:, [0, -1]] = x[:, [-1, 0]] * 2; x[[0, 1], [2, 1]] = 3; x[[-1]] = q"
    same(f"""
        a = leaf(4, 3)
        x = a * 1
        p, q = leaf(2, seed=1), leaf(1, 3, seed=2)
        {writes}
        {writes}
        {writes}
        y = x.detach().clone()
        y[[True, False, True, False]] = 0
        y[[]] = 1
        (x * x).sum().backward()
    """)
    for key in ("[4]", "[-5]", "(slice(None), [3])", "([0], [3])"):
        same(f"""
            x = leaf(4, 3, requires_grad=False)
            x[[0, 1]] = 1
            x[[0, 1]] = 2
            x[{key}] = 2
        """)
