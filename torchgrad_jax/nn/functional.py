"""`torch.nn.functional`."""
