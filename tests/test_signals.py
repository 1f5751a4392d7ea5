"""Windows, and Fourier transforms of short times, against PyTorch."""

import pytest
from side_by_side import like_pytorch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators

OF_TORCH = ("bartlett", "blackman", "hamming", "hann", "kaiser")
OPTIONS = {"general_cosine": {"a": [0.5, 0.3, 0.2]}}
OF_SIGNAL = ("bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser", "nuttall")


@pytest.mark.parametrize("name", OF_TORCH)
def test_windows_of_torch(name):
    def program(m):
        f = getattr(m, f"{name}_window")
        made = [f(n, *rest) for n in (0, 1, 2, 5, 8) for rest in ((), (False,))]
        return [*made, f(5, dtype=m.float64, requires_grad=True), f(7, True, dtype=m.float16), f(window_length=3, periodic=False)]

    like_pytorch(program)()
    for arguments in ("-1", "2.5", "4, dtype=torch.complex64", "4, dtype=torch.int64", "4, pin_memory=True", "4, z=1"):
        like_pytorch(lambda m, a=arguments: eval(f"f({a})", {"f": getattr(m, f"{name}_window"), "torch": m}))()


def test_windows_with_parameters():
    like_pytorch(lambda m: [m.hamming_window(5, True, 0.6, 0.3), m.kaiser_window(5, True, 3.0), m.kaiser_window(6, False, beta=0.0)])()
    like_pytorch(lambda m: m.kaiser_window(5, beta=3.0))()


@pytest.mark.parametrize("name", OF_SIGNAL)
def test_windows_of_signal(name):
    more = OPTIONS.get(name, {})

    def program(m):
        f = getattr(m.signal.windows, name)
        made = [f(n, sym=sym, **more) for n in (0, 1, 4, 5) for sym in (True, False)]
        return [*made, f(6, dtype=m.float64, requires_grad=True, **more)]

    like_pytorch(program)()
    for arguments in ("-1", "3, dtype=torch.int32", "3, dtype=torch.float16"):
        like_pytorch(lambda m, a=arguments: eval(f"f({a}, **more)", {"f": getattr(m.signal.windows, name), "torch": m, "more": more}))()


@pytest.mark.parametrize("call", [
    "exponential(5, tau=-1)", "exponential(5, center=1.0)", "exponential(5, center=1.0, sym=False, tau=2.0)",
    "gaussian(5, std=-1.0)", "gaussian(5, std=2)",
    "kaiser(5, beta=-1.0)", "general_cosine(5, a=[])", "general_cosine(5, a=3.0)", "general_cosine(5)", "general_hamming(5, alpha=0.6)",
])  # fmt: skip
def test_parameters_of_windows(call):
    like_pytorch(lambda m: eval(f"windows.{call}", {"windows": m.signal.windows}))()


def parts(m, t):
    return m.view_as_real(t) if t.is_complex() else t


def signal(m, n=40, dtype="float64"):
    t = m.arange(2 * n, dtype=m.float64).reshape(2, n)
    return (t.sin() + (t * 0.3).cos()).to(getattr(m, dtype))


FORWARD = [
    "x, 8, window=w, return_complex=True", "x[0], 8, 3, 6, w[:6], return_complex=True",
    "x, 8, window=w, center=False, normalized=True, return_complex=True",
    "x, 8, window=w, onesided=False, return_complex=True", "x, 8, window=w, pad_mode='constant', return_complex=True", "x.cfloat(), 8, window=w",
    "x, 8, window=w.cfloat()", "x, 8, win_length=4, window=w[:4], align_to_window=True, center=False, return_complex=True", "x.float(), 8, window=w",
    "x, 8, window=w, align_to_window=True, return_complex=True", "x[None], 8, window=w, return_complex=True",
    "x[:, :3], 8, window=w, return_complex=True",
    "x, 8, 0, window=w, return_complex=True", "x, 0, window=w, return_complex=True", "x, 8, win_length=9, window=w, return_complex=True",
    "x, 8, win_length=4, window=w, return_complex=True", "x.cfloat(), 8, window=w, onesided=True",
    "x, 8, window=w, pad_mode='none', return_complex=True", "x, 8, window=w, pad_mode=3, return_complex=True",
    "x, 8, window=w, center=False, pad_mode=None, return_complex=True", "x, 8, window=w, center=False, pad_mode=3, return_complex=True",
    "x, 100, window=w, center=False, return_complex=True", "x.long()[0], 8, window=w, return_complex=True",
]  # fmt: skip


@pytest.mark.parametrize("arguments", FORWARD)
def test_stft(arguments):
    def program(m):
        names = {"x": signal(m), "w": m.hann_window(8, dtype=m.float64), "m": m}
        return [parts(m, eval(f"{f}({arguments})", {**names, "f": f, "torch": m})) for f in ("torch.stft", "m.Tensor.stft")]

    like_pytorch(program)()


BACK = [
    "s, 8, window=w", "s[0], 8, 2, window=w, length=30", "s, 8, window=w, normalized=True", "s, 8, window=w, length=60",
    "s, 8, window=w, onesided=True",
    "c, 8, window=w", "c, 8, window=w, return_complex=True", "s.real, 8, window=w",
    "s, 8, window=w, return_complex=True", "s, 8, window=w, onesided=False",
    "s[None], 8, window=w", "s[0, 0], 8, window=w", "s[:, :, :0], 8, window=w", "s, 12, window=w",
    "s, 8, 9, window=w", "s, 8, win_length=9, window=w",
    "s, 8, win_length=4, window=w", "s, 8, window=w, center=False", "s, 8, window=w.cfloat()", "s, 8, window=w, length=0",
    "s.to(torch.complex64), 8, window=w",
]  # fmt: skip


@pytest.mark.parametrize("arguments", BACK)
def test_istft(arguments):
    def program(m):
        x, w = signal(m), m.hann_window(8, dtype=m.float64)
        names = {"s": m.stft(x, 8, window=w, return_complex=True), "c": m.stft(x.to(m.complex128), 8, window=w), "w": w, "torch": m}
        return [parts(m, eval(f"torch.istft({arguments})", names))]

    like_pytorch(program)()


def test_the_signal_comes_back():
    x, w = tj.randn(3, 100), tj.hamming_window(20)
    assert tj.allclose(tj.istft(tj.stft(x, 20, 6, window=w, return_complex=True), 20, 6, window=w, length=100), x, atol=1e-5)


def test_gradients():
    def program(m):
        x, w = signal(m).requires_grad_(), m.hann_window(8, dtype=m.float64).requires_grad_()
        s = m.stft(x, 8, 3, window=w, return_complex=True)
        back = m.istft(s * s.abs(), 8, 3, window=w)
        (back**2).sum().backward()
        return [x.grad, w.grad, [back.grad_fn.name(), back.grad_fn.next_functions[0][0].next_functions[0][0].name()]]

    like_pytorch(program)()
    w = tj.hann_window(4, dtype=tj.float64)
    assert tj.autograd.gradcheck(lambda x: tj.istft(tj.stft(x, 4, window=w, return_complex=True) ** 2, 4, window=w), signal(tj, 12).requires_grad_(),
                                 check_forward_ad=True)  # fmt: skip


def test_windows_that_are_computed_are_checked_when_the_result_is_looked_at():
    s, w = tj.stft(signal(tj), 8, window=tj.ones(8), return_complex=True), tj.hann_window(8, dtype=tj.float64)
    with pytest.raises(RuntimeError, match="window overlap add min: 1"):
        tj.istft(s, 8, window=w * 0).tolist()
    whole = tj.jit(lambda s, w: tj.istft(s, 8, window=w * 1))
    assert tj.allclose(whole(s, w), tj.istft(s, 8, window=w))


@like_pytorch
def test_stft_of_half_precision_with_a_window_of_single_precision(m):
    x = m.arange(64.0).sin().to(m.bfloat16)
    return m.stft(x, 16, window=m.hann_window(16), return_complex=True, pad_mode="constant")
