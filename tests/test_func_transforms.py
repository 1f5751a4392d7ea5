"""`torch.func`'s derivatives: the same programs with PyTorch and with ours."""

import functools

import pytest
from side_by_side import programs, shown, vector

pytestmark = pytest.mark.operators

program, test_like_pytorch = programs()


def ones(m, *shape):
    return m.ones(shape or (3,), dtype=m.float64)


# ---------------------------------------------------------------------- grad


@program
def grad_of_several_arguments(m):
    def f(x, y, z):
        return (x * y * z.sin()).sum()

    args = vector(m), vector(m, 4.0, 5.0, 6.0), vector(m, 0.1, 0.2, 0.3)
    return [shown(m.func.grad(f, argnums)(*args)) for argnums in (0, 1, -1, (0, 2), (2, 0), (1,))]


@program
def grad_of_trees(m):
    tree = {"b": vector(m), "a": [vector(m, 4.0, 5.0, 6.0), (vector(m, 7.0),)], "unused": vector(m)}
    gradients = m.func.grad(lambda t: (t["b"] * t["a"][0]).sum() * t["a"][1][0].sum())(tree)
    return shown(gradients)


@program
def grad_and_value_with_aux(m):
    def f(x, scale):
        y = x * scale
        return (y**2).sum(), {"y": y, "x": x, "constant": ones(m)}

    return [shown(t(f, has_aux=True)(vector(m), vector(m, 2.0, 3.0, 4.0))) for t in (m.func.grad, m.func.grad_and_value)]


@program
def keyword_arguments_are_not_differentiated_and_may_be_no_tensors(m):
    return m.func.grad(lambda x, *, power, weight: (weight * x**power).sum())(vector(m), power=3, weight=vector(m, 1.0, 0.0, 2.0))


@program
def grad_of_grad_of_grad(m):
    def f(x):
        return x.sin() * x.exp()

    found = []
    for _ in range(4):
        found.append(f(m.tensor(0.5, dtype=m.float64)))
        f = m.func.grad(f)
    return found


@program
def perturbations_of_levels_are_not_confused(m):
    grad = m.func.grad
    x = m.tensor(3.0, dtype=m.float64)
    return [
        grad(lambda x: x * grad(lambda y: x + y)(x))(x),
        grad(lambda x: x * grad(lambda y: x * y)(x))(x),
        grad(lambda x: grad(lambda y: y * grad(lambda z: x * y * z)(y))(x))(x),
    ]


@program
def grad_within_no_grad_and_no_grad_within_grad(m):
    x = vector(m).requires_grad_()

    def f(x):
        with m.no_grad():
            constant = x**2
        return (x**3 - constant * x).sum()

    found = [m.func.grad(f)(x)]
    with m.no_grad():
        found += [m.func.grad(f)(x), m.func.grad_and_value(f)(x)[1], m.is_grad_enabled()]
    return found


@program
def results_are_part_of_the_graph_outside(m):
    x = vector(m).requires_grad_()
    w = vector(m, 0.5, 0.6, 0.7).requires_grad_()
    gradient = m.func.grad(lambda v: (w * v**3).sum())(x)
    return [gradient, *m.autograd.grad(gradient.sum(), (x, w))]


@program
def captured_tensors_are_constants_of_the_level(m):
    w = vector(m).requires_grad_()
    return [w.requires_grad, m.func.grad(lambda x: (w * x).sum() + w.sum())(vector(m)), w.grad]


@program
def arguments_may_be_written_to(m):
    x, y = vector(m), vector(m, 4.0, 5.0, 6.0)
    gradient = m.func.grad(lambda a, b: b.mul_(a).sum())(x, y)
    return [gradient, x, y]


@program
def intermediate_tensors_may_be_written_to(m):
    def f(x):
        y = x * 1
        y[0].mul_(10)
        y[1:].pow_(2)
        z = m.zeros(3, dtype=m.float64)
        z.copy_(y)
        return (z * x).sum()

    return [m.func.grad(f)(vector(m)), m.func.grad(lambda x: m.func.grad(f)(x).sum())(vector(m))]


@program
def control_flow_on_values_inside_grad(m):
    def f(x):
        y = x
        while y.sum() < 100:
            y = y * 2
        return y.sum() * x[0].item()

    return m.func.grad(f)(vector(m))


@program
def the_same_tensor_twice(m):
    x = vector(m)
    return [shown(m.func.grad(lambda a, b: (a * b.exp()).sum(), (0, 1))(x, x))]


@program
def autograd_grad_inside_of_grad(m):
    def f(x):
        (g,) = m.autograd.grad((x**3).sum(), x, create_graph=True)
        return (g * x).sum()

    return [m.func.grad(f)(vector(m)), m.func.grad(lambda x: m.func.grad(f)(x).sum())(vector(m))]


@program
def hooks_inside_of_grad(m):
    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * 10)
        return y.sum()

    return m.func.grad(f)(vector(m))


@program
def custom_function_inside_of_transforms(m):
    class Cube(m.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x**2

        @staticmethod
        def jvp(ctx, t):
            (x,) = ctx.saved_tensors
            return t * 3 * x**2

    def f(x):
        return Cube.apply(x).sum()

    x = vector(m)
    return [
        m.func.grad(f)(x), m.func.jvp(Cube.apply, (x,), (ones(m),))[1], m.func.jacrev(Cube.apply)(x), m.vmap(m.func.grad(Cube.apply))(x),
        m.func.grad(lambda x: m.func.grad(f)(x).sum())(x),
    ]  # fmt: skip


@program
def complex_gradients(m):
    z = m.tensor([1 + 2j, 3 - 1j], dtype=m.complex128)
    return [m.func.grad(lambda z: (z * z.conj()).real.sum())(z), m.func.grad(lambda z: (z**2).abs().sum())(z)]


# ---------------------------------------------------------------------- vjp


@program
def vjp_of_trees(m):
    def f(t, y):
        return {"product": t["x"] * y, "parts": [t["x"].sum(), (y.exp(),)]}

    output, vjp_fn = m.func.vjp(f, {"x": vector(m)}, vector(m, 0.1, 0.2, 0.3))
    cotangents = {"product": ones(m), "parts": [m.tensor(2.0, dtype=m.float64), (vector(m),)]}
    return [shown(output), shown(vjp_fn(cotangents))]


@program
def vjp_functions_are_called_later_and_again(m):
    _, vjp_fn = m.func.vjp(lambda x, y: (x * y).sin(), vector(m), vector(m, 4.0, 5.0, 6.0))
    found = [shown(vjp_fn(ones(m))), shown(vjp_fn(2 * ones(m)))]
    found.append(shown(m.vmap(vjp_fn)(m.eye(3, dtype=m.float64))))
    return found + [shown(vjp_fn(ones(m), retain_graph=False))]


@program
def a_vjp_function_without_its_graph(m):
    _, vjp_fn = m.func.vjp(m.sin, vector(m))
    vjp_fn(ones(m))
    with m.no_grad():
        return [shown(vjp_fn(ones(m).requires_grad_())), shown(vjp_fn(ones(m).requires_grad_(), create_graph=True))]


@program
def vjp_functions_differentiated_by_what_is_outside(m):
    x = vector(m)
    by_cotangent = m.func.grad(lambda c: m.func.vjp(m.sin, x)[1](c)[0].sum())(ones(m))
    by_primal = m.func.grad(lambda x: m.func.vjp(m.sin, x)[1](ones(m))[0].sum())(x)
    _, vjp_fn = m.func.vjp(m.sin, x)
    later = m.func.grad(lambda c: vjp_fn(c * c)[0].sum())(2 * ones(m))
    forward = m.func.jvp(lambda c: vjp_fn(c)[0], (ones(m),), (vector(m),))
    return [by_cotangent, by_primal, later, shown(forward)]


@program
def vjp_under_no_grad(m):
    x = vector(m).requires_grad_()
    with m.no_grad():
        output, vjp_fn = m.func.vjp(lambda x: x**2, x)
        inside = vjp_fn(ones(m))
    outside = vjp_fn(ones(m))
    return [output, shown(inside), shown(outside)]


@program
def vjp_of_what_does_not_depend_on_the_primal(m):
    w = vector(m).requires_grad_()
    output, vjp_fn = m.func.vjp(lambda x, y: (w, x.detach(), y), vector(m), vector(m))
    return [shown(output), shown(vjp_fn((ones(m), ones(m), ones(m))))]


@program
def vjp_with_aux(m):
    output, vjp_fn, aux = m.func.vjp(lambda x: (x.sin(), [x.cos(), x]), vector(m), has_aux=True)
    return [output, shown(aux), shown(vjp_fn(ones(m)))]


@program
def cotangents_of_another_dtype_are_converted(m):
    return shown(m.func.vjp(m.sin, vector(m))[1](m.ones(3)))


# ---------------------------------------------------------------------- jvp


@program
def jvp_of_trees(m):
    def f(t, y):
        return {"product": t["x"] * y, "parts": [t["x"].sum(), (y.exp(),)]}

    output, tangents = m.func.jvp(f, ({"x": vector(m)}, vector(m, 0.1, 0.2, 0.3)), ({"x": ones(m)}, vector(m)))
    return [shown(output), shown(tangents)]


@program
def jvp_of_jvp_of_jvp(m):
    def along(f):
        return lambda x: m.func.jvp(f, (x,), (ones(m),))[1]

    def f(x):
        return x.sin() * x.exp()

    return [f(vector(m)), along(f)(vector(m)), along(along(f))(vector(m)), along(along(along(f)))(vector(m))]


@program
def tangents_of_jvp_levels_are_not_confused(m):
    one, x = m.tensor(1.0, dtype=m.float64), m.tensor(3.0, dtype=m.float64)

    def d(f, x):
        return m.func.jvp(f, (x,), (one,))[1]

    return [d(lambda x: x * d(lambda y: x + y, one), x), d(lambda x: x * d(lambda y: x * y, x), x)]


@program
def jvp_with_aux_and_constants(m):
    output = m.func.jvp(lambda x: ((x * 2, ones(m), x.detach()), {"aux": x * 3}), (vector(m),), (ones(m),), has_aux=True)
    return shown(output)


@program
def jvp_is_not_touched_by_no_grad(m):
    def f(x):
        with m.no_grad():
            return x**2

    with m.no_grad():
        return shown(m.func.jvp(f, (vector(m),), (ones(m),)))


@program
def jvp_is_part_of_the_graph_outside(m):
    x, t = vector(m).requires_grad_(), ones(m).requires_grad_()
    output, tangent = m.func.jvp(lambda x: x**3, (x,), (t,))
    return [output, tangent, *m.autograd.grad(tangent.sum(), (x, t))]


@program
def forward_over_reverse_over_forward(m):
    def f(x):
        return (x.sin() * x**2).sum()

    x, v = vector(m), vector(m, 0.5, -1.0, 2.0)

    def product(x):
        return m.func.jvp(m.func.grad(f), (x,), (v,))[1]

    return [product(x), m.func.jvp(product, (x,), (v,))[1], m.func.vjp(product, x)[1](v)[0]]


# ---------------------------------------------------------------------- Jacobians


def function_of_two(x, y):
    return {"matrix": x[:, None] * y, "number": (x * y[0]).sum()}


@program
def jacobians_of_trees_by_argnums(m):
    x, y = vector(m), vector(m, 4.0, 5.0)
    found = []
    for jac in (m.func.jacrev, m.func.jacfwd):
        for argnums in (0, 1, (0, 1), (1, 0), (1,)):
            found.append(shown(jac(function_of_two, argnums)(x, y)))
    found.append(shown(m.func.jacfwd(function_of_two, None)(x, y)))
    return found


@program
def jacobians_of_dicts_of_parameters(m):
    parameters = {"w": m.arange(6.0, dtype=m.float64).reshape(2, 3), "b": vector(m, 1.0, 2.0)}

    def f(p, x):
        return (p["w"] @ x + p["b"]).tanh()

    return [shown(jac(f)(parameters, vector(m, 0.1, 0.2, 0.3))) for jac in (m.func.jacrev, m.func.jacfwd)]


@program
def jacobians_in_chunks(m):
    def f(x):
        return (x[:, None] * x, x.sum())

    return [
        shown(m.func.jacrev(f, chunk_size=size, _preallocate_and_copy=copied)(vector(m))) for size in (None, 1, 2, 5, 100) for copied in (False, True)
    ]


@program
def jacobians_with_aux(m):
    def f(x):
        return (x**2, {"aux": x * 3, "same": x})

    return [shown(jac(f, has_aux=True)(vector(m))) for jac in (m.func.jacrev, m.func.jacfwd)]


@program
def jacobians_of_nothing(m):
    empty = m.zeros(0, dtype=m.float64)
    found = []
    for jac in (m.func.jacrev, m.func.jacfwd, m.func.hessian):
        found += [jac(lambda x: x**2)(empty), shown(jac(lambda x: (x, x[:0]))(vector(m))), jac(lambda x: ones(m))(vector(m))]
    return found


@program
def jacobians_of_jacobians(m):
    def f(x):
        return x.sin() * x.prod()

    jacs = m.func.jacrev, m.func.jacfwd
    return [outer(inner(f))(vector(m)) for outer in jacs for inner in jacs]


@program
def hessians(m):
    def f(x, y):
        return (x.sin() * y**2).sum() * x[0]

    x, y = vector(m), vector(m, 4.0, 5.0, 6.0)
    return [shown(m.func.hessian(f, argnums)(x, y)) for argnums in (0, 1, (0, 1))] + [shown(m.func.hessian(lambda t: t["a"].prod())({"a": x}))]


@program
def jacobians_inside_and_outside_of_vmap(m):
    x = m.arange(6.0, dtype=m.float64).reshape(2, 3)

    def f(x):
        return x.sin() * x.sum()

    return [
        m.vmap(m.func.jacrev(f))(x), m.vmap(m.func.jacfwd(f))(x), m.vmap(m.func.hessian(lambda x: f(x).sum()))(x),
        m.func.jacrev(m.vmap(f))(x), m.func.jacfwd(m.vmap(f))(x), m.vmap(m.func.jacrev(f, chunk_size=2), out_dims=1)(x),
    ]  # fmt: skip


@program
def jacobians_with_random_numbers(m):
    def f(x):
        return x * m.rand(3, dtype=m.float64)

    found = []
    for randomness in ("same", "different"):
        m.manual_seed(0)
        found.append(m.func.jacfwd(f, randomness=randomness)(vector(m)))
    m.manual_seed(0)
    found.append(shown(m.func.jacfwd(lambda x: (f(x), f(x)), has_aux=True, randomness="different")(vector(m))))
    m.manual_seed(0)
    return found + [m.func.jacrev(f)(vector(m))]


@program
def jacobians_are_part_of_the_graph_outside(m):
    x = vector(m).requires_grad_()
    found = []
    for jac in (m.func.jacrev, m.func.jacfwd):
        jacobian = jac(lambda x: x**3)(x)
        found += [jacobian, *m.autograd.grad((jacobian * jacobian).sum(), x)]
    return found


# ---------------------------------------------------------------------- linearize, functionalize


@program
def linearize_of_trees(m):
    def f(t, y):
        return (t["x"] * y, {"sum": t["x"].sum(), "constant": ones(m)})

    output, jvp_fn = m.func.linearize(f, {"x": vector(m)}, vector(m, 0.1, 0.2, 0.3))
    tangents = {"x": ones(m)}, vector(m)
    return [shown(output), shown(jvp_fn(*tangents)), shown(m.vmap(jvp_fn)({"x": m.eye(3, dtype=m.float64)}, m.eye(3, dtype=m.float64)))]


@program
def linearize_of_a_function_that_writes_to_its_argument(m):
    def f(x):
        x[0] = 3.0
        return x * x

    x = vector(m)
    output, jvp_fn = m.func.linearize(f, x)
    return output, jvp_fn(vector(m, 1.0, 1.0, 1.0)), jvp_fn(vector(m, 1.0, 2.0, 3.0)), x


@program
def linearize_of_outputs_with_no_derivative(m):
    output, jvp_fn = m.func.linearize(lambda x: (x.long(), x, x.detach()), vector(m))
    return [shown(output), shown(jvp_fn(ones(m)))]


@program
def functionalized_functions(m):
    def f(x, scale=2.0):
        y = x.clone()
        y[1:].mul_(scale)
        return y, 1, None

    x = vector(m)
    inplace = m.func.functionalize(lambda x: x.mul_(2), remove="mutations_and_views")
    return [shown(m.func.functionalize(f)(x)), shown(m.func.functionalize(f)(x, scale=3.0)), inplace(x), x]


@program
def names_of_transformed_functions(m):
    def f(x):
        """What it does."""
        return x.sum()

    transforms = m.vmap, m.func.grad, m.func.grad_and_value, m.func.jacrev, m.func.jacfwd, m.func.hessian, m.func.functionalize
    return [(t(f).__name__, t(f).__doc__, t(f).__wrapped__ is f or t is m.func.hessian) for t in transforms]


@program
def transforms_as_decorators(m):
    @m.func.grad
    def g(x):
        return (x**2).sum()

    @functools.partial(m.vmap, in_dims=(0, None))
    def v(x, y):
        return (x * y).sum()

    return [g(vector(m)), v(m.eye(3, dtype=m.float64), vector(m))]


@program
def debug_unwrap_shows_what_is_inside(m):
    found = []

    def f(x):
        found.extend([m.func.debug_unwrap(x), m.func.debug_unwrap(m.func.debug_unwrap(x, recurse=False)), m.func.debug_unwrap(x * 2)])
        return x.sum()

    x = m.ones(2, 3, dtype=m.float64)
    m.vmap(m.func.grad(f))(x)
    m.func.grad(lambda x: m.vmap(f)(x).sum())(x)
    return found + [m.func.debug_unwrap(x) is x]


@program
def what_is_written_without_a_graph_keeps_the_graphs_of_all_levels(m):
    x = m.tensor([0.5, 1e-8, 2.0], dtype=m.float64)

    def f(v):
        r = v.clone()
        with m.no_grad():
            r.clamp_(min=1e-6)
        return (r * r * r).sum()

    each, slope = m.func.vmap(f), m.func.grad(f)
    return [
        shown(m.func.grad(lambda v: slope(v).sum())(x)),
        shown(m.func.grad(lambda v: each(v.reshape(3, 1)).sum())(x)),
        shown(m.func.vmap(slope)(x.reshape(3, 1))),
        shown(m.func.jacrev(slope)(x)),
    ]
