"""`torch.nn.utils`."""

from torchgrad_jax.nn.utils import clip_grad, convert_parameters, rnn, stateless
from torchgrad_jax.nn.utils.clip_grad import clip_grad_norm as clip_grad_norm
from torchgrad_jax.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm_
from torchgrad_jax.nn.utils.clip_grad import clip_grad_value_ as clip_grad_value_
from torchgrad_jax.nn.utils.clip_grad import clip_grads_with_norm_ as clip_grads_with_norm_
from torchgrad_jax.nn.utils.clip_grad import get_total_norm as get_total_norm
from torchgrad_jax.nn.utils.convert_parameters import parameters_to_vector as parameters_to_vector
from torchgrad_jax.nn.utils.convert_parameters import vector_to_parameters as vector_to_parameters

__all__ = [
    "clip_grad", "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "convert_parameters", "get_total_norm",
    "parameters_to_vector", "rnn", "stateless", "vector_to_parameters",
]  # fmt: skip
