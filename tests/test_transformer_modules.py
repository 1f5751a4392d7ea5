"""MultiheadAttention and the Transformer family beside PyTorch: the same seed gives the same weights, results, masks of dropout, graphs and texts."""

from __future__ import annotations

import math

import pytest
from side_by_side import agree, error_of, like_pytorch, plain, programs, torch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators
program, test_programs = programs()


def padding(m, *lengths, size=3):
    return m.arange(size) >= m.tensor(lengths).unsqueeze(1)


def causal(m, dtype=None):
    return m.nn.Transformer.generate_square_subsequent_mask(3, dtype=dtype or m.float64)


def names(node):
    return None if node is None else [node.name(), [names(n) for n, _ in node.next_functions]]


# ---------------------------------------------------------------------- MultiheadAttention

# Arguments of the module, and what is done with it.
ATTENTIONS = {
    "self": ({}, lambda m, a, x, y: a(x, x, x)),
    "other keys": ({}, lambda m, a, x, y: a(x, y, y)),
    "separate": ({"kdim": 4, "vdim": 4, "bias": False}, lambda m, a, x, y: a(x, y, y * 2)),
    "other widths": ({"kdim": 3, "vdim": 5, "add_bias_kv": True}, lambda m, a, x, y: a(x, y[..., :3], m.cat([y, y], -1)[..., :5])),
    "zero attention": ({"add_zero_attn": True}, lambda m, a, x, y: a(x, x, x, attn_mask=causal(m))),
    "each head": ({}, lambda m, a, x, y: a(x, x, x, average_attn_weights=False)),
    "padding": ({"batch_first": True}, lambda m, a, x, y: a(x, x, x, key_padding_mask=padding(m, 1, 2, 3, size=2))),
    "causal": ({}, lambda m, a, x, y: a(x, x, x, attn_mask=causal(m), is_causal=True, need_weights=False)),
    "without a batch": ({}, lambda m, a, x, y: a(x[:, 0], x[:, 0], x[:, 0], attn_mask=causal(m) == 0)),
    "dropout": ({"dropout": 0.4}, lambda m, a, x, y: a(x, x, x)),
    "dropout of scores shaped like queries": ({"dropout": 0.4, "batch_first": True}, lambda m, a, x, y: a(x, x, x, need_weights=False)),
    "dropout without weights": ({"dropout": 0.4}, lambda m, a, x, y: a(x, x, x, need_weights=False)),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_has_pytorchs_weights_results_gradients_and_graph(name):
    options, call = ATTENTIONS[name]

    def outcome(m):
        m.manual_seed(4)
        attention = m.nn.MultiheadAttention(4, 2, **options)
        start = plain(list(attention.state_dict().values()))
        attention.double()
        x, y = m.randn(3, 2, 4, dtype=m.float64), m.randn(5, 2, 4, dtype=m.float64)
        made, weights = call(m, attention, x, y)
        made.square().sum().backward()
        found = [repr(attention), list(attention.state_dict()), start, plain(made), plain(weights), plain([p.grad for p in attention.parameters()])]
        return found, names(made.grad_fn)

    (ours, graph), (theirs, wanted) = outcome(tj), outcome(torch)
    assert agree(ours, theirs)
    if "dropout" not in name and "separate" not in name:  # a mask is a tensor here; PyTorch's dropout draws within its node
        assert graph == wanted


@program
def inference_gives_nan_to_queries_that_see_no_key(m):
    m.manual_seed(0)
    x, found = m.randn(2, 3, 4), []
    for batch_first in (True, False):
        attention = m.nn.MultiheadAttention(4, 2, batch_first=batch_first).eval()
        mask = padding(m, 0, 2) if batch_first else padding(m, 0, 1, 2, size=2)
        for grad in (True, False):
            with m.set_grad_enabled(grad):
                found.append(attention(x, x, x, key_padding_mask=mask, need_weights=False)[0].detach().isnan())
    return found


@program
def merged_masks(m):
    attention, x = m.nn.MultiheadAttention(4, 2, batch_first=True), m.ones(2, 3, 4)
    masks = (None, padding(m, 1, 2)), (causal(m) < 0, None), (causal(m), padding(m, 1, 2).double()), (None, None)
    return [attention.merge_masks(a, b, x) for a, b in masks]


def test_errors_of_attention_are_pytorchs():
    def errors(m):
        attention, x = m.nn.MultiheadAttention(4, 2), m.ones(3, 2, 4)
        return [
            error_of(call)
            for call in (
                lambda: m.nn.MultiheadAttention(5, 2), lambda: m.nn.MultiheadAttention(0, 2), lambda: m.nn.MultiheadAttention(4, -1),
                lambda: attention(x[0, 0], x[0, 0], x[0, 0]), lambda: attention(x, x[0], x[0]), lambda: attention(x, x, x, is_causal=True),
                lambda: attention(x, x, x, attn_mask=m.ones(2, 2)), lambda: attention(x, x, x, key_padding_mask=m.ones(2, 3, dtype=m.int64)),
            )
        ]  # fmt: skip

    assert errors(tj) == errors(torch)


# ---------------------------------------------------------------------- encoder, decoder, both


def layers(m, **options):
    options = {"dim_feedforward": 6, "dropout": 0.2, "batch_first": True, **options}
    return m.nn.TransformerEncoderLayer(4, 2, **options), m.nn.TransformerDecoderLayer(4, 2, **options)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("options", [{}, {"norm_first": True, "bias": False}, {"activation": "gelu", "batch_first": False}], ids=str)
def test_a_transformer_trains_as_pytorchs_does_from_the_same_seed(options):
    def outcome(m):
        m.manual_seed(2)
        model = m.nn.Transformer(4, 2, 1, 2, 6, 0.2, **{"batch_first": True, **options})
        start = plain(list(model.state_dict().values()))
        model.double()
        src, tgt = m.randn(2, 3, 4, dtype=m.float64), m.randn(2, 3, 4, dtype=m.float64)
        masks = {} if not options.get("batch_first", True) else {"src_key_padding_mask": padding(m, 2, 3), "tgt_mask": causal(m)}
        made = model(src, tgt, **masks)
        (made * tgt).sum().backward()
        return [repr(model), list(model.state_dict()), start, plain(made), plain([p.grad for p in model.parameters()])]

    ours, theirs = outcome(tj), outcome(torch)
    assert agree(ours, theirs)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("norm", [False, True])
def test_an_encoder_in_inference_gives_zeros_after_the_end_of_sequences(norm):
    def outcome(m):
        m.manual_seed(3)
        found = []
        for mask_check in (True, False):
            layer = m.nn.TransformerEncoderLayer(4, 2, 6, batch_first=True)
            encoder = m.nn.TransformerEncoder(layer, 2, m.nn.LayerNorm(4) if norm else None, mask_check=mask_check).double().eval()
            x = m.randn(2, 3, 4, dtype=m.float64)
            at_the_end = padding(m, 2, 1)
            masks = at_the_end, at_the_end.double() * -1, m.tensor([[True, False, False], [False, True, False]])
            for mask in masks:
                found += [encoder(x, src_key_padding_mask=mask).detach()]
                with m.no_grad():
                    found += [encoder(x, src_key_padding_mask=mask), encoder(x, causal(m), mask.double() * -9)]
        return plain(found)

    assert agree(outcome(tj), outcome(torch))


def test_warnings_of_encoders_are_pytorchs():
    def make(m):
        even, odd = m.nn.TransformerEncoderLayer(4, 2, 6, batch_first=True), m.nn.TransformerEncoderLayer(3, 1, 6, batch_first=True)
        other = layers(m)[0]
        other.norm2.eps = 1.0
        for layer in (even, odd, other, *(layers(m, **o)[0] for o in ({"norm_first": True}, {"bias": False}, {"activation": m.tanh})), m.nn.Tanh()):
            m.nn.TransformerEncoder(layer, 1)
        m.nn.TransformerEncoder(layers(m, batch_first=False)[0], 1)
        encoder = m.nn.TransformerEncoder(even, 1, enable_nested_tensor=False)
        x = m.ones(2, 3, 4)
        encoder(x, mask=m.zeros(3, 3), src_key_padding_mask=padding(m, 2, 3))
        even(x, m.zeros(3, 3), padding(m, 2, 3))

    like_pytorch(make)()


def test_errors_of_transformers_are_pytorchs():
    def errors(m):
        encoder, decoder = layers(m)
        model, x = m.nn.Transformer(4, 2, 1, 1, 6), m.ones(3, 2, 4)
        return [
            error_of(call)
            for call in (
                lambda: layers(m, activation="tanh"), lambda: model(x, m.ones(3, 3, 4)), lambda: model(x, m.ones(3, 2, 5)),
                lambda: model(m.ones(3, 2, 5), x), lambda: encoder(x, src_mask=m.ones(3, 3, dtype=m.int64)),
                lambda: encoder(x, src_key_padding_mask=m.ones(3, 2, dtype=m.int32)), lambda: encoder(x, is_causal=True),
                lambda: decoder(x, x, tgt_is_causal=True), lambda: m.nn.TransformerEncoder(encoder, 1)(x, is_causal=True),
            )
        ]  # fmt: skip

    with pytest.warns(UserWarning, match="batch_first was not True"):
        assert errors(tj) == errors(torch)


def test_the_causal_mask():
    mask = tj.nn.Transformer.generate_square_subsequent_mask(2, dtype=tj.float64)
    assert mask.dtype is tj.float64 and mask.tolist() == [[0.0, -math.inf], [0.0, 0.0]]
