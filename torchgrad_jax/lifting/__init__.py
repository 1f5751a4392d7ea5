"""A Python function over Tensors as one program, or as a pure JAX function: what it reads and changes is found while it runs once, recorded."""
