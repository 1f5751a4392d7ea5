"""Names beside the documented ones that published code imports or calls."""

from __future__ import annotations

import typing
import warnings

import pytest

import torchgrad_jax as tj
from torchgrad_jax import distributed
from torchgrad_jax.nn import _reduction, common_types
from torchgrad_jax.nn import functional as F
from torchgrad_jax.nn.modules.module import _addindent

try:
    import torch
except ImportError:
    torch = None


def shown(kind):
    """A type as it is printed, whichever library's tensors are in it."""
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind).replace(f"{tj.core.tensor.__name__}.", "torch.")


@pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
def test_types_of_sizes_are_those_of_pytorch():
    names = [n for n in dir(torch.nn.common_types) if n.endswith("_t")]
    assert "_size_2_t" in names
    for name in names:
        mine, other = (set(map(shown, typing.get_args(getattr(m, name)))) for m in (common_types, torch.nn.common_types))
        assert mine == other and len(mine) > 1, name
    assert typing.get_args(common_types._size_2_t) == (int, tuple[int, int])


def test_words_for_reductions():
    assert [_reduction.get_enum(word) for word in ("none", "mean", "sum")] == [0, 1, 2] and F._Reduction is _reduction
    with pytest.raises(ValueError, match="x is not a valid value for reduction"):
        _reduction.get_enum("x")
    with pytest.warns(UserWarning, match="reduction='elementwise_mean' is deprecated"):
        assert _reduction.get_enum("elementwise_mean") == 1
    expected = {(None, None): "mean", (True, False): "none", (False, True): "sum", (False, False): "none", (None, True): "mean", (False, None): "sum"}
    for given, word in expected.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert _reduction.legacy_get_string(*given, emit_warning=False) == word
        with pytest.warns(UserWarning, match=f"please use reduction='{word}' instead"):
            assert _reduction.legacy_get_string(*given) == word
    assert _reduction.legacy_get_enum(False, True, False) == 2


def test_lines_of_a_module_in_a_module():
    assert _addindent("a\nb\n\nc", 2) == "a\n  b\n  \n  c"
    assert repr(tj.nn.Sequential(tj.nn.Sequential(tj.nn.ReLU()))) == "Sequential(\n  (0): Sequential(\n    (0): ReLU()\n  )\n)"


def test_what_processes_would_do_together_says_that_there_is_no_group():
    def total(x, op=distributed.ReduceOp.SUM, group=distributed.group.WORLD):
        distributed.all_reduce(x, op=op, group=group)

    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        total(tj.ones(2))
    assert not distributed.is_initialized() and distributed.GroupMember.WORLD is None
    assert distributed.ReduceOp.RedOpType.MAX is distributed.ReduceOp.MAX is not distributed.ReduceOp.MIN
    assert distributed.Backend("NCCL") == distributed.Backend.NCCL == "nccl"
    with pytest.raises(ValueError, match="string-ish"):
        distributed.Backend(3)
