cimport cython

from torchgrad_jax.operators.kernels cimport rounded as f32

cdef double[9] _LOG
cdef double[3] _SIN
cdef double[3] _COS
cdef double[2] _LN2
cdef double[3] _PI_4
cdef float _ROOT_HALF
cdef float _4_PI
cdef float _2PI


@cython.locals(r=double, sin=double, cos=double)
cdef (float, float) pair(float radius, float angle) noexcept nogil
@cython.locals(i=Py_ssize_t, j=Py_ssize_t)
cpdef fill(const float[:, ::1] uniform, float[:, ::1] out)
@cython.locals(m=double, e=double, small=bint, z=double, y=double, i=int)
cdef double _log(float x) noexcept nogil
@cython.locals(octant=int, r=double, y=double, z=double, sin=double, cos=double, swapped=bint, i=int)
cdef (double, double) _sin_cos(float x) noexcept nogil
