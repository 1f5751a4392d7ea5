"""Bessel's and Airy's functions and orthogonal polynomials, against SciPy for exactness and PyTorch for everything else."""

import math

import numpy as np
import pytest
from scipy import special as scipy
from side_by_side import like_pytorch

import torchgrad_jax as tj
from torchgrad_jax.runtime import baseline_tier

pytestmark = pytest.mark.operators

BESSEL = {
    "bessel_j0": scipy.j0, "bessel_j1": scipy.j1, "bessel_y0": scipy.y0, "bessel_y1": scipy.y1, "airy_ai": lambda x: scipy.airy(x)[0],
    "modified_bessel_i0": scipy.i0, "modified_bessel_i1": scipy.i1, "modified_bessel_k0": scipy.k0, "modified_bessel_k1": scipy.k1,
    "scaled_modified_bessel_k0": scipy.k0e, "scaled_modified_bessel_k1": scipy.k1e, "spherical_bessel_j0": lambda x: scipy.spherical_jn(0, x),
}  # fmt: skip
ONE_SIDED = ("_y", "_k")
KINDS = ["chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "hermite_polynomial_h",
         "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]  # fmt: skip
POLYNOMIALS = [*KINDS, *(f"shifted_{name}" for name in KINDS if name.startswith("chebyshev"))]
SIZES = np.concatenate([np.linspace(0.01, 25, 150), np.logspace(-9, 2, 30)])


@pytest.mark.parametrize("name", BESSEL)
def test_double_precision(name):
    x = SIZES if any(part in name for part in ONE_SIDED) else np.concatenate([SIZES, -SIZES])
    found, wanted = getattr(tj.special, name)(tj.tensor(x)).numpy(), BESSEL[name](x)
    assert np.all(abs(found - wanted) <= 4e-15 + 1e-13 * abs(wanted)), x[np.argmax(abs(found - wanted))]


@pytest.mark.parametrize("name", BESSEL)
def test_ends_and_dtypes(name):
    def program(m):
        function, ends = getattr(m.special, name), m.tensor([float("-inf"), -1.0, 0.0, 1e-30, 1.0, 3.0, float("inf"), float("nan")])
        return [function(ends), function(ends.double()), function(m.tensor([1, 2])), function(m.tensor([True])), function(m.zeros(0)),
                function(m.ones(2, requires_grad=True)), function(m.ones(1), out=m.empty(1, dtype=m.float64))]  # fmt: skip

    like_pytorch(program)()
    for kind in ("float16", "bfloat16", "complex64"):
        like_pytorch(lambda m, kind=kind: getattr(m.special, name)(m.ones(1, dtype=getattr(m, kind))))()


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name):
    def program(m):
        function = getattr(m.special, name)
        x = m.tensor([-2.5, -1, -0.5, 0.3, 0.9, 1, 1.5], dtype=m.float64)
        orders = m.tensor([-1.0, 0, 1, 2, 5, 6, 7, 8, 9, 20, 2.7])
        return [function(x[:, None], orders), function(0.5, m.arange(4)), function(x, 3), function(x[:3].float(), 3),
                function(m.arange(3), m.arange(3)),
                function(m.zeros(0), 2), function(m.tensor([float("inf"), 0.5]), m.tensor([2.0, float("nan")])),
                function(x.requires_grad_(), 2)]  # fmt: skip

    like_pytorch(program)()
    for arguments in ("0.5, 3", "x, '3'", "x", "x.half(), 2", "x.cfloat(), 2"):
        like_pytorch(lambda m, a=arguments: eval(f"f({a})", {"f": getattr(m.special, name), "x": m.ones(2)}))()


def test_long_recurrences_follow_the_angle():
    n, x = np.arange(200.0), 0.3
    found = tj.special.chebyshev_polynomial_t(x, tj.tensor(n)).numpy()
    np.testing.assert_allclose(found, np.cos(n * np.arccos(x)), atol=1e-12)
    np.testing.assert_allclose(tj.special.legendre_polynomial_p(x, tj.tensor(n)).numpy(), scipy.eval_legendre(n, x), atol=1e-12)


@pytest.mark.parametrize("interpreted", [True, False])
@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_polygamma_left_of_zero(n, interpreted):
    """XLA's zeta, which it is made of, is not exact there: held against the recurrence from the right of it."""
    x, steps = np.array([-0.5, -0.99, -1.01, -3.5, -8.4784, -11.75, -40.25]), 50
    wanted = scipy.polygamma(n, x + steps) - sum((-1) ** n * math.factorial(n) / (x + k) ** (n + 1) for k in range(steps))
    with baseline_tier(interpreted):
        np.testing.assert_allclose(tj.special.polygamma(n, tj.tensor(x)).numpy(), wanted, rtol=1e-11, atol=1e-10)
        assert tj.special.polygamma(n, tj.tensor([-1.0, -2.0])).isinf().all()
