/* Special functions of float64. */
#ifndef TJ_GAMMAS
#define TJ_GAMMAS
#include <math.h>
#define TJ_PI 3.14159265358979323846
/* The derivative of the gamma function's logarithm, NaN at its poles but 0, as PyTorch has it: for x < 0 by its reflection, else by steps up to where the first terms of its
   asymptotic series (NIST's Digital Library of Mathematical Functions, 5.5.2, 5.5.4 and 5.11.2) are enough. */
static double tj_digamma(double x) {
    double rest = 0, inverse, z;
    if (x <= 0) {
        if (floor(x) == x) { return x == 0 ? copysign(INFINITY, -x) : NAN; }
        rest = -TJ_PI / tan(TJ_PI * (x - rint(x)));
        x = 1 - x;
    }
    for (; x < 10; x += 1) { rest -= 1 / x; }
    inverse = 1 / x;
    z = inverse * inverse;
    return rest + (log(x) - inverse / 2 - z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12)))))));
}
/* The derivative of that (5.15.5, 5.15.6, 5.15.8): infinite at poles, but NaN at -inf. */
static double tj_trigamma(double x) {
    double rest = 0, inverse, z;
    if (x <= 0) {
        double sine = sin(TJ_PI * (x - rint(x)));
        return floor(x) == x ? (isinf(x) ? NAN : INFINITY) : TJ_PI / sine * (TJ_PI / sine) - tj_trigamma(1 - x);
    }
    for (; x < 10; x += 1) { rest += 1 / (x * x); }
    inverse = 1 / x;
    z = inverse * inverse;
    return rest + inverse + z / 2 + z * inverse * (1.0 / 6 - z * (1.0 / 30 - z * (1.0 / 42 - z * (1.0 / 30 - z * (5.0 / 66 - z * (691.0 / 2730 - z * 7 / 6))))));
}
static double tj_log_gamma(double x) {
    return isinf(x) || (x <= 0 && floor(x) == x) ? INFINITY : lgamma(x);
}
/* What erf gives x for: a rational function near 0 and one of the root of the logarithm elsewhere, right to 1e-4, and two of Halley's steps, of erfc
   where erf is near 1. (S. Winitzki, "A handy approximation for the error function and its inverse", 2008) */
static double tj_erf_inverse(double y) {
    double size = fabs(y), l, t, x;
    int i;
    if (!(size < 1)) { return size == 1 ? copysign(INFINITY, y) : NAN; }
    l = log1p(-size * size);
    t = 2 / (TJ_PI * 0.147) + l / 2;
    x = sqrt(sqrt(t * t - l / 0.147) - t);
    for (i = 0; i < 3; i++) {
        double error = size < 0.5 ? erf(x) - size : (1 - size) - erfc(x), slope = error / (1.12837916709551257390 * exp(-x * x));
        x -= slope / (1 + x * slope);
    }
    return copysign(size < 1e-8 ? size * 0.88622692545275801365 : x, y);
}
/* 1 / a ** x. */
static inline double tj_inverse_power(double a, double x) {
    double found = 1;
    int n;
    if (!(x >= 0 && x <= 64 && x == floor(x))) { return pow(a, -x); }
    for (n = (int)x; n; n >>= 1, a *= a) { found = n & 1 ? found * a : found; }
    return 1 / found;
}
/* The Hurwitz zeta function by Euler and Maclaurin's sum (25.11.5 with 2.10.1), from the tenth term on or the first of more than 9. Infinite at its poles;
   below 1 it has no value, nor, as in PyTorch, at an infinite q. */
static double tj_zeta(double x, double q) {
    /* Bernoulli's number 2 k over (2 k)! */
    static const double factors[] = {
        0.08333333333333333, -0.001388888888888889, 3.306878306878307e-05, -8.267195767195768e-07, 2.08767569878681e-08, -5.284190138687493e-10,
        1.3382536530684679e-11, -3.3896802963225827e-13, 8.586062056277845e-15, -2.174868698558062e-16, 5.5090028283602295e-18, -1.3954464685812522e-19
    };
    double sum, term, power;
    int i;
    if (x < 1 || (q == INFINITY && x != 1)) { return NAN; }
    if ((q <= 0 && q == floor(q)) || x == 1) { return INFINITY; }
    if (isinf(x) && fabs(q) <= 1) { return q == 1 ? 1 : INFINITY; }
    if (x != x || q != q || (q < 0 && x != floor(x))) { return NAN; }
    if (q > 1e8) { return (1 / (x - 1) + 1 / (2 * q)) * pow(q, 1 - x); }
    sum = tj_inverse_power(q, x);
    for (i = 0; i < 9 || q <= 9; i++) {
        q += 1, term = tj_inverse_power(q, x), sum += term;
        if (fabs(term) < 1e-17 * fabs(sum)) { return sum; }
    }
    sum += term * q / (x - 1) - term / 2;
    for (i = 0, power = term * x / q; i < 12; i++) {
        term = power * factors[i], sum += term;
        if (fabs(term) < 1e-17 * fabs(sum)) { break; }
        power *= (x + 2 * i + 1) * (x + 2 * i + 2) / (q * q);
    }
    return sum;
}
/* The derivative of order n, from 2 to `TJ_MOST_DERIVED`, of `tj_digamma` (5.15.1); left of 0 by the reflection, whose cotangent's derivatives are
   polynomials of it, each from the last by c' = -(1 + c ** 2). */
enum { TJ_MOST_DERIVED = 20 };
static double tj_polygamma(double x, double order) {
    double c[TJ_MOST_DERIVED + 2] = {0, 1}, made[TJ_MOST_DERIVED + 2], found = 0, size = order < 2 ? 1 : tgamma(order + 1), angle, cotangent;
    int n = (int)order, below = x < 0 && x != floor(x), i, k;
    double right = (n % 2 ? size : -size) * tj_zeta(order + 1, below ? 1 - x : x);
    if (!below) { return right; }
    for (i = 0; i < n; i++) {
        for (k = 0; k <= i + 2; k++) { made[k] = -(k <= i ? (k + 1) * c[k + 1] : 0) - (k > 1 ? (k - 1) * c[k - 1] : 0); }
        for (k = 0; k <= i + 2; k++) { c[k] = made[k]; }
    }
    angle = TJ_PI * (x - rint(x)), cotangent = cos(angle) / sin(angle);
    for (k = n + 1; k >= 0; k--) { found = found * cotangent + c[k]; }
    return (n % 2 ? -right : right) - pow(TJ_PI, order + 1) * found;
}
#endif
