from torchgrad_jax.operators.kernels cimport box_muller


cpdef units(object draws, object out)
cpdef wide_units(object draws, object out)
cpdef normals(object uniform, object out)
