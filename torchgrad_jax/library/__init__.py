"""`torch.library`: operators of the user's, written in Python."""

from torchgrad_jax.library.checking import opcheck
from torchgrad_jax.library.libraries import Library, _scoped_library, define, fallthrough_kernel, impl
from torchgrad_jax.library.registering import (
    CustomOpDef,
    custom_op,
    impl_abstract,
    register_autocast,
    register_autograd,
    register_fake,
    register_kernel,
    register_torch_dispatch,
    register_vmap,
    triton_op,
    wrap_triton,
)
from torchgrad_jax.library.schema import infer_schema

__all__ = [
    "CustomOpDef", "Library", "_scoped_library", "custom_op", "define", "fallthrough_kernel", "impl", "impl_abstract", "infer_schema", "opcheck",
    "register_autocast", "register_autograd", "register_fake", "register_kernel", "register_torch_dispatch", "register_vmap", "triton_op",
    "wrap_triton",
]  # fmt: skip
