"""`view(dtype)`: the same memory as elements of another dtype, without history; writes to the one are seen by the other."""

import numpy as np
import pytest
from side_by_side import error_of, like_pytorch, tj

pytestmark = pytest.mark.operators

# From a tensor x of float32 (3, 4), h of float16 (2, 6), b of 12 bytes, c of complex64 (2, 2), z of booleans.
SEEN = (
    "x.view(m.int32)", "x.view(dtype=m.uint8)", "x.view(m.int16)", "x.view(m.float64)", "x.view(m.complex64)", "x.t().view(m.int32)",
    "x[1:, 2:].view(m.int32)", "x[:, 2:].view(m.float64)", "x[1].view(m.uint8)[2:6].view(m.int32)", "h.view(m.bfloat16)", "h.view(m.int32)",
    "b.view(m.float32)", "b[4:].view(m.int32)", "b.view(3, 4).view(m.int32)", "b.view(m.int8)", "c.view(m.float32)", "c.view(m.int64)",
    "z.view(m.uint8)", "(b % 2).view(m.bool)", "m.tensor(1.0).view(m.int32)", "m.ones(0, 2).view(m.uint8)", "x.view(m.float32)",
    "x.expand(2, 3, 4).view(m.int32)", "m.tensor([float('nan'), -0.0, float('inf')]).view(m.int32)",
)  # fmt: skip
REFUSED = (
    "x.t().view(m.uint8)", "x[:, ::2].view(m.float64)", "m.tensor(1.0).view(m.uint8)", "b[1:9].view(m.int32)", "b[:6].view(m.int32)",
    "b[:10].view(2, 5)[:, :4].view(m.int16)", "c.conj().view(m.int64)", "c.conj().imag.view(m.int32)",
)  # fmt: skip


def tensors(m):
    x = m.arange(12.0).view(3, 4) * 1.7 - 9
    return {
        "m": m, "x": x, "h": (x / 3).half().view(2, 6), "b": m.arange(12, dtype=m.uint8), "c": m.complex(x[:2, :2], x[1:, 2:]),
        "z": m.tensor([True, False]),
    }  # fmt: skip


@pytest.mark.parametrize("code", SEEN)
def test_memory_is_seen_as_another_dtype(code):
    def program(m):
        seen = eval(code, tensors(m))
        return str(seen.dtype), tuple(seen.shape), seen.stride(), seen.storage_offset(), seen

    like_pytorch(program)()


@pytest.mark.parametrize("code", REFUSED)
def test_what_does_not_fit_is_refused(code):
    like_pytorch(lambda m: eval(code, tensors(m)))()


def test_each_is_asked_though_it_looks_like_one_before():
    def program(m):
        b, c = m.arange(12, dtype=m.uint8), m.complex(m.ones(2), m.ones(2))
        first = b[4:12].view(m.int32), c.view(m.int64)
        return *first, error_of(lambda: b[1:9].view(m.int32)), error_of(lambda: c.conj().view(m.int64)), b[:8].view(m.int32).storage_offset()

    like_pytorch(program)()


def test_writes_are_seen_by_both():
    def program(m):
        x = m.zeros(2, 4)
        ints = x.view(m.int32)
        ints[:, 1:3].fill_(0x3F800000)
        x[1] += 1
        ints.bitwise_and_(~1)
        halves = x.view(m.int16)
        halves[0, ::2] = 7
        flags = m.tensor([0, 5, 1, 0], dtype=m.uint8)
        flags.view(m.bool)[2:] = m.tensor([False, True])
        return x, ints, halves, flags, ints.data_ptr() == x.data_ptr()

    like_pytorch(program)()


def test_memory_by_strides_is_of_the_dtype_that_is_seen():
    def program(m):
        x, b, c = m.tensor([1.0, 2, 3, 4]), m.arange(11, dtype=m.uint8), m.complex(m.ones(3), m.ones(3))
        seen = [
            x.view(m.int32).as_strided((2,), (2,)), x.view(m.uint8)[4:8].as_strided((3,), (2,)), b[:8].view(m.int32)[1:].as_strided((2,), (1,), 0),
            c.view(m.int32).as_strided((2, 2), (1, 2), 1), x[:2].view(m.int64).as_strided((1,), (1,)),
            x.view(m.int32).view(m.complex64).as_strided((2,), (1,)),
        ]  # fmt: skip
        seen[0].fill_(0)
        seen[1][2] = 0
        return seen, x

    like_pytorch(program)()


def test_there_is_no_history():
    def program(m):
        x = m.ones(2, dtype=m.float16, requires_grad=True)
        seen = [x.view(m.int16), x.view(m.bfloat16), (x * 2).view(m.bfloat16), (x * 2).view(m.int16)]
        seen[0].fill_(0x4000)
        return [(t.requires_grad, t.grad_fn, t.is_leaf) for t in seen], x

    like_pytorch(program)()


def test_rounding_by_bits_in_a_loop():
    def program(m):
        m.manual_seed(0)
        w, kept = m.randn(3, 5), []
        for _ in range(6):
            noise = m.randint(0, 1 << 16, w.shape, dtype=m.int32)
            noise.add_(w.view(m.int32)).bitwise_and_(-65536)
            kept.append(noise.view(m.float32).bfloat16())
            w = w * 0.9 + noise.view(m.float32) * 0.1
        return kept[0], kept[-1]

    like_pytorch(program)()


def test_in_vmap_and_in_a_compiled_function():
    def bits(x):
        return x.view(tj.int32) & 0xFF0000

    x = tj.randn(4, 3)
    wanted = (x.numpy().view(np.int32) & 0xFF0000).tolist()
    assert tj.vmap(bits)(x).tolist() == tj.compile(bits)(x).tolist() == bits(x).tolist() == wanted


def test_booleans_of_other_memory_than_bytes_are_refused():
    with pytest.raises(RuntimeError, match="View it as uint8"):
        tj.ones(2).view(tj.bool)
