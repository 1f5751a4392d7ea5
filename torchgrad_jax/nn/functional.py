"""`torch.nn.functional`, gathered from the modules of this package."""

# Not `from`, which would ask for the whole package.
import torchgrad_jax.nn._reduction as _Reduction  # noqa: F401 - by this name in losses of programs
import torchgrad_jax.nn.grad as grad  # noqa: F401 - as above
from torchgrad_jax.calling.for_users import handle_torch_function as handle_torch_function
from torchgrad_jax.calling.for_users import has_torch_function as has_torch_function
from torchgrad_jax.calling.for_users import has_torch_function_unary as has_torch_function_unary
from torchgrad_jax.calling.for_users import has_torch_function_variadic as has_torch_function_variadic
from torchgrad_jax.calling.overrides import guarded as _guarded
from torchgrad_jax.core.tensor import Tensor as Tensor
from torchgrad_jax.nn.activation import *
from torchgrad_jax.nn.convolution import *
from torchgrad_jax.nn.ctc import *
from torchgrad_jax.nn.distance import *
from torchgrad_jax.nn.dot_product import *
from torchgrad_jax.nn.dropout import *
from torchgrad_jax.nn.fractional import *
from torchgrad_jax.nn.grid import *
from torchgrad_jax.nn.linear import *
from torchgrad_jax.nn.linear_cross_entropy import *
from torchgrad_jax.nn.loss import *
from torchgrad_jax.nn.margins import *
from torchgrad_jax.nn.multihead import *
from torchgrad_jax.nn.normalization import *
from torchgrad_jax.nn.padding import *
from torchgrad_jax.nn.pooling import *
from torchgrad_jax.nn.sparse import *
from torchgrad_jax.nn.unpooling import *

globals().update(_guarded("torch.nn.functional", globals()))
