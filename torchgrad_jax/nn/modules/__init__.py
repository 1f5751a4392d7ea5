"""`torch.nn.modules`: what has parameters and is called, gathered from the modules of this package."""

from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.nn.modules import activation, container, dropout, layers, linear, parallel, parameters, rnn
from torchgrad_jax.nn.modules.activation import *
from torchgrad_jax.nn.modules.container import *
from torchgrad_jax.nn.modules.dropout import *
from torchgrad_jax.nn.modules.layers import *
from torchgrad_jax.nn.modules.linear import *
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.modules.parallel import *
from torchgrad_jax.nn.modules.parameters import *
from torchgrad_jax.nn.modules.registry import Buffer
from torchgrad_jax.nn.modules.rnn import *

__all__ = ["Buffer", "Module", "Parameter"]
__all__ += activation.__all__
__all__ += container.__all__
__all__ += dropout.__all__
__all__ += layers.__all__
__all__ += linear.__all__
__all__ += parallel.__all__
__all__ += parameters.__all__
__all__ += rnn.__all__
