from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t

from torchgrad_jax.runtime.native.buffers cimport Buffers, hold, let_go

# What the function does is in `choosing.py`.
cdef extern from *:
    """
    #include <stdint.h>
    #define TJ_CHOOSING(type, most, condition, choose)                                                                        \\
    static int condition(const type* w, int64_t rows, int64_t n) {                                                            \\
        int64_t row, i;                                                                                                       \\
        int improper = 0, empty = 0;                                                                                          \\
        for (row = 0; row < rows; row++, w += n) {                                                                            \\
            int some = 0;                                                                                                     \\
            for (i = 0; i < n; i++) {                                                                                         \\
                improper |= !(w[i] >= 0 && w[i] <= most);                                                                     \\
                some |= w[i] > 0;                                                                                             \\
            }                                                                                                                 \\
            empty |= !some;                                                                                                   \\
        }                                                                                                                     \\
        return improper ? 1 : empty ? 2 : 0;                                                                                  \\
    }                                                                                                                         \\
    static void choose(const type* w, const double* exponential, int64_t rows, int64_t n, int64_t* places) {                  \\
        int64_t row, i;                                                                                                       \\
        for (row = 0; row < rows; row++, w += n, exponential += n) {                                                          \\
            type best = -1;                                                                                                   \\
            for (i = 0; i < n; i++) {                                                                                         \\
                const type key = w[i] / (type)exponential[i];                                                                 \\
                if (!(key <= best)) {  /* 0 / 0 is the greatest */                                                            \\
                    best = key;                                                                                               \\
                    places[row] = i;                                                                                          \\
                    if (key != key) { break; }                                                                                \\
                }                                                                                                             \\
            }                                                                                                                 \\
        }                                                                                                                     \\
    }
    TJ_CHOOSING(float, 3.402823466e38f, tj_condition_f, tj_choose_f)
    TJ_CHOOSING(double, 1.7976931348623157e308, tj_condition_d, tj_choose_d)
    """
    int tj_condition_f(const float* w, int64_t rows, int64_t n) noexcept nogil
    int tj_condition_d(const double* w, int64_t rows, int64_t n) noexcept nogil
    void tj_choose_f(const float* w, const double* exponential, int64_t rows, int64_t n, int64_t* places) noexcept nogil
    void tj_choose_d(const double* w, const double* exponential, int64_t rows, int64_t n, int64_t* places) noexcept nogil


cdef inline bint _is_double(const Py_buffer* weights) except *:
    if weights.ndim != 2 or weights.format[0] not in b"fd" or weights.format[1] != 0:
        raise BufferError
    return weights.format[0] == 100


cdef inline int condition(object weights) except -1:
    cdef Py_buffer given
    PyObject_GetBuffer(weights, &given, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
    try:
        if _is_double(&given):
            return tj_condition_d(<double*>given.buf, given.shape[0], given.shape[1])
        return tj_condition_f(<float*>given.buf, given.shape[0], given.shape[1])
    finally:
        PyBuffer_Release(&given)


cdef inline int choose(object weights, object exponential, object places) except -1:
    cdef Buffers arrays
    cdef Py_buffer* given = arrays.views
    arrays.held = 0
    try:
        hold(&arrays, (weights, exponential, places, places), 2)
        if given[1].len != 8 * given[0].shape[0] * given[0].shape[1] or given[2].len != 8 * given[0].shape[0]:
            raise BufferError
        if given[0].itemsize == 8:
            tj_choose_d(<double*>given[0].buf, <double*>given[1].buf, given[0].shape[0], given[0].shape[1], <int64_t*>given[2].buf)
        else:
            tj_choose_f(<float*>given[0].buf, <double*>given[1].buf, given[0].shape[0], given[0].shape[1], <int64_t*>given[2].buf)
    finally:
        let_go(&arrays)
    return 0
