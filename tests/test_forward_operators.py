"""Tangents through operators of every kind: values and tangents as PyTorch's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from dual_tensors import dual, errors, inside  # noqa: E402 - needs torch

pytestmark = pytest.mark.operators

UNARY = {
    "float64": (
        "abs acos acosh_ asin asinh_ atan ceil clone conj cos cosh deg2rad digamma erf erfc erfinv_ exp exp2 expm1 floor frac lgamma_ log_ log10_ "
        "log1p_ log2_ logit_ neg positive rad2deg reciprocal relu round rsqrt_ sgn sigmoid sign sin sinc sinh sqrt_ square tan tanh trunc angle real "
        "isnan signbit contiguous logical_not i0 nan_to_num"
    ),
    "complex128": (
       
        "abs acos asin atan clone conj cos cosh exp expm1 log log10 log1p log2 neg positive reciprocal rsqrt sgn sigmoid sin sinc sinh sqrt square "
        "tan tanh angle real imag isnan"
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
            f = getattr(m, name, None) or getattr(m.Tensor, name)
            calls.append(lambda x=x, f=f: f(x))
        return errors(m, calls)

    program()


CALLS = {
    "with numbers": lambda m, x, y: [x + 1, 1 - x, x * 2, 2 / x, x / 2, x**2, 2**x, x**-1, x % 2, -x, x.add(1, alpha=2), m.rsub(x, 1), +x, abs(x)],
    "of two": lambda m, x, y: [
        x + y, x - y, x * y, x / y, y.abs() ** x, m.atan2(x, y), m.hypot(x, y), x.maximum(y), x.fmin(y), m.fmod(x, y), m.remainder(x, y),
    ],
    "with one that is not dual": lambda m, x, y: [
        x * y.detach(), y.detach() / x, m.add(y.detach(), x, alpha=3), m.where(x > 0, x, y.detach()), x.detach() * y.detach(),
    ],
    "of three": lambda m, x, y: [
        m.addcmul(x, y, x, value=2), m.addcdiv(x, y, x), m.lerp(x, y, 0.25), m.lerp(x, y, x), m.where(y > 0, x, y), m.clamp(x, -1, 1),
    ],
    "broadcast": lambda m, x, y: [x * y[0], x[:, :1] + y, x[0, 0] - y, x.unsqueeze(0) * y],
    "comparisons": lambda m, x, y: [x > y, x == x, x.argmax(), x.isfinite(), x.long(), x.bool(), m.nonzero(x)],
    "reductions": lambda m, x, y: [
        x.sum(), x.mean(0), x.prod(1), x.var(), x.std(1), x.norm(), x.logsumexp(0), x.amax(1), x.nansum(), x.norm(1, dim=0),
    ],
    "several results": lambda m, x, y: [
        x.max(0), x.min(1), x.sort(1), x.topk(2), x.median(1), x.kthvalue(2, 1), x.cummax(0), x.mode(1), m.std_mean(x, 1), m.var_mean(x),
        m.aminmax(x),
    ],
    "cumulative": lambda m, x, y: [x.cumsum(0), x.cumprod(1), x.logcumsumexp(1), x.diff(), x.flip(0), x.roll(1), m.trapezoid(x)],
    "matrices": lambda m, x, y: [
        x @ y.t(), x.mm(y.t()), m.matmul(x, y[0]), m.einsum("ij,kj->ik", x, y), m.dot(x[0], y[0]), m.outer(x[0], y[0]),
        m.addmm(x @ x.t(), x, y.t()), m.bmm(x[None], y.t()[None]),
    ],
    "linear algebra": lambda m, x, y: [
        m.linalg.inv(x[:, :2]), m.linalg.det(x[:, :2]), m.linalg.solve(x[:, :2], y), m.linalg.norm(x), m.linalg.slogdet(x[:, :2]),
        m.linalg.cholesky(x[:, :2] @ x[:, :2].t() + m.eye(2)),
        m.linalg.eigvalsh(x @ x.t()), m.linalg.matrix_power(x[:, :2], 3), m.linalg.lu_factor(x[:, :2])[0], m.linalg.svdvals(x),
        m.linalg.qr(x.t())[1].abs(),
    ],
    "lists": lambda m, x, y: [
        m.cat([x, y]), m.stack([x, y], 1), m.cat([x, y.detach()], 1), m.hstack((x.detach(), y)), m.block_diag(x, y), m.cartesian_prod(x[0], y[0]),
        m.meshgrid(x[0], y[0], indexing="ij"), m.broadcast_tensors(x, y[:1]),
    ],
    "views": lambda m, x, y: [
        x.t(), x.view(3, 2), x[0], x[:, 1:], x.select(1, 0), x.permute(1, 0), x.unsqueeze(0), x.reshape(-1), x.expand(2, 2, 3), x.diagonal(),
        x.narrow(1, 0, 2), x.as_strided((2, 2), (1, 2)), x.unfold(1, 2, 1), x.t()[1].view(2, 1),
    ],
    "several views": lambda m, x, y: [x.split(1), x.chunk(2, 1), x.unbind(1), x.tensor_split(2, 1), m.split(x, [1, 2], 1)],
    "indexing": lambda m, x, y: [
        x[m.tensor([1, 0])], x[x > 0], x[m.tensor([0, 1]), m.tensor([2, 0])], x[..., None], x.gather(1, m.tensor([[0], [1]])),
        x.index_select(1, m.tensor([2, 2])), x.take(m.tensor([0, 5])),
        x.masked_select(y > 0), x.masked_fill(y > 0, 2.0), x.scatter(1, m.tensor([[0], [1]]), y), x.index_add(0, m.tensor([1, 1]), y),
        x.index_put((m.tensor([0]),), y[1]), x.scatter_add(0, m.tensor([[0, 1, 0]]), y), m.take_along_dim(x, m.tensor([[1]]), 1),
    ],
    "dtypes": lambda m, x, y: [
        x.float(), x.half().double(), x.to(m.complex64), x.int(), x.float() * y, x.type_as(y.float()), m.complex(x, y), x.bfloat16().sum(),
        x.to(m.float64) is x,
    ],
    "copies": lambda m, x, y: [
        x.clone(), x.contiguous(), x.t().contiguous(), m.empty_like(x).shape, m.zeros_like(x), m.ones_like(x), x.new_zeros(2),
        m.full_like(x, 2.0), x.detach(), x.data, x.new_tensor([1.0]),
    ],
    "padding": lambda m, x, y: [
        m.nn.functional.pad(x, (1, 1)), x.tril(), x.triu(), x.repeat(2, 1), x.tile(2), x.rot90(), m.kron(x, y), m.cross(x, y, dim=1),
    ],
    "networks": lambda m, x, y: [
        m.nn.functional.linear(x, y), m.nn.functional.softmax(x, 1), m.nn.functional.log_softmax(x, 0), m.nn.functional.layer_norm(x, (3,)),
        m.nn.functional.gelu(x), m.nn.functional.mse_loss(x, y),
        m.nn.functional.cross_entropy(x, m.tensor([0, 2])), m.nn.functional.leaky_relu(x), m.nn.functional.elu(x), m.nn.functional.softplus(x),
        m.nn.functional.conv1d(x[None], y[None, :, :2]), m.nn.functional.max_pool1d(x[None], 2),
        m.nn.functional.avg_pool1d(x[None], 2), m.nn.functional.batch_norm(x, None, None, training=True),
        m.nn.functional.embedding(m.tensor([1, 0]), x), m.nn.functional.binary_cross_entropy_with_logits(x, y.sigmoid()),
        m.nn.functional.smooth_l1_loss(x, y), m.nn.functional.kl_div(x, y.softmax(1), reduction="sum"), m.nn.functional.cosine_similarity(x, y),
        m.nn.functional.normalize(x), m.nn.functional.silu(x), m.nn.functional.huber_loss(x, y),
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
    "arithmetic": lambda m, z, w: [
        z * w, z / w, z**2, z.exp(), z.sqrt(), z.log(), z.sum(), z @ w, m.vdot(z, w), z * 2j, z.prod(), z.mean(), z - w.real, z.reciprocal(),
        z.tanh(),
    ],
    "matrices": lambda m, z, w: [m.outer(z, w), z.view(1, 2).mH @ w.view(1, 2), m.linalg.norm(z), m.polar(z.abs(), w.angle())],
}  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_tangents(name):
    @inside
    def program(m):
        parts = [dual(m, 2, seed=s) for s in range(4)]
        return COMPLEX[name](m, m.complex(*parts[:2]), m.complex(*parts[2:]))

    program()
