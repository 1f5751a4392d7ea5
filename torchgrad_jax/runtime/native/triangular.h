/* Factors of small matrices, and triangular systems, of `type`: included by `baseline/lanes.pxd`, whose module says what each does. Products and
   differences of factors are rounded one by one, as NumPy's are, which AVX-512 would not do: whether a pivot is zero depends on it. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define TJ_ROUNDED __attribute__((target_clones("avx2", "default")))
#else
#define TJ_ROUNDED
#endif
#define TJ_TRIANGULAR(name, type, root)                                                                                                              \
/* Take `count` rows, `apart` elements from one to the next, from another, each times a factor: four at a time, so that the row is written less often. */ \
TJ_CLONES static void tj_take_##name(type* TJ_ONLY row, const type* factors, int64_t across, const type* known, int64_t apart, int64_t count,         \
                                     int64_t n) {                                                                                                     \
    int64_t j;                                                                                                                                        \
    for (; count >= 4; count -= 4, factors += 4 * across, known += 4 * apart) {                                                                       \
        const type *a = known, *b = a + apart, *c = b + apart, *d = c + apart;                                                                        \
        type p = factors[0], q = factors[across], r = factors[2 * across], s = factors[3 * across];                                                   \
        for (j = 0; j < n; j++) { row[j] = row[j] - p * a[j] - q * b[j] - r * c[j] - s * d[j]; }                                                      \
    }                                                                                                                                                 \
    for (; count > 0; count--, factors += across, known += apart) {                                                                                   \
        type factor = factors[0];                                                                                                                     \
        for (j = 0; j < n; j++) { row[j] -= factor * known[j]; }                                                                                      \
    }                                                                                                                                                 \
}                                                                                                                                                     \
static void tj_substitute_##name(const type* a, type* x, int64_t size, int64_t columns, int turned, int lower, int unit) {                           \
    int64_t across = turned ? size : 1, down = turned ? 1 : size, step, j;                                                                            \
    for (step = 0; step < size; step++) {                                                                                                             \
        int64_t i = lower ? step : size - 1 - step, first = lower ? 0 : size - 1, to = lower ? 1 : -1;                                                \
        type *row = x + i * columns, factor = a[i * down + i * across];                                                                               \
        tj_take_##name(row, a + i * down + first * across, to * across, x + first * columns, to * columns, step, columns);                            \
        for (j = 0; !unit && j < columns; j++) { row[j] /= factor; }                                                                                  \
    }                                                                                                                                                 \
}                                                                                                                                                     \
/* The first row that has no positive number where it should, or `size`. The column is kept in its row, too, which is not needed any more. */       \
TJ_ROUNDED static int64_t tj_cholesky_##name(type* a, int64_t size) {                                                                                  \
    int64_t k, i, j;                                                                                                                                  \
    for (k = 0; k < size; k++) {                                                                                                                      \
        type *top = a + k * size, pivot = top[k];                                                                                                     \
        if (!(pivot > 0)) { return k; }                                                                                                               \
        top[k] = pivot = root(pivot);                                                                                                                 \
        for (i = k + 1; i < size; i++) { top[i] = a[i * size + k] = a[i * size + k] / pivot; }                                                        \
        for (i = k + 1; i < size; i++) {                                                                                                              \
            type *TJ_ONLY row = a + i * size, factor = row[k];                                                                                        \
            const type* TJ_ONLY known = top;                                                                                                          \
            for (j = k + 1; j <= i; j++) { row[j] -= factor * known[j]; }                                                                             \
        }                                                                                                                                             \
    }                                                                                                                                                 \
    for (i = 0; i < size; i++) { for (j = i + 1; j < size; j++) { a[i * size + j] = 0; } }                                                            \
    return size;                                                                                                                                      \
}                                                                                                                                                     \
TJ_ROUNDED static void tj_factorize_##name(type* a, int* pivots, int* order, int64_t rows, int64_t columns) {                                         \
    int64_t k, i, j, count = rows < columns ? rows : columns;                                                                                         \
    for (i = 0; i < rows; i++) { order[i] = (int)i; }                                                                                                 \
    for (k = 0; k < count; k++) {                                                                                                                     \
        int64_t best = k;                                                                                                                             \
        type largest = -1, *top = a + k * columns;                                                                                                    \
        for (i = k; i < rows; i++) {                                                                                                                  \
            type given = a[i * columns + k], size = given < 0 ? -given : given;                                                                       \
            if (size > largest || size != size) { best = i, largest = size; }                                                                         \
            if (size != size) { break; }                                                                                                              \
        }                                                                                                                                             \
        pivots[k] = (int)best;                                                                                                                        \
        if (best != k) {                                                                                                                              \
            type* other = a + best * columns;                                                                                                         \
            int place = order[k];                                                                                                                     \
            order[k] = order[best], order[best] = place;                                                                                              \
            for (j = 0; j < columns; j++) {                                                                                                           \
                type kept = top[j];                                                                                                                   \
                top[j] = other[j], other[j] = kept;                                                                                                   \
            }                                                                                                                                         \
        }                                                                                                                                             \
        for (i = k + 1; i < rows; i++) {                                                                                                              \
            type *TJ_ONLY row = a + i * columns, factor;                                                                                              \
            const type* TJ_ONLY known = top;                                                                                                          \
            if (top[k] != 0) { row[k] = row[k] / top[k]; }                                                                                            \
            factor = row[k];                                                                                                                          \
            for (j = k + 1; j < columns; j++) { row[j] -= factor * known[j]; }                                                                        \
        }                                                                                                                                             \
    }                                                                                                                                                 \
}
