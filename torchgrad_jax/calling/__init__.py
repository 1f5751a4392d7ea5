"""How PyTorch's functions may be called: its signatures, what arguments fit them, and what is said of those that do not."""
