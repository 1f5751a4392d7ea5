from torchgrad_jax.operators.kernels cimport box_muller, choosing, rejecting, twister


cpdef bint knows(object source, object key, int at) except *
cpdef draw(object source, int kind, object out, unsigned long long span, long long base)
cpdef shuffle(object source, object order)
cpdef normals(object uniform, object out)
cpdef draw_normals(object source, object out)
cpdef scale(object values, double by, double more)
cpdef int condition(object weights) except -1
cpdef choose(object weights, object exponential, object places)
cpdef stream(object source, object out)
cpdef gammas(object source, object concentration, object d, object c, object exponent, object out)
cpdef poissons(object source, object rate, object out)
cpdef binomials(object source, object count, object probability, object out)
cpdef int invert(object source, object rows, object places, object sums) except -1
