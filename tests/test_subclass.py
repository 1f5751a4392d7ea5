"""Subclasses of Tensor against PyTorch: how they are made, what operations on them give, how autograd sees them."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from side_by_side import error_of, like_pytorch  # noqa: E402 - needs torch


def subclass(m):
    class Mine(m.Tensor):
        pass

    return Mine


def kind(x):
    return [kind(v) for v in x] if isinstance(x, (tuple, list)) else type(x).__name__


# ---------------------------------------------------------------------- making one


@like_pytorch
def test_the_constructor_takes_data_sizes_or_a_tensor(m):
    Mine = subclass(m)
    made = [Mine([1.0, 2.0]), Mine(m.ones(2)), Mine([[1, 2], [3, 4]]), Mine((2, 3)), Mine(np.ones(2)), Mine([True, False]), Mine(range(3))]
    return [kind(made), [t.as_subclass(m.Tensor) for t in made], list(Mine(2, 3).shape), list(Mine().shape), list(Mine(m.Size([2, 3])).shape)]


@like_pytorch
def test_the_legacy_constructor_of_tensor(m):
    t = m.ones(2)
    twin = m.Tensor(t)
    twin.add_(1)
    leaf = m.ones(2, requires_grad=True)
    return t, twin is t, twin._is_view(), m.Tensor(leaf).grad_fn.name(), m.Tensor([1, 2]), m.Tensor(m.tensor(3)), m.Tensor(data=[1.0])


@like_pytorch
def test_what_the_constructor_refuses(m):
    calls = (
        lambda: m.Tensor("a"), lambda: m.Tensor(1.5), lambda: m.Tensor(None), lambda: m.Tensor(True), lambda: m.Tensor([1j]),
        lambda: m.Tensor([[1, 2], [3]]), lambda: m.Tensor(2, "a"), lambda: m.Tensor(-1),
    )  # fmt: skip
    others = (lambda: m.Tensor([1.0], [2.0]), lambda: m.Tensor([1.0], requires_grad=True))
    return [error_of(call) for call in calls], [error_of(call)[0] for call in others]


@like_pytorch
def test_a_class_with_a_constructor_of_its_own(m):
    class Tagged(m.Tensor):
        @staticmethod
        def __new__(cls, data, tag):
            return m.Tensor._make_subclass(cls, data, True)

        def __init__(self, data, tag):
            self.tag = tag

    data = m.ones(2)
    t = Tagged(data, "a")
    data.add_(1)
    return kind(t), t.tag, t.requires_grad, t.is_leaf, t._is_view(), t.detach().as_subclass(m.Tensor), hasattr(t + 1, "tag")


@like_pytorch
def test_a_class_whose_constructor_calls_tensors(m):
    class Tagged(m.Tensor):
        def __new__(cls, data, tag="none"):
            made = super().__new__(cls, data)
            made.tag = tag
            return made

    t = Tagged([1.0, 2.0], "b")
    return kind(t), t.tag, kind(t * 2), t.as_subclass(m.Tensor)


@like_pytorch
def test_as_subclass_is_an_alias_with_history(m):
    Mine = subclass(m)
    w = m.ones(2)
    v = w.as_subclass(Mine)
    v.add_(1)
    leaf = m.ones(2, requires_grad=True)
    t = leaf.as_subclass(Mine)
    (t * 3).sum().backward()
    return w, v._is_view(), v._base is w, w._version, t.is_leaf, t.grad_fn.name(), kind(t._base), leaf.grad, kind(v.as_subclass(m.Tensor))


@like_pytorch
def test_what_is_no_subclass_is_refused(m):
    t = m.ones(2)
    make = m.Tensor._make_subclass
    calls = (lambda: t.as_subclass(int), lambda: t.as_subclass(3), lambda: make(int, t), lambda: make(subclass(m), 3))
    return [error_of(call) for call in calls]


# ---------------------------------------------------------------------- what operations give


@like_pytorch
def test_operations_give_the_subclass_back(m):
    Mine = subclass(m)
    x, f = m.eye(2).as_subclass(Mine), m.nn.functional
    return [
        kind(y) for y in (
            x + 1, 1 + x, m.ones(2) + x, x @ m.ones(2), x.sum(), x[0], x.T, x.data, x.detach(), x.clone(), x.max(0), m.max(x, 0), x.split(1),
            m.stack([x, x]), f.relu(x), f.softmax(x, 0), x.double(), x.tolist(), x.shape, x.dtype, x.numpy(), x.sum().item(),
            m.zeros_like(x), x.new_zeros(2),
            x.unbind(), list(x), m.tensor([1.0]), x > 0, x.bool(), x.add_(1), m.add(m.eye(2), 1, out=x), m.allclose(x, x), m.broadcast_tensors(x, x),
        )
    ]  # fmt: skip


@like_pytorch
def test_the_most_derived_class_wins(m):
    class A(m.Tensor):
        pass

    class B(A):
        pass

    a, b = A([1.0]), B([2.0])
    return kind([a + b, b + a, m.add(a, b), m.stack([a, b]), m.ones(1) * a, a.add_(b)])


@like_pytorch
def test_a_subclass_may_change_what_super_gives(m):
    class Counting(m.Tensor):
        calls = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls += 1
            found = super().__torch_function__(func, types, args, kwargs or {})
            return found * 10 if func is m.Tensor.add else found

    x = Counting([1.0, 2.0])
    y = x + 1
    return y.as_subclass(m.Tensor), Counting.calls


@like_pytorch
def test_metadata_travels_by_hand(m):
    class Tagged(m.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            found = super().__torch_function__(func, types, args, kwargs)
            tags = [a.tag for a in args if isinstance(a, cls)]
            if isinstance(found, cls) and tags:
                found.tag = "+".join(tags)
            return found

    a, b = m.ones(1).as_subclass(Tagged), m.ones(1).as_subclass(Tagged)
    a.tag, b.tag = "a", "b"
    return (a * b).tag, m.add(a, b).tag, (a + 1).tag


@like_pytorch
def test_overridden_methods_call_super(m):
    class Loud(m.Tensor):
        def add(self, other):
            return ["loud", super().add(other)]

        @property
        def shape(self):
            return ["shape", list(super().shape)]

    x = m.ones(2).as_subclass(Loud)
    return x.add(1)[0], kind(x.add(1)[1]), kind(x + 1), x.shape


@like_pytorch
def test_a_class_with_the_answer_disabled_gives_plain_tensors(m):
    class Silent(m.Tensor):
        __torch_function__ = m._C._disabled_torch_function_impl

    x = m.ones(2).as_subclass(Silent)
    return kind([x + 1, x.clone(), m.add(x, x), x.add_(1), x[0], m.nn.functional.relu(x)])


@like_pytorch
def test_the_default_answer(m):
    class A(m.Tensor):
        pass

    class B(m.Tensor):
        pass

    one = m.ones(2)
    return [
        kind(A.__torch_function__(m.add, (A,), (one, 1))), kind(m.Tensor.__torch_function__(m.add, (m.Tensor,), (one, 1))),
        A.__torch_function__(m.add, (A, B), (one, 1)) is NotImplemented, kind(A.__torch_function__(m.split, (A,), (one, 1))),
        kind(A.__torch_function__(lambda: {"a": one}, (A,))["a"]),
    ]  # fmt: skip


@like_pytorch
def test_text(m):
    class LongName(m.Tensor):
        pass

    x = m.arange(6.0).view(2, 3).as_subclass(LongName)
    return [repr(x), repr(x.requires_grad_()), str(x * 2), repr(m.tensor(1.0).as_subclass(LongName)), repr(m.ones(30).as_subclass(LongName))]


# ---------------------------------------------------------------------- autograd


@like_pytorch
def test_the_graph_has_an_alias_after_each_operation(m):
    x = m.ones(2).as_subclass(subclass(m)).requires_grad_()
    y = x * 2
    return y.grad_fn.name(), y.grad_fn.next_functions[0][0].name(), y._is_view(), x.is_leaf


@like_pytorch
def test_gradients_of_a_subclass_are_plain(m):
    x = m.tensor([1.0, 2.0]).as_subclass(subclass(m)).requires_grad_()
    seen = []
    x.register_hook(lambda g: seen.append(kind(g)))
    (x * x).sum().backward()
    (g,) = m.autograd.grad((x * x * x).sum(), x, create_graph=True)
    return seen, kind(x.grad), x.grad, kind(g), kind(m.autograd.grad((x * 2).sum(), x)[0])


@like_pytorch
def test_custom_functions_see_and_give_the_subclass(m):
    Mine, seen = subclass(m), []

    class Double(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(kind(x))
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            seen.append([kind(g), kind(ctx.saved_tensors[0])])
            return g * 2

    x = m.ones(2).as_subclass(Mine).requires_grad_()
    out = Double.apply(x)
    out.sum().backward()
    return kind(out), out.grad_fn.name(), seen, x.grad


@like_pytorch
def test_writing_in_place(m):
    x = m.zeros(3).as_subclass(subclass(m))
    x += 1
    x[0] = 5.0
    x[1:].mul_(2)
    plain = m.ones(3)
    plain += x
    leaf = m.ones(3).as_subclass(type(x)).requires_grad_()
    return kind([x, plain]), x.as_subclass(m.Tensor), plain, x._version, error_of(lambda: leaf.add_(1))


@like_pytorch
def test_second_gradients(m):
    x = m.tensor([2.0]).as_subclass(subclass(m)).requires_grad_()
    (g,) = m.autograd.grad((x**3).sum(), x, create_graph=True)
    g.sum().backward()
    return x.grad, x.grad_fn is None


@like_pytorch
def test_training_a_subclass(m):
    x = m.tensor([[1.0, 2.0], [3.0, 4.0]])
    w = m.ones(2, 2).as_subclass(subclass(m)).requires_grad_()
    losses = []
    for _ in range(3):
        loss = m.nn.functional.mse_loss(m.tanh(x @ w), m.zeros(2, 2))
        loss.backward()
        losses.append(loss.item())
        with m.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
    return losses, kind([w, loss])


# ---------------------------------------------------------------------- attributes


@like_pytorch
def test_attributes_of_the_users_own(m):
    t = m.ones(2)
    t.note = "n"
    before = dict(t.__dict__)
    del t.note
    return before, error_of(lambda: t.note), t.__dict__, hasattr(t * 1, "note")


@like_pytorch
def test_what_cannot_be_deleted_or_set(m):
    t = m.ones(2, requires_grad=True)
    names = ("data", "requires_grad", "shape", "dtype", "grad_fn", "_grad_fn", "_backward_hooks", "is_leaf", "_base", "_version", "T", "note")
    deleted = [error_of(lambda n=n: delattr(t, n)) for n in names]
    return deleted, [error_of(lambda n=n: setattr(t, n, None)) for n in ("grad_fn", "shape", "dtype", "data", "is_leaf", "_version", "_grad_fn")]


@like_pytorch
def test_deleting_the_gradient(m):
    t = m.ones(2, requires_grad=True)
    t.grad = m.ones(2)
    del t.grad
    first = t.grad
    t._grad = m.ones(2)
    second = t.grad
    del t._grad
    return first, second, t.grad


@like_pytorch
def test_hooks_are_listed(m):
    t = m.ones(2, requires_grad=True)
    before = t._backward_hooks
    handle = t.register_hook(lambda g: g)
    listed = len(t._backward_hooks)
    handle.remove()
    return before, listed


# ---------------------------------------------------------------------- Variable


@like_pytorch
def test_variables(m):
    Variable = m.autograd.Variable
    t = m.ones(2)
    v = Variable(t, requires_grad=True)
    with m.no_grad():
        v.add_(1)
    return [
        t, v is t, v.requires_grad, v._is_view(), isinstance(t, Variable), isinstance(3, Variable), issubclass(m.Tensor, Variable),
        Variable(v * 2).grad_fn, Variable(v).requires_grad, list(Variable().shape), kind(Variable(t)),
    ]  # fmt: skip


@like_pytorch
def test_what_variables_refuse(m):
    Variable = m.autograd.Variable
    calls = (
        lambda: Variable(3), lambda: Variable([1.0]), lambda: Variable(m.tensor([1]), requires_grad=True), lambda: m.autograd.variable(3),
        lambda: m.autograd.variable(), lambda: Variable(m.ones(1), volatile=True),
    )  # fmt: skip
    return [error_of(call) for call in calls]


def test_a_warning_points_at_the_users_line():
    y = tj.ones(1, requires_grad=True) * 2
    with pytest.warns(UserWarning, match="not a leaf") as caught:
        copy.copy([y.grad])
    assert caught[0].filename == __file__
