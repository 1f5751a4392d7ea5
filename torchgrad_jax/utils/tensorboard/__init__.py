"""`torch.utils.tensorboard`, by the package tensorboardX, which writes the same files. ModuleNotFoundError where that is not installed."""

from torchgrad_jax.utils.tensorboard.writer import SummaryWriter

__all__ = ["SummaryWriter"]
