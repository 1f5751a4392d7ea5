"""Notes of tensors that are kept from one call to the next."""

from __future__ import annotations

import gc

import pytest
from side_by_side import error_of, like_pytorch

import torchgrad_jax as tj


def noted(m, *steps):
    """What `_is_cached_tensor` says after each step."""
    c, x, found = m._C, m.ones(2), []
    c._set_cached_tensors_enabled(True)
    try:
        for step in steps:
            {"add": c._add_cached_tensor, "remove": c._remove_cached_tensor}[step](x)
            found.append(c._is_cached_tensor(x))
        return found, c._is_cached_tensor(x[:1]), c._is_cached_tensor(x.detach())
    finally:
        c._set_cached_tensors_enabled(False)


test_a_tensor_is_noted_once = like_pytorch(lambda m: noted(m, "add", "add", "remove", "remove", "add", "remove"))


@like_pytorch
def test_notes_outlast_a_pause(m):
    c, x = m._C, m.ones(2)
    c._set_cached_tensors_enabled(True)
    c._add_cached_tensor(x)
    c._set_cached_tensors_enabled(False)
    paused = c._is_cached_tensor(x)
    c._set_cached_tensors_enabled(True)
    resumed = c._is_cached_tensor(x)
    c._remove_cached_tensor(x)
    c._set_cached_tensors_enabled(False)
    return paused, resumed, error_of(lambda: c._is_cached_tensor(3)), error_of(lambda: c._add_cached_tensor(None))


@pytest.mark.parametrize("name", ["_add_cached_tensor", "_remove_cached_tensor"])
def test_nothing_is_noted_while_caching_is_off(name):
    with pytest.raises(RuntimeError, match="not enabled"):
        getattr(tj._C, name)(tj.ones(1))


def test_notes_do_not_keep_tensors_alive():
    from torchgrad_jax._C import _caching

    gc.disable()
    try:
        tj._C._set_cached_tensors_enabled(True)
        x = tj.ones(1)
        tj._C._add_cached_tensor(x)
        before = len(_caching._kept)
        del x
        assert len(_caching._kept) == before - 1
    finally:
        tj._C._set_cached_tensors_enabled(False)
        gc.enable()
