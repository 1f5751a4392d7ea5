"""Arithmetic, reductions and products of sparse tensors: side by side with PyTorch, and against dense ones."""

import numpy as np
import pytest
from side_by_side import like_pytorch

pytestmark = pytest.mark.operators


def pair(m, coalesced=True):
    a = m.sparse_coo_tensor(m.tensor([[0, 1, 2, 2], [2, 0, 1, 3]]), m.tensor([1.0, 5.0, 4.0, -2.0]), (3, 4))
    b = m.sparse_coo_tensor(m.tensor([[0, 1, 2], [2, 1, 1]]), m.tensor([10.0, 20.0, 30.0]), (3, 4))
    return (a.coalesce(), b.coalesce()) if coalesced else (a, b)


@like_pytorch
def test_sums(m):
    a, b = pair(m)
    x = m.arange(12.0).reshape(3, 4)
    return a + b, a - b, m.add(a, b, alpha=2), x + a, x - a, m.add(x, a, alpha=3), a + a, a + a.int(), x.clone().add_(a, alpha=-1)


@like_pytorch
def test_products_element_by_element(m):
    a, b = pair(m)
    u, _ = pair(m, False)
    x = m.arange(12.0).reshape(3, 4)
    return a * 2, 3 * a, a / 2, a * m.tensor(2.0), a * b, u * b, a * x, x * a, u * x, a * m.arange(4.0), a * m.arange(3.0)[:, None], a // 2, a * 2.5


@like_pytorch
def test_functions_of_the_elements(m):
    a, _ = pair(m)
    u = a * 0.1
    named = ("abs", "sin", "tan", "sinh", "tanh", "asin", "atan", "expm1", "log1p", "floor", "ceil", "round", "sign", "sqrt", "relu", "isnan")
    return [getattr(m, name)(u) for name in named], -a, a**2, a.pow(3), abs(a), a.neg()


@like_pytorch
def test_reductions(m):
    a, _ = pair(m)
    rows = m.sparse_coo_tensor([[0, 2, 0]], m.arange(6.0).reshape(3, 2), (3, 2))
    sums = m.sparse.sum(a), m.sparse.sum(a, 0), m.sparse.sum(a, [1]), m.sparse.sum(a, (0, 1)), a.sum(), a.sum(1), m.sparse.sum(a, dtype=m.float64)
    return sums, m.sparse.sum(rows, 1), m.sparse.sum(rows, 0), m.sparse.sum(rows), a.norm(), a.sum(1, keepdim=True), a.any()


@like_pytorch
def test_softmax(m):
    a, _ = pair(m)
    rows = m.sparse_coo_tensor([[0, 2, 1]], m.arange(6.0).reshape(3, 2), (3, 2)).coalesce()
    wide = m.sparse_coo_tensor([[0, 0, 1, 1], [1, 0, 0, 2], [0, 0, 1, 1]], [1.0, 2.0, 3.0, 4.0], (2, 3, 2)).coalesce()
    found = [f(x, d) for f in (m.sparse.softmax, m.sparse.log_softmax) for x, dims in ((a, 2), (rows, 2), (wide, 3)) for d in range(dims)]
    return found, m.sparse.softmax(a, 1, dtype=m.float64)


@like_pytorch
def test_matrix_products(m):
    a, _ = pair(m)
    u = m.sparse_coo_tensor(m.tensor([[2, 0, 2], [1, 1, 1]]), m.tensor([1.0, 2.0, 3.0]), (3, 4))
    x, y = m.arange(8.0).reshape(4, 2), m.arange(6.0).reshape(2, 3)
    found = [m.mm(a, x), m.spmm(a, x), m.sparse.mm(a, x), a @ x, a.mm(x), a.matmul(x), u @ x, y @ a, m.sparse.mm(y, a), a @ x[:, 0], m.mv(a, x[:, 1])]
    found += [m.sparse.addmm(m.ones(3, 2), a, x, beta=2, alpha=3), m.addmm(m.ones(3, 2), a, x), y[0] @ a, a.t() @ y.t(), m.dsmm(a, x)]
    return found, m.nn.functional.linear(a, m.ones(5, 4), m.ones(5)), m.bmm(m.stack([a, u]), m.ones(2, 4, 2))


@like_pytorch
def test_products_of_two_sparse_matrices(m):
    a, b = pair(m)
    u, _ = pair(m, False)
    return m.sparse.mm(a, b.t()), a @ b.t(), u.t() @ b, m.sparse.mm(a, m.sparse_coo_tensor(size=(4, 2)))


@like_pytorch
def test_written_into_out_and_taken_by_none(m):
    a, _ = pair(m)
    out = m.empty(3, 2)
    found = m.mm(a, m.ones(4, 2), out=out)
    return found is out, out, a[None], a[:, 1], a.new_zeros(2, 3), m.nn.functional.dropout(a, 0.5, training=False)


@like_pytorch
def test_masks_and_diagonals(m):
    a, b = pair(m)
    x = m.arange(12.0).reshape(3, 4)
    diagonals = m.sparse.spdiags(m.arange(9.0).reshape(3, 3), m.tensor([0, -1, 2]), (4, 4))
    return x.sparse_mask(a), b.sparse_mask(a), diagonals, m.sparse.spdiags(m.ones(2, 3), m.tensor([0, 1]), (3, 3), layout=m.sparse_csr)


@like_pytorch
def test_rows_compressed(m):
    a, _ = pair(m)
    c = a.to_sparse_csr()
    x = m.arange(8.0).reshape(4, 2)
    made = m.sparse_csr_tensor(m.tensor([0, 1, 2]), m.tensor([0, 1]), m.tensor([1.0, 2.0]), size=(2, 3), dtype=m.float64)
    told = c.crow_indices(), c.col_indices(), c.values(), c._nnz(), c.layout is m.sparse_csr, c.is_sparse_csr, c.is_sparse, c.sparse_dim()
    return (
        made,
        told,
        c @ x,
        c @ x[:, 0],
        m.ones(2, 3) @ c,
        c * 2,
        c + c,
        c.t(),
        c.t() @ m.ones(3, 1),
        c.to_dense(),
        c.to_sparse(),
        c.to_sparse_coo(),
        c[0],
    )


@like_pytorch
def test_other_compressed_layouts_and_text(m):
    a, _ = pair(m)
    x = m.arange(12.0).reshape(3, 4)
    made = m.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0])
    return (
        x.to_sparse_csr(),
        a.to_sparse_csc(),
        made,
        [repr(t) for t in (made, a.to_sparse_csr().double(), a.to_sparse_csc())],
        made.clone(),
        made.double(),
    )


def random(m, rng, shape, count, requires_grad=False):
    indices = m.tensor(np.stack([rng.integers(0, n, count) for n in shape]))
    return m.sparse_coo_tensor(indices, m.tensor(rng.standard_normal(count).astype(np.float32)), shape)


@pytest.mark.parametrize("seed", range(5))
def test_random_tensors_as_in_pytorch(seed):
    def program(m):
        rng = np.random.default_rng(seed)
        a, b = random(m, rng, (7, 6), 15), random(m, rng, (7, 6), 10)
        x, y = (m.tensor(rng.standard_normal(s).astype(np.float32)) for s in ((6, 3), (7, 6)))
        c, d = a.coalesce(), b.coalesce()
        found = [c, c + d, c * d, a * y, y + a, a @ x, c.t() @ y, m.sparse.mm(c, d.t()), c.index_select(0, m.tensor([3, 3, 0])), m.sparse.sum(a, 0)]
        return (
            found,
            m.sparse.softmax(c, 0),
            (a + b).to_dense(),
            c.to_sparse_csr(),
            m.cat([a, b]).coalesce(),
            m.stack([a, b]).coalesce(),
            (a - d).to_dense(),
        )

    like_pytorch(program)()
