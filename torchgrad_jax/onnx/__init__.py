"""`torch.onnx`: nothing is exported, so no program is ever inside of an export."""

from torchgrad_jax.onnx import symbolic_helper
from torchgrad_jax.runtime.passing_through import no, refused

__all__ = ["export", "is_in_onnx_export", "symbolic_helper"]

is_in_onnx_export = no
export = refused(
    "torch.onnx.export",
    "give torchgrad_jax.to_jax(module) to jax.export, or to the package jax2onnx; or load the state_dict into PyTorch and export there",
)
