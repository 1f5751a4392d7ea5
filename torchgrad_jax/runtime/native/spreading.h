/* What is smaller than a result, at its places: rows of `inner` elements of which each stands `times` times, each row `gap` times, and then all of
   them again and again. Of TJ_REAL. Included once for each type, with TJ_NAMED(name). */

/* n elements of a row again and again, from the one at `column` on. What is there is copied twice as often each time. */
static void TJ_NAMED(tj_again)(const TJ_REAL* row, int64_t inner, int64_t column, TJ_REAL* to, int64_t n) {
    int64_t first = inner - column < n ? inner - column : n, filled, more;
    memcpy(to, row + column, first * sizeof(TJ_REAL));
    to += first;
    n -= first;
    filled = inner < n ? inner : n;
    memcpy(to, row, filled * sizeof(TJ_REAL));
    for (; filled < n; filled += more) {
        more = filled < n - filled ? filled : n - filled;
        memcpy(to + filled, to, more * sizeof(TJ_REAL));
    }
}
/* Each of n elements so many times. */
static void TJ_NAMED(tj_times)(const TJ_REAL* TJ_ONLY from, int64_t n, int64_t times, TJ_REAL* TJ_ONLY to) {
    int64_t i, k;
    switch (times) {
        case 2: for (i = 0; i < n; i++) { to[2 * i] = to[2 * i + 1] = from[i]; } return;
        case 3: for (i = 0; i < n; i++) { to[3 * i] = to[3 * i + 1] = to[3 * i + 2] = from[i]; } return;
        case 4: for (i = 0; i < n; i++) { to[4 * i] = to[4 * i + 1] = to[4 * i + 2] = to[4 * i + 3] = from[i]; } return;
        default:
            for (i = 0; i < n; i++, to += times) {
                const TJ_REAL x = from[i];
                for (k = 0; k < times; k++) { to[k] = x; }
            }
    }
}
/* n of these elements, from `begin` on, of `size`. */
static void TJ_NAMED(tj_spread)(const TJ_REAL* from, int64_t size, int64_t times, int64_t inner, int64_t gap, int64_t begin, TJ_REAL* to, int64_t n) {
    int64_t place = begin / times, rows = size / inner, column = place % inner, again = place / inner % gap, left = times - begin % times, made;
    const TJ_REAL* end = from + size;
    const TJ_REAL* row = from + place / inner / gap % rows * inner;
    if (times == 1 && rows == 1) {
        TJ_NAMED(tj_again)(row, inner, column, to, n);
        return;
    }
    for (; n > 0; n -= made, to += made) {
        if (times == 1) {
            made = inner * (gap - again) - column;
            made = made < n ? made : n;
            TJ_NAMED(tj_again)(row, inner, column, to, made);
            column = inner;
            again = gap - 1;
        } else if (left == times && n >= times) {
            int64_t whole = inner - column < n / times ? inner - column : n / times;
            TJ_NAMED(tj_times)(row + column, whole, times, to);
            made = whole * times;
            column += whole;
        } else {
            made = left < n ? left : n;
            TJ_NAMED(tj_times)(row + column, 1, made, to);
            left = made < left ? left - made : times;
            column += left == times;
        }
        if (column == inner) {
            column = 0;
            again = again + 1 < gap ? again + 1 : 0;
            if (again == 0) { row = row + inner < end ? row + inner : from; }
        }
    }
}
