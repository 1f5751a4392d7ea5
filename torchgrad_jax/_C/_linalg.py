"""`torch._C._linalg`: the functions of `torch.linalg` by PyTorch's private names, which the text of graphs has."""

from torchgrad_jax import linalg

globals().update({f"linalg_{name}": function for name, function in vars(linalg).items() if callable(function) and not name.startswith("_")})
