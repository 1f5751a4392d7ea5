"""Whole programs with `torch.func`, as people write them: the same with PyTorch and with ours."""

import pytest
from side_by_side import error_of, like_pytorch, programs, vector

pytestmark = pytest.mark.operators

program, test_like_pytorch = programs()


def counted(m, *shape):
    return m.arange(float(m.Size(shape).numel()), dtype=m.float64).reshape(shape)


def items(d):
    return [list(d), list(d.values())]


@program
def model_agnostic_meta_learning(m):
    def net(p, x):
        return ((x[:, None] @ p[0] + p[1]).relu() @ p[2] + p[3])[:, 0]

    def loss(p, x, y):
        return ((net(p, x) - y) ** 2).mean()

    def after_a_step(p, x, y, x2, y2):
        stepped = [a - 0.1 * g for a, g in zip(p, m.func.grad(loss)(p, x, y), strict=True)]
        return loss(stepped, x2, y2)

    def over_tasks(p):
        return m.vmap(after_a_step, (None, 0, 0, 0, 0))(p, xs, xs.sin(), xs + 0.1, xs.sin() * 0.9).mean()

    parameters = [counted(m, 1, 4) / 4 - 0.3, m.ones(4).double() / 10, counted(m, 4, 1) / 5, m.zeros(1).double()]
    xs = m.stack([vector(m, 0.1, 0.5, 0.9), vector(m, 0.2, 1.0, 1.8)])
    return [m.func.grad(over_tasks)(parameters), over_tasks(parameters)]


@program
def forces_of_a_potential(m):
    def energy(v):
        r = m.linalg.norm(v)
        return 0.1 * ((0.5 / r) ** 12 - (0.5 / r) ** 6)

    at = counted(m, 4, 3) / 10 + 0.5
    return [m.vmap(m.func.jacrev(energy))(at), m.vmap(m.func.hessian(energy))(at), m.func.jacrev(m.vmap(energy))(at)]


@program
def gradients_of_each_sample_of_a_recurrent_net(m):
    def last(w, x):
        h = m.zeros(3, dtype=m.float64)
        for t in range(4):
            h = m.tanh(w @ h + x[t])
        return h.sum()

    w, x = counted(m, 3, 3) / 10, counted(m, 2, 4, 3) / 20
    return [m.vmap(m.func.grad(last), (None, 0))(w, x), m.func.hessian(last)(w, x[0]).sum((0, 1))]


@program
def a_training_loop_on_dicts_of_parameters(m):
    model = m.nn.Sequential(m.nn.Linear(3, 4), m.nn.Tanh(), m.nn.Linear(4, 1)).double()
    for i, p in enumerate(model.parameters()):
        m.nn.init.constant_(p, 0.1 * (i + 1))
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    x, y = counted(m, 5, 3) / 10, counted(m, 5, 1) / 5

    def loss(p):
        return m.nn.functional.mse_loss(m.func.functional_call(model, p, (x,)), y)

    values = []
    for _ in range(6):
        gradients, value = m.func.grad_and_value(loss)(parameters)
        parameters = {name: p - 0.1 * gradients[name] for name, p in parameters.items()}
        values.append(value)
    return values + items(parameters)


@program
def gradients_reach_the_parameters_of_the_module_itself(m):
    layer = m.nn.Linear(3, 1).double()
    m.nn.init.ones_(layer.weight), m.nn.init.zeros_(layer.bias)
    gradients = m.func.grad(lambda p: m.func.functional_call(layer, p, m.ones(2, 3).double()).pow(2).sum())(dict(layer.named_parameters()))
    sum(g.sum() for g in gradients.values()).backward()
    return [*gradients.values(), layer.weight.grad, layer.bias.grad]


@program
def batch_norm_for_each_of_several_batches(m):
    layer = m.func.replace_all_batch_norm_modules_(m.nn.BatchNorm1d(3).double())
    parameters = dict(layer.named_parameters())
    return m.vmap(lambda x: m.func.functional_call(layer, parameters, (x,)))(counted(m, 2, 4, 3))


@program
def backward_through_transforms(m):
    x = vector(m).requires_grad_()
    m.func.vjp(lambda x: x**3, x)[1](vector(m))[0].sum().backward()
    m.vmap(m.func.grad(lambda v: v**3))(x).sum().backward()
    return x.grad


@program
def batched_products_with_create_graph(m):
    x = vector(m).requires_grad_()
    y = x.sin()
    jacobian = m.vmap(lambda v: m.autograd.grad(y, x, v, retain_graph=True, create_graph=True)[0])(m.eye(3).double())
    return [jacobian, m.autograd.grad(jacobian.sum(), x)[0]]


@program
def four_levels_of_four_kinds(m):
    def f(x):
        def of_each(a):
            return m.func.jvp(lambda b: m.func.grad(lambda c: c**2 * a)(b), (a,), (m.ones_like(a),))[1]

        return m.vmap(of_each)(x)

    return [f(vector(m)), m.func.jacrev(f)(vector(m)), m.func.jacfwd(f)(vector(m))]


@program
def no_grad_between_levels(m):
    def f(x):
        with m.no_grad():
            constant = m.func.grad(lambda y: (y**3).sum())(x)
        return (constant * x).sum()

    return [m.func.grad(f)(vector(m)), m.func.grad(lambda x: m.func.grad(f)(x).sum())(vector(m))]


@program
def detached_parts(m):
    return m.func.grad(lambda x: (x * x.detach()).sum() + x.clone().sum() + (x.data * x).sum())(vector(m))


@program
def tensors_filled_in_place(m):
    def f(x):
        z = m.zeros(3, dtype=m.float64)
        z[0] = x[0]
        z[1:] = x[1:] * 2
        return z.pow(2).sum()

    x = vector(m)
    return [m.func.grad(f)(x), *m.func.jvp(f, (x,), (x,)), m.func.hessian(f)(x)]


@program
def views_written_to_for_each_sample(m):
    def f(w, x):
        y = w * x
        y[0].zero_()
        y[1:].add_(1)
        return (y**2).sum()

    return [m.vmap(m.func.grad(f), (None, 0))(vector(m), m.ones(2, 3).double()), *m.func.jvp(lambda w: f(w, vector(m)), (vector(m),), (vector(m),))]


@program
def forward_mode_switched_off(m):
    ad = m.autograd.forward_ad
    x, one = vector(m), m.ones(3).double()

    def f(x):
        with ad._set_fwd_grad_enabled(False):
            constant = x**2
        return x**3 - constant

    with ad._set_fwd_grad_enabled(False):
        outside = m.func.jvp(lambda x: x**2, (x,), (one,))
    return [*outside, *m.func.jvp(f, (x,), (one,)), *m.func.jvp(lambda x: m.func.jvp(f, (x,), (one,))[1], (x,), (one,))]


@program
def seeds_inside_and_outside(m):
    def seeded(x):
        m.manual_seed(3)
        return (x * m.rand(3, dtype=m.float64)).sum()

    found = [m.func.grad(seeded)(vector(m))]
    m.manual_seed(0)
    return found + [m.func.grad(lambda x: (x * m.randn(3, dtype=m.float64)).sum())(vector(m)), m.rand(2)]


KINDS = {
    "randn": lambda m, x: m.randn(2), "randn_like": lambda m, x: m.randn_like(x), "bernoulli": lambda m, x: m.bernoulli(x.clamp(0, 1)),
    "randint": lambda m, x: m.randint(0, 10, (2,)), "randperm": lambda m, x: m.randperm(4), "normal": lambda m, x: m.normal(0.0, 1.0, (2,)),
    "uniform_": lambda m, x: x.clone().uniform_(), "normal_": lambda m, x: m.zeros(2).normal_(), "dropout": lambda m, x: m.nn.functional.dropout(x +
    1), "multinomial": lambda m, x: m.multinomial(x.abs() + 1, 2, replacement=True), "generator": lambda m, x: m.rand(2,
    generator=m.Generator().manual_seed(1)), }  # fmt: skip


@pytest.mark.parametrize("randomness", ["same", "different"])
@pytest.mark.parametrize("kind", KINDS)
def test_random_numbers_inside_vmap_like_pytorch(kind, randomness):
    def of(m):
        m.manual_seed(0)
        x, found = m.arange(6.0).reshape(3, 2) / 10, []
        failed = error_of(lambda: found.append(m.vmap(lambda x: KINDS[kind](m, x), randomness=randomness)(x)))
        return [found, None if failed is None else failed[0]]

    like_pytorch(of)()


CHOSEN = {
    "rows of matrices": lambda m, x: m.multinomial(x, 2),
    "with replacement": lambda m, x: m.multinomial(x, 4, replacement=True),
    "one of each row": lambda m, x: m.multinomial(x, 1),
    "in an inner vmap": lambda m, x: m.vmap(lambda row: m.multinomial(row, 2), randomness="different")(x),
    "of one matrix for all": lambda m, x: m.multinomial(m.arange(1.0, 5).reshape(2, 2), 2) + 0 * x.sum(),
    "with a generator": lambda m, x: m.multinomial(x, 2, generator=m.Generator().manual_seed(1)),
    "three dimensions": lambda m, x: m.multinomial(x[None], 2),
    "more than there are": lambda m, x: m.multinomial(x, 5),
}


@pytest.mark.parametrize("randomness", ["same", "different", "error"])
@pytest.mark.parametrize("kind", CHOSEN)
def test_multinomial_of_matrices_inside_vmap_like_pytorch(kind, randomness):
    def of(m):
        m.manual_seed(0)
        x, found = (m.arange(24.0).reshape(3, 2, 4) * 7 % 11).transpose(0, 1), []
        failed = error_of(lambda: found.append(m.vmap(lambda x: CHOSEN[kind](m, x), in_dims=1, randomness=randomness)(x)))
        return [found, failed]

    like_pytorch(of)()


# ---------------------------------------------------------------------- custom Functions


def square(m, **more):
    class Square(m.autograd.Function):
        @staticmethod
        def forward(x):
            return x**2

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    for name, value in more.items():
        setattr(Square, name, value)
    return Square


@program
def functions_with_a_generated_rule(m):
    apply = square(m, generate_vmap_rule=True).apply
    x = vector(m)
    return [m.vmap(apply)(x), m.vmap(m.func.grad(apply))(x), m.func.grad(lambda x: m.vmap(apply)(x).sum())(x), m.func.jacrev(apply)(x)]


@program
def functions_with_a_rule_of_their_own(m):
    seen = []

    def rule(info, in_dims, x):
        seen.append([info.batch_size, info.randomness, len(in_dims)])
        return Square.apply(x), in_dims[0]

    Square = square(m, vmap=staticmethod(rule))
    x = vector(m)
    return [m.vmap(Square.apply)(x), m.vmap(Square.apply, 1, randomness="same")(m.ones(2, 3) * 2), m.vmap(m.func.grad(Square.apply))(x), seen]


@program
def functions_of_several_arguments(m):
    class Product(m.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x, y, k):
            return x * y * k, x + 1

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs[:2])
            ctx.k = inputs[2]
            ctx.mark_non_differentiable(output[1])

        @staticmethod
        def backward(ctx, g, _):
            x, y = ctx.saved_tensors
            return g * y * ctx.k, None, None

    f = lambda x, y: Product.apply(x, y, 3)[0].sum()  # noqa: E731
    return [
        *m.func.grad(f, (0, 1))(vector(m), vector(m)), *m.vmap(m.func.grad(f, (0, 1)), (0, None))(m.ones(2, 3).double(), vector(m)),
        *m.vmap(lambda x: Product.apply(x, vector(m), 2))(counted(m, 2, 3)),
    ]  # fmt: skip


def both_kinds(m):
    return square(m, generate_vmap_rule=True, vmap=staticmethod(lambda info, in_dims, x: (x, 0)))


def old_style(m):
    class Old(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g

    return Old


REFUSED = {
    "no rule": lambda m: m.vmap(square(m).apply)(vector(m)),
    "two rules": lambda m: m.vmap(both_kinds(m).apply)(vector(m)),
    "a rule that returns no dimensions": lambda m: m.vmap(square(m, vmap=staticmethod(lambda info, in_dims, x: x)).apply)(vector(m)),
    "forward with a ctx, grad": lambda m: m.func.grad(lambda x: old_style(m).apply(x).sum())(vector(m)),
    "forward with a ctx, vmap": lambda m: m.vmap(old_style(m).apply)(vector(m)),
    "no jvp": lambda m: m.func.jvp(square(m).apply, (vector(m),), (vector(m),)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_functions_that_are_refused_like_pytorch(name):
    like_pytorch(lambda m: (error_of(lambda: REFUSED[name](m)) or [None, ""])[0])()


@pytest.mark.parametrize("transform", ["grad", "vmap"])
def test_hooks_of_saved_tensors_around_transforms_like_pytorch(transform):
    def of(m):
        with m.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
            return (m.vmap if transform == "vmap" else m.func.grad)(m.sin)(m.tensor([1.0]) if transform == "vmap" else m.tensor(1.0))

    like_pytorch(of)()


@program
def transforms_inside_of_inference_mode(m):
    x = vector(m)
    with m.inference_mode():
        made = vector(m) * 2
        found = [m.func.grad(lambda x: (x**2).sum())(x), m.func.grad(lambda x: (x**3).sum())(made), m.vmap(m.func.grad(lambda x: x**2))(made)]
        found += [*m.func.vjp(m.sin, x)[1](made), m.func.jacrev(m.sin)(x), *m.func.jvp(m.sin, (x,), (made,))]
        found.append(m.func.hessian(lambda x: x.prod())(made))
    return [t.clone() for t in found]
