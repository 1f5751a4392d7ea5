/* What belongs to the normal distribution, of float64: `operators/kernels/gaussian.py`'s tails, and its quantiles. */
#ifndef TJ_NORMAL
#define TJ_NORMAL
#include <math.h>
/* exp(x * x), of whose square nothing is lost: the first part's has 48 bits. */
static inline double tj_exp_of_square(double x) {
    double part = (float)x, rest = (x - part) * (x + part);
    return exp(part * part) * (1 + rest * (1 + rest / 2 * (1 + rest / 3)));
}
/* exp(x * x) erfc(x), from 10 on by its asymptotic series: NIST's Digital Library of Mathematical Functions, 7.12.1. */
static double tj_erfcx(double x) {
    double t, series = 1;
    int k;
    if (x < -27) { return INFINITY; }
    if (!(x > 10)) { return tj_exp_of_square(x) * erfc(x); }
    for (t = 1 / (x * x), k = 12; k > 0; k--) { series = 1 - (k - 0.5) * t * series; }
    return series / x * 0.56418958354775628695;
}
static double tj_log_ndtr(double x) {
    if (x < -1) { return log(tj_erfcx(x * -0.70710678118654752440) / 2) - x * x / 2; }
    return log1p(erfc(x * 0.70710678118654752440) / -2);
}
static inline double tj_of_powers(const double* c, int n, double x) {
    double found = c[0];
    int i;
    for (i = 1; i < n; i++) { found = found * x + c[i]; }
    return found;
}
/* What the distribution function gives p for, by the Cephes library's rational functions, as in JAX. */
static double tj_ndtri(double p) {
    static const double p0[] = {
        -5.99633501014107895267e1, 9.80010754185999661536e1, -5.66762857469070293439e1, 1.39312609387279679503e1, -1.23916583867381258016
    };
    static const double q0[] = {
        1, 1.95448858338141759834, 4.67627912898881538453, 8.63602421390890590575e1, -2.25462687854119370527e2, 2.00260212380060660359e2,
        -8.20372256168333339912e1, 1.59056225126211695515e1, -1.18331621121330003142
    };
    static const double p1[] = {
        4.05544892305962419923, 3.15251094599893866154e1, 5.71628192246421288162e1, 4.40805073893200834700e1, 1.46849561928858024014e1,
        2.18663306850790267539, -1.40256079171354495875e-1, -3.50424626827848203418e-2, -8.57456785154685413611e-4
    };
    static const double q1[] = {
        1, 1.57799883256466749731e1, 4.53907635128879210584e1, 4.13172038254672030440e1, 1.50425385692907503408e1, 2.50464946208309415979,
        -1.42182922854787788574e-1, -3.80806407691578277194e-2, -9.33259480895457427372e-4
    };
    static const double p2[] = {
        3.23774891776946035970, 6.91522889068984211695, 3.93881025292474443415, 1.33303460815807542389, 2.01485389549179081538e-1,
        1.23716634817820021358e-2, 3.01581553508235416007e-4, 2.65806974686737550832e-6, 6.23974539184983293730e-9
    };
    static const double q2[] = {
        1, 6.02427039364742014255, 3.67983563856160859403, 1.37702099489081330271, 2.16236993594496635890e-1, 1.34204006088543189037e-2,
        3.28014464682127739104e-4, 2.89247864745380683936e-6, 6.79019408009981274425e-9
    };
    int upper = p > 0.86466471676338730811; /* 1 - exp(-2) */
    double y = upper ? 1 - p : p, z, found;
    if (!(p > 0 && p < 1)) { return p == 0 ? -INFINITY : p == 1 ? INFINITY : NAN; }
    if (y > 0.13533528323661269189) {
        y -= 0.5, z = y * y;
        return (y + y * z * (tj_of_powers(p0, 5, z) / tj_of_powers(q0, 9, z))) * 2.50662827463100050242;
    }
    z = sqrt(-2 * log(y)), y = 1 / z;
    found = z - log(z) * y - (z < 8 ? tj_of_powers(p1, 9, y) / tj_of_powers(q1, 9, y) : tj_of_powers(p2, 9, y) / tj_of_powers(q2, 9, y)) * y;
    return upper ? found : -found;
}
static double tj_entropy(double x) { return x > 0 ? -x * log(x) : x == 0 ? 0 : x < 0 ? -INFINITY : x; }
#endif
