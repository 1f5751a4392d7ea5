/* Groups of channels brought to mean 0 and variance 1, each scaled and shifted, and the gradients of that, of TJ_REAL. Included once for each type, with
   TJ_NAMED(name). Sums are of TJ_AT_ONCE elements at once, so that they are the more exact and many are added at once. */
#define TJ_SUM_OF(term)                                                                                              \
    TJ_REAL lanes[TJ_AT_ONCE] = {0}, sum = 0;                                                                          \
    int64_t i, whole = n / TJ_AT_ONCE * TJ_AT_ONCE;                                                                      \
    int k;                                                                                                           \
    for (i = 0; i < whole; i += TJ_AT_ONCE) { for (k = 0; k < TJ_AT_ONCE; k++) { int64_t j = i + k; lanes[k] += (term); } } \
    for (k = 0; i + k < n; k++) { int64_t j = i + k; lanes[k] += (term); }                                           \
    for (k = 0; k < TJ_AT_ONCE; k++) { sum += lanes[k]; }                                                              \
    return sum;
TJ_INLINE TJ_REAL TJ_NAMED(tj_group_sum)(const TJ_REAL* x, int64_t n) { TJ_SUM_OF(x[j]) }
TJ_INLINE TJ_REAL TJ_NAMED(tj_group_squares)(const TJ_REAL* x, TJ_REAL mean, int64_t n) { TJ_SUM_OF((x[j] - mean) * (x[j] - mean)) }
TJ_INLINE TJ_REAL TJ_NAMED(tj_group_products)(const TJ_REAL* g, const TJ_REAL* x, TJ_REAL mean, int64_t n) { TJ_SUM_OF(g[j] * (x[j] - mean)) }
#undef TJ_SUM_OF

/* l->n channels, of l->inner elements each. x, weight, bias; then the result, means, reciprocal deviations. */
TJ_CLONES static void TJ_NAMED(tj_group)(const tj_looping* l, int64_t row) {
    int64_t n = l->inner, count = l->n * n, first = row % l->how[TJ_OWN] * l->n, channel, j;
    const TJ_REAL *x = (const TJ_REAL*)l->arrays[0] + row * count, *weight = (const TJ_REAL*)l->arrays[1], *bias = (const TJ_REAL*)l->arrays[2];
    TJ_REAL* out = (TJ_REAL*)l->arrays[3] + row * count;
    TJ_REAL mean = TJ_NAMED(tj_group_sum)(x, count) / (TJ_REAL)count, rstd;
    double eps;
    memcpy(&eps, &l->how[TJ_OWN + 1], 8);
    rstd = (TJ_REAL)(1 / sqrt(TJ_NAMED(tj_group_squares)(x, mean, count) / (TJ_REAL)count + eps));
    for (channel = 0; channel < l->n; channel++) {
        const TJ_REAL* TJ_ONLY given = x + channel * n;
        TJ_REAL* TJ_ONLY made = out + channel * n;
        TJ_REAL scale = rstd * weight[first + channel], shift = bias[first + channel];
        for (j = 0; j < n; j++) { made[j] = (given[j] - mean) * scale + shift; }
    }
    ((TJ_REAL*)l->arrays[4])[row] = mean;
    ((TJ_REAL*)l->arrays[5])[row] = rstd;
}
/* Gradient, x, means, reciprocal deviations, weight; then x's gradient, and of each channel what each sample adds to its weight's and its bias's. */
TJ_CLONES static void TJ_NAMED(tj_group_grad)(const tj_looping* l, int64_t row) {
    int64_t n = l->inner, count = l->n * n, first = row % l->how[TJ_OWN] * l->n, channel, j;
    const TJ_REAL *g = (const TJ_REAL*)l->arrays[0] + row * count, *x = (const TJ_REAL*)l->arrays[1] + row * count;
    const TJ_REAL mean = ((const TJ_REAL*)l->arrays[2])[row], rstd = ((const TJ_REAL*)l->arrays[3])[row], *weight = (const TJ_REAL*)l->arrays[4] + first;
    TJ_REAL *out = (TJ_REAL*)l->arrays[5] + row * count, *of_weight = (TJ_REAL*)l->arrays[6] + row * l->n, *of_bias = (TJ_REAL*)l->arrays[7] + row * l->n;
    double sum = 0, weighed = 0;
    TJ_REAL one, other;
    for (channel = 0; channel < l->n; channel++) {
        of_bias[channel] = TJ_NAMED(tj_group_sum)(g + channel * n, n);
        of_weight[channel] = TJ_NAMED(tj_group_products)(g + channel * n, x + channel * n, mean, n) * rstd;
        sum += of_bias[channel] * weight[channel];
        weighed += of_weight[channel] * weight[channel];
    }
    one = (TJ_REAL)(sum / (double)count) * rstd, other = (TJ_REAL)(weighed / (double)count) * rstd * rstd;
    for (channel = 0; channel < l->n; channel++) {
        const TJ_REAL *TJ_ONLY grads = g + channel * n, *TJ_ONLY given = x + channel * n;
        TJ_REAL *TJ_ONLY made = out + channel * n, scale = rstd * weight[channel];
        for (j = 0; j < n; j++) { made[j] = scale * grads[j] - one - (given[j] - mean) * other; }
    }
}
