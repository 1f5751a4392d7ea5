"""Calls of `torch.func` that fail: PyTorch's exceptions and texts."""

import functools
from collections import namedtuple

import pytest
from side_by_side import error_of, like_pytorch, tj, torch

pytestmark = pytest.mark.operators

Case = namedtuple("Case", "name call")
CASES = []


def case(name):
    def add(call):
        CASES.append(Case(name, call))
        return call

    return add


def cases(transform, calls):
    for name, call in calls.items():
        CASES.append(Case(f"{transform}, {name}", call))


def x(m):
    return m.tensor([1.0, 2.0, 3.0])


def rows(m):
    return m.arange(6.0).reshape(2, 3)


def double(x):
    return x * 2


def total(*parts):
    return functools.reduce(lambda a, b: a + b, [p.sum() for p in parts])


def into(captured):
    """A function that writes to what it captured."""
    return lambda x: captured.mul_(x).sum()


def raises(error):
    def f(*args):
        raise error

    return f


def mapped_by(m, out_dims):
    """A Function whose `vmap` says that its result has the batch there."""

    class Mine(m.autograd.Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            return x * 2, out_dims

    return Mine


cases("vmap", {
    "no inputs": lambda m: m.vmap(double)(),
    "keyword inputs alone": lambda m: m.vmap(double)(x=rows(m)),
    "a number": lambda m: m.vmap(double)(2),
    "a number among tensors": lambda m: m.vmap(total)(rows(m), 2.0),
    "None": lambda m: m.vmap(total)(rows(m), None),
    "in_dims None": lambda m: m.vmap(double, None)(rows(m)),
    "nothing mapped": lambda m: m.vmap(total, (None, None))(rows(m), rows(m)),
    "no dimensions": lambda m: m.vmap(double)(m.tensor(1.0)),
    "in_dim too large": lambda m: m.vmap(double, 2)(rows(m)),
    "in_dim too small": lambda m: m.vmap(double, -3)(rows(m)),
    "sizes": lambda m: m.vmap(total, (0, 1))(rows(m), rows(m)),
    "too few in_dims": lambda m: m.vmap(total, (0,))(rows(m), rows(m)),
    "too many in_dims": lambda m: m.vmap(total, (0, 0, 0))(rows(m), rows(m)),
    "a list of in_dims": lambda m: m.vmap(total, [0, 0])(rows(m), rows(m)),
    "in_dims a dict": lambda m: m.vmap(double, {"a": 0})(rows(m)),
    "in_dims a string": lambda m: m.vmap(double, "0")(rows(m)),
    "in_dim a float": lambda m: m.vmap(double, (0.0,))(rows(m)),
    "keys of in_dims": lambda m: m.vmap(double, ({"a": 0},))({"a": rows(m), "b": rows(m)}),
    "tuple for list": lambda m: m.vmap(double, ((0, None),))([rows(m), rows(m)]),
    "result None": lambda m: m.vmap(lambda x: None)(rows(m)),
    "result a number": lambda m: m.vmap(lambda x: (x, 2))(rows(m)),
    "result a set": lambda m: m.vmap(lambda x: {1})(rows(m)),
    "keys of out_dims": lambda m: m.vmap(lambda x: {"a": x, "b": x}, out_dims={"a": 1})(rows(m)),
    "too few out_dims": lambda m: m.vmap(lambda x: (x, x), out_dims=(0,))(rows(m)),
    "too many out_dims": lambda m: m.vmap(double, out_dims=(0, 1))(rows(m)),
    "out_dims a string": lambda m: m.vmap(double, out_dims="0")(rows(m)),
    "out_dims of strings": lambda m: m.vmap(double, out_dims=("a", 0))(rows(m)),
    "out_dims a float, told before the call": lambda m: m.vmap(raises(KeyError("called")), out_dims=1.0)(rows(m)),
    "out_dims None": lambda m: m.vmap(double, out_dims=None)(rows(m)),
    "out_dims None among others": lambda m: m.vmap(lambda x: (x, x), out_dims=(0, None))(rows(m)),
    "out_dim too large": lambda m: m.vmap(double, out_dims=2)(rows(m)),
    "out_dim too small": lambda m: m.vmap(double, out_dims=-3)(rows(m)),
    "randomness": lambda m: m.vmap(double, randomness="some"),
    "randomness None": lambda m: m.vmap(double, randomness=None),
    "chunk_size 0": lambda m: m.vmap(double, chunk_size=0),
    "chunk_size below 0": lambda m: m.vmap(double, chunk_size=-1),
    "chunk_size by position": lambda m: m.vmap(double, 0, 0, "error", 2),
    "no function": lambda m: m.vmap(),
    "a number for a function": lambda m: m.vmap(3)(rows(m)),
    "a partial, no inputs": lambda m: m.vmap(functools.partial(total, 1))(),
    "a module, a number": lambda m: m.vmap(m.nn.Identity())(3),
    "nested, no dimensions left": lambda m: m.vmap(m.vmap(double))(x(m)),
    "nested, sizes": lambda m: m.vmap(m.vmap(total))(rows(m), x(m)[:2]),
    "random numbers": lambda m: m.vmap(lambda x: m.rand(3))(rows(m)),
    "dropout": lambda m: m.vmap(m.nn.functional.dropout)(rows(m)),
    "item()": lambda m: m.vmap(lambda x: x.sum().item())(rows(m)),
    "item() of several elements": lambda m: m.vmap(lambda x: x.item())(rows(m)),
    "item() of no elements": lambda m: m.vmap(lambda x: x[:0].item())(rows(m)),
    "if": lambda m: m.vmap(lambda x: x if x.sum() > 0 else -x)(rows(m)),
    "if, of several elements": lambda m: m.vmap(lambda x: x if x > 0 else -x)(rows(m)),
    "data": lambda m: m.vmap(lambda x: x.data)(rows(m)),
    "data of an outer batch": lambda m: m.vmap(lambda a: m.func.grad(lambda b: (b * a.data).sum())(a))(rows(m)),
    "storage": lambda m: m.vmap(lambda x: x.untyped_storage().size() and x)(rows(m)),
    "data_ptr": lambda m: m.vmap(lambda x: x.data_ptr() and x)(rows(m)),
    "a Function's rule with one result and two out_dims": lambda m: m.vmap(mapped_by(m, (0, 0)).apply)(rows(m)),
    "a Function's rule with an out_dim that there is not": lambda m: m.vmap(mapped_by(m, 2).apply)(rows(m)),
    "backward()": lambda m: m.vmap(lambda x: x.sum().backward())(rows(m).requires_grad_()),
    "what the function raises": lambda m: m.vmap(raises(KeyError("mine")))(rows(m)),
})  # fmt: skip

for transform in ("grad", "grad_and_value"):

    def of(m, *args, transform=transform, **kwargs):
        return getattr(m.func, transform)(*args, **kwargs)

    cases(transform, {
        "a list of argnums": lambda m, of=of: of(m, total, [0])(x(m)),
        "argnums a float": lambda m, of=of: of(m, total, 0.0)(x(m)),
        "argnums None": lambda m, of=of: of(m, total, None)(x(m)),
        "no argnums": lambda m, of=of: of(m, total, ())(x(m)),
        "argnum too large": lambda m, of=of: of(m, total, 1)(x(m)),
        "argnum too small": lambda m, of=of: of(m, total, -2)(x(m)),
        "argnum in a tuple too large": lambda m, of=of: of(m, total, (0, 2))(x(m), x(m)),
        "argnum in a tuple a float": lambda m, of=of: of(m, total, (0.0,))(x(m)),
        "argnums twice": lambda m, of=of: of(m, total, (0, 0))(x(m)),
        "argnums twice, one from the end": lambda m, of=of: of(m, total, (0, -1))(x(m)),
        "no arguments": lambda m, of=of: of(m, total)(),
        "keyword arguments alone": lambda m, of=of: of(m, lambda x: x.sum())(x=x(m)),
        "a vector": lambda m, of=of: of(m, double)(x(m)),
        "one element": lambda m, of=of: of(m, lambda x: x[:1])(x(m)),
        "a number": lambda m, of=of: of(m, lambda x: 2.0)(x(m)),
        "a tuple": lambda m, of=of: of(m, lambda x: (x.sum(), x))(x(m)),
        "None": lambda m, of=of: of(m, lambda x: None)(x(m)),
        "a complex result": lambda m, of=of: of(m, lambda x: (x * 1j).sum())(x(m)),
        "has_aux and no tuple": lambda m, of=of: of(m, total, has_aux=True)(x(m)),
        "has_aux and three": lambda m, of=of: of(m, lambda x: (x.sum(), x, x), has_aux=True)(x(m)),
        "has_aux and a list": lambda m, of=of: of(m, lambda x: [x.sum(), x], has_aux=True)(x(m)),
        "aux no tensor": lambda m, of=of: of(m, lambda x: (x.sum(), {"a": 1}), has_aux=True)(x(m)),
        "has_aux and a number": lambda m, of=of: of(m, lambda x: (1.0, x), has_aux=True)(x(m)),
        "an integer tensor": lambda m, of=of: of(m, total)(m.tensor([1, 2])),
        "a float argument": lambda m, of=of: of(m, lambda x: x**2)(3.0),
        "None in a tree": lambda m, of=of: of(m, lambda t: t["a"].sum())({"a": x(m), "b": None}),
        "no function": lambda m, of=of: of(m, 3)(x(m)),
        "what the function raises": lambda m, of=of: of(m, raises(KeyError("mine")))(x(m)),
        "backward()": lambda m, of=of: of(m, lambda x: x.sum().backward())(x(m)),
        "requires_grad_()": lambda m, of=of: of(m, lambda x: x.requires_grad_().sum())(x(m)),
        "a captured tensor is written to": lambda m, of=of: of(m, into(x(m)))(x(m)),
        "the argument is written to": lambda m, of=of: of(m, lambda v: v.mul_(2).sum())(x(m)),
    })  # fmt: skip

cases("vjp", {
    "a float primal": lambda m: m.func.vjp(double, 2.0),
    "None": lambda m: m.func.vjp(total, x(m), None),
    "an integer primal": lambda m: m.func.vjp(double, m.tensor([1])),
    "a number returned": lambda m: m.func.vjp(lambda x: 2.0, x(m)),
    "a number among results": lambda m: m.func.vjp(lambda x: (x, 2.0), x(m)),
    "None returned": lambda m: m.func.vjp(lambda x: None, x(m)),
    "None among results": lambda m: m.func.vjp(lambda x: (x, None), x(m)),
    "nothing returned": lambda m: m.func.vjp(lambda x: (), x(m)),
    "integers returned": lambda m: m.func.vjp(lambda x: x.long(), x(m)),
    "has_aux and no tuple": lambda m: m.func.vjp(double, x(m), has_aux=True),
    "aux no tensor": lambda m: m.func.vjp(lambda x: (x, "a"), x(m), has_aux=True),
    "keyword arguments": lambda m: m.func.vjp(double, x=x(m)),
    "cotangents a tuple": lambda m: m.func.vjp(double, x(m))[1]((x(m),)),
    "cotangents of another structure": lambda m: m.func.vjp(lambda x: [x, {"a": x}], x(m))[1]((x(m), x(m))),
    "cotangent of another shape": lambda m: m.func.vjp(double, x(m))[1](m.ones(2)),
    "cotangent to be broadcast": lambda m: m.func.vjp(double, x(m))[1](m.ones(1)),
    "cotangent a number": lambda m: m.func.vjp(double, x(m))[1](1.0),
    "cotangent None": lambda m: m.func.vjp(double, x(m))[1](None),
    "cotangent complex": lambda m: m.func.vjp(double, x(m))[1](m.ones(3) * 1j),
})  # fmt: skip

cases("jvp", {
    "no tuple": lambda m: m.func.jvp(double, x(m), x(m)),
    "lists": lambda m: m.func.jvp(double, [x(m)], [x(m)]),
    "a list of tangents": lambda m: m.func.jvp(double, (x(m),), [x(m)]),
    "nothing": lambda m: m.func.jvp(lambda: x(m), (), ()),
    "too few tangents": lambda m: m.func.jvp(total, (x(m), x(m)), (x(m),)),
    "another structure": lambda m: m.func.jvp(total, ({"a": x(m), "b": [x(m)]},), ({"a": x(m), "b": x(m)},)),
    "another shape": lambda m: m.func.jvp(double, (x(m),), (m.ones(2),)),
    "integers": lambda m: m.func.jvp(double, (m.tensor([1]),), (m.tensor([1]),)),
    "a number": lambda m: m.func.jvp(double, (2.0,), (x(m),)),
    "a number for a tangent": lambda m: m.func.jvp(double, (x(m),), (1.0,)),
    "None for a tangent": lambda m: m.func.jvp(total, (x(m), x(m)), (x(m), None)),
    "a number returned": lambda m: m.func.jvp(lambda x: 2.0, (x(m),), (x(m),)),
    "None returned": lambda m: m.func.jvp(lambda x: None, (x(m),), (x(m),)),
    "nothing returned": lambda m: m.func.jvp(lambda x: (), (x(m),), (x(m),)),
    "strict": lambda m: m.func.jvp(lambda v: (v, x(m)), (x(m),), (x(m),), strict=True),
    "strict by position": lambda m: m.func.jvp(double, (x(m),), (x(m),), True),
    "has_aux and no tuple": lambda m: m.func.jvp(double, (x(m),), (x(m),), has_aux=True),
    "aux no tensor": lambda m: m.func.jvp(lambda x: (x, 1), (x(m),), (x(m),), has_aux=True),
    "a captured tensor is written to": lambda m: m.func.jvp(into(x(m)), (x(m),), (x(m),)),
})  # fmt: skip

for transform in ("jacrev", "jacfwd", "hessian"):

    def of(m, *args, transform=transform, **kwargs):
        return getattr(m.func, transform)(*args, **kwargs)

    cases(transform, {
        "a list of argnums": lambda m, of=of: of(m, double, [0])(x(m)),
        "argnum too large": lambda m, of=of: of(m, double, 1)(x(m)),
        "argnums twice": lambda m, of=of: of(m, total, (0, 0))(x(m), x(m)),
        "no argnums": lambda m, of=of: of(m, double, ())(x(m)),
        "no arguments": lambda m, of=of: of(m, double)(),
        "integers": lambda m, of=of: of(m, double)(m.tensor([1])),
        "a number returned": lambda m, of=of: of(m, lambda x: 2.0)(x(m)),
        "None returned": lambda m, of=of: of(m, lambda x: None)(x(m)),
        "nothing returned": lambda m, of=of: of(m, lambda x: ())(x(m)),
        "complex": lambda m, of=of: of(m, double)(x(m) * 1j),
        "complex returned": lambda m, of=of: of(m, lambda x: x * 1j)(x(m)),
    })  # fmt: skip

cases("Jacobians", {
    "jacrev, keyword arguments": lambda m: error_class(lambda: m.func.jacrev(double)(x=x(m))),
    "jacrev, chunk_size 0": lambda m: m.func.jacrev(double, chunk_size=0),
    "jacrev, has_aux and no tuple": lambda m: m.func.jacrev(double, has_aux=True)(x(m)),
    "jacfwd, has_aux and no tuple": lambda m: m.func.jacfwd(double, has_aux=True)(x(m)),
    "jacfwd, aux no tensor": lambda m: m.func.jacfwd(lambda x: (x, 2), has_aux=True)(x(m)),
    "jacfwd, randomness": lambda m: m.func.jacfwd(double, randomness="some")(x(m)),
    "jacfwd, random numbers": lambda m: m.func.jacfwd(lambda x: x * m.rand(3))(x(m)),
    "hessian, has_aux": lambda m: error_class(lambda: m.func.hessian(double, has_aux=True)),
    "jacrev, integers returned": lambda m: m.func.jacrev(lambda x: x.long())(x(m)),
})  # fmt: skip

cases("linearize", {
    "integers": lambda m: m.func.linearize(double, m.tensor([1])),
    "tangent of another shape": lambda m: m.func.linearize(double, x(m))[1](m.ones(2)),
    "tangent of another dtype": lambda m: m.func.linearize(double, x(m))[1](x(m).double()),
    "too many tangents": lambda m: m.func.linearize(double, x(m))[1](x(m), x(m)),
    "no tangents": lambda m: m.func.linearize(double, x(m))[1](),
    "tangents of another structure": lambda m: m.func.linearize(double, x(m))[1]((x(m),)),
})  # fmt: skip

cases("functionalize", {
    "remove": lambda m: m.func.functionalize(double, remove="all"),
    "remove by position": lambda m: m.func.functionalize(double, "mutations"),
})  # fmt: skip


def error_class(call):
    """Where the text names a function of PyTorch's sources."""
    return error_of(call)[0]


@pytest.mark.parametrize("call", [c.call for c in CASES], ids=[c.name for c in CASES])
def test_like_pytorch(call):
    like_pytorch(lambda m: call(m))()


def test_every_case_but_those_that_only_compare_classes_fails_in_pytorch():
    quiet = [c.name for c in CASES if error_of(lambda c=c: c.call(torch)) is None]
    assert quiet == ["Jacobians, jacrev, keyword arguments", "Jacobians, hessian, has_aux"]


def test_what_failed_leaves_nothing_behind():
    for c in CASES:
        error_of(lambda c=c: c.call(tj))
    v = tj.tensor([1.0, 2.0], requires_grad=True)
    (v * v).sum().backward()
    assert v.grad.tolist() == [2.0, 4.0] and tj.is_grad_enabled()
    assert tj.vmap(lambda row: row * 2)(tj.ones(2)).tolist() == [2.0, 2.0]
