"""Encoder layers without gradients: one operation from their third call on, with the results of the modules one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.counters import counters

nn = torch.nn


def layer_of(**options):
    torch.manual_seed(0)
    made = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, **options).eval()
    with torch.no_grad():
        for p in made.parameters():
            p.add_(torch.randn_like(p), alpha=0.1)
    return made


def module_by_module(layer, *args, **kwargs):
    """A hook keeps it from being one operation."""
    handle = layer.dropout.register_forward_hook(lambda *_: None)
    try:
        return layer(*args, **kwargs)
    finally:
        handle.remove()


MASKS = {
    "none": lambda: {},
    "causal": lambda: {"src_mask": nn.Transformer.generate_square_subsequent_mask(5), "is_causal": True},
    "boolean": lambda: {"src_mask": torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)},
    "padding": lambda: {"src_key_padding_mask": torch.tensor([[False] * 5, [False, False, False, True, True]])},
    "both": lambda: {"src_mask": torch.zeros(5, 5, dtype=torch.bool), "src_key_padding_mask": torch.zeros(2, 5, dtype=torch.bool)},
}


@pytest.mark.parametrize(("norm_first", "activation", "masks"), list(itertools.product((False, True), ("relu", "gelu"), MASKS)))
def test_one_operation_with_the_results_of_the_modules(norm_first, activation, masks):
    layer = layer_of(norm_first=norm_first, activation=activation)
    masks = MASKS[masks]()
    with torch.no_grad():
        for turn in range(5):
            x = torch.randn(2, 5, 16)
            expected = module_by_module(layer, x, **masks).numpy()
            recorded = counters.recorded
            found = layer(x, **masks)
            assert found.shape == (2, 5, 16) and found.is_contiguous() and not found.requires_grad and found.grad_fn is None
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)
            if turn >= 2 and modes.execution == "fused":
                assert counters.recorded - recorded < 12  # and what makes masks of numbers


def test_weights_that_change_are_read_anew():
    layer, x = layer_of(), torch.randn(2, 5, 16)
    with torch.no_grad():
        before = [layer(x).numpy() for _ in range(4)]
        layer.linear2.weight.mul_(2)
        changed = layer(x).numpy()
        np.testing.assert_allclose(changed, module_by_module(layer, x).numpy(), rtol=1e-5, atol=1e-5)
    assert not np.allclose(before[-1], changed)
    np.testing.assert_allclose(before[0], before[-1], rtol=1e-5, atol=1e-5)


def test_gradients_hooks_and_other_modules_are_not_passed_by():
    layer, x = layer_of(), torch.randn(2, 5, 16)
    with torch.no_grad():
        for _ in range(3):
            layer(x)
    made = layer(x)  # parameters require gradients
    assert made.grad_fn is not None
    made.sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    seen = []
    layer.linear1.register_forward_hook(lambda module, args, output: seen.append(output.shape))
    with torch.no_grad():
        layer(x)
        assert seen == [(2, 5, 32)]

        class Twice(nn.Linear):
            def forward(self, input):
                return 2 * super().forward(input)

        torch.manual_seed(1)
        layer = layer_of()
        layer.linear2 = Twice(32, 16)
        other = layer(x).numpy()
        layer.linear2.forward = lambda y: nn.functional.linear(y, layer.linear2.weight, layer.linear2.bias)
        assert not np.allclose(layer(x).numpy(), other)


def test_inference_mode_and_an_encoder_of_several_layers():
    encoder, x = nn.TransformerEncoder(layer_of(), 3), torch.randn(2, 5, 16)
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])
    encoder.eval()
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=padding).numpy()
    with torch.inference_mode():
        for _ in range(4):
            found = encoder(x, src_key_padding_mask=padding)
            assert found.is_inference()
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)
    assert np.all(expected[1, 3:] == 0)


def test_transforms_and_half_precision():
    layer, x = layer_of(), torch.randn(3, 2, 5, 16)
    layer.requires_grad_(False)
    expected = torch.stack([layer(part) for part in x]).numpy()
    for _ in range(3):
        np.testing.assert_allclose(torch.func.vmap(layer)(x).numpy(), expected, rtol=1e-5, atol=1e-5)
    layer, x = layer.to(torch.bfloat16), x[0].to(torch.bfloat16)
    with torch.no_grad():
        for _ in range(4):
            assert layer(x).dtype == torch.bfloat16
