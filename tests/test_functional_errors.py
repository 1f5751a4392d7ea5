"""`torch.autograd.functional`, held against PyTorch: strict mode, and every error's text."""

from __future__ import annotations

import pytest
from functional_calls import ALL, PRODUCTS, SECOND, call, for_all, of, outcomes, structure, values
from side_by_side import leaf, like_pytorch

import torchgrad_jax as tj

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.operators


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
