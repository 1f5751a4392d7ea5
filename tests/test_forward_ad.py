"""`torch.autograd.forward_ad`: levels, dual tensors, modes, backward, Functions and modules, compared with PyTorch in both execution modes."""

from __future__ import annotations

import copy
import threading

import pytest

torch = pytest.importorskip("torch")

from dual_tensors import both, both_modes, dual, errors, inside, positive, tangent, values  # noqa: E402, F401 - needs torch; a fixture
from side_by_side import like_pytorch  # noqa: E402

import torchgrad_jax as tj  # noqa: E402

pytestmark = pytest.mark.operators

# ---------------------------------------------------------------------- levels


@like_pytorch
def test_levels_are_counted_and_do_not_nest(m):
    fw = m.autograd.forward_ad
    found = errors(m, [fw.exit_dual_level, lambda: fw.exit_dual_level(level=3), fw.enter_dual_level])
    found += errors(m, [fw.enter_dual_level, lambda: fw.exit_dual_level(level=1), lambda: fw.dual_level().__enter__()])
    fw.exit_dual_level()
    with fw.dual_level() as level:
        found.append(level)
        found += errors(m, [fw.enter_dual_level])

    @fw.dual_level()
    def decorated():
        return tangent(m, dual(m, 2) * 2)

    return [*found, decorated(), decorated(), *errors(m, [fw.exit_dual_level])]


@like_pytorch
def test_tangents_end_with_their_level(m):
    fw = m.autograd.forward_ad
    with fw.dual_level():
        x = dual(m, 2)
        y = x * 2
        z = y[:1]
        first = [tangent(m, t) for t in (x, y, z)]
    found = [tangent(m, t) for t in (x, y, z)]
    with fw.dual_level():
        found += [tangent(m, t) for t in (x, y, z, x * y)]
        again = fw.make_dual(y, y)
        found += both(m, [again * 2])
    return [first, found, list(fw.unpack_dual(y)), tangent(m, again)]


@like_pytorch
def test_a_level_ends_with_an_error(m):
    fw = m.autograd.forward_ad

    def failing():
        with fw.dual_level():
            dual(m, 2) @ dual(m, 3)

    return errors(m, [failing, lambda: fw.make_dual(values(m, 2), values(m, 2)), failing, fw.exit_dual_level])


# ---------------------------------------------------------------------- make_dual and unpack_dual


@like_pytorch
def test_what_make_dual_refuses(m):
    fw = m.autograd.forward_ad
    a, b = values(m, 2), values(m, 3)
    found = errors(m, [lambda: fw.make_dual(a, a), lambda: fw.make_dual(a, a, level=0), lambda: list(fw.unpack_dual(a))])
    with fw.dual_level():
        d = fw.make_dual(a, a)
        found += errors(m, [
            lambda: fw.make_dual(a, b), lambda: fw.make_dual(a, a.view(2, 1)), lambda: fw.make_dual(d, a), lambda: fw.make_dual(a, d),
            lambda: fw.make_dual(a.long(), a), lambda: fw.make_dual(a, a.long()), lambda: fw.make_dual(a > 0, a), lambda: fw.make_dual(a, a, level=1),
            lambda: fw.make_dual(a.sum(), a.sum()), lambda: fw.make_dual(a, a.float()), lambda: fw.make_dual(a.float(), a),
            lambda: list(fw.unpack_dual(a.long())),
        ])  # fmt: skip
    return found


@like_pytorch
def test_a_dual_tensor_is_a_view_with_the_tangent_that_was_given(m):
    fw = m.autograd.forward_ad
    a, t = values(m, 2, requires_grad=True), values(m, 2, seed=1)
    with fw.dual_level():
        d = fw.make_dual(a, t)
        primal, found = fw.unpack_dual(d)
        made = [d._base is a, found is t, tangent(m, a) is None, primal._base is a, tangent(m, primal) is None, type(fw.unpack_dual(d)).__name__]
        made += [d.requires_grad, d.is_leaf, d.grad_fn.name(), primal.grad_fn.name(), d._version]
        t.mul_(2)
        return [*made, *both(m, [d * 3])]


@like_pytorch
def test_what_unpack_dual_gave_has_no_tangent_though_its_base_has(m):
    fw = m.autograd.forward_ad
    with fw.dual_level():
        y = dual(m, 2) * 2
        p, t = fw.unpack_dual(y)
        found = both(m, [p, p * 2, p.view(2, 1), p[:1]])
        q = fw.make_dual(p, t * 3)
        found += both(m, [q, q * 2, y])
        y.mul_(3)
        found += both(m, [q, y, p])
        q.mul_(3)
        found += both(m, [q, y, p])
        v = p.view(2, 1)
        p.mul_(q)
        return [*found, *both(m, [q, y, p, v])]


LAYOUTS = {
    "plain": lambda m: m.ones(3), "row 0": lambda m: m.ones(4, 3)[0], "row 1": lambda m: m.ones(4, 3)[1], "column": lambda m: m.ones(3, 4)[:, 0],
    "part": lambda m: m.ones(6)[:3], "expanded": lambda m: m.ones(1).expand(3), "detached": lambda m: m.ones(3).detach(),
    "double": lambda m: m.ones(3, dtype=m.float64), "matrix": lambda m: m.ones(2, 3), "transposed": lambda m: m.ones(3, 2).t(),
    "one row": lambda m: m.ones(1, 3), "one row transposed": lambda m: m.ones(3, 1).t(), "empty": lambda m: m.ones(0, 3),
    "empty transposed": lambda m: m.ones(3, 0).t(), "number": lambda m: m.ones(()), "element": lambda m: m.ones(3)[1],
}  # fmt: skip


@like_pytorch
def test_a_tangent_lies_in_memory_as_its_tensor_does(m):
    fw, found = m.autograd.forward_ad, []

    def made(a, b):
        with fw.dual_level():
            t = b(m)
            given = tangent(m, fw.make_dual(a(m), t))
            return [given is t, str(given.dtype), given.stride(), given.storage_offset()]

    for a in LAYOUTS.values():
        for b in LAYOUTS.values():
            if a(m).shape == b(m).shape:
                found += errors(m, [lambda a=a, b=b: made(a, b)])
    return found


# ---------------------------------------------------------------------- modes


@inside
def test_modes(m):
    fw, x, found = m.autograd.forward_ad, dual(m, 2), []
    with m.no_grad():
        found += both(m, [x, x * 2, x.view(2, 1)])
    with m.inference_mode():
        found += both(m, [x, x * 2])
        made = values(m, 2)
        found += errors(m, [lambda: fw.make_dual(made, made)])
    found += both(m, [x, made])
    with fw._set_fwd_grad_enabled(False):
        found += both(m, [x, x * 2])
        y = fw.make_dual(values(m, 2), values(m, 2))
        x.mul_(2)
    return [*found, m._C._is_fwd_grad_enabled(), *both(m, [x, y, x * y])]


@inside
def test_set_fwd_grad_enabled_as_a_function_and_nested(m):
    fw, x, found = m.autograd.forward_ad, dual(m, 2), []
    fw._set_fwd_grad_enabled(False)
    found += both(m, [x * 2])
    with fw._set_fwd_grad_enabled(True):
        found += both(m, [x * 2])
    found += both(m, [x * 2, m._C._is_fwd_grad_enabled()])
    fw._set_fwd_grad_enabled(True)
    return [*found, *both(m, [x * 2])]


@inside
def test_copies_of_dual_tensors(m):
    x = dual(m, 2)
    y = x * 2
    return [errors(m, [lambda t=t: copy.deepcopy(t) for t in (x, y)]), copy.copy(x), errors(m, [lambda: m.Tensor.clone(y)])]


@inside
def test_integer_results_carry_none(m):
    x = dual(m, 3)
    return [x.long(), x.argsort(), x > 0, (x > 0).double(), x.sign(), x.round(), x.floor(), m.bucketize(x, values(m, 3, seed=2).sort()[0])]


@like_pytorch
def test_printing(m):
    with m.autograd.forward_ad.dual_level():
        x = dual(m, 2)
        return [repr(x), str(x * 2), repr(dual(m, 2, requires_grad=True)), repr(x.t()), repr(x.long())]


# ---------------------------------------------------------------------- with backward


@like_pytorch
def test_reverse_over_forward(m):
    fw = m.autograd.forward_ad
    x, t = values(m, 3, requires_grad=True), values(m, 3, seed=1, requires_grad=True)
    with fw.dual_level():
        d = fw.make_dual(x, t)
        out = (d * d).sin() * m.linspace(1, 2, 3, dtype=m.float64)
        primal, moved = fw.unpack_dual(out)
        found = list(m.autograd.grad(moved.sum(), (x, t), create_graph=True))
        found += list(m.autograd.grad(found[0].sum(), (x, t), retain_graph=True))
        found += list(m.autograd.grad(primal.sum(), x, retain_graph=True))
    moved.sum().backward()
    return [*found, x.grad, t.grad]


@like_pytorch
def test_forward_over_reverse(m):
    fw = m.autograd.forward_ad
    x, w = values(m, 3, requires_grad=True), positive(m, 3).requires_grad_()
    with fw.dual_level():
        d = fw.make_dual(x, values(m, 3, seed=1))
        loss = ((d * w).tanh() * d).sum()
        found = both(m, m.autograd.grad(loss, (x, w, d), create_graph=True))
        found += both(m, m.autograd.grad(loss, (x, w), retain_graph=True))
        loss.backward()
        return [*found, *both(m, [x.grad, w.grad, loss])]


@like_pytorch
def test_forward_over_reverse_with_hooks(m):
    fw, seen = m.autograd.forward_ad, []
    x = values(m, 3, requires_grad=True)
    x.register_hook(lambda g: seen.append(both(m, g)))
    with fw.dual_level():
        d = fw.make_dual(x, values(m, 3, seed=1))
        y = d.exp() * d
        y.register_hook(lambda g: g * d)
        y.grad_fn.register_hook(lambda gi, go: seen.append(both(m, [*go])))
        d.retain_grad()
        (y * y).sum().backward()
        return [*seen, x.grad, *both(m, [d.grad])]


@like_pytorch
def test_forward_over_reverse_with_saved_tensor_hooks(m):
    fw, seen = m.autograd.forward_ad, []

    def pack(t):
        seen.append(both(m, t)[1])
        return t

    def unpack(t):
        return t

    x = values(m, 3, requires_grad=True)
    with fw.dual_level():
        d = fw.make_dual(x, values(m, 3, seed=1))
        with m.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = d * d
        (g,) = m.autograd.grad(y.exp().sum(), x, create_graph=True)
        return [seen[:2], *both(m, [g])]


@like_pytorch
def test_the_tangent_of_the_first_gradient(m):
    fw = m.autograd.forward_ad
    x = values(m, 2, requires_grad=True)
    with fw.dual_level():
        y = x * 3
        (g,) = m.autograd.grad(y, x, dual(m, 2), create_graph=True)
        found = both(m, [g])
        y.backward(dual(m, 2, seed=2))
        return [*found, *both(m, [x.grad])]


@like_pytorch
def test_second_derivatives_through_inplace_writes_and_views(m):
    fw = m.autograd.forward_ad
    x = values(m, 2, 2, requires_grad=True)
    with fw.dual_level():
        d = fw.make_dual(x, values(m, 2, 2, seed=1))
        y = d.clone()
        y[0].mul_(d[1].exp())
        y.t()[1] = d[0] * d[1]
        (g,) = m.autograd.grad((y * y).sum(), x, create_graph=True)
        found = both(m, [y, g])
        return [*found, m.autograd.grad(tangent(m, y).sum(), x)]


# ---------------------------------------------------------------------- Functions


def function(m, forward, jvp, materialize=True, backward=None):
    class Own(m.autograd.Function):
        @staticmethod
        def forward(ctx, *args):
            ctx.set_materialize_grads(materialize)
            return forward(ctx, *args)

        @staticmethod
        def backward(ctx, *grads):
            return backward(ctx, *grads)

    if jvp is not None:
        Own.jvp = staticmethod(jvp)
    return Own.apply


def _save(ctx, x, y):
    ctx.save_for_forward(x, y)
    ctx.save_for_backward(x, y)
    return x * y


def _product(ctx, t, u):
    x, y = ctx.saved_tensors
    return t * y + u * x


@like_pytorch
def test_a_function_with_saved_tensors(m):
    fw, found = m.autograd.forward_ad, []
    apply = function(m, _save, _product, backward=lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0]))
    for needed in (False, True):
        x, y = values(m, 2, requires_grad=needed), values(m, 2, seed=3)
        with fw.dual_level():
            d = fw.make_dual(x, values(m, 2, seed=1))
            found += both(m, [apply(d, y), apply(y, d), apply(d, d), apply(x, y)])
            if needed:
                out = apply(d, y)
                found += [m.autograd.grad(tangent(m, out).sum(), x, retain_graph=True, allow_unused=True)]
                found += both(m, m.autograd.grad((out * out).sum(), x, create_graph=True))
    return found


def _of_numbers(ctx, n, x, text, i, y):
    ctx.n = n
    return x * n + y, i


@inside
def test_a_function_with_other_arguments(m):
    seen = []

    def jvp(ctx, *given):
        seen.append([None if g is None else [str(g.dtype), g.tolist()] for g in given])
        return given[1] * ctx.n, None

    found = []
    for materialize in (True, False):
        apply = function(m, _of_numbers, jvp, materialize)
        found.append(apply(2, dual(m, 2), "a", m.tensor([1, 2]), values(m, 2)))
    return [found, seen]


def _marked(ctx, x):
    ctx.mark_dirty(x)
    return x.mul_(2)


def _constant(ctx, x):
    y = x * 3
    ctx.mark_non_differentiable(y)
    return x * 2, y


FORWARDS = {
    "new": lambda ctx, x: x * 2, "view": lambda ctx, x: x.view_as(x), "part": lambda ctx, x: x[:1], "as is": lambda ctx, x: x, "dirty": _marked,
    "two": lambda ctx, x: (x * 2, x * 3), "own view": lambda ctx, x: (x * 2).view(2, 1), "constant": _constant,
    "integers": lambda ctx, x: (x * 2, x.long()), "number": lambda ctx, x: (x * 2, 3), "none": lambda ctx, x: (None, x * 2),
}  # fmt: skip
JVPS = {
    "new": lambda ctx, t: t * 2, "same": lambda ctx, t: t, "view": lambda ctx, t: t.view_as(t), "part": lambda ctx, t: t[:1],
    "view of a copy": lambda ctx, t: t.clone().view_as(t), "in place": lambda ctx, t: t.mul_(2), "two": lambda ctx, t: (t * 2, t * 3),
    "one of two": lambda ctx, t: (t * 2, None), "the second of two": lambda ctx, t: (None, t * 2), "own view": lambda ctx, t: (t * 2).view(2, 1),
    "a number": lambda ctx, t: 3, "a list": lambda ctx, t: [t], "another dtype": lambda ctx, t: t.float(),
    "refuses": lambda ctx, t: t.nonsense, "missing": None,
}  # fmt: skip


@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("prepared", ["dual", "result", "view"])
def test_what_jvp_may_return(forward, prepared):
    @like_pytorch
    def program(m):
        found = []
        for jvp in JVPS.values():
            with m.autograd.forward_ad.dual_level():
                x = dual(m, 2)
                x = x if prepared == "dual" else x * 2 if prepared == "result" else dual(m, 2, 2)[0]
                made = errors(m, [lambda x=x, jvp=jvp: function(m, FORWARDS[forward], jvp)(x)])
                # PyTorch reports these as its own bugs.

        found += [[made[0][0], made[0][1].rpartition("please report a bug to PyTorch. ")[2]] if isinstance(made[0][1], str) else made, both(m, [x])]
        return found

    program()


@inside
def test_a_view_of_one_input_wants_a_view_of_its_tangent(m):
    first = function(m, lambda ctx, x, y: (x.view_as(x), y * 2), lambda ctx, t, u: (t.view_as(t), u * 2))
    second = function(m, lambda ctx, x, y: (x.view_as(x), y * 2), lambda ctx, t, u: (u.view_as(u), u * 2))
    return errors(m, [lambda f=f, x=x: f(x, dual(m, 2))[0] for f in (first, second) for x in (dual(m, 2, seed=2), values(m, 2))])


# ---------------------------------------------------------------------- modules, random numbers


@like_pytorch
def test_modules(m):
    fw = m.autograd.forward_ad
    m.manual_seed(0)
    net = m.nn.Sequential(m.nn.Linear(3, 4), m.nn.ReLU(), m.nn.LayerNorm(4), m.nn.Linear(4, 2)).double()
    norm = m.nn.BatchNorm1d(2).double()
    with fw.dual_level():
        x = dual(m, 2, 3)
        found = both(m, [net(x), norm(net(x)), norm.running_mean, norm.running_var])
        norm.eval()
        found += both(m, [norm(net(values(m, 2, 3)))])
        loss = net(x).pow(2).sum()
        found += both(m, m.autograd.grad(loss, list(net.parameters()), create_graph=True))
        weights = {name: fw.make_dual(p, m.full_like(p, 0.25)) for name, p in net[0].named_parameters()}
        found += both(m, [m.nn.functional.linear(x, weights["weight"], weights["bias"])])
        for name, p in list(net[0].named_parameters()):
            delattr(net[0], name)
            setattr(net[0], name, fw.make_dual(p, m.full_like(p, 0.5)))
        return [*found, *both(m, [net(x), net[0].weight])]


@inside
def test_random_numbers(m):
    m.manual_seed(3)
    x = dual(m, 4)
    dropout = m.nn.functional.dropout
    found = [
        dropout(x, 0.5),
        m.rand_like(x),
        m.randn_like(x) * x,
        m.bernoulli(x.sigmoid()),
        m.normal(x, 1.0),
        m.normal(x, x.abs()),
        dropout(x, 0.25, training=False),
    ]
    y = x * 2
    y.normal_()
    z = x * 2
    z.bernoulli_(0.5)
    return [*found, y, z, m.nn.functional.rrelu(x, training=True)]


def test_a_level_belongs_to_the_thread_that_opened_it():
    refused = []

    def elsewhere():
        for call in (lambda: fwd.make_dual(tj.ones(2), tj.ones(2)), fwd.exit_dual_level):
            with pytest.raises(RuntimeError, match="opened by another thread") as error:
                call()
            refused.append(error)

    fwd = tj.autograd.forward_ad
    with fwd.dual_level():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert fwd.unpack_dual(fwd.make_dual(tj.ones(2), tj.ones(2))).tangent is not None
    assert len(refused) == 2


@like_pytorch
def test_what_jvp_does_with_the_tangent_of_a_dirty_input(m):
    fw, found = m.autograd.forward_ad, []
    ways = [lambda t: t, lambda t: t * 2, lambda t: t.mul_(2), lambda t: t.view(-1).mul_(2), lambda t: t.mul_(2) * 3, lambda t: t.add_(0)]
    for way in ways:

        class Twice(m.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.mark_dirty(x.mul_(2))
                return x

            @staticmethod
            def jvp(ctx, t, way=way):
                return way(t)

        with fw.dual_level():
            tangent = m.ones(3)
            x = fw.make_dual(m.ones(3), tangent)
            try:
                y = Twice.apply(x)
                found.append([y is x, fw.unpack_dual(y).tangent is tangent, tangent])
            except RuntimeError as error:
                found.append(str(error))
    return found


@pytest.mark.parametrize("level", [0, 1, 2, -1, None])
def test_unpack_dual_of_another_level(level):
    @inside
    def program(m):
        unpack = m.autograd.forward_ad.unpack_dual
        return list(unpack(values(m, 2), level=level)), list(unpack(dual(m, 2), level=level))

    program()


@pytest.mark.parametrize("what", [1.0, None, "a", []], ids=str)
def test_what_is_no_tensor_is_not_unpacked(what):
    inside(lambda m: m.autograd.forward_ad.unpack_dual(what))()


@pytest.mark.parametrize("name", ["jvp", "jacfwd", "hessian", "grad"])
def test_forward_mode_of_torch_func_in_a_dual_level(name):
    @inside
    def program(m):
        def f(x):
            return (x * x).sum()

        x = values(m, 2)
        return m.func.jvp(f, (x,), (x,)) if name == "jvp" else getattr(m.func, name)(f)(x)

    program()
