# cython: cdivision=True
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

# The loops are C: compiled for processors with AVX2, too, and chosen between as the module is loaded, where GCC and the system can do that.
cdef extern from *:
    """
    #include <math.h>
    #if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
    #define TJ_CLONES __attribute__((target_clones("avx2", "default")))
    #else
    #define TJ_CLONES
    #endif
    #ifdef _MSC_VER
    #define TJ_RESTRICT __restrict
    #else
    #define TJ_RESTRICT __restrict__
    #endif
    #define TJ_LOOP(which, result) case which: for (i = 0; i < n; i++) { out[i] = (result); } break;
    #define TJ_LANES(name, real, root, magnitude)                                                                             \\
    TJ_CLONES static void name(int which, const real* TJ_RESTRICT a, const real* TJ_RESTRICT b, const real* TJ_RESTRICT c,    \\
                               real* TJ_RESTRICT out, Py_ssize_t n) {                                                         \\
        Py_ssize_t i;                                                                                                         \\
        switch (which) {                                                                                                      \\
            TJ_LOOP(0, a[i] + b[i])                                                                                           \\
            TJ_LOOP(1, a[i] - b[i])                                                                                           \\
            TJ_LOOP(2, a[i] * b[i])                                                                                           \\
            TJ_LOOP(3, a[i] / b[i])                                                                                           \\
            TJ_LOOP(4, -a[i])                                                                                                 \\
            TJ_LOOP(5, magnitude(a[i]))                                                                                       \\
            TJ_LOOP(6, root(a[i]))                                                                                            \\
            TJ_LOOP(7, a[i] * a[i])                                                                                           \\
            TJ_LOOP(8, 1 / root(a[i]))                                                                                        \\
            TJ_LOOP(9, a[i] == b[i] && a[i] == 0 ? a[i] + b[i] : a[i] > b[i] || a[i] != a[i] ? a[i] : b[i])                   \\
            TJ_LOOP(10, a[i] == b[i] && a[i] == 0 ? -(-a[i] - b[i]) : a[i] < b[i] || a[i] != a[i] ? a[i] : b[i])              \\
            TJ_LOOP(11, a[i] > 0 ? 1 : a[i] < 0 ? -1 : a[i])                                                                  \\
            TJ_LOOP(12, a[i] > b[i] ? (real)1 : (real)0)                                                                      \\
            TJ_LOOP(13, a[i] >= b[i] ? (real)1 : (real)0)                                                                     \\
            TJ_LOOP(14, a[i] < b[i] ? (real)1 : (real)0)                                                                      \\
            TJ_LOOP(15, a[i] <= b[i] ? (real)1 : (real)0)                                                                     \\
            TJ_LOOP(16, a[i] == b[i] ? (real)1 : (real)0)                                                                     \\
            TJ_LOOP(17, a[i] != b[i] ? (real)1 : (real)0)                                                                     \\
            TJ_LOOP(18, a[i] != 0 ? c[i] : b[i])                                                                              \\
            case 19: for (i = 0; i < n; i++) { out[i] = ((const unsigned char*)a)[i]; } break;                                \\
            case 20: for (i = 0; i < n; i++) { ((unsigned char*)out)[i] = a[i] != 0; } break;                                 \\
        }                                                                                                                     \\
    }
    TJ_LANES(tj_lane_float, float, sqrtf, fabsf)
    TJ_LANES(tj_lane_double, double, sqrt, fabs)
    """
    void tj_lane_float(int which, float* a, float* b, float* c, float* out, Py_ssize_t n) noexcept nogil
    void tj_lane_double(int which, double* a, double* b, double* c, double* out, Py_ssize_t n) noexcept nogil

cdef enum:
    SPREAD = 21

ctypedef fused real:
    float
    double


cdef inline char* memory(object array, Py_ssize_t length, int letter, bint written) except? NULL:
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (PyBUF_WRITABLE if written else 0))
    cdef char* found = <char*>view.buf
    cdef bint fits = view.len == length and view.format[0] == letter and view.format[1] == 0
    PyBuffer_Release(&view)  # the array is held by whoever asks, and never moves
    if not fits:
        raise BufferError
    return found


cdef inline char** starts(int count) except NULL:
    return <char**>_allocated(count * sizeof(void*))


cdef inline Py_ssize_t* steps(int count) except NULL:
    return <Py_ssize_t*>_allocated(count * sizeof(Py_ssize_t))


cdef inline char* room(Py_ssize_t registers, Py_ssize_t length, int letter) except NULL:
    return <char*>_allocated(registers * length + 1)


cdef inline void* _allocated(size_t length) except NULL:
    cdef void* found = malloc(length)
    if found is NULL:
        raise MemoryError
    return found


cdef inline void done(void* memory) noexcept:
    free(memory)


cdef inline char* register(char* room, Py_ssize_t which, Py_ssize_t length) noexcept:
    return room + which * length


cdef inline char* at(char* start, Py_ssize_t step, Py_ssize_t begin) noexcept nogil:
    return start + step * begin


cdef inline void _fill(real x, real* out, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = x


cdef inline void fill(int letter, bint mask, char* source, char* out, Py_ssize_t n) noexcept nogil:
    if letter == 102:
        _fill((<unsigned char*>source)[0] if mask else (<float*>source)[0], <float*>out, n)
    else:
        _fill((<unsigned char*>source)[0] if mask else (<double*>source)[0], <double*>out, n)


cdef inline void _spread(real* source, Py_ssize_t size, Py_ssize_t times, Py_ssize_t begin, real* out, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t at = begin // times % size, left = times - begin % times, i = 0, k
    while i < n:
        k = min(size - at if times == 1 else left, n - i)
        if times == 1:
            memcpy(out + i, source + at, k * sizeof(real))
            at = 0
        else:
            _fill(source[at], out + i, k)
            at = at + 1 if at + 1 < size else 0
        left = times
        i += k


cdef inline void spread(
    int letter, char* source, Py_ssize_t size, Py_ssize_t times, Py_ssize_t begin, char* out, Py_ssize_t n
) noexcept nogil:
    if letter == 102:
        _spread(<float*>source, size, times, begin, <float*>out, n)
    else:
        _spread(<double*>source, size, times, begin, <double*>out, n)


cdef inline void lane(int letter, int which, char* a, char* b, char* c, char* out, Py_ssize_t n) noexcept nogil:
    if letter == 102:
        tj_lane_float(which, <float*>a, <float*>b, <float*>c, <float*>out, n)
    else:
        tj_lane_double(which, <double*>a, <double*>b, <double*>c, <double*>out, n)
