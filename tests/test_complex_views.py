"""real, imag, view_as_real and view_as_complex are views: writes go through, and the graph follows them."""

import math

import pytest

from tests.side_by_side import like_pytorch
from tests.ways import WAYS

torch = pytest.importorskip("torch")


@like_pytorch
def test_parts_are_written_through(m):
    x = m.tensor([1 + 2j, 3 - 1j])
    y = x.real
    y.mul_(2)
    v = m.view_as_real(x)
    v[0, 1] = 9
    x.mul_(2)
    return x, y, y._version, x._version, y._is_view(), y.storage_offset(), list(y.stride()), v, v._base is x


@like_pytorch
def test_pairs_are_complex_numbers(m):
    x = m.ones(3, 2, requires_grad=True)
    z = x * 1
    v = m.view_as_complex(z)
    v.mul_(2j)
    z.sum().backward()
    plain = m.ones(3, 2)
    w = m.view_as_complex(plain)
    w[1] = 5j
    return z, x.grad, v.grad_fn.name(), z.grad_fn.name(), v._version, plain, list(w.stride()), w._base is plain, plain._version


@like_pytorch
def test_the_graph_goes_through_parts(m):
    x = m.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    z = x * 1
    z.imag.mul_(3)
    names = [t.grad_fn.name() for t in (z.real, z.imag, z, m.real(x), m.imag(x), m.view_as_real(x))]
    (z.real * z.imag).sum().backward()
    return x.grad, names, x.conj().imag.is_neg(), x.conj().real.is_neg(), x.detach().conj().imag.resolve_neg()


@pytest.mark.parametrize("way", WAYS)
def test_cumulative_sums_of_complex_exponentials_at_infinities(way):
    parts = [math.inf, -math.inf, math.nan, 0.0]
    lists = [[complex(a, b), 1 + 1j, complex(-1, 2)] for a in parts for b in (*parts[:3], 1.0)]
    with WAYS[way]():
        like_pytorch(lambda m: [m.logcumsumexp(m.tensor(numbers, dtype=m.complex128), 0) for numbers in lists])()
