"""Checkpoints against PyTorch's: results, errors, warnings, and how often what is called."""

from __future__ import annotations

import functools

import pytest

pytest.importorskip("torch.utils.checkpoint")

from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch


def f(x):
    return (x.sin() * x).exp()


def ran(m, function, *args, **kwargs):
    """The result, the gradients, and how often the function ran: before backward, and in all."""
    calls = []

    def counted(*a, **k):
        calls.append(1)
        return function(*a, **k)

    out = m.utils.checkpoint.checkpoint(counted, *args, **kwargs)
    before = len(calls)
    out.sum().backward()
    return [out, [a.grad for a in args if isinstance(a, m.Tensor)], before, len(calls)]


@pytest.mark.parametrize("reentrant", [None, True, False])
def test_results_and_warnings(reentrant):
    def program(m):
        found = ran(m, f, leaf(m, 0.5, 2.0), use_reentrant=reentrant)
        # Whether it is told once or each time depends on the filter that is active.
        return [*found, ran(m, lambda a, b, c: f(a) * b + c, leaf(m, 1.0), leaf(m, 3.0), 2, use_reentrant=reentrant)]

    like_pytorch(program)()


BAD_CALLS = {
    "keywords of the reentrant form": lambda m, c, x: c.checkpoint(f, x, use_reentrant=True, k=2),
    "context_fn of the reentrant form": lambda m, c, x: c.checkpoint(f, x, use_reentrant=True, context_fn=lambda: None),
    "debug of the reentrant form": lambda m, c, x: c.checkpoint(f, x, use_reentrant=True, debug=True),
    "an unknown check": lambda m, c, x: c.checkpoint(f, x, use_reentrant=False, determinism_check="foo"),
    "debug with contexts": lambda m, c, x: c.checkpoint(f, x, use_reentrant=False, debug=True, context_fn=lambda: (None, None)),
    "no contexts": lambda m, c, x: c.checkpoint(f, x, use_reentrant=False, context_fn=lambda: None),
    "no function": lambda m, c, x: c.checkpoint(3, x, use_reentrant=False),
    "no result with a gradient": lambda m, c, x: c.checkpoint(lambda a: a.detach(), x, use_reentrant=True).sum().backward(),
    "no input with a gradient": lambda m, c, x: c.checkpoint(f, x.detach(), use_reentrant=True),
    "grad of the reentrant form": lambda m, c, x: m.autograd.grad(c.checkpoint(f, x, use_reentrant=True).sum(), x),
    "inputs of the reentrant form": lambda m, c, x: c.checkpoint(f, x, use_reentrant=True).sum().backward(inputs=[x]),
    "segments too many": lambda m, c, x: c.checkpoint_sequential([f, f], 3, x, use_reentrant=False),
    "no segments": lambda m, c, x: c.checkpoint_sequential([f, f], 0, x, use_reentrant=False),
    "no functions": lambda m, c, x: c.checkpoint_sequential(3, 1, x, use_reentrant=False),
    "keywords of segments": lambda m, c, x: c.checkpoint_sequential([f, f], 2, x, use_reentrant=False, foo=1),
    "segments without a word about the form": lambda m, c, x: c.checkpoint_sequential([f, f, f], 2, x),
    "a list to detach": lambda m, c, x: c.detach_variable([x]),
    "a tuple to detach": lambda m, c, x: c.detach_variable((x, 1, x.detach())),
    "nothing with a gradient": lambda m, c, x: c.check_backward_validity([x.detach()]),
    "no policy": lambda m, c, x: c.create_selective_checkpoint_contexts(3),
    "groups in groups": lambda m, c, x: nested_groups(c),
}


def nested_groups(c):
    try:
        with c.GraphExecGroup(), c.GraphExecGroup():
            pass
    except RuntimeError as error:
        return str(error).partition(" <")[0]


@pytest.mark.parametrize("call", BAD_CALLS.values(), ids=BAD_CALLS)
def test_errors_and_warnings(call):
    like_pytorch(lambda m: call(m, m.utils.checkpoint, leaf(m, 0.5, 2.0)))()


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("retain", [True, False])
def test_a_second_backward(reentrant, retain):
    def program(m):
        x = leaf(m, 0.5, 2.0)
        out = m.utils.checkpoint.checkpoint(f, x, use_reentrant=reentrant).sum()
        out.backward(retain_graph=retain)
        return [error_of(out.backward), x.grad]

    like_pytorch(program)()


@pytest.mark.parametrize("reentrant", [True, False])
def test_an_argument_written_to(reentrant):
    def program(m):
        y = leaf(m, 0.5, 2.0) * 1
        out = m.utils.checkpoint.checkpoint(f, y, use_reentrant=reentrant)
        with m.no_grad():
            y.add_(1)
        out.sum().backward()

    like_pytorch(program)()


def test_saved_tensors_asked_for_twice():
    def program(m):
        class Exp(m.autograd.Function):
            @staticmethod
            def forward(ctx, a):
                ctx.save_for_backward(a)
                return a.exp()

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.saved_tensors[0].exp() + ctx.saved_tensors[0]

        m.utils.checkpoint.checkpoint(Exp.apply, leaf(m, 1.0), use_reentrant=False).sum().backward()

    like_pytorch(program)()


@pytest.mark.parametrize("check", ["default", "none"])
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize(
    "later", [lambda m, x: f(m.cat([x, x])), lambda m, x: x.sin(), lambda m, x: f(x.sin().sin())], ids=["shape", "fewer", "more"]
)
def test_another_recomputation(later, early, check):
    def program(m):
        calls = []

        def varying(x):
            calls.append(1)
            return f(x) if len(calls) == 1 else later(m, x)

        x = leaf(m, 0.5, 2.0)
        out = m.utils.checkpoint.checkpoint(varying, x, use_reentrant=False, early_stop=early, determinism_check=check)
        error = error_of(lambda: out.sum().backward())
        # PyTorch goes on to speak of its compiler.
        return [None if error is None else [error[0], error[1].partition("\n\nTip")[0]], x.grad]

    like_pytorch(program)()


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("early", [True, False])
def test_how_often_nested_functions_run(outer, inner, early):
    def program(m):
        calls = []
        checkpoint = m.utils.checkpoint.checkpoint

        def within(x):
            calls.append("inner")
            return f(x)

        def around(x):
            calls.append("outer")
            return checkpoint(within, checkpoint(within, x.cos(), use_reentrant=inner).sin(), use_reentrant=inner).exp()

        x = leaf(m, 0.5, 2.0)
        with m.utils.checkpoint.set_checkpoint_early_stop(early):
            out = checkpoint(around, x, use_reentrant=outer)
        out.sum().backward()
        return [out, x.grad, calls]

    like_pytorch(program)()


@pytest.mark.parametrize("early", [True, False])
def test_gradients_taken_inside_and_of_gradients(early):
    def program(m):
        def inside(x):
            y = f(x)
            (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
            return y * g

        x = leaf(m, 0.5, 1.5)
        out = m.utils.checkpoint.checkpoint(inside, x, use_reentrant=False, early_stop=early)
        (g,) = m.autograd.grad(out.sum(), x, create_graph=True)
        (h,) = m.autograd.grad(g.sum(), x)
        return [out, g, h]

    like_pytorch(program)()


def test_dropout_and_the_generator():
    def program(m):
        m.manual_seed(5)
        x = leaf(m, *range(12))
        out = m.utils.checkpoint.checkpoint(lambda a: m.nn.functional.dropout(f(a * 0.1), 0.5).sin(), x, use_reentrant=False)
        m.rand(3)
        out.sum().backward()
        return [out, x.grad, m.rand(3)]

    like_pytorch(program)()


def test_hooks_outside_take_the_arguments():
    def program(m):
        seen = []
        x = leaf(m, 0.5, 2.0)
        with m.autograd.graph.saved_tensors_hooks(lambda t: seen.append("pack") or t * 1, lambda t: seen.append("unpack") or t):
            out = m.utils.checkpoint.checkpoint(f, x.sin(), use_reentrant=False)
        out.sum().backward()
        return [seen, x.grad]

    like_pytorch(program)()


@pytest.mark.parametrize("gone", [True, False])
def test_gradients_of_dual_tensors(gone):
    def program(m):
        forward_ad = m.autograd.forward_ad
        with forward_ad.dual_level():
            x = leaf(m, 0.5, 2.0)
            dual = forward_ad.make_dual(x, m.ones_like(x)) * 1
            out = m.utils.checkpoint.checkpoint(f, dual, use_reentrant=False)
            if gone:
                del dual
            (g,) = m.autograd.grad(out.sum(), x)
            return list(forward_ad.unpack_dual(g))

    like_pytorch(program)()


def test_nothing_of_the_graph_is_hidden():
    def program(m):
        out = m.utils.checkpoint.checkpoint(f, leaf(m, 0.5), use_reentrant=False)
        again = m.utils.checkpoint.checkpoint(f, leaf(m, 0.5), use_reentrant=True)
        names = [out.grad_fn.name(), out.grad_fn.next_functions[0][0].name(), again.grad_fn.name()]
        return [names, out.grad_fn._saved_result, out.grad_fn._saved_result.grad_fn.name()]

    like_pytorch(program)()


@pytest.mark.parametrize("mutable", [True, False])
@pytest.mark.parametrize("kept", [["mm"], ["sin", "mul"], []], ids=str)
def test_selective(kept, mutable):
    def program(m):
        c = m.utils.checkpoint

        def policy(ctx, op, *args, **kwargs):
            keep = any(op == getattr(m.ops.aten, name).default for name in kept) or str(op).partition(".")[2].partition(".")[0] in kept
            return c.CheckpointPolicy.MUST_SAVE if keep else c.CheckpointPolicy.PREFER_RECOMPUTE

        def g(x):
            x = x.view(2, 2)
            return ((x @ x).sin() * x) @ x

        contexts = functools.partial(c.create_selective_checkpoint_contexts, policy, allow_cache_entry_mutation=mutable)
        x = leaf(m, 0.5, 2.0, -1.0, 0.3)
        out = c.checkpoint(g, x, use_reentrant=False, context_fn=contexts).sum()
        out.backward(retain_graph=True)
        return [out, x.grad, error_of(out.backward)]

    like_pytorch(program)()
