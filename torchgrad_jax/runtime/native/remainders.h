/* Remainders and what else takes the bits of a number: exact, and to be vectorised. Included for each TJ_REAL. TJ_BITS: integers as long. */
#ifndef TJ_REMAINDERS
#define TJ_REMAINDERS
#define TJ_RESTS 512
/* x = whole * y + rest. In float64 whole has 28 bits at most, and the product 52. */
static inline float tj_rest_single(float x, float y) {
    double whole = (double)(int)((double)x / (double)y);
    return whole == 0 ? x : copysignf((float)((double)x - whole * (double)y), x);
}
/* Both products are exact, as y's parts have 26 and 27 bits and whole has 26; what is left of x is so by Sterbenz's lemma, which asks for y itself
   where whole is 1. The quotient may have been rounded up to a whole number. */
static inline double tj_rest_double(double x, double y) {
    double size = fabs(x), by = fabs(y), whole = (double)(int)(size / by), part, found;
    int64_t bits;
    memcpy(&bits, &by, 8);
    bits = bits >> 27 << 27;
    memcpy(&part, &bits, 8);
    part = whole < 2 ? by : part;
    found = (size - whole * part) - whole * (by - part);
    found = found < 0 ? found + by : found;
    return whole == 0 ? x : copysign(found, x);
}
#endif
#define TJ_FUNCTION(name) TJ_NAMED(tj_##name)
/* Whether `tj_rest` knows the remainder: the whole part of the quotient is short enough for a product that is not rounded. False for nan. */
static inline int TJ_FUNCTION(near)(TJ_REAL x, TJ_REAL y) {
    return (TJ_MAGNITUDE(x) < TJ_MOST_TIMES * TJ_MAGNITUDE(y)) & (TJ_MAGNITUDE(x) < (TJ_REAL)TJ_MOST);
}
static inline TJ_REAL TJ_FUNCTION(modulo)(TJ_REAL y, TJ_REAL rest) {
    return (rest != 0) & ((rest < 0) != (y < 0)) ? rest + y : rest;
}
static inline TJ_REAL TJ_FUNCTION(floored)(TJ_REAL x, TJ_REAL y, TJ_REAL rest) {
    TJ_REAL quotient = (x - rest) / y, less = quotient - 1, exact = x / y, down;
    quotient = (rest != 0) & ((y < 0) != (rest < 0)) ? less : quotient;
    down = TJ_FLOOR(quotient);
    down = quotient - down > (TJ_REAL)0.5 ? down + 1 : down;
    quotient = quotient == 0 ? TJ_SIGNED((TJ_REAL)0, exact) : down;
    return y == 0 ? exact : quotient;
}
static inline TJ_REAL TJ_FUNCTION(next)(TJ_REAL x, TJ_REAL y) {
    TJ_BITS bits, towards, least = (TJ_BITS)1 << (8 * sizeof(TJ_REAL) - 1);
    TJ_REAL found;
    memcpy(&bits, &x, sizeof(x));
    memcpy(&towards, &y, sizeof(y));
    bits = x == 0 ? (towards & least) | 1 : (x < y) == (x > 0) ? bits + 1 : bits - 1;
    memcpy(&found, &bits, sizeof(x));
    return (x != x) | (y != y) ? x + y : x == y ? y : found;
}
/* 0 is larger than -0. */
static inline TJ_REAL TJ_FUNCTION(clamped)(TJ_REAL low, TJ_REAL x, TJ_REAL high) {
    TJ_REAL both = x + low, most = (x > low) | (x != x) ? x : low, less;
    most = (x == low) & (x == 0) ? both : most;
    both = -(-most - high);
    less = (most < high) | (most != most) ? most : high;
    return (most == high) & (most == 0) ? both : less;
}
/* relu6(x + 3): the sum is never -0. */
static inline TJ_REAL TJ_FUNCTION(hard)(TJ_REAL x) {
    TJ_REAL most = x + 3;
    most = (most > 0) | (most != most) ? most : 0;
    return (most < 6) | (most != most) ? most : 6;
}
/* What division leaves; with the rest of a formula in the same loop, numbers of two lengths, it takes twice the time. */
TJ_CLONES static void TJ_FUNCTION(rests)(const TJ_REAL* a, const TJ_REAL* b, TJ_REAL* out, Py_ssize_t n) {
    Py_ssize_t i;
    int far = 0;
    for (i = 0; i < n; i++) { far |= !TJ_FUNCTION(near)(a[i], b[i]); }
    if (far) {
        for (i = 0; i < n; i++) { out[i] = TJ_FUNCTION(near)(a[i], b[i]) ? TJ_FUNCTION(rest)(a[i], b[i]) : TJ_MODULO(a[i], b[i]); }
        return;
    }
    TJ_APART for (i = 0; i < n; i++) { out[i] = TJ_FUNCTION(rest)(a[i], b[i]); }
}
#define TJ_BY_RESTS(which, result) case which: while (n > 0) {                                                                \
    const Py_ssize_t now = n < TJ_RESTS ? n : TJ_RESTS;                                                                       \
    TJ_FUNCTION(rests)(a, b, rests, now);                                                                                     \
    TJ_APART for (i = 0; i < now; i++) { out[i] = (result); }                                                                 \
    a += now, b += now, out += now, n -= now;                                                                                 \
    } break;
TJ_CLONES static void TJ_FUNCTION(lane_of_bits)(
    int which, const TJ_REAL* a, const TJ_REAL* b, const TJ_REAL* c, TJ_REAL* out, Py_ssize_t n
) {
    TJ_REAL rests[TJ_RESTS];
    Py_ssize_t i;
    switch (which) {
        case 42: TJ_FUNCTION(rests)(a, b, out, n); break;
        TJ_BY_RESTS(43, TJ_FUNCTION(modulo)(b[i], rests[i]))
        TJ_BY_RESTS(44, TJ_FUNCTION(floored)(a[i], b[i], rests[i]))
        TJ_LOOP(45, TJ_WHOLE(a[i] / b[i]))
        TJ_LOOP(46, TJ_FUNCTION(next)(a[i], b[i]))
        TJ_LOOP(47, TJ_SIGNED(a[i], b[i]))
        TJ_LOOP(48, a[i] > 0 ? (TJ_REAL)1 : a[i] < 0 ? (TJ_REAL)-1 : (TJ_REAL)0)
        TJ_LOOP(49, a[i] - TJ_WHOLE(a[i]))
        TJ_LOOP(50, a[i] != a[i] ? a[i] : a[i] < 0 ? (TJ_REAL)3.141592653589793 : (TJ_REAL)0)
        TJ_LOOP(51, TJ_FUNCTION(clamped)(a[i], b[i], c[i]))
        TJ_LOOP(52, TJ_FUNCTION(hard)(a[i]) / 6)
        TJ_LOOP(53, a[i] * TJ_FUNCTION(hard)(a[i]) / 6)
    }
}
#undef TJ_BY_RESTS
#undef TJ_FUNCTION
