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


# What memory shows by other strides, in elements of the tensor that it is asked of.
STRIDED = {
    "conj": "z.conj().as_strided((2, 2), (2, 1), 1)", "pairs": "m.view_as_real(z).as_strided((3, 2), (3, 2), 1)",
    "imag": "z.imag.as_strided((4,), (2,), 3)", "part": "m.view_as_real(z[1:])[1].as_strided((3,), (2,))",
    "conj_part": "z[2:].conj().as_strided((2,), (2,), 0)", "complex": "m.view_as_complex(r[2:6].view(2, 2)).as_strided((3,), (1,), 0)",
    "real": "z.real.as_strided((3,), (1,))",
}  # fmt: skip


WITHIN = ("conj", "pairs", "imag")  # what they are asked of; of what is beyond it, PyTorch's gradient after a write is 0
WRITES = ["", "v.mul_(2)", "z.mul_(w); r.mul_(2)", "v.mul_(w.abs())", "v[0].fill_(3); z.mul_(2)", "v.detach().mul_(3)"]


@pytest.mark.parametrize("name", STRIDED)
@pytest.mark.parametrize("write", WRITES)
def test_memory_by_strides_is_what_the_tensor_shows(name, write):
    requires_grad = name in WITHIN or not write

    @like_pytorch
    def check(m):
        x = m.tensor([1 + 2j, 3 - 1j, 0.5j, -2 + 1j, 4 - 3j], requires_grad=requires_grad)
        z, r = x * 1, m.view_as_real(x).reshape(-1)[1:10] * 1
        w = m.tensor(2 - 1j, requires_grad=requires_grad)
        names = {"m": m, "z": z, "r": r, "w": w}
        v = eval(STRIDED[name], names)
        exec(write, names | {"v": v})
        if requires_grad and write != "v.detach().mul_(3)":
            (v * v).abs().sum().backward()
        return v, z, r, x.grad, w.grad, v.is_conj(), v.stride(), v.storage_offset(), v._version, z._version, v._is_view()

    check()
