"""Function transforms, and the passage of functions between PyTorch's style and JAX's."""
