/* Functions of float32, right within one to three units of the last place. Polynomials: the Cephes library's, but for `erf`'s, which are
   `baseline/special.py`'s own. */
#ifndef TJ_FUNCTIONS
#define TJ_FUNCTIONS
/* exp(r) - 1, where x = whole * log(2) + r and |r| is at most half of log(2). */
static inline float tj_exp_of_rest(float x, int* whole) {
    float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;  /* the nearest integer */
    float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r + 1.6666665459e-1f) * r
              + 5.0000001201e-1f;
    *whole = (int)n;
    return p * (r * r) + r;
}
/* 2 to a whole number from -126 to 127. */
static inline float tj_power_of_two(int whole) {
    int bits = (whole + 127) << 23;
    float found;
    memcpy(&found, &bits, 4);
    return found;
}
static inline float tj_exp(float x) {
    float most = 89.0f < x ? 89.0f : x, kept = -104.0f > most ? -104.0f : most;
    int whole, half;
    float found = tj_exp_of_rest(kept, &whole) + 1;
    half = whole >> 1;  /* as of all of it there may be no normal number */
    return found * tj_power_of_two(half) * tj_power_of_two(whole - half);
}
/* Of large x by exp(2 x), a normal number here: from 2 x = 30 on the result is 1. */
static inline float tj_tanh(float x) {
    float size = fabsf(x), z = x * x, twice = 2 * size, kept = 30.0f < twice ? 30.0f : twice, less, scale, far;
    float p = (((-5.70498872745e-3f * z + 2.06390887954e-2f) * z - 5.37397155531e-2f) * z + 1.33314422036e-1f) * z - 3.33332819422e-1f;
    int whole;
    less = tj_exp_of_rest(kept, &whole);
    scale = tj_power_of_two(whole);
    far = 1 - 2 / (less * scale + (scale + 1));
    return copysignf(size < 0.625f ? p * z * size + size : far, x);
}
/* See `baseline/special.py`, whose coefficients these are. */
#define TJ_EITHER(one, other) (near ? one : other)
static inline float tj_erf(float x) {
    float size = fabsf(x), far;
    int near = size < 1.0f;
    float v = near ? x * x : size;
    float p = (((((TJ_EITHER(7.853840995e-05f, 0.0001498499838f) * v + TJ_EITHER(-0.0008010187459f, -0.002469738525f)) * v
                  + TJ_EITHER(0.005188326984f, 0.01292589559f)) * v + TJ_EITHER(-0.02685381157f, -0.01137363301f)) * v
                + TJ_EITHER(0.1128358514f, -0.0614262548f)) * v + TJ_EITHER(-0.3761262582f, -0.14506065f)) * v
              + TJ_EITHER(1.128379166f, 1.000834728f);
    far = p * p;
    far = far * far;
    far = size >= 3.919205904006958f ? 1.0f : 1 - far * far;  /* of large x, gelu is x or 0 */
    return near ? x * p : copysignf(far, x);
}
#undef TJ_EITHER
/* log(x) + rest, where rest is less than half a unit of x's last place, over x. */
static inline float tj_log_with(float x, float rest) {
    float y = x < 1.17549435e-38f ? x * 8388608.0f : x, m, z, p, whole, found;
    int bits, e;
    memcpy(&bits, &y, 4);
    e = (bits >> 23) - (x < 1.17549435e-38f ? 149 : 126);
    bits = (bits & 0x7fffff) | 0x3f000000;
    memcpy(&m, &bits, 4);
    e = m < 0.707106781f ? e - 1 : e;
    m = m < 0.707106781f ? m + m - 1 : m - 1;
    z = m * m;
    whole = (float)e;
    p = (((((((7.0376836292e-2f * m - 1.1514610310e-1f) * m + 1.1676998740e-1f) * m - 1.2420140846e-1f) * m + 1.4249322787e-1f) * m
        - 1.6668057665e-1f) * m + 2.0000714765e-1f) * m - 2.4999993993e-1f) * m + 3.3333331174e-1f;
    found = m + (m * z * p + whole * -2.12194440e-4f - 0.5f * z + rest) + whole * 0.693359375f;
    return x > 0 ? (x < INFINITY ? found : x) : x == 0 ? -INFINITY : NAN;
}
static inline float tj_log(float x) {
    return tj_log_with(x, 0);
}
static inline float tj_log1p(float x) {
    float u = 1 + x, found = tj_log_with(u, (x > 1 ? 1 - (u - x) : x - (u - 1)) / u);
    return u == 1 ? x : found;  /* -0.0 too */
}
/* sin(x + quarters * pi / 2). Of large numbers too many digits of pi would count, which the C library has. */
#define TJ_NEAR 8192.0f
static inline float tj_wave(float x, int quarters) {
    float n = (x * 0.636619772f + 12582912.0f) - 12582912.0f;  /* the nearest integer */
    float r = ((x - n * 1.5703125f) - n * 4.837512969970703125e-4f) - n * 7.549533620476723e-8f - n * 2.5633440682570896e-12f, z = r * r, found;
    float odd = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
    float even = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * (z * z) - 0.5f * z + 1;
    int place = (int)n + quarters;
    found = place & 1 ? even : odd;
    return quarters == 0 && x == 0 ? x : place & 2 ? -found : found;
}
static inline float tj_wave_of_large(float x, int quarters) {
    return (float)(quarters ? cos((double)x) : sin((double)x));
}
#endif
