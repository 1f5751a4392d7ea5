/* What is read and written at places along a dimension, and the element at a place of its order, of TJ_REAL. Included once for each type, with
   TJ_NAMED(name); TJ_KEY: integers of the same size. `count` columns, `step` from one another's next elements, side by side. */

/* Of n elements those at the places `index`, of which there are as many as `made`. */
TJ_INLINE void TJ_NAMED(tj_pick)(const TJ_REAL* TJ_ONLY x, const int64_t* TJ_ONLY index, TJ_REAL* TJ_ONLY out, int64_t n, int64_t made, int64_t step,
                                 int64_t count) {
    int64_t i, j;
    for (i = 0; i < made; i++) {
        for (j = 0; j < count; j++) {
            int64_t place = index[i * step + j];
            out[i * step + j] = (uint64_t)place < (uint64_t)n ? x[place * step + j] : 0;
        }
    }
}
/* Of `many` elements each put where `index` says, one after the other: among n that are x's, or 0 where there is none. */
TJ_INLINE void TJ_NAMED(tj_put)(const TJ_REAL* TJ_ONLY values, const int64_t* TJ_ONLY index, const TJ_REAL* TJ_ONLY x, TJ_REAL* TJ_ONLY out, int64_t n,
                                int64_t many, int64_t step, int64_t count, const int64_t how) {
    int64_t i, j;
    for (i = 0; i < (step == count ? 1 : n); i++) {
        size_t size = (size_t)(step == count ? n * count : count) * sizeof(TJ_REAL);
        if (x) { memcpy(out + i * step, x + i * step, size); } else { memset(out + i * step, 0, size); }
    }
    for (i = 0; i < many; i++) {
        for (j = 0; j < count; j++) {
            int64_t place = index[i * step + j];
            TJ_REAL value = values[i * step + j], *there = out + place * step + j;
            if ((uint64_t)place >= (uint64_t)n) { continue; }
            switch (how) {
                case TJ_PUT_LAST: *there = value; break;
                case TJ_PUT_SUM: *there += value; break;
                case TJ_PUT_MOST: *there = value > *there || value != value ? value : *there; break;
                default: *there = value < *there || value != value ? value : *there;
            }
        }
    }
}
TJ_INLINE TJ_KEY TJ_NAMED(tj_ordered)(TJ_REAL x) {
    TJ_KEY bits;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? TJ_MOST_KEY : x == 0 ? 0 : bits < 0 ? bits ^ TJ_MOST_KEY : bits;
}
/* The key at place k of the order of n keys, which are moved about, and at `less` how many are less. */
static TJ_KEY TJ_NAMED(tj_key_at)(TJ_KEY* keys, int64_t n, int64_t k, int64_t* less) {
    int64_t low = 0, high = n, i, at, same;
    while (high - low > 1) {
        TJ_KEY a = keys[low], b = keys[low + (high - low) / 2], c = keys[high - 1], key;
        TJ_KEY middle = a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
        for (i = at = low; i < high; i++) { key = keys[i], keys[i] = keys[at], keys[at] = key, at += key < middle; }
        if (k < at) {
            high = at;
            continue;
        }
        for (i = same = at; i < high; i++) { key = keys[i], keys[i] = keys[same], keys[same] = key, same += key == middle; }
        if (k < same) {
            *less = at;
            return middle;
        }
        low = same;
    }
    *less = low;
    return keys[low];
}
/* which: the place k of the order, or the lower median, or that of what are numbers. Equal elements are in the order of their places. */
static void TJ_NAMED(tj_select)(const TJ_REAL* x, TJ_REAL* value, int64_t* place, int64_t n, int64_t step, int64_t which, int64_t k, TJ_KEY* keys) {
    int64_t i, numbers = n, less;
    TJ_KEY key;
    for (i = 0; i < n; i++) {
        keys[i] = TJ_NAMED(tj_ordered)(x[i * step]);
        numbers -= keys[i] == TJ_MOST_KEY;
    }
    if (which == TJ_MEDIAN) { k = numbers < n ? numbers : (n - 1) / 2; }
    if (which == TJ_MEDIAN_OF_NUMBERS) { k = numbers ? (numbers - 1) / 2 : 0; }
    key = TJ_NAMED(tj_key_at)(keys, n, k, &less);
    for (i = 0, k -= less; TJ_NAMED(tj_ordered)(x[i * step]) != key || k-- > 0; i++) {}
    *value = x[i * step];
    *place = i;
}
/* The first of the largest elements, or of the smallest, of `count` columns, and its place; what is no number before all others. */
TJ_INLINE void TJ_NAMED(tj_firsts_beside)(const TJ_REAL* TJ_ONLY x, TJ_REAL* TJ_ONLY best, TJ_KEY* TJ_ONLY place, int64_t n, int64_t step, int64_t apart,
                                          const int count, const int most) {
    int64_t i;
    int j;
    for (j = 0; j < count; j++) { best[j] = x[j * apart], place[j] = 0; }
    for (i = 1; i < n; i++) {
        for (j = 0; j < count; j++) {
            TJ_REAL now = x[i * step + j * apart];
            int wins = (most ? now > best[j] : now < best[j]) | ((now != now) & (best[j] == best[j]));
            best[j] = wins ? now : best[j];
            place[j] = wins ? (TJ_KEY)i : place[j];
        }
    }
}
/* `rows` of n elements `step` from one another, each row begins `apart` from the one before. */
TJ_INLINE void TJ_NAMED(tj_firsts)(const TJ_REAL* x, TJ_REAL* out, int64_t* places, int64_t n, int64_t step, int64_t rows, int64_t apart, const int most) {
    TJ_REAL best[TJ_FIRSTS];
    TJ_KEY place[TJ_FIRSTS];
    int64_t r = 0;
    int j;
    for (; r + TJ_FIRSTS <= rows; r += TJ_FIRSTS) {
        TJ_NAMED(tj_firsts_beside)(x + r * apart, best, place, n, step, apart, TJ_FIRSTS, most);
        for (j = 0; j < TJ_FIRSTS; j++) { out[r + j] = best[j], places[r + j] = place[j]; }
    }
    for (; r < rows; r++) {
        TJ_NAMED(tj_firsts_beside)(x + r * apart, best, place, n, step, apart, 1, most);
        out[r] = best[0], places[r] = place[0];
    }
}
/* Units are of TJ_SIDE_BY_SIDE columns, or, where the dimension is the last one, of as many rows. */
TJ_CLONES static void TJ_NAMED(tj_first_places)(const tj_looping* l, int64_t outer, int64_t first, int64_t count) {
    const int64_t n = l->n, inner = l->inner, most = l->of == TJ_FIRST_LARGEST, at = inner == 1 ? outer : outer * inner + first;
    const TJ_REAL* x = (const TJ_REAL*)l->arrays[0] + (inner == 1 ? outer * n : outer * n * inner + first);
    TJ_REAL* out = (TJ_REAL*)l->arrays[1] + at;
    int64_t* places = (int64_t*)l->arrays[2] + at;
    if (inner > 1) {
        if (most) { TJ_NAMED(tj_firsts)(x, out, places, n, inner, count, 1, 1); } else { TJ_NAMED(tj_firsts)(x, out, places, n, inner, count, 1, 0); }
    } else if (n == 2) {
        if (most) { TJ_NAMED(tj_firsts)(x, out, places, 2, 1, count, 2, 1); } else { TJ_NAMED(tj_firsts)(x, out, places, 2, 1, count, 2, 0); }
    } else {
        if (most) { TJ_NAMED(tj_firsts)(x, out, places, n, 1, count, n, 1); } else { TJ_NAMED(tj_firsts)(x, out, places, n, 1, count, n, 0); }
    }
}
TJ_INLINE void TJ_NAMED(tj_at_places)(const tj_looping* l, int64_t outer, int64_t first, int64_t step, int64_t count, tj_hand* hand) {
    const int64_t *how = l->how, many = how[TJ_OWN];
    int64_t of_many = outer * many * step + first, of_all = outer * l->n * step + first, j;
    const TJ_REAL* x = (const TJ_REAL*)l->arrays[0];
    const int64_t* index = (const int64_t*)l->arrays[1];
    switch (l->of) {
        case TJ_PICK: TJ_NAMED(tj_pick)(x + of_all, index + of_many, (TJ_REAL*)l->arrays[2] + of_many, l->n, many, step, count); break;
        case TJ_PUT: {
            const TJ_REAL* begun = how[TJ_OWN + 2] ? (const TJ_REAL*)l->arrays[2] + of_all : 0;
            TJ_REAL* out = (TJ_REAL*)l->arrays[how[TJ_OWN + 2] ? 3 : 2] + of_all;
            TJ_NAMED(tj_put)(x + of_many, index + of_many, begun, out, l->n, many, step, count, how[TJ_OWN + 1]);
            break;
        }
        default:
            for (j = 0; j < count; j++) {
                int64_t at = outer * step + first + j;
                TJ_NAMED(tj_select)(x + of_all + j, (TJ_REAL*)l->arrays[1] + at, (int64_t*)l->arrays[2] + at, l->n, step, many, how[TJ_OWN + 1],
                                    (TJ_KEY*)tj_room(hand, (size_t)l->n * sizeof(TJ_KEY)));
            }
    }
}
static void TJ_NAMED(tj_at_places_of)(const tj_looping* l, int64_t outer, int64_t first, int64_t step, int64_t count, tj_hand* hand) {
    TJ_NAMED(tj_at_places)(l, outer, first, step, count, hand);
}
static void TJ_NAMED(tj_rows_at_places)(const tj_looping* l, int64_t at, int64_t end, tj_hand* hand) {
    for (; at < end; at++) { TJ_NAMED(tj_at_places)(l, at, 0, 1, 1, hand); }
}
