"""Walked from the loss, the graphs of whole programs are PyTorch's: names, edges, output numbers, shared nodes, and the order of creation."""

from __future__ import annotations

import warnings

import pytest
from graphs import graph_of, sequence_of

import torchgrad_jax as tj

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.operators


def leaves(m):
    m.manual_seed(0)

    def leaf(*shape):
        return (m.rand(*shape) + 0.1).requires_grad_()

    return {
        "x": leaf(4, 6), "w": leaf(6, 6), "v": leaf(8, 6), "b": leaf(6), "c": leaf(8), "s": m.tensor(0.7, requires_grad=True), "h": leaf(4, 6),
        "q": leaf(2, 5, 6), "i": leaf(2, 3, 8, 8), "k": leaf(4, 3, 3, 3), "e": leaf(10, 6), "g": leaf(24, 6), "u": leaf(24, 6), "r": leaf(24),
        "n": leaf(3),
    }  # fmt: skip


# Statements on the leaves above, on `m` (the library) and F; the last is the result.
PROGRAMS = {
    "linear regression": "F.mse_loss(F.linear(x, w, b), h.detach())",
    "perceptron": "F.cross_entropy(F.linear(F.relu(F.linear(x, v, c)), v.t()), LABELS)",
    "tanh network": "((m.tanh(x @ w + b) @ w) ** 2).mean()",
    "sigmoid network": "F.binary_cross_entropy(m.sigmoid(F.linear(x, w, b)), m.full((4, 6), 0.5))",
    "logits": "F.binary_cross_entropy_with_logits(x @ w, m.full((4, 6), 0.5))",
    "gelu network": "F.linear(F.gelu(F.linear(x, v, c)), v.t()).sum()",
    "silu and mish": "(F.silu(x) + F.mish(h)).sum()",
    "elu family": "(F.elu(x) + F.selu(x) + F.celu(x)).sum()",
    "leaky": "F.leaky_relu(x - 0.5, 0.2).sum()",
    "hard functions": "(F.hardtanh(x) + F.hardsigmoid(x) + F.hardswish(x) + F.relu6(x)).sum()",
    "soft functions": "(F.softplus(x) + F.softsign(x) + F.tanhshrink(x) + F.logsigmoid(x)).sum()",
    "gated linear unit": "F.glu(F.linear(x, v, c)).sum()",
    "swiglu": "(F.silu(F.linear(x, v)) * F.linear(x, v, c)).sum()",
    "softmax": "F.softmax(x @ w, -1).log().sum()",
    "log softmax": "F.nll_loss(F.log_softmax(x @ w, 1), LABELS)",
    "label smoothing": "F.cross_entropy(x @ w, LABELS, label_smoothing=0.1)",
    "soft labels": "F.cross_entropy(x, F.softmax(h, 1))",
    "class weights": "F.cross_entropy(x, LABELS, weight=m.ones(6))",
    "kl": "F.kl_div(F.log_softmax(x, 1), F.softmax(h, 1), reduction='batchmean')",
    "distillation": "t = 2.0; F.kl_div(F.log_softmax(x / t, 1), F.softmax(h.detach() / t, 1), reduction='batchmean') * t * t",
    "contrastive": "z = F.normalize(x); logits = z @ z.T / 0.1; F.cross_entropy(logits, m.arange(4))",
    "triplet": "F.triplet_margin_loss(x, h, x.detach() + 1)",
    "cosine": "F.cosine_embedding_loss(x, h, m.tensor([1, -1, 1, 1]))",
    "hinge": "F.hinge_embedding_loss(x, m.ones(4, 6))",
    "ranking": "F.margin_ranking_loss(x, h, m.ones(4, 6), 0.1)",
    "huber": "F.huber_loss(x, h) + F.smooth_l1_loss(x, h) + F.l1_loss(x, h)",
    "gaussian": "F.gaussian_nll_loss(x, h, F.softplus(x))",
    "poisson": "F.poisson_nll_loss(x, h.detach())",
    "elbo": "mu = F.linear(x, w); lv = F.linear(x, w, b); z = mu + (0.5 * lv).exp() * m.randn(4, 6); "
            "F.mse_loss(z, x) - 0.5 * (1 + lv - mu.pow(2) - lv.exp()).sum()",
    "weight decay": "F.mse_loss(x @ w, h) + 1e-4 * sum((p ** 2).sum() for p in (w, b))",
    "gradient penalty": "y = (x @ w).tanh().sum(); (gr,) = m.autograd.grad(y, x, retain_graph=True); (y - gr.detach().norm()) ** 2",
    "layer norm": "F.layer_norm(x, (6,), b, b).sum()",
    "layer norm without affine": "F.layer_norm(x, (6,)).sum()",
    "rms norm": "F.rms_norm(x, (6,), b).sum()",
    "batch norm": "F.batch_norm(i, None, None, n, n, True).sum()",
    "batch norm with statistics": "F.batch_norm(i, m.zeros(3), m.ones(3), n, n, False).sum()",
    "group norm": "F.group_norm(i, 3, n, n).sum()",
    "instance norm": "F.instance_norm(i).sum()",
    "norm by hand": "mean = x.mean(-1, keepdim=True); var = x.var(-1, keepdim=True, unbiased=False); "
        "((x - mean) / (var + 1e-5).sqrt() * b + b).sum()",
    "unit norm": "(x / x.norm(dim=1, keepdim=True)).sum()",
    "weight norm": "(x @ (w * (s / w.norm()))).sum()",
    "convolution": "F.conv2d(i, k).relu().mean()",
    "strided convolution": "F.conv2d(i, k, stride=2, padding=1).sum()",
    "convolution and pool": "F.max_pool2d(F.relu(F.conv2d(i, k)), 2).flatten(1).sum()",
    "average pool head": "F.adaptive_avg_pool2d(F.conv2d(i, k), 1).flatten(1).log_softmax(1).mean()",
    "transposed convolution": "F.conv_transpose2d(i, k.transpose(0, 1)).sum()",
    "residual": "y = F.conv2d(i, k.flatten(0, 1)[:3].unsqueeze(1).expand(3, 3, 3, 3), padding=1); (i + y).relu().sum()",
    "unet step": "d = F.avg_pool2d(i, 2); F.mse_loss(m.cat((i, F.interpolate(d, scale_factor=2)), 1), m.zeros(2, 6, 8, 8))",
    "patches": "F.unfold(i, 4, stride=4).transpose(1, 2).sum()",
    "pixel shuffle": "F.pixel_shuffle(i.reshape(2, 12, 4, 4), 2).mean()",
    "reflection": "F.conv2d(F.pad(i, (1, 1, 1, 1), mode='reflect'), k).sum()",
    "circular": "F.conv2d(F.pad(i, (1, 1, 1, 1), mode='circular'), k).sum()",
    "rnn cell": "t = m.zeros(4, 6)\nfor _ in range(3): t = m.tanh(x @ w.t() + b + t @ w.t())\nt.sum()",
    "gru cell": "gi = F.linear(x, g[:18], r[:18]).chunk(3, 1); gh = F.linear(h, u[:18], r[:18]).chunk(3, 1); rr = m.sigmoid(gi[0] + gh[0]); "
                "z = m.sigmoid(gi[1] + gh[1]); nn = m.tanh(gi[2] + rr * gh[2]); ((1 - z) * nn + z * h).sum()",
    "lstm cell": "gates = F.linear(x, g, r) + F.linear(h, u, r); a, f, o, cc = gates.chunk(4, 1); cy = f.sigmoid() * h + a.sigmoid() * cc.tanh(); "
                 "(o.sigmoid() * cy.tanh()).sum()",
    "unrolled lstm": "hh = h; cy = h\nfor _ in range(2):\n a, f, o, cc = (F.linear(x, g, r) + F.linear(hh, u, r)).chunk(4, 1)\n "
                     "cy = f.sigmoid() * cy + a.sigmoid() * cc.tanh()\n hh = o.sigmoid() * cy.tanh()\nhh.sum()",
    "attention by hand": "a = (q @ q.transpose(-2, -1)) / 6 ** 0.5; (a.softmax(-1) @ q).sum()",
    "causal attention by hand": "a = (q @ q.transpose(1, 2)).masked_fill(m.ones(5, 5).triu(1).bool(), float('-inf')); (a.softmax(-1) @ q).sum()",
    "heads": "y = F.linear(q, w).view(2, 5, 2, 3).transpose(1, 2); (y @ y.transpose(-2, -1)).softmax(-1).sum()",
    "attention": "y = F.linear(q, w).view(2, 5, 2, 3).transpose(1, 2); "
        "F.scaled_dot_product_attention(y, y, y).transpose(1, 2).reshape(2, 5, 6).sum()",
    "causal attention": "y = q.unsqueeze(1); F.scaled_dot_product_attention(y, y, y, is_causal=True).sum()",
    "attention of three dimensions": "F.scaled_dot_product_attention(q, q, q).sum()",
    "attention with dropout": "F.scaled_dot_product_attention(q, q, q, dropout_p=0.5).sum()",
    "attention bias": "y = q.unsqueeze(1); F.scaled_dot_product_attention(y, y, y, attn_mask=w[:5, :5]).sum()",
    "transformer block": "y = F.layer_norm(q, (6,), b, b); a = F.scaled_dot_product_attention(F.linear(y, w), F.linear(y, w), F.linear(y, w)); "
                         "y = q + F.linear(a, w, b); (y + F.linear(F.gelu(F.linear(F.layer_norm(y, (6,)), v, c)), v.t())).mean()",
    "embedding": "F.embedding(m.tensor([[1, 2], [3, 3]]), e).sum()",
    "embedding bag": "F.embedding_bag(m.tensor([[1, 2], [3, 3]]), e, mode='mean').sum()",
    "tied weights": "y = F.embedding(m.tensor([1, 2, 3, 4]), e); F.cross_entropy(y @ e.t(), m.tensor([1, 2, 3, 4]))",
    "positions": "y = F.embedding(m.tensor([[1, 2, 3, 4, 5]]), e) + e[:5]; (y * 6 ** 0.5).sum()",
    "dropout": "(F.dropout(x @ w, 0.5) @ w).sum()",
    "dropout of channels": "F.dropout2d(i).sum()",
    "maxout": "F.linear(x, v, c).view(4, 4, 2).max(-1)[0].sum()",
    "mixture": "p = F.softmax(x @ w, -1); y = m.stack([x @ w, x * 2], 1); (p[:, :2].unsqueeze(-1) * y).sum()",
    "log sum exp": "m.logsumexp(x @ w, 1).sum()",
    "distances": "m.cdist(x, h).sum()", "pairwise": "F.pairwise_distance(x, h).sum()", "kernel": "(-m.cdist(x, h) ** 2).exp().mean()",
    "squared distances": "((x[:, None] - h[None]) ** 2).sum(-1).min(1)[0].sum()",
    "einsum": "m.einsum('bi,ij->bj', x, w).sum()", "einsum of a batch": "m.einsum('bnd,bmd->bnm', q, q).softmax(-1).sum()",
    "bilinear form": "m.einsum('bi,ij,bj->b', x, w, h).sum()", "trace": "m.einsum('ii', w)",
    "solve": "m.linalg.solve(w + m.eye(6) * 9, x.t()).sum()", "inverse": "(m.linalg.inv(w + m.eye(6) * 9) @ b).sum()",
    "gaussian density": "a = w @ w.t() + m.eye(6); l = m.linalg.cholesky(a); "
        "(m.linalg.solve_triangular(l, x.t(), upper=False) ** 2).sum() + m.logdet(a)",
    "spectral norm": "m.linalg.svdvals(w).max()", "nuclear norm": "m.linalg.norm(w, 'nuc')",
    "eigenvalues": "m.linalg.eigvalsh(w + w.t()).sum()", "determinant": "m.linalg.slogdet(w + m.eye(6) * 9)[1]",
    "least squares": "m.linalg.lstsq(w + m.eye(6), x.t())[0].sum()", "chain": "m.linalg.multi_dot((x, w, w)).sum()",
    "power of a matrix": "m.matrix_power(w, 3).sum()", "matrix exponential": "m.matrix_exp(w).sum()",
    "get items": "x[0].sum() + x[:, 1].sum() + x[1:3, ::2].sum() + x[..., -1].sum()",
    "gather rows": "x[m.tensor([0, 2, 2])].sum()", "boolean mask": "x[x.detach() > 0.5].sum()", "gather": "x.gather(1, LABELS[:, None]).sum()",
    "set items": "y = x * 1\ny[0] = h[1]\ny[:, 2] = 0\ny.sum()",
    "set by mask": "y = x * 1\ny[x.detach() > 0.5] = 0.0\ny.sum()", "set rows": "y = m.zeros(4, 6)\ny[m.tensor([0, 2])] = x[:2]\ny.sum()",
    "scatter": "m.zeros(10).index_add(0, m.tensor([1, 2, 1, 0]), x[:, 0]).sum()",
    "in-place chain": "y = x * 1; y.mul_(2).add_(h).clamp_(0, 1); y.sum()",
    "in-place on a view": "y = x * 1; y[0].mul_(b); y.view(-1)[3:5].zero_(); y.sum()",
    "views of views": "y = x.view(2, 2, 6).permute(2, 0, 1).reshape(6, 4).t(); (y * y).sum()",
    "view after write": "y = x * 1; z = y[1]; y.mul_(h); (z * 2).sum()", "unbind": "a, f, o, d = x.unbind(0); (a * f + o / d).sum()",
    "split and cat": "a, d = x.split((2, 4), 1); m.cat((d, a), 1).sum()", "stack": "m.stack([x, h]).mean(0).sum()",
    "where": "m.where(x > 0.5, x, h * 2).sum()",
    "clamp": "x.clamp(0.2, 0.8).sum()",
    "sort": "x.sort(1)[0][:, :2].sum()",
    "topk": "x.topk(2)[0].sum()",
    "cumulative": "x.cumsum(1).cumprod(0).sum()", "median and quantile": "x.median() + m.quantile(x, 0.3)", "variance": "x.var(0).sum() + x.std()",
    "extremes": "x.max() + x.min() + x.amax(1).sum() + m.maximum(x, h).sum()",
    "special": "(m.lgamma(x) + m.digamma(x) + m.erf(x) + m.special.i0e(x)).sum()",
    "polynomial": "x ** 3 - 2 * x ** 2 + x / 2 - 1", "shared": "y = x * s; y + y", "diamond": "y = (x * 2).exp(); (y.sin() * y.cos()).sum()",
    "number on the left": "(1 - x) + (2 / x) + (2 ** x) - (3 * x)",
    "detached": "(x.detach() * h).sum()",
    "no grad": "y = NOGRAD(m, lambda: x * 2); (y * h).sum()",
    "function": "(SQUARE(m).apply(x * 2) + 1).sum()", "function of two": "PAIR(m).apply(x, h * 2)[1].sum()",
    "complex": "z = m.complex(x, h); (z * z.conj()).real.sum()", "magnitude": "z = m.polar(x, h); z.abs().sum() + z.angle().sum()",
    "covariance": "m.cov(x).sum()", "trapezoid": "m.trapezoid(x, dx=0.1).sum()", "outer": "m.outer(b, b).sum() + m.dot(b, b)",
}  # fmt: skip


def square(m):
    class Square(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * ctx.saved_tensors[0] * grad

    return Square


def pair(m):
    class Pair(m.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b, a - b

        @staticmethod
        def backward(ctx, first, second):
            return first + second, first - second

    return Pair


def without_grad(m, call):
    with m.no_grad():
        return call()


def run(m, program):
    names = leaves(m)
    scope = {**names, "m": m, "F": m.nn.functional, "LABELS": m.tensor([1, 0, 3, 2]), "SQUARE": square, "PAIR": pair, "NOGRAD": without_grad}
    *statements, last = program.split("\n") if "\n" in program else program.split("; ")
    exec("\n".join(statements), scope)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(last, scope), names


def test_there_are_more_than_a_hundred_programs():
    assert len(PROGRAMS) > 100


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_graph_of_a_program_is_pytorchs(program):
    ours, theirs = run(tj, program), run(torch, program)
    assert graph_of(ours[0], **ours[1]) == graph_of(theirs[0], **theirs[1])
    # A view whose base was written to gets its new node while the node that uses it is made: PyTorch has numbered that one already.
    if program != PROGRAMS["view after write"]:
        assert sequence_of(ours[0]) == sequence_of(theirs[0])
