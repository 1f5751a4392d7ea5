"""`torch._C._fft`: the functions of `torch.fft` by PyTorch's private names, which the text of graphs has."""

from torchgrad_jax import fft

globals().update({f"fft_{name}": function for name, function in vars(fft).items() if callable(function) and not name.startswith("_")})
