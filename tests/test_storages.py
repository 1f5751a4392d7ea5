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
