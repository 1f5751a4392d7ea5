"""`embedding(sparse=True)` and its like: sparse gradients of tables, and the optimizers that take them."""

import pytest
from side_by_side import like_pytorch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators


def table(m, **options):
    e = m.nn.Embedding(7, 3, sparse=True, **options)
    with m.no_grad():
        e.weight.copy_(m.arange(21.0).reshape(7, 3).sin())
    return e


@like_pytorch
def test_the_gradient_is_sparse(m):
    e, x = table(m), m.tensor([[1, 2], [1, 4]])
    (e(x) ** 2).sum().backward()
    first = e.weight.grad
    e.weight.grad = None
    (e(x.int()) ** 3).sum().backward()
    return first, e.weight.grad, e(x), e(x).grad_fn.name(), m.autograd.grad(e(x).sum(), e.weight)


@like_pytorch
def test_gradients_are_added_up(m):
    e, x = table(m), m.tensor([1, 2, 1])
    e(x).sum().backward()
    e(x).sum().backward()
    twice = e.weight.grad.coalesce()
    e.weight.grad = None
    (e(x).sum() + e(x + 1).sum()).backward()
    both = e.weight.grad.coalesce()
    (e(x).sum() + e.weight.sum()).backward()
    dense = e.weight.grad.clone()
    e(x).sum().backward()
    return twice, both, dense, e.weight.grad


@like_pytorch
def test_padding_hooks_and_zero_grad(m):
    e, x = table(m, padding_idx=2), m.tensor([1, 2, 1])
    handle = e.weight.register_hook(lambda g: g * 2)
    e(x).sum().backward()
    handle.remove()
    hooked = e.weight.grad
    e.zero_grad(set_to_none=False)
    zero = e.weight.grad.coalesce()
    e.zero_grad()
    return hooked, zero, e.weight.grad


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags(mode):
    def program(m):
        e = m.nn.EmbeddingBag(7, 3, sparse=True, mode=mode, padding_idx=3)
        with m.no_grad():
            e.weight.copy_(m.arange(21.0).reshape(7, 3).sin())
        (e(m.tensor([[1, 2], [1, 3], [4, 5]])) ** 2).sum().backward()
        first = e.weight.grad
        e.weight.grad = None
        found = e(m.tensor([1, 2, 4, 3, 5]), m.tensor([0, 2, 2]))
        (found**2).sum().backward()
        return first, found, e.weight.grad

    like_pytorch(program)()


@like_pytorch
def test_bags_with_weights(m):
    e, w = m.nn.EmbeddingBag(7, 3, sparse=True, mode="sum"), m.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    with m.no_grad():
        e.weight.copy_(m.arange(21.0).reshape(7, 3))
    (e(m.tensor([[1, 2], [1, 3]]), per_sample_weights=w) ** 2).sum().backward()
    return e.weight.grad, w.grad


OPTIMIZERS = {
    "SparseAdam": lambda m, p: m.optim.SparseAdam(list(p), lr=0.01),
    "SparseAdam maximize": lambda m, p: m.optim.SparseAdam(list(p), lr=0.01, maximize=True),
    "SGD": lambda m, p: m.optim.SGD(p, lr=0.01),
    "SGD momentum": lambda m, p: m.optim.SGD(p, lr=0.01, momentum=0.9),
    "SGD nesterov": lambda m, p: m.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "Adagrad": lambda m, p: m.optim.Adagrad(p, lr=0.01, lr_decay=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_as_in_pytorch(name):
    def program(m):
        e, layer = table(m).double(), m.nn.Linear(3, 2).double()
        with m.no_grad():
            layer.weight.copy_(m.arange(6.0).reshape(2, 3) / 6)
            layer.bias.zero_()
        optimizer = OPTIMIZERS[name](m, e.parameters())
        for i in range(40):
            x = m.tensor([[i % 7, (3 * i) % 7], [(i * i) % 7, 1]])
            optimizer.zero_grad()
            ((layer(e(x)) - 1) ** 2).sum().backward()
            optimizer.step()
        state = optimizer.state_dict()["state"]
        kept = [v for k, v in state[0].items() if k in ("exp_avg", "exp_avg_sq", "sum")] if state else []
        return e.weight, kept, [sorted(s) for s in state.values()]

    like_pytorch(program)()


@like_pytorch
def test_dense_parameters_beside_sparse_ones(m):
    e, layer = table(m), m.nn.Linear(3, 2)
    with m.no_grad():
        layer.weight.copy_(m.arange(6.0).reshape(2, 3) / 6)
        layer.bias.zero_()
    optimizer = m.optim.SGD([*e.parameters(), *layer.parameters()], lr=0.01, momentum=0.5)
    for i in range(60):
        optimizer.zero_grad()
        ((layer(e(m.tensor([i % 7, 2]))) - 1) ** 2).sum().backward()
        optimizer.step()
    return e.weight, layer.weight, layer.bias


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "ASGD"])
def test_optimizers_that_refuse_them(name):
    def program(m):
        e = table(m)
        e(m.tensor([1])).sum().backward()
        getattr(m.optim, name)(e.parameters()).step()

    like_pytorch(program)()


@like_pytorch
def test_weight_decay_of_adagrad_is_refused(m):
    e = table(m)
    e(m.tensor([1])).sum().backward()
    m.optim.Adagrad(e.parameters(), weight_decay=0.1).step()


@like_pytorch
def test_dense_gradients_are_not_for_sparse_adam(m):
    p = m.nn.Parameter(m.ones(2))
    optimizer = m.optim.SparseAdam([p])
    p.sum().backward()
    optimizer.step()


@pytest.mark.parametrize("make", [lambda m: table(m, scale_grad_by_freq=True), lambda m: m.nn.EmbeddingBag(7, 3, mode="max", sparse=True)])
def test_what_has_no_sparse_gradient(make):
    def program(m):
        make(m)(m.tensor([[1, 2]])).sum().backward()

    like_pytorch(program)()


def test_anomaly_mode_looks_at_the_values():
    e = table(tj)
    with tj.autograd.set_detect_anomaly(True), pytest.warns(UserWarning, match="EmbeddingBackward0|forward"):
        e(tj.tensor([1])).sum().backward()
        with pytest.raises(RuntimeError, match="returned nan values"):
            (e(tj.tensor([1])) * float("nan")).sum().backward()


def test_a_table_that_was_computed_has_a_dense_gradient():
    e, x = table(tj), tj.tensor([1, 2, 1])
    tj.nn.functional.embedding(x, e.weight * 2, sparse=True).sum().backward()
    assert e.weight.grad.tolist() == [[4.0 if i == 1 else 2.0 if i == 2 else 0.0] * 3 for i in range(7)]


@like_pytorch
def test_a_graph_is_freed(m):
    e = table(m)
    out = e(m.tensor([1])).sum()
    out.backward(retain_graph=True)
    out.backward()
    out.backward()
