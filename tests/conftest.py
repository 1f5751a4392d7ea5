"""What all tests may use."""

from __future__ import annotations

import jax
import pytest


@pytest.fixture(scope="module")
def jax_in_64_bits():
    """Plain JAX with 64-bit types, for tests that hold ours against it: importing torchgrad_jax leaves the user's setting as it is."""
    with jax.enable_x64(True):
        yield
