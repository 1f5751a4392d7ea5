"""`torch.backends`: what there is below, and the switches that programs set. Everything is compiled by XLA."""

from torchgrad_jax.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]
