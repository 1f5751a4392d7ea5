"""What `torch.special` has of Bessel's and Airy's functions and of orthogonal polynomials. PyTorch has no derivative of any."""

from torchgrad_jax.operators.special_functions import bessel, polynomials

__all__ = ["bessel", "polynomials"]
