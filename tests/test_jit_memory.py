"""A compiled function and the memory of what it is given: which part of it a tensor is, who shares it, lists and dicts that it changes or returns."""

import warnings

import pytest

import torchgrad_jax as torch
from torchgrad_jax.lifting.tracing import TracingError

pytestmark = pytest.mark.operators  # of programs: in eager mode there are none


def add_to_first(x, y):
    x.add_(1)
    return y * 2


def both(function, calls):
    """What calls give, without `jit` and with: each is made of a new memory of six elements and of the number of the call."""
    found = []
    for f in (function, torch.jit(function)):
        base, told = torch.zeros(6), []
        for i in range(9):
            result = f(*calls(base, i))
            told.append((result if result is None else result.tolist(), base.tolist()))
        found.append(told)
    return found


PARTS = {
    "slices": lambda b, i: (b[i % 3 : i % 3 + 2], torch.ones(2)),
    "rows": lambda b, i: (b.view(3, 2)[i % 3], b.view(3, 2)[(i + 1) % 3]),
    "overlapping or not": lambda b, i: (b[:2], b[1:3] if i % 2 else b[2:4]),
    "whose other is shared": lambda b, i: ((b[:], b[:]), (b[:], torch.zeros(6)), (torch.zeros(6), b[:]))[i % 3],
    "with their base": lambda b, i: ((b, b[:2]), (b[1:3], b), (b[:2], b))[i % 3],
    "in another order": lambda b, i: (b[:4].view(2, 2).t() if i % 2 else b[2:].view(2, 2), torch.arange(4.0).view(2, 2)),
    "that share by data": lambda b, i: (b, b.data if i % 2 else torch.ones(6)),
    "of other memory": lambda b, i: (b[:2] if i % 2 else torch.zeros(3 + i)[:2], b[2:4]),
}


@pytest.mark.parametrize("parts", PARTS)
def test_what_is_written_to_is_the_part_of_memory_that_is_given(parts):
    plain, compiled = both(add_to_first, PARTS[parts])
    assert plain == compiled


def test_what_is_written_to_from_outside_may_be_part_of_an_argument():
    found = []
    for wrap in (lambda f: f, torch.jit):
        outside = torch.zeros(4)

        def write(x, outside=outside):
            outside.add_(1)
            return x * 2

        f = wrap(write)
        found.append([f(x).tolist() for _ in range(3) for x in (outside[:2], outside[2:], torch.zeros(2), outside[1:3])])
    assert found[0] == found[1]


def test_slices_that_are_only_read_have_one_program():
    f, x = torch.jit(lambda x: x[0] + x.view(-1, 1).sum()), torch.arange(12.0)
    assert [f(x[i : i + 2]).item() for i in range(0, 12, 2)] == [3 * i + 1 for i in range(0, 12, 2)]
    assert len(f.recompilations) == 1


def test_the_order_of_an_argument_in_memory_is_that_of_the_call():
    f = torch.jit(lambda x: (x * 2, x.is_contiguous()))
    for _ in range(3):
        for x in (torch.zeros(2, 3), torch.zeros(3, 2).t(), torch.zeros(4, 3)[::2]):
            doubled, contiguous = f(x)
            assert doubled.stride() == (x * 2).stride() and contiguous is x.is_contiguous()
    conj = torch.jit(lambda z: z.is_conj())
    z = torch.ones(2, dtype=torch.complex64)
    assert [conj(x) for _ in range(3) for x in (z, z.conj(), z[:])] == [False, True, False] * 3


CHANGES = {
    "append": lambda c: c["list"].append(1),
    "item": lambda c: c["list"].__setitem__(0, c["x"] + 1),
    "new key": lambda c: c.update(y=c["x"] * 2),
    "pop": lambda c: c.pop("z"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_list_or_dict_of_the_arguments_is_changed_at_each_call(change):
    def f(c):
        CHANGES[change](c)
        return c["x"] * 2

    def told(c):
        return str(list(c)), len(c["list"]), float(c["list"][0])

    compiled, found = torch.jit(f), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            plain, given = ({"x": torch.ones(1), "z": 1, "list": [torch.zeros(1)]} for _ in range(2))
            f(plain), compiled(given)
            found.append(told(plain) == told(given))
    assert all(found)
    with pytest.raises(TracingError, match="changes a list or a dict"):
        torch.jit(f, fullgraph=True)({"x": torch.ones(1), "z": 1, "list": [torch.zeros(1)]})


def test_a_list_that_is_returned_is_the_one_that_it_was():
    table = {"a": [torch.ones(1)]}
    f = torch.jit(lambda x: (table, table["a"], x * 2))
    for _ in range(3):
        found, inner, _ = f(torch.ones(1))
        assert found is table and inner is table["a"]
    given = [torch.ones(1)]
    with pytest.warns(UserWarning, match="returns a list or a dict that it was given"):
        g = torch.jit(lambda given: given)
        assert all(g(given) is given for _ in range(3))
