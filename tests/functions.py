"""What the tests of `autograd.Function` share: Functions made of two plain functions, and what is seen of a tensor's place in the graph."""

from __future__ import annotations


def functions(m):
    """Square, with a combined forward, and Cube, with a separate setup_context; on the library `m`."""

    class Square(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    class Cube(m.autograd.Function):
        @staticmethod
        def forward(x):
            return x * x * x, x.detach().clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])
            ctx.set_materialize_grads(True)

        @staticmethod
        def backward(ctx, g, unused):
            (x,) = ctx.saved_tensors
            return g * 3 * x * x + unused

    return Square, Cube


def function(m, forward, backward=lambda ctx, *grads: grads[0], name="Mine", **more):
    """A Function of the given two functions."""
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward), **{k: staticmethod(v) for k, v in more.items()}}
    return type(name, (m.autograd.Function,), methods)


def tripled_in_place(ctx, x):
    """A forward that writes to its input."""
    x.mul_(3)
    ctx.mark_dirty(x)
    return x


def name_of(node):
    return None if node is None else node.name()


def next_names(node):
    return [name_of(n) for n, _ in node.next_functions]


def history(t):
    """A tensor's place in the graph and in memory."""
    return [t.requires_grad, name_of(t.grad_fn), t.output_nr, t.is_leaf, t._is_view(), t._version]
