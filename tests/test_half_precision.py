"""bfloat16 gives PyTorch's digits, all of them: each operation is computed in float32 and rounded where PyTorch rounds."""

from __future__ import annotations

import numpy as np
import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.operators, pytest.mark.filterwarnings("ignore:`torch.jit.script`")]  # PyTorch's own, when a process first opens a level


def data(*shape, low=-3.0, high=3.0):
    return np.random.default_rng(sum(shape)).uniform(low, high, shape).astype(np.float32)


WITH_GRADIENTS = {
    "products and quotients": (lambda m, x, y: (x * y + x) / y - x, [data(64, 33, low=0.5), data(1, 33, low=0.5)]),
    "log_softmax of the last dimension": (lambda m, x: x.log_softmax(-1), [data(40, 7)]),
    "log_softmax of another": (lambda m, x: x.log_softmax(0), [data(40, 7)]),
    "softmax": (lambda m, x: x.softmax(-1), [data(40, 7)]),
    "logit": (lambda m, x: x.logit(), [data(300, low=0, high=1)]),
    "logit within bounds": (lambda m, x: x.logit(0.1), [data(300, low=0, high=1)]),
    "sinc": (lambda m, x: x.sinc(), [data(300)]),
    "sigmoid": (lambda m, x: x.sigmoid(), [data(300)]),
    "kron": (lambda m, x, y: m.kron(x, y), [data(5, 5), data(10, 20)]),
    "normalize": (lambda m, x: m.nn.functional.normalize(x, dim=1), [data(6, 30)]),
    "norm": (lambda m, x: x.norm(dim=1), [data(30, 9)]),
    "binary_cross_entropy_with_logits": (
        lambda m, x, y: m.nn.functional.binary_cross_entropy_with_logits(x, y.detach(), y.detach(), reduction="none"), [data(300), data(300, low=0)],
    ),
    "batch_norm": (lambda m, x, w, b: m.nn.functional.batch_norm(x, None, None, w, b, True, 0.1, 0.6), [data(5000, 3), data(3), data(3) / 2]),
    "batch_norm of images": (lambda m, x: m.nn.functional.batch_norm(x, None, None, training=True), [data(4, 5, 6, 7)]),
    "group_norm": (lambda m, x, w, b: m.nn.functional.group_norm(x, 3, w, b), [data(2, 6, 40), data(6), data(6) / 2]),
    "layer_norm": (lambda m, x: m.nn.functional.layer_norm(x, [50]), [data(8, 50)]),
    "numbers": (lambda m, x, y: 0.3 / (x * 0.1).add(y, alpha=2.7).addcmul(x, y, value=0.7).lerp(y, 0.3), [data(300, low=1), data(300, low=1)]),
    "attention": (
        lambda m, q, k, v: m.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        [data(2, 3, 5, 8), data(2, 3, 7, 8), data(2, 3, 7, 8, low=-2)],
    ),
    "expanded": (lambda m, x: x.expand(40, 7) * 1.1 + x.repeat(40, 1), [data(1, 7)]),
}  # fmt: skip


def outcome(m, program, arrays):
    operands = [m.tensor(a.tolist(), dtype=m.float32).bfloat16().requires_grad_() for a in arrays]
    result = program(m, *operands)
    weights = m.tensor(np.resize(data(97), tuple(result.shape)).tolist(), dtype=m.float32).bfloat16()
    grads = m.autograd.grad(result, operands, weights, allow_unused=True)
    return [t if t is None else t.detach().float().tolist() for t in (result, *grads)]


def different_digits(found, wanted):
    a, b = np.asarray(found), np.asarray(wanted)
    assert a.shape == b.shape
    return float(np.mean((a != b) & ~(np.isnan(a) & np.isnan(b))))


@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_values_and_gradients_have_pytorchs_digits(name):
    program, arrays = WITH_GRADIENTS[name]
    found, wanted = (outcome(m, program, arrays) for m in (tj, torch))
    for ours, theirs in zip(found, wanted, strict=True):
        # A sum in another order may fall on the other side of a rounding.
        assert (ours is None) == (theirs is None) and (ours is None or different_digits(ours, theirs) <= 0.01)


PRODUCTS = {
    "mm": (lambda m, x, y: x @ y, [(8, 9), (9, 7)]),
    "mv": (lambda m, x, y: x @ y, [(8, 9), (9,)]),
    "addmm": (lambda m, b, x, y: m.addmm(b, x, y), [(7,), (8, 9), (9, 7)]),
    "addcmul": (lambda m, b, x, y: m.addcmul(b, x, y), [(8, 9), (8, 9), (9,)]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_tangents_have_pytorchs_digits(name):
    program, shapes = PRODUCTS[name]
    found = []
    for m in (tj, torch):
        primals, tangents = ([m.tensor((data(*s) + shift).tolist()).bfloat16() for s in shapes] for shift in (4.0, 0.0))
        with m.autograd.forward_ad.dual_level():
            duals = [m.autograd.forward_ad.make_dual(p, t) for p, t in zip(primals, tangents, strict=True)]
            found.append(m.autograd.forward_ad.unpack_dual(program(m, *duals)).tangent.float().tolist())
    assert different_digits(*found) <= 0.01


def test_passes_walked_and_recorded_round_alike():
    x, y = (tj.tensor(a.tolist()).bfloat16().requires_grad_() for a in (data(64, 33, low=0.5), data(1, 33, low=0.5)))
    seen = set()
    for _ in range(6):
        z = ((x * y + x) / y - x).sum()
        seen.add(str(tj.autograd.grad(z, [x, y])[1].float().tolist()))
    assert len(seen) == 1
