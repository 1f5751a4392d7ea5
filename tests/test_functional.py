"""`torch.autograd.functional`, held against PyTorch: results and their structure, and what can be differentiated."""

from __future__ import annotations

import pytest
from functional_calls import ALL, SECOND, call, for_all, of, outcomes, structure, values
from side_by_side import error_of, leaf, like_pytorch

pytestmark = pytest.mark.operators


# ---------------------------------------------------------------------- what is returned


@for_all
def test_results(m, name):
    x, w = values(m, 0.5, -1.0, 2.0), values(m, 1.5, 0.25, -2.0)

    def two(a, b):
        return (a * a * b).sum() if name in (*SECOND, "hessian") else a * a * b

    v = (w, x) if name != "vjp" else w
    return outcomes(
        m,
        [
            lambda: call(m, name, of(name), x, w),
            lambda: call(m, name, of(name), (x,), (w,)),
            lambda: call(m, name, two, (x, w), v),
            lambda: call(m, name, of(name), values(m, 2.0).reshape(()), m.tensor(3.0, dtype=m.float64)),
            lambda: call(m, name, lambda a: two(a, a), x.reshape(3, 1), w.reshape(3, 1)),
            lambda: call(m, name, two, (x.float(), w), v),
            lambda: call(m, name, of(name), x.expand(2, 3), m.ones(2, 3)),
        ],
    )


@like_pytorch
def test_several_outputs(m):
    x, w = values(m, 0.5, -1.0, 2.0), values(m, 1.5, 0.25)

    def func(a, b):
        return a * a * b[0], b * a.sum(), b[1]

    vectors = (values(m, 1.0, 2.0, 3.0), values(m, -1.0, 0.5), m.tensor(2.0, dtype=m.float64))
    found = m.autograd.functional
    return [
        found.vjp(func, (x, w), vectors), found.jvp(func, (x, w), (x, w)), found.jacobian(func, (x, w)),
        found.jacobian(func, (x, w), vectorize=True), found.jacobian(func, (x, w), vectorize=True, strategy="forward-mode"),
        found.jacobian(func, (x, w), create_graph=True), found.jacobian(func, (x, w), create_graph=True, vectorize=True),
    ]  # fmt: skip


@like_pytorch
def test_tuples_and_lists_of_results(m):
    x, found = values(m, 0.5, -1.0, 2.0), []
    for options in ({}, {"vectorize": True}, {"vectorize": True, "strategy": "forward-mode"}):
        for inputs in (x, (x,)):
            for func in (lambda a: a * a, lambda a: (a * a,), lambda a: (a * a, a.sum())):
                found.append(structure(m.autograd.functional.jacobian(func, inputs, **options)))
    for options in ({}, {"vectorize": True}, {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}):
        for inputs in (x, (x,)):
            found.append(structure(m.autograd.functional.hessian(lambda a: (a**3).sum(), inputs, **options)))
        found.append(structure(m.autograd.functional.hessian(lambda a, b: (a * b).sum(), (x, x), **options)))
    return found


@like_pytorch
def test_the_vector_may_be_left_out_for_one_element(m):
    one, found = values(m, 2.0), m.autograd.functional
    return outcomes(
        m,
        [
            lambda: found.vjp(lambda a: a.exp().sum(), values(m, 1.0, 2.0)),
            lambda: found.vjp(lambda a: a.exp().sum().reshape(1, 1), values(m, 1.0, 2.0)),
            lambda: found.jvp(lambda a: a * values(m, 1.0, 2.0), one),
            lambda: found.vhp(lambda a: (a**3).sum(), one),
            lambda: found.hvp(lambda a: (a**3).sum(), one.reshape(())),
            lambda: found.vjp(lambda a: a.exp(), values(m, 1.0, 2.0)),
            lambda: found.jvp(lambda a: a.exp(), values(m, 1.0, 2.0)),
            lambda: found.vhp(lambda a: a.sum(), values(m, 1.0, 2.0)),
            lambda: found.hvp(lambda a, b: a.sum(), (one, one)),
        ],
    )


@for_all
def test_inputs_that_are_not_used_count_as_zero(m, name):
    x, w, p = values(m, 0.5, -1.0, 2.0), values(m, 1.5, 0.25, -2.0), leaf(m, 1.0, 2.0, 3.0)
    number = name in (*SECOND, "hessian")
    funcs = [lambda a, b: a**3, lambda a, b: w, lambda a, b: p * 2, lambda a, b: p, lambda a, b: a.detach() * b, lambda a, b: a + b]
    v = (w, x) if name != "vjp" else w
    cases = []
    for func in funcs:
        for options in ({}, {"create_graph": True}):
            cases.append(lambda f=func, o=options: call(m, name, (lambda a, b: f(a, b).sum()) if number else f, (x, w), v, **o))
    return outcomes(m, cases)


@for_all
def test_complex_numbers(m, name):
    z = m.tensor([1 + 2j, 3 - 1j], dtype=m.complex128)
    r = values(m, 2.0, 1.0)
    return outcomes(
        m,
        [
            lambda: call(m, name, lambda a: a * a, z, z),
            lambda: call(m, name, lambda a: (a * a.conj()).real, z, r if name == "vjp" else z),
            lambda: call(m, name, lambda a: (a * a.conj()).real.sum(), z, m.tensor(1.0, dtype=m.float64) if name == "vjp" else z),
        ],
    )


@like_pytorch
def test_complex_jacobians_by_vectorized_passes(m):
    z, r = m.tensor([1 + 2j, 3 - 1j], dtype=m.complex128), values(m, 2.0, 1.0)
    jacobian = m.autograd.functional.jacobian
    forward = {"vectorize": True, "strategy": "forward-mode"}
    return [
        jacobian(lambda a: a * a, z, vectorize=True), jacobian(lambda a: a.real * a.imag, z, vectorize=True),
        jacobian(lambda a: a * a, z, **forward), jacobian(lambda a: a.real * a.imag, z, **forward),
        jacobian(lambda a, b: (a * b).real, (z, r), vectorize=True), jacobian(lambda a: a.real * a.imag, z),
    ]  # fmt: skip


@for_all
def test_no_elements(m, name):
    nothing = m.zeros(0, 2, dtype=m.float64)
    number = m.tensor(1.0, dtype=m.float64)
    return outcomes(
        m,
        [
            lambda: call(m, name, lambda a: a.exp().sum(), nothing, number if name == "vjp" else nothing),
            lambda: call(m, name, lambda a: a.exp(), nothing, nothing),
            lambda: call(m, name, lambda: number * 2, (), number if name == "vjp" else ()),
            lambda: call(m, name, lambda a: (), number, number),
        ],
    )


@like_pytorch
def test_vectorized_jacobians_of_no_elements(m):
    nothing, x = m.zeros(0, 2, dtype=m.float64), values(m, 1.0, 2.0)
    jacobian = m.autograd.functional.jacobian
    return outcomes(
        m,
        [
            lambda: jacobian(lambda a: a.exp(), nothing, vectorize=True),
            lambda: jacobian(lambda a: (a[:0], a * 2), x, vectorize=True),
            lambda: jacobian(lambda a: (a[:0], a * 2), x),
            lambda: jacobian(lambda a: m.zeros(0), x, vectorize=True),
            lambda: jacobian(lambda a: (), x, vectorize=True),
            lambda: jacobian(lambda a: a.exp(), nothing, vectorize=True, strategy="forward-mode"),
            lambda: jacobian(lambda a: a[:0], x, vectorize=True, strategy="forward-mode"),
            lambda: jacobian(lambda: x, (), vectorize=True, strategy="forward-mode"),
        ],
    )


# ---------------------------------------------------------------------- differentiated again


@for_all
def test_results_can_be_differentiated(m, name):
    found = []
    for needs in (True, False):
        x, v = values(m, 0.5, -1.0, 2.0).requires_grad_(needs), leaf(m, 1.5, 0.25, -2.0)
        number = name in (*SECOND, "hessian")
        result = call(m, name, (lambda a: (a**4).sum() * a[0]) if number else (lambda a: a**3 * a[0]), x, v, create_graph=True)
        product = result[1] if isinstance(result, tuple) else result
        wanted = ([x] if needs else []) + ([] if name in ("jacobian", "hessian") else [v])
        found.append([product, m.autograd.grad((product**2).sum(), wanted, create_graph=True) if wanted else None])
    return found


@like_pytorch
def test_derivatives_of_derivatives(m):
    x = values(m, 0.5, -1.0, 2.0)
    jacobian = m.autograd.functional.jacobian
    found = []
    for options in ({}, {"vectorize": True}):

        def once(f, o=options):
            return lambda a: jacobian(f, a, create_graph=True, **o)

        found.append(jacobian(once(once(lambda a: (a**4).sum() * a[0] * a[1])), x))
        found.append(m.autograd.functional.hessian(lambda a: once(lambda b: b * a * b)(a).sum(), x))
        found.append(jacobian(lambda a: jacobian(lambda b: b**3, a).sum(0), x, **options))
        found.append(jacobian(lambda a: jacobian(lambda b: a * b**3, x, create_graph=True).sum(0), x, **options))
    return found


@like_pytorch
def test_gradients_reach_what_the_function_uses(m):
    x, w = values(m, 0.5, -1.0, 2.0), leaf(m, 1.0, 2.0, 3.0)
    found = []
    for options in ({}, {"vectorize": True}):
        result = m.autograd.functional.jacobian(lambda a: m.tanh(a * w), x, create_graph=True, **options)
        w.grad = None
        (result**2).sum().backward()
        found.append(w.grad)
    result = m.autograd.functional.hessian(lambda a: m.tanh(a * w).sum(), x, create_graph=True)
    return found, m.autograd.grad(result.sum(), w)


@like_pytorch
def test_the_inputs_stay_as_they_are(m):
    x = leaf(m, 0.5, -1.0)
    y = values(m, 0.5, -1.0)
    for name in ALL:
        call(m, name, of(name), x, y)
        call(m, name, of(name), y, y)
    return x.grad, y.grad, x.requires_grad, y.requires_grad, x._version, y._version, x.is_leaf, y.is_leaf


@for_all
def test_under_no_grad(m, name):
    x, v = leaf(m, 0.5, -1.0), values(m, 2.0, 1.0)
    seen = []

    def func(a):
        seen.append([m.is_grad_enabled(), a.requires_grad, a.is_leaf])
        return of(name)(a)

    with m.no_grad():
        found = [call(m, name, func, x, v), call(m, name, func, x, v, create_graph=True), m.is_grad_enabled()]
    return found, seen


@for_all
def test_inplace_operations_and_views_in_the_function(m, name):
    x, v = values(m, 0.5, -1.0, 2.0, 3.0), values(m, 1.0, 2.0, 3.0, 4.0)

    def written(a):
        b = a.clone()
        b[1:3].mul_(a[:2])
        b.view(2, 2)[0].add_(b[0] * 2)
        return (b * b).sum() if name in (*SECOND, "hessian") else b * b

    def broken(a):
        b = a * 1
        c = b * b
        b.add_(1)
        return c.sum() if name in (*SECOND, "hessian") else c

    return outcomes(
        m,
        [
            lambda: call(m, name, written, x, v),
            lambda: call(m, name, written, x, v),
            lambda: call(m, name, written, x, v),
            lambda: error_of(lambda: call(m, name, broken, x, v))[1][:99],
            lambda: call(m, name, lambda a: of(name)(a.mul_(2)), x.clone(), v),
        ],
    )


@like_pytorch
def test_a_function_may_write_to_what_it_captured_in_forward_mode(m):
    buffer = values(m, 1.0, 2.0, 3.0)

    def count(x):
        buffer.add_(1)
        buffer[0] = 5
        buffer.mul_(x.detach())
        return x * buffer

    rows = [m.autograd.functional.jacobian(count, values(m, 1.0, 2.0, 2.0), vectorize=True, strategy="forward-mode") for _ in range(4)]
    return [r.tolist() for r in rows], buffer.tolist(), buffer._version
