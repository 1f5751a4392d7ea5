/* Functions of float64, right within one to two units of the last place, without branches, so that loops of them become vectors. Polynomials: the Cephes
   library's, but for the logarithm's, which are those of FreeBSD's msun. */
#ifndef TJ_FUNCTIONS_OF_DOUBLES
#define TJ_FUNCTIONS_OF_DOUBLES
/* What is added to a number, and taken off again, to have the nearest integer: 1.5 * 2^52. In between its bits end with that integer's. */
#define TJ_ROUNDING 6755399441055744.0
static inline uint64_t tj_bits_of_double(double x) {
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}
static inline double tj_double_of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, 8);
    return x;
}
/* 2 to a whole number from -1022 to 1023. */
static inline double tj_power_of_two_double(double whole) {
    return tj_double_of_bits(tj_bits_of_double(whole + (TJ_ROUNDING + 1023)) << 52);
}
static inline double tj_exp_double(double x) {
    double most = 710.0 < x ? 710.0 : x, kept = -746.0 > most ? -746.0 : most;
    double n = (kept * 1.4426950408889634074 + TJ_ROUNDING) - TJ_ROUNDING, half = (n * 0.5 + TJ_ROUNDING) - TJ_ROUNDING;
    double r = (kept - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6, z = r * r;
    double p = ((1.26177193074810590878e-4 * z + 3.02994407707441961300e-2) * z + 9.99999999999999999910e-1) * r;
    double q = ((3.00198505138664455042e-6 * z + 2.52448340349684104192e-3) * z + 2.27265548208155028766e-1) * z + 2;
    return (1 + 2 * (p / (q - p))) * tj_power_of_two_double(half) * tj_power_of_two_double(n - half);
}
static inline double tj_tanh_double(double x) {
    double size = fabs(x), z = x * x, far = 1 - 2 / (tj_exp_double(2 * size) + 1);
    double p = (-9.64399179425052238628e-1 * z - 9.92877231001918586564e1) * z - 1.61468768441708447952e3;
    double q = ((z + 1.12811678491632931402e2) * z + 2.23548839060100448583e3) * z + 4.84406305325125486048e3;
    return copysign(size < 0.625 ? size + size * z * (p / q) : far, x);
}
/* log(x) + rest, where rest is less than half a unit of x's last place, over x. */
static inline double tj_log_with_double(double x, double rest) {
    int tiny = x < 2.2250738585072014e-308;
    uint64_t bits = tj_bits_of_double(tiny ? x * 18014398509481984.0 : x);
    double e = tj_double_of_bits((bits >> 52) | 0x4330000000000000) - (tiny ? 4503599627371573.0 : 4503599627371519.0); /* 2^52 + 1023, and 54 more */
    double m = tj_double_of_bits((bits & 0xfffffffffffff) | 0x3ff0000000000000), f, s, z, r, square;
    int large = m > 1.41421356237309504880;
    e = large ? e + 1 : e;
    f = (large ? 0.5 * m : m) - 1;
    s = f / (2 + f);
    z = s * s;
    r = z * (6.666666666666735130e-01 + z * (3.999999999940941908e-01 + z * (2.857142874366239149e-01 + z * (2.222219843214978396e-01
        + z * (1.818357216161805012e-01 + z * (1.531383769920937332e-01 + z * 1.479819860511658591e-01))))));
    square = 0.5 * f * f;
    r = e * 6.93147180369123816490e-01 - ((square - (s * (square + r) + (e * 1.90821492927058770002e-10 + rest))) - f);
    return x > 0 ? (x < INFINITY ? r : x) : x == 0 ? -INFINITY : NAN;
}
static inline double tj_log1p_double(double x) {
    double u = 1 + x, found = tj_log_with_double(u, (x > 1 ? 1 - (u - x) : x - (u - 1)) / u);
    return u == 1 ? x : found; /* -0.0 too */
}
/* sin(x + quarters * pi / 2), as `functions.h` has it. */
#define TJ_NEAR_DOUBLE 1048576.0
static inline double tj_wave_double(double x, int quarters) {
    double shifted = x * 6.36619772367581343076e-1 + TJ_ROUNDING, n = shifted - TJ_ROUNDING;
    double r = (((x - n * 1.57079625129699707031) - n * 7.54978941586159635336e-8) - n * 5.39030285815811905290e-15) - n * 8.4784276603689e-32, z = r * r, found;
    double odd = (((((1.58962301576546568060e-10 * z - 2.50507477628578072866e-8) * z + 2.75573136213857245213e-6) * z - 1.98412698295895385996e-4) * z
                  + 8.33333333332211858878e-3) * z - 1.66666666666666307295e-1) * z * r + r;
    double even = (((((-1.13585365213876817300e-11 * z + 2.08757008419747316778e-9) * z - 2.75573141792967388112e-7) * z + 2.48015872888517045348e-5) * z
                   - 1.38888888888730564116e-3) * z + 4.16666666666665929218e-2) * (z * z) - 0.5 * z + 1;
    uint64_t place = tj_bits_of_double(shifted) + (uint64_t)quarters;
    found = place & 1 ? even : odd;
    return quarters == 0 && x == 0 ? x : place & 2 ? -found : found;
}
static inline double tj_wave_of_large_double(double x, int quarters) {
    return quarters ? cos(x) : sin(x);
}
#endif
