"""`torch.fft`."""

from torchgrad_jax.calling.overrides import guarded as _guarded
from torchgrad_jax.calling.public import published as _published
from torchgrad_jax.core.tensor import Tensor  # noqa: F401 - PyTorch's module has it

globals().update(_guarded("torch.fft", _published["torch.fft"]))
