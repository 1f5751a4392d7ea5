"""Speed, memory, long loops and import time, side by side with PyTorch and hand-written JAX: ``python -m compat_suite.benchmarks --help``."""
