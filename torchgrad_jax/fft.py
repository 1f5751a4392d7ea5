"""`torch.fft`."""

from torchgrad_jax.tensor import fourier as _fourier
from torchgrad_jax.tensor.overrides import guarded as _guarded

globals().update(_guarded("torch.fft", _fourier.FFT))
