"""Special functions that the interpreter has in C (`operators/kernels/whole.py`, `by_c`): against SciPy, what they say for XLA, and PyTorch."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import special as scipys

import torchgrad_jax as tj
from torchgrad_jax.operators.special_functions import chebyshev
from torchgrad_jax.runtime import baseline_tier
from torchgrad_jax.runtime.baseline import blocks
from torchgrad_jax.runtime.baseline import special as rules

pytestmark = pytest.mark.operators

# Where XLA computes everything.
LOOSE = os.environ.get("TORCHGRAD_JAX_EXECUTION") == "eager"
DTYPES = [np.float32, np.float64]
KINDS = ["chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "hermite_polynomial_h",
         "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]  # fmt: skip
POLYNOMIALS = [*KINDS, *(f"shifted_{name}" for name in KINDS if name.startswith("chebyshev"))]
POSITIVE = np.concatenate([np.linspace(0.01, 30, 701), np.logspace(-9, 2, 40)])
BOTH = np.concatenate([POSITIVE, -POSITIVE])
ENDS = [-np.inf, -100.0, -2.5, -1.0, -0.5, -0.0, 0.0, 1e-30, 1e-8, 0.3, 1.0, 2.0, 3.0, 8.0, 30.0, 710.0, np.inf, np.nan]
# Of one number: SciPy's, and of which numbers.
OF_ONE = {
    "bessel_j0": (scipys.j0, BOTH), "bessel_j1": (scipys.j1, BOTH), "bessel_y0": (scipys.y0, POSITIVE), "bessel_y1": (scipys.y1, POSITIVE),
    "modified_bessel_i0": (scipys.i0, BOTH), "modified_bessel_i1": (scipys.i1, BOTH), "modified_bessel_k0": (scipys.k0, POSITIVE),
    "modified_bessel_k1": (scipys.k1, POSITIVE), "scaled_modified_bessel_k0": (scipys.k0e, POSITIVE),
    "scaled_modified_bessel_k1": (scipys.k1e, POSITIVE), "airy_ai": (lambda x: scipys.airy(x)[0], BOTH),
    "spherical_bessel_j0": (lambda x: scipys.spherical_jn(0, x), BOTH), "i0": (scipys.i0, BOTH), "i0e": (scipys.i0e, BOTH),
    "i1": (scipys.i1, BOTH), "i1e": (scipys.i1e, BOTH), "entr": (scipys.entr, POSITIVE), "erfcx": (scipys.erfcx, np.maximum(BOTH, -25)),
    "log_ndtr": (scipys.log_ndtr, BOTH), "ndtri": (scipys.ndtri, np.linspace(1e-4, 0.9999, 999)), "digamma": (scipys.psi, POSITIVE),
}  # fmt: skip
OPERATORS = {
    **{name: lambda m, x, y, name=name: getattr(m.special, name)(x) for name in OF_ONE},
    **{f"polygamma {n}": lambda m, x, y, n=n: m.special.polygamma(n, x) for n in (1, 2, 3, 20, 21)},
    **{name: lambda m, x, y, name=name: getattr(m.special, name)(x, y) for name in (*POLYNOMIALS, "zeta")},
    "igamma": lambda m, x, y: m.igamma(x, y), "igammac": lambda m, x, y: m.igammac(x, y),
}  # fmt: skip


def compare(found, wanted, dtype, rtol=None):
    """To some units of the last place of what is large, as near 0 the functions of waves lose what their arguments have lost."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == dtype and found.shape == wanted.shape
    rtol = rtol or (1e-12 if dtype == np.float64 else 2e-6)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found, wanted.astype(dtype), rtol=rtol, atol=rtol / 10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OF_ONE)
def test_functions_of_one_number_are_scipys(name, dtype):
    """Of few, and of many, which threads share."""
    wanted, x = OF_ONE[name]
    if LOOSE and name == "digamma":
        pytest.skip("XLA's is less exact")
    x = x.astype(dtype)
    with np.errstate(all="ignore"):
        expected = wanted(x.astype(np.float64)).astype(dtype)
    for times in (1, 8):
        found = OPERATORS[name](tj, tj.from_numpy(np.tile(x, times)), None).numpy()
        kept = np.isfinite(np.tile(expected, times))
        compare(found[kept], np.tile(expected, times)[kept], dtype)


@pytest.mark.skipif(LOOSE, reason="XLA's is less exact")
@pytest.mark.parametrize("dtype", DTYPES)
def test_incomplete_gamma_functions_are_scipys(dtype):
    rng = np.random.default_rng(0)
    pairs = [(rng.random(3000) * size, rng.random(3000) * size) for size in (2, 8, 100, 1000)]
    pairs += [(10 ** rng.uniform(-8, 0.3, 3000), 10 ** rng.uniform(-8, 1, 3000)), (10 ** rng.uniform(-3, 4, 3000), 10 ** rng.uniform(-3, 4, 3000))]
    large = 10 ** rng.uniform(1, 4, 3000)
    pairs.append((large, large + 2 * np.sqrt(large) * rng.standard_normal(3000)))
    for a, x in [(a.astype(dtype), x.astype(dtype)) for a, x in pairs]:
        for ours, wanted in ((tj.igamma, scipys.gammainc), (tj.igammac, scipys.gammaincc)):
            compare(ours(tj.from_numpy(a), tj.from_numpy(x)).numpy(), wanted(a.astype(np.float64), x.astype(np.float64)), dtype)


@pytest.mark.skipif(LOOSE or not blocks.by_numbers, reason="XLA's is less exact")
@pytest.mark.parametrize("dtype", DTYPES)
def test_zeta_is_scipys(dtype):
    rng = np.random.default_rng(0)
    x, q = (1.01 + rng.random(999) * 20).astype(dtype), (0.01 + rng.random(999) * 50).astype(dtype)
    wide = x.astype(np.float64), q.astype(np.float64)
    compare(tj.special.zeta(tj.from_numpy(x), tj.from_numpy(q)).numpy(), scipys.zeta(*wide), dtype)
    for n in (2, 3, 8):
        compare(tj.special.polygamma(n, tj.from_numpy(q)).numpy(), scipys.polygamma(n, wide[1]), dtype)


def moved(quantile, at):
    """How fast a quantile moves with its parameter, by differences of four of them."""
    step = 1e-3
    near, far = [quantile(at * np.exp(h)) - quantile(at * np.exp(-h)) for h in (step, 2 * step)]
    return (8 * near - far) / (12 * step) / at


@pytest.mark.parametrize("dtype", DTYPES)
def test_gamma_samples_move_as_their_quantiles_do(dtype):
    rng = np.random.default_rng(0)
    a = 10 ** rng.uniform(-1.3, 3.5, 2000)
    x = rng.gamma(a)
    a, x = a[x > 1e-12], x[x > 1e-12]
    u = scipys.gammainc(a, x)
    assert_moved(
        lambda a: scipys.gammaincinv(a, u), a, x, u, dtype, lambda: tj._standard_gamma_grad(*map(tj.from_numpy, (a.astype(dtype), x.astype(dtype))))
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_beta_samples_move_as_their_quantiles_do(dtype):
    rng = np.random.default_rng(0)
    a, b = 10 ** rng.uniform(-1, 2, (2, 2000))
    x = rng.beta(a, b)
    inside = (x > 1e-9) & (x < 0.999)
    a, b, x = a[inside], b[inside], x[inside]
    v = scipys.betainc(a, b, x)
    operands = [tj.from_numpy(o.astype(dtype)) for o in (x, a, a + b)]
    assert_moved(lambda a: scipys.betaincinv(a, b, v), a, x, v, dtype, lambda: tj._dirichlet_grad(*operands) * (1 - operands[0]))


def assert_moved(quantile, a, x, share, dtype, call):
    """Where the share tells the sample to most of its digits."""
    wanted, found = moved(quantile, a), call().numpy()
    inside = (share > 1e-4) & (share < 1 - 1e-4)
    assert found.dtype == dtype and inside.sum() > 1000
    np.testing.assert_allclose(found[inside], wanted[inside], rtol=1e-6 if dtype == np.float64 else 1e-3)
    with baseline_tier(False):
        np.testing.assert_allclose(call().numpy(), found, rtol=1e-10 if dtype == np.float64 else 1e-6)


def test_samples_at_the_ends():
    a, x = [tj.tensor(v, dtype=tj.float64) for v in ([2.0, 0, -1, 2, 2, np.nan], [0.0, 1, 1, -1, np.nan, 1])]
    np.testing.assert_array_equal(tj._standard_gamma_grad(a, x).numpy(), [0, *[np.nan] * 5])
    beta = tj._dirichlet_grad(tj.tensor([0.0, 1, 0.5]), tj.tensor([0.5, 0.5, np.nan]), tj.tensor(1.5)).numpy()
    np.testing.assert_allclose(beta, [0, 2, np.nan], rtol=1e-6)  # psi(1.5) - psi(0.5)


def test_every_rule_is_an_operators():
    names = {name.removeprefix("polygamma") for name in rules._WHOLE}
    assert names == {*OF_ONE, "trigamma", "zeta", "igamma", "igammac", "gamma_sample", "beta_sample", *POLYNOMIALS, *map(str, range(2, 21))}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_ends_are_what_is_said(name, dtype):
    """In the interpreter and compiled: where there is no value, and where it is infinite. PyTorch's, too, but for Airy's of huge numbers, and for
    trigamma, whose poles it has not."""
    if LOOSE and name == "zeta":
        pytest.skip("XLA's is less exact")
    x = np.array(ENDS, dtype)
    if name not in OF_ONE and not name.startswith("polygamma"):
        some = x[abs(x) != 710] if name == "zeta" else x
        x, y = np.repeat(some, some.size), np.tile(some, some.size)
    else:
        y = x
    ours = tj.from_numpy(x), tj.from_numpy(y)
    found = OPERATORS[name](tj, *ours).numpy()
    with baseline_tier(False):
        said = OPERATORS[name](tj, *ours).numpy()
    if name == "zeta":  # XLA's is NaN
        said = np.where(np.isinf(x) & (y < 0), found, said)
    if name.startswith("igamma") and dtype == np.float32:  # XLA's loses what is small
        said = np.where(abs(said) < 1e-4, found, said)
    loose = 1e-3 if dtype == np.float32 else 2e-9
    kept = np.ones(x.shape, bool)
    if name.startswith("polygamma") and name != "polygamma 1":  # XLA's zeta has no values there
        kept = x > 0
    compare(found[kept], said[kept], dtype, loose)
    torch = pytest.importorskip("torch")
    if name != "polygamma 1":
        theirs = OPERATORS[name](torch, torch.from_numpy(x), torch.from_numpy(y)).numpy()
        compare(found[kept], theirs[kept], dtype, 1e-3 if dtype == np.float32 else 1e-5)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_numbers_layouts_and_mapped_orders(name):
    function, x = getattr(tj.special, name), tj.linspace(-1.3, 1.3, 24, dtype=tj.float64).reshape(4, 6)
    n = tj.arange(6, dtype=tj.float64)
    whole = function(x, n.expand(4, 6).contiguous()).numpy()
    for found in (function(x, n), function(x.T.contiguous().T, n), tj.vmap(function, in_dims=(1, 0), out_dims=1)(x, n),
                  tj.stack([function(x[:, i], i) for i in range(6)], 1), tj.vmap(function, in_dims=(0, None))(x, n)):  # fmt: skip
        np.testing.assert_allclose(found.numpy(), whole, rtol=1e-12, atol=1e-13)
    assert function(0.5, tj.tensor(3)).shape == () and function(tj.tensor(0.5), tj.arange(4)).shape == (4,)


@pytest.mark.parametrize("name", ["i0", "i0e", "i1", "i1e", "entr", "erfcx", "log_ndtr", "ndtri", "digamma", "polygamma 1", "polygamma 2", "igamma",
                                  "igammac", "zeta"])  # fmt: skip
def test_derivatives(name):
    torch = pytest.importorskip("torch")
    x = np.linspace(0.05, 0.95, 40) + (0 if name == "ndtri" else 1)

    def program(m):
        y = m.from_numpy(x).requires_grad_()
        function = OPERATORS[name]
        second = name in ("igamma", "igammac", "zeta")
        (function(m, m.from_numpy(x), y) if second else function(m, y, None)).sum().backward()
        return y.grad.numpy()

    np.testing.assert_allclose(program(tj), program(torch), rtol=1e-8)


def test_forward_derivatives_are_those_of_what_is_said():
    for function, slope in ((tj.special.i0, scipys.i1), (tj.special.digamma, lambda x: scipys.polygamma(1, x))):
        _, found = tj.func.jvp(function, (tj.tensor([0.5, 2.0], dtype=tj.float64),), (tj.ones(2, dtype=tj.float64),))
        np.testing.assert_allclose(found.numpy(), slope(np.array([0.5, 2.0])), rtol=1e-12)


def test_series_in_c_are_pythons():
    """There is one more copy of their coefficients there."""
    text = Path(rules.__file__).parents[1].joinpath("native", "bessel.h").read_text()
    of_c = {name: [float(c) for c in numbers.split(",")] for name, numbers in re.findall(r"static const double TJ_(\w+)\[\] = \{([^/}]*?)\};", text)}
    for name, coefficients in vars(chebyshev).items():
        if name.isupper():
            assert of_c[name] == list(coefficients), name
