"""`torch.stft` and `torch.istft`: Fourier transforms of windows that move along a signal, and the signal from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from torchgrad_jax.calling.kinds import type_name
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions import creation, views
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.functions.resizing import transpose_
from torchgrad_jax.nn.padding import constant_pad_nd, pad
from torchgrad_jax.runtime.user_code import warn_once

_NO_WINDOW = "A window was not provided. A rectangular window will be applied"
_SUPPRESSED = "To suppress this warning and use a rectangular window, explicitly set `window=torch.ones(n_fft, device=<device>)`."
_LEAKS = (
    f"{_NO_WINDOW},which is known to cause spectral leakage. Other windows such as torch.hann_window or torch.hamming_window are recommended to "
    f"reduce spectral leakage.{_SUPPRESSED}"
)
_LOSES = f"{_NO_WINDOW}.Please provide the same window used by stft to make the inversion lossless.{_SUPPRESSED}"
_PAIRS = (
    "stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex tensors for all inputs, and "
    "return_complex=False will raise an error.\nNote: you can still call torch.view_as_real on the complex output to recover the old return format."
)
_SHORTER = (
    "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail. Please check your center and "
    "hop_length settings."
)
_COMPLEX_WANTED = (
    "stft requires the return_complex parameter be given for real inputs, and will further require that return_complex=True in a future PyTorch "
    "release."
)
_TWO_SIDED = "Cannot have onesided output if window or input is complex"
# The normalization of the Fourier operators: see operators/fourier.py.
_SUM, _BY_ROOT, _BY_NUMBER = 0, 1, 2


def _is_complex(t: Tensor | None) -> bool:
    return t is not None and t._aval.dtype.kind == "c"


def _sizes(t: Tensor) -> str:
    return str(list(t._aval.shape))


def _shown(value: Any) -> str:
    """An argument as PyTorch's errors show it."""
    if isinstance(value, Tensor):
        return f"torch.{dtypes.of(value._aval.dtype).title}Tensor{{{_sizes(value)}}}"
    return str(int(value)) if isinstance(value, bool) else str(value)


def _call_text(name: str, input: str, **arguments: Any) -> str:
    return f"{name}({input}, {', '.join(f'{key}={_shown(value)}' for key, value in arguments.items())})"


def _in_the_middle(window: Tensor | None, n_fft: int, win_length: int, like: Tensor, dtype: Any) -> Tensor | None:
    """The window with zeros on both sides, up to n_fft points; None for one of ones alone."""
    if win_length == n_fft:
        return window
    if window is None:
        window = creation.ones((win_length,), dtype=dtypes.of(dtype), device=like.device)
    left = (n_fft - win_length) // 2
    return constant_pad_nd(window, (left, n_fft - win_length - left), 0)


@public("torch", "torch.Tensor")
def stft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Tensor | None = None, center: bool = True,
    pad_mode: Any = "reflect", normalized: bool = False, onesided: bool | None = None, return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:  # fmt: skip
    """The transforms of windows of n_fft points, hop_length apart: (*, T) to (*, frequencies, windows), with a last dimension of two without
    `return_complex`. pad_mode is looked at where there is a `center` only. RuntimeError for sizes that do not fit and for real input without
    `return_complex`."""
    if align_to_window is not None and center:
        raise RuntimeError("stft align_to_window should only be set when center = false")
    if center:
        if not isinstance(pad_mode, str):
            raise TypeError(f"pad(): argument 'mode' (position 3) must be str, not {type_name(pad_mode)}")
        ndim, half = input.dim(), n_fft // 2
        input = views.view(pad(views.view(input, (1,) * (3 - ndim) + tuple(input.shape)), (half, half), pad_mode), _longer(input, half))
    hop_length = n_fft // 4 if hop_length is None else hop_length
    win_length = n_fft if win_length is None else win_length

    def refuse(text: str) -> NoReturn:
        kind = f"torch.{dtypes.of(input._aval.dtype).title}Tensor{_sizes(input)}"
        raise RuntimeError(_call_text(
            "stft", kind, n_fft=n_fft, hop_length=hop_length, win_length=win_length, window=window, normalized=normalized, onesided=onesided,
            return_complex=return_complex, align_to_window=align_to_window) + f" : expected {text}")  # fmt: skip

    if window is None:
        warn_once(_LEAKS)
    whole = _is_complex(input) or _is_complex(window)
    if return_complex is None and not whole:
        raise RuntimeError(_COMPLEX_WANTED)
    if return_complex is False:
        warn_once(_PAIRS)
    _check_signal(input, n_fft, hop_length, win_length, window, refuse)
    if onesided is None:
        onesided = not whole
    if onesided and whole:
        raise RuntimeError(_TWO_SIDED)
    if align_to_window:
        left = (n_fft - win_length) // 2
        input = constant_pad_nd(input, (left, n_fft - win_length - left), 0)
    window = _in_the_middle(window, n_fft, win_length, input, input._aval.dtype)
    frames = views.unfold(input, -1, n_fft, hop_length)
    if window is not None:
        frames = frames * window
    if frames._aval.dtype.itemsize < 4:
        raise RuntimeError(f"MKL FFT doesn't support tensors of type: {dtypes.of(frames._aval.dtype).title}")
    how = _BY_ROOT if normalized else _SUM
    if _is_complex(frames):
        made = call("_fft_c2c", frames, (frames._aval.ndim - 1,), how, True)
    else:
        made = call("_fft_r2c", frames, (frames._aval.ndim - 1,), how, onesided)
    made = transpose_(made, -2, -1)
    return made if return_complex or (return_complex is None and whole) else views.view_as_real(made)


def _check_signal(input: Tensor, n_fft: int, hop_length: int, win_length: int, window: Tensor | None, refuse: Callable[[str], NoReturn]) -> None:
    """Refuses what `stft` cannot transform."""
    if not dtypes.is_float(input._aval.dtype):
        refuse("a tensor of floating point or complex values")
    if input._aval.ndim not in (1, 2):
        refuse("a 1D or 2D tensor")
    length = input._aval.shape[-1]
    if n_fft <= 0 or n_fft > length:
        refuse(f"0 < n_fft < {length}, but got n_fft={n_fft}")
    if hop_length <= 0:
        refuse(f"hop_length > 0, but got hop_length={hop_length}")
    if win_length <= 0 or win_length > n_fft:
        refuse(f"0 < win_length <= n_fft, but got win_length={win_length}")
    if window is not None and window._aval.shape != (win_length,):
        refuse(f"a 1D window tensor of size equal to win_length={win_length}, but got window with size {_sizes(window)}")


def _longer(input: Tensor, half: int) -> tuple[int, ...]:
    """The shape of a signal with `half` more points at both ends."""
    shape = tuple(input._aval.shape)
    return (*shape[:-1], shape[-1] + 2 * half) if shape else (1 + 2 * half,)


def _frames(input: Tensor, n_fft: int, normalized: bool, onesided: bool, return_complex: bool) -> Tensor:
    """The windows that a spectrum was made of: (batch, windows, n_fft)."""
    dims, how = (2,), _BY_ROOT if normalized else _BY_NUMBER
    if return_complex:
        return call("_fft_c2c", input, dims, how, False)
    if not onesided:
        input = views.narrow(input, -1, 0, n_fft // 2 + 1)
    return call("_fft_c2r", input, dims, how, n_fft)


def _check_spectrum(
    input: Tensor, n_fft: int, hop_length: int, win_length: int, window: Tensor | None, onesided: bool | None, refuse: Callable[[str], NoReturn]
) -> bool:
    """Refuses what `istft` cannot transform. Whether it has the frequencies of real signals only."""
    if not _is_complex(input):
        raise RuntimeError("istft requires a complex-valued input tensor matching the output from stft with return_complex=True.")
    shape = input._aval.shape
    if not input._aval.size:
        refuse("input tensor cannot be empty.")
    if len(shape) not in (2, 3):
        if len(shape) < 2:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-len(shape) - 1}, {len(shape)}], but got -3)")
        refuse(f"expected a tensor with 3 or 4 dimensions, but got {len(shape) + 1}")
    if onesided is None:
        onesided = shape[-2] != n_fft
    if onesided and n_fft // 2 + 1 != shape[-2]:
        refuse("expected the frequency dimension (3rd to the last) of the input tensor to match n_fft / 2 + 1 when onesided=True, but got "
               f"{shape[-2]}")  # fmt: skip
    if not onesided and n_fft != shape[-2]:
        refuse(f"expected the frequency dimension (3rd to the last) of the input tensor to match n_fft when onesided=False, but got {shape[-2]}")
    if not 0 < hop_length <= win_length:
        refuse("expected 0 < hop_length <= win_length")
    if not 0 < win_length <= n_fft:
        refuse("expected 0 < win_length <= n_fft")
    if window is not None and window._aval.shape != (win_length,):
        refuse("Invalid window shape. window has to be 1D and length of `win_length`")
    return onesided


@public("torch", "torch.Tensor")
def istft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Tensor | None = None, center: bool = True,
    normalized: bool = False, onesided: bool | None = None, length: int | None = None, return_complex: bool = False,
) -> Tensor:  # fmt: skip
    """The signal of least squares whose `stft` is `input`: (*, frequencies, windows) to (*, T). RuntimeError for sizes that do not fit, for windows
    that sum to 0 somewhere, and for real input."""
    for name, value in (("center' (position 6)", center), ("normalized' (position 7)", normalized), ("return_complex'", return_complex)):
        if not isinstance(value, bool):
            raise TypeError(f"istft(): argument '{name} must be bool, not {type_name(value)}")
    hop_length = n_fft // 4 if hop_length is None else hop_length
    win_length = n_fft if win_length is None else win_length
    asked = onesided

    def text() -> str:
        kind = f"CPU{dtypes.of(input._aval.dtype).title}Type{_sizes(input)}"
        return _call_text("istft", kind, n_fft=n_fft, hop_length=hop_length, win_length=win_length, window=window, center=center,
                          normalized=normalized, onesided=asked, length=length, return_complex=return_complex)  # fmt: skip

    def refuse(what: str) -> NoReturn:
        raise RuntimeError(f"{text()} : {what}")

    if window is None:
        warn_once(_LOSES)
    onesided = _check_spectrum(input, n_fft, hop_length, win_length, window, onesided, refuse)
    if return_complex and onesided:
        raise RuntimeError(_TWO_SIDED)
    if not return_complex and _is_complex(window):
        raise RuntimeError("Complex windows are incompatible with return_complex=False")

    shape = input._aval.shape
    whole = _in_the_middle(window, n_fft, win_length, input, dtypes.to_real(input._aval.dtype))
    if whole is None:
        whole = creation.ones((n_fft,), dtype=dtypes.of(dtypes.to_real(input._aval.dtype)), device=input.device)
    # The numbers as pairs while dimensions change places, as in PyTorch's graph.
    pairs = views.transpose(views.parts(input), -3, -2)
    spectrum = views.view_as_complex(pairs if len(shape) == 3 else views.unsqueeze(pairs, 0))
    count = shape[-1]
    full = n_fft + hop_length * (count - 1)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else full - n_fft // 2 if center else full

    frames = _frames(spectrum, n_fft, normalized, onesided, return_complex) * whole
    signal = call("unfold_backward", frames, (frames._aval.shape[0], full), 1, n_fft, hop_length)
    squares = views.expand(whole**2, 1, count, n_fft)
    weight = call("unfold_backward", squares, (1, full), 1, n_fft, hop_length)
    signal, weight = (views.slice_dim(t, 1, start, min(end, full), 1) for t in (signal, weight))
    if not weight._aval.size:
        raise RuntimeError("min(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.")
    signal = signal / _checked(weight, whole, count, hop_length, start, end, text)
    if len(shape) == 2:
        signal = views.squeeze(signal, 0)
    if end > full:
        warn_once(_SHORTER)
        signal = constant_pad_nd(signal, (0, end - full), 0)
    return signal


def _checked(weight: Tensor, window: Tensor, count: int, hop_length: int, start: int, end: int, text: Callable[[], str]) -> Tensor:
    """The sums of the squares of the windows. RuntimeError where one is 0: at once where the window is at hand, else when the result is looked at."""
    at_hand = None if _is_complex(window) else window._read().at_hand()
    if at_hand is None:
        return call("_overlapping", weight)
    squares = np.asarray(at_hand, np.float64) ** 2
    sums = np.zeros(len(squares) + hop_length * (count - 1))
    for i in range(0, len(squares), hop_length):
        part = squares[i : i + hop_length]
        for j, value in enumerate(part):
            sums[i + j :: hop_length][:count] += value
    if abs(sums[start:end]).min() <= 1e-11:
        raise RuntimeError(f"{text()} window overlap add min: 1\n[ CPUBoolType{{}} ]")
    return weight
