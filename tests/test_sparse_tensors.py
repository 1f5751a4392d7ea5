"""Sparse tensors side by side with PyTorch's: how they are made, what they are asked, their text and what is refused."""

import copy
import pickle

import pytest
from side_by_side import like_pytorch, torch

import torchgrad_jax as tj


def coo(m, **options):
    """A tensor of which two elements are at one place, in no order."""
    return m.sparse_coo_tensor(m.tensor([[0, 2, 1, 1], [2, 1, 0, 0]]), m.tensor([1.0, 4.0, 2.0, 3.0]), (3, 4), **options)


@like_pytorch
def test_made_of_indices_values_and_a_size(m):
    given = [m.tensor([[0, 1, 2]]), m.tensor([1.0, 2.0, 3.0])]
    typed = m.sparse_coo_tensor(*given, (4,), dtype=m.float64)
    rows = m.sparse_coo_tensor(given[0], m.ones(3, 2), (3, 2))
    one, empty = m.sparse_coo_tensor([[1]], [2.0], (3,)), m.sparse_coo_tensor(size=(2, 3))
    return m.sparse_coo_tensor(*given), typed, rows, one, empty, m.sparse_coo_tensor([[0]], [1], (3,)), m.sparse_coo_tensor((2, 3))


@like_pytorch
def test_the_old_classes(m):
    s = m.sparse.FloatTensor(m.tensor([[0, 1], [1, 1]]), m.tensor([1.0, 2.0]), m.Size([2, 3]))
    told = isinstance(s, m.sparse.FloatTensor), isinstance(s, m.sparse.DoubleTensor), isinstance(m.ones(2), m.sparse.FloatTensor), s.type()
    return s, told, m.sparse.LongTensor(m.tensor([[0]]), m.tensor([3])), repr(m.sparse.FloatTensor)


@like_pytorch
def test_coalesced_in_order_and_each_place_once(m):
    s = coo(m)
    c = s.coalesce()
    return c, c.indices(), c.values(), c.is_coalesced(), s.is_coalesced(), c.coalesce() is c, coo(m).to(m.int32).coalesce()


@like_pytorch
def test_what_it_is_asked(m):
    s = coo(m)
    told = [s.layout is m.sparse_coo, s.is_sparse, s.is_sparse_csr, m.ones(2).is_sparse, s.sparse_dim(), s.dense_dim(), s._nnz(), s.dim(), len(s)]
    told += [tuple(s.shape), tuple(s.size()), s.size(1), s.numel(), s.is_leaf, s.requires_grad, s.is_contiguous(), s.stride(), s.is_floating_point()]
    hybrid = m.sparse_coo_tensor([[0, 2]], m.ones(2, 5, 1), (3, 5, 1))
    return told, hybrid.sparse_dim(), hybrid.dense_dim(), isinstance(s, m.Tensor), m.is_tensor(s), s.dtype is m.float32, m.typename(s)


@like_pytorch
def test_from_dense_and_back(m):
    x = m.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]])
    mask = m.zeros(3, 4, dtype=m.bool)
    mask[1, 2] = True
    hybrid = m.sparse_coo_tensor([[0, 2, 0]], m.ones(3, 2), (3, 2))
    return (
        x.to_sparse(),
        x.to_sparse(1),
        x.to_sparse().to_dense(),
        mask.to_sparse(),
        mask.to_sparse().to_dense(),
        coo(m).to_dense(),
        hybrid.to_dense(),
    )


@like_pytorch
def test_of_no_dimensions_and_of_no_elements(m):
    return m.tensor(3.0).to_sparse(), m.zeros(2, 3).to_sparse(), m.zeros(2, 3).to_sparse().to_dense(), m.zeros(0, 3).to_sparse().coalesce().to_dense()


@like_pytorch
def test_text(m):
    v = m.tensor([1.0, 2.0, 3.0], requires_grad=True)
    i = m.tensor([[0, 1, 1], [2, 0, 2]])
    s = m.sparse_coo_tensor(i, v, (2, 3))
    many = m.sparse_coo_tensor(m.arange(20)[None] * 7, m.arange(20.0), (200,))
    shown = [coo(m), coo(m).coalesce().double(), s, s * 2, s.coalesce(), m.sparse_coo_tensor(i, v, (2, 3), requires_grad=True), many, many.bool()]
    shown += [m.sparse_coo_tensor(size=(2, 3)), m.sparse_coo_tensor(size=(2, 3), dtype=m.int64), m.sparse_coo_tensor([[0]], m.ones(1, 2), (1, 2))]
    return [repr(t) for t in shown] + [str(coo(m)), f"{coo(m).half()}"]


@like_pytorch
def test_dimensions_exchanged_added_and_taken_away(m):
    s, c = coo(m), coo(m).coalesce()
    hybrid = m.sparse_coo_tensor([[0, 2], [1, 1]], m.arange(8.0).reshape(2, 2, 2), (3, 2, 2, 2))
    turned = s.t(), c.T, s.transpose(0, 1), hybrid.permute(1, 0, 2, 3), m.t(c), m.stack([s, c]).mT, s.mT
    return turned, s.unsqueeze(0), s.unsqueeze(2), hybrid.unsqueeze(-1), s.unsqueeze(1)


@like_pytorch
def test_parts(m):
    s, c = coo(m), coo(m).coalesce()
    picked = s.index_select(0, m.tensor([2, 1])), c.index_select(0, m.tensor([2, 0, 2])), c.index_select(1, m.tensor([0, 0, 3]))
    hybrid = m.sparse_coo_tensor([[0, 2]], m.arange(6.0).reshape(2, 3), (3, 3))
    rows = m.sparse_coo_tensor([[0, 2, 0]], m.ones(3, 2), (3, 2))
    return picked, s[0], c[1], s[1, 0], c[-1], [row for row in c], hybrid.index_select(1, m.tensor([2, 0])), rows[0], c.narrow_copy(0, 1, 2)


@like_pytorch
def test_put_together(m):
    s, c = coo(m), coo(m).coalesce()
    hybrid = m.sparse_coo_tensor([[0, 2]], m.arange(6.0).reshape(2, 3), (3, 3))
    return m.cat([s, c]), m.cat([c, c], 1), m.stack([c, s]), m.stack([c, c], 2), m.cat([hybrid, hybrid], 1), m.hstack([c, c]), m.vstack([c, c])


@like_pytorch
def test_converted(m):
    c = coo(m).coalesce()
    other = c.double(), c.half(), c.to(m.int64), c.bool(), c.to("cpu"), c.type(m.float64), c.clone(), c.detach(), c.cpu(), c.float()
    return other, c.float() is c, c.to(m.float32) is c, m.zeros_like(c), c.new(m.tensor([[0], [1]]), m.tensor([5.0]), m.Size([3, 4]))


@like_pytorch
def test_written_to(m):
    c = coo(m).coalesce()
    target = m.sparse_coo_tensor(size=(3, 4))
    target.copy_(c)
    values = c.values()
    values.mul_(10)
    written = c.clone().mul_(2), c.clone().add_(c), c.clone().div_(4), c.clone().sub_(c), c.clone().neg_()
    return target, c, c.clone().zero_(), [t.coalesce() for t in written]


def copied(m):
    s = coo(m)
    loaded = pickle.loads(pickle.dumps(s)), pickle.loads(pickle.dumps(s.coalesce()))
    leaf = s.clone().requires_grad_()
    return loaded, copy.deepcopy(s), copy.copy(s.coalesce()), copy.deepcopy([leaf, leaf])[0], copy.deepcopy({"a": s.coalesce()})["a"]


test_copied_and_pickled = like_pytorch(copied)


@like_pytorch
def test_a_buffer_of_a_module(m):
    class Model(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", coo(m))
            self.register_buffer("heads", m.ones(2, 2).to_sparse(), persistent=False)

    a, b = Model(), Model()
    b.kept = b.kept * 0
    b.load_state_dict(a.state_dict())
    a.double()
    return list(a.state_dict()), a.kept, a.heads, b.kept, copy.deepcopy(a).heads, [n for n, _ in a.named_buffers()]


REFUSED = {
    "numpy": lambda m: coo(m).numpy(),
    "indices": lambda m: coo(m).indices(),
    "values": lambda m: coo(m).values(),
    "storage": lambda m: coo(m).untyped_storage(),
    "item": lambda m: coo(m).item(),
    "bool": lambda m: bool(coo(m)),
    "sparse and dense": lambda m: coo(m) + m.ones(3, 4),
    "a number": lambda m: coo(m) + 1,
    "division": lambda m: coo(m) / m.ones(3, 4),
    "expand": lambda m: coo(m).expand(2, 3, 4),
    "other counts": lambda m: m.sparse_coo_tensor([[0, 1]], [1.0], (3,)),
    "other dimensions": lambda m: m.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3, 3)),
    "a negative index": lambda m: m.sparse_coo_tensor([[-1]], [1.0]),
    "sizes of a sum": lambda m: coo(m) + m.sparse_coo_tensor(size=(3, 5)),
    "sizes of a product": lambda m: m.mm(coo(m), m.ones(3, 2)),
    "sizes with a vector": lambda m: coo(m) @ m.ones(3),
    "dtypes of a product": lambda m: m.mm(coo(m), m.ones(4, 2).double()),
    "coalesce of a dense one": lambda m: m.ones(2).coalesce(),
    "crow_indices": lambda m: coo(m).crow_indices(),
    "indices of rows": lambda m: coo(m).to_sparse_csr().indices(),
    "coalesce of rows": lambda m: coo(m).to_sparse_csr().coalesce(),
    "a part that is written to": lambda m: coo(m).__setitem__(0, 1.0),
    "an index": lambda m: coo(m)[5],
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_in_pytorch(name):
    def program(m):
        with pytest.raises(Exception) as caught:
            REFUSED[name](m)
        return caught.type.__name__, str(caught.value)

    like_pytorch(program)()


@pytest.mark.parametrize("name", ["view", "exp", "max", "tril", "gather", "nonzero"])
def test_what_there_is_not_is_named_with_advice(name):
    arguments = {"view": (12,), "gather": (0, tj.tensor([[0]]))}.get(name, ())
    with pytest.raises(NotImplementedError, match=f"aten::{name}.*'SparseCPU' backend.*to_dense"):
        getattr(coo(tj), name)(*arguments)
    with pytest.raises(NotImplementedError, match="aten::softplus.*to_dense"):
        tj.nn.functional.softplus(coo(tj))


def test_what_does_not_know_of_sparse_tensors_does_not_take_their_values():
    s = coo(tj)
    with tj.DisableTorchFunction(), pytest.raises(Exception, match="sparse|Sparse"):
        (tj.exp(s) + 1).tolist()


def test_indices_are_checked():
    with pytest.raises(RuntimeError, match="size is inconsistent with indices: for dim 0, size is 3 but found index 5"):
        tj.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,))
    assert torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,)).shape == (3,)
