"""`torch.vmap`: the same programs with PyTorch and with ours."""

import functools
from collections import OrderedDict, namedtuple

import pytest
from side_by_side import like_pytorch, programs, shown

pytestmark = pytest.mark.operators

Point = namedtuple("Point", "x y")
program, test_like_pytorch = programs()


def matrix(m, *shape):
    shape = shape or (2, 3)
    return m.arange(functools.reduce(lambda a, b: a * b, shape), dtype=m.float64).reshape(shape) + 1


# ---------------------------------------------------------------------- arguments and results


@program
def dimensions_of_arguments(m):
    x, y = matrix(m), matrix(m, 3, 2)

    def f(a, b):
        return a * b.sum()

    found = [m.vmap(f, in_dims)(x, y) for in_dims in ((0, 1), (-2, -1), (1, 0), (0, None), (None, 0))]
    return found + [m.vmap(lambda a: a * 2, -1)(x)]


@program
def trees_of_arguments(m):
    x, y = matrix(m), matrix(m, 3)

    def f(t, p):
        return {"sum": t["x"] + t["y"], "point": [p.x * p.y]}

    tree, point = {"x": x, "y": y}, Point(x, 2.0)
    found = [m.vmap(f, ({"x": 0, "y": None}, Point(0, None)))(tree, point)]
    found.append(m.vmap(lambda t: t["x"].sum(), ({"x": 1, "y": None},))(OrderedDict(x=x, y=y)))
    found.append(m.vmap(lambda parts: parts[0] * parts[1][0], (0,))([x, (x,)]))
    return shown(found)


@program
def dimensions_of_results(m):
    x = matrix(m, 2, 3, 4)
    return [m.vmap(lambda x: x * 2, out_dims=d)(x) for d in (0, 1, 2, -1, -2, -3)] + [m.vmap(m.sum, 1, (0,))(x)]


@program
def trees_of_results(m):
    x, y = matrix(m), matrix(m, 3)

    def f(x):
        return {"a": x, "b": (x * 2, y, 7), "p": Point(x.sum(), None)}

    found = [m.vmap(f, out_dims={"a": 1, "b": (0, None, None), "p": Point(0, None)})(x)]
    return shown(found + [m.vmap(lambda x: [x, (x, x)], out_dims=[0, 1])(x), m.vmap(lambda x: (), out_dims=0)(x)])


@program
def results_that_are_not_mapped_are_repeated(m):
    y = matrix(m, 3)
    return [m.vmap(lambda x: y)(matrix(m)), m.vmap(lambda x: y * 2, out_dims=None)(matrix(m)), m.vmap(lambda x: m.ones(2))(matrix(m))]


@program
def arguments_that_are_returned(m):
    x = matrix(m)
    found = m.vmap(lambda x: x)(x)
    return [found, m.vmap(lambda x, y: y, (0, None))(x, x)]


@program
def named_results_of_operators(m):
    return shown([m.vmap(lambda x: m.max(x, 0))(matrix(m)), m.vmap(m.linalg.qr)(matrix(m, 2, 3, 3) ** 0.5 + m.eye(3, dtype=m.float64) * 3)[1].abs()])


@program
def keyword_arguments_are_not_mapped(m):
    x = matrix(m)
    return [m.vmap(lambda x, scale: x * scale)(x, scale=x), m.vmap(lambda x, *, k=2.0: x * k)(x, k=3)]


@program
def batches_of_size_zero(m):
    empty = m.zeros(0, 3)
    return [m.vmap(lambda x: x * 2)(empty), m.vmap(lambda x: x.sum())(empty), m.vmap(lambda x: m.ones(2))(empty)]


@program
def methods_modules_and_partials_are_mapped(m):
    x = matrix(m)
    linear = m.nn.Linear(3, 2, dtype=m.float64)
    m.nn.init.ones_(linear.weight), m.nn.init.zeros_(linear.bias)
    return [m.vmap(linear)(x), m.vmap(functools.partial(m.mul, other=matrix(m, 3)))(x), m.vmap(m.Tensor.sum)(x), m.vmap(m.dot)(x, x)]


# ---------------------------------------------------------------------- inside


@program
def what_a_mapped_tensor_says_of_itself(m):
    found = []

    def f(x):
        found.extend([list(x.shape), x.dim(), x.numel(), x.requires_grad, len(x), str(x.dtype), x.size(0)])
        return x

    m.vmap(f, 1)(matrix(m, 3, 2, 4).requires_grad_())
    return found


@program
def nested_maps(m):
    x, y = matrix(m), matrix(m, 4)
    vmap = m.vmap
    return [
        vmap(vmap(lambda x: x * 2))(x), vmap(lambda a: vmap(lambda b: a.sum() + b)(y))(x), vmap(vmap(m.mul, (None, 0)), (0, None))(x[:, 0], y),
        vmap(vmap(lambda x: x * 2, out_dims=1), out_dims=2)(matrix(m, 2, 3, 4)), vmap(vmap(m.dot, (0, None)), (None, 0))(x, x),
        vmap(lambda a: vmap(lambda b: b * a.sum())(a))(x), vmap(lambda a: vmap(lambda b: vmap(lambda c: a.sum() * b * c)(y))(a))(x),
    ]  # fmt: skip


@program
def views_and_writes_inside(m):
    def f(x):
        y = x.clone()
        y[0].mul_(10)
        y.view(-1)[1:] += 1
        y.t_() if y.dim() == 2 else None
        z = m.zeros_like(x)
        z[1:] = y[1:] * 2
        return z, y, x[::2], x.unsqueeze(0).expand(2, -1)

    return shown(m.vmap(f)(matrix(m)))


@program
def arguments_are_written_to(m):
    x, y = matrix(m), matrix(m, 3)
    found = [m.vmap(lambda x: x.mul_(2))(x).clone(), x.clone(), m.vmap(lambda x: y.add_(1))(x), y]
    m.vmap(lambda x: x.fill_(5.0), 1)(x)
    return found + [x]


@program
def indexing_inside(m):
    x = matrix(m, 2, 3, 4)
    i = m.tensor([[0, 2], [1, 1]])
    return [
        m.vmap(lambda x, i: x[i])(x, i), m.vmap(lambda x: x[m.tensor([2, 0])])(x), m.vmap(lambda x, i: x.gather(0, i[:, None]))(x, i),
        m.vmap(lambda x: x[:, None, 1:3])(x), m.vmap(lambda x: m.where(x > 7, x, -x))(x), m.vmap(lambda x, i: x.index_select(1, i))(x, i),
        m.vmap(lambda i: matrix(m, 3, 4)[i])(i), m.vmap(lambda x: x.flip(0).roll(1, 1).transpose(0, 1))(x),
    ]  # fmt: skip


@program
def layers_inside(m):
    F = m.nn.functional
    x = matrix(m, 2, 3, 4, 4) / 10
    w = matrix(m, 2, 3, 2, 2) / 10
    return [
        m.vmap(lambda x: F.conv2d(x[None], w))(x), m.vmap(lambda x, w: F.conv2d(x[None], w[None]), (0, 0))(x, w), m.vmap(lambda x: F.softmax(x,
        -1))(x), m.vmap(lambda x: F.layer_norm(x, (4,)))(x), m.vmap(lambda x: F.max_pool2d(x, 2))(x), m.vmap(lambda x: F.mse_loss(x, x * 2))(x),
        m.vmap(lambda x: F.cross_entropy(x[0], m.tensor([0, 1, 2, 3])))(x), m.vmap(lambda x: F.embedding(m.tensor([1, 0]), x[0]))(x),
    ]  # fmt: skip


@program
def linear_algebra_inside(m):
    a = matrix(m, 2, 3, 3) + 10 * m.eye(3, dtype=m.float64)
    b = matrix(m, 2, 3)
    return [
        m.vmap(m.linalg.inv)(a), m.vmap(m.linalg.solve)(a, b), m.vmap(lambda a, b: a @ b)(a, b), m.vmap(m.linalg.det)(a), m.vmap(m.outer)(b, b),
        m.vmap(lambda a: m.einsum("ij,kj->ik", a, a))(a), m.vmap(lambda b: a @ b)(b), m.vmap(lambda a: a.trace())(a), m.vmap(m.linalg.norm)(b),
    ]  # fmt: skip


@program
def batched_gradients_of_a_graph_from_outside(m):
    x = matrix(m).requires_grad_()
    y = (x**2).sum(0)
    return shown(m.vmap(lambda v: m.autograd.grad(y, x, v, retain_graph=True))(m.eye(3, dtype=m.float64)))


@program
def mapped_results_are_part_of_the_graph_outside(m):
    x, w = matrix(m).requires_grad_(), matrix(m, 3).requires_grad_()
    out = m.vmap(lambda x: (x * w).sin().sum())(x)
    return [out, *m.autograd.grad(out.sum(), (x, w))]


# ---------------------------------------------------------------------- random numbers


@program
def random_numbers_of_each_kind(m):
    x = m.zeros(4, 3, dtype=m.float64)
    found = []
    for randomness in ("same", "different"):
        for chunk_size in (None, 1, 3):
            m.manual_seed(0)
            found += [m.vmap(lambda x: x + m.rand(3, dtype=m.float64), randomness=randomness, chunk_size=chunk_size)(x), m.rand(())]
    return found


@program
def random_numbers_drawn_outside(m):
    m.manual_seed(0)
    noise = m.randn(2, 3, dtype=m.float64)
    return m.vmap(lambda x, n: x + n)(matrix(m), noise)


# ---------------------------------------------------------------------- chunks


@program
def chunks(m):
    x = matrix(m, 5, 3)

    def f(x):
        return {"a": x * 2, "b": (x.sum(), x)}

    found = [m.vmap(f, out_dims={"a": 1, "b": (0, -1)}, chunk_size=size)(x) for size in (1, 2, 4, 5, 9)]
    return shown(found + [m.vmap(lambda x, y: x * y, (1, None), chunk_size=2)(x, matrix(m, 5))])


# ---------------------------------------------------------------------- with other transforms


@program
def gradients_of_each_sample(m):
    w, b = matrix(m, 2, 3) / 10, matrix(m, 2) / 10
    x, y = matrix(m, 4, 3) / 10, matrix(m, 4, 2) / 10

    def loss(p, x, y):
        return ((m.tanh(p["w"] @ x + p["b"]) - y) ** 2).mean()

    return shown([
        m.vmap(m.func.grad(loss), (None, 0, 0))({"w": w, "b": b}, x, y), m.vmap(m.func.grad_and_value(loss), (None, 0, 0))({"w": w, "b": b}, x, y),
        m.vmap(m.func.grad(loss), (None, 0, 0), chunk_size=3)({"w": w, "b": b}, x, y),
    ])  # fmt: skip


@program
def gradients_through_maps(m):
    x = matrix(m)

    def f(x):
        return m.vmap(lambda row: row.prod().sin())(x).sum()

    return [m.func.grad(f)(x), m.func.grad(lambda x: m.func.grad(f)(x).pow(2).sum())(x), m.vmap(m.func.grad(m.func.grad(lambda x: x**3)))(x[0])]


@program
def directional_derivatives_of_each(m):
    x = matrix(m)

    def along(x, t):
        return m.func.jvp(m.sin, (x,), (t,))

    return shown([m.vmap(along)(x, x), m.vmap(along, (None, 0))(x[0], m.eye(3, dtype=m.float64)), m.func.jvp(m.vmap(m.sin), (x,), (x,))])


@program
def cotangents_of_each(m):
    _, vjp_fn = m.func.vjp(lambda x: x.sin(), matrix(m, 3))
    inside = m.vmap(lambda x, c: m.func.vjp(m.exp, x)[1](c)[0])(matrix(m), matrix(m))
    return [m.vmap(vjp_fn)(m.eye(3, dtype=m.float64))[0], inside]


@program
def hessian_vector_products_of_each(m):
    def f(x):
        return (x.sin() * x**2).sum()

    def hvp(x, v):
        return m.func.jvp(m.func.grad(f), (x,), (v,))[1]

    x = matrix(m)
    return [
        m.vmap(hvp)(x, x),
        m.vmap(hvp, (None, 0))(x[0], m.eye(3, dtype=m.float64)),
        m.vmap(lambda x: m.vmap(lambda v: hvp(x, v))(x * m.eye(3, dtype=m.float64)))(x),
    ]


@program
def tensors_made_in_the_likeness_of_mapped_ones(m):
    def f(x):
        made = [
            m.zeros_like(x),
            m.ones_like(x),
            m.empty_like(x),
            m.full_like(x, 2.0),
            x.new_zeros(3),
            x.new_ones(3),
            x.new_full((3,), 3.0),
            x.new_empty(3),
        ]
        for t in made:
            t[0] = x.sum()
            t[1:].add_(x[1:])
        return tuple(t if i not in (2, 7) else t[0] for i, t in enumerate(made))

    x = matrix(m, 2, 3)
    nested = m.vmap(lambda a: m.vmap(lambda b: a.new_zeros(3).add_(a).mul_(2) + b.new_zeros(()).add_(b))(x[0]))(x)
    inside = [m.func.grad(lambda x: m.vmap(f)(x)[0].sum())(x), m.vmap(m.func.grad(lambda x: f(x)[1].pow(2).sum()))(x)]
    return shown([m.vmap(f)(x), nested, inside, m.func.jvp(lambda x: m.vmap(f)(x)[0], (x,), (x,)), m.vmap(lambda x: m.zeros_like(y := x * 2) + y)(x)])


@like_pytorch
def test_the_rule_of_a_function_sees_what_is_in_containers(m):
    told = []

    class Weighted(m.autograd.Function):
        @staticmethod
        def forward(factor, pair, named):
            return pair[0] * factor + named["a"]

        @staticmethod
        def setup_context(*_):
            pass

        @staticmethod
        def vmap(info, in_dims, factor, pair, named):
            told.append((in_dims, info.batch_size, [tuple(t.shape) for t in pair]))
            return pair[0].sum(0) * factor + named["a"], None

    x, named = m.arange(6.0).view(3, 2), {"a": m.ones(2), "b": None}
    for i in range(3):  # also when such calls are remembered
        told.append(m.vmap(lambda row, i=i: Weighted.apply(2, (row, m.ones(2)), named) + i)(x))
        told.append(m.vmap(lambda row: Weighted.apply(row, [m.ones(2), row], named))(x))
    return told


# ---------------------------------------------------------------------- checks of distributions


@program
def parameters_and_values_of_distributions_are_checked_for_the_whole_batch(m):
    D, x = m.distributions, m.tensor([0.5, 1.0, 2.0], dtype=m.float64)
    found = [m.vmap(lambda v: D.Gamma(v, v).log_prob(v + 1))(x), m.vmap(lambda v: D.kl_divergence(D.Normal(v, v), D.Normal(0.0, 1.0)))(x)]
    found.append(m.vmap(m.func.grad(lambda v: D.Beta(v, 2.0).log_prob(m.tensor(0.25, dtype=m.float64))))(x))
    found.append(m.vmap(m.vmap(lambda v: D.Exponential(v).log_prob(v)))(x.view(3, 1)))
    return [*found, m.vmap(lambda v: v if m._is_all_true(v > 0) and m._is_any_true(v > 1) else -v)(x)]


def test_a_distribution_refuses_a_batch_of_which_one_is_wrong():
    import torchgrad_jax as tj

    x = tj.tensor([0.5, -1.0])
    with pytest.raises((ValueError, RuntimeError)):
        tj.vmap(lambda v: tj.distributions.Exponential(v).log_prob(tj.tensor(1.0)))(x)
    with pytest.raises((ValueError, RuntimeError)):
        tj.vmap(lambda v: tj.distributions.Exponential(1.0).log_prob(v))(x)
