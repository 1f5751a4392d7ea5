from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_IsContiguous, PyBuffer_Release
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t

from torchgrad_jax.runtime.native cimport arrays, sharing

# Reductions of contiguous arrays: NumPy takes three to ten times as long for the largest elements of rows, and for rows that are short, and XLA for any.
cdef extern from *:
    """
    enum { TJ_SUM, TJ_LARGEST, TJ_SMALLEST, TJ_PRODUCT };
    /* Of which elements: integers are added as they overflow, booleans are numbers. */
    enum { TJ_SINGLES, TJ_DOUBLES, TJ_INTEGERS, TJ_BOOLEANS };
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
    #define TJ_FLOATS 1
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
    #undef TJ_FLOATS
    #define TJ_FLOATS 0
    #define TJ_REAL uint64_t
    #define TJ_NAMED(name) name##_integers
    #include "torchgrad_jax/runtime/native/reduce.h"
    #undef TJ_REAL
    #undef TJ_NAMED
    #define TJ_REAL unsigned char
    #define TJ_NAMED(name) name##_booleans
    #include "torchgrad_jax/runtime/native/reduce.h"
    #undef TJ_REAL
    #undef TJ_NAMED
    #undef TJ_FLOATS

    static void tj_reduce_to_parts(const tj_call* call, int which, int kind, const void* x, void* out, int64_t outer, int64_t n, int64_t inner, int64_t parts) {
        int64_t chunks = tj_pieces(inner, TJ_COLUMNS), length = tj_pieces(n, parts);
        tj_reduction r = {x, out, n, inner, parts, length, chunks, outer * parts * chunks, 1, which};
        r.together = tj_pieces(TJ_REDUCED, length * (inner < TJ_COLUMNS ? inner : TJ_COLUMNS));
        static void (*const pieces[])(const void*, int64_t, tj_hand*) = {
            tj_reduce_piece_single, tj_reduce_piece_double, tj_reduce_piece_integers, tj_reduce_piece_booleans};
        tj_do(call, pieces[kind], &r, tj_pieces(r.units, r.together), outer * n * inner < TJ_REDUCED_ALONE);
    }
    /* What is large, of which little is made, is cut into parts. Returns whether there was memory for them. */
    static int tj_reduce(const tj_call* call, int which, int kind, const void* x, void* out, int64_t outer, int64_t n, int64_t inner) {
        int64_t parts = 1;
        void* made;
        if (n == 1) { inner *= outer, outer = 1; }
        if (outer * tj_pieces(inner, TJ_COLUMNS) < TJ_CUTS && outer * n * inner >= TJ_REDUCED_ALONE && n >= TJ_CUTS * TJ_CUTS) {
            parts = tj_pieces(n, tj_pieces(n, TJ_CUTS));
        }
        if (parts == 1) {
            tj_reduce_to_parts(call, which, kind, x, out, outer, n, inner, 1);
            return 1;
        }
        made = malloc((size_t)(outer * parts * inner * (kind == TJ_BOOLEANS ? 1 : kind == TJ_SINGLES ? 4 : 8)));
        if (!made) { return 0; }
        tj_reduce_to_parts(call, which, kind, x, made, outer, n, inner, parts);
        tj_reduce_to_parts(call, which, kind, made, out, outer, parts, inner, 1);
        free(made);
        return 1;
    }
    static int tj_reduce_unlocked(int which, int kind, const void* x, void* out, int64_t outer, int64_t n, int64_t inner) {
        int made;
        if (outer * n * inner < TJ_REDUCED) { return tj_reduce(0, which, kind, x, out, outer, n, inner); }
        Py_BEGIN_ALLOW_THREADS
        made = tj_reduce(0, which, kind, x, out, outer, n, inner);
        Py_END_ALLOW_THREADS
        return made;
    }
    static int tj_reducing_minor;
    /* how: what, whether of float64, and the three sizes; and those of what is reduced once more then. */
    static void* tj_reduce_for_xla(tj_call* call) {
        const int64_t* how;
        const void* x;
        void *out, *between;
        if (tj_is_asked(call, tj_reducing_minor)) { return 0; }
        how = (const int64_t*)((const tj_numbers*)call->attributes.items[0])->values;
        x = ((const tj_buffer*)call->operands.items[0])->data;
        out = ((const tj_buffer*)call->results.items[0])->data;
        between = how[6] == 1 ? out : malloc((size_t)(how[2] * how[4] * (how[1] ? 8 : 4)));
        if (!between || !tj_reduce(call, (int)how[0], (int)how[1], x, between, how[2], how[3], how[4])) { abort(); }
        if (between != out) {
            if (!tj_reduce(call, (int)how[0], (int)how[1], between, out, how[5], how[6], how[7])) { abort(); }
            free(between);
        }
        return 0;
    }
    static void* tj_reducer(int minor) {
        tj_reducing_minor = minor;
        return (void*)&tj_reduce_for_xla;
    }
    """
    enum: TJ_SUM, TJ_LARGEST, TJ_SMALLEST, TJ_SINGLES, TJ_DOUBLES, TJ_INTEGERS, TJ_BOOLEANS
    void* tj_reducer(int minor) noexcept
    int tj_reduce_unlocked(int which, int kind, const void* x, void* out, int64_t outer, int64_t n, int64_t inner) noexcept


cdef inline object handler(int minor):
    return PyCapsule_New(tj_reducer(minor), NULL, NULL)


# Of integers there are sums, of booleans extremes. -1 for what there is not.
cdef inline int _kind(Py_buffer* given, int which) noexcept:
    cdef char letter = given.format[0]
    if given.format[1] != 0:
        return -1
    if letter == c"f" or letter == c"d":
        return TJ_SINGLES if letter == c"f" else TJ_DOUBLES
    if (letter == c"l" or letter == c"q") and given.itemsize == 8:
        return TJ_INTEGERS if which == TJ_SUM else -1
    return TJ_BOOLEANS if letter == c"?" and (which == TJ_LARGEST or which == TJ_SMALLEST) else -1


cdef inline bint reduce(object x, object out, int which, int first, int after) except *:
    cdef Py_buffer given, made
    cdef int64_t outer = 1, n = 1, inner = 1
    cdef int d, kind
    cdef bint done = False
    arrays.view(x, &given, PyBUF_STRIDES | PyBUF_FORMAT)
    try:
        kind = _kind(&given, which)
        if kind < 0 or not PyBuffer_IsContiguous(&given, b"C"):
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
        done = tj_reduce_unlocked(which, kind, given.buf, made.buf, outer, n, inner)
        PyBuffer_Release(&made)
    finally:
        PyBuffer_Release(&given)
    return done
