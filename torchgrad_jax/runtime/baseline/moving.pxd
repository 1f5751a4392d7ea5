from cpython.buffer cimport PyBUF_ANY_CONTIGUOUS, PyBUF_STRIDED_RO, PyBUF_WRITABLE, PyBuffer_Release

from libc.stdint cimport int64_t

from torchgrad_jax.runtime.native cimport arrays
from torchgrad_jax.runtime.native.handlers cimport share
from torchgrad_jax.runtime.native.sharing cimport tj_hand

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
    #include "torchgrad_jax/runtime/native/gathering.h"
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
    /* A copy of an array into one piece, or, if `apart`, out of one; and where its first dimension of more than one part begins to be cut: `rows` of
       these are a piece, each of which has so many bytes in what lies in one piece. */
    typedef struct {
        const char* source;
        char* to;
        const Py_ssize_t *shape, *strides;
        Py_ssize_t size, rows, row;
        int ndim, apart, cut;
    } tj_copies;
    /* Whether a part begins or ends within what is in one piece. */
    static int tj_meet(const tj_copies* c, Py_ssize_t length) {
        const char *low = c->to, *high = c->to + c->size;
        int d;
        for (d = 0; d < c->ndim; d++) {
            Py_ssize_t reach = (c->shape[d] - 1) * c->strides[d];
            if (reach < 0) { low += reach; } else { high += reach; }
        }
        return c->source < high && low < c->source + length;
    }
    static void tj_copy_whole(const tj_copies* c) {
        if (c->apart) { tj_into_part(c->source, c->to, c->ndim, c->shape, c->strides, c->size); }
        else { tj_move(c->source, c->to, c->ndim, c->shape, c->strides, c->size); }
    }
    /* How many pieces it has. What is turned is so in tiles. */
    static int64_t tj_copies_of(tj_copies* c, Py_ssize_t bytes) {
        int d;
        for (c->cut = 0; c->cut < c->ndim && c->shape[c->cut] == 1; c->cut++) {}
        if (c->cut >= c->ndim || !c->shape[c->cut]) { return 1; }
        c->row = c->size;
        for (d = c->cut + 1; d < c->ndim; d++) { c->row *= c->shape[d]; }
        if (!c->row) { return 1; }
        c->rows = (bytes + c->row - 1) / c->row;
        if (c->shape[c->cut] > 2 * TJ_SIDE) { c->rows = (c->rows + TJ_SIDE - 1) / TJ_SIDE * TJ_SIDE; }
        return (c->shape[c->cut] + c->rows - 1) / c->rows;
    }
    static void tj_copy_piece(const tj_copies* c, int64_t number) {
        Py_ssize_t shape[TJ_DIMENSIONS], begin = number * c->rows;
        tj_copies piece = *c;
        memcpy(shape, c->shape, c->ndim * sizeof(Py_ssize_t));
        shape[c->cut] = c->shape[c->cut] - begin < c->rows ? c->shape[c->cut] - begin : c->rows;
        piece.shape = shape;
        piece.source += begin * (c->apart ? c->row : c->strides[c->cut]);
        piece.to += begin * (c->apart ? c->strides[c->cut] : c->row);
        tj_copy_whole(&piece);
    }
    /* Whether an array's elements can be moved, and are of the same kind as another's. */
    static int tj_may_move(PyObject* array, PyObject* like) {
        PyArray_Descr* kind;
        if (!tj_is_array(array) || !PyArray_CHKFLAGS((PyArrayObject*)array, NPY_ARRAY_ALIGNED)) { return 0; }
        kind = PyArray_DESCR((PyArrayObject*)array);
        if (kind != PyArray_DESCR((PyArrayObject*)like) || PyDataType_REFCHK(kind)) { return 0; }
        switch (PyDataType_ELSIZE(kind)) { case 1: case 2: case 4: case 8: case 16: return 1; default: return 0; }
    }
    /* Whether what has the same place in the dimensions before the axis lies in one piece. */
    static int tj_in_pieces(PyArrayObject* a, int axis) {
        Py_ssize_t step = PyDataType_ELSIZE(PyArray_DESCR(a));
        int d;
        for (d = PyArray_NDIM(a) - 1; d >= axis; d--) {
            if (PyArray_DIM(a, d) != 1 && PyArray_STRIDE(a, d) != step) { return 0; }
            step *= PyArray_DIM(a, d);
        }
        return 1;
    }
    /* What does not lie in one piece, in pieces shorter than this, and in more than so many, is NumPy's. */
    enum { TJ_SHORT_PIECE = 64, TJ_FEW_PIECES = 16 };
    /* Arrays one after the other along an axis, or along a new one if `apart`. None where that is not for this, NULL with an exception. */
    static PyObject* tj_join(PyObject* const* arrays, Py_ssize_t count, Py_ssize_t axis, int apart) {
        PyArrayObject *first, *a;
        Py_ssize_t shape[TJ_DIMENSIONS + 1], at[TJ_DIMENSIONS], length = 0, outer = 1, inner, size, i, k;
        int ndim, d;
        PyObject* made;
        char* to;
        if (!count || !tj_is_array(arrays[0])) { Py_RETURN_NONE; }
        first = (PyArrayObject*)arrays[0];
        ndim = PyArray_NDIM(first);
        if (axis < 0) { axis += ndim + apart; }
        if (axis < 0 || axis >= ndim + apart || ndim >= TJ_DIMENSIONS) { Py_RETURN_NONE; }
        size = inner = PyDataType_ELSIZE(PyArray_DESCR(first));
        for (d = 0; d < ndim; d++) {
            if (d < axis) { outer *= PyArray_DIM(first, d); } else if (apart || d > axis) { inner *= PyArray_DIM(first, d); }
        }
        for (i = 0; i < count; i++) {
            a = (PyArrayObject*)arrays[i];
            if (!tj_may_move(arrays[i], arrays[0]) || PyArray_NDIM(a) != ndim) { Py_RETURN_NONE; }
            for (d = 0; d < ndim; d++) { if (PyArray_DIM(a, d) != PyArray_DIM(first, d) && (apart || d != axis)) { Py_RETURN_NONE; } }
            k = apart ? 1 : PyArray_DIM(a, axis);
            length += k;
            if (outer > TJ_FEW_PIECES && k * inner < TJ_SHORT_PIECE && !tj_in_pieces(a, (int)axis)) { Py_RETURN_NONE; }
        }
        for (d = 0; d < ndim + apart; d++) { shape[d] = d == axis ? length : PyArray_DIM(first, apart && d > axis ? d - 1 : d); }
        made = tj_empty_like(ndim + apart, shape, arrays[0]);
        if (!made || !outer || !inner) { return made; }
        to = (char*)PyArray_DATA((PyArrayObject*)made);
        for (i = 0; i < count; i++) {
            const char* from;
            Py_ssize_t piece, done;
            const npy_intp *dims, *strides;
            a = (PyArrayObject*)arrays[i];
            from = (const char*)PyArray_DATA(a);
            dims = PyArray_DIMS(a);
            strides = PyArray_STRIDES(a);
            piece = inner * (apart ? 1 : dims[axis]);
            if (PyArray_CHKFLAGS(a, NPY_ARRAY_C_CONTIGUOUS)) {
                if (piece) { tj_runs(from, piece, to, length * inner, outer, piece); }
            } else if (piece) {
                int runs = axis && tj_in_pieces(a, (int)axis);
                Py_ssize_t together = runs ? dims[axis - 1] : 1;
                for (d = 0; d < axis; d++) { at[d] = 0; }
                for (done = 0; done < outer; done += together) {
                    char* begin = to + done * length * inner;
                    if (runs) { tj_runs(from, strides[axis - 1], begin, length * inner, together, piece); }
                    else { tj_move(from, begin, ndim - (int)axis, (const Py_ssize_t*)dims + axis, (const Py_ssize_t*)strides + axis, size); }
                    for (d = (int)axis - 1 - runs; d >= 0; d--) {
                        from += strides[d];
                        if (++at[d] < dims[d]) { break; }
                        from -= strides[d] * dims[d];
                        at[d] = 0;
                    }
                }
            }
            to += piece;
        }
        return made;
    }
    static PyObject* tj_join_all(PyObject* given, Py_ssize_t axis, int apart) {
        if (!PyTuple_CheckExact(given) && !PyList_CheckExact(given)) { Py_RETURN_NONE; }
        return tj_join(PySequence_Fast_ITEMS(given), PySequence_Fast_GET_SIZE(given), axis, apart);
    }
    """
    ctypedef struct tj_copies:
        const char* source
        char* to
        const Py_ssize_t* shape
        const Py_ssize_t* strides
        Py_ssize_t size
        int ndim
        int apart
    object tj_join_all(object given, Py_ssize_t axis, bint apart)
    bint tj_meet(const tj_copies* copies, Py_ssize_t length) noexcept nogil
    void tj_copy_whole(const tj_copies* copies) noexcept nogil
    int64_t tj_copies_of(tj_copies* copies, Py_ssize_t bytes) noexcept nogil
    void tj_copy_piece(const tj_copies* copies, int64_t number) noexcept nogil


cdef enum:
    # From so many bytes on threads share what is put into a part, as they did what made it, and how many are a piece. By themselves they gain
    # nothing: half of it would be in another one's cache. From fewer on, if one is awake.
    SHARED = 524288
    SHARED_IF_NEAR = 131072
    PIECE = 65536


cdef inline void _piece(const void* copies, int64_t number, tj_hand* hand) noexcept nogil:
    tj_copy_piece(<const tj_copies*>copies, number)


cdef inline bint _copy(object array, int lies, object made, int asked, bint apart) except -1:
    cdef Py_buffer source
    cdef Py_buffer target
    cdef tj_copies copies
    cdef int64_t pieces
    cdef bint done
    arrays.view(array, &source, lies)
    try:
        arrays.view(made, &target, asked | PyBUF_WRITABLE)
    except BaseException:
        PyBuffer_Release(&source)
        raise
    copies.source, copies.to, copies.apart, copies.size = <char*>source.buf, <char*>target.buf, apart, source.itemsize
    copies.ndim = target.ndim if apart else source.ndim
    copies.shape = target.shape if apart else source.shape
    copies.strides = target.strides if apart else source.strides
    done = not apart or not tj_meet(&copies, source.len)
    pieces = tj_copies_of(&copies, PIECE) if apart and source.len >= SHARED_IF_NEAR else 1
    if not done:
        pass
    elif pieces < 2:
        tj_copy_whole(&copies)
    else:
        share(_piece, &copies, pieces, source.len < SHARED)
    PyBuffer_Release(&target)
    PyBuffer_Release(&source)
    return done


cdef inline bint move(object array, object made) except -1:
    return _copy(array, PyBUF_STRIDED_RO, made, PyBUF_ANY_CONTIGUOUS, False)


cdef inline bint put(object array, object part) except -1:
    return _copy(array, PyBUF_ANY_CONTIGUOUS, part, PyBUF_STRIDED_RO, True)


cdef inline object join(object given, Py_ssize_t axis, bint apart):
    return tj_join_all(given, axis, apart)
