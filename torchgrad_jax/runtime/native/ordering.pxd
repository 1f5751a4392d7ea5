from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdint cimport int64_t

# What the function does is in `ordering.py`. An element becomes an integer that is ordered as it is; what is asked for are those with the least ones.
# Few are kept in their order while the others pass by; else all are merged, runs of twice the length at a time.
cdef extern from *:
    """
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    enum { TJ_FEW_PLACES = 64, TJ_MOST_MERGED = 4096 };
    #define TJ_KEYS(name, type, bits, made)                                                                                   \\
    static void name(const type* x, int64_t n, int64_t turned, int64_t* keys) {                                               \\
        int64_t i;                                                                                                            \\
        for (i = 0; i < n; i++) {                                                                                             \\
            bits b;                                                                                                           \\
            memcpy(&b, x + i, sizeof b);                                                                                      \\
            keys[i] = (int64_t)(made) ^ turned;                                                                               \\
        }                                                                                                                     \\
    }
    TJ_KEYS(tj_keys_f, float, int32_t, x[i] != x[i] ? INT64_MAX : x[i] == 0 ? 0 : b < 0 ? b ^ INT32_MAX : b)
    TJ_KEYS(tj_keys_d, double, int64_t, x[i] != x[i] ? INT64_MAX : x[i] == 0 ? 0 : b < 0 ? b ^ INT64_MAX : b)
    TJ_KEYS(tj_keys_i, int32_t, int32_t, b)
    TJ_KEYS(tj_keys_l, int64_t, int64_t, b)
    static void tj_keys(const char* x, char kind, int64_t n, int64_t turned, int64_t* keys) {
        if (kind == 'f') { tj_keys_f((const float*)x, n, turned, keys); }
        else if (kind == 'd') { tj_keys_d((const double*)x, n, turned, keys); }
        else if (kind == 'i') { tj_keys_i((const int32_t*)x, n, turned, keys); }
        else { tj_keys_l((const int64_t*)x, n, turned, keys); }
    }
    static void tj_few_least(const int64_t* keys, int64_t n, int64_t k, int64_t* places) {
        int64_t least[TJ_FEW_PLACES], i, j, held = 0;
        for (i = 0; i < n; i++) {
            int64_t key = keys[i];
            if (held == k) {
                if (key >= least[k - 1]) { continue; }
                held--;
            }
            for (j = held++; j > 0 && least[j - 1] > key; j--) {
                least[j] = least[j - 1];
                places[j] = places[j - 1];
            }
            least[j] = key;
            places[j] = i;
        }
    }
    static void tj_merge_all(const int64_t* keys, int64_t n, int64_t* places, int64_t* others) {
        int64_t length, i, *from = places, *to = others, *swapped;
        for (i = 0; i < n; i++) { places[i] = i; }
        for (length = 1; length < n; length *= 2) {
            for (i = 0; i < n; i += 2 * length) {
                int64_t a = i, middle = i + length < n ? i + length : n, b = middle, end = middle + length < n ? middle + length : n, at = i;
                while (a < middle && b < end) { to[at++] = keys[from[b]] < keys[from[a]] ? from[b++] : from[a++]; }
                while (a < middle) { to[at++] = from[a++]; }
                while (b < end) { to[at++] = from[b++]; }
            }
            swapped = from;
            from = to;
            to = swapped;
        }
        if (from != places) { memcpy(places, from, n * sizeof *places); }
    }
    /* Returns whether there was memory for it. */
    static int tj_order(const char* x, char kind, int size, int64_t rows, int64_t n, int64_t k, int largest, int64_t* places, char* values) {
        int64_t row, j, *room = (int64_t*)malloc((size_t)(3 * n) * sizeof *room), *keys = room, *merged = room + n, *others = room + 2 * n;
        if (!room) { return 0; }
        for (row = 0; row < rows; row++, x += n * size, places += k) {
            tj_keys(x, kind, n, largest ? -1 : 0, keys);
            if (k <= TJ_FEW_PLACES && k < n) { tj_few_least(keys, n, k, places); }
            else {
                tj_merge_all(keys, n, merged, others);
                memcpy(places, merged, k * sizeof *places);
            }
            if (!values) { continue; }
            for (j = 0; j < k; j++, values += size) { memcpy(values, x + places[j] * size, size); }
        }
        free(room);
        return 1;
    }
    """
    enum: TJ_FEW_PLACES, TJ_MOST_MERGED
    int tj_order(const char* x, char kind, int size, int64_t rows, int64_t n, int64_t k, int largest, int64_t* places, char* values) noexcept nogil


cdef inline bint order(object x, object places, object values, bint largest) except *:
    cdef Py_buffer given, made, read
    cdef int64_t n, k, rows
    cdef char kind
    cdef bint done = False
    PyObject_GetBuffer(x, &given, PyBUF_STRIDES | PyBUF_FORMAT)
    try:
        kind = given.format[0]
        if not given.ndim or not PyBuffer_IsContiguous(&given, b"C") or kind not in b"fdil" or given.format[1] != 0:
            return False
        n = given.shape[given.ndim - 1]
        if not given.len or given.itemsize != (4 if kind in b"fi" else 8):
            return False
        rows = given.len // given.itemsize // n
        PyObject_GetBuffer(places, &made, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        try:
            k = made.len // 8 // rows
            if made.len != 8 * k * rows or not 0 < k <= n or (n > TJ_MOST_MERGED and k > TJ_FEW_PLACES):
                return False
            if values is None:
                return tj_order(<char*>given.buf, kind, <int>given.itemsize, rows, n, k, largest, <int64_t*>made.buf, NULL)
            PyObject_GetBuffer(values, &read, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
            if read.len == given.itemsize * k * rows:
                done = tj_order(<char*>given.buf, kind, <int>given.itemsize, rows, n, k, largest, <int64_t*>made.buf, <char*>read.buf)
            PyBuffer_Release(&read)
        finally:
            PyBuffer_Release(&made)
    finally:
        PyBuffer_Release(&given)
    return done
