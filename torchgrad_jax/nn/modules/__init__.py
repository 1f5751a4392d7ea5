"""`torch.nn.modules`: what has parameters and is called, gathered from the modules of this package."""

from torchgrad_jax.calling.owning import own_methods
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.nn.modules import (
    activation,
    adaptive,
    batchnorm,
    channelshuffle,
    container,
    conv,
    distance,
    dropout,
    flatten,
    fold,
    instancenorm,
    linear,
    loss,
    normalization,
    padding,
    parallel,
    pixelshuffle,
    pooling,
    rnn,
    sparse,
    transformer,
    upsampling,
)
from torchgrad_jax.nn.modules.activation import *
from torchgrad_jax.nn.modules.adaptive import *
from torchgrad_jax.nn.modules.batchnorm import *
from torchgrad_jax.nn.modules.channelshuffle import *
from torchgrad_jax.nn.modules.container import *
from torchgrad_jax.nn.modules.conv import *
from torchgrad_jax.nn.modules.distance import *
from torchgrad_jax.nn.modules.dropout import *
from torchgrad_jax.nn.modules.flatten import *
from torchgrad_jax.nn.modules.fold import *
from torchgrad_jax.nn.modules.instancenorm import *
from torchgrad_jax.nn.modules.linear import *
from torchgrad_jax.nn.modules.loss import *
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.modules.normalization import *
from torchgrad_jax.nn.modules.padding import *
from torchgrad_jax.nn.modules.parallel import *
from torchgrad_jax.nn.modules.pixelshuffle import *
from torchgrad_jax.nn.modules.pooling import *
from torchgrad_jax.nn.modules.registry import Buffer
from torchgrad_jax.nn.modules.rnn import *
from torchgrad_jax.nn.modules.sparse import *
from torchgrad_jax.nn.modules.transformer import *
from torchgrad_jax.nn.modules.upsampling import *

__all__ = ["Buffer", "Module", "Parameter"]
__all__ += activation.__all__
__all__ += adaptive.__all__
__all__ += batchnorm.__all__
__all__ += channelshuffle.__all__
__all__ += container.__all__
__all__ += conv.__all__
__all__ += distance.__all__
__all__ += dropout.__all__
__all__ += flatten.__all__
__all__ += fold.__all__
__all__ += instancenorm.__all__
__all__ += linear.__all__
__all__ += loss.__all__
__all__ += normalization.__all__
__all__ += padding.__all__
__all__ += parallel.__all__
__all__ += pixelshuffle.__all__
__all__ += pooling.__all__
__all__ += rnn.__all__
__all__ += sparse.__all__
__all__ += transformer.__all__
__all__ += upsampling.__all__

own_methods((globals()[name] for name in __all__), ("__init__", "forward"), frozenset((
    "_AlongClasses", "_AmongNeighbours", "_AvgPoolOfAny", "_ConstantPadNd", "_Conv", "_ConvTranspose", "_FractionalMaxPool", "_LazyPlain",
    "_LazyTransposed", "_MaxUnpoolNd", "_OfOneState", "_OnlyInplace", "_Pad", "_Shrink",
)))  # fmt: skip
