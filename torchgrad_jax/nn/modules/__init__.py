"""`torch.nn.modules`: what has parameters and is called."""

from torchgrad_jax.nn.modules.activation import (
    GELU,
    CrossEntropyLoss,
    L1Loss,
    LogSoftmax,
    MSELoss,
    NLLLoss,
    ReLU,
    Sigmoid,
    Softmax,
    Tanh,
)
from torchgrad_jax.nn.modules.container import ModuleDict, ModuleList, Sequential
from torchgrad_jax.nn.modules.dropout import AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout, RReLU
from torchgrad_jax.nn.modules.layers import BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d, LayerNorm
from torchgrad_jax.nn.modules.linear import Bilinear, Embedding, Flatten, Identity, Linear, Unflatten
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.modules.parameters import ParameterDict, ParameterList
from torchgrad_jax.nn.modules.registry import Buffer
from torchgrad_jax.tensor.parameter import Parameter

__all__ = [
    "AlphaDropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout", "RReLU",
    "GELU", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Bilinear", "Buffer", "Conv1d", "Conv2d", "Conv3d", "CrossEntropyLoss", "Dropout",
    "Embedding", "Flatten", "Identity", "L1Loss", "LayerNorm", "Linear", "LogSoftmax", "MSELoss", "Module", "ModuleDict", "ModuleList", "NLLLoss",
    "Parameter", "ParameterDict", "ParameterList", "ReLU", "Sequential", "Sigmoid", "Softmax", "Tanh", "Unflatten",
]  # fmt: skip
