"""`erfcx` and `log_ndtr` of float32, interpreted and by XLA, against SciPy in double precision."""

import numpy as np
import pytest
from scipy import special as scipy
from side_by_side import like_pytorch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators

ENDS = [float("-inf"), -1e30, -1.0, -0.0, 0.0, 1.0, 1e30, float("inf"), float("nan")]


@pytest.mark.parametrize("name", ["erfcx", "log_ndtr"])
@pytest.mark.parametrize("interpreted", [True, False])
def test_float32_is_right_to_its_last_place(name, interpreted):
    x = np.concatenate([np.linspace(-12, 12, 3001), np.logspace(-20, 8, 200)]).astype(np.float32)
    exact = getattr(scipy, name)(x.astype(np.float64))
    with tj.runtime.baseline_tier(interpreted):
        found = getattr(tj.special, name)(tj.tensor(x) * 1).numpy().astype(np.float64)
    normal = (abs(exact) > 1e-37) & (abs(exact) < 3e38)
    unit = np.spacing(abs(exact[normal]).astype(np.float32))
    assert np.max(abs(found - exact)[normal] / unit) < 0.6


@pytest.mark.parametrize("name", ["erfcx", "log_ndtr"])
def test_ends(name):
    like_pytorch(lambda m: [getattr(m.special, name)(m.tensor(ENDS)), getattr(m.special, name)(m.tensor(ENDS, dtype=m.float64))])()
