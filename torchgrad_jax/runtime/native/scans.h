/* What runs along a dimension, of TJ_REAL: sums, products and logarithms of sums up to each element, largest and smallest elements so far, and what their
   gradients are. Included once for each type, with TJ_NAMED(name). `count` columns of n elements, `step` from one another, side by side. What is carried
   from element to element is in double precision. */

TJ_INLINE void TJ_NAMED(tj_sums)(const TJ_REAL* TJ_ONLY x, TJ_REAL* TJ_ONLY out, int64_t n, int64_t step, int64_t count, const int behind) {
    double sum[TJ_SIDE_BY_SIDE] = {0};
    int64_t i, j;
    for (i = 0; i < n; i++) {
        int64_t at = (behind ? n - 1 - i : i) * step;
        for (j = 0; j < count; j++) { out[at + j] = (TJ_REAL)(sum[j] += x[at + j]); }
    }
}
TJ_INLINE void TJ_NAMED(tj_products)(const TJ_REAL* TJ_ONLY x, TJ_REAL* TJ_ONLY out, int64_t n, int64_t step, int64_t count, const int behind) {
    double product[TJ_SIDE_BY_SIDE];
    int64_t i, j;
    for (j = 0; j < count; j++) { product[j] = 1; }
    for (i = 0; i < n; i++) {
        int64_t at = (behind ? n - 1 - i : i) * step;
        for (j = 0; j < count; j++) { out[at + j] = (TJ_REAL)(product[j] *= x[at + j]); }
    }
}
/* Of products: sums of gradients times products, from an element on, by the element, as far as none is 0. Of the first 0 it is of the products
   without it, up to the second one; of what is behind it, 0. */
TJ_INLINE void TJ_NAMED(tj_product_grads)(const TJ_REAL* TJ_ONLY g, const TJ_REAL* TJ_ONLY x, const TJ_REAL* TJ_ONLY made, TJ_REAL* TJ_ONLY out, int64_t n,
                                          int64_t step, int64_t count) {
    double sum[TJ_SIDE_BY_SIDE] = {0};
    int zero[TJ_SIDE_BY_SIDE] = {0};
    int64_t i, j, at;
    for (i = n - 1; i >= 0; i--) {
        for (j = 0, at = i * step; j < count; j++, at++) {
            sum[j] += (TJ_REAL)(g[at] * made[at]);
            zero[j] |= x[at] == 0;
            out[at] = (TJ_REAL)sum[j] / x[at];
        }
    }
    for (j = 0; j < count; j++) {
        double before = 1, product = 1, whole = 0, to_zero = 0;
        int64_t first = 0;
        if (!zero[j]) { continue; }
        for (; x[first * step + j] != 0; first++) { before *= x[first * step + j]; }
        for (i = first; i < n && (i == first || x[i * step + j] != 0); i++) {
            product *= i == first ? 1 : x[i * step + j];
            whole += g[i * step + j] * product;
        }
        for (i = first; i < n; i++) { out[i * step + j] = i == first ? (TJ_REAL)(before * whole) : 0; }
        for (i = first - 1; i >= 0; i--) {
            at = i * step + j;
            to_zero += (TJ_REAL)(g[at] * made[at]);
            out[at] = (TJ_REAL)to_zero / x[at];
        }
    }
}
TJ_INLINE void TJ_NAMED(tj_log_sums)(const TJ_REAL* TJ_ONLY x, TJ_REAL* TJ_ONLY out, int64_t n, int64_t step, int64_t count) {
    double sum[TJ_SIDE_BY_SIDE];
    int64_t i, j;
    for (j = 0; j < count; j++) { sum[j] = -INFINITY; }
    for (i = 0; i < n; i++) {
        for (j = 0; j < count; j++) {
            double a = sum[j], b = x[i * step + j], most = a > b ? a : b, less = a > b ? b : a;
            sum[j] = isinf(less) ? most : most + log1p(exp(less - most));
            out[i * step + j] = (TJ_REAL)sum[j];
        }
    }
}
/* s[i] = g[i] + exp(y[i] - y[i + 1]) s[i + 1], which is of sums that do not decrease; then exp(x[i] - y[i]) s[i]. Of an infinite sum nothing comes back. */
TJ_INLINE void TJ_NAMED(tj_log_sum_grads)(const TJ_REAL* TJ_ONLY g, const TJ_REAL* TJ_ONLY x, const TJ_REAL* TJ_ONLY y, TJ_REAL* TJ_ONLY out, int64_t n,
                                          int64_t step, int64_t count) {
    TJ_REAL sum[TJ_SIDE_BY_SIDE] = {0};
    int64_t i, j, at;
    for (i = n - 1; i >= 0; i--) {
        for (j = 0, at = i * step; j < count; j++, at++) {
            TJ_REAL own = y[at];
            TJ_REAL after = i == n - 1 ? 0 : sum[j] * TJ_QUICK_EXP(own - y[at + step]);
            sum[j] = own == (TJ_REAL)INFINITY ? 0 * sum[j] : g[at] + after + 0 * own;
            out[at] = sum[j] * TJ_QUICK_EXP(x[at] - own);
        }
    }
}
/* The last place of the extreme so far. What is no number is the extreme from then on. */
TJ_INLINE void TJ_NAMED(tj_extremes)(const TJ_REAL* TJ_ONLY x, TJ_REAL* TJ_ONLY out, int64_t* TJ_ONLY places, int64_t n, int64_t step, int64_t count,
                                     const int most) {
    TJ_REAL best[TJ_SIDE_BY_SIDE];
    int64_t place[TJ_SIDE_BY_SIDE], i, j;
    for (j = 0; j < count; j++) { best[j] = x[j], place[j] = 0; }
    for (i = 0; i < n; i++) {
        for (j = 0; j < count; j++) {
            TJ_REAL now = x[i * step + j];
            if ((most ? now >= best[j] : now <= best[j]) || now != now) { best[j] = now, place[j] = i; }
            out[i * step + j] = best[j];
            places[i * step + j] = place[j];
        }
    }
}
TJ_INLINE void TJ_NAMED(tj_scan)(const tj_looping* l, int64_t at, int64_t n, int64_t step, int64_t count) {
    const TJ_REAL *x = (const TJ_REAL*)l->arrays[0] + at, *second = (const TJ_REAL*)l->arrays[1], *third = (const TJ_REAL*)l->arrays[2];
    TJ_REAL* out = (TJ_REAL*)l->arrays[1] + at;
    switch (l->of) {
        case TJ_SUMS_SO_FAR: TJ_NAMED(tj_sums)(x, out, n, step, count, (int)l->how[TJ_OWN]); break;
        case TJ_PRODUCTS_SO_FAR: TJ_NAMED(tj_products)(x, out, n, step, count, (int)l->how[TJ_OWN]); break;
        case TJ_PRODUCT_GRADS: TJ_NAMED(tj_product_grads)(x, second + at, third + at, (TJ_REAL*)l->arrays[3] + at, n, step, count); break;
        case TJ_LOG_SUMS: TJ_NAMED(tj_log_sums)(x, out, n, step, count); break;
        case TJ_LOG_SUM_GRADS: TJ_NAMED(tj_log_sum_grads)(x, second + at, third + at, (TJ_REAL*)l->arrays[3] + at, n, step, count); break;
        case TJ_LARGEST_SO_FAR: TJ_NAMED(tj_extremes)(x, out, (int64_t*)l->arrays[2] + at, n, step, count, 1); break;
        case TJ_SMALLEST_SO_FAR: TJ_NAMED(tj_extremes)(x, out, (int64_t*)l->arrays[2] + at, n, step, count, 0); break;
    }
}
TJ_CLONES static void TJ_NAMED(tj_scan_columns)(const tj_looping* l, int64_t at, int64_t n, int64_t step, int64_t count) {
    TJ_NAMED(tj_scan)(l, at, n, step, count);
}
/* Rows' loops are compiled by themselves, of one column. */
TJ_CLONES static void TJ_NAMED(tj_scan_rows)(const tj_looping* l, int64_t at, int64_t end) {
    for (; at < end; at++) { TJ_NAMED(tj_scan)(l, at * l->n, l->n, 1, 1); }
}

