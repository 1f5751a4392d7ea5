"""`torch.save` and `torch.load`: PyTorch's files, read and written. `torchgrad_jax/serialization.py` is their public face."""
