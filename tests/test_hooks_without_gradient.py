"""Hooks of tensors, leaves and nodes that are reached by no gradient: told None as PyTorch tells them, which they may not replace."""

from __future__ import annotations

from side_by_side import programs

program, test_like_pytorch = programs()


def of_first(m):
    """A function of two tensors whose second gets no gradient."""

    class First(m.autograd.Function):
        @staticmethod
        def forward(ctx, u, v):
            return u * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2, None

    return First.apply


def leaves(m):
    return m.ones(2, requires_grad=True), m.ones(2, requires_grad=True)


def told(gradients):
    return [None if g is None else g.tolist() for g in gradients]


@program
def leaves_hooks_are_told_none(m):
    found = []
    for change in (lambda w: w, lambda w: w * 3, lambda w: (w * 3).sin()):
        for more in (False, True):
            u, w = leaves(m)
            node = w.view_as(w).grad_fn.next_functions[0][0]
            w.register_hook(lambda g: found.append(["tensor", told([g])]))
            w.register_post_accumulate_grad_hook(lambda t: found.append(["accumulated", told([t.grad])]))
            node.register_prehook(lambda g: found.append(["before", told(g)]))
            node.register_hook(lambda inputs, outputs: found.append(["after", told(inputs), told(outputs)]))
            y = of_first(m)(u, change(w))
            (y + w * 4 if more else y).sum().backward()
            found.append(told([u.grad, w.grad]))
    return found


@program
def what_is_not_asked_for_is_not_told(m):
    found, (u, w) = [], leaves(m)
    w.register_hook(lambda g: found.append(told([g])))
    w.register_post_accumulate_grad_hook(lambda t: found.append("accumulated"))
    y = of_first(m)(u, w)
    found.append(told(m.autograd.grad(y.sum(), u, retain_graph=True)))
    y.sum().backward(inputs=[u], retain_graph=True)
    found.append("only u")
    y.sum().backward(inputs=[w], retain_graph=True)
    found.append(told(m.autograd.grad(y.sum(), (u, w), allow_unused=True)))
    return found, told([u.grad, w.grad])


@program
def no_hook_makes_a_gradient_of_none(m):
    found = []

    def five(*_):
        return m.full((2,), 5.0)

    def attempt(register, change):
        u, w = leaves(m)
        v = change(w)
        y = of_first(m)(u, v)
        node = w.view_as(w).grad_fn.next_functions[0][0]
        register(w, v, y, node)
        try:
            y.sum().backward()
        except RuntimeError as error:
            found.append(str(error))
        found.append(told([u.grad, w.grad]))

    for change in (lambda w: w * 1, lambda w: w * 3):
        attempt(lambda w, v, y, node: w.register_hook(five), change)
        attempt(lambda w, v, y, node: v.register_hook(five), change)
        attempt(lambda w, v, y, node: v.grad_fn.register_prehook(lambda g: (five(),)), change)
        attempt(lambda w, v, y, node: node.register_prehook(lambda g: (five(),)), change)
        attempt(lambda w, v, y, node: y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0], five())), change)
        attempt(lambda w, v, y, node: y.grad_fn.register_hook(lambda inputs, outputs: (None, None)), change)
        attempt(lambda w, v, y, node: v.register_hook(lambda g: None), change)
    return found
