"""Tensor: dispatch, storage, views, in-place writes, conversion."""
