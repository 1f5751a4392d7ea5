"""Products of float32 by the processor's tiles of bfloat16, three for each number: to float32's precision, whatever the numbers are."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.runtime.baseline.carrying import Added, Product
from torchgrad_jax.runtime.native import blas, handlers
from torchgrad_jax.runtime.native.handlers import added, multiplied

pytestmark = [
    pytest.mark.operators,
    pytest.mark.skipif(not (blas.multiplies() and handlers.by_thirds()), reason="the core in pure Python, or a processor without such tiles"),
]
ROUNDING = 2.0**-24


def numbers(shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype("f")


def plainly(multiply, *arguments):
    """What a product is without thirds."""
    blas.multiply_by(handlers.vector_bits())
    try:
        return multiply(*arguments)
    finally:
        blas.multiply_by(handlers.vector_bits(), True)


def errors(found, x, y):
    """In roundings of the sum of the products' sizes, as a sum's bound is."""
    x, y = x.astype("d"), y.astype("d")
    return np.abs(found - x @ y) / (np.abs(x) @ np.abs(y)) / ROUNDING


@st.composite
def operands(draw):
    m, n, k = draw(st.integers(100, 300)), draw(st.integers(100, 300)), draw(st.integers(32, 600))
    left, right = draw(st.booleans()), draw(st.booleans())
    more = draw(st.integers(0, 3))  # elements between rows
    x, y = numbers((k, m + more) if left else (m, k + more)), numbers((n, k + more) if right else (k, n + more), 1)
    return x[:, : m if left else k], y[:, : k if right else n], left, right


@settings(max_examples=60, deadline=None)
@given(operands())
def test_of_any_layout(given):
    x, y, left, right = given
    found = multiplied(x, y, left, right)
    x, y = x.T if left else x, y.T if right else y
    assert errors(found, x, y).max() < 4
    bias, rest = numbers(found.shape[1], 2), numbers(found.shape, 3)
    assert (multiplied(given[0], given[1], left, right, bias, rest) == found + bias + rest).all()
    if x.shape[1] <= 256:
        onto = rest.copy()
        assert added(given[0], given[1], left, right, onto) is onto
        assert (onto == rest + found).all()


@pytest.mark.parametrize("terms", [32, 100, 256, 1000])
def test_as_precise_as_float32(terms):
    x, y = numbers((128, terms)), numbers((terms, 128), 1)
    found, plain = errors(multiplied(x, y, False, False), x, y), errors(plainly(multiplied, x, y, False, False), x, y)
    assert (found**2).mean() <= (plain**2).mean()
    assert (multiplied(x, y, False, False) != plainly(multiplied, x, y, False, False)).any()  # else this tests nothing


@pytest.mark.parametrize("bits, terms", [(9, 64), (10, 16 * 8), (11, 32)])
def test_whole_numbers_are_exact(bits, terms):
    """As they are in float32, while sums stay below 2**24."""
    draw = np.random.RandomState(0)
    most = 2 ** min(bits, (24 - int(np.log2(terms))) // 2 + 1)
    x, y = (draw.randint(-most // 2, most // 2 + 1, shape).astype("f") for shape in ((160, terms), (terms, 200)))
    assert (multiplied(x, y, False, False) == x.astype("d") @ y.astype("d")).all()


def test_all_24_bits_count():
    """A number times 1 is the number."""
    x = np.nextafter(numbers((128, 128)), np.float32(9))
    assert (multiplied(x, np.eye(128, dtype="f"), False, False) == x).all()
    assert (multiplied(np.eye(128, dtype="f"), x, False, False) == x).all()


SPECIAL = [np.inf, -np.inf, np.nan, 1e-35, -1e-40, 3.4028235e38, -3.4e38, 0.0, -0.0]


@pytest.mark.parametrize("number", SPECIAL)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_numbers_without_thirds(number, left, right):
    """They count as they do in float32, and only where they are."""
    x, y = numbers((130, 300)) / 8, numbers((300, 140), 1) / 8
    x[70, 260] = y[290, 3] = number
    given = (np.ascontiguousarray(x.T) if left else x, np.ascontiguousarray(y.T) if right else y, left, right)
    found, plain = multiplied(*given), plainly(multiplied, *given)
    assert ((np.isnan(found) == np.isnan(plain)) & (np.isinf(found) == np.isinf(plain))).all()
    there = np.isfinite(plain)
    assert (np.sign(found) == np.sign(plain))[np.isinf(plain)].all()
    scale = np.abs(x.astype("d")) @ np.abs(y.astype("d"))
    assert (np.abs(found[there] - plain[there]) <= 8 * ROUNDING * scale[there]).all()


def test_small_numbers_keep_their_digits():
    """Below what three bfloat16 have digits for, too."""
    x, y = numbers((128, 64)) * np.float32(1e-33), numbers((64, 128), 1) * np.float32(1e30)
    assert errors(multiplied(x, y, False, False), x, y).max() < 64


def test_bits_do_not_depend_on_other_rows_and_columns():
    """While products go by thirds: who shares a product, and how, changes nothing."""
    x, y = numbers((1000, 700)), numbers((700, 600), 1)
    whole = multiplied(x, y, False, False)
    for rows, columns in ((128, 600), (333, 300), (1000, 97)):
        assert (multiplied(x[:rows], np.ascontiguousarray(y[:, :columns]), False, False) == whole[:rows, :columns]).all()
    assert (multiplied(np.ascontiguousarray(x.T), y, True, False) == whole).all()
    assert (multiplied(x, np.ascontiguousarray(y.T), False, True) == whole).all()


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_the_transpose_of_a_transpose_has_the_same_bits(left, right):
    """As programs compute a product of which only the transpose is read."""
    x, y = numbers((400, 300) if left else (300, 400)), numbers((200, 400) if right else (400, 200), 1)
    product = Product(left, right, np.matmul)
    found = product(x, y)
    assert (product.transposed()(y, x) == found.T).all()
    assert (Product(not right, not left, np.matmul)(y, x) != found.T).any()  # else this tests nothing
    bias, rest = numbers(300, 2), numbers((200, 300), 3)
    assert (Added(product.transposed())(y, x, bias, rest) == found.T + bias + rest).all()


@pytest.mark.parametrize("rows", [128, 400])
def test_a_loop_keeps_its_bits(rows):
    """While it is interpreted: first step by step, then as a program that is put together."""
    x, w, v = (torch.tensor(numbers(shape, i)) for i, shape in enumerate(((rows, 200), (300, 200), (200, 300))))
    for weights in (w, v):
        weights.requires_grad_()

    def step():
        w.grad = v.grad = None
        hidden = (x @ w.T).relu() + x @ v
        (torch.nn.functional.linear(hidden @ w, w) ** 2).mean().backward()
        return w.grad.numpy().copy(), v.grad.numpy().copy()

    first = step()
    for _ in range(40):
        last = step()
    assert all((a == b).all() for a, b in zip(first, last, strict=True))


@pytest.mark.parametrize("shape", [(1, 256, 64), (1, 1, 256, 64), (256, 64)])
def test_attention_of_one_head_keeps_its_bits(shape):
    """Its products are large enough for thirds, which its loop does not have."""
    given = [torch.tensor(numbers(shape, i), requires_grad=True) for i in range(3)]
    query, key, value = given

    def step():
        for tensor in given:
            tensor.grad = None
        ((torch.softmax(query @ key.transpose(-1, -2) / 8, -1) @ value) ** 2).sum().backward()
        return [tensor.grad.numpy().copy() for tensor in given]

    first = step()
    for _ in range(40):
        last = step()
    assert all((a == b).all() for a, b in zip(first, last, strict=True))


def test_small_products_and_batches_are_others():
    """To make thirds pays for large ones only; of a batch each has the bits that it has in attention's loop."""
    for shape in ((64, 64), (2, 128, 128), (1, 128, 128)):
        x, y = numbers(shape), numbers(shape, 1)
        assert (multiplied(x, y, False, False) == plainly(multiplied, x, y, False, False)).all()


def run(switch):
    code = "from torchgrad_jax.runtime.native import blas, handlers; print(blas.multiplies() and handlers.by_thirds())"
    environment = {**os.environ, "TORCHGRAD_JAX_THIRDS": switch}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_the_switch():
    assert run("on").stdout.strip() == "True" and run("off").stdout.strip() == "False"
    assert "TORCHGRAD_JAX_THIRDS must be on or off, not 'no'" in run("no").stderr


def test_faulthandler_can_begin_after():
    """Threads' stacks for signals have to hold the tiles, once a process may use them."""
    code = (
        "import faulthandler, threading; from torchgrad_jax.runtime.native import blas; blas.multiplies(); faulthandler.enable(); "
        "t = threading.Thread(target=faulthandler.enable); t.start(); t.join(); print('done')"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout.strip() == "done"
