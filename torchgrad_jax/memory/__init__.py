"""The memory that tensors share: its content, its versions, and the links from a view to its base. Knows no Tensor."""
