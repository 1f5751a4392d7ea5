"""`torch.nn.attention.flex_attention`: values and masks as PyTorch's; gradients, which that has on no CPU, as `scaled_dot_product_attention`'s."""

import warnings
from importlib import import_module

import numpy as np
import pytest
from side_by_side import like_pytorch
from torchgrad_jax.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

import torchgrad_jax as tj

pytestmark = pytest.mark.operators


def like(program):
    """As `like_pytorch`, of the library and its module; PyTorch warns that it does not compile."""

    def quietly(m):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return program(m, import_module(f"{m.__name__}.nn.attention.flex_attention"))

    like_pytorch(quietly)()


def given(m, heads=4, keys=20):
    m.manual_seed(0)
    return m.randn(2, 4, 20, 8), m.randn(2, heads, keys, 8), m.randn(2, heads, keys, 6)


def causal(b, h, q, k):
    return q >= k


def biased(m):
    slopes = m.tensor([0.1, 0.2, 0.3, 0.4])
    return lambda score, b, h, q, k: score + slopes[h] * (k - q)


def documents(m):
    which = m.arange(20) // 7
    return lambda b, h, q, k: which[q] == which[k]


CALLS = {
    "plain": lambda m, f: f.flex_attention(*given(m)),
    "scores": lambda m, f: f.flex_attention(*given(m), score_mod=biased(m)),
    "a softened score": lambda m, f: f.flex_attention(
        *map(m.Tensor.double, given(m)), score_mod=lambda s, b, h, q, k: m.where(q >= k, 3 * s.tanh(), -float("inf"))
    ),
    "a mask": lambda m, f: f.flex_attention(*given(m), block_mask=f.create_block_mask(causal, None, None, 20, 20, device="cpu", BLOCK_SIZE=8)),
    "both": lambda m, f: f.flex_attention(
        *given(m), score_mod=biased(m), block_mask=f.create_block_mask(f.and_masks(causal, documents(m)), 2, 4, 20, 20, device="cpu")
    ),
    "by batch and head": lambda m, f: f.flex_attention(
        *given(m), block_mask=f.create_block_mask(lambda b, h, q, k: q - k < b + h + 1, 2, 4, 20, 20, device="cpu")
    ),
    "nothing is seen": lambda m, f: f.flex_attention(
        *given(m), block_mask=f.create_block_mask(lambda b, h, q, k: q < 0, None, None, 20, 20, device="cpu"), return_lse=True
    ),
    "fewer keys": lambda m, f: f.flex_attention(*given(m, keys=12), scale=0.5),
    "shared heads": lambda m, f: f.flex_attention(*given(m, 2), enable_gqa=True, return_lse=True),
    "logarithms": lambda m, f: tuple(f.flex_attention(*given(m), return_aux=f.AuxRequest(lse=True))[1]),
    "options": lambda m, f: f.flex_attention(*given(m), kernel_options={"BLOCK_M": 64}),
}


@pytest.mark.parametrize("name", CALLS)
def test_values_are_pytorchs(name, interpreted):  # XLA rounds otherwise than PyTorch, by more than is allowed
    like(CALLS[name])


def whole(mask):
    parts = [getattr(mask, name) for pair in ("kv", "full_kv", "q", "full_q") for name in (f"{pair}_num_blocks", f"{pair}_indices")]
    return [None if x is None else (str(x.dtype), x.tolist()) for x in parts], mask.shape, mask.sparsity(), mask.numel(), mask.to_dense().tolist()


MASKS = {
    "causal": lambda m, f: f.create_block_mask(causal, None, None, 20, 20, device="cpu", BLOCK_SIZE=8),
    "large": lambda m, f: f.create_block_mask(lambda b, h, q, k: (q - k).abs() < 60, 1, 2, 1000, 800, device="cpu", BLOCK_SIZE=16),
    "many": lambda m, f: f.create_block_mask(causal, 2, 3, 200, 260, device="cpu"),
    "not apart": lambda m, f: f.create_block_mask(causal, 1, 1, 20, 20, device="cpu", BLOCK_SIZE=(8, 4), separate_full_blocks=False),
    "adjusted": lambda m, f: f.create_block_mask(causal, 1, 1, 40, 40, device="cpu", BLOCK_SIZE=8)._adjust(20, 40),
    "by hand": lambda m, f: f.BlockMask.from_kv_blocks(
        m.tensor([[[1, 2]]], dtype=m.int32), m.tensor([[[[0, 1], [0, 1]]]], dtype=m.int32), BLOCK_SIZE=4
    ),
    "moved": lambda m, f: f.create_block_mask(causal, 1, 1, 20, 20, device="cpu", BLOCK_SIZE=8).to("cpu"),
    "a head": lambda m, f: f.create_block_mask(causal, 2, 3, 20, 20, device="cpu", BLOCK_SIZE=8)[0, 1],
    "rows": lambda m, f: f.create_block_mask(causal, 2, 3, 20, 20, device="cpu", BLOCK_SIZE=8)[:, :, [0, 2]],
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_are_pytorchs(name):
    like(lambda m, f: whole(MASKS[name](m, f)))
    like(lambda m, f: (str(MASKS[name](m, f)), MASKS[name](m, f).to_string((5, 7)), MASKS[name](m, f).to_string(-1, 1)))


def test_how_masks_are_shown_taken_apart_and_made():
    like(lambda m, f: repr(MASKS["causal"](m, f)))
    like(lambda m, f: [type(x).__name__ for flat in (True, False) for x in MASKS["causal"](m, f).as_tuple(flat)])
    like(lambda m, f: f.create_mask(f.or_masks(causal, documents(m)), 2, None, 9, 9, device="cpu"))
    like(lambda m, f: (f.create_mask(biased(m), 1, 4, 3, 3, device="cpu"), f.create_mask(f.noop_mask, 1, 1, 2, 2, device="cpu")))


WRONG = {
    "other lengths": lambda m, f: f.flex_attention(*given(m), block_mask=f.create_block_mask(causal, 1, 1, 16, 16, device="cpu")),
    "longer": lambda m, f: f.flex_attention(*given(m), block_mask=f.create_block_mask(causal, 1, 1, 32, 32, device="cpu")),
    "dimensions": lambda m, f: f.flex_attention(*(x[0] for x in given(m))),
    "features": lambda m, f: f.flex_attention(given(m)[0], given(m)[1][..., :4], given(m)[2]),
    "heads": lambda m, f: f.flex_attention(*given(m, 2)),
    "batches": lambda m, f: f.flex_attention(given(m)[0], *(x[:1] for x in given(m)[1:])),
    "twice": lambda m, f: f.flex_attention(*given(m), return_lse=True, return_aux=f.AuxRequest(lse=True)),
    "arguments": lambda m, f: f.create_block_mask(lambda b: b, 1, 1, 8, 8, device="cpu"),
    "no mask": lambda m, f: f.create_block_mask(lambda b, h, q, k: q + k, 1, 1, 8, 8, device="cpu"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused(name):
    like(WRONG[name])


def test_gradients_are_those_of_attention():
    q, k, v = (x.requires_grad_() for x in given(tj))
    bias = tj.randn(20, 20).requires_grad_()
    mask = create_block_mask(causal, None, None, 20, 20, BLOCK_SIZE=8)
    found = flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[i, j], block_mask=mask)
    wanted = tj.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(~tj.ones(20, 20).tril().bool(), -float("inf")))
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
    for a, b in zip(*(tj.autograd.grad(o.square().sum(), (q, k, v, bias)) for o in (found, wanted)), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3, atol=1e-4)


def test_blocks_that_are_listed_by_hand_are_all_that_is_seen():
    x = tj.randn(1, 1, 8, 4)
    mask = BlockMask.from_kv_blocks(tj.tensor([[[1, 2]]]), tj.tensor([[[[0, 1], [0, 1]]]]), BLOCK_SIZE=4)
    wanted = tj.nn.functional.scaled_dot_product_attention(x[:, :, :4], x[:, :, :4], x[:, :, :4])
    np.testing.assert_allclose(flex_attention(x, x, x, block_mask=mask)[:, :, :4].numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_half_precision_the_largest_scores_and_a_sliced_mask():
    q, k, v = (x.to(tj.bfloat16) for x in given(tj))
    found, aux = flex_attention(q, k, v, return_aux=AuxRequest(max_scores=True))
    scores = (q.float() @ k.float().mT) / 8**0.5
    assert found.dtype is tj.bfloat16 and aux.lse is None
    np.testing.assert_allclose(aux.max_scores.numpy(), scores.amax(-1).numpy(), rtol=1e-5)
    mask = create_block_mask(causal, 1, 1, 20, 20)
    with pytest.raises(RuntimeError, match="Cannot use mask_mod from a sliced BlockMask"):
        flex_attention(q, k, v, block_mask=mask[:, :, 0])
    with pytest.raises(NotImplementedError, match="compute_dq_write_order"):
        create_block_mask(causal, 1, 1, 20, 20, compute_dq_write_order=True)
