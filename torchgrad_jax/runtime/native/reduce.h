/* Sums and products, and largest and smallest elements, of TJ_REAL: along rows of contiguous elements, and of rows with one another. Included once for
   each type, with TJ_NAMED(name); TJ_FLOATS: whether there is a -0 and what is no number. The order of adding depends on the lengths alone. */

/* Of 0 and -0 either may be taken, and of what is no number, too: see `tj_exact`. */
#define TJ_JOINED(which, a, b) ((which) == TJ_SUM ? (a) + (b) : (which) == TJ_PRODUCT ? (a) * (b) : (which) == TJ_LARGEST ? ((b) > (a) ? (b) : (a)) : ((b) < (a) ? (b) : (a)))

/* `width` elements, `apart` from one another, of each of n rows, `stride` from one another. Sums begin with 0, which -0 does not change,
   and anew after 128 rows: they are the more exact for it. */
TJ_INLINE void TJ_NAMED(tj_columns_apart)(const int which, const int width, const TJ_REAL* x, TJ_REAL* out, int64_t n, int64_t stride, int64_t apart) {
    TJ_REAL whole[64], part[64];
    int64_t j = 0, end;
    int k;
    for (k = 0; k < width; k++) { whole[k] = which == TJ_PRODUCT; }
    do {
        for (k = 0; k < width; k++) { part[k] = x[j * stride + k * apart]; }
        end = which == TJ_SUM && j + 128 < n ? j + 128 : n;
        for (j++; j < end; j++) {
            for (k = 0; k < width; k++) { part[k] = TJ_JOINED(which, part[k], x[j * stride + k * apart]); }
        }
        for (k = 0; k < width; k++) { whole[k] = which == TJ_SUM || which == TJ_PRODUCT ? TJ_JOINED(which, whole[k], part[k]) : part[k]; }
    } while (j < n);
    for (k = 0; k < width; k++) { out[k] = whole[k]; }
}
TJ_INLINE void TJ_NAMED(tj_columns)(const int which, const int width, const TJ_REAL* x, TJ_REAL* out, int64_t n, int64_t stride) {
    TJ_NAMED(tj_columns_apart)(which, width, x, out, n, stride, 1);
}
/* One row of n elements, at least 32: eight of it, 8 from one another. */
TJ_INLINE void TJ_NAMED(tj_row)(const int which, const TJ_REAL* x, TJ_REAL* out, int64_t n) {
    TJ_REAL lane[32];
    int64_t j = n / 32;
    int k;
    TJ_NAMED(tj_columns)(which, 32, x, lane, j, 32);
    for (j *= 32, k = 0; j < n; j++, k++) { lane[k] = TJ_JOINED(which, lane[k], x[j]); }
    for (k = 0; k < 16; k++) { lane[k] = TJ_JOINED(which, lane[k], lane[k + 16]); }
    for (k = 0; k < 8; k++) { lane[k] = TJ_JOINED(which, lane[k], lane[k + 8]); }
    for (k = 0; k < 8; k++) { out[8 * k] = lane[k]; }
}
/* Short rows are columns that lie apart; of others eight at once, turned so that they lie as columns. */
TJ_INLINE void TJ_NAMED(tj_rows)(const int which, const TJ_REAL* x, TJ_REAL* out, int64_t rows, int64_t n) {
    TJ_REAL turned[8 * 32], made[8];
    int64_t i, r, j, some;
    memset(turned, 0, sizeof(turned));
    for (i = 0; n < 32 && i + 16 <= rows; i += 16) { TJ_NAMED(tj_columns_apart)(which, 16, x + i * n, out + i, n, 1, n); }
    for (; i < rows; i += some) {
        some = rows - i < 8 ? rows - i : 8;
        for (r = 0; r < some; r++) {
            if (n >= 32) { TJ_NAMED(tj_row)(which, x + (i + r) * n, turned + r, n); }
            else { for (j = 0; j < n; j++) { turned[8 * j + r] = x[(i + r) * n + j]; } }
        }
        TJ_NAMED(tj_columns)(which, 8, turned, made, n < 32 ? n : 8, 8);
        for (r = 0; r < some; r++) { out[i + r] = made[r]; }
    }
}
#if TJ_FLOATS
/* The largest, or smallest, of n elements, `stride` from one another, one after the other: what is no number before all others, 0 larger than -0. */
static TJ_REAL TJ_NAMED(tj_exact)(int which, const TJ_REAL* x, int64_t n, int64_t stride) {
    TJ_REAL best = x[0];
    int64_t j;
    for (j = 0; j < n && best == best; j++) {
        TJ_REAL other = x[j * stride];
        int wins = (which == TJ_LARGEST ? other > best : other < best) | (other != other);
        if (wins || (other == best && signbit(best) != signbit(other) && !signbit(other) == (which == TJ_LARGEST))) { best = other; }
    }
    return best;
}
TJ_INLINE int TJ_NAMED(tj_has_no_number)(const TJ_REAL* x, int64_t count) {
    int found = 0;
    int64_t i;
    for (i = 0; i < count; i++) { found |= x[i] != x[i]; }
    return found;
}
#else
TJ_INLINE TJ_REAL TJ_NAMED(tj_exact)(int which, const TJ_REAL* x, int64_t n, int64_t stride) { return x[0]; }
TJ_INLINE int TJ_NAMED(tj_has_no_number)(const TJ_REAL* x, int64_t count) { return 0; }
#endif
TJ_INLINE void TJ_NAMED(tj_blocks)(const int which, const TJ_REAL* x, TJ_REAL* out, int64_t n, int64_t stride, int64_t count) {
    int64_t c = 0;
    for (; c + 64 <= count; c += 64) { TJ_NAMED(tj_columns)(which, 64, x + c, out + c, n, stride); }
    for (; c + 16 <= count; c += 16) { TJ_NAMED(tj_columns)(which, 16, x + c, out + c, n, stride); }
    for (; c + 4 <= count; c += 4) { TJ_NAMED(tj_columns)(which, 4, x + c, out + c, n, stride); }
    for (; c < count; c++) { TJ_NAMED(tj_columns)(which, 1, x + c, out + c, n, stride); }
}
/* `rows` rows of n elements, one of each; or, where there are none, `count` columns of n rows. */
TJ_INLINE void TJ_NAMED(tj_reduce_once)(const int which, const TJ_REAL* x, TJ_REAL* out, int64_t rows, int64_t n, int64_t stride, int64_t count) {
    int64_t i, apart = rows ? n : 1;
    int exact = 0;
    if (rows) { TJ_NAMED(tj_rows)(which, x, out, rows, n); }
    else { TJ_NAMED(tj_blocks)(which, x, out, n, stride, count); }
    if (which == TJ_SUM || which == TJ_PRODUCT || !TJ_FLOATS) { return; }
    for (i = 0; i < (rows ? 1 : n) && !exact; i++) { exact = TJ_NAMED(tj_has_no_number)(x + i * stride, rows ? rows * n : count); }
    for (i = 0; i < rows + count; i++) {
        if (exact || out[i] == 0) { out[i] = TJ_NAMED(tj_exact)(which, x + i * apart, n, rows ? 1 : stride); }
    }
}
/* That so many times, of what lies one after the other. */
#define TJ_REDUCES(name, which)                                                                                                         \
    TJ_CLONES static void name(const TJ_REAL* x, TJ_REAL* out, int64_t rows, int64_t n, int64_t stride, int64_t count, int64_t times) { \
        for (; times > 0; times--, x += n * stride, out += count) { TJ_NAMED(tj_reduce_once)(which, x, out, rows, n, stride, count); }  \
    }
TJ_REDUCES(TJ_NAMED(tj_sum), TJ_SUM)
TJ_REDUCES(TJ_NAMED(tj_largest), TJ_LARGEST)
TJ_REDUCES(TJ_NAMED(tj_smallest), TJ_SMALLEST)
TJ_REDUCES(TJ_NAMED(tj_product), TJ_PRODUCT)
#undef TJ_REDUCES
#undef TJ_JOINED

static void TJ_NAMED(tj_reduce_piece)(const void* reduction, int64_t piece, tj_hand* hand) {
    const tj_reduction* r = (const tj_reduction*)reduction;
    void (*reduce)(const TJ_REAL*, TJ_REAL*, int64_t, int64_t, int64_t, int64_t, int64_t) =
        r->which == TJ_SUM ? TJ_NAMED(tj_sum) : r->which == TJ_PRODUCT ? TJ_NAMED(tj_product) : r->which == TJ_LARGEST ? TJ_NAMED(tj_largest)
                                                                                              : TJ_NAMED(tj_smallest);
    const TJ_REAL* x = (const TJ_REAL*)r->x;
    TJ_REAL* out = (TJ_REAL*)r->out;
    int64_t unit = piece * r->together, last = unit + r->together < r->units ? unit + r->together : r->units;
    (void)hand;
    if (r->inner == 1 && r->parts == 1) {
        reduce(x + unit * r->n, out + unit, last - unit, r->n, 1, 0, 1);
        return;
    }
    if (r->chunks == 1 && r->parts == 1) {
        reduce(x + unit * r->n * r->inner, out + unit * r->inner, 0, r->n, r->inner, r->inner, last - unit);
        return;
    }
    for (; unit < last; unit++) {
        int64_t chunk = unit % r->chunks, part = unit / r->chunks % r->parts, o = unit / r->chunks / r->parts;
        int64_t first = part * r->length, column = chunk * TJ_COLUMNS;
        int64_t n = first + r->length < r->n ? r->length : r->n - first, count = column + TJ_COLUMNS < r->inner ? TJ_COLUMNS : r->inner - column;
        const TJ_REAL* from = x + (o * r->n + first) * r->inner + column;
        TJ_REAL* to = out + (o * r->parts + part) * r->inner + column;
        if (r->inner == 1) { reduce(from, to, 1, n, 1, 0, 1); }
        else { reduce(from, to, 0, n, r->inner, count, 1); }
    }
}
