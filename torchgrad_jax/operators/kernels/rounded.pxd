from libc.math cimport sqrtf
from libc.string cimport memcpy


cdef inline float single(double x) noexcept nogil:
    return <float>x


cdef inline double wide(double x) noexcept nogil:
    return x


cdef inline double mad(double a, double b, double c) noexcept nogil:
    return <double>(<float>(a * b + c))


cdef inline double mul(double a, double b) noexcept nogil:
    return <double>(<float>(a * b))


cdef inline float root(float x) noexcept nogil:
    return sqrtf(x)


cdef inline double pick(bint which, double a, double b) noexcept nogil:
    return a if which else b


cdef inline int floor(float x) noexcept nogil:
    return <int>x


cdef inline double mantissa(float x) noexcept nogil:
    cdef unsigned int bits
    cdef float found
    memcpy(&bits, &x, 4)
    bits = (bits & 0x7FFFFFu) | 0x3F000000u
    memcpy(&found, &bits, 4)
    return found


cdef inline int exponent(float x) noexcept nogil:
    cdef unsigned int bits
    memcpy(&bits, &x, 4)
    return <int>((bits >> 23) & 255) - 126
