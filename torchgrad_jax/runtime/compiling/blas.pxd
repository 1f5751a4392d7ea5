from torchgrad_jax.runtime.compiling cimport multiplying
