"""Gradients through sparse tensors: with respect to their values, to dense operands and to the sparse tensors themselves."""

import math

import pytest
from side_by_side import like_pytorch

import torchgrad_jax as tj

INDICES = [[0, 2, 1, 1, 0], [2, 1, 0, 0, 3]]


def operands(m):
    v = m.tensor([1.0, 4.0, 2.0, 3.0, -1.0], requires_grad=True)
    x = m.arange(8.0).reshape(4, 2).requires_grad_()
    return v, x, m.sparse_coo_tensor(m.tensor(INDICES), v, (3, 4))


def weighted(t, m):
    """A number that depends on every element of a dense tensor in its own way."""
    return (t * m.arange(1.0, 1 + t.numel()).reshape(t.shape)).sum()


OF_VALUES = {
    "to_dense": lambda m, s, x: s.to_dense(),
    "coalesce": lambda m, s, x: s.coalesce().to_dense(),
    "values": lambda m, s, x: s.coalesce().values(),
    "mm": lambda m, s, x: m.mm(s, x),
    "sparse.mm": lambda m, s, x: m.sparse.mm(s, x),
    "matmul": lambda m, s, x: s @ x,
    "transposed": lambda m, s, x: s.t() @ m.ones(3, 2),
    "addmm": lambda m, s, x: m.sparse.addmm(x[:3], s, x, beta=2, alpha=3),
    "scaled": lambda m, s, x: m.sparse.mm(s * 3, x),
    "masked": lambda m, s, x: (s.coalesce() * m.arange(12.0).reshape(3, 4)).to_dense(),
    "sum": lambda m, s, x: m.sparse.sum(s),
    "sum of rows": lambda m, s, x: m.sparse.sum(s, 1).to_dense(),
    "softmax": lambda m, s, x: m.sparse.softmax(s.coalesce(), 1).to_dense(),
    "log_softmax": lambda m, s, x: m.sparse.log_softmax(s.coalesce(), 0).to_dense(),
    "difference": lambda m, s, x: (s.coalesce() - s.coalesce() * 0.5).to_dense(),
    "added to a dense one": lambda m, s, x: m.ones(3, 4) + s,
    "picked": lambda m, s, x: s.coalesce().index_select(0, m.tensor([1, 1])).to_dense(),
    "two sparse ones": lambda m, s, x: m.sparse.mm(s, s.t()).to_dense(),
}


@pytest.mark.parametrize("name", [name for name in OF_VALUES if name != "picked"])  # which has no derivative there
def test_as_in_pytorch(name):
    def program(m):
        v, x, s = operands(m)
        weighted(OF_VALUES[name](m, s, x), m).backward()
        return v.grad, x.grad

    like_pytorch(program)()


@pytest.mark.operators
@pytest.mark.parametrize("name", [name for name in OF_VALUES if name != "masked"])  # whose mask is of single precision
def test_as_of_dense_tensors(name):
    def made(v, x):
        v, x = v.double(), x.double()
        return OF_VALUES[name](tj, tj.sparse_coo_tensor(tj.tensor(INDICES), v, (3, 4)), x)

    v, x = (tj.linspace(1, 5, math.prod(shape), dtype=tj.float64).view(shape).cos().add(3).requires_grad_() for shape in ((5,), (4, 2)))
    before = tj.get_default_dtype()
    tj.set_default_dtype(tj.float64)
    try:
        assert tj.autograd.gradcheck(made, (v, x))
        assert tj.autograd.gradgradcheck(made, (v, x))
    finally:
        tj.set_default_dtype(before)


@like_pytorch
def test_of_a_sparse_leaf(m):
    found = []
    for coalesced in (True, False):
        _, x, s = operands(m)
        leaf = (s.detach().coalesce() if coalesced else s.detach()).requires_grad_()
        weighted(m.sparse.mm(leaf, x), m).backward()
        found += [leaf.grad.coalesce(), leaf.requires_grad, leaf.is_leaf, x.grad]
        leaf.grad = None
        weighted(leaf.to_dense(), m).backward()
        found += [leaf.grad.coalesce(), m.autograd.grad(m.sparse.mm(leaf, x).sum(), leaf)[0].coalesce()]
    return found


@like_pytorch
def test_hooks_see_sparse_gradients(m):
    _, x, s = operands(m)
    leaf, seen = s.detach().coalesce().requires_grad_(), []
    leaf.register_hook(lambda g: seen.append((str(g.layout), tuple(g.shape))))
    leaf.register_hook(lambda g: g * 2)
    m.sparse.mm(leaf, x).sum().backward()
    return seen, leaf.grad.coalesce()


@like_pytorch
def test_requires_grad_and_names(m):
    v, x, s = operands(m)
    with m.no_grad():
        without = m.sparse_coo_tensor(m.tensor(INDICES), v, (3, 4))
    told = s.requires_grad, s.is_leaf, without.requires_grad, s.detach().requires_grad, s._values().requires_grad, s.coalesce().values().requires_grad
    return told, [t.grad_fn.name() for t in (s, s.coalesce(), s * 2, s.t(), m.sparse.mm(s, x))], s.detach().requires_grad_().is_leaf


@like_pytorch
def test_a_function_that_makes_and_saves_a_sparse_matrix(m):
    class Product(m.autograd.Function):
        @staticmethod
        def forward(ctx, indices, values, shape, b):
            a = m.sparse_coo_tensor(indices, values, shape)
            ctx.save_for_backward(a, b)
            ctx.n = shape[1]
            return m.matmul(a, b)

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            places = a._indices()[0, :] * ctx.n + a._indices()[1, :]
            return None, grad.matmul(b.t()).view(-1)[places], None, a.t().matmul(grad)

    v, x, _ = operands(m)
    for _ in range(20):
        weighted(Product.apply(m.tensor(INDICES), v.exp(), m.Size([3, 4]), x), m).backward()
    return v.grad, x.grad


@like_pytorch
def test_a_function_of_a_sparse_matrix(m):
    class Product(m.autograd.Function):
        @staticmethod
        def forward(ctx, s, x):
            ctx.save_for_backward(s, x)
            return m.mm(s, x)

        @staticmethod
        def backward(ctx, grad):
            s, x = ctx.saved_tensors
            rows, cols = s._indices()
            values = (grad[rows] * x[cols]).sum(1)
            return (m.sparse_coo_tensor(s._indices(), values, s.shape) if ctx.n == 0 else grad @ x.t()), s.t() @ grad

    found = []
    for n in range(2):
        v, x, _ = operands(m)
        s = m.sparse_coo_tensor(m.tensor([[0, 2, 1], [2, 1, 0]]), v[:3], (3, 4)).coalesce()
        Product.n = n
        weighted(Product.apply(s, x), m).backward()
        found += [v.grad, x.grad]
    return found


@like_pytorch
def test_backward_from_a_sparse_tensor(m):
    v, x, s = operands(m)
    s.backward(m.arange(12.0).reshape(3, 4))
    first = v.grad.clone()
    v.grad = None
    m.autograd.backward([(s.detach().coalesce() * v.sum()).coalesce()], [m.ones(3, 4)])
    return first, v.grad


@like_pytorch
def test_gradients_of_rows_compressed(m):
    v, x = m.tensor([1.0, 2.0, 3.0], requires_grad=True), m.arange(8.0).reshape(4, 2).requires_grad_()
    s = m.sparse_csr_tensor(m.tensor([0, 1, 1, 3]), m.tensor([2, 0, 3]), v.detach(), (3, 4))
    weighted(s @ x, m).backward()
    return x.grad


def test_values_of_rows_compressed_have_gradients():
    tj.manual_seed(0)
    v, x = tj.randn(3, dtype=tj.float64, requires_grad=True), tj.randn(4, 2, dtype=tj.float64, requires_grad=True)

    def product(v, x):
        s = tj.sparse_csr_tensor(tj.tensor([0, 1, 1, 3]), tj.tensor([2, 0, 3]), v, (3, 4))
        return s @ x, (s * 2).to_dense(), s.t() @ x[:3]

    assert tj.autograd.gradcheck(product, (v, x))


def test_transforms_of_products_with_a_constant_sparse_matrix():
    s = tj.sparse_coo_tensor(tj.tensor(INDICES), tj.arange(5, dtype=tj.float64), (3, 4))
    x, dense = tj.linspace(-2, 3, 40, dtype=tj.float64).view(5, 4, 2), s.to_dense()
    assert tj.allclose(tj.func.vmap(lambda a: tj.sparse.mm(s, a))(x), dense @ x)
    f, g = (lambda a: tj.sparse.mm(s, a).sin().sum()), lambda a: (dense @ a).sin().sum()
    assert tj.allclose(tj.func.grad(f)(x[0]), tj.func.grad(g)(x[0]))
    assert tj.allclose(tj.func.hessian(f)(x[0]), tj.func.hessian(g)(x[0]))
    assert tj.allclose(tj.func.jvp(f, (x[0],), (x[1],))[1], tj.func.jvp(g, (x[0],), (x[1],))[1])
    compiled = tj.compile(lambda a: tj.sparse.mm(s, a).sin().sum())
    assert all(tj.allclose(compiled(a), g(a)) for a in x)


def test_checkpoints():
    v, x, s = operands(tj)
    tj.utils.checkpoint.checkpoint(lambda s, x: tj.sparse.mm(s, x).sin(), s, x, use_reentrant=False).sum().backward()
    v2, x2, s2 = operands(tj)
    tj.sparse.mm(s2, x2).sin().sum().backward()
    assert tj.equal(v.grad, v2.grad) and tj.equal(x.grad, x2.grad)


def test_autocast_casts_products():
    v, x, s = operands(tj)
    with tj.autocast("cpu", dtype=tj.bfloat16):
        found = tj.sparse.mm(s, tj.mm(x.t(), tj.ones(4, 4)).t())
    found.sum().backward()
    assert found.dtype is tj.bfloat16 and v.grad.dtype is tj.float32


@like_pytorch
def test_hooks_of_what_a_product_saves_get_no_indices(m):
    seen = []
    sparse = m.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]).to_sparse()
    dense = m.ones(3, 2, requires_grad=True)
    with m.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(t.is_floating_point()), t * 2)[1], lambda t: t):
        y = m.sparse.mm(sparse, dense)
    y.sum().backward()
    return seen, dense.grad
