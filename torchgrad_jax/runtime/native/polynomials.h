/* Orthogonal polynomials of a TJ_REAL, as `operators/special_functions/polynomials.py` has them: by recurrence, or by the angle. TJ_OF names what is
   made here, TJ_M the functions of <math.h>. */
static inline int64_t TJ_OF(tj_order)(TJ_REAL n) { return n > -2147483648.0 && n < 2147483648.0 ? (int64_t)n : -1; }
#define TJ_FAMILY(name, above, by_angle, first, next)                                                                       \
    static inline TJ_REAL TJ_OF(tj_##name)(TJ_REAL x, TJ_REAL order) {                                                      \
        const int64_t n = TJ_OF(tj_order)(order);                                                                           \
        TJ_REAL last, before = 1;                                                                                           \
        int64_t at;                                                                                                         \
        if (n <= 0) { return n == 0; }                                                                                      \
        if (n > above && TJ_M(fabs)(x) < 1) {                                                                               \
            const TJ_REAL angle = TJ_M(acos)(x), m = (TJ_REAL)n;                                                            \
            (void)angle, (void)m;                                                                                           \
            return by_angle;                                                                                                \
        }                                                                                                                   \
        last = first;                                                                                                       \
        for (at = 2; at <= n && last == last; at++) {                                                                       \
            const TJ_REAL k = (TJ_REAL)at, found = next;                                                                    \
            (void)k;                                                                                                        \
            before = last, last = found;                                                                                    \
        }                                                                                                                   \
        return last;                                                                                                        \
    }                                                                                                                       \
    static void TJ_OF(tj_all_##name)(const TJ_REAL* x, const TJ_REAL* n, TJ_REAL* out, int64_t begin, int64_t end, int64_t of_x, int64_t of_n) { \
        int64_t i;                                                                                                          \
        for (i = begin; i < end; i++) { out[i] = TJ_OF(tj_##name)(x[i * of_x], n[i * of_n]); }                              \
    }
#define TJ_SHIFTED(name)                                                                                                    \
    static void TJ_OF(tj_all_shifted_##name)(const TJ_REAL* x, const TJ_REAL* n, TJ_REAL* out, int64_t begin, int64_t end, int64_t of_x, int64_t of_n) { \
        int64_t i;                                                                                                          \
        for (i = begin; i < end; i++) { out[i] = TJ_OF(tj_##name)(2 * x[i * of_x] - 1, n[i * of_n]); }                      \
    }
#define TJ_NEVER INT64_MAX
#define TJ_HALF (TJ_REAL)0.5
TJ_FAMILY(t, 6, TJ_M(cos)(m * angle), x, 2 * x * last - before)
TJ_FAMILY(u, 8, TJ_M(sin)((m + 1) * angle) / TJ_M(sin)(angle), 2 * x, 2 * x * last - before)
TJ_FAMILY(v, 8, TJ_M(cos)((m + TJ_HALF) * angle) / TJ_M(cos)(angle / 2), 2 * x - 1, 2 * x * last - before)
TJ_FAMILY(w, 8, TJ_M(sin)((m + TJ_HALF) * angle) / TJ_M(sin)(angle / 2), 2 * x + 1, 2 * x * last - before)
TJ_FAMILY(h, TJ_NEVER, 0, 2 * x, 2 * x * last - 2 * (k - 1) * before)
TJ_FAMILY(he, TJ_NEVER, 0, x, x * last - (k - 1) * before)
TJ_FAMILY(l, TJ_NEVER, 0, 1 - x, ((2 * k - 1 - x) * last - (k - 1) * before) / k)
TJ_FAMILY(p, TJ_NEVER, 0, x, ((2 * k - 1) * x * last - (k - 1) * before) / k)
TJ_SHIFTED(t) TJ_SHIFTED(u) TJ_SHIFTED(v) TJ_SHIFTED(w)
static void TJ_OF(tj_polynomials)(int which, const TJ_REAL* x, const TJ_REAL* n, TJ_REAL* out, int64_t begin, int64_t end, int64_t of_x, int64_t of_n) {
    static void (*const all[])(const TJ_REAL*, const TJ_REAL*, TJ_REAL*, int64_t, int64_t, int64_t, int64_t) = {
        TJ_OF(tj_all_t), TJ_OF(tj_all_u), TJ_OF(tj_all_v), TJ_OF(tj_all_w), TJ_OF(tj_all_h), TJ_OF(tj_all_he), TJ_OF(tj_all_l), TJ_OF(tj_all_p),
        TJ_OF(tj_all_shifted_t), TJ_OF(tj_all_shifted_u), TJ_OF(tj_all_shifted_v), TJ_OF(tj_all_shifted_w)
    };
    all[which](x, n, out, begin, end, of_x, of_n);
}
#undef TJ_FAMILY
#undef TJ_SHIFTED
#undef TJ_NEVER
#undef TJ_HALF
#undef TJ_REAL
#undef TJ_OF
#undef TJ_M
