"""Special functions by C, in compiled modules (`special.pxd`). Here there are none."""

from __future__ import annotations

from typing import Any

# Which function it is.
(
    LOG_GAMMA, DIGAMMA, TRIGAMMA, ERFC, ERF_INVERSE, ERF, ENTROPY, ERFCX, LOG_NDTR, NDTRI, I0, I0E, I1, I1E, J0, J1, Y0, Y1, MODIFIED_I0,
    MODIFIED_I1, K0, K1, SCALED_K0, SCALED_K1, AIRY, SPHERICAL,
) = range(26)  # fmt: skip
# Of two numbers: of an order for one, from 2 to `MOST_DERIVED` of the derivatives.
ZETA, POLYGAMMA, IGAMMA, IGAMMAC, GAMMA_SAMPLE = range(26, 31)
# Of three.
BETA_SAMPLE = 31
POLYNOMIALS = {
    name: 32 + number
    for number, name in enumerate((
        "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "hermite_polynomial_h",
        "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p", "shifted_chebyshev_polynomial_t",
        "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w",
    ))
}  # fmt: skip
MOST_DERIVED = 20


def compute(x: Any, y: Any, z: Any, out: Any, which: int) -> bool:
    """Write a function of each element, or of those of two or three arrays, into `out`. All contiguous, of one dtype, float32 or float64; some of
    several may be one number. y: None for a function of one number, z: for one of two. Returns whether there is such a function."""
    return False
