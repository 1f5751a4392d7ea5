from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_Release

from torchgrad_jax.runtime.native cimport arrays, sharing

# Of float32 all but the polynomials are computed in float64, and rounded.
cdef extern from *:
    """
    #include "torchgrad_jax/runtime/native/gammas.h"
    #include "torchgrad_jax/runtime/native/normal.h"
    #include "torchgrad_jax/runtime/native/bessel.h"
    #include "torchgrad_jax/runtime/native/incomplete.h"
    #include "torchgrad_jax/runtime/native/implicit.h"
    #define TJ_REAL float
    #define TJ_OF(name) name##_single
    #define TJ_M(name) name##f
    #include "torchgrad_jax/runtime/native/polynomials.h"
    #define TJ_REAL double
    #define TJ_OF(name) name##_double
    #define TJ_M(name) name
    #include "torchgrad_jax/runtime/native/polynomials.h"
    enum { TJ_SPECIALS_TOGETHER = 256, TJ_OF_ONE = 26, TJ_OF_TWO = 31, TJ_OF_THREE = 32, TJ_SPECIALS = 44 };
    /* y, z: of functions of two and three numbers. of_x, of_y, of_z: 1, or 0 where it is one number. */
    typedef struct {
        double (*one)(double);
        double (*two)(double, double);
        double (*three)(double, double, double);
        const void *x, *y, *z;
        void* out;
        int64_t size, of_x, of_y, of_z;
        int single, which;
    } tj_special;
    #define TJ_SPECIAL_PART(real) {                                                                                             \
        const real *x = (const real*)s->x, *y = (const real*)s->y, *z = (const real*)s->z;                                      \
        real* out = (real*)s->out;                                                                                              \
        if (s->one) { for (; i < end; i++) { out[i] = (real)s->one(x[i]); } }                                                   \
        else if (s->two) { for (; i < end; i++) { out[i] = (real)s->two(x[i * s->of_x], y[i * s->of_y]); } }                    \
        else { for (; i < end; i++) { out[i] = (real)s->three(x[i * s->of_x], y[i * s->of_y], z[i * s->of_z]); } }              \
    }
    static void tj_special_part(const void* work, int64_t part, tj_hand* hand) {
        const tj_special* s = (const tj_special*)work;
        int64_t i = part * TJ_SPECIALS_TOGETHER, end = i + TJ_SPECIALS_TOGETHER < s->size ? i + TJ_SPECIALS_TOGETHER : s->size;
        int polynomial = s->which - TJ_OF_THREE;
        (void)hand;
        if (polynomial >= 0) {
            if (s->single) { tj_polynomials_single(polynomial, (const float*)s->x, (const float*)s->y, (float*)s->out, i, end, s->of_x, s->of_y); }
            else { tj_polynomials_double(polynomial, (const double*)s->x, (const double*)s->y, (double*)s->out, i, end, s->of_x, s->of_y); }
        } else if (s->single) TJ_SPECIAL_PART(float) else TJ_SPECIAL_PART(double)
    }
    #define TJ_PAIR(name) {name, name##_single}
    /* y: NULL for functions of one number; z: for those of two. */
    static int tj_compute_special(
        int which, const void* x, const void* y, const void* z, void* out, int64_t size, int64_t of_x, int64_t of_y, int64_t of_z, int single
    ) {
        static double (*const of_one[][2])(double) = { /* of float64, and of float32 where that is another one */
            {tj_log_gamma}, {tj_digamma}, {tj_trigamma}, {erfc}, {tj_erf_inverse}, {erf}, {tj_entropy}, {tj_erfcx}, {tj_log_ndtr}, {tj_ndtri},
            TJ_PAIR(tj_i0), TJ_PAIR(tj_i0e), TJ_PAIR(tj_i1), TJ_PAIR(tj_i1e), TJ_PAIR(tj_j0), TJ_PAIR(tj_j1), TJ_PAIR(tj_y0), TJ_PAIR(tj_y1),
            TJ_PAIR(tj_modified_i0), TJ_PAIR(tj_modified_i1), TJ_PAIR(tj_k0), TJ_PAIR(tj_k1), TJ_PAIR(tj_scaled_k0), TJ_PAIR(tj_scaled_k1),
            TJ_PAIR(tj_airy), {tj_spherical}
        };
        static double (*const of_two[][2])(double, double) = {
            {tj_zeta}, {tj_polygamma}, TJ_PAIR(tj_igamma), TJ_PAIR(tj_igammac), TJ_PAIR(tj_gamma_sample)
        };
        static double (*const of_three[][2])(double, double, double) = {TJ_PAIR(tj_beta_sample)};
        tj_special s = {0, 0, 0, x, y, z, out, size, of_x, of_y, of_z, single, which};
        if (which < 0 || which >= TJ_SPECIALS || (which >= TJ_OF_ONE) != (y != 0)) { return 0; }
        if ((which >= TJ_OF_TWO && which < TJ_OF_THREE) != (z != 0)) { return 0; }
        if (which < TJ_OF_ONE) { s.one = of_one[which][single && of_one[which][1]]; }
        else if (which < TJ_OF_TWO) { s.two = of_two[which - TJ_OF_ONE][single && of_two[which - TJ_OF_ONE][1]]; }
        else if (which < TJ_OF_THREE) { s.three = of_three[which - TJ_OF_TWO][single && of_three[which - TJ_OF_TWO][1]]; }
        if (size <= 4 * TJ_SPECIALS_TOGETHER) {
            int64_t part;
            for (part = 0; part * TJ_SPECIALS_TOGETHER < size; part++) { tj_special_part(&s, part, 0); }
        } else { tj_share(tj_special_part, &s, tj_pieces(size, TJ_SPECIALS_TOGETHER)); }
        return 1;
    }
    """
    bint tj_compute_special(
        int which, const void* x, const void* y, const void* z, void* out, Py_ssize_t size, Py_ssize_t of_x, Py_ssize_t of_y, Py_ssize_t of_z,
        bint single
    )


cdef inline bint compute(object x, object y, object z, object out, int which) except *:
    cdef Py_buffer given, second, third, made
    cdef Py_ssize_t size
    cdef bint done = False, single
    arrays.view(x, &given, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
    second.buf, second.len = NULL, 0
    third.buf, third.len = NULL, 0
    try:
        if given.format[1] == 0 and (given.format[0] == c"f" or given.format[0] == c"d"):
            arrays.view(out, &made, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
            if y is not None:
                arrays.view(y, &second, PyBUF_C_CONTIGUOUS)
            if z is not None:
                arrays.view(z, &third, PyBUF_C_CONTIGUOUS)
            size, single = made.len // given.itemsize, given.format[0] == c"f"
            done = tj_compute_special(
                which, given.buf, second.buf, third.buf, made.buf, size, given.len == made.len, second.len == made.len, third.len == made.len,
                single
            )
            PyBuffer_Release(&made)
            if y is not None:
                PyBuffer_Release(&second)
            if z is not None:
                PyBuffer_Release(&third)
    finally:
        PyBuffer_Release(&given)
    return done
