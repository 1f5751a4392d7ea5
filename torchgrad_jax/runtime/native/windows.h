/* The largest elements of windows of TJ_NUMBER, whose places are TJ_PLACE, integers as wide: included by `pooling.pxd` for each. */

/* All rows that windows have, as one: the largest of each column and, where `begins` is not 0, where in the volume its row begins: TJ_NOWHERE without a row. */
TJ_INLINE void TJ_OF(columns)(const tj_pooling* p, const TJ_NUMBER* x, int64_t slice, int64_t row, TJ_NUMBER* TJ_ONLY made, TJ_PLACE* TJ_ONLY begins) {
    int64_t first[2], end[2], i, k, j, width = p->size[2];
    int begun = 0;
    tj_window(p, 0, slice, first, end);
    tj_window(p, 1, row, first + 1, end + 1);
    for (i = first[0]; i < end[0]; i += p->dilation[0]) {
        for (k = first[1]; k < end[1]; k += p->dilation[1]) {
            TJ_PLACE at = (TJ_PLACE)((i * p->size[1] + k) * width);
            const TJ_NUMBER* TJ_ONLY from = x + at;
            if (!begun) {
                for (j = 0; j < width; j++) { made[j] = from[j]; }
                if (begins) { for (j = 0; j < width; j++) { begins[j] = at; } }
            } else if (begins) {
                for (j = 0; j < width; j++) {
                    int wins = (from[j] > made[j]) | (from[j] != from[j]);
                    made[j] = wins ? from[j] : made[j];
                    begins[j] = wins ? at : begins[j];
                }
            } else { for (j = 0; j < width; j++) { made[j] = TJ_LARGER(made[j], from[j]); } }
            begun = 1;
        }
    }
    if (begun) { return; }
    for (j = 0; j < width; j++) {
        made[j] = -INFINITY;
        if (begins) { begins[j] = TJ_NOWHERE; }
    }
}
/* Of windows alike, the elements that they have at the same place of a row: the larger ones; or those that win, and where: of equal ones the first in the
   volume, of those that are no numbers the last. */
#define TJ_EACH(stride) for (j = 0; j < count; j++) { out[j] = TJ_LARGER(out[j], from[j * (stride)]); }
TJ_INLINE void TJ_OF(larger)(const TJ_NUMBER* TJ_ONLY from, int64_t stride, TJ_NUMBER* TJ_ONLY out, int64_t count) {
    int64_t j;
    if (stride == 1) { TJ_EACH(1) } else if (stride == 2) { TJ_EACH(2) } else { TJ_EACH(stride) }
}
#undef TJ_EACH
#define TJ_WINS_OVER(best, begin, other, other_begin)                                                                             \
    ((other > best) | ((other == best) & (other_begin < begin)) | ((other != other) & ((best == best) | (other_begin >= begin))))
#define TJ_EACH(stride)                                                                                                           \
    for (j = 0; j < count; j++) {                                                                                                 \
        TJ_NUMBER other = from[j * (stride)];                                                                                     \
        TJ_PLACE begin = begins[j * (stride)];                                                                                    \
        int wins = TJ_WINS_OVER(best[j], row[j], other, begin);                                                                   \
        best[j] = wins ? other : best[j];                                                                                         \
        row[j] = wins ? begin : row[j];                                                                                           \
        column[j] = wins ? (TJ_PLACE)(j * (stride) + shift) : column[j];                                                          \
    }
TJ_INLINE void TJ_OF(winners)(const TJ_NUMBER* TJ_ONLY from, const TJ_PLACE* TJ_ONLY begins, int64_t stride, int64_t shift, TJ_NUMBER* TJ_ONLY best,
                              TJ_PLACE* TJ_ONLY row, TJ_PLACE* TJ_ONLY column, int64_t count) {
    int64_t j;
    if (stride == 1) { TJ_EACH(1) } else if (stride == 2) { TJ_EACH(2) } else { TJ_EACH(stride) }
}
#undef TJ_EACH
/* The largest elements of one row of windows. room: `wide` numbers, of which those are -INFINITY that are outside of the volume. */
TJ_INLINE void TJ_OF(values)(const tj_pooling* p, const TJ_NUMBER* x, int64_t slice, int64_t row, TJ_NUMBER* room, TJ_NUMBER* TJ_ONLY out) {
    int64_t k, count = p->made[2];
    TJ_OF(columns)(p, x, slice, row, room + p->before[2], 0);
    for (k = 0; k < count; k++) { out[k] = room[k * p->stride[2]]; }
    for (k = 1; k < p->kernel[2]; k++) { TJ_OF(larger)(room + k * p->dilation[2], p->stride[2], out, count); }
}
/* The same, and where they are: the beginnings of their rows and their columns. begins: as many places as `room` has numbers. */
TJ_INLINE void TJ_OF(places)(const tj_pooling* p, const TJ_NUMBER* x, int64_t slice, int64_t at, TJ_NUMBER* room, TJ_PLACE* begins, TJ_NUMBER* TJ_ONLY best,
                             TJ_PLACE* TJ_ONLY row, TJ_PLACE* TJ_ONLY column) {
    int64_t j, k, first, end, count = p->made[2];
    TJ_OF(columns)(p, x, slice, at, room + p->before[2], begins + p->before[2]);
    for (j = 0; j < count && p->bounds[2]; j++) {
        tj_window(p, 2, j, &first, &end);
        best[j] = room[first];
        row[j] = begins[first];
        column[j] = (TJ_PLACE)first;
        for (k = first + 1; k < end; k++) {
            if (room[k] < best[j] || !TJ_WINS_OVER(best[j], row[j], room[k], begins[k])) { continue; } /* most are less: known before they are read */
            best[j] = room[k];
            row[j] = begins[k];
            column[j] = (TJ_PLACE)k;
        }
    }
    for (j = 0; j < count && !p->bounds[2]; j++) {
        best[j] = room[j * p->stride[2]];
        row[j] = begins[j * p->stride[2]];
        column[j] = (TJ_PLACE)(j * p->stride[2] - p->before[2]);
    }
    for (k = 1; k < p->kernel[2] && !p->bounds[2]; k++) {
        int64_t shift = k * p->dilation[2];
        TJ_OF(winners)(room + shift, begins + shift, p->stride[2], shift - p->before[2], best, row, column, count);
    }
}
#undef TJ_WINS_OVER
/* What is asked for of one volume: its largest elements; these and their places; or the gradient. */
TJ_CLONES static void TJ_OF(volume)(const tj_pooling* p, int64_t which, TJ_NUMBER* room, int64_t wide) {
    int64_t slice, at, j, first[3], end, across = p->made[2], size = p->size[0] * p->size[1] * p->size[2], number = which * p->made[0] * p->made[1];
    const TJ_NUMBER* x = (const TJ_NUMBER*)p->given[0] + which * size;
    TJ_NUMBER *best = room + wide, *out = (TJ_NUMBER*)p->out[0];
    TJ_PLACE *begins = (TJ_PLACE*)(best + across), *row = begins + wide, *column = row + across;
    if (p->of == TJ_POOLED_GRADIENT) { memset(out += which * size, 0, (size_t)size * sizeof(TJ_NUMBER)); }
    for (slice = 0; slice < p->made[0]; slice++) {
        for (at = 0; at < p->made[1]; at++, number++) {
            if (p->of == TJ_POOLED) {
                TJ_OF(values)(p, x, slice, at, room, out + number * across);
                continue;
            }
            TJ_OF(places)(p, x, slice, at, room, begins, best, row, column);
            if (p->of == TJ_POOLED_GRADIENT) {
                const TJ_NUMBER* grad = (const TJ_NUMBER*)p->given[1] + number * across;
                for (j = 0; j < across; j++) { if (row[j] != TJ_NOWHERE) { out[row[j] + column[j]] += grad[j]; } }
                continue;
            }
            memcpy(out + number * across, best, (size_t)across * sizeof(TJ_NUMBER));
            for (j = 0; j < across; j++) {
                int64_t place = row[j] + column[j];
                if (row[j] == TJ_NOWHERE) { /* of a window without an element: where its first one would be */
                    tj_window(p, 0, slice, first, &end);
                    tj_window(p, 1, at, first + 1, &end);
                    tj_window(p, 2, j, first + 2, &end);
                    place = (first[0] * p->size[1] + first[1]) * p->size[2] + first[2];
                }
                ((int64_t*)p->out[1])[number * across + j] = place;
            }
        }
    }
}
/* Elements put, or added up, at flat places of a volume of zeros, those at others left out; or a volume's at such places. */
static void TJ_OF(put)(const tj_pooling* p, int64_t which) {
    int64_t size = p->size[0] * p->size[1] * p->size[2], count = p->made[0] * p->made[1] * p->made[2], j;
    const TJ_NUMBER* x = (const TJ_NUMBER*)p->given[0] + which * (p->of == TJ_POOLED_TAKEN ? size : count);
    const int64_t* place = (const int64_t*)p->given[1] + which * count;
    TJ_NUMBER* out = (TJ_NUMBER*)p->out[0] + which * (p->of == TJ_POOLED_TAKEN ? count : size);
    for (j = 0; j < count && p->of == TJ_POOLED_TAKEN; j++) { out[j] = (uint64_t)place[j] < (uint64_t)size ? x[place[j]] : 0; }
    if (p->of == TJ_POOLED_TAKEN) { return; }
    memset(out, 0, (size_t)size * sizeof(TJ_NUMBER));
    for (j = 0; j < count; j++) {
        if ((uint64_t)place[j] >= (uint64_t)size) { continue; }
        if (p->of == TJ_POOLED_PUT) { out[place[j]] = x[j]; } else { out[place[j]] += x[j]; }
    }
}
/* Some volumes. */
static void TJ_OF(piece)(const void* work, int64_t piece, tj_hand* hand) {
    tj_pooling own = *(const tj_pooling*)work, *p = &own;
    int64_t which = piece * p->together, last = which + p->together < p->volumes ? which + p->together : p->volumes, j;
    int64_t wide = p->bounds[2] ? 0 : (p->made[2] - 1) * p->stride[2] + (p->kernel[2] - 1) * p->dilation[2] + 1;
    TJ_NUMBER* room = (TJ_NUMBER*)hand->kept;
    if (wide < p->before[2] + p->size[2]) { wide = p->before[2] + p->size[2]; }
    if (!room && p->of <= TJ_POOLED_GRADIENT) {
        hand->kept = room = (TJ_NUMBER*)malloc((size_t)(2 * wide + 3 * p->made[2]) * sizeof(TJ_NUMBER));
        if (!room) { abort(); }
        for (j = 0; j < wide; j++) {
            room[j] = -INFINITY;
            ((TJ_PLACE*)(room + wide + p->made[2]))[j] = TJ_NOWHERE;
        }
    }
    for (j = 0; j < 3; j++) { own.bounds[j] = p->bounds[j] ? p->bounds[j] + which * p->leap : 0; }
    for (; which < last; which++) {
        if (p->of > TJ_POOLED_GRADIENT) { TJ_OF(put)(p, which); } else { TJ_OF(volume)(p, which, room, wide); }
        for (j = 0; j < 3; j++) { own.bounds[j] = p->bounds[j] ? p->bounds[j] + p->leap : 0; }
    }
}
#undef TJ_NUMBER
#undef TJ_PLACE
#undef TJ_NOWHERE
#undef TJ_LARGER
#undef TJ_OF
