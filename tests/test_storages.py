"""`Tensor.storage` and `Tensor.untyped_storage`: memory as an object."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from side_by_side import like_pytorch  # noqa: E402 - needs torch

import torchgrad_jax as tj  # noqa: E402


@like_pytorch
def test_a_storage_is_the_memory_that_views_share(m):
    x = m.arange(6.0).reshape(2, 3)
    y, z = x[1].detach(), x.clone()
    y.add_(1)
    a, b, c = (t.untyped_storage() for t in (x, y, z))
    same = [a == b, hash(a) == hash(b), a == c, a.data_ptr() == b.data_ptr(), a.data_ptr() == c.data_ptr(), y.data_ptr() - b.data_ptr()]
    return [same, len(b), b.size(), b.nbytes(), b.tolist(), b[4], str(b.device), b.is_cuda, isinstance(b, m.UntypedStorage), b != 1]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@like_pytorch
def test_a_typed_storage_has_elements(m):
    s = m.arange(6).reshape(2, 3)[:, 1].storage()
    sizes = [len(s), s.size(), s.nbytes(), s.element_size(), s.untyped().nbytes()]
    return [sizes, str(s.dtype), s.tolist(), s[1], repr(s), isinstance(s, m.TypedStorage)]


def test_storages_are_not_written_to():
    s = tj.ones(2).untyped_storage()
    for write in (lambda: s.resize_(4), lambda: s.fill_(1), lambda: s.copy_(s), lambda: s.__setitem__(0, 1)):
        with pytest.raises(RuntimeError, match="write through a tensor"):
            write()
    assert not s.resizable()


PARTS = {
    "leaf": lambda m, x: x,
    "transposed": lambda m, x: x.t(),
    "row": lambda m, x: x[0],
    "result in another order": lambda m, x: x.t() * 2,
    "row of it": lambda m, x: (x.t() * 2)[0],
    "result": lambda m, x: x * 2,
    "leaf that is a view": lambda m, x: m.arange(6.0, dtype=m.float64).view(2, 3).requires_grad_(),
    "leaf in another order": lambda m, x: (x.detach().t() * 2).requires_grad_(),
}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("name", PARTS)
def test_a_write_by_way_of_data_reaches_what_was_saved(name, times, late):
    def program(m):
        x = (m.arange(6.0, dtype=m.float64).view(2, 3) / 4 + 1).requires_grad_()
        part = PARTS[name](m, x)
        twin = part.data
        y = part.sin() * part * x.sum()
        for _ in range(times):
            (part.data if late else twin).mul_(2)
        y.sum().backward()
        return x.grad, part._version, part, part.grad if part.is_leaf else None

    like_pytorch(program)()
