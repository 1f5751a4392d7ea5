"""Programs as they are written for sparse tensors, trained side by side with PyTorch; and files that have some."""

import io
import math
import warnings

import numpy as np
import pytest
from side_by_side import plain, torch

import torchgrad_jax as tj


def losses_as_in_pytorch(program):
    """A test that a program's losses are PyTorch's, but for rounding, which grows."""

    def test():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse (invariant|CSR)|torch.sparse.SparseTensor")
            assert np.allclose(program(tj), program(torch), rtol=2e-3, atol=1e-4)

    return test


def graph(m, n=30, count=90):
    rng = np.random.default_rng(0)
    rows, cols = (np.concatenate(pair) for pair in zip(*[(a, b) for a, b in [rng.integers(0, n, (2, count)), [range(n), range(n)]]], strict=True))
    weights = (1 / np.bincount(rows, minlength=n)[rows]).astype(np.float32)
    return m.sparse.FloatTensor(m.from_numpy(np.vstack((rows, cols)).astype(np.int64)), m.from_numpy(weights), m.Size([n, n]))


def graph_convolution(m):
    class GraphConvolution(m.nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.weight = m.nn.Parameter(m.FloatTensor(inputs, outputs))
            self.bias = m.nn.Parameter(m.FloatTensor(outputs))
            bound = 1.0 / math.sqrt(outputs)
            self.weight.data.uniform_(-bound, bound)
            self.bias.data.uniform_(-bound, bound)

        def forward(self, x, adj):
            return m.spmm(adj, m.mm(x, self.weight)) + self.bias

    class Model(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = GraphConvolution(5, 8), GraphConvolution(8, 3)

        def forward(self, x, adj):
            x = m.nn.functional.dropout(m.relu(self.first(x, adj)), 0.5, training=self.training)
            return m.nn.functional.log_softmax(self.second(x, adj), dim=1)

    return Model


@pytest.mark.slow
@losses_as_in_pytorch
def test_a_graph_convolutional_network(m):
    m.manual_seed(42)
    model, adj = graph_convolution(m)(), graph(m)
    x, y = m.rand(30, 5), m.randint(0, 3, (30,))
    optimizer = m.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    losses = []
    for _ in range(40):
        model.train()
        optimizer.zero_grad()
        loss = m.nn.functional.nll_loss(model(x, adj)[:20], y[:20])
        loss.backward()
        optimizer.step()
        model.eval()
        losses.append(m.nn.functional.nll_loss(model(x, adj)[20:], y[20:]).item())
    return losses


@losses_as_in_pytorch
def test_a_graph_that_changes_under_a_module(m):
    class Model(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.adj, self.layer = graph(m), m.nn.Linear(4, 2)

        def forward(self, x):
            return m.tanh(self.adj @ self.layer(x))

    m.manual_seed(0)
    model, x = Model(), m.rand(30, 4)
    optimizer = m.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for i in range(90):
        if i == 60:
            model.adj = (model.adj * 0.5).coalesce()
        elif i == 70:
            model.adj = model.adj.t()
        elif i == 80:
            model.adj = model.adj.to_sparse_csr()
        loss = (model(x) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.slow
@losses_as_in_pytorch
def test_edges_dropped_at_random(m):
    m.manual_seed(3)
    users, adj = m.nn.Embedding(30, 4), graph(m).coalesce()
    optimizer = m.optim.Adam(users.parameters(), lr=0.01)
    losses = []
    for _ in range(40):
        kept = (m.rand(adj._nnz()) + 0.8).int().bool()
        dropped = m.sparse.FloatTensor(adj.indices().t()[kept].t(), adj.values()[kept] / 0.8, adj.size())
        layers = [users.weight]
        for _ in range(2):
            layers.append(m.sparse.mm(dropped, layers[-1]))
        out = m.stack(layers, dim=1).mean(1)
        a, b = m.randint(0, 30, (2, 8))
        loss = m.nn.functional.softplus((out[a] * out[b]).sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@losses_as_in_pytorch
def test_attention_by_learned_values(m):
    m.manual_seed(1)
    adj, x = graph(m).coalesce(), m.rand(30, 3)
    weights = m.nn.Parameter(m.rand(adj._nnz()))
    optimizer = m.optim.SGD([weights], lr=0.1)
    losses = []
    for _ in range(40):
        attention = m.sparse.softmax(m.sparse_coo_tensor(adj.indices(), weights.exp(), adj.shape).coalesce(), 1)
        loss = (m.sparse.mm(attention, x) - 0.3).pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def saved(m):
    s = m.sparse_coo_tensor(m.tensor([[0, 1, 1], [2, 0, 0]]), m.tensor([1.0, 2.0, 3.0]), (2, 3))
    return {"coo": s, "coalesced": s.coalesce(), "rows": s.to_sparse_csr(), "heads": m.eye(2, dtype=m.bool).to_sparse()}


@pytest.mark.filterwarnings("ignore:Sparse (invariant|CSR)")  # PyTorch warns once
@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("writes, reads", [(tj, tj), (tj, torch), (torch, tj)])
def test_files(writes, reads, weights_only):
    file = io.BytesIO()
    writes.save(saved(writes), file)
    file.seek(0)
    found = reads.load(file, weights_only=weights_only)
    assert plain(list(found.values())) == plain(list(saved(reads).values()))


def test_a_file_that_says_other_things_is_refused():
    made = saved(tj)["coo"]
    made.content.parts[0].add_(7)
    file = io.BytesIO()
    tj.save(made, file)
    file.seek(0)
    with pytest.raises(Exception, match="size is inconsistent with indices"):
        tj.load(file)


def test_modes_see_calls_of_sparse_tensors():
    class Noting(tj.overrides.TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    s = saved(tj)["coo"]
    with Noting() as noting:
        assert tj.mm(s, tj.ones(3, 1)).tolist() == [[1.0], [5.0]]
    assert "mm" in noting.names


def test_products_do_not_become_dense():
    """A matrix that would take 40 GB."""
    n = 100_000
    s = tj.sparse_coo_tensor(tj.stack([tj.arange(n), tj.arange(n).flip(0)]), tj.ones(n), (n, n))
    x = tj.arange(2.0 * n).reshape(n, 2).requires_grad_()
    (s @ x).sum().backward()
    assert tj.equal((s @ x), x.flip(0)) and tj.equal(x.grad, tj.ones(n, 2)) and s.coalesce()._nnz() == n


def test_compared_by_assert_close():
    s = saved(tj)["coo"]
    tj.testing.assert_close(s, s.coalesce() * 1.0000001)
    with pytest.raises(AssertionError, match="layout"):
        tj.testing.assert_close(s, s.to_dense())
    with pytest.raises(AssertionError, match="Mismatched elements: 2 / 6"):
        tj.testing.assert_close(s, s * 2)
