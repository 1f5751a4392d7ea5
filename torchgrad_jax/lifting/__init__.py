"""Functions of tensors as something that can be transformed: levels, on which `torch.func` rests."""
