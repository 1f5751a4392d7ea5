/* Products with matrices of at most four rows and columns, k and n, of TJ_REAL, one after the other, from the matrix `first` to before `last`. Included
   once for each type, with TJ_NAMED(name). */

TJ_INLINE void TJ_NAMED(tj_small_of)(const tj_operands* of, int64_t first, int64_t last, const int k, const int n) {
    const int64_t size = sizeof(TJ_REAL), m = of->m, down = of->x.turned ? 1 : of->x.lead, along = of->x.turned ? of->x.lead : 1;
    const int64_t under = of->y.turned ? 1 : of->y.lead, beside = of->y.turned ? of->y.lead : 1;
    const char *x = tj_at(&of->x, first, 0, 0, size), *y = tj_at(&of->y, first, 0, 0, size);
    const char *x_group = x - first % of->x.inner * of->x.step, *y_group = y - first % of->y.inner * of->y.step;
    int64_t of_x = first % of->x.inner, of_y = first % of->y.inner, i;
    TJ_REAL* out = (TJ_REAL*)of->out + first * m * n;
    int j, t;
    for (; first < last; first++) {
        const TJ_REAL *row = (const TJ_REAL*)x, *from = (const TJ_REAL*)y;
        TJ_REAL right[4][4];
        for (t = 0; t < k; t++) { for (j = 0; j < n; j++) { right[t][j] = from[t * under + j * beside]; } }
        for (i = 0; i < m; i++, row += down, out += n) {
            TJ_REAL sums[4] = {0};
            for (t = 0; t < k; t++) {
                const TJ_REAL left = row[t * along];
                for (j = 0; j < n; j++) { sums[j] += left * right[t][j]; }
            }
            for (j = 0; j < n; j++) { out[j] = sums[j]; }
        }
        x += of->x.step;
        y += of->y.step;
        if (++of_x == of->x.inner) { of_x = 0, x = x_group += of->x.leap; }
        if (++of_y == of->y.inner) { of_y = 0, y = y_group += of->y.leap; }
    }
}
#define TJ_OF(k, n) case 4 * k + n: TJ_NAMED(tj_small_of)(of, first, last, k, n); break;
#define TJ_OF_TERMS(k) TJ_OF(k, 1) TJ_OF(k, 2) TJ_OF(k, 3) TJ_OF(k, 4)
TJ_FUSED_CLONES static void TJ_NAMED(tj_small)(const tj_operands* of, int64_t first, int64_t last) {
    switch (4 * of->k + of->n) { TJ_OF_TERMS(1) TJ_OF_TERMS(2) TJ_OF_TERMS(3) TJ_OF_TERMS(4) }
}
#undef TJ_OF
#undef TJ_OF_TERMS
