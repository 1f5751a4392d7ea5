"""`torch.optim`: what changes parameters by their gradients."""

from torchgrad_jax.optim import _functional as _functional
from torchgrad_jax.optim import lr_scheduler as lr_scheduler
from torchgrad_jax.optim import swa_utils as swa_utils
from torchgrad_jax.optim._adafactor import Adafactor as Adafactor
from torchgrad_jax.optim._muon import Muon as Muon
from torchgrad_jax.optim._stateless import swap_in_optimizer_params_and_state as swap_in_optimizer_params_and_state
from torchgrad_jax.optim.adadelta import Adadelta as Adadelta
from torchgrad_jax.optim.adagrad import Adagrad as Adagrad
from torchgrad_jax.optim.adam import Adam as Adam
from torchgrad_jax.optim.adamax import Adamax as Adamax
from torchgrad_jax.optim.adamw import AdamW as AdamW
from torchgrad_jax.optim.asgd import ASGD as ASGD
from torchgrad_jax.optim.lbfgs import LBFGS as LBFGS
from torchgrad_jax.optim.nadam import NAdam as NAdam
from torchgrad_jax.optim.optimizer import Optimizer as Optimizer
from torchgrad_jax.optim.radam import RAdam as RAdam
from torchgrad_jax.optim.rmsprop import RMSprop as RMSprop
from torchgrad_jax.optim.rprop import Rprop as Rprop
from torchgrad_jax.optim.sgd import SGD as SGD
from torchgrad_jax.optim.sparse_adam import SparseAdam as SparseAdam

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "Optimizer", "RAdam", "RMSprop",
    "Rprop", "SparseAdam", "lr_scheduler", "swa_utils", "swap_in_optimizer_params_and_state",
]  # fmt: skip
