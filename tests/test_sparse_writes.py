"""What is written into sparse tensors, and what goes on as it was: leaves, their gradients, who shares their values."""

import pytest
from side_by_side import like_pytorch

import torchgrad_jax as tj


def square(requires_grad: bool = False, coalesced: bool = True) -> tj.Tensor:
    s = tj.sparse_coo_tensor(tj.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), tj.tensor([1.0, 2.0, 3.0, 4.0]), (3, 3))
    return (s.coalesce() if coalesced else s).requires_grad_(requires_grad)


@pytest.mark.parametrize("name", ["t", "coalesce", "to_sparse_csr"])
def test_what_is_made_while_no_graph_is_recorded_has_no_history(name):
    v = tj.tensor([1.0, 2.0], requires_grad=True)
    s = tj.sparse_coo_tensor(tj.tensor([[1, 0], [0, 1]]), v, (2, 2))
    with tj.no_grad():
        found = getattr(s, name)()
    assert found.grad_fn is None and found.is_leaf


def test_a_view_made_while_no_graph_is_recorded_is_a_leaf_of_its_own():
    s = square(True)
    with tj.no_grad():
        views = [s.t(), s.permute(0, 1), s.unsqueeze(0), s.select(0, 1)]
    assert all(v.requires_grad and v.is_leaf for v in views)
    tj.sparse.sum(views[0] * 2).backward()
    assert s.grad is None and tj.equal(views[0].grad.to_dense(), 2 * (s.detach().to_dense().t() != 0))


def test_deepcopy_of_a_leaf_while_no_graph_is_recorded_keeps_its_gradient():
    import copy

    s = square(True)
    tj.sparse.sum(s * 2).backward()
    with tj.no_grad():
        twin = copy.deepcopy(s)
    assert twin.requires_grad and tj.equal(twin.grad.to_dense(), s.grad.to_dense())


def test_a_leaf_that_is_written_keeps_its_gradient_and_hooks():
    s, seen = square(True), []
    s.register_hook(lambda g: seen.append(g.to_dense().sum().item()))
    for _ in range(3):
        tj.sparse.sum(s * s).backward()
        with tj.no_grad():
            s.mul_(0.5)
            s.neg_()
    assert seen == [20.0, -10.0, 5.0]
    assert s.grad.to_dense().sum().item() == 15.0 and s.is_leaf and s.requires_grad


def test_a_leaf_that_gets_other_elements_keeps_its_gradient():
    s = square(True)
    tj.sparse.sum(s * 2).backward()
    with tj.no_grad():
        s.add_(tj.eye(3).to_sparse())
    assert tj.equal(s.grad.to_dense(), 2.0 * (square().to_dense() != 0))


def test_data_of_a_leaf_may_be_replaced():
    s = square(True)
    tj.sparse.sum(s * s).backward()
    s.data = square() * 3
    tj.sparse.sum(s).backward()
    assert s.is_leaf and s.requires_grad
    assert tj.equal(s.grad.to_dense(), 2 * square().to_dense() + (square().to_dense() != 0))
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        s.data = tj.ones(3, 3)


@pytest.mark.parametrize("coalesced", [True, False])
def test_writing_zeros_into_a_gradient_clears_it(coalesced):
    s = square(True, coalesced)
    for _ in range(3):
        tj.sparse.sum(s * 2).backward()
        assert s.grad.to_dense().sum().item() == 8.0
        s.grad.zero_()
    s.grad.add_(square())
    assert s.grad.to_dense().sum().item() == 10.0


def test_functions_of_single_elements_write_where_others_see_it_and_sums_and_products_do_not():
    for write, expected in (("neg_", -10.0), ("abs_", 10.0), ("mul_", 10.0), ("zero_", 10.0), ("add_", 10.0)):
        s = square()
        getattr(s.detach(), write)(*{"mul_": (2,), "add_": (s,)}.get(write, ()))
        assert s.to_dense().sum().item() == expected, write


def test_a_table_is_given_a_sparse_gradient():
    p = tj.nn.Parameter(tj.ones(3, 2))
    optimizer = tj.optim.SGD([p], lr=0.5)
    for _ in range(3):
        p.grad = tj.sparse_coo_tensor([[0, 2, 2]], tj.ones(3, 2), (3, 2))
        optimizer.step()
    assert p.tolist() == [[-0.5, -0.5], [1.0, 1.0], [-2.0, -2.0]]
    with pytest.raises(RuntimeError, match="attempting to assign a gradient of size"):
        p.grad = tj.sparse_coo_tensor([[0]], tj.ones(1, 2), (4, 2))
    with pytest.raises(RuntimeError, match="attempting to assign a gradient with dtype"):
        p.grad = tj.sparse_coo_tensor([[0]], tj.ones(1, 2, dtype=tj.float64), (3, 2))


def test_lbfgs_takes_sparse_gradients_and_fused_optimizers_refuse_them():
    p, i = tj.nn.Parameter(tj.ones(3, 2)), tj.tensor([0, 2])
    optimizer = tj.optim.LBFGS([p])

    def closure():
        optimizer.zero_grad()
        loss = tj.nn.functional.embedding(i, p, sparse=True).pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert tj.allclose(p, tj.tensor([[0.0, 0], [1, 1], [0, 0]]), atol=1e-5)
    closure()
    with pytest.raises(RuntimeError, match="`_fused_sgd` does not support sparse gradients"):
        tj.optim.SGD([p], fused=True).step()
    with pytest.raises(RuntimeError, match="`fused` does not support sparse grad or complex param"):
        tj.optim.Adagrad([p], fused=True).step()


def test_matrices_are_transposed_in_place_and_copied_into_ordinary_ones():
    s, d = square(), tj.zeros(3, 3)
    assert s.t_() is s and tj.equal(s.to_dense(), square().to_dense().t())
    assert tj.equal(s.transpose_(0, 1).to_dense(), square().to_dense())
    assert tj.equal(d.copy_(s), s.to_dense())


@pytest.mark.parametrize(
    "call, kind, words",
    [
        (lambda s: tj.mm(s, 2.0), TypeError, "argument 'mat2' (position 2) must be Tensor, not float"),
        (lambda s: tj.mv(s, 2.0), TypeError, "argument 'vec' (position 2) must be Tensor, not float"),
        (lambda s: tj.matmul(s, 2.0), TypeError, "argument 'other' (position 2) must be Tensor, not float"),
        (lambda s: tj.sparse.sum(s, (0, 0)), RuntimeError, "dim 0 appears multiple times in the list of dims"),
        (lambda s: s.index_select(0, tj.tensor([0.0])), IndexError, "index_select() argument index must be 1-D"),
        (lambda s: tj.stack([s, tj.ones(3, 3)]), RuntimeError, "a dense tensor was found at position 1."),
        (lambda s: s.requires_grad_().mul_(2), RuntimeError, "a leaf Variable that requires grad is being used in an in-place operation."),
    ],
)
def test_refusals_are_in_the_words_of_pytorch(call, kind, words):
    with pytest.raises(kind) as error:
        call(square())
    assert words in str(error.value)


@like_pytorch
def test_writes_are_counted(m):
    found = []
    for write in (
        lambda s: s.mul_(2), lambda s: s.add_(s.clone()), lambda s: s.zero_(), lambda s: s.copy_(s * 2), lambda s: s.neg_(), lambda s: s.div_(2),
        lambda s: s.sparse_resize_((4, 5), 2, 0), lambda s: s._coalesced_(True), lambda s: s._values().mul_(2),
    ):  # fmt: skip
        s = m.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]).to_sparse()
        for _ in range(3):
            write(s)
            found.append(s._version)
    return found


@like_pytorch
def test_the_size_is_changed_in_place(m):
    def made(*sizes):
        return m.ones(*sizes).to_sparse(1) if sizes else m.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]).to_sparse()

    found = []
    for change in (
        lambda: made().sparse_resize_((3, 4), 2, 0), lambda: made().sparse_resize_((1, 2), 2, 0), lambda: made().sparse_resize_((2, 3, 4), 2, 1),
        lambda: made().sparse_resize_((2, 3, 4), 3, 0), lambda: made().sparse_resize_((2,), 2, 0), lambda: made(2, 3).sparse_resize_((2, 2), 1, 1),
        lambda: made(2, 3).sparse_resize_((4, 3), 1, 1), lambda: made(2, 3).sparse_resize_((4, 3), 2, 0),
        lambda: made().zero_().sparse_resize_((1, 2, 4), 1, 2), lambda: made().sparse_resize_and_clear_((4, 5, 6), 1, 2),
        lambda: made(2, 3).sparse_resize_and_clear_((4,), 1, 0), lambda: made().resize_as_sparse_(m.ones(4, 4).to_sparse()),
        lambda: made().resize_as_(made(2, 3)), lambda: made().resize_as_(m.ones(2, 4).to_sparse()),
        lambda: made().requires_grad_().sparse_resize_((3, 4), 2, 0),
    ):  # fmt: skip
        try:
            s = change()
            found.append((s.to_dense(), s._nnz(), s.sparse_dim(), s.dense_dim(), s.is_coalesced(), s._indices().shape, s._values().shape))
        except RuntimeError as error:
            found.append(str(error))
    return found, [made().is_same_size(other) for other in (made(), made(2, 3), m.ones(2, 3), made(3, 3))], m.ones(2, 3).is_same_size(made())
