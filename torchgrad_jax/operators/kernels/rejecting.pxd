from libc.stdint cimport int64_t

from torchgrad_jax.operators.kernels cimport box_muller, twister
from torchgrad_jax.runtime.native.buffers cimport Buffers, hold, let_go

# What `rejecting.py` says, in C: the same steps, but for the logarithm of gamma, which is the C library's, as PyTorch's is.
cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>
    #if defined(__GNUC__)
    #define TJ_DRAWN static inline __attribute__((always_inline))
    #else
    #define TJ_DRAWN static inline
    #endif
    /* Draws, whether there were any, and the normal sample that was made with the last one, if it is kept. */
    typedef struct { tj_twister* twister; double kept; int keeps, drawn; } tj_stream;
    TJ_DRAWN uint32_t tj_word(tj_twister* twister) {
        uint32_t y;
        if (twister->at >= TJ_WORDS) {
            tj_twist(twister->key);
            twister->at = 0;
        }
        y = twister->key[twister->at++];
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c5680u;
        y ^= (y << 15) & 0xefc60000u;
        return y ^ (y >> 18);
    }
    /* Of [0, 1). */
    TJ_DRAWN double tj_uniform(tj_stream* s) {
        uint64_t high = tj_word(s->twister), low = tj_word(s->twister);
        s->drawn = 1;
        return (double)(int64_t)((high << 32 | low) & 0x1fffffffffffffULL) * 1.1102230246251565e-16;
    }
    static void tj_draw_normals(const void* bits, float* out, int64_t n) {
        float tail[16];
        int64_t whole = n - n % 16;
        tj_draw(bits, 0, (char*)out, n, 4, 0, 0);
        if (whole < n) { tj_draw(bits, 0, (char*)tail, 16, 4, 0, 0); }
        tj_normals(out, out, whole / 16);
        if (whole < n) {
            tj_normals(tail, tail, 1);
            memcpy(out + n - 16, tail, sizeof tail);
        }
    }
    TJ_DRAWN double tj_normal(tj_stream* s) {
        double angle, radius;
        if (s->keeps) {
            s->keeps = 0;
            return s->kept;
        }
        angle = 6.283185307179586 * tj_uniform(s);
        radius = sqrt(-2.0 * log1p(-tj_uniform(s)));
        s->kept = radius * sin(angle);
        s->keeps = 1;
        return radius * cos(angle);
    }
    static double tj_cubed_normal(tj_stream* s, double d, double c) {
        for (;;) {
            double x = tj_normal(s), y = 1.0 + c * x, v, u, square;
            if (y <= 0) { continue; }
            v = y * y * y;
            u = 1.0 - tj_uniform(s);
            square = x * x;
            if (u < 1.0 - 0.0331 * square * square || !(log(u) >= 0.5 * square + d * (1.0 - v + log(v)))) { return v; }
        }
    }
    static double tj_gamma(tj_stream* s, double a, double d, double c, double exponent) {
        double scale;
        if (a == 0) { return 0; }
        scale = a < 1 ? pow(1.0 - tj_uniform(s), exponent) : 1.0;
        return scale * d * tj_cubed_normal(s, d, c);
    }
    static double tj_poisson(tj_stream* s, double rate) {
        if (!(rate > 0)) { return 0; }
        if (rate < 10) {
            double limit = exp(-rate), product = tj_uniform(s), count = 0;
            for (; product > limit; count++) { product *= tj_uniform(s); }
            return count;
        } else {
            double log_rate = log(rate), b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b;
            double inverse = 1.1239 + 1.1328 / (b - 3.4), most = 0.9277 - 3.6224 / (b - 2);
            for (;;) {
                double u = tj_uniform(s) - 0.5, v = tj_uniform(s), us = 0.5 - fabs(u), k = floor((2 * a / us + b) * u + rate + 0.43);
                if (us >= 0.07 && v <= most) { return k; }
                if (!(k >= 0) || (us < 0.013 && v > us)) { continue; }
                if (log(v) + log(inverse) - log(a / (us * us) + b) <= k * log_rate - rate - lgamma(k + 1)) { return k; }
            }
        }
    }
    static double tj_few_successes(tj_stream* s, double count, double p) {
        double log_failure = log1p(-p), waited = 0, successes = 0;
        for (;; successes++) {
            waited += ceil(log(tj_uniform(s)) / log_failure);
            if (!(waited <= count)) { return successes; }
        }
    }
    static double tj_stirling_tail(double k) {
        static const double tails[10] = {0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
            0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287};
        double square = (k + 1) * (k + 1);
        return k >= 0 && k <= 9 ? tails[(int)k] : (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
    }
    static double tj_many_successes(tj_stream* s, double count, double p) {
        double deviation = sqrt(count * p * (1 - p)), b = 1.15 + 2.53 * deviation, a = -0.0873 + 0.0248 * b + 0.01 * p, c = count * p + 0.5;
        double most = 0.92 - 4.2 / b, odds = p / (1 - p), alpha = (2.83 + 5.1 / b) * deviation, m = floor((count + 1) * p);
        for (;;) {
            double u = tj_uniform(s) - 0.5, v = tj_uniform(s), us = 0.5 - fabs(u), k = floor((2 * a / us + b) * u + c);
            if (us >= 0.07 && v <= most) { return k; }
            if (!(k >= 0) || k > count) { continue; }
            if (log(v * alpha / (a / (us * us) + b)) <=
                (m + 0.5) * log((m + 1) / (odds * (count - m + 1))) + (count + 1) * log((count - m + 1) / (count - k + 1))
                    + (k + 0.5) * log(odds * (count - k + 1) / (k + 1)) + tj_stirling_tail(m) + tj_stirling_tail(count - m) - tj_stirling_tail(k)
                    - tj_stirling_tail(count - k)) { return k; }
        }
    }
    static double tj_binomial(tj_stream* s, double count, double p) {
        if (count != count || p != p) { return count + p; }
        if (count <= 0 || p <= 0) { return 0; }
        if (p >= 1) { return count; }
        if (p > 0.5) { return count - tj_binomial(s, count, 1 - p); }
        return count * p >= 10 ? tj_many_successes(s, count, p) : tj_few_successes(s, count, p);
    }
    /* Indices by the inverse of a row's cumulative distribution: the sums are of the weights' type. 0, or what is wrong with the row, see there. */
    #define TJ_INVERTING(type, invert)                                                                                                \\
    static int invert(tj_stream* s, const type* row, int64_t n, int64_t* out, int64_t count, type* sums) {                            \\
        int64_t i, each;                                                                                                              \\
        type sum = 0;                                                                                                                 \\
        for (i = 0; i < n; i++) { if (!(row[i] >= 0)) { return 1; } }                                                                 \\
        for (i = 0; i < n; i++) { if (!(row[i] < INFINITY)) { return 2; } }                                                           \\
        for (i = 0; i < n; i++) { sums[i] = sum += row[i]; }                                                                          \\
        if (!(sum > 0)) { return 3; }                                                                                                 \\
        for (i = 0; i < n; i++) { sums[i] /= sum; }                                                                                   \\
        sums[n - 1] = 1;                                                                                                              \\
        for (each = 0; each < count; each++) {                                                                                        \\
            double u = tj_uniform(s);                                                                                                 \\
            int64_t first = 0, last = n - 1;                                                                                          \\
            while (first < last) {                                                                                                    \\
                int64_t middle = (first + last) / 2;                                                                                  \\
                if ((double)sums[middle] < u) { first = middle + 1; } else { last = middle; }                                         \\
            }                                                                                                                         \\
            out[each] = first;                                                                                                        \\
        }                                                                                                                             \\
        return 0;                                                                                                                     \\
    }
    TJ_INVERTING(float, tj_invert_f)
    TJ_INVERTING(double, tj_invert_d)
    """
    ctypedef struct tj_twister:
        pass
    ctypedef struct tj_bits:
        tj_twister* state
    ctypedef struct tj_stream:
        tj_twister* twister
        double kept
        bint keeps, drawn
    void tj_draw_normals(void* bits, float* out, int64_t n) noexcept nogil
    double tj_normal(tj_stream* s) noexcept nogil
    double tj_gamma(tj_stream* s, double a, double d, double c, double exponent) noexcept nogil
    double tj_poisson(tj_stream* s, double rate) noexcept nogil
    double tj_binomial(tj_stream* s, double count, double p) noexcept nogil
    int tj_invert_f(tj_stream* s, float* row, int64_t n, int64_t* out, int64_t count, float* sums) noexcept nogil
    int tj_invert_d(tj_stream* s, double* row, int64_t n, int64_t* out, int64_t count, double* sums) noexcept nogil


cdef inline int begin(object source, tj_stream* s) except -1:
    kept = source._next_normal
    s.twister = (<tj_bits*>twister._bits(source._bits)).state
    s.keeps = kept is not None
    s.kept = <double>kept if s.keeps else 0.0
    s.drawn = False
    return 0


cdef inline int end(object source, tj_stream* s) except -1:
    source._next_normal = s.kept if s.keeps else None
    if s.drawn:
        source.moved()
    return 0


# A sample of each of several numbers: of what kind, 0 to 3, as `stream`, `gammas`, `poissons` and `binomials` have them.
cdef inline int each(object source, tuple given, int kind) except -1:
    cdef Buffers arrays
    cdef Py_buffer* views = arrays.views
    cdef tj_stream s
    cdef Py_ssize_t i, count = len(given) - 2, n
    cdef double* out
    arrays.held = 0
    try:
        hold(&arrays, given, <int>count)
        n = views[count].len // 8
        for i in range(count + 1):
            if views[i].itemsize != 8 or views[i].len != 8 * n:
                raise BufferError
        begin(source, &s)
        out = <double*>views[count].buf
        for i in range(n):
            if kind == 0:
                out[i] = tj_normal(&s)
            elif kind == 1:
                out[i] = tj_gamma(
                    &s, (<double*>views[0].buf)[i], (<double*>views[1].buf)[i], (<double*>views[2].buf)[i], (<double*>views[3].buf)[i]
                )
            elif kind == 2:
                out[i] = tj_poisson(&s, (<double*>views[0].buf)[i])
            else:
                out[i] = tj_binomial(&s, (<double*>views[0].buf)[i], (<double*>views[1].buf)[i])
        end(source, &s)
    finally:
        let_go(&arrays)
    return 0


cdef inline int draw_normals(object source, object out) except -1:
    cdef Py_ssize_t n = len(out)
    if n < 16:
        raise BufferError
    tj_draw_normals(twister._bits(source), <float*>box_muller._memory(out, 4 * n, True), n)
    return 0


cdef inline int stream(object source, object out) except -1:
    return each(source, (out, out), 0)


cdef inline int gammas(object source, object concentration, object d, object c, object exponent, object out) except -1:
    return each(source, (concentration, d, c, exponent, out, out), 1)


cdef inline int poissons(object source, object rate, object out) except -1:
    return each(source, (rate, out, out), 2)


cdef inline int binomials(object source, object count, object probability, object out) except -1:
    return each(source, (count, probability, out, out), 3)


cdef inline int invert(object source, object rows, object places, object sums) except -1:
    cdef Buffers arrays
    cdef Py_buffer* views = arrays.views
    cdef tj_stream s
    cdef Py_ssize_t row = 0, n, count
    cdef int found = 0
    arrays.held = 0
    try:
        hold(&arrays, (rows, places, sums, sums), 1)
        if views[0].ndim != 2 or views[1].ndim != 2 or views[1].itemsize != 8 or views[1].shape[0] != views[0].shape[0]:
            raise BufferError
        n, count = views[0].shape[1], views[1].shape[1]
        if views[2].itemsize != views[0].itemsize or views[2].len != n * views[0].itemsize:
            raise BufferError
        begin(source, &s)
        while row < views[0].shape[0] and not found:
            if views[0].itemsize == 8:
                found = tj_invert_d(
                    &s, <double*>views[0].buf + row * n, n, <int64_t*>views[1].buf + row * count, count, <double*>views[2].buf
                )
            else:
                found = tj_invert_f(
                    &s, <float*>views[0].buf + row * n, n, <int64_t*>views[1].buf + row * count, count, <float*>views[2].buf
                )
            row += 1
        end(source, &s)
    finally:
        let_go(&arrays)
    return found
