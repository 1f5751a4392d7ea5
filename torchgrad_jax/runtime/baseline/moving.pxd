from cpython.buffer cimport PyBUF_ANY_CONTIGUOUS, PyBUF_STRIDED_RO, PyBUF_WRITABLE, PyBuffer_Release

from torchgrad_jax.runtime.native cimport arrays

# What the function does is in `moving.py`. Dimensions that follow one another in memory are taken as one; runs are copied whole; and where the
# source's runs lie along another dimension than the result's, tiles of 16 x 16 are turned, each line of memory being read and written once.
cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define TJ_SIDE 16
    typedef struct { uint64_t one, other; } tj_wide;
    #define TJ_MOVES(name, type)                                                                                              \\
    static void name##_turned(const char* from, Py_ssize_t rows, Py_ssize_t step, Py_ssize_t columns, Py_ssize_t stride, char* to) { \\
        type tile[TJ_SIDE * TJ_SIDE];                                                                                         \\
        Py_ssize_t r, c, i, k;                                                                                                \\
        for (r = 0; r < rows; r += TJ_SIDE) {                                                                                 \\
            Py_ssize_t high = rows - r < TJ_SIDE ? rows - r : TJ_SIDE;                                                        \\
            for (c = 0; c < columns; c += TJ_SIDE) {                                                                          \\
                Py_ssize_t wide = columns - c < TJ_SIDE ? columns - c : TJ_SIDE;                                              \\
                for (k = 0; k < wide; k++) { memcpy(tile + k * TJ_SIDE, from + (c + k) * stride + r * sizeof(type), high * sizeof(type)); } \\
                for (i = 0; i < high; i++) {                                                                                  \\
                    type* line = (type*)(to + (r + i) * step) + c;                                                            \\
                    for (k = 0; k < wide; k++) { line[k] = tile[k * TJ_SIDE + i]; }                                           \\
                }                                                                                                             \\
            }                                                                                                                 \\
        }                                                                                                                     \\
    }                                                                                                                         \\
    static void name##_picked(const char* from, Py_ssize_t count, Py_ssize_t stride, char* to) {                              \\
        Py_ssize_t k;                                                                                                         \\
        type* made = (type*)to;                                                                                               \\
        const type first = *(const type*)from;                                                                                \\
        if (stride == 0) { for (k = 0; k < count; k++) { made[k] = first; } }                                                 \\
        else if (stride == 2 * (Py_ssize_t)sizeof(type)) { for (k = 0; k < count; k++) { made[k] = ((const type*)from)[2 * k]; } } \
        else if (stride == -(Py_ssize_t)sizeof(type)) { for (k = 0; k < count; k++) { made[k] = ((const type*)from)[-k]; } }  \\
        else { for (k = 0; k < count; k++) { made[k] = *(const type*)(from + k * stride); } }                                 \\
    }
    TJ_MOVES(tj_move1, uint8_t)
    TJ_MOVES(tj_move2, uint16_t)
    TJ_MOVES(tj_move4, uint32_t)
    TJ_MOVES(tj_move8, uint64_t)
    TJ_MOVES(tj_move16, tj_wide)
    #define TJ_BY_SIZE(size, call, ...)                                                                                       \\
        switch (size) {                                                                                                       \\
            case 1: tj_move1_##call(__VA_ARGS__); break;                                                                      \\
            case 2: tj_move2_##call(__VA_ARGS__); break;                                                                      \\
            case 4: tj_move4_##call(__VA_ARGS__); break;                                                                      \\
            case 8: tj_move8_##call(__VA_ARGS__); break;                                                                      \\
            default: tj_move16_##call(__VA_ARGS__);                                                                           \\
        }
    /* So many runs of so many bytes, each so far from the one before. */
    #define TJ_RUN(bytes) case bytes: for (i = 0; i < count; i++) { memcpy(to + i * to_step, from + i * step, bytes); } return;
    static void tj_runs(const char* from, Py_ssize_t step, char* to, Py_ssize_t to_step, Py_ssize_t count, Py_ssize_t run) {
        Py_ssize_t i;
        switch (run) {
            TJ_RUN(1) TJ_RUN(2) TJ_RUN(3) TJ_RUN(4) TJ_RUN(6) TJ_RUN(8) TJ_RUN(12) TJ_RUN(16) TJ_RUN(20) TJ_RUN(24) TJ_RUN(28) TJ_RUN(32) TJ_RUN(40) TJ_RUN(48)
            TJ_RUN(64)
            default: for (i = 0; i < count; i++) { memcpy(to + i * to_step, from + i * step, run); }
        }
    }
    #define TJ_DIMENSIONS 64
    /* Dimensions that follow one another in memory as one: how many there are then, -1 where one has nothing. */
    static int tj_together(int ndim, const Py_ssize_t* shape, const Py_ssize_t* strides, Py_ssize_t* count, Py_ssize_t* stride) {
        int n = 0, d;
        for (d = 0; d < ndim; d++) {
            if (shape[d] == 0) { return -1; }
            if (shape[d] == 1) { continue; }
            if (n && stride[n - 1] == strides[d] * shape[d]) { count[n - 1] *= shape[d]; stride[n - 1] = strides[d]; continue; }
            count[n] = shape[d];
            stride[n++] = strides[d];
        }
        return n;
    }
    static void tj_move(const char* from, char* to, int ndim, const Py_ssize_t* shape, const Py_ssize_t* strides, Py_ssize_t size) {
        Py_ssize_t count[TJ_DIMENSIONS + 2], stride[TJ_DIMENSIONS + 2], step[TJ_DIMENSIONS + 2], at[TJ_DIMENSIONS + 2], i, k;
        int n = tj_together(ndim, shape, strides, count, stride), d, last, next, outer = 0, order[TJ_DIMENSIONS + 2];
        if (n < 0) { return; }
        while (n < 2) {  /* as many as the two inner loops are of */
            for (d = n; d > 0; d--) { count[d] = count[d - 1]; stride[d] = stride[d - 1]; }
            count[0] = 1;
            stride[0] = size;
            n++;
        }
        last = n - 1;
        for (d = last, k = size; d >= 0; d--) { step[d] = k; k *= count[d]; }
        next = last - 1;
        for (d = 0; d < last; d++) {
            if (stride[last] == size ? count[d] > count[next] : stride[d] == size && count[d] > 1) { next = d; }
        }
        for (d = 0; d < last; d++) { if (d != next) { order[outer] = d; at[outer++] = 0; } }
        for (;;) {
            if (stride[last] == size) {
                tj_runs(from, stride[next], to, step[next], count[next], count[last] * size);
            } else if (stride[next] == size && count[next] > 1 && (stride[last] || count[last] < TJ_SIDE)) {
                TJ_BY_SIZE(size, turned, from, count[next], step[next], count[last], stride[last], to)
            } else {
                for (i = 0; i < count[next]; i++) {
                    TJ_BY_SIZE(size, picked, from + i * stride[next], count[last], stride[last], to + i * step[next])
                }
            }
            for (k = outer - 1; k >= 0; k--) {
                d = order[k];
                from += stride[d];
                to += step[d];
                if (++at[k] < count[d]) { break; }
                from -= stride[d] * count[d];
                to -= step[d] * count[d];
                at[k] = 0;
            }
            if (k < 0) { return; }
        }
    }
    /* What lies in one piece to where there are gaps between its parts. */
    static void tj_into_part(const char* from, char* to, int ndim, const Py_ssize_t* shape, const Py_ssize_t* strides, Py_ssize_t size) {
        Py_ssize_t count[TJ_DIMENSIONS + 1], stride[TJ_DIMENSIONS + 1], at[TJ_DIMENSIONS + 1], run = size;
        int n = tj_together(ndim, shape, strides, count, stride), d;
        if (n < 0) { return; }
        if (n && stride[n - 1] == size) { run *= count[--n]; }
        if (!n) {
            memcpy(to, from, run);
            return;
        }
        for (d = 0; d < n; d++) { at[d] = 0; }
        for (n--;;) {
            tj_runs(from, run, to, stride[n], count[n], run);
            from += run * count[n];
            for (d = n - 1; d >= 0; d--) {
                to += stride[d];
                if (++at[d] < count[d]) { break; }
                to -= stride[d] * count[d];
                at[d] = 0;
            }
            if (d < 0) { return; }
        }
    }
    """
    void tj_into_part(const char* source, char* to, int ndim, const Py_ssize_t* shape, const Py_ssize_t* strides, Py_ssize_t size) noexcept nogil
    void tj_move(const char* source, char* to, int ndim, const Py_ssize_t* shape, const Py_ssize_t* strides, Py_ssize_t size) noexcept nogil


cdef inline int _copy(object array, int lies, object made, int asked, bint apart) except -1:
    cdef Py_buffer source
    cdef Py_buffer target
    arrays.view(array, &source, lies)
    try:
        arrays.view(made, &target, asked | PyBUF_WRITABLE)
    except BaseException:
        PyBuffer_Release(&source)
        raise
    if apart:
        tj_into_part(<char*>source.buf, <char*>target.buf, target.ndim, target.shape, target.strides, target.itemsize)
    else:
        tj_move(<char*>source.buf, <char*>target.buf, source.ndim, source.shape, source.strides, source.itemsize)
    PyBuffer_Release(&target)
    PyBuffer_Release(&source)
    return 0


cdef inline int move(object array, object made) except -1:
    return _copy(array, PyBUF_STRIDED_RO, made, PyBUF_ANY_CONTIGUOUS, False)


cdef inline int put(object array, object part) except -1:
    return _copy(array, PyBUF_ANY_CONTIGUOUS, part, PyBUF_STRIDED_RO, True)
