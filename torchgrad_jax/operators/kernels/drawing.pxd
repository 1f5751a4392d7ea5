from torchgrad_jax.operators.kernels cimport box_muller


cpdef units(const unsigned long long[::1] draws, float[::1] out)
cpdef wide_units(const unsigned long long[::1] draws, double[::1] out)
cpdef normals(const float[::1] uniform, float[::1] out)
