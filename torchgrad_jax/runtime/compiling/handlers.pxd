from torchgrad_jax.runtime.compiling cimport convolving, multiplying
