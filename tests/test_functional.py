"""`torch.autograd.functional`, held against PyTorch: results and their structure, what can be differentiated, strict mode, and every error's text."""

from __future__ import annotations

import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from side_by_side import error_of, leaf, like_pytorch, plain  # noqa: E402 - needs torch

pytestmark = pytest.mark.operators

PRODUCTS, SECOND = ("vjp", "jvp"), ("vhp", "hvp")
ALL = (*PRODUCTS, "jacobian", *SECOND, "hessian")


def values(m, *numbers, dtype="float64"):
    return m.tensor(list(numbers), dtype=getattr(m, dtype))


def call(m, name, func, inputs, v=None, **options):
    """One of the six functions; those that take no vector are given none."""
    function = getattr(m.autograd.functional, name)
    return function(func, inputs, **options) if name in ("jacobian", "hessian") else function(func, inputs, v, **options)


def outcomes(m, cases):
    """What each of several calls returns or raises."""
    found = []
    for case in cases:
        try:
            found.append(plain(case()))
        except Exception as error:
            found.append([type(error).__name__, str(error)])
    return found


def structure(x):
    return [type(x).__name__, [structure(y) for y in x]] if isinstance(x, (tuple, list)) else list(x.shape)


def for_all(program):
    """A test for each of the six functions."""

    @pytest.mark.parametrize("name", ALL)
    def test(name):
        like_pytorch(lambda m: program(m, name))()

    test.__name__, test.__doc__ = program.__name__, program.__doc__
    return test


def of(name):
    """A function of one tensor whose derivative this is: of its elements, or for a Hessian a number."""
    return (lambda x: (x**3).sum()) if name in (*SECOND, "hessian") else (lambda x: x.exp())


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


# ---------------------------------------------------------------------- strict mode


@for_all
def test_strict_mode(m, name):
    x, w, p = values(m, 0.5, -1.0, 2.0), values(m, 1.5, 0.25, -2.0), leaf(m, 1.0, 2.0, 3.0)
    number = name in (*SECOND, "hessian")
    funcs = [
        lambda a, b: a**3 * b**3, lambda a, b: a**3, lambda a, b: b**3, lambda a, b: a * 2 + b * 2, lambda a, b: w, lambda a, b: p * 2,
        lambda a, b: a * p + b, lambda a, b: a**3 + b * p, lambda a, b: a * b, lambda a, b: a**3 + b**3,
    ]  # fmt: skip
    if not number:
        funcs += [lambda a, b: (a * a, b), lambda a, b: (a * b, w), lambda a, b: (a * b, p * 2), lambda a, b: (w, a * b)]
    cases = []
    for i, func in enumerate(funcs):
        v = (w, x) if name != "vjp" else w if i < 10 else (w, w)
        for create_graph in (False, True):
            scalar = (lambda a, b, f=func: f(a, b).sum()) if number else func
            cases.append(lambda f=scalar, v=v, c=create_graph: call(m, name, f, (x, w), v, strict=True, create_graph=c))
    return outcomes(m, cases)


@for_all
def test_strict_mode_with_one_input(m, name):
    x, p = values(m, 0.5, -1.0, 2.0), leaf(m, 1.0, 2.0, 3.0)
    number = name in (*SECOND, "hessian")
    cases = []
    for func in (lambda a: a * 2, lambda a: a * a, lambda a: a * p, lambda a: a.exp(), lambda a: a, lambda a: p, lambda a: a.detach()):
        for create_graph in (False, True):
            scalar = (lambda a, f=func: f(a).sum()) if number else func
            cases.append(lambda f=scalar, c=create_graph: call(m, name, f, x, x, strict=True, create_graph=c))
    return outcomes(m, cases)


# ---------------------------------------------------------------------- errors


@for_all
def test_what_is_no_tensor_is_refused(m, name):
    x = values(m, 0.5, -1.0)
    func = of(name)
    inputs = [[x], 2.0, (x, 2.0), None, "ab", m.tensor([1, 2])]
    results = [2.0, None, [x], (x.sum(), 2.0)]
    return outcomes(
        m,
        [lambda i=i: call(m, name, func, i, x) for i in inputs]
        + [lambda r=r: call(m, name, lambda a: r, x, x) for r in results]
        + [lambda: call(m, name, lambda a: a > 1, x, x), lambda: call(m, name, 3, x, x), lambda: call(m, name, lambda a: 1 / 0, x, x)],
    )


@pytest.mark.parametrize("name", (*PRODUCTS, *SECOND))
def test_vectors_that_do_not_fit_are_refused(name):
    def program(m):
        x, three, called = values(m, 0.5, -1.0), values(m, 1.0, 2.0, 3.0), []

        def one(a):
            called.append(1)
            return of(name)(a)

        def two(a, b):
            return (a * b).sum() if name in SECOND else (a * b, a)

        wrong = [three, [x], (x, x), (), 2.0, (2.0,), x.reshape(2, 1), x.float(), m.tensor([1, 2])]
        return outcomes(
            m,
            [lambda v=v: call(m, name, one, x, v) for v in wrong]
            + [lambda v=v: call(m, name, two, (x, x), v) for v in (x, (x,), (x, three), (x, None), None)],
        ), len(called)

    like_pytorch(program)()


@pytest.mark.parametrize("name", (*SECOND, "hessian"))
def test_hessians_are_of_numbers(name):
    def program(m):
        x = values(m, 0.5, -1.0)
        results = [lambda a: a * a, lambda a: (a.sum(), a.sum()), lambda a: (a.sum(),), lambda a: (a * a).sum().reshape(1, 1), lambda a: a[:0]]
        cases = [lambda f=f, s=s: call(m, name, f, x, x, strict=s) for f in results for s in (False, True)]
        return outcomes(m, cases)

    like_pytorch(program)()


@like_pytorch
def test_options_that_do_not_go_together(m):
    x = values(m, 0.5, -1.0)
    cases = []
    for name, word in (("jacobian", "strategy"), ("hessian", "outer_jacobian_strategy")):
        for how in ("forward-mode", "reverse-mode", "sideways", None):
            for vectorize in (False, True):
                for strict in (False, True):
                    for create_graph in (False, True):
                        options = {word: how, "vectorize": vectorize, "strict": strict, "create_graph": create_graph}
                        cases.append(lambda n=name, o=options: structure(call(m, n, of(n), x, **o)))
    return outcomes(m, cases)


@like_pytorch
def test_arguments_by_name(m):
    x, found = values(m, 0.5, -1.0), m.autograd.functional
    return outcomes(
        m,
        [
            lambda: found.jacobian(func=lambda a: a * a, inputs=x, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"),
            lambda: found.vhp(func=lambda a: (a**3).sum(), inputs=x, v=x, create_graph=False, strict=True),
            lambda: found.jacobian(lambda a: a, x, other=1),
            lambda: found.__all__,
        ],
    )


def test_each_has_pytorchs_signature():
    import inspect

    for name in ALL:
        ours, theirs = (inspect.signature(getattr(m.autograd.functional, name)) for m in (tj, torch))
        assert [(p.name, p.default, p.kind) for p in ours.parameters.values()] == [(p.name, p.default, p.kind) for p in theirs.parameters.values()]


# ---------------------------------------------------------------------- hooks and Functions


@for_all
def test_hooks_run_as_often_as_in_pytorch(m, name):
    x, found = values(m, 0.5, -1.0, 2.0), []
    matrix = name in ("jacobian", "hessian")
    for options in ({}, {"create_graph": True}, *([{"vectorize": True}] if matrix else [])):
        seen = []

        def func(a, seen=seen):
            a.register_hook(lambda g: seen.append(["input", list(g.shape)]))
            b = a * a
            b.register_hook(lambda g: seen.append(["between", list(g.shape)]))
            c = b.prod() * 2 if name in (*SECOND, "hessian") else b * 2
            c.register_hook(lambda g: seen.append(["output", list(g.shape)]))
            return c

        found.append([call(m, name, func, x, x, **options), seen])
    return found


@for_all
def test_functions_run_as_often_as_in_pytorch(m, name):
    x, seen = values(m, 0.5, -1.0, 2.0), []

    class Square(m.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            seen.append("forward")
            ctx.save_for_backward(a)
            return a * a

        @staticmethod
        def backward(ctx, g):
            seen.append(["backward", list(g.shape)])
            return 2 * g * ctx.saved_tensors[0]

    number = name in (*SECOND, "hessian")
    matrix = name in ("jacobian", "hessian")
    found = []
    for options in ({}, {"create_graph": True}, *([{"vectorize": True}, {"vectorize": True, "create_graph": True}] if matrix else [])):
        found.append(call(m, name, (lambda a: Square.apply(a).prod()) if number else Square.apply, x, x, **options))
    return found, seen


@like_pytorch
def test_forward_mode_runs_the_functions_own_jvp_once(m):
    x, seen = values(m, 0.5, -1.0, 2.0), []

    class Square(m.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            ctx.save_for_forward(a)
            return a * a

        @staticmethod
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0]

        @staticmethod
        def jvp(ctx, t):
            seen.append(list(t.shape))
            return 2 * t * ctx.saved_tensors[0]

    class Plain(m.autograd.Function):
        forward = Square.forward
        backward = Square.backward

    forward = {"vectorize": True, "strategy": "forward-mode"}
    return outcomes(
        m,
        [
            lambda: m.autograd.functional.jacobian(lambda a: Square.apply(a) * a, x, **forward),
            lambda: m.autograd.functional.jacobian(Plain.apply, x, **forward),
        ],
    ), seen


@like_pytorch
def test_forward_mode(m):
    x, w, p = values(m, 0.5, -1.0, 2.0), values(m, 1.5, 0.25, -2.0), leaf(m, 1.0, 2.0, 3.0)
    jacobian = m.autograd.functional.jacobian

    def forward(func, inputs):
        return lambda: jacobian(func, inputs, vectorize=True, strategy="forward-mode")

    def inside():
        with m.autograd.forward_ad.dual_level():
            return forward(lambda a: a * a, x)()

    return outcomes(
        m,
        [
            forward(lambda a, b: a * b + b, (x, w)), forward(lambda a: w, x), forward(lambda a: (a * a, w, a.sum()), x),
            forward(lambda a: a * p, x), forward(lambda a: a * a, p), forward(lambda a: a.clone().mul_(a), x),
            forward(lambda a: (a * 2, a.long()), x), forward(lambda a: a * a.sum().item(), x), forward(lambda a: a if a.sum() > 0 else a * 2, x),
            forward(lambda a: 2.0, x), forward(lambda a: [a], x), forward(lambda a: a * m.rand(3), x), inside,
            forward(lambda a, b: a.double() * b, (x.float(), w)), forward(lambda a: a.float(), x),
        ],
    )  # fmt: skip


@like_pytorch
def test_hessians_by_forward_over_reverse(m):
    x, w = values(m, 0.5, -1.0, 2.0), values(m, 1.5, 0.25, -2.0)
    hessian = m.autograd.functional.hessian

    def detached(found):
        return [detached(f) for f in found] if isinstance(found, (list, tuple)) else found.detach()

    forward = {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}
    return [
        detached(hessian(lambda a: (a**3).sum() * a.prod(), x, **forward)), detached(hessian(lambda a, b: (a**2 * b).sum(), (x, w), **forward)),
        detached(hessian(lambda a: m.tanh(a).sum(), x[0], **forward)), detached(hessian(lambda a: (a * w).sum(), x, **forward)),
    ]  # fmt: skip


# ---------------------------------------------------------------------- graphs that come back


@like_pytorch
def test_a_hessian_of_a_graph_that_comes_back(m):
    """From the second sighting on it is one operation."""
    found = []
    for step in range(4):
        x, w = values(m, 0.5 + step, -1.0, 2.0), values(m, 1.5, 0.25 * step, -2.0)
        found.append(m.autograd.functional.hessian(lambda a, b: (m.tanh(a * b) * a**2).sum() + a.prod() * 3, (x, w)))
    return found


@like_pytorch
def test_hessians_of_one_graph_with_other_numbers(m):
    x = values(m, 0.5, -1.0, 2.0, 1.0)
    hessian = m.autograd.functional.hessian
    return [hessian(lambda a, n=n: (a[n : n + 2] ** (n + 3)).sum() * (n + 0.5), x) for n in (0, 1, 2, 0, 1, 2, 0, 1, 2)]


@like_pytorch
def test_hessians_of_a_graph_that_was_written_to(m):
    x, hessian = values(m, 0.5, -1.0, 2.0), m.autograd.functional.hessian

    def func(a, write):
        b = a * 2
        c = (b * b).sum()
        if write:
            b.add_(1)
        return c

    found = [hessian(lambda a: func(a, False), x) for _ in range(3)]
    return found, error_of(lambda: hessian(lambda a: func(a, True), x))[1][:99], hessian(lambda a: func(a, False), x)


@like_pytorch
def test_hessians_in_a_loop_that_changes_the_inputs(m):
    x = values(m, -1.2, 1.0, 0.5)

    def rosenbrock(a):
        return (100.0 * (a[1:] - a[:-1] ** 2) ** 2 + (1 - a[:-1]) ** 2).sum()

    for _ in range(6):
        gradient = m.autograd.functional.jacobian(rosenbrock, x)
        x = x - m.linalg.solve(m.autograd.functional.hessian(rosenbrock, x), gradient)
    return x


@like_pytorch
def test_modules_and_their_parameters(m):
    m.manual_seed(0)
    net = m.nn.Sequential(m.nn.Linear(3, 4), m.nn.Tanh(), m.nn.Linear(4, 2)).double()
    with m.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(m.linspace(-1, 1, p.numel(), dtype=m.float64).reshape(p.shape) * (i + 1))
    x = values(m, 0.5, -1.0, 2.0)
    found = [m.autograd.functional.jacobian(net, x) for _ in range(3)]
    found += [m.autograd.functional.hessian(lambda a: (net(a) ** 2).sum(), x, create_graph=c) for c in (False, False, True)]
    m.autograd.functional.vhp(lambda a: (net(a) ** 2).sum(), x, x, create_graph=True)[1].sum().backward()
    return found, [p.grad for p in net.parameters()]


@like_pytorch
def test_the_basis_of_several_tensors(m):
    basis = m.autograd.functional._construct_standard_basis_for
    x, w = m.ones(2, 2), m.ones(2, dtype=m.float64)
    return outcomes(
        m,
        [
            lambda: basis((x, w), (4, 2)),
            lambda: basis((m.ones(()),), (1,)),
            lambda: basis((m.ones(0), w), (0, 2)),
            lambda: basis((), ()),
            lambda: basis((x, w), (4,)),
        ],
    )
