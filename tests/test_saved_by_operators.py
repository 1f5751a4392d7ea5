"""Which tensors each operator's node keeps, under which names, and the order in which hooks see them: as in PyTorch."""

import pytest
from side_by_side import agree, plain, torch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators


def words(text):
    return text.split()


UNARY = words(
    "abs acos asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac i0 lgamma log log10 log1p log2 logit "
    "nan_to_num nansum neg rad2deg reciprocal relu round rsqrt sigmoid sign sin sinc sinh sqrt square std sum tan tanh trunc var"
)
BINARY = words("add atan2 copysign div dot fmax fmin fmod hypot logaddexp logaddexp2 maximum minimum mul outer pow remainder sub xlogy")
OVER_DIM = words("amax amin cummax cummin cumsum log_softmax logsumexp max median min mode softmax sort unbind unsqueeze")
ACTIVATION = words("elu gelu glu hardsigmoid hardswish hardtanh leaky_relu mish selu silu softplus")
INPLACE_UNARY = words("exp_ relu_ sigmoid_ tanh_")

CASES = {
    **{n: lambda m, a, b, n=n: getattr(m, n)(a) for n in UNARY},
    **{n: lambda m, a, b, n=n: getattr(m, n)(a, b) for n in BINARY},
    **{f"{n}_of_one": lambda m, a, b, n=n: getattr(m, n)(a, a) for n in ("mul", "div", "pow")},
    **{f"{n}_by_constant": lambda m, a, b, n=n: getattr(m, n)(a, b.detach()) for n in ("mul", "div", "maximum")},
    **{f"{n}_dim": lambda m, a, b, n=n: getattr(m, n)(a, 0) for n in OVER_DIM},
    **{n: lambda m, a, b, n=n: getattr(m.nn.functional, n)(a) for n in ACTIVATION},
    **{n: lambda m, a, b, n=n: getattr(a.clone(), n)() for n in INPLACE_UNARY},
    "acosh": lambda m, a, b: m.acosh(a + 1),
    "mul_number": lambda m, a, b: a * 2,
    "div_number": lambda m, a, b: a / 2,
    "pow_number": lambda m, a, b: a**2,
    "rdiv": lambda m, a, b: 2 / a,
    "mul_": lambda m, a, b: a.clone().mul_(b),
    "div_": lambda m, a, b: a.clone().div_(b),
    "max": lambda m, a, b: a.max(),
    "min": lambda m, a, b: a.min(),
    "norm": lambda m, a, b: m.norm(a),
    "topk": lambda m, a, b: m.topk(a, 2)[0],
    "kthvalue": lambda m, a, b: m.kthvalue(a, 2)[0],
    "mm": lambda m, a, b: a.reshape(2, 2) @ b.reshape(2, 2),
    "bmm": lambda m, a, b: m.bmm(a.reshape(1, 2, 2), b.reshape(1, 2, 2)),
    "mv": lambda m, a, b: m.mv(a.reshape(1, 4), b),
    "addmm": lambda m, a, b: m.addmm(a[:2], a.reshape(2, 2), b.reshape(2, 2)),
    "baddbmm": lambda m, a, b: m.baddbmm(a.reshape(1, 2, 2), a.reshape(1, 2, 2), b.reshape(1, 2, 2)),
    "linear": lambda m, a, b: m.nn.functional.linear(a.reshape(1, 4), b.reshape(1, 4)),
    "where": lambda m, a, b: m.where(a > 0.5, a, b),
    "clamp": lambda m, a, b: a.clamp(0.2, 0.6),
    "lerp": lambda m, a, b: m.lerp(a, b, 0.3),
    "lerp_by_tensor": lambda m, a, b: m.lerp(a, b, a),
    "addcmul": lambda m, a, b: m.addcmul(a, b, a),
    "addcdiv": lambda m, a, b: m.addcdiv(a, b, a),
    "masked_fill": lambda m, a, b: a.masked_fill(a > 0.5, 0.0),
    "index": lambda m, a, b: a[m.tensor([0, 1])],
    "index_select": lambda m, a, b: a.index_select(0, m.tensor([0, 1])),
    "index_add": lambda m, a, b: a.index_add(0, m.tensor([0, 1]), b[:2]),
    "cat": lambda m, a, b: m.cat([a, b]),
    "stack": lambda m, a, b: m.stack([a, b]),
    "select": lambda m, a, b: a[0],
    "slice": lambda m, a, b: a[1:],
    "tril": lambda m, a, b: a.reshape(2, 2).tril(),
    "expand": lambda m, a, b: a.expand(2, 4),
    "prelu": lambda m, a, b: m.nn.functional.prelu(a, b[:1]),
    "threshold": lambda m, a, b: m.nn.functional.threshold(a, 0.5, 0.0),
    "mse_loss": lambda m, a, b: m.nn.functional.mse_loss(a, b),
    "smooth_l1_loss": lambda m, a, b: m.nn.functional.smooth_l1_loss(a, b),
    "huber_loss": lambda m, a, b: m.nn.functional.huber_loss(a, b),
    "binary_cross_entropy": lambda m, a, b: m.nn.functional.binary_cross_entropy(a, b.detach()),
    "conv1d": lambda m, a, b: m.nn.functional.conv1d(a.reshape(1, 1, 4), b[:2].reshape(1, 1, 2)),
    "embedding": lambda m, a, b: m.nn.functional.embedding(m.tensor([0, 1]), a.reshape(2, 2)),
    "inv": lambda m, a, b: m.linalg.inv(a.reshape(2, 2)),
    "cholesky": lambda m, a, b: m.linalg.cholesky(a.reshape(2, 2) @ a.reshape(2, 2).T + m.eye(2, dtype=m.float64)),
    "vector_norm": lambda m, a, b: m.linalg.vector_norm(a),
    "cross": lambda m, a, b: m.linalg.cross(a[:3], b[:3]),
}


def recorded(m, operation):
    """The node's name, its tensor attributes, what was packed, and the order of unpacking."""
    a = m.tensor([0.3, 0.9, 0.5, 0.7], dtype=m.float64, requires_grad=True)
    b = m.tensor([0.6, 0.4, 0.8, 0.2], dtype=m.float64, requires_grad=True)
    packed, unpacked = [], []

    def pack(x):
        packed.append([str(x.dtype), list(x.shape), x.requires_grad, x.detach().tolist()])
        return len(packed) - 1, x.detach()

    def unpack(kept):
        unpacked.append(kept[0])
        return kept[1]

    with m.autograd.graph.saved_tensors_hooks(pack, unpack):
        out = operation(m, a, b)
    out = out[0] if isinstance(out, tuple) else out
    names = sorted(n for n in dir(out.grad_fn) if n.startswith("_raw_saved_"))
    out.sum().backward()
    return [out.grad_fn.name(), names, packed, unpacked, a.grad.tolist()]


@pytest.mark.parametrize("name", CASES)
def test_saved_tensors_are_pytorchs(name):
    ours, theirs = recorded(tj, CASES[name]), recorded(torch, CASES[name])
    assert agree(ours, theirs), f"\nours:   {ours}\ntheirs: {theirs}"


SHOWN = {
    "sum": lambda m, x: x.sum(), "sum_dim": lambda m, x: x.sum((0, 1)), "mean": lambda m, x: x.mean(), "mean_dim": lambda m, x: x.mean(0, True),
    "add": lambda m, x: x + x, "add_alpha": lambda m, x: m.add(x, x, alpha=2), "rsub": lambda m, x: 1 - x,
    "view": lambda m, x: x.view(6), "expand": lambda m, x: x.expand(4, 2, 3), "unsqueeze": lambda m, x: x.unsqueeze(0),
    "permute": lambda m, x: x.permute(1, 0), "transpose": lambda m, x: x.transpose(0, 1), "flip": lambda m, x: x.flip(0, 1),
    "roll": lambda m, x: x.roll(1, 0), "rot90": lambda m, x: x.rot90(), "repeat": lambda m, x: x.repeat(2, 1), "select": lambda m, x: x.select(1, 2),
    "diagonal": lambda m, x: x.diagonal(1), "unfold": lambda m, x: x.unfold(0, 2, 1),
    "tril": lambda m, x: x.tril(-1), "unbind": lambda m, x: x.unbind(1)[0],
    "split": lambda m, x: x.split(2, 1)[0], "split_with_sizes": lambda m, x: x.split([1, 2], 1)[0],
    "as_strided": lambda m, x: x.as_strided((2,), (1,), 1),
    "cat": lambda m, x: m.cat([x, x], 1), "stack": lambda m, x: m.stack([x, x]), "index": lambda m, x: x[m.tensor([0])],
    "index_of_columns": lambda m, x: x[:, m.tensor([0])], "index_select": lambda m, x: x.index_select(1, m.tensor([0])),
    "index_put": lambda m, x: x.index_put((m.tensor([0]),), x[0].detach(), accumulate=True), "clamp": lambda m, x: x.clamp(0.25, 0.5),
    "sort_from_the_end": lambda m, x: x.sort(-1)[0], "mse_loss": lambda m, x: m.nn.functional.mse_loss(x, x.detach(), reduction="sum"),
    "conv1d": lambda m, x: m.nn.functional.conv1d(x[None], m.ones(1, 2, 2, dtype=m.float64), padding=1),
    "interpolate": lambda m, x: m.nn.functional.interpolate(x[None], scale_factor=2, mode="linear"),
    "interpolate_to_size": lambda m, x: m.nn.functional.interpolate(x[None, None], size=(2, 2), mode="bilinear"),
    "scatter_reduce": lambda m, x: x.scatter_reduce(0, m.tensor([[0, 1, 1]]), x.detach(), "amax"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_nodes_show_the_arguments_and_shapes_that_pytorchs_show(name):
    def shown(m):
        node = SHOWN[name](m, m.tensor([[0.3, 0.9, 0.5], [0.7, 0.2, 0.4]], dtype=m.float64, requires_grad=True)).grad_fn
        return {n: plain(getattr(node, n)) for n in dir(node) if n.startswith("_saved_")}

    assert shown(tj) == shown(torch)


def test_shapes_are_shown_after_the_graph_is_freed():
    x = tj.ones(2, 3, requires_grad=True)
    y = x[:, tj.tensor([0])]
    y.sum().backward()
    assert y.grad_fn._saved_self_sym_sizes == (2, 3)
    with pytest.raises(RuntimeError, match="freed"):
        _ = y.grad_fn._saved_indices


@pytest.mark.parametrize("name", ["pdist", "cdist"])
def test_distances_show_their_exponent(name):
    x = tj.ones(3, 2, requires_grad=True)
    y = tj.pdist(x, 3.0) if name == "pdist" else tj.cdist(x, tj.zeros(2, 2), 3.0)
    assert y.grad_fn._saved_p == 3.0


def test_a_division_given_no_rounding_mode_shows_none():
    for m in (tj, torch):
        x = m.ones(2, requires_grad=True)
        node = m.div(x, 2.0, rounding_mode=None).grad_fn
        assert node.name() == "DivBackward2" and node._saved_rounding_mode is None
