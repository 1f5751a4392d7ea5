from torchgrad_jax.operators.kernels cimport box_muller, choosing, twister


cpdef bint knows(object source, object key, int at) except *
cpdef draw(object source, int kind, object out, unsigned long long span, long long base)
cpdef shuffle(object source, object order)
cpdef normals(object uniform, object out)
cpdef scale(object values, double by, double more)
cpdef int condition(object weights) except -1
cpdef choose(object weights, object exponential, object places)
