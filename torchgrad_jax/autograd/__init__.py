"""`torch.autograd`: backward, grad, grad modes, Function, the graph."""

from torchgrad_jax.autograd import graph
from torchgrad_jax.autograd.backward import attach, backward, grad
from torchgrad_jax.autograd.function import Function
from torchgrad_jax.autograd.grad_mode import enable_grad, no_grad, set_grad_enabled
from torchgrad_jax.autograd.gradcheck import gradcheck, gradgradcheck
from torchgrad_jax.autograd.variable import Variable

attach()

__all__ = ["Function", "Variable", "backward", "enable_grad", "grad", "gradcheck", "gradgradcheck", "graph", "no_grad", "set_grad_enabled"]
