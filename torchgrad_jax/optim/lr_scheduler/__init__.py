"""`torch.optim.lr_scheduler`: schedules of the learning rate."""

from torchgrad_jax.calling.owning import own_methods as _own_methods
from torchgrad_jax.optim.lr_scheduler.base import EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING
from torchgrad_jax.optim.lr_scheduler.base import LRScheduler as LRScheduler
from torchgrad_jax.optim.lr_scheduler.base import _LRScheduler as _LRScheduler
from torchgrad_jax.optim.lr_scheduler.composed import ChainedScheduler as ChainedScheduler
from torchgrad_jax.optim.lr_scheduler.composed import SequentialLR as SequentialLR
from torchgrad_jax.optim.lr_scheduler.cycles import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from torchgrad_jax.optim.lr_scheduler.cycles import CyclicLR as CyclicLR
from torchgrad_jax.optim.lr_scheduler.cycles import OneCycleLR as OneCycleLR
from torchgrad_jax.optim.lr_scheduler.factors import ConstantLR as ConstantLR
from torchgrad_jax.optim.lr_scheduler.factors import CosineAnnealingLR as CosineAnnealingLR
from torchgrad_jax.optim.lr_scheduler.factors import ExponentialLR as ExponentialLR
from torchgrad_jax.optim.lr_scheduler.factors import LambdaLR as LambdaLR
from torchgrad_jax.optim.lr_scheduler.factors import LinearLR as LinearLR
from torchgrad_jax.optim.lr_scheduler.factors import MultiplicativeLR as MultiplicativeLR
from torchgrad_jax.optim.lr_scheduler.factors import MultiStepLR as MultiStepLR
from torchgrad_jax.optim.lr_scheduler.factors import PolynomialLR as PolynomialLR
from torchgrad_jax.optim.lr_scheduler.factors import StepLR as StepLR
from torchgrad_jax.optim.lr_scheduler.plateau import ReduceLROnPlateau as ReduceLROnPlateau

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR",
    "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip

# Classes have PyTorch's module, by which they are printed and pickled.
for _name in (*__all__, "_LRScheduler"):
    globals()[_name].__module__ = __name__
_own_methods((LambdaLR, MultiplicativeLR), ("__init__", "load_state_dict", "state_dict"), frozenset(("_ByFunctions",)))
