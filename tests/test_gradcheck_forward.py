"""gradcheck of forward mode, right and wrong: the same verdict, calls, error and text as PyTorch's."""

from __future__ import annotations

from importlib import import_module

import pytest

torch = pytest.importorskip("torch")

from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch
from test_gradcheck_errors import check_same, complex_leaf  # noqa: E402

import torchgrad_jax as tj  # noqa: E402

X, Z = (1.0, 2.0), (1 + 1j, 2 + 0j)


def function(m, forward, jvp, backward=None, materialize=True):
    class Checked(m.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.set_materialize_grads(materialize)
            ctx.save_for_forward(*inputs)
            return forward(*inputs)

        @staticmethod
        def jvp(ctx, *tangents):
            return jvp(ctx, *tangents)

        @staticmethod
        def backward(ctx, *gradients):
            return backward(ctx, *gradients)

    return Checked.apply


def of(forward, jvp, *inputs, backward=None, materialize=True):
    """A program that checks a Function at float64 inputs, at complex ones where a value is complex."""

    def program(m, options):
        made = [(complex_leaf if isinstance(x[0], complex) else leaf)(m, *x) for x in inputs]
        func = function(m, forward, jvp, backward, materialize)
        return m.autograd.gradcheck(func, made, check_forward_ad=True, check_backward_ad=backward is not None, **options)

    return program


def no():
    raise RuntimeError("no")


CASES = {
    "right": of(lambda x: x * 2, lambda ctx, t: None if t is None else t * 2, X, materialize=False),
    "a factor": of(lambda x: x * 2, lambda ctx, t: t * 3, X),
    "a matrix": of(lambda x: x.view(2, 2).t() * 2, lambda ctx, t: t.view(2, 2) * 2, (1.0, 2.0, 3.0, 4.0)),
    "a sum": of(lambda x: x.sum(), lambda ctx, t: t.sum() * 3, X),
    "nan": of(lambda x: x * 2, lambda ctx, t: t * float("nan"), X),
    "the second output of the second input": of(lambda x, y: (x * 2, y * 2), lambda ctx, t, u: (t * 2, u * 3), X, (3.0, 4.0)),
    "complex to complex": of(lambda z: z * 2j, lambda ctx, t: t * 3j, Z),
    "complex to complex, the real part": of(lambda z: z * 2, lambda ctx, t: t * 2 + t.real, Z),
    "complex to real": of(lambda z: z.real * 2 + z.imag, lambda ctx, t: t.real * 2 + t.imag * 3, Z),
    "complex to real, the real part": of(lambda z: z.real * 2 + z.imag, lambda ctx, t: t.real * 3 + t.imag, Z),
    "real to complex": of(lambda x: x * (1 + 2j), lambda ctx, t: t * (1 + 3j), X),
    "a real input among complex ones": of(lambda x, z: x * z, lambda ctx, t, u: t * 5 + ctx.saved_tensors[0] * u, X, Z),
    "another shape": of(lambda x: x * 2, lambda ctx, t: t[:1], X),
    "fails": of(lambda x: x * 2, lambda ctx, t: no(), X),
    "fails for a missing tangent": of(
        lambda x, y: x * 2 + y, lambda ctx, t, u: no() if t is None or u is None else t * 2 + u, X, X, materialize=False
    ),
    "wrong for a missing tangent": of(
        lambda x, y: x * 2 + y, lambda ctx, t, u: t * 2 + 1 if u is None else t * 2 + u if t is not None else u, X, (3.0, 4.0), materialize=False
    ),
    "wrong for a missing tangent of two outputs": of(
        lambda x, y: (x * 2 + y, y * 3),
        lambda ctx, t, u: (t * 2, t) if u is None else (t * 2 + u, u * 3) if t is not None else (u, u * 3), X, (3.0, 4.0), materialize=False
    ),
    "forward mode of two": of(lambda x: x * 2, lambda ctx, t: t * 3, X, backward=lambda ctx, g: g * 2),
    "both of two": of(lambda x: x * 2, lambda ctx, t: t * 3, X, backward=lambda ctx, g: g * 4),
}  # fmt: skip


@pytest.mark.parametrize("fast_mode", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize("name", CASES)
def test_a_jvp_is_judged_in_pytorchs_words(name, fast_mode):
    check_same(CASES[name], fast_mode=fast_mode)
    check_same(CASES[name], fast_mode=fast_mode, raise_exception=False, check_undefined_grad=False)


@pytest.mark.parametrize("fast_mode", [False, True], ids=["slow", "fast"])
def test_tolerances_and_dtypes(fast_mode):
    off_by = of(lambda x: x * 2, lambda ctx, t: t * 3, X)
    for atol in (0.76, 0.77, 0.9999, 1.0001):
        check_same(off_by, fast_mode=fast_mode, atol=atol, rtol=0, check_undefined_grad=False, raise_exception=False)
    check_same(of(lambda x: x * 2, lambda ctx, t: t * 2j, X), fast_mode=fast_mode, check_grad_dtypes=True)


def noted(m, func, calls):
    """`func`, noting its inputs and their tangents."""

    def called(*inputs):
        seen = []
        for x in inputs:
            moved = m.autograd.forward_ad.unpack_dual(x).tangent
            seen += [x.requires_grad, str(x.dtype), [] if moved is None else [str(moved.dtype), moved.shape]]
        calls.append(seen)
        return func(m, *inputs)

    return called


FORWARD = {"check_backward_ad": False}
FUNCTIONS = {
    "a product": (lambda m, x, y: x * y, leaf, leaf),
    "one not to be checked": (lambda m, x, y: x * y, leaf, lambda m, *v: leaf(m, *v).detach()),
    "complex": (lambda m, x, y: (x * y, x.real), complex_leaf, complex_leaf),
    "complex and real": (lambda m, x, y: (x * y, x.abs()), complex_leaf, leaf),
    "integers too": (lambda m, x, y: (x * y, x.long()), leaf, leaf),
    "a constant": (lambda m, x, y: x.detach() * 0, leaf, leaf),
    "of one only": (lambda m, x, y: (y.exp(), y.sum()), leaf, leaf),
    "a copy in place": (lambda m, x, y: x.clone().mul_(y)[1:], leaf, leaf),
}


@pytest.mark.parametrize("fast_mode", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_how_the_function_is_called(name, fast_mode):
    func, *makers = FUNCTIONS[name]

    @like_pytorch
    def program(m):
        found = []
        for options in (FORWARD, {**FORWARD, "check_undefined_grad": False}, {"check_backward_ad": True, "check_batched_grad": True}):
            calls = []
            made = [make(m, *X) for make in makers]
            options = {"check_forward_ad": True, "fast_mode": fast_mode, **options}
            verdict = error_of(lambda made=made, c=calls, o=options: m.autograd.gradcheck(noted(m, func, c), made, **o))
            # How often backward's half calls it is another matter.
            found += [verdict, calls if options["check_backward_ad"] is False else []]
        return found

    program()


@like_pytorch
def test_no_input_requires_grad(m):
    return m.autograd.gradcheck(lambda x: x * 2, (m.ones(2, dtype=m.float64),), check_forward_ad=True, check_backward_ad=False)


@pytest.mark.parametrize("fast_mode", [False, True], ids=["slow", "fast"])
def test_second_derivatives_forward_over_reverse(fast_mode):
    for makers in ((leaf, leaf), (complex_leaf, leaf), (leaf, lambda m, *v: leaf(m, *v).detach())):
        for both in (False, True):

            @like_pytorch
            def program(m, makers=makers, both=both):
                calls = []
                options = {"check_fwd_over_rev": True, "check_rev_over_rev": both, "check_undefined_grad": both, "fast_mode": fast_mode}
                made = [make(m, *X) for make in makers]
                return [m.autograd.gradgradcheck(noted(m, lambda m, x, y: x * x * y, calls), made, **options), [] if both else calls]

            program()


def test_a_wrong_second_derivative_forward_over_reverse():
    def program(m, options):
        m.manual_seed(0)
        cut = function(m, lambda x: x * x, lambda ctx, t: 2 * ctx.saved_tensors[0] * t, lambda ctx, g: g * 2 * ctx.point.detach())

        def func(x):
            y = cut(x)
            y.grad_fn.point = x
            return y

        options = {"check_fwd_over_rev": True, "check_rev_over_rev": False, "check_undefined_grad": False, **options}
        return m.autograd.gradgradcheck(func, (leaf(m, *X),), **options)

    for fast_mode in (False, True):
        check_same(program, fast_mode=fast_mode)


# ---------------------------------------------------------------------- batches of tangents

BATCHED = {
    "operators": lambda m, x: (x.view(1, 2) @ m.eye(2, dtype=m.float64)).exp().cumsum(1),
    "views and writes": lambda m, x: m.stack([x, x * 2]).t().clone().mul_(x.view(2, 1))[0],
    "a write to new zeros": lambda m, x: m.zeros(3, dtype=m.float64)[1:].copy_(x),
    "jvp": lambda m, x: function(m, lambda x: x * x, lambda ctx, t: 2 * ctx.saved_tensors[0] * t)(x),
    "a jvp that looks": lambda m, x: function(m, lambda x: x * 2, lambda ctx, t: t * 2 if t.sum().item() < 100 else t)(x),
    "a jvp with random numbers": lambda m, x: function(m, lambda x: x * 2, lambda ctx, t: t * 2 + 0 * m.rand_like(t))(x),
    "random numbers": lambda m, x: x + 0 * m.rand(2, dtype=m.float64),
    "a jvp for one at a time": lambda m, x: function(m, lambda x: x.sum(), lambda ctx, t: t.sum() if t.dim() == 1 else no())(x),
}


@pytest.mark.parametrize("name", BATCHED)
def test_batches_of_tangents(name):
    @like_pytorch
    def program(m):
        options = {"check_forward_ad": True, "check_backward_ad": False, "check_undefined_grad": False, "check_batched_forward_grad": True}
        raised = error_of(lambda: m.autograd.gradcheck(lambda x: BATCHED[name](m, x), (leaf(m, *X),), **options))
        return raised and [raised[0], raised[1][:45]]

    program()


def test_a_batch_that_differs_from_single_tangents_is_refused(monkeypatch):
    module = import_module("torchgrad_jax.autograd.checking.forward_jacobians")
    mapped = module.levels.mapped
    monkeypatch.setattr(module.levels, "mapped", lambda *args: [t * 2 for t in mapped(*args)])
    options = {"check_forward_ad": True, "check_backward_ad": False, "check_batched_forward_grad": True}
    with pytest.raises(module.GradcheckError, match=r"^For output 0 and input 0:\n\n(.|\n)*Got:\ntensor"):
        tj.autograd.gradcheck(lambda x: x * 3, (leaf(tj, *X),), **options)


VMAPS = {
    "a function": lambda m, vmap, x: vmap(lambda a: a * 2 + a.sum())(x),
    "a constant": lambda m, vmap, x: vmap(lambda a: m.ones(3))(x),
    "dimensions": lambda m, vmap, x: [vmap(lambda a: a * 2, 1)(x), vmap(lambda a: a * 2, 0, 1)(x), vmap(lambda a: a * 2, 1, 1)(x)],
    "several": lambda m, vmap, x: vmap(lambda a, b: (a + b, a), (0, None))(x, m.ones(3)),
    "nested": lambda m, vmap, x: vmap(lambda a: vmap(lambda b: b * 2)(a))(x),
    "lists": lambda m, vmap, x: [vmap(lambda a: a[0] + a[1])([x, x]), vmap(lambda a: a[0] + a[1], ((0, None),))((x, m.ones(3)))],
    "sizes": lambda m, vmap, x: vmap(lambda a, b: a)(x, x.t()),
    "no dimension": lambda m, vmap, x: vmap(lambda a: a)(m.tensor(1.0)),
    "a number": lambda m, vmap, x: vmap(lambda a: a)(2),
    "no arguments": lambda m, vmap, x: vmap(lambda: x)(),
    "a result that is a number": lambda m, vmap, x: vmap(lambda a: 2)(x),
    "a result that is None": lambda m, vmap, x: vmap(lambda a: (a, None))(x),
    "None allowed": lambda m, vmap, x: vmap(lambda a: (a, None), 0, 0, True)(x),
    "dimension too large": lambda m, vmap, x: vmap(lambda a: a, (2,))(x),
    "a word for a dimension": lambda m, vmap, x: vmap(lambda a: a, "a")(x),
    "too many result dimensions": lambda m, vmap, x: vmap(lambda a: (a, a), 0, (0, 0, 0))(x),
    "a word for a result dimension": lambda m, vmap, x: vmap(lambda a: a, 0, "a")(x),
    "an argument written to": lambda m, vmap, x: [vmap(lambda a: a.add_(1))(x), x, x._version > 0],
    "with a graph": lambda m, vmap, x: m.autograd.grad(vmap(lambda a: a * x[0])(x.requires_grad_()).sum(), x),
    "the same tensors": lambda m, vmap, x: [[(u := vmap(lambda a: (a, (b := a * 2), b, b[1:]))(x))[0] is x, u[1] is u[2], u[3]._base is u[1]], u],
    "random": lambda m, vmap, x: vmap(lambda a: a + m.rand(3))(x),
    "an error": lambda m, vmap, x: vmap(lambda a: 1 / 0)(x),
    "empty": lambda m, vmap, x: vmap(lambda a: a * 2)(x[:0]),
}


@pytest.mark.parametrize("name", VMAPS)
def test_vmap(name):
    like_pytorch(lambda m: VMAPS[name](m, m._vmap_internals._vmap, m.arange(6.0).view(2, 3)))()


def test_vmap_refuses_what_would_let_a_mapped_value_out():
    vmap, x, y = tj._vmap_internals._vmap, tj.arange(6.0).view(2, 3), tj.zeros(3)
    with pytest.raises(RuntimeError, match="^vmap: inplace arithmetic"):
        vmap(lambda a: y.add_(a))(x)
    for look in (lambda a: a * a.sum().item(), lambda a: a if a.sum() > 0 else -a, lambda a: tj.tensor(a.numpy())):
        with pytest.raises(RuntimeError):
            vmap(look)(x)
    assert y.tolist() == [0.0, 0.0, 0.0]
