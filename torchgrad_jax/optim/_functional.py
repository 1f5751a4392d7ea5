"""`torch.optim._functional`: optimizers as functions of lists. And those that are `torch._fused_adam_` and the like."""

from torchgrad_jax.optim._adafactor import adafactor as adafactor
from torchgrad_jax.optim.adadelta import adadelta as adadelta
from torchgrad_jax.optim.adagrad import Adagrad
from torchgrad_jax.optim.adagrad import adagrad as adagrad
from torchgrad_jax.optim.adam import Adam
from torchgrad_jax.optim.adam import adam as adam
from torchgrad_jax.optim.adamax import adamax as adamax
from torchgrad_jax.optim.adamw import AdamW
from torchgrad_jax.optim.adamw import adamw as adamw
from torchgrad_jax.optim.asgd import asgd as asgd
from torchgrad_jax.optim.nadam import nadam as nadam
from torchgrad_jax.optim.of_lists import of_lists
from torchgrad_jax.optim.radam import radam as radam
from torchgrad_jax.optim.rmsprop import rmsprop as rmsprop
from torchgrad_jax.optim.rprop import rprop as rprop
from torchgrad_jax.optim.sgd import SGD
from torchgrad_jax.optim.sgd import sgd as sgd

_MOMENTS = "exp_avgs=exp_avg exp_avg_sqs=exp_avg_sq max_exp_avg_sqs=max_exp_avg_sq state_steps=step"
_OF_ADAM = "lr beta1 beta2 weight_decay eps amsgrad maximize grad_scale found_inf"

fused_adam = of_lists(Adam, _MOMENTS, "", _OF_ADAM, fused=True, decoupled_weight_decay=False)
fused_adamw = of_lists(AdamW, _MOMENTS, "", _OF_ADAM, fused=True, decoupled_weight_decay=True)
fused_adagrad = of_lists(
    Adagrad, "state_sums=sum state_steps=step", "", "lr lr_decay weight_decay eps maximize grad_scale found_inf", fused=True
)  # fmt: skip
fused_sgd = of_lists(
    SGD, "momentum_buffer_list=momentum_buffer", "", "weight_decay momentum lr dampening nesterov maximize is_first_step grad_scale found_inf",
    fused=True,
)  # fmt: skip
