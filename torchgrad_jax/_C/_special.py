"""`torch._C._special`: the functions of `torch.special` by PyTorch's private names, which the text of graphs has."""

from torchgrad_jax import special

globals().update({f"special_{name}": function for name, function in vars(special).items() if callable(function) and not name.startswith("_")})
