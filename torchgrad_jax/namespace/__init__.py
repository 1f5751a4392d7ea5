"""What becomes `torch.X` and `Tensor.X`."""
