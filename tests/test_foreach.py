"""`torch._foreach_*`: what optimizers do to all parameters at once."""

from __future__ import annotations

import pytest

import torchgrad_jax as tj

pytestmark = pytest.mark.operators

UNARY = [
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma", "log", "log10", "log1p"),
    *("log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "clone", "max", "norm"),
]
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "clamp_max", "clamp_min", "pow"]
BESIDE = {
    "number": lambda m, ys: 0.6, "numbers": lambda m, ys: [0.5, 2], "list": lambda m, ys: ys, "0-dim": lambda m, ys: m.tensor(0.5, dtype=m.float64),
}  # fmt: skip


def lists(m):
    def leaf(*values):
        return m.tensor(list(values), dtype=m.float64, requires_grad=True)

    return [leaf(0.3, 0.9), leaf(0.5)], [leaf(0.6, 0.2), leaf(0.7)]


def seen(m, results, leaves):
    """The results, their node, and the first and second derivatives."""
    node = results[0].grad_fn
    total = sum((r * r).sum() for r in results)
    first = m.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
    second = m.autograd.grad(sum((g * g).sum() for g in first if g is not None and g.requires_grad), leaves, allow_unused=True) if any(
        g is not None and g.requires_grad for g in first
    ) else ()  # fmt: skip
    numbers = [[t if t is None else t.tolist() for t in group] for group in (results, first, second)]
    return node.name(), type(results), [r.output_nr for r in results], len(node.next_functions), numbers


def alike(a, b):
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    return a == pytest.approx(b, rel=1e-9, abs=1e-12) if isinstance(a, float) else a == b


def compare(program):
    torch = pytest.importorskip("torch")
    ours, theirs = program(tj), program(torch)
    assert alike(ours, theirs), f"\nours:   {ours}\ntheirs: {theirs}"


@pytest.mark.parametrize("name", UNARY)
def test_one_node_for_a_list(name):
    def program(m):
        xs, _ = lists(m)
        return seen(m, getattr(m, f"_foreach_{name}")(xs), xs)

    compare(program)


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("name", BINARY)
def test_of_each_with_something_beside_it(name, beside):
    def program(m):
        xs, ys = lists(m)
        leaves = xs + ys if beside == "list" else xs
        found = seen(m, getattr(m, f"_foreach_{name}")(xs, BESIDE[beside](m, ys)), leaves)
        return found if beside != "0-dim" else found[:1] + found[4:]

    compare(program)


OTHERS = {
    "add_alpha": lambda m, xs, ys: m._foreach_add(xs, ys, alpha=3), "sub_alpha": lambda m, xs, ys: m._foreach_sub(xs, ys, alpha=3),
    "addcmul": lambda m, xs, ys: m._foreach_addcmul(xs, ys, ys), "addcmul_value": lambda m, xs, ys: m._foreach_addcmul(xs, ys, ys, 2.0),
    "lerp": lambda m, xs, ys: m._foreach_lerp(xs, ys, 0.3),
    "lerp_values": lambda m, xs, ys: m._foreach_lerp(xs, ys, [0.3, 0.4]), "lerp_list": lambda m, xs, ys: m._foreach_lerp(xs, ys, ys),
    "power_of_number": lambda m, xs, ys: m._foreach_pow(2.0, xs), "norm_1": lambda m, xs, ys: m._foreach_norm(xs, 1),
    "norm_inf": lambda m, xs, ys: m._foreach_norm(xs, float("inf")),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_others(name):
    def program(m):
        xs, ys = lists(m)
        return seen(m, OTHERS[name](m, xs, ys), xs + ys)

    compare(program)


INPLACE = {
    "add_": lambda m, xs, ys: m._foreach_add_(xs, ys, alpha=2), "mul_": lambda m, xs, ys: m._foreach_mul_(xs, 2),
    "sqrt_": lambda m, xs, ys: m._foreach_sqrt_(xs), "sub_": lambda m, xs, ys: m._foreach_sub_(xs, [1, 2]),
    "addcdiv_": lambda m, xs, ys: m._foreach_addcdiv_(xs, ys, ys, [1.0, 2.0]), "lerp_": lambda m, xs, ys: m._foreach_lerp_(xs, ys, 0.1),
    "pow_": lambda m, xs, ys: m._foreach_pow_(xs, 2), "clamp_min_": lambda m, xs, ys: m._foreach_clamp_min_(xs, ys),
    "zero_": lambda m, xs, ys: m._foreach_zero_(xs),
}  # fmt: skip


@pytest.mark.parametrize("name", INPLACE)
def test_in_place(name):
    def program(m):
        leaves, ys = lists(m)
        xs = [x * 1 for x in leaves]
        INPLACE[name](m, xs, ys)
        sum((x * x).sum() for x in xs).backward()
        return [x.tolist() for x in xs], [x._version for x in xs], [x.grad.tolist() for x in leaves]

    compare(program)


def test_in_place_without_a_graph():
    xs = [tj.ones(2), tj.tensor([3.0])]
    assert tj._foreach_mul_(xs, 3) is not None and [x.tolist() for x in xs] == [[3.0, 3.0], [9.0]]
    tj._foreach_maximum_(xs, [4, 5.0])
    assert [x.tolist() for x in xs] == [[4.0, 4.0], [9.0]]
    tj._foreach_copy_(xs, [tj.zeros(2), tj.ones(1)])
    assert [x.tolist() for x in xs] == [[0.0, 0.0], [1.0]]


def test_a_quotient_with_a_factor_for_each():
    xs, ys = lists(tj)
    made = tj._foreach_addcdiv(xs, xs, ys, [2.0, 3.0])
    expected = [x + n * x / y for x, y, n in zip(xs, ys, (2.0, 3.0), strict=True)]
    assert all(map(tj.allclose, made, expected))
    assert tj.autograd.gradcheck(lambda *ts: tj._foreach_addcdiv(ts[:2], ts[:2], ts[2:], [2.0, 3.0]), (*xs, *ys))
    assert tj.autograd.gradgradcheck(lambda *ts: tj._foreach_addcdiv(ts[:2], ts[:2], ts[2:], [2.0, 3.0]), (*xs, *ys))


WRONG = {
    "none": lambda m, xs, ys: m._foreach_add([], 1), "no_list": lambda m, xs, ys: m._foreach_exp(3),
    "a_tensor": lambda m, xs, ys: m._foreach_exp(xs[0]),
    "an_odd_element": lambda m, xs, ys: m._foreach_add([xs[0], 3], 1), "shorter_list": lambda m, xs, ys: m._foreach_add(xs, ys[:1]),
    "fewer_numbers": lambda m, xs, ys: m._foreach_add(xs, [1.0]), "a_leaf": lambda m, xs, ys: m._foreach_add_(xs, 1),
    "integers": lambda m, xs, ys: m._foreach_add_([m.tensor([1])], 1.5), "complex_order": lambda m, xs, ys: m._foreach_norm(xs, 1j),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(name):
    def program(m):
        with pytest.raises((RuntimeError, TypeError)) as caught:
            WRONG[name](m, *lists(m))
        return type(caught.value).__name__, str(caught.value)

    compare(program)


def test_what_the_node_shows():
    xs, ys = lists(tj)
    node = tj._foreach_maximum(xs, [0.5, 1])[0].grad_fn
    assert node._saved_scalars == (0.5, 1) and all(a is b for a, b in zip(node._saved_self, xs, strict=True))
    assert tj._foreach_minimum(xs, 2)[0].grad_fn._saved_scalar == 2
    norms = tj._foreach_norm(xs, 1)
    assert norms[1].grad_fn._saved_ord == 1
    assert [(t.grad_fn, t.output_nr) for t in norms[0].grad_fn._saved_result] == [(norms[0].grad_fn, 0), (norms[0].grad_fn, 1)]
    with pytest.raises(AttributeError, match="'ForeachAddBackward1Scalar' object has no attribute '_saved_self'"):
        _ = tj._foreach_add(xs, 1)[0].grad_fn._saved_self


def test_a_list_of_which_not_all_need_a_gradient():
    x, k = tj.tensor([2.0], requires_grad=True), tj.tensor([3.0])
    r = tj._foreach_mul([x, k], [k, x])
    assert [t.requires_grad for t in tj._foreach_exp([x, k])] == [True, True]
    (r[0] + 2 * r[1]).backward()
    assert x.grad.item() == 9.0 and k.grad is None


def test_it_is_freed_as_a_whole():
    xs, _ = lists(tj)
    a, b = tj._foreach_exp(xs)
    a.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        b.sum().backward()


def test_a_loop_repeats_and_hooks_run():
    xs, ys = lists(tj)
    found = []
    for _ in range(4):
        r = tj._foreach_mul(xs, ys)
        r[0].register_hook(lambda g: g * 2)
        sum(t.sum() for t in r).backward()
        found.append([x.grad.tolist() for x in xs])
        for x in xs + ys:
            x.grad = None
    assert found == [[[1.2, 0.4], [0.7]]] * 4


def test_it_is_transformed():
    f = lambda x: sum(t.sum() for t in tj._foreach_exp([x, 2 * x]))  # noqa: E731
    x = tj.tensor([0.1, 0.2], dtype=tj.float64)
    expected = x.exp() + 2 * (2 * x).exp()
    assert tj.allclose(tj.func.grad(f)(x), expected)
    assert tj.allclose(tj.func.vmap(tj.func.grad(f))(x[:, None])[:, 0], expected)
    assert tj.allclose(tj.func.jvp(f, (x,), (tj.ones_like(x),))[1], expected.sum())


NAMED = [
    *(f"_foreach_{name}(xs, scalar=0.6)" for name in BINARY if name != "pow"), *(f"_foreach_{name}(xs, scalars=[0.5, 2])" for name in BINARY[:-1]),
    "_foreach_add(xs, other=ys, alpha=2)", "_foreach_mul(self=xs, other=ys)", "_foreach_pow(xs, exponent=ys)", "_foreach_lerp(xs, ys, weights=ys)",
    "_foreach_lerp(xs, tensors1=ys, weight=0.3)", "_foreach_addcmul(xs, ys, ys, value=2)", "_foreach_addcdiv(xs, ys, tensor2=ys, scalars=[1, 2])",
    "_foreach_clone(xs, memory_format=m.preserve_format)",
]  # fmt: skip


@pytest.mark.parametrize("call", NAMED)
def test_what_stands_beside_a_list_is_named_after_its_kind(call):
    def program(m):
        xs, ys = lists(m)
        return seen(m, eval(f"m.{call}", {"m": m, "xs": xs, "ys": ys}), xs)

    compare(program)


def test_in_place_what_stands_beside_a_list_is_named_too():
    def program(m):
        xs, ys = ([t.detach() for t in group] for group in lists(m))
        m._foreach_mul_(xs, scalar=3)
        m._foreach_add_(xs, scalars=[1.0, 2.0])
        m._foreach_sub_(xs, other=ys, alpha=2)
        m._foreach_pow_(xs, exponent=2)
        m._foreach_lerp_(xs, ys, weights=ys)
        m._foreach_addcdiv_(xs, ys, ys, scalars=[1.0, 2.0])
        return [t.tolist() for t in xs]

    compare(program)


@pytest.mark.parametrize(
    "call", ["_foreach_add(xs)", "_foreach_mul_(xs, scalar=1, scalars=[1, 2])", "_foreach_lerp(xs, xs)", "_foreach_add(xs, 1, other=xs)"]
)
def test_one_thing_stands_beside_a_list(call):
    def program(m):
        with pytest.raises(TypeError):
            eval(f"m.{call}", {"m": m, "xs": [m.ones(1), m.ones(1)]})

    compare(program)
