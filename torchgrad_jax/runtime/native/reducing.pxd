from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_IsContiguous, PyBuffer_Release
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t

from torchgrad_jax.runtime.native cimport arrays, sharing

# Reductions of contiguous arrays: NumPy takes three to ten times as long for the largest elements of rows, and for rows that are short, and XLA for any.
cdef extern from *:
    """
    enum { TJ_SUM, TJ_LARGEST, TJ_SMALLEST };
    /* How many columns are a unit, how many elements are a piece, how many are reduced alone, and into how many parts a few long rows are cut. */
    enum { TJ_COLUMNS = 512, TJ_REDUCED = 1 << 15, TJ_REDUCED_ALONE = 1 << 17, TJ_CUTS = 16 };
    /* x (outer, n, inner) becomes out (outer, parts, inner), each of `parts` made of `length` of the n. A unit is one part of one outer, of so many columns
       that there are `chunks`; `together` of the `units` are a piece. */
    typedef struct {
        const void* x;
        void* out;
        int64_t n, inner, parts, length, chunks, units, together;
        int which;
    } tj_reduction;
    #define TJ_REAL float
    #define TJ_NAMED(name) name##_single
    #include "torchgrad_jax/runtime/native/reduce.h"
    #undef TJ_REAL
    #undef TJ_NAMED
    #define TJ_REAL double
    #define TJ_NAMED(name) name##_double
    #include "torchgrad_jax/runtime/native/reduce.h"
    #undef TJ_REAL
    #undef TJ_NAMED

    static void tj_reduce_to_parts(const tj_call* call, int which, int is_double, const void* x, void* out, int64_t outer, int64_t n, int64_t inner, int64_t parts) {
        int64_t chunks = tj_pieces(inner, TJ_COLUMNS), length = tj_pieces(n, parts);
        tj_reduction r = {x, out, n, inner, parts, length, chunks, outer * parts * chunks, 1, which};
        r.together = tj_pieces(TJ_REDUCED, length * (inner < TJ_COLUMNS ? inner : TJ_COLUMNS));
        tj_do(call, is_double ? tj_reduce_piece_double : tj_reduce_piece_single, &r, tj_pieces(r.units, r.together), outer * n * inner < TJ_REDUCED_ALONE);
    }
    /* What is large, of which little is made, is cut into parts. Returns whether there was memory for them. */
    static int tj_reduce(const tj_call* call, int which, int is_double, const void* x, void* out, int64_t outer, int64_t n, int64_t inner) {
        int64_t parts = 1;
        void* made;
        if (outer * tj_pieces(inner, TJ_COLUMNS) < TJ_CUTS && outer * n * inner >= TJ_REDUCED_ALONE && n >= TJ_CUTS * TJ_CUTS) {
            parts = tj_pieces(n, tj_pieces(n, TJ_CUTS));
        }
        if (parts == 1) {
            tj_reduce_to_parts(call, which, is_double, x, out, outer, n, inner, 1);
            return 1;
        }
        made = malloc((size_t)(outer * parts * inner * (is_double ? 8 : 4)));
        if (!made) { return 0; }
        tj_reduce_to_parts(call, which, is_double, x, made, outer, n, inner, parts);
        tj_reduce_to_parts(call, which, is_double, made, out, outer, parts, inner, 1);
        free(made);
        return 1;
    }
    static int tj_reduce_unlocked(int which, int is_double, const void* x, void* out, int64_t outer, int64_t n, int64_t inner) {
        int made;
        if (outer * n * inner < TJ_REDUCED) { return tj_reduce(0, which, is_double, x, out, outer, n, inner); }
        Py_BEGIN_ALLOW_THREADS
        made = tj_reduce(0, which, is_double, x, out, outer, n, inner);
        Py_END_ALLOW_THREADS
        return made;
    }
    static int tj_reducing_minor;
    /* how: what, whether of float64, and the three sizes. */
    static void* tj_reduce_for_xla(tj_call* call) {
        const int64_t* how;
        if (tj_is_asked(call, tj_reducing_minor)) { return 0; }
        how = (const int64_t*)((const tj_numbers*)call->attributes.items[0])->values;
        if (!tj_reduce(call, (int)how[0], (int)how[1], ((const tj_buffer*)call->operands.items[0])->data, ((const tj_buffer*)call->results.items[0])->data,
                       how[2], how[3], how[4])) { abort(); }
        return 0;
    }
    static void* tj_reducer(int minor) {
        tj_reducing_minor = minor;
        return (void*)&tj_reduce_for_xla;
    }
    """
    void* tj_reducer(int minor) noexcept
    int tj_reduce_unlocked(int which, int is_double, const void* x, void* out, int64_t outer, int64_t n, int64_t inner) noexcept


cdef inline object handler(int minor):
    return PyCapsule_New(tj_reducer(minor), NULL, NULL)


cdef inline bint reduce(object x, object out, int which, int first, int after) except *:
    cdef Py_buffer given, made
    cdef int64_t outer = 1, n = 1, inner = 1
    cdef int d
    cdef bint done = False
    arrays.view(x, &given, PyBUF_STRIDES | PyBUF_FORMAT)
    try:
        if not PyBuffer_IsContiguous(&given, b"C") or given.format[0] not in b"fd" or given.format[1] != 0:
            return False
        for d in range(given.ndim):
            if d < first:
                outer *= given.shape[d]
            elif d < after:
                n *= given.shape[d]
            else:
                inner *= given.shape[d]
        if outer * n * inner == 0:
            return False
        arrays.view(out, &made, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        done = tj_reduce_unlocked(which, given.format[0] == 100, given.buf, made.buf, outer, n, inner)
        PyBuffer_Release(&made)
    finally:
        PyBuffer_Release(&given)
    return done
