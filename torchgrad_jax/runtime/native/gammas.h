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
/* The derivative of that (5.15.5, 5.15.6, 5.15.8): infinite at poles. */
static double tj_trigamma(double x) {
    double rest = 0, inverse, z;
    if (x <= 0) {
        double sine = sin(TJ_PI * (x - rint(x)));
        return floor(x) == x ? INFINITY : TJ_PI / sine * (TJ_PI / sine) - tj_trigamma(1 - x);
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
#endif
