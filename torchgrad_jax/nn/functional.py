"""`torch.nn.functional`, gathered from the modules of this package."""

from torchgrad_jax.calling.overrides import guarded as _guarded
from torchgrad_jax.nn.activation import *
from torchgrad_jax.nn.attention import *
from torchgrad_jax.nn.convolution import *
from torchgrad_jax.nn.distance import *
from torchgrad_jax.nn.dropout import *
from torchgrad_jax.nn.grid import *
from torchgrad_jax.nn.linear import *
from torchgrad_jax.nn.loss import *
from torchgrad_jax.nn.margins import *
from torchgrad_jax.nn.multihead import *
from torchgrad_jax.nn.normalization import *
from torchgrad_jax.nn.padding import *
from torchgrad_jax.nn.pooling import *
from torchgrad_jax.nn.sparse import *

globals().update(_guarded("torch.nn.functional", globals()))
