"""Inference mode against PyTorch: what is an inference tensor, what may be done with one, and with views made in the mode."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch

from compat_suite.fuzz.programs import same  # noqa: E402


def inference(m, *values):
    """An inference tensor."""
    with m.inference_mode():
        return m.tensor(list(values or (1.0, 2.0, 3.0, 4.0)))


def inside(m, make):
    with m.inference_mode():
        return make()


def state(t):
    node = t.grad_fn
    return t.is_inference(), t._is_view(), t._base is not None, t.requires_grad, node and node.name(), t.is_leaf


# ---------------------------------------------------------------------- the mode


@like_pytorch
def test_the_mode_nests_and_turns_grad_mode_off(m):
    def now():
        return m.is_grad_enabled(), m.is_inference_mode_enabled()

    seen = [now()]
    with m.inference_mode():
        seen.append(now())
        with m.inference_mode(False):
            seen.append(now())
        with m.enable_grad():
            seen.append(now())
            with m.inference_mode(False):
                seen.append(now())
        m.set_grad_enabled(True)
        with m.no_grad():
            seen.append(now())
        seen.append(now())
    with m.no_grad(), m.inference_mode(False):
        seen.append(now())
    return seen, now()


@like_pytorch
def test_the_mode_as_decorator(m):
    def now(*args):
        return m.is_grad_enabled(), m.is_inference_mode_enabled(), args

    @m.inference_mode
    def numbers():
        yield now()
        yield now()

    found = [m.inference_mode(now)(1), m.inference_mode()(now)(2), m.inference_mode(mode=False)(now)(3), m.inference_mode(mode=now)(4)]
    return found, [(x, now()) for x in numbers()], now()


@like_pytorch
def test_an_exception_ends_the_mode(m):
    def fail():
        with m.inference_mode():
            raise KeyError("inside")

    return error_of(fail), m.is_inference_mode_enabled(), m.is_grad_enabled(), state(leaf(m, 1.0) * 2)


@pytest.mark.parametrize("m", [torch, tj], ids=["torch", "ours"])
def test_the_mode_belongs_to_the_thread(m):
    seen = []
    with m.inference_mode():
        thread = threading.Thread(target=lambda: seen.append((m.is_inference_mode_enabled(), m.ones(2).is_inference())))
        thread.start()
        thread.join()
    assert seen == [(False, False)]


@like_pytorch
def test_nothing_is_recorded_inside_even_under_enable_grad(m):
    x = leaf(m, 1.0, 2.0)
    with m.inference_mode(), m.enable_grad():
        return state(x * x), state(m.ones(2, requires_grad=True) * 2)


@like_pytorch
def test_the_ordinary_mode_inside_the_mode(m):
    x = leaf(m, 1.0, 2.0)
    with m.inference_mode(), m.inference_mode(False):
        y = (x * x).sum()
        made = m.ones(2)
    y.backward()
    return state(y), state(made), x.grad


# ---------------------------------------------------------------------- which tensors are inference tensors

FACTORIES = {
    "zeros": lambda m, n: m.zeros(2), "tensor": lambda m, n: m.tensor([1.0]), "as_tensor": lambda m, n: m.as_tensor([1.0]),
    "from_numpy": lambda m, n: m.from_numpy(np.ones(2)), "arange": lambda m, n: m.arange(3), "linspace": lambda m, n: m.linspace(0, 1, 3),
    "eye": lambda m, n: m.eye(2), "full": lambda m, n: m.full((2,), 1.0), "zeros_like": lambda m, n: m.zeros_like(n),
    "new_ones": lambda m, n: n.new_ones(2), "rand": lambda m, n: m.rand(2), "randn_like": lambda m, n: m.randn_like(n),
    "randint": lambda m, n: m.randint(3, (2,)), "randperm": lambda m, n: m.randperm(3), "normal": lambda m, n: m.normal(n, n),
    "bernoulli": lambda m, n: m.bernoulli(n), "multinomial": lambda m, n: m.multinomial(n, 1), "nonzero": lambda m, n: m.nonzero(n),
    "where": lambda m, n: m.where(n > 0)[0], "unique": lambda m, n: m.unique(n), "tril_indices": lambda m, n: m.tril_indices(2, 2),
    "dropout": lambda m, n: m.nn.functional.dropout(n), "double": lambda m, n: n.double(), "index": lambda m, n: n[m.tensor([0])],
    "mask": lambda m, n: n[n > 0], "mul": lambda m, n: n * 2, "relu": lambda m, n: m.relu(n), "cat": lambda m, n: m.cat([n, n]),
    "sort": lambda m, n: m.sort(n)[1], "clone": lambda m, n: n.clone(), "deepcopy": lambda m, n: copy.deepcopy(n),
    "mm": lambda m, n: n.reshape(2, 2) @ n.reshape(2, 2),
    "linear": lambda m, n: m.nn.functional.linear(n.reshape(2, 2), n.reshape(2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", FACTORIES)
def test_what_is_allocated_inside_is_an_inference_tensor(name):
    def made(m):
        n = m.ones(4)
        inner = inside(m, lambda: FACTORIES[name](m, n))
        outer = FACTORIES[name](m, inference(m, 1.0, 1.0, 1.0, 1.0))
        return state(inner), inner.is_inference(), outer.is_inference()

    found = made(tj)
    assert found == made(torch)
    assert found[1] is True


@like_pytorch
def test_is_inference_as_a_function(m):
    return m.is_inference(m.ones(1)), m.is_inference(inference(m)), error_of(lambda: m.is_inference(3)) is not None


VIEWS = {
    "view": lambda t: t.view(2, 2), "index": lambda t: t[0], "slice": lambda t: t[1:], "split": lambda t: t.split(2)[1],
    "expand": lambda t: t.expand(2, 4), "two": lambda t: t.view(2, 2)[0], "reshape": lambda t: t.reshape(4, 1), "detach": lambda t: t.detach(),
    "data": lambda t: t.data,
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("of", ["leaf", "result", "plain", "inference"])
def test_a_view_is_an_inference_tensor_if_its_base_is(name, of):
    def views(m):
        x = leaf(m, 1.0, 2.0, 3.0, 4.0)
        t = {"leaf": x, "result": x * 1, "plain": x.detach(), "inference": inference(m)}[of]
        return state(inside(m, lambda: VIEWS[name](t))), state(VIEWS[name](t))

    assert views(tj) == views(torch)


@like_pytorch
def test_inference_tensors_have_no_version(m):
    i = inference(m)
    return error_of(lambda: i._version), error_of(lambda: i[0]._version), i.detach()._version, error_of(lambda: inside(m, i.detach)._version)


# ---------------------------------------------------------------------- writing


@like_pytorch
def test_normal_tensors_may_be_written_to_inside(m):
    x = leaf(m, 1.0, 2.0)
    h = x * 1
    with m.inference_mode():
        x.mul_(3)
        h.add_(1)
        h[0] = 7.0
    return x, x._version, state(x), h, h._version, state(h)


@like_pytorch
def test_a_write_inside_to_what_was_saved_is_noticed(m):
    x = leaf(m, 1.0, 2.0)
    y = x * x
    with m.inference_mode():
        x.mul_(2)
    y.sum().backward()


@like_pytorch
def test_inference_tensors_may_be_written_to_inside(m):
    i = inference(m)
    with m.inference_mode():
        i.mul_(2)
        i[0] = 9.0
        i.view(2, 2)[1].fill_(5.0)
        m.add(i, 1, out=i)
    return i, state(i)


WRITES = {
    "mul_": lambda m, i: i.mul_(2), "setitem": lambda m, i: i.__setitem__(0, 9.0), "a view": lambda m, i: i.view(2, 2).mul_(2),
    "out": lambda m, i: m.mul(m.ones(4), 2, out=i), "copy_": lambda m, i: i.copy_(m.zeros(4)),
    "of a graph": lambda m, i: i.add_(leaf(m, 1.0, dtype="float32")),
    "without grad": lambda m, i: m.no_grad()(lambda: i.mul_(2))(),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_writing_to_an_inference_tensor_outside_raises_after_it_has_written(name):
    def written(m):
        i = inference(m)
        return error_of(lambda: WRITES[name](m, i)), i.tolist()

    found = written(tj)
    assert found == written(torch)
    assert found[0] is not None


@like_pytorch
def test_a_detached_twin_made_outside_may_be_written_to(m):
    i = inference(m)
    twin = i.detach()
    twin.mul_(2)
    return i, twin, twin._version, twin.is_inference(), error_of(lambda: i.mul_(2))


# ---------------------------------------------------------------------- views of normal tensors made inside


def _uses():
    def after(change):
        def use(m, v, a):
            change(m, a)
            return state(v), v * 2

        return use

    return {
        "multiply": lambda m, v, a: state(v * 2),
        "differentiate": lambda m, v, a: (v * v).sum().backward(),
        "view": lambda m, v, a: state(v.view(-1)),
        "write": lambda m, v, a: (v.mul_(2), state(v), v._version),
        "write what requires grad": lambda m, v, a: v.add_(leaf(m, 1.0)),
        "write a view": lambda m, v, a: v.view(-1).mul_(2),
        "write inside": lambda m, v, a: (inside(m, lambda: v.mul_(2)), v._version, state(v)),
        "write without grad": lambda m, v, a: (m.no_grad()(lambda: v.mul_(2))(), v._version),
        "write the base": after(lambda m, a: a.mul_(2)),
        "write the base inside": after(lambda m, a: inside(m, lambda: a.mul_(2))),
        "require grad": lambda m, v, a: (v.requires_grad_(), state(v), state(v * 2)),
    }


@pytest.mark.parametrize("use", _uses())
@pytest.mark.parametrize("view", ["view", "split", "two", "detach"])
@pytest.mark.parametrize("of", ["leaf", "result", "plain"])
def test_a_view_made_inside_and_used_outside(of, view, use):
    def program(m):
        x = leaf(m, 1.0, 2.0, 3.0, 4.0)
        a = {"leaf": x, "result": x * 1, "plain": x.detach().clone()}[of]
        v = inside(m, lambda: VIEWS[view](a))
        return _uses()[use](m, v, a), a, x.grad

    like_pytorch(program)()


# ---------------------------------------------------------------------- inference tensors and the graph

SAVING = {
    "mul": lambda m, x, i: x * i, "mul by": lambda m, x, i: i * x, "div": lambda m, x, i: x / i, "mm": lambda m, x, i: x.view(2, 2) @ i.view(2, 2),
    "view": lambda m, x, i: x.view(2, 2) * i.view(2, 2), "part": lambda m, x, i: x[1] * i[1], "mul_": lambda m, x, i: (x * 1).mul_(i),
    "linear": lambda m, x, i: m.nn.functional.linear(i.view(2, 2), x.view(2, 2)),
    "gather": lambda m, x, i: x.gather(0, inside(m, lambda: m.tensor([0, 1]))),
    "index": lambda m, x, i: x[inside(m, lambda: m.tensor([0, 1]))], "grad": lambda m, x, i: m.autograd.grad(x * x, x, i, create_graph=True),
}  # fmt: skip
NOT_SAVING = {
    "add": lambda m, x, i: x + i, "sub": lambda m, x, i: i - x, "add_": lambda m, x, i: (x * 1).add_(i), "cat": lambda m, x, i: m.cat([i, x]),
    "where": lambda m, x, i: m.where(i > 1, x, i), "without grad": lambda m, x, i: m.no_grad()(lambda: x * i)(),
    "clone": lambda m, x, i: x * i.clone(),
    "exp": lambda m, x, i: i.exp() * x, "twice": lambda m, x, i: (i * 2) * x, "copy_": lambda m, x, i: m.zeros(4, dtype=m.float64).copy_(i),
}  # fmt: skip


@pytest.mark.parametrize("name", SAVING)
def test_inference_tensors_cannot_be_saved_for_backward(name):
    def saved(m):
        x, i = leaf(m, 1.0, 2.0, 3.0, 4.0, dtype="float32"), inference(m)
        first = error_of(lambda: SAVING[name](m, x, i))
        (x * x).sum().backward()  # what comes after is not affected
        return first, error_of(lambda: SAVING[name](m, x, i)), x.grad.tolist()

    found = saved(tj)
    assert found == saved(torch)
    assert found[0] is not None and found[0] == found[1]


@pytest.mark.parametrize("name", NOT_SAVING)
def test_inference_tensors_take_part_where_nothing_is_saved_of_them(name):
    def program(m):
        x = leaf(m, 1.0, 2.0, 3.0, 4.0, dtype="float32")
        y = NOT_SAVING[name](m, x, inference(m))
        if y.requires_grad:
            y.sum().backward()
        return state(y), y, x.grad

    like_pytorch(program)()


@like_pytorch
def test_an_inference_tensor_made_in_another_thread_is_not_saved_either(m):
    made = []
    thread = threading.Thread(target=lambda: made.append(inference(m)))
    thread.start()
    thread.join()
    return leaf(m, 1.0, 2.0, 3.0, 4.0) * made[0]


@like_pytorch
def test_requires_grad_of_inference_tensors(m):
    i = inference(m)
    found = [error_of(i.requires_grad_), error_of(lambda: setattr(i, "requires_grad", True)), error_of(lambda: i.requires_grad_(False))]
    with m.inference_mode():
        found.append(state(m.ones(2).requires_grad_()))
        r = m.ones(2, requires_grad=True)
        found += [state(r), state(r * 2), state(r[0])]
    return found, error_of(r.requires_grad_), state(i.clone().requires_grad_())


@like_pytorch
def test_detach_in_place_does_nothing_inside(m):
    y = leaf(m, 1.0) * 2
    with m.inference_mode():
        y.detach_()
    return state(y)


# ---------------------------------------------------------------------- backward and Function


@like_pytorch
def test_gradients_computed_inside_are_inference_tensors(m):
    x = leaf(m, 1.0, 2.0)
    y, z, again = (x * x).sum(), (x * 3).sum(), (x * 5).sum()
    seen = []
    x.register_hook(lambda g: seen.append((g.is_inference(), m.is_inference_mode_enabled(), m.is_grad_enabled())))
    with m.inference_mode():
        (g,) = m.autograd.grad(y, x, retain_graph=True)
        y.backward()
        first = x.grad
        z.backward()
    return state(g), state(x.grad), x.grad, first is x.grad, seen, error_of(again.backward)


@like_pytorch
def test_a_gradient_from_before_is_added_to_inside(m):
    x = leaf(m, 1.0, 2.0)
    y, z = (x * x).sum(), (x * 3).sum()
    z.backward()
    with m.inference_mode():
        y.backward()
    return state(x.grad), x.grad, x.grad._version


@like_pytorch
def test_create_graph_inside_makes_no_graph(m):
    x = leaf(m, 1.0, 2.0)
    y = (x * x).sum()
    with m.inference_mode():
        (g,) = m.autograd.grad(y, x, create_graph=True)
    return state(g), g


@like_pytorch
def test_backward_from_an_inference_gradient(m):
    x = leaf(m, 1.0, 2.0, 3.0, 4.0, dtype="float32")
    (x * x).backward(inference(m))
    return state(x.grad), x.grad


@like_pytorch
def test_functions_inside_and_outside(m):
    class Product(m.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g * b, g * a

    x, i = leaf(m, 1.0, 2.0, 3.0, 4.0, dtype="float32"), inference(m)
    found = [state(inside(m, lambda: Product.apply(x, x))), state(Product.apply(i, i)), error_of(lambda: Product.apply(x, i))]
    return found, state(Product.apply(x, i.clone()))


@like_pytorch
def test_copies_of_inference_tensors_made_outside_are_normal(m):
    i = inference(m)
    return state(copy.deepcopy(i)), state(i.clone()), state(i.double()), i.float() is i, i.numpy().tolist(), i.sum().item()


@pytest.mark.parametrize("name", ["clone", "double", "copied", "scaled", "summed"])
def test_copies_of_inference_tensors_that_require_a_gradient_have_a_graph(name):
    def program(m):
        with m.inference_mode():
            i = m.tensor([1.0, 2.0], requires_grad=True)
        calls = {"clone": i.clone, "double": i.double, "copied": lambda: i.to(m.float32, copy=True), "scaled": lambda: i * 2, "summed": i.sum}
        y = calls[name]()
        if y.requires_grad:
            (y * 3).sum().backward()
        return y.requires_grad, y.is_inference(), i.grad

    like_pytorch(program)()


@like_pytorch
def test_training_goes_on_beside_inference_tensors(m):
    w = leaf(m, 1.0, -2.0, 0.5, 3.0, dtype="float32")
    kept = []
    for _ in range(4):
        loss = (m.tanh(w) * w).sum()
        loss.backward()
        with m.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
        with m.inference_mode():
            kept.append((w * w).sum())
    return w, [k.item() for k in kept], [k.is_inference() for k in kept], w._version


@like_pytorch
def test_a_view_of_a_twin_counts_no_versions(m):
    twin = inference(m).detach()
    view, raised = twin[1:], error_of(lambda: twin.add_(1))
    return raised, twin._version, error_of(lambda: view._version), view.is_inference(), error_of(lambda: view.add_(1)), twin


@like_pytorch
def test_views_of_an_inference_tensor_are_first_outputs(m):
    return [v.output_nr for v in inference(m).unbind(0)]


@like_pytorch
def test_a_write_from_a_tracked_tensor_is_refused_after_the_fact(m):
    x, w = inference(m), leaf(m, 2.0, 4.0, 5.0, 8.0, dtype="float32")
    return error_of(lambda: x.div_(w)), x, x.requires_grad


@like_pytorch
def test_a_view_made_in_the_mode_is_one_whatever_is_made_of_it(m):
    x = leaf(m, 1.0, 2.0) * 1
    with m.inference_mode():
        v = x.view(2, 1)
    with m.no_grad():
        w = v.view(2)
    part = v.unbind(0)[0]
    x.mul_(2)
    return error_of(lambda: w.grad_fn), error_of(lambda: part.grad_fn)


@like_pytorch
def test_the_first_of_two_outdated_views_is_the_one_refused(m):
    x = leaf(m, 1.0, 2.0, 3.0, 4.0)
    view = inside(m, lambda: x[:2])
    expanded = view.expand_as(view)
    inside(m, lambda: x.mul_(2))
    return error_of(lambda: view / expanded), error_of(lambda: expanded / view)


@like_pytorch
def test_a_view_without_history_saves_nothing_of_an_inference_tensor(m):
    with m.no_grad():
        view = leaf(m, 1.0, 2.0)[:1]
    return error_of(lambda: view * inference(m, 3.0)), error_of(lambda: leaf(m, 1.0) * inference(m, 3.0))


@like_pytorch
def test_a_view_without_history_saves_what_is_not_only_for_its_own_gradient(m):
    with m.no_grad():
        view = leaf(m, 1.0, 2.0).view(2)
    other = inference(m, 3.0, 4.0)
    pairs = [m.minimum, m.maximum, m.atan2, m.div, m.pow, m.fmin, m.hypot, m.sub, m.dot, m.copysign]
    return [(error_of(lambda f=f: f(view, other)), error_of(lambda f=f: f(other, view))) for f in pairs]


# ---------------------------------------------------------------------- autograd and inference tensors


OPERATIONS = ["t / t", "t * 2", "t + t", "t * torch.ones(2)", "t * x", "t + x", "t.view(2).sin()", "torch.cat([t, t])", "t.sum()", "t ** 2",
              "t.clamp(0)", "torch.lerp(t, t, 0.5)", "torch.where(t > 0, t, 0.0)", "t.pow(t)", "torch.stack([t, t], 1)"]  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS)
def test_autograd_takes_no_notice_of_what_is_made_of_inference_tensors_alone(operation):
    same(f"""
        x = leaf(2)
        with torch.inference_mode(): t = x * 1
        with torch.inference_mode(): t.requires_grad_()
        y = {operation}
        y.sum().backward()
    """)


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_stacked_inference_tensors_have_a_base(dim):
    same(f"""
        with torch.inference_mode(): t = leaf(2, 3, requires_grad=False)
        y = torch.stack([t, t], {dim})
        z = torch.stack([t, leaf(2, 3, requires_grad=False)], {dim})
        with torch.inference_mode(): w = torch.stack([t], {dim})
        assert (y._base is None) == ({dim} in (2, -1)) and z._base is w._base is None
    """)


TWIN_WRITES = {
    "mul": lambda d, x, t: d.mul_(x), "number": lambda d, x, t: d.add_(x).mul_(2), "twice": lambda d, x, t: d.mul_(x).mul_(x),
    "copy": lambda d, x, t: d.copy_(x), "saved": lambda d, x, t: d.addcmul_(t, x), "with itself": lambda d, x, t: d.add_(x).mul_(t),
    "alpha": lambda d, x, t: d.add_(x, alpha=2), "data": lambda d, x, t: t.data.add_(x),
}  # fmt: skip


@pytest.mark.parametrize("name", TWIN_WRITES)
def test_a_twin_made_outside_takes_part_in_the_graph_once_it_is_written_to(name):
    def program(m):
        x = leaf(m, 1.0, 2.0)
        t = inside(m, lambda: x.tanh())
        d = t.detach()
        d = TWIN_WRITES[name](d, x, t)
        (d + x).sum().backward()
        return d.requires_grad, d.is_inference(), d.is_leaf, d._version, x.grad, t.tolist()

    like_pytorch(program)()


@pytest.mark.parametrize("statement", ["x.mul_(2)", "x.mul_(x)", "x.mul_(w)", "x.mul_(o)", "x.addcmul_(x, x)", "x[0] = 1", "x.add_(o)"])
@pytest.mark.parametrize("made", ["t", "t.detach()", "t[...]"])
@pytest.mark.parametrize("mode", ["inference_mode", "enable_grad"])
def test_a_write_to_an_inference_tensor_that_was_made_to_require_a_gradient(made, statement, mode):
    same(f"""
        with torch.inference_mode(): t = torch.ones(2)
        x = {made}
        w = leaf(2)
        o = torch.ones(2)
        with torch.inference_mode(): x.requires_grad_()
        with torch.{mode}(): {statement}
        x.tolist()
    """)
