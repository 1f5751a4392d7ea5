/* Convolutions by vectors of TJ_LANES floats: included by `convolving.pxd` for each width. */
typedef float TJ_WIDE(vector) __attribute__((vector_size(4 * TJ_LANES), aligned(4), may_alias));
typedef int32_t TJ_WIDE(mask) __attribute__((vector_size(4 * TJ_LANES)));

/* 3 vectors of places of some channels: `weights` has so many for each tap. */
TJ_INLINE void TJ_WIDE(tile)(const float* const x[TJ_TILES], const int64_t* offsets, const float* weights, int64_t taps, const int channels,
                       TJ_WIDE(vector) made[TJ_TILES][TJ_MOST]) {
    TJ_WIDE(vector) sums[TJ_TILES][TJ_MOST];
    const float *one = x[0], *two = x[1], *three = x[2];
    int64_t k;
    int i, j;
    for (j = 0; j < TJ_TILES; j++) { for (i = 0; i < channels; i++) { sums[j][i] = (TJ_WIDE(vector)){0}; } }
    for (k = 0; k < taps; k++, weights += channels) {
        TJ_WIDE(vector) a = *(const TJ_WIDE(vector)*)(one + offsets[k]), b = *(const TJ_WIDE(vector)*)(two + offsets[k]), c = *(const TJ_WIDE(vector)*)(three + offsets[k]);
        for (i = 0; i < channels; i++) {
            sums[0][i] += a * weights[i];
            sums[1][i] += b * weights[i];
            sums[2][i] += c * weights[i];
        }
    }
    for (j = 0; j < TJ_TILES; j++) { for (i = 0; i < channels; i++) { made[j][i] = sums[j][i]; } }
}

/* A band of an image. y: for each so many channels, their weights tap by tap. */
TJ_INLINE void TJ_WIDE(image)(const tj_convolution* p, int64_t piece, const int channels) {
    int64_t image = piece / p->bands, band = piece % p->bands, tiles = tj_pieces(p->across, TJ_LANES), all = p->down * tiles, tile, o, k;
    int64_t last = all * (band + 1) / p->bands;
    float *room = (float*)malloc((size_t)(p->each * 4)), *out = p->out + image * p->to * p->places;
    if (!room) { abort(); }
    tj_copy_image(p, p->x + image * p->channels * p->height * p->width, room);
    for (tile = all * band / p->bands; tile < last; tile += TJ_TILES) {
        const float* x[TJ_TILES];
        int64_t at[TJ_TILES], count[TJ_TILES];
        int i, j;
        for (j = 0; j < TJ_TILES; j++) {
            int64_t which = tile + j < last ? tile + j : tile, row = which / tiles, column = which % tiles * TJ_LANES;
            x[j] = room + row * p->stride[0] * p->stride[1] * p->wide + column;
            at[j] = (row * p->step[0] + p->first[0]) * p->line + column * p->step[1] + p->first[1];
            count[j] = p->across - column < TJ_LANES ? p->across - column : TJ_LANES;
        }
        for (o = 0; o < p->to; o += channels) {
            TJ_WIDE(vector) made[TJ_TILES][TJ_MOST];
            TJ_WIDE(tile)(x, p->offsets, p->y + o * p->taps, p->taps, channels, made);
            for (j = 0; j < TJ_TILES && tile + j < last; j++) {
                for (i = 0; i < channels && o + i < p->to; i++) {
                    float* place = out + (o + i) * p->places + at[j];
                    if (p->step[1] > 1) { for (k = 0; k < count[j]; k++) { place[k * p->step[1]] = made[j][i][k]; } }
                    else if (count[j] == TJ_LANES) { *(TJ_WIDE(vector)*)place = made[j][i]; }
                    else { tj_copy(place, (const float*)&made[j][i], count[j]); }
                }
            }
        }
    }
    free(room);
}

/* The sum of a vector's floats. */
TJ_INLINE float TJ_WIDE(total)(TJ_WIDE(vector) of) {
    tj_four fours[TJ_LANES / 4], sum;
    int i;
    memcpy(fours, &of, sizeof(of));
    sum = fours[0];
    _Pragma("GCC unroll 4") for (i = 1; i < TJ_LANES / 4; i++) { sum += fours[i]; }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* The sums over all places of some images, for some channels of the gradient and 3 taps. What is beyond an image's edge counts for nothing by zeros in the
   gradient, but if it is no number: then `exact` leaves it out. */
TJ_INLINE void TJ_WIDE(sums)(const tj_convolution* p, const float* room, const float* const grads[TJ_MOST], const int64_t* offsets, int64_t images,
                             const int channels, float found[TJ_MOST][TJ_TAPS], const int exact) {
    TJ_WIDE(vector) sums[TJ_MOST][TJ_TAPS];
    TJ_WIDE(mask) only;
    int64_t image, row, column, at = 0, line = p->stride[0] * p->stride[1] * p->wide;
    int i, j, k;
    for (i = 0; i < channels; i++) { for (j = 0; j < TJ_TAPS; j++) { sums[i][j] = (TJ_WIDE(vector)){0}; } }
    for (image = 0; image < images; image++) {
        const float* x = room + image * p->each;
        for (row = 0; row < p->down; row++, x += line) {
            for (column = 0; column < p->across; column += TJ_LANES, at += TJ_LANES) {
                TJ_WIDE(vector) a[TJ_TAPS];
                for (j = 0; j < TJ_TAPS; j++) { a[j] = *(const TJ_WIDE(vector)*)(x + column + offsets[j]); }
                if (exact) {
                    for (k = 0; k < TJ_LANES; k++) { only[k] = column + k < p->across ? -1 : 0; }
                    for (j = 0; j < TJ_TAPS; j++) { a[j] = (TJ_WIDE(vector))((TJ_WIDE(mask))a[j] & only); }
                }
                for (i = 0; i < channels; i++) {
                    TJ_WIDE(vector) g = *(const TJ_WIDE(vector)*)(grads[i] + at);
                    for (j = 0; j < TJ_TAPS; j++) { sums[i][j] += g * a[j]; }
                }
            }
        }
    }
    for (i = 0; i < channels; i++) { for (j = 0; j < TJ_TAPS; j++) { found[i][j] = TJ_WIDE(total)(sums[i][j]); } }
}

/* The kernel's gradient of one part of the batch: y is the result's, `out` has room for each part's (to, taps). */
TJ_INLINE void TJ_WIDE(part)(const tj_convolution* p, int64_t part, const int channels) {
    int64_t size = tj_pieces(p->batch, p->parts), first = part * size, last = first + size < p->batch ? first + size : p->batch;
    int64_t tiles = tj_pieces(p->across, TJ_LANES) * TJ_LANES, plane = p->down * tiles, most = tj_pieces(TJ_PLACES, plane), o, k, image, row;
    float *out = p->out + part * p->to * p->taps, *room, *grads;
    int i, j;
    if (first >= last) { return; }
    if (most > last - first) { most = last - first; }
    room = (float*)malloc((size_t)(most * (p->each + p->to * plane) * 4));
    if (!room) { abort(); }
    grads = room + most * p->each;
    for (; first < last; first += most) {
        int64_t images = last - first < most ? last - first : most;
        for (image = 0; image < images; image++) {
            const float* y = p->y + (first + image) * p->to * p->places;
            tj_copy_image(p, p->x + (first + image) * p->channels * p->height * p->width, room + image * p->each);
            for (o = 0; o < p->to; o++) {
                float* to = grads + (o * most + image) * plane;
                for (row = 0; row < p->down; row++, y += p->across, to += tiles) {
                    *(TJ_WIDE(vector)*)(to + tiles - TJ_LANES) = (TJ_WIDE(vector)){0};
                    tj_copy(to, y, p->across);
                }
            }
        }
        for (o = 0; o < p->to; o += channels) {
            const float* planes[TJ_MOST];
            for (i = 0; i < channels; i++) { planes[i] = grads + (o + i < p->to ? o + i : p->to - 1) * most * plane; }
            for (k = 0; k < p->taps; k += TJ_TAPS) {
                int64_t offsets[TJ_TAPS];
                float found[TJ_MOST][TJ_TAPS], all = 0;
                for (j = 0; j < TJ_TAPS; j++) { offsets[j] = p->offsets[k + j < p->taps ? k + j : p->taps - 1]; }
                TJ_WIDE(sums)(p, room, planes, offsets, images, channels, found, 0);
                for (i = 0; i < channels; i++) { for (j = 0; j < TJ_TAPS; j++) { all += found[i][j]; } }
                if (all - all != 0) { TJ_WIDE(sums)(p, room, planes, offsets, images, channels, found, 1); }
                for (i = 0; i < channels && o + i < p->to; i++) {
                    for (j = 0; j < TJ_TAPS && k + j < p->taps; j++) { out[(o + i) * p->taps + k + j] += found[i][j]; }
                }
            }
        }
    }
    free(room);
}
#undef TJ_LANES
#undef TJ_WIDE
