"""The C library keeps the memory that a program works in, however much that is, for the program's next run."""

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.runtime import baseline_tier, execution_mode
from torchgrad_jax.runtime.compiling import freed_memory

MIB = 1 << 20


@pytest.fixture
def told(monkeypatch):
    """What the C library is told, which here is nothing; and that it was told nothing before."""
    found = {}
    monkeypatch.setattr(freed_memory, "_most_kept", 32 * MIB)
    monkeypatch.setattr(freed_memory, "_mallopt", lambda: lambda option, value: found.update({option: value}) or 1)
    return found


def test_what_the_library_keeps_by_itself_and_what_is_too_much_are_left_to_it(told):
    freed_memory.keep_for(32 * MIB)
    freed_memory.keep_for(1025 * MIB)
    assert told == {}


def test_more_is_kept_and_never_less(told):
    freed_memory.keep_for(40 * MIB)
    assert told == {-3: 45 * MIB, -1: 90 * MIB}  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD in malloc.h
    freed_memory.keep_for(44 * MIB)
    assert told[-3] == 45 * MIB
    freed_memory.keep_for(80 * MIB)
    assert told == {-3: 90 * MIB, -1: 180 * MIB}


def test_a_library_that_refuses_is_left_as_it_is(told, monkeypatch):
    monkeypatch.setattr(freed_memory, "_mallopt", lambda: lambda option, value: told.update({option: value}) or 0)
    freed_memory.keep_for(64 * MIB)
    assert set(told) == {-3}


def test_another_library_is_told_nothing(monkeypatch):
    monkeypatch.setattr(freed_memory, "_mallopt", lambda: None)
    freed_memory.keep_for(64 * MIB)


@pytest.mark.parametrize("donated", [False, True])
def test_programs_that_are_compiled_ask_for_what_they_take(donated, monkeypatch):
    asked = []
    monkeypatch.setattr(freed_memory, "keep_for", asked.append)
    rows = 2048 if donated else 128  # parameters of 16 MiB are given away, of 1 MiB not
    with execution_mode("fused"), baseline_tier(False):
        w = torch.full((rows, 2048), 0.01, requires_grad=True)
        x = torch.from_numpy(np.full((1024, rows), 0.5, np.float32))
        for _ in range(4):
            torch.tanh(x @ w).square().sum().backward()
            with torch.no_grad():
                w -= w.grad
            w.grad = None
            w.sum().item()
    assert max(asked) >= 8 * MIB  # the product's result
