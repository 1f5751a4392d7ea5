"""`torch.nn.utils`."""

from torchgrad_jax.nn.utils import rnn, stateless

__all__ = ["rnn", "stateless"]
