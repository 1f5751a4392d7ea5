"""`torch.linalg`."""

from torchgrad_jax.calling.overrides import guarded as _guarded
from torchgrad_jax.calling.public import published as _published

globals().update(_guarded("torch.linalg", _published["torch.linalg"]))
