"""The gradients of a compiled function's results: which tensors get one, and what writes make of what was saved for them."""

import pytest

import torchgrad_jax as torch

pytestmark = pytest.mark.operators  # of programs: in eager mode there are none
MODIFIED = "modified by an inplace operation"


def leaf(*numbers):
    return torch.tensor(numbers, requires_grad=True)


@pytest.mark.parametrize("used", range(1, 8))
def test_what_no_backward_pass_has_gone_through_has_no_gradient(used):
    a, b, c, x = leaf(1.0, 2.0), leaf(3.0, 4.0), leaf(0.5, 1.0), torch.ones(2)
    compiled = torch.jit(lambda x: (x * a, x * b * c.exp(), (x * c).sin() * 0), fullgraph=True)
    led = [{0}, {1, 2}, {2}]
    reached = set().union(*[led[i] for i in range(3) if used >> i & 1])
    for _ in range(4):
        results = compiled(x)
        loss = sum([results[i].sum() for i in range(3) if used >> i & 1])
        found = torch.autograd.grad(loss, [a, b, c], allow_unused=True, retain_graph=True)
        assert {i for i, g in enumerate(found) if g is not None} == reached
        loss.backward()
        assert {i for i, t in enumerate((a, b, c)) if t.grad is not None} == reached
        for t in (a, b, c):
            t.grad = None


def test_a_tensor_with_a_graph_from_outside_is_passed_over_too():
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    compiled = torch.jit(lambda u, v: (u * 2, v * 3), fullgraph=True)
    for _ in range(3):
        a.grad = b.grad = None
        u, v = a * 1, b * 1
        compiled(u, v)[0].sum().backward()
        assert a.grad.tolist() == [2, 2] and b.grad is None


WRITES = {
    "a result that was saved": (lambda x, w: w.exp(), lambda x, y: y[0].mul_(2), True),
    "a view of it": (lambda x, w: w.exp(), lambda x, y: y[0][1:].zero_(), True),
    "a view that was returned of what was saved": (lambda x, w: w.exp().view(2, 1), lambda x, y: y[0].mul_(2), True),
    "a result in another order": (lambda x, w: (x * w).tanh().t(), lambda x, y: y[0][1].mul_(2), True),
    "a result that was written to within": (lambda x, w: (w * 1).exp_(), lambda x, y: y[0].mul_(2), True),
    "a result of which another was made": (lambda x, w: (w.exp() * 2, w.exp()), lambda x, y: y[0].mul_(2), False),
    "a result that needs no gradient": (lambda x, w: (x.exp() * w, x.sin()), lambda x, y: y[1].mul_(2), False),
    "one that was saved": (lambda x, w: (lambda e: (e * w, e))(x.exp()), lambda x, y: y[1].mul_(2), True),
    "another part of an argument": (lambda x, w: x[0] * w, lambda x, y: x[1].mul_(2), True),
    "an argument that was computed with": (lambda x, w: (x * 2) * w, lambda x, y: x.mul_(2), False),
    "an argument that was written to within": (lambda x, w: x.add_(1) * w, lambda x, y: x[1].mul_(2), True),
    "nothing, but what was written to within": (lambda x, w: x.add_(1) * w, lambda x, y: None, False),
    "a result, by way of data": (lambda x, w: w.exp(), lambda x, y: y[0].data.mul_(2), False),
    "an argument, by way of data": (lambda x, w: x * w, lambda x, y: x.data.mul_(2), False),
}


@pytest.mark.parametrize("written", WRITES)
def test_a_write_outdates_what_was_saved(written):
    function, write, refused = WRITES[written]
    found = []
    for f in (function, torch.jit(function, fullgraph=True)):
        for _ in range(3):
            w, x = leaf(1.0, 2.0), torch.tensor([[3.0, 4.0], [5.0, 6.0]])
            y = f(x, w)
            y = y if isinstance(y, tuple) else (y,)
            write(x, y)
            if refused:
                with pytest.raises(RuntimeError, match=MODIFIED):
                    y[0].sum().backward()
            else:
                y[0].sum().backward()
                found.append([round(g, 4) for g in w.grad.tolist()])
    assert all(f == found[0] for f in found)


def test_what_is_written_in_place_in_a_transform_within_keeps_what_it_was():
    """The old content, which is saved, belongs to the transform: in a compiled function, too."""

    def function(x):
        y = torch.zeros(5)
        y[1:4].copy_(x * x)
        y.mul_(y + 1)
        return y

    def pulled(x):
        return torch.func.vjp(function, x)[1](torch.arange(5.0))[0]

    x = torch.tensor([1.0, -2.0, 3.0])
    expected = torch.tensor([1.0, 2.0, 3.0]) * (4 * x**3 + 2 * x)
    assert torch.allclose(pulled(x), expected)
    compiled = torch.jit(pulled)
    for _ in range(3):
        assert torch.allclose(compiled(x), expected)
