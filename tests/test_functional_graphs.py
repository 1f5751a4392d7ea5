"""`torch.autograd.functional`, held against PyTorch: what runs in the function, and how often, and graphs that come back."""

from __future__ import annotations

import pytest
from functional_calls import SECOND, call, for_all, outcomes, values
from side_by_side import error_of, leaf, like_pytorch

pytestmark = pytest.mark.operators


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
