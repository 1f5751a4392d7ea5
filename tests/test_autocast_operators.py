"""Which dtype each operator computes in under autocast: the table is measured on PyTorch, here and now, and must be ours."""

from __future__ import annotations

import warnings

import pytest

import torchgrad_jax as tj
from torchgrad_jax.calling.overrides import publics
from torchgrad_jax.declaration import autocast as lists
from torchgrad_jax.operators import registry

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.operators

# m is the library, n its nn.functional; f makes a tensor of the dtype that is tried, s one of float32, e an invertible matrix by one of them.
CALLS = """
m.mm(f(2,3), f(3,2)); m.mm(f(2,3), s(3,2)); m.matmul(f(2,3), f(3,2)); m.matmul(s(2,3), f(3)); m.matmul(f(3), f(3)); m.matmul(f(2,2,3), s(3,2));
f(2,3) @ f(3,2); f(2,3).matmul(s(3,2)); m.bmm(f(2,2,3), s(2,3,2)); m.baddbmm(f(2,2,2), s(2,2,3), f(2,3,2)); m.addbmm(f(2,2), s(2,2,3), f(2,3,2));
m.addmm(f(2,2), s(2,3), f(3,2)); m.mv(f(2,3), f(3)); m.addmv(f(2), f(2,3), f(3)); m.addr(f(2,3), f(2), f(3)); m.dot(f(3), f(3)); m.vdot(f(3), f(3));
m.inner(f(3), f(3)); m.inner(f(2,3), s(2,3)); m.outer(f(2), f(3)); m.kron(f(2,2), f(2,2)); m.cross(f(2,3), f(2,3), dim=1);
m.einsum("ij,jk->ik", f(2,3), s(3,2)); m.einsum("ij,ij->ij", f(2,3), f(2,3)); m.einsum("bij,bjk,bkl->bil", f(2,2,3), f(2,3,2), f(2,2,3));
m.tensordot(f(2,3), f(3,2), 1); m.tensordot(f(2,3), f(2,3), 2); m.linalg.multi_dot([f(2,3), f(3,2), f(2,2)]);
m.linalg.vecdot(f(2,3), s(2,3)); m.linalg.matrix_power(f(2,2), 3); m.cov(f(2,3)); m.corrcoef(f(2,3)); m.trace(f(2,2)); m.cdist(f(2,3), s(2,3));
m.dist(f(2), f(2)); m.block_diag(f(2,2), s(2,2));

n.linear(f(2,3), f(4,3), f(4)); n.linear(f(2,3), s(4,3)); n.bilinear(f(2,3), f(2,3), f(4,3,3)); n.conv1d(f(1,2,5), s(3,2,2));
n.conv2d(f(1,2,5,5), s(3,2,2,2), f(3)); n.conv3d(f(1,1,3,3,3), f(1,1,2,2,2)); n.conv_transpose1d(f(1,2,5), s(2,3,2));
n.conv_transpose2d(f(1,1,3,3), f(1,1,2,2)); n.conv_transpose3d(f(1,1,3,3,3), f(1,1,2,2,2)); n.conv2d(f(2,5,5), s(3,2,2,2), padding="same");
n.prelu(f(2,3), s(3)); n.relu(f(3)); n.gelu(f(3)); n.silu(f(3)); n.scaled_dot_product_attention(f(1,2,3,4), s(1,2,3,4), f(1,2,3,4));
n.scaled_dot_product_attention(f(2,4), s(3,4), f(3,4), m.ones(2,3) > 0); n.softmax(f(2,3), 1); n.log_softmax(f(2,3), 1);
n.layer_norm(f(2,3), (3,)); n.layer_norm(f(2,3), (3,), s(3), s(3)); n.group_norm(f(2,4,3), 2); n.batch_norm(f(2,3), None, None, None, None, True);
n.instance_norm(f(2,3,4)); n.normalize(f(2,3)); n.local_response_norm(f(1,2,3), 2); n.avg_pool1d(f(1,2,4), 2); n.avg_pool2d(f(1,2,4,4), 2);
n.avg_pool3d(f(1,2,4,4,4), 2); n.max_pool1d(f(1,2,4), 2); n.max_pool2d(f(1,2,4,4), 2); n.max_pool3d(f(1,2,4,4,4), 2);
n.max_pool3d(f(1,2,4,4,4), 2, return_indices=True)[0]; n.adaptive_avg_pool1d(f(1,2,4), 2); n.adaptive_avg_pool2d(f(1,2,4,4), 2);
n.adaptive_avg_pool3d(f(1,2,4,4,4), 2); n.adaptive_max_pool2d(f(1,2,4,4), 2); n.adaptive_max_pool3d(f(1,2,4,4,4), 2);
n.lp_pool2d(f(1,2,4,4), 2, 2); n.pad(f(1,2,4), (1,1), "reflect"); n.pad(f(1,2,4,4), (1,)*4, "reflect"); n.pad(f(1,2,4,4,4), (1,)*6, "reflect");
n.pad(f(1,2,4), (1,1), "replicate"); n.pad(f(1,2,4,4), (1,)*4, "replicate"); n.pad(f(1,2,4,4,4), (1,)*6, "replicate");
n.pad(f(1,2,4), (1,1), "circular"); n.pad(f(1,2,4), (1,1)); n.interpolate(f(1,2,4), 8); n.interpolate(f(1,2,4,4), 8, mode="bilinear");
n.grid_sample(f(1,2,4,4), s(1,3,3,2), align_corners=False); n.grid_sample(f(1,2,4,4,4), f(1,3,3,3,3), align_corners=False);
n.affine_grid(f(1,2,3), (1,1,2,2), align_corners=False); n.embedding(i(0,1), f(3,2)); n.cosine_similarity(f(2,3), s(2,3));
n.pairwise_distance(f(2,3), f(2,3)); n.unfold(f(1,2,4,4), 2); n.glu(f(2,4)); n.softplus(f(3)); n.pixel_shuffle(f(1,4,2,2), 2); n.pdist(f(2,2));
n.multi_head_attention_forward(f(2,1,4), f(2,1,4), f(2,1,4), 4, 2, s(12,4), s(12), None, None, False, 0.0, s(4,4), s(4))[0];

n.mse_loss(f(2,3), f(2,3)); n.mse_loss(f(2,3), s(2,3)); n.l1_loss(f(2,3), f(2,3)); n.smooth_l1_loss(f(2,3), f(2,3)); n.huber_loss(f(2,3), s(2,3));
n.cross_entropy(f(2,3), i(0,1)); n.cross_entropy(f(2,3), f(2,3), s(3)); n.nll_loss(f(2,3), i(0,1)); n.kl_div(f(2,3), f(2,3), reduction="sum");
n.poisson_nll_loss(f(2,3), f(2,3)); n.gaussian_nll_loss(f(2,3), f(2,3), f(2,3)); n.binary_cross_entropy(f(2,3), s(2,3));
n.binary_cross_entropy_with_logits(f(2,3), f(2,3)); n.hinge_embedding_loss(f(2,3), f(2,3)); n.soft_margin_loss(f(2,3), f(2,3));
n.margin_ranking_loss(f(2), f(2), f(2)); n.cosine_embedding_loss(f(2,3), f(2,3), f(2)); n.multi_margin_loss(f(2,3), i(0,1));
n.multilabel_margin_loss(f(2,2), i(0,1).expand(2,2)); n.multilabel_soft_margin_loss(f(2,3), f(2,3)); n.triplet_margin_loss(f(2,3), f(2,3), f(2,3));
n.triplet_margin_with_distance_loss(f(2,3), f(2,3), f(2,3)); m.kl_div(f(2,3), f(2,3)); m.poisson_nll_loss(f(2), f(2), True, False, 1e-8, 1);

m.prod(f(2,3)); f(2,3).prod(1); m.prod(f(2,3), dtype=m.bfloat16); m.sum(f(2,3)); m.cat([f(2), s(2)]); m.cat([f(2), f(2)]); m.stack([f(2), s(2)]);
m.vstack([f(2), s(2)]); m.index_copy(f(2,2), 0, i(0,1), s(2,2)); f(2,2).index_copy(0, i(0,1), f(2,2));
m.quantile(f(3), 0.5); m.nanquantile(f(3), 0.5);
m.polar(f(3), f(3)); m.view_as_complex(f(3,2)); m.stft(f(8), 4, window=s(4), return_complex=True); m.cumsum(f(2,3), 0); m.cumprod(f(2,3), 0);
m.fft.fft(f(4)); m.fft.ifft(f(4)); m.fft.fft2(f(4,4)); m.fft.ifft2(f(4,4)); m.fft.fftn(f(4)); m.fft.ifftn(f(4)); m.fft.rfft(f(4)); m.fft.irfft(f(4));
m.fft.rfft2(f(4,4)); m.fft.irfft2(f(4,4)); m.fft.rfftn(f(4)); m.fft.irfftn(f(4)); m.fft.hfft(f(4)); m.fft.ihfft(f(4)); m.fft.hfft2(f(4,4));
m.fft.ihfft2(f(4,4)); m.fft.hfftn(f(4)); m.fft.ihfftn(f(4)); m.fft.fftshift(f(4)); m.exp(f(3)); m.log(f(3)); m.pow(f(3), 2); f(3) ** f(3); 1 / f(3);
m.linalg.cholesky(e(f)); m.linalg.cholesky_ex(e(f))[0]; m.cholesky(e(f)); m.cholesky_inverse(e(f)); m.cholesky_solve(f(2,2), e(s));
m.linalg.cond(e(f)); m.linalg.eig(e(f))[0]; m.linalg.eigvals(e(f)); m.linalg.eigh(e(f))[0]; m.linalg.eigvalsh(e(f)); m.linalg.inv(e(f));
m.inverse(e(f)); e(f).inverse(); m.linalg.inv_ex(e(f))[0]; m.linalg.svd(e(f))[1]; m.svd(e(f))[1]; m.linalg.svdvals(e(f)); m.linalg.qr(e(f))[1];
m.qr(e(f))[1]; m.geqrf(e(f))[0]; m.linalg.solve(e(f), s(2,2)); m.linalg.solve_ex(e(f), f(2,2))[0]; m.triangular_solve(s(2,2), e(f))[0];
m.linalg.solve_triangular(e(f), f(2,2), upper=True); m.linalg.lstsq(e(f), s(2,2))[0]; m.linalg.matrix_rank(e(f)); m.pinverse(e(f));
m.linalg.tensorinv(e(f), 1); m.linalg.tensorsolve(e(f), s(2)); m.linalg.householder_product(e(f), f(2)); m.ormqr(e(f), s(2), f(2,2)); m.lu(e(f))[0];
m.linalg.lu(e(f))[1]; m.linalg.lu_factor(e(f))[0]; m.lu_solve(f(2,2), *m.linalg.lu_factor(e(s))); m.linalg.det(e(f)); m.linalg.slogdet(e(f))[1];
m.logdet(e(f)); m.linalg.norm(f(2,2)); m.linalg.vector_norm(f(2)); m.linalg.matrix_exp(f(2,2)); m.norm(f(2,2)); m.rsqrt(f(3)); m.tan(f(3));
m.add(f(3), s(3)); m.mul(f(3), s(3)); m.addcmul(f(3), f(3), s(3)); m.addcdiv(f(3), f(3), s(3)); m.atan2(f(3), s(3)); m.var(f(3)); m.mean(f(3));
m.logsumexp(f(3), 0); m.renorm(f(2,2), 2, 0, 1); m.scatter_add(f(3), 0, i(0,1), f(2)); m.index_put(f(3), (i(0,1),), f(2)); m.sort(f(3))[0];
m.mm(f(2,2), f(2,2), out=m.empty(2,2,dtype=f(1).dtype)); m.matmul(s(2,2), s(2,2), out=m.empty(2,2));
m.cat([f(2), f(2)], out=m.empty(4,dtype=f(1).dtype));
s(2,2).addmm_(s(2,2), s(2,2)); f(2,2).mul_(s(2,2)); m.where(m.ones(2) > 0, f(2), s(2)); m.clamp(f(2), 0, 1); m.meshgrid(f(2), f(2))[0]
"""
CALLS = [call.strip() for call in CALLS.split(";")]


def dtype_of(m, call, dtype, lower):
    """The dtype of what a call returns under autocast; the class of what it raises."""

    def made(kind):
        return lambda *shape: m.full(shape, 0.5, dtype=getattr(m, kind))

    names = {
        "m": m, "n": m.nn.functional, "f": made(dtype), "s": made("float32"), "i": lambda *values: m.tensor(values),
        "e": lambda of: (of(2, 2) + m.eye(2)).to(of(1).dtype),
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with m.autocast("cpu", dtype=getattr(m, lower)):
                return str(eval(call, names).dtype)
        except AttributeError:  # there is no such function
            return None
        except (RuntimeError, TypeError, ValueError) as error:
            return type(error).__name__


def differences(dtype, lower):
    """Where the tables differ, of the functions that there are here, and what PyTorch's says."""
    ours, theirs = ({call: dtype_of(m, call, dtype, lower) for call in CALLS} for m in (tj, torch))
    return {call: (found, theirs[call]) for call, found in ours.items() if found not in (None, theirs[call])}, theirs


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_every_operator_computes_in_the_dtype_that_pytorchs_does(dtype):
    found, theirs = differences(dtype, "bfloat16")
    assert found == {}
    assert len(set(theirs.values())) > 3  # the table says something


def test_float16_is_the_lower_precision_where_it_is_asked_for():
    found, theirs = differences("float32", "float16")
    assert found == {} and "torch.float16" in theirs.values()


def test_each_name_in_the_lists_is_of_an_operator_or_a_public_function():
    names = {lists.name_of_function(public.name) for public in publics.values()}
    assert lists.LISTED - names - set(registry) == set()


# What PyTorch's documentation says of GPUs, by the dtype of the operands; there may be none here, so the CPU is given their lists.
ON_GPUS = {
    ("float32", "torch.float16"): """m.mm(f(2,2), f(2,2)); m.matmul(f(2,2), f(2)); m.mv(f(2,2), f(2)); m.addmv(f(2), f(2,2), f(2));
        m.addr(f(2,2), f(2), f(2)); m.linalg.multi_dot([f(2,2), f(2,2)]); n.conv1d(f(1,1,3), f(1,1,2)); n.conv_transpose2d(f(1,1,3,3), f(1,1,2,2));
        n.linear(f(2,2), f(2,2), f(2)); n.prelu(f(2,2), f(2));
        m.nn.LSTMCell(2, 3)(f(2,2))[1]; m.nn.GRUCell(2, 3)(f(2,2)); m.nn.RNNCell(2, 3)(f(2,2)); m.nn.LSTM(2, 3)(f(2,2,2))[0];
        m.nn.GRU(2, 3)(f(2,2,2))[0]; m.baddbmm(f(1,2,2), f(1,2,2), f(1,2,2)); m.addbmm(f(2,2), f(1,2,2), f(1,2,2))""",
    ("float16", "torch.float32"): """f(2) ** 2; f(2).__pow__(f(2)); 2 ** f(2); 1 / f(2); m.acos(f(2)); m.asin(f(2)); m.cosh(f(2)); m.cumprod(f(2), 0);
        m.cumsum(f(2), 0); m.dist(f(2), f(2)); m.erfinv(f(2)); m.exp(f(2)); m.expm1(f(2)); m.log(f(2)); m.log10(f(2)); m.log1p(f(2)); m.log2(f(2));
        m.norm(f(2)); f(2).norm(); m.pow(f(2), 0.5); m.prod(f(2)); m.reciprocal(f(2)); m.renorm(f(2,2), 2, 0, 1); m.rsqrt(f(2)); m.sinh(f(2));
        m.sum(f(2)); f(2,2).sum(1); m.tan(f(2)); m.cdist(f(2,2), f(2,2)); n.softmax(f(2), 0); n.log_softmax(f(2), 0); n.softmin(f(2), 0);
        n.softplus(f(2)); n.layer_norm(f(2), (2,)); n.group_norm(f(2,2), 1); n.normalize(f(2,2)); n.cosine_similarity(f(2,2), f(2,2));
        n.pdist(f(2,2)); n.mse_loss(f(2), f(2)); n.l1_loss(f(2), f(2)); n.smooth_l1_loss(f(2), f(2)); n.kl_div(f(2,2), f(2,2), reduction="sum");
        n.cross_entropy(f(2,2), i(0,1)); n.nll_loss(f(2,2), i(0,1)); n.binary_cross_entropy_with_logits(f(2), f(2)); n.soft_margin_loss(f(2), f(2));
        n.poisson_nll_loss(f(2), f(2)); n.margin_ranking_loss(f(2), f(2), f(2)); n.multi_margin_loss(f(2,2), i(0,1));
        n.multilabel_margin_loss(f(2,2), i(0,1).expand(2,2)); n.triplet_margin_loss(f(2,2), f(2,2), f(2,2)); n.hinge_embedding_loss(f(2), f(2));
        n.cosine_embedding_loss(f(2,2), f(2,2), f(2)); m.addcdiv(s(2), f(2), s(2)); m.addcmul(f(2), s(2), f(2)); m.atan2(f(2), s(2));
        m.cross(f(3), s(3), dim=0); m.dot(f(2), s(2)); n.grid_sample(f(1,1,2,2), s(1,2,2,2), align_corners=False);
        m.scatter_add(s(2), 0, i(0,1), f(2)); m.index_put(f(2), (i(0,1),), s(2)); n.bilinear(f(2,2), s(2,2), f(2,2,2)); m.cat([f(2), s(2)])""",
    ("float16", "torch.float16"): """f(2) + f(2); n.relu(f(2)); m.mean(f(2)); m.dot(f(2), f(2)); m.addcmul(f(2), f(2), f(2)); m.cat([f(2), f(2)]);
        n.max_pool2d(f(1,2,2), 2); m.sqrt(f(2)); n.gelu(f(2)); n.batch_norm(f(2,2), None, None, training=True); f(2).mul_(s(2))""",
    ("float32", "RuntimeError"): "n.binary_cross_entropy(f(2), f(2))",
    ("float64", "torch.float64"): "m.mm(f(2,2), f(2,2)); m.exp(f(2)); n.mse_loss(f(2), f(2))",
}  # fmt: skip


@pytest.mark.parametrize("dtype, expected", ON_GPUS)
def test_on_gpus_operators_compute_in_the_dtypes_that_pytorchs_documentation_says(monkeypatch, dtype, expected):
    monkeypatch.setitem(lists._policies, "cpu", lists.policies("cuda"))
    calls = [call.strip() for call in ON_GPUS[dtype, expected].split(";")]
    found = {call: dtype_of(tj, call, dtype, "float16") for call in calls}
    assert {call: dtype for call, dtype in found.items() if dtype != expected} == {}


def test_binary_cross_entropy_on_gpus_says_what_to_use(monkeypatch):
    monkeypatch.setitem(lists._policies, "cpu", lists.policies("cuda"))
    with tj.autocast("cpu"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        tj.nn.functional.binary_cross_entropy(tj.rand(2), tj.rand(2))
