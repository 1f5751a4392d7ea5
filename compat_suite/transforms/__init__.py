"""Transforms of every operator, held against what they must be equal to: ``python -m compat_suite transforms --help``. Needs no PyTorch."""
