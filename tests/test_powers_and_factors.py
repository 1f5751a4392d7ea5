"""Integer powers wrap like PyTorch's, whatever the exponent; a number scales a factor in the dtype of their product."""

from __future__ import annotations

import pytest
from ways import WAYS

import torchgrad_jax as tj

LARGE = [2**40 + 1, 2**62 + 3]

POWERS = {
    "number": (lambda: tj.tensor([3]) ** 70, [2293070008301402073]),
    "zero-dim": (lambda: tj.tensor(3) ** 70, 2293070008301402073),
    "signs": (lambda: tj.tensor([3, -3, 7, 2, 0, 1, -1]) ** 65,
              [7752514261426648835, -7752514261426648835, -5544873984239060473, 0, 0, 1, -1]),
    "sixty-four": (lambda: tj.tensor([3, -3, 7]) ** 64, [8733086111712066817, 8733086111712066817, 1843124298495784449]),
    "large number": (lambda: tj.tensor([3, 5]) ** LARGE[0], [-5135550532504518653, 4233502396984066053]),
    "large tensor": (lambda: tj.tensor([3, 5]) ** tj.tensor(LARGE), [-5135550532504518653, 125]),
    "number base": (lambda: 3 ** tj.tensor([70, 64, 65, -1]), [2293070008301402073, 8733086111712066817, 7752514261426648835, 0]),
    "negative": (lambda: tj.tensor([3, 1, -1, -1, 0]) ** tj.tensor([-1, -2, -3, -64, -1]), [0, 1, -1, 1, 0]),
    "written": (lambda: tj.tensor([3, 5]).pow_(70), [2293070008301402073, 8111363527490294793]),
    "written by tensor": (lambda: tj.tensor([3, 5]).pow_(tj.tensor([70, 71])), [2293070008301402073, 3663329490032370733]),
    "written narrow": (lambda: tj.tensor([3, 5], dtype=tj.int16).pow_(tj.tensor([70, 71])), [14297, -23507]),
    "uint8": (lambda: tj.tensor([3, 7, 2, 5], dtype=tj.uint8) ** 70, [217, 145, 0, 9]),
    "uint8 of tensors": (lambda: tj.pow(3, tj.tensor([200, 255], dtype=tj.uint8)), [161, 171]),
    "int8": (lambda: tj.tensor([3, 7, 2, 5], dtype=tj.int8) ** 70, [-39, -111, 0, 9]),
    "int16": (lambda: tj.tensor([3, 7], dtype=tj.int16) ** tj.tensor([200, 255]), [6627890308811632801, -7822555791084169801]),
    "int32": (lambda: tj.tensor([3, 7, 2, -5], dtype=tj.int32) ** tj.tensor([200, 255, 100, 65], dtype=tj.int32),
              [-1426542431, 616617399, 0, 1122854139]),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", POWERS)
def test_integer_powers_wrap(name, way):
    program, expected = POWERS[name]
    with WAYS[way]():
        assert program().tolist() == expected


def test_an_exponent_must_fit_the_dtype():
    with pytest.raises(RuntimeError, match="value cannot be converted to type uint8_t without overflow"):
        tj.tensor([3], dtype=tj.uint8) ** 257


def gradient(function, *factor, dtype=None, **options):
    x = tj.ones(3, requires_grad=True)
    function(tj.zeros(3), *[x if f is None else tj.tensor(f, dtype=dtype) for f in factor], **options).sum().backward()
    return x.grad.tolist()


def test_a_factor_of_addcmul_is_scaled_in_the_dtype_of_its_product():
    assert gradient(tj.addcmul, None, [1, 2, 3], value=0.5) == [0.5, 1.0, 1.5]
    assert gradient(tj.addcmul, [True, False, True], None, value=0.5) == [0.5, 0.0, 0.5]
    assert gradient(tj.addcmul, [1, 2, 3], None, value=-0.5, dtype=tj.uint8) == [-0.5, -1.0, -1.5]
    assert gradient(tj.addcdiv, [1, 2, 3], None, value=0.5) == [-0.5, -1.0, -1.5]
    z = tj.ones(2, dtype=tj.complex64, requires_grad=True)
    tj.addcmul(tj.zeros(2), z, tj.tensor([1.0, 2.0]), value=1j).sum().imag.backward()
    assert z.grad.tolist() == [1, 2]


def test_addcdiv_refuses_the_gradient_of_what_an_integer_divides():
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long"):
        gradient(tj.addcdiv, None, [1, 2, 3], value=0.5)


def test_a_factor_of_a_higher_category_is_refused():
    whole = tj.tensor([1, 2])
    for refused in (lambda: tj.rsub(whole, whole, alpha=0.5), lambda: tj.addr(tj.ones(2, 2).long(), whole, whole, alpha=0.5)):
        with pytest.raises(RuntimeError, match="For integral input tensors, argument alpha must not be a floating point number"):
            refused()
    with pytest.raises(RuntimeError, match="Boolean beta only supported for Boolean results"):
        tj.addr(tj.ones(2, 2), tj.ones(2), tj.ones(2), beta=True)


def test_index_add_scales_integers_by_the_whole_part():
    assert tj.zeros(3, dtype=tj.int64).index_add(0, tj.tensor([0, 1]), tj.tensor([1, 2]), alpha=2.5).tolist() == [2, 4, 0]
