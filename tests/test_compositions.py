"""Functions of the library's own that become one operation where no graph follows: the same numbers, errors and warnings as in full."""

from __future__ import annotations

import math

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.lifting import compositions
from torchgrad_jax.runtime import baseline_tier, execution_mode
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.recorder import recorder

F = torch.nn.functional
pytestmark = pytest.mark.operators


@pytest.fixture(autouse=True)
def fused():
    with execution_mode("fused"), baseline_tier(True):
        yield


def module(**options):
    torch.manual_seed(0)
    return torch.nn.MultiheadAttention(12, 3, **options).eval()


def recorded(call):
    """What a call gives, and how many operations it records."""
    recorder().flush("mode")
    before, made = counters.recorded, call()
    for t in made:
        if t is not None:
            t.tolist()
    return made, counters.recorded - before


def same(one, other):
    for a, b in zip(one, other, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a.numpy(), b.numpy())
            assert (a.shape, a.stride(), a.dtype, a.requires_grad, a.is_leaf) == (b.shape, b.stride(), b.dtype, b.requires_grad, b.is_leaf)


CALLS = {
    "itself": lambda m, x, y: m(x, x, x, need_weights=False),
    "another": lambda m, x, y: m(x, y, y, need_weights=False),
    "three": lambda m, x, y: m(x, y, y * 1.0, need_weights=False),
    "weights": lambda m, x, y: m(x, y, y),
    "of each head": lambda m, x, y: m(x, y, y, average_attn_weights=False),
    "a mask": lambda m, x, y: m(x, x, x, attn_mask=torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).triu(1), need_weights=False),
    "added": lambda m, x, y: m(x, x, x, attn_mask=torch.full((x.shape[-2],) * 2, -math.inf).triu(1), is_causal=True, need_weights=False),
    "padding": lambda m, x, y: m(x, y, y, key_padding_mask=torch.arange(y.shape[1])[None] >= torch.tensor([[4], [2]])),
    "one sample": lambda m, x, y: m(x[0], y[0], y[0]),
}


@pytest.mark.parametrize("name", CALLS)
def test_later_calls_give_what_the_first_gives(name):
    net, call = module(batch_first=True), CALLS[name]
    torch.manual_seed(1)
    given = [(torch.randn(2, 5, 12), torch.randn(2, 4, 12)) for _ in range(4)]
    with torch.no_grad():
        firsts = []
        for x, y in given:  # each by a function that has met nothing
            firsts.append([t if t is None else t.clone() for t in _in_full(lambda: call(net, x, y))])  # noqa: B023 - called at once
        counts = []
        for (x, y), first in zip(given, firsts, strict=True):
            made, count = recorded(lambda: call(net, x, y))  # noqa: B023 - called at once
            same(made, first)
            counts.append(count)
    assert counts[-1] == counts[-2] < counts[0] / 2


def _in_full(call):
    """What a call gives where it is watched, as by anomaly mode, so that nothing takes a short way."""
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        return call()


def test_which_are_one_tensor_matters():
    net, x = module(), torch.randn(3, 1, 12)
    with torch.no_grad():
        for _ in range(4):
            (one, _), (other, _) = net(x, x, x), net(x, x.clone(), x.clone())
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-6)


def test_what_is_drawn_is_drawn_in_each_call():
    net, x = module(dropout=0.5).train(), torch.ones(3, 1, 12)
    with torch.no_grad():
        torch.manual_seed(3)
        found = [net(x, x, x)[0].tolist() for _ in range(5)]
        torch.manual_seed(3)
        again = [_in_full(lambda: net(x, x, x))[0].tolist() for _ in range(5)]
    assert found == again and found[3] != found[4]


def test_a_graph_is_recorded_where_one_follows():
    net, x = module(), torch.randn(3, 1, 12)
    with torch.no_grad():
        for _ in range(3):
            net(x, x, x)
    made, _ = net(x, x, x)
    made.sum().backward()
    assert net.in_proj_weight.grad.abs().sum() > 0 and made.grad_fn.name() == "ViewBackward0"


def test_a_result_is_its_own():
    net, x = module(), torch.randn(3, 1, 12)
    with torch.no_grad():
        for _ in range(4):
            one, other = net(x, x, x)[0], net(x, x, x)[0]
            expected = other.tolist()
            one.zero_()
            assert other.tolist() == expected and (x.abs().sum() > 0)


def test_weights_that_were_changed_are_seen():
    net, x = module(), torch.randn(3, 1, 12)
    with torch.no_grad():
        for _ in range(3):
            before = net(x, x, x)[0]
        net.out_proj.weight.mul_(2.0)
        net.out_proj.bias.mul_(2.0)
        np.testing.assert_allclose(net(x, x, x)[0].numpy(), 2 * before.numpy(), rtol=1e-5)


def test_errors_and_warnings_are_told_each_time():
    net, x = module(), torch.randn(3, 1, 12)
    with torch.no_grad():
        for _ in range(3):
            net(x, x, x)
        for _ in range(3):
            with pytest.raises(AssertionError, match="was expecting embedding dimension of 12, but got 6"):
                net(x[..., :6], x[..., :6], x[..., :6])
            with pytest.warns(UserWarning, match="mismatched key_padding_mask and attn_mask"):
                net(x, x, x, key_padding_mask=torch.zeros(1, 3, dtype=torch.bool), attn_mask=torch.zeros(3, 3))


def test_another_function_in_a_public_place_is_called(monkeypatch):
    net, x, called = module(), torch.randn(3, 1, 12), []
    with torch.no_grad():
        for _ in range(3):
            net(x, x, x)
        monkeypatch.setattr(F, "multi_head_attention_forward", lambda *args, **options: called.append(1) or (args[0], None))
        assert net(x, x, x)[0] is x and called == [1]


def test_no_more_are_kept_than_so_many(monkeypatch):
    monkeypatch.setattr(compositions, "MOST_KEPT", 4)
    net = module()
    with torch.no_grad():
        for _ in range(3):
            for length in range(1, 8):
                x = torch.ones(length, 1, 12)
                assert net(x, x, x)[0].shape == (length, 1, 12)


def test_what_is_no_plain_argument_is_done_in_full():
    doubled = compositions.composition(lambda x, how: how(x) + x.sum())
    x = torch.arange(3.0)
    with torch.no_grad():
        assert [doubled(x, how).tolist() for how in (torch.neg, torch.exp2, torch.neg)] == [[3, 2, 1], [4, 5, 7], [3, 2, 1]]
