"""`torch.nn.utils`."""

from torchgrad_jax.nn.utils import clip_grad, convert_parameters, fusion, init, memory_format
from torchgrad_jax.nn.utils.clip_grad import clip_grad_norm as clip_grad_norm
from torchgrad_jax.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm_
from torchgrad_jax.nn.utils.clip_grad import clip_grad_value_ as clip_grad_value_
from torchgrad_jax.nn.utils.clip_grad import clip_grads_with_norm_ as clip_grads_with_norm_
from torchgrad_jax.nn.utils.clip_grad import get_total_norm as get_total_norm
from torchgrad_jax.nn.utils.convert_parameters import parameters_to_vector as parameters_to_vector
from torchgrad_jax.nn.utils.convert_parameters import vector_to_parameters as vector_to_parameters
from torchgrad_jax.nn.utils.fusion import fuse_conv_bn_eval as fuse_conv_bn_eval
from torchgrad_jax.nn.utils.fusion import fuse_conv_bn_weights as fuse_conv_bn_weights
from torchgrad_jax.nn.utils.fusion import fuse_linear_bn_eval as fuse_linear_bn_eval
from torchgrad_jax.nn.utils.fusion import fuse_linear_bn_weights as fuse_linear_bn_weights
from torchgrad_jax.nn.utils.init import skip_init as skip_init
from torchgrad_jax.nn.utils.memory_format import convert_conv2d_weight_memory_format as convert_conv2d_weight_memory_format
from torchgrad_jax.nn.utils.memory_format import convert_conv3d_weight_memory_format as convert_conv3d_weight_memory_format
from torchgrad_jax.nn.utils.spectral_norm import remove_spectral_norm as remove_spectral_norm
from torchgrad_jax.nn.utils.spectral_norm import spectral_norm as spectral_norm
from torchgrad_jax.nn.utils.weight_norm import remove_weight_norm as remove_weight_norm
from torchgrad_jax.nn.utils.weight_norm import weight_norm as weight_norm
from torchgrad_jax.runtime import lazy

# Half of the time that clipping gradients for the first time takes would go into loading these.
_later = lazy.submodules(__name__, ("parametrizations", "parametrize", "prune", "rnn", "stateless"))
parametrizations, parametrize, prune, rnn, stateless = _later.values()

__all__ = [
    "clip_grad", "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format", "convert_parameters", "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval",
    "fuse_linear_bn_weights", "fusion", "get_total_norm", "init", "memory_format", "parameters_to_vector", "parametrizations", "parametrize", "prune",
    "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init", "spectral_norm", "stateless", "vector_to_parameters", "weight_norm",
]  # fmt: skip
