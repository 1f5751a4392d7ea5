from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_Release

from torchgrad_jax.runtime.native cimport arrays, sharing

# Of float32 they are computed in float64, and rounded.
cdef extern from *:
    """
    #include "torchgrad_jax/runtime/native/gammas.h"
    typedef struct { double (*function)(double); const void* x; void* out; int64_t size; int single; } tj_special;
    enum { TJ_SPECIALS_TOGETHER = 256 };
    static void tj_special_part(const void* work, int64_t part, tj_hand* hand) {
        const tj_special* s = (const tj_special*)work;
        int64_t i = part * TJ_SPECIALS_TOGETHER, end = i + TJ_SPECIALS_TOGETHER < s->size ? i + TJ_SPECIALS_TOGETHER : s->size;
        (void)hand;
        if (s->single) { for (; i < end; i++) { ((float*)s->out)[i] = (float)s->function(((const float*)s->x)[i]); } }
        else { for (; i < end; i++) { ((double*)s->out)[i] = s->function(((const double*)s->x)[i]); } }
    }
    static int tj_compute_special(int which, const void* x, void* out, int64_t size, int single) {
        double (*const functions[])(double) = {tj_log_gamma, tj_digamma, tj_trigamma, erfc, tj_erf_inverse, erf};
        tj_special s = {0, x, out, size, single};
        if (which < 0 || which > 5) { return 0; }
        s.function = functions[which];
        if (size <= 4 * TJ_SPECIALS_TOGETHER) {
            int64_t part;
            for (part = 0; part * TJ_SPECIALS_TOGETHER < size; part++) { tj_special_part(&s, part, 0); }
        } else { tj_share(tj_special_part, &s, tj_pieces(size, TJ_SPECIALS_TOGETHER)); }
        return 1;
    }
    """
    bint tj_compute_special(int which, const void* x, void* out, Py_ssize_t size, bint single)


cdef inline bint compute(object x, object out, int which) except *:
    cdef Py_buffer given, made
    cdef bint done = False
    arrays.view(x, &given, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
    try:
        if given.format[1] == 0 and (given.format[0] == c"f" or given.format[0] == c"d"):
            arrays.view(out, &made, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
            done = tj_compute_special(which, given.buf, made.buf, given.len // given.itemsize, given.format[0] == c"f")
            PyBuffer_Release(&made)
    finally:
        PyBuffer_Release(&given)
    return done
