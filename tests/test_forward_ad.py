"""`torch.autograd.forward_ad`: dual tensors, by themselves and through all that can be done with tensors, compared with PyTorch."""

from __future__ import annotations

import copy

import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch


@pytest.fixture(params=["fused", "eager"], autouse=True)
def _mode(request):
    with tj.runtime.execution_mode(request.param):
        yield


def values(m, *shape, seed=0, dtype="float64", requires_grad=False):
    """A tensor of quarters, none of them 0 and no two alike."""
    size = 1
    for n in shape:
        size *= n
    made = [(((i + 1) * 7 + seed * 5) % 29 - 14.25) / 4 for i in range(size)]
    return m.tensor(made, dtype=getattr(m, dtype)).view(shape).requires_grad_(requires_grad)


def positive(m, *shape, seed=0):
    return values(m, *shape, seed=seed).abs() / 4 + 0.25


def dual(m, *shape, seed=0, **options):
    return m.autograd.forward_ad.make_dual(values(m, *shape, seed=seed, **options), values(m, *shape, seed=seed + 1, **options))


def tangent(m, t):
    return m.autograd.forward_ad.unpack_dual(t).tangent


def both(m, found):
    """The values and the tangents of all tensors that were returned. (Whether a tangent has a graph is not compared: in PyTorch it
    has one by a zero times a tensor with a graph.)"""
    if isinstance(found, m.Tensor):
        moved = tangent(m, found) if found.is_floating_point() or found.is_complex() else None
        return [found, None if moved is None else moved.detach()]
    return [both(m, f) for f in found] if isinstance(found, (tuple, list)) else found


def errors(m, calls):
    """What each call raises; what it returns where it does not."""
    found = []
    for call in calls:
        made = []
        raised = error_of(lambda call=call, made=made: made.append(call()))
        found.append(both(m, made) if raised is None else list(raised))
    return found


def inside(program):
    """A program that runs in a dual level and whose results are looked at there."""

    def whole(m):
        with m.autograd.forward_ad.dual_level():
            return both(m, program(m))

    whole.__name__, whole.__doc__ = program.__name__, program.__doc__
    return like_pytorch(whole)


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
    found = errors(m, [lambda: fw.make_dual(a, a), lambda: fw.make_dual(a, a, level=0), lambda: list(fw.unpack_dual(a)), lambda: list(fw.unpack_dual(a, level=0))])
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


# ---------------------------------------------------------------------- operators

UNARY = {
    "float64": (
        "abs acos acosh_ asin asinh_ atan ceil clone conj cos cosh deg2rad digamma erf erfc erfinv_ exp exp2 expm1 floor frac lgamma_ log_ log10_ "
        "log1p_ log2_ logit_ neg positive rad2deg reciprocal relu round rsqrt_ sgn sigmoid sign sin sinc sinh sqrt_ square tan tanh trunc angle real "
        "isnan signbit contiguous logical_not i0 nan_to_num"
    ),
    "complex128": (
        "abs acos asin atan clone conj cos cosh exp expm1 log log10 log1p log2 neg positive reciprocal rsqrt sgn sigmoid sin sinc sinh sqrt square tan "
        "tanh angle real imag isnan"
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_functions_of_one_tensor(dtype):
    @inside
    def program(m):
        wide = dual(m, 2, 3, seed=2)
        calls = []
        for name in UNARY[dtype].split():
            x = wide.abs() / 16 + (1.25 if name == "acosh_" else 0.25) if name.endswith("_") else wide
            x = x if dtype == "float64" else m.complex(x, x * x / 2 + 0.125)
            name = name.rstrip("_")
            calls.append(lambda x=x, f=getattr(m, name, None) or getattr(m.Tensor, name): f(x))
        return errors(m, calls)

    program()


CALLS = {
    "with numbers": lambda m, x, y: [x + 1, 1 - x, x * 2, 2 / x, x / 2, x**2, 2**x, x**-1, x % 2, -x, x.add(1, alpha=2), x.rsub(1), +x, abs(x)],
    "of two": lambda m, x, y: [x + y, x - y, x * y, x / y, y.abs() ** x, m.atan2(x, y), m.hypot(x, y), x.maximum(y), x.fmin(y), m.fmod(x, y), m.remainder(x, y)],
    "with one that is not dual": lambda m, x, y: [x * y.detach(), y.detach() / x, m.add(y.detach(), x, alpha=3), m.where(x > 0, x, y.detach()), x.detach() * y.detach()],
    "of three": lambda m, x, y: [m.addcmul(x, y, x, value=2), m.addcdiv(x, y, x), m.lerp(x, y, 0.25), m.lerp(x, y, x), m.where(y > 0, x, y), m.clamp(x, -1, 1)],
    "broadcast": lambda m, x, y: [x * y[0], x[:, :1] + y, x[0, 0] - y, x.unsqueeze(0) * y],
    "comparisons": lambda m, x, y: [x > y, x == x, x.argmax(), x.isfinite(), x.long(), x.bool(), m.nonzero(x)],
    "reductions": lambda m, x, y: [x.sum(), x.mean(0), x.prod(1), x.var(), x.std(1), x.norm(), x.logsumexp(0), x.amax(1), x.nansum(), x.norm(1, dim=0)],
    "several results": lambda m, x, y: [
        x.max(0), x.min(1), x.sort(1), x.topk(2), x.median(1), x.kthvalue(2, 1), x.cummax(0), x.mode(1), m.std_mean(x, 1), m.var_mean(x), m.aminmax(x),
    ],
    "cumulative": lambda m, x, y: [x.cumsum(0), x.cumprod(1), x.logcumsumexp(1), x.diff(), x.flip(0), x.roll(1), m.trapezoid(x)],
    "matrices": lambda m, x, y: [x @ y.t(), x.mm(y.t()), m.matmul(x, y[0]), m.einsum("ij,kj->ik", x, y), m.dot(x[0], y[0]), m.outer(x[0], y[0]), m.addmm(x @ x.t(), x, y.t()), m.bmm(x[None], y.t()[None])],
    "linear algebra": lambda m, x, y: [
        m.linalg.inv(x[:, :2]), m.linalg.det(x[:, :2]), m.linalg.solve(x[:, :2], y), m.linalg.norm(x), m.linalg.slogdet(x[:, :2]), m.linalg.cholesky(x[:, :2] @ x[:, :2].t() + m.eye(2)),
        m.linalg.eigvalsh(x @ x.t()), m.linalg.matrix_power(x[:, :2], 3), m.linalg.lu_factor(x[:, :2])[0], m.linalg.svdvals(x), m.linalg.qr(x.t())[1].abs(),
    ],
    "lists": lambda m, x, y: [m.cat([x, y]), m.stack([x, y], 1), m.cat([x, y.detach()], 1), m.hstack((x.detach(), y)), m.block_diag(x, y), m.cartesian_prod(x[0], y[0]), m.meshgrid(x[0], y[0], indexing="ij"), m.broadcast_tensors(x, y[:1])],
    "views": lambda m, x, y: [x.t(), x.view(3, 2), x[0], x[:, 1:], x.select(1, 0), x.permute(1, 0), x.unsqueeze(0), x.reshape(-1), x.expand(2, 2, 3), x.diagonal(), x.narrow(1, 0, 2), x.as_strided((2, 2), (1, 2)), x.unfold(1, 2, 1), x.t()[1].view(2, 1)],
    "several views": lambda m, x, y: [x.split(1), x.chunk(2, 1), x.unbind(1), x.tensor_split(2, 1), m.split(x, [1, 2], 1)],
    "indexing": lambda m, x, y: [
        x[m.tensor([1, 0])], x[x > 0], x[m.tensor([0, 1]), m.tensor([2, 0])], x[..., None], x.gather(1, m.tensor([[0], [1]])), x.index_select(1, m.tensor([2, 2])), x.take(m.tensor([0, 5])),
        x.masked_select(y > 0), x.masked_fill(y > 0, 2.0), x.scatter(1, m.tensor([[0], [1]]), y), x.index_add(0, m.tensor([1, 1]), y), x.index_put((m.tensor([0]),), y[1]), x.scatter_add(0, m.tensor([[0, 1, 0]]), y), m.take_along_dim(x, m.tensor([[1]]), 1),
    ],
    "dtypes": lambda m, x, y: [x.float(), x.half().double(), x.to(m.complex64), x.int(), x.float() * y, x.type_as(y.float()), m.complex(x, y), x.bfloat16().sum(), x.to(m.float64) is x],
    "copies": lambda m, x, y: [x.clone(), x.contiguous(), x.t().contiguous(), m.empty_like(x).shape, m.zeros_like(x), m.ones_like(x), x.new_zeros(2), m.full_like(x, 2.0), x.detach(), x.data, x.new_tensor([1.0])],
    "padding": lambda m, x, y: [m.nn.functional.pad(x, (1, 1)), x.tril(), x.triu(), x.repeat(2, 1), x.tile(2), x.rot90(), m.kron(x, y), m.cross(x, y, dim=1)],
    "networks": lambda m, x, y: [
        m.nn.functional.linear(x, y), m.nn.functional.softmax(x, 1), m.nn.functional.log_softmax(x, 0), m.nn.functional.layer_norm(x, (3,)), m.nn.functional.gelu(x), m.nn.functional.mse_loss(x, y),
        m.nn.functional.cross_entropy(x, m.tensor([0, 2])), m.nn.functional.leaky_relu(x), m.nn.functional.elu(x), m.nn.functional.softplus(x), m.nn.functional.conv1d(x[None], y[None, :, :2]), m.nn.functional.max_pool1d(x[None], 2),
        m.nn.functional.avg_pool1d(x[None], 2), m.nn.functional.batch_norm(x, None, None, training=True), m.nn.functional.embedding(m.tensor([1, 0]), x), m.nn.functional.binary_cross_entropy_with_logits(x, y.sigmoid()),
        m.nn.functional.smooth_l1_loss(x, y), m.nn.functional.kl_div(x, y.softmax(1), reduction="sum"), m.nn.functional.cosine_similarity(x, y), m.nn.functional.normalize(x), m.nn.functional.silu(x), m.nn.functional.huber_loss(x, y),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_operators(name):
    @inside
    def program(m):
        return CALLS[name](m, dual(m, 2, 3, seed=2), dual(m, 2, 3, seed=4))

    program()


COMPLEX = {
    "parts": lambda m, z, w: [z.real, z.imag, m.view_as_real(z), z.conj(), z.abs(), z.angle(), m.view_as_complex(m.view_as_real(z)), z.real * w],
    "arithmetic": lambda m, z, w: [z * w, z / w, z**2, z.exp(), z.sqrt(), z.log(), z.sum(), z @ w, m.vdot(z, w), z * 2j, z.prod(), z.mean(), z - w.real, z.reciprocal(), z.tanh()],
    "matrices": lambda m, z, w: [m.outer(z, w), z.view(1, 2).mH @ w.view(1, 2), m.linalg.norm(z), m.polar(z.abs(), w.angle())],
}  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_tangents(name):
    @inside
    def program(m):
        parts = [dual(m, 2, seed=s) for s in range(4)]
        return COMPLEX[name](m, m.complex(*parts[:2]), m.complex(*parts[2:]))

    program()


# ---------------------------------------------------------------------- writes

WRITES = {
    "a number": lambda m, x, y, t: x.mul_(2).add_(1),
    "a dual one": lambda m, x, y, t: x.mul_(y),
    "one without a tangent": lambda m, x, y, t: x.mul_(t),
    "a dual one to one without": lambda m, x, y, t: t.mul_(x),
    "to a view": lambda m, x, y, t: x[0].mul_(y[1]),
    "to a view of one without": lambda m, x, y, t: t[0].mul_(y[1]),
    "to a transposed view of one without": lambda m, x, y, t: t.t().mul_(y.t()),
    "to one of the same layout": lambda m, x, y, t: t.view_as(t).copy_(x),
    "copy_": lambda m, x, y, t: x.copy_(y),
    "copy_ of one without": lambda m, x, y, t: x.copy_(t),
    "copy_ to one without": lambda m, x, y, t: t.copy_(x),
    "copy_ of another dtype": lambda m, x, y, t: x.copy_(y.float()),
    "copy_ broadcast": lambda m, x, y, t: x.copy_(y[0]),
    "copy_ to integers": lambda m, x, y, t: m.zeros(2, 3, dtype=m.int64).copy_(x),
    "fill_": lambda m, x, y, t: x.fill_(2),
    "fill_ with a tensor": lambda m, x, y, t: x.fill_(y[0, 0]),
    "fill_ of one without": lambda m, x, y, t: t.fill_(y[0, 0]),
    "zero_": lambda m, x, y, t: x.zero_(),
    "zero_ a view": lambda m, x, y, t: x[0].zero_(),
    "masked_fill_": lambda m, x, y, t: x.masked_fill_(t > 0, 2.0),
    "masked_fill_ with a tensor": lambda m, x, y, t: x.masked_fill_(t > 0, y[0, 0]),
    "masked_fill_ of one without": lambda m, x, y, t: t.masked_fill_(y > 0, y[0, 0]),
    "index_put_": lambda m, x, y, t: x.index_put_((m.tensor([1]),), y[0]),
    "index_put_ accumulates": lambda m, x, y, t: t.index_put_((m.tensor([1, 1]),), y, accumulate=True),
    "setitem": lambda m, x, y, t: x.__setitem__((0, slice(1, None)), y[1, 1:]),
    "setitem of a number": lambda m, x, y, t: x.__setitem__(0, 3.0),
    "setitem of one without": lambda m, x, y, t: t.__setitem__((slice(None), 0), y[:, 0]),
    "setitem with a mask": lambda m, x, y, t: t.__setitem__(t > 0, x[t > 0]),
    "scatter_": lambda m, x, y, t: x.scatter_(1, m.tensor([[0], [2]]), y),
    "index_add_": lambda m, x, y, t: t.index_add_(0, m.tensor([1, 0]), y),
    "addcmul_": lambda m, x, y, t: t.addcmul_(x, y, value=2),
    "addmm_": lambda m, x, y, t: t[:, :2].addmm_(x, y.t()),
    "sigmoid_ relu_ clamp_": lambda m, x, y, t: x.sigmoid_().sub_(0.5).relu_().clamp_(max=0.25),
    "out=": lambda m, x, y, t: m.mul(t, t, out=m.empty(2, 3, dtype=m.float64)),
    "out= of dual ones": lambda m, x, y, t: m.mul(x, y, out=t),
    "out= into a dual one": lambda m, x, y, t: m.mul(t, t, out=x),
    "transpose_": lambda m, x, y, t: x.transpose_(0, 1),
    "t_ and on": lambda m, x, y, t: x.t_().mul_(y.t()),
    "unsqueeze_ squeeze_": lambda m, x, y, t: x.unsqueeze_(0).squeeze_(0).unsqueeze_(1),
    "squeeze_ of a result": lambda m, x, y, t: (x * 2)[:1].squeeze_(0),
    "detach_": lambda m, x, y, t: x.detach_(),
    "detach_ of a result": lambda m, x, y, t: (x * 2).detach_(),
    "detach and write": lambda m, x, y, t: x.detach().mul_(3),
    "detach and write a dual one": lambda m, x, y, t: x.detach().mul_(y),
    "data and write": lambda m, x, y, t: x.data.mul_(y),
    "uniform_": lambda m, x, y, t: x.uniform_(1, 1),
    "resize_": lambda m, x, y, t: (x * 2).resize_(3),
    "set data": lambda m, x, y, t: setattr(x, "data", t),
    "requires_grad_": lambda m, x, y, t: x.requires_grad_().mul(2),
    "swapaxes_": lambda m, x, y, t: (x * 1).swapaxes_(0, 1).mul_(2),
    "no_grad": lambda m, x, y, t: m.no_grad()(lambda: x.mul_(y))(),
    "iadd": lambda m, x, y, t: x.__iadd__(y).__imul__(t),
    "cumsum_": lambda m, x, y, t: x.cumsum_(0),
    "multi view": lambda m, x, y, t: x.unbind(0)[0].mul_(2),
    "multi view of one without": lambda m, x, y, t: t.split(1)[0].mul_(y[:1]),
    "diagonal": lambda m, x, y, t: t.diagonal().copy_(y.diagonal()),
    "expanded source": lambda m, x, y, t: t.add_(y[:1].expand(2, 3)),
    "integers by floats": lambda m, x, y, t: m.ones(2, 3, dtype=m.int64).mul_(x),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_writes(name):
    """To dual tensors, to views of them, to their bases, and to tensors that become dual by it."""

    @like_pytorch
    def program(m):
        fw, found = m.autograd.forward_ad, []
        for result in (False, True):
            with fw.dual_level():
                x, y, t = dual(m, 2, 3, seed=2), dual(m, 2, 3, seed=4), values(m, 2, 3, seed=6)
                x = x * 2 if result else x
                parts = [x[0], x.t(), t[:, 1:], t.t()]
                raised = errors(m, [lambda: WRITES[name](m, x, y, t)])
                found += [raised, both(m, [x, y, t]), both(m, parts), both(m, [x * 2, t * y.detach(), [p * 2 for p in parts]])]
        return found

    program()


@inside
def test_a_base_and_its_views_share_the_tangent(m):
    base = values(m, 2, 2)
    view, part = base.view(4), base[0]
    found = both(m, [base, view, part])
    part.mul_(dual(m, 2))
    found += both(m, [base, view, part, base._base is None])
    view.mul_(dual(m, 4, seed=3))
    found += both(m, [base, view, part])
    base.mul_(3)
    found += both(m, [base, view, part, view[1:3], base.t()[0]])
    return [*found, tangent(m, view)._base is tangent(m, base), tangent(m, part)._is_view()]


@inside
def test_make_dual_and_writes_to_its_memory(m):
    fw = m.autograd.forward_ad
    x = values(m, 2)
    v = x.view(2, 1)
    y = fw.make_dual(x, values(m, 2, seed=1))
    found = both(m, [x, v, y])
    y.mul_(2)
    found += both(m, [x, v, y])
    x.mul_(y)
    found += both(m, [x, v, y])
    u = x.detach()
    u.mul_(y)
    return [*found, *both(m, [x, v, y, u, x.data])]


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
    with m._C._set_fwd_grad_enabled_guard(False) if hasattr(m._C, "_set_fwd_grad_enabled_guard") else m.autograd.forward_ad._set_fwd_grad_enabled(False):
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
    "a number": lambda ctx, t: 3, "a list": lambda ctx, t: [t], "another dtype": lambda ctx, t: t.float(), "refuses": lambda ctx, t: t.nonsense, "missing": None,
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
    found = [m.nn.functional.dropout(x, 0.5), m.rand_like(x), m.randn_like(x) * x, m.bernoulli(x.sigmoid()), m.normal(x, 1.0), m.normal(x, x.abs()), m.nn.functional.dropout(x, 0.25, training=False)]
    y = x * 2
    y.normal_()
    z = x * 2
    z.bernoulli_(0.5)
    return [*found, y, z, m.nn.functional.rrelu(x, training=True)]
