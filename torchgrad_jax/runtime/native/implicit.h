/* How samples move with the parameters that they were drawn by (`operators/kernels/implicit.py`), of float64. Equations are those of NIST's Digital
   Library of Mathematical Functions. */
#ifndef TJ_IMPLICIT
#define TJ_IMPLICIT
#include <math.h>
#include "gammas.h"
enum { TJ_MOST_STEPS = 100000 };
/* A gamma sample of rate 1 by its concentration: with P its distribution and p the density, -P' / p. Up to where most samples are by the series of P
   (8.7.1), as a p R / x with R = 1 + x / (a + 1) + ..., where nothing cancels for small a; beyond by the continued fraction of 1 - P, as in
   `tj_gamma_upper_far`, whose derivative by a is carried along. */
static double tj_gamma_moves(double a, double x, double least) {
    double found = 1, by_a = 0;
    int n;
    if (!(a > 0 && x >= 0) || isinf(a) || isinf(x)) { return NAN; }
    if (x == 0) { return 0; }
    if (x <= 1 || x < a + 2 * sqrt(a)) {
        double term = 1, term_by_a = 0;
        for (n = 1; n < TJ_MOST_STEPS; n++) {
            double inverse = 1 / (a + n);
            term *= x * inverse, term_by_a = (term_by_a * x - term) * inverse;
            found += term, by_a += term_by_a;
            if (term <= least * found && fabs(term_by_a) <= least * fabs(by_a)) { break; }
        }
        return -x / a * (found * (log(x) - tj_digamma(a + 1)) + by_a);
    } else {
        double y = 1 - a, z = x + y + 1, p2 = 1, q2 = x, p1 = x + 1, q1 = z * x, dp2 = 0, dq2 = 0, dp1 = 0, dq1 = -x;
        found = p1 / q1, by_a = -found * dq1 / q1;
        for (n = 1; n < TJ_MOST_STEPS; n++) {
            double p, q, dp, dq, next, next_by_a;
            y += 1, z += 2;
            p = p1 * z - p2 * y * n, q = q1 * z - q2 * y * n;
            dp = dp1 * z - p1 - (dp2 * y - p2) * n, dq = dq1 * z - q1 - (dq2 * y - q2) * n;
            next = p / q, next_by_a = (dp - next * dq) / q;
            p2 = p1, p1 = p, q2 = q1, q1 = q, dp2 = dp1, dp1 = dp, dq2 = dq1, dq1 = dq;
            if (fabs(next - found) <= least * fabs(next) && fabs(next_by_a - by_a) <= least * fabs(next_by_a)) {
                found = next, by_a = next_by_a;
                break;
            }
            found = next, by_a = next_by_a;
            if (fabs(q) > 1e100) {
                p1 *= 1e-100, p2 *= 1e-100, q1 *= 1e-100, q2 *= 1e-100, dp1 *= 1e-100, dp2 *= 1e-100, dq1 *= 1e-100, dq2 *= 1e-100;
            }
        }
        return x * (found * (log(x) - tj_digamma(a)) + by_a);
    }
}
static double tj_not_zero(double x) { return fabs(x) < 1e-300 ? 1e-300 : x; }
/* A sample x of a beta distribution with the parameters a and total - a by a, over 1 - x: by Lentz's algorithm for the continued fraction of the
   incomplete beta function (8.17.22), of the tail in which it converges fast, with its derivative by a carried along. */
static double tj_beta_moves(double x, double a, double total, double least) {
    double b = total - a, drift = log(x) + tj_digamma(total), p, q, at, dp, dq, c = 1, dc = 0, d, dd, h, dh;
    int lower = x < (a + 1) / (total + 2), m, half;
    if (!(a > 0 && b > 0 && x >= 0 && x <= 1) || isinf(total)) { return NAN; }
    if (x == 0) { return 0; }
    p = lower ? a : b, q = lower ? b : a, at = lower ? x : 1 - x, dp = lower, dq = !lower;
    d = 1 / tj_not_zero(1 - (p + q) * at / (p + 1));
    dd = d * d * at * (1 - (p + q) * dp / (p + 1)) / (p + 1);
    h = d, dh = dd;
    for (m = 1; m < TJ_MOST_STEPS; m++) {
        double last = h, last_dh = dh, scale;
        for (half = 0; half < 2; half++) {
            double under = p + 2 * m, beside = half ? under + 1 : under - 1, ratio = at / (under * beside);
            double number = half ? -(p + m) * (p + q + m) * ratio : m * (q - m) * ratio;
            double moves = (half ? -(dp * (p + q + m) + p + m) * ratio : m * dq * ratio) - number * dp * (1 / under + 1 / beside);
            double below = tj_not_zero(1 + number * d), above = tj_not_zero(1 + number / c);
            dd = -(moves * d + number * dd) / (below * below), d = 1 / below;
            dc = (moves - number * dc / c) / c, c = above;
            dh = dh * c * d + h * (dc * d + c * dd), h *= c * d;
        }
        scale = least * (fabs(h) + fabs(dh));
        if (fabs(h - last) <= scale && fabs(dh - last_dh) <= 10 * scale) { break; }
    }
    return lower ? -x / a * (h * (drift - tj_digamma(a + 1)) + dh) : x / b * (h * (drift - tj_digamma(a)) + dh);
}
static double tj_gamma_sample(double a, double x) { return tj_gamma_moves(a, x, 1e-17); }
static double tj_beta_sample(double x, double a, double total) { return tj_beta_moves(x, a, total, 1e-15); }
/* Rounded to float32. */
static double tj_gamma_sample_single(double a, double x) { return tj_gamma_moves(a, x, 1e-10); }
static double tj_beta_sample_single(double x, double a, double total) { return tj_beta_moves(x, a, total, 1e-10); }
#endif
