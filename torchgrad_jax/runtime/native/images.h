/* Convolutions by vectors of TJ_LANES floats: included by `convolving.pxd` for each width. */
typedef float TJ_WIDE(vector) __attribute__((vector_size(4 * TJ_LANES), aligned(4), may_alias));
typedef int32_t TJ_WIDE(bits) __attribute__((vector_size(4 * TJ_LANES), aligned(4), may_alias));

/* Up to 3 vectors of places of some channels: `weights` has so many for each tap. count, channels: constants, so that all is in registers. */
TJ_INLINE void TJ_WIDE(tile)(const float* const x[TJ_TILES], const int64_t* offsets, const float* weights, int64_t taps, const int channels, const int count,
                       TJ_WIDE(vector) made[TJ_TILES][TJ_MOST]) {
    TJ_WIDE(vector) sums[TJ_TILES][TJ_MOST];
    const float *one = x[0], *two = x[1], *three = x[2];
    int64_t k;
    int i, j;
    TJ_ALL_OF for (j = 0; j < count; j++) { TJ_ALL_OF for (i = 0; i < channels; i++) { sums[j][i] = (TJ_WIDE(vector)){0}; } }
    for (k = 0; k < taps; k++, weights += channels) {
        TJ_WIDE(vector) a = *(const TJ_WIDE(vector)*)(one + offsets[k]), b, c;
        if (count > 1) { b = *(const TJ_WIDE(vector)*)(two + offsets[k]); }
        if (count > 2) { c = *(const TJ_WIDE(vector)*)(three + offsets[k]); }
        TJ_ALL_OF for (i = 0; i < channels; i++) {
            sums[0][i] += a * weights[i];
            if (count > 1) { sums[1][i] += b * weights[i]; }
            if (count > 2) { sums[2][i] += c * weights[i]; }
        }
    }
    TJ_ALL_OF for (j = 0; j < count; j++) { TJ_ALL_OF for (i = 0; i < channels; i++) { made[j][i] = sums[j][i]; } }
}
TJ_INLINE void TJ_WIDE(tiles)(const float* const x[TJ_TILES], const int64_t* offsets, const float* weights, int64_t taps, const int channels, int64_t count,
                        TJ_WIDE(vector) made[TJ_TILES][TJ_MOST]) {
    if (count == 1) { TJ_WIDE(tile)(x, offsets, weights, taps, channels, 1, made); }
    else if (count == 2) { TJ_WIDE(tile)(x, offsets, weights, taps, channels, 2, made); }
    else { TJ_WIDE(tile)(x, offsets, weights, taps, channels, 3, made); }
}

/* Where in the result the places of a tile of packed images are, from one on: -1 where there is none. The first of the piece is `image`. */
TJ_INLINE void TJ_WIDE(targets)(const tj_convolution* p, int64_t image, int64_t first, int64_t target[TJ_TILES * TJ_LANES]) {
    int64_t count = p->down * p->across, row = first % count / p->across, column = first % count % p->across, last = image + p->packed, i;
    if (last > p->batch * p->slices) { last = p->batch * p->slices; }
    image += first / count;
    for (i = 0; i < TJ_TILES * TJ_LANES; i++) {
        target[i] = image < last ? tj_made_at(p, image) + (row * p->step[1] + p->first[1]) * p->line + column * p->step[2] + p->first[2] : -1;
        if (++column < p->across) { continue; }
        column = 0;
        if (++row < p->down) { continue; }
        row = 0;
        image++;
    }
}

/* Some images that are packed. y: for each so many channels, their weights tap by tap. */
TJ_INLINE void TJ_WIDE(several)(const tj_convolution* p, int64_t image, const int channels) {
    int64_t left = p->batch * p->slices - image, images = left < p->packed ? left : p->packed, last = p->columns / TJ_LANES, tile, o, k;
    int64_t target[TJ_TILES * TJ_LANES];
    const float* y = p->y + image / p->slices % p->groups * p->weights;
    float *room = (float*)calloc((size_t)(images * p->each + p->taps * p->columns + 8), 4), *packed = room + images * p->each;
    if (!room) { abort(); }
    for (k = 0; k < images; k++) { tj_image(p, image + k, 0, p->down, room + k * p->each); }
    tj_pack_images(p, room, images, packed);
    for (tile = 0; tile < last; tile += TJ_TILES) {
        const float* x[TJ_TILES];
        int i, j;
        TJ_WIDE(targets)(p, image, tile * TJ_LANES, target);
        for (j = 0; j < TJ_TILES; j++) { x[j] = packed + (tile + j < last ? tile + j : tile) * TJ_LANES; }
        for (o = 0; o < p->to; o += channels) {
            TJ_WIDE(vector) made[TJ_TILES][TJ_MOST];
            TJ_WIDE(tiles)(x, p->columns_at, y + o * p->taps, p->taps, channels, last - tile, made);
            for (j = 0; j < TJ_TILES && tile + j < last; j++) {
                const int64_t* at = target + j * TJ_LANES;
                int whole = at[TJ_LANES - 1] >= 0 && at[TJ_LANES - 1] - at[0] == TJ_LANES - 1;
                for (i = 0; i < channels && o + i < p->to; i++) {
                    float* out = p->out + (o + i) * p->lead;
                    if (whole) { *(TJ_WIDE(vector)*)(out + at[0]) = made[j][i]; }
                    else { for (k = 0; k < TJ_LANES; k++) { if (at[k] >= 0) { out[at[k]] = made[j][i][k]; } } }
                }
            }
        }
    }
    free(room);
}

/* A band of an image, of one of the cuts of the channels, or some images that are packed. */
TJ_INLINE void TJ_WIDE(image)(const tj_convolution* p, int64_t piece, const int channels) {
    int64_t image = piece / p->cuts / p->bands, band = piece / p->cuts % p->bands, cut = piece % p->cuts, blocks = tj_pieces(p->to, channels);
    int64_t begin = blocks * cut / p->cuts * channels, end = blocks * (cut + 1) / p->cuts * channels, tiles = tj_pieces(p->across, TJ_LANES), all = p->down * tiles, tile, o, k;
    int64_t threes = tj_pieces(all, TJ_TILES), last = threes * (band + 1) / p->bands * TJ_TILES;
    float *room, *out = p->out + tj_made_at(p, image);
    const float *read, *y = p->y + image / p->slices % p->groups * p->weights;
    if (p->packed) {
        TJ_WIDE(several)(p, piece * p->packed, channels);
        return;
    }
    room = (float*)malloc((size_t)(p->in_place ? 4 : p->each * 4));
    if (!room) { abort(); }
    if (last > all) { last = all; }
    tile = threes * band / p->bands * TJ_TILES;
    read = tj_image(p, image, tile / tiles, tj_pieces(last, tiles), room);
    for (; tile < last; tile += TJ_TILES) {
        const float* x[TJ_TILES];
        int64_t at[TJ_TILES], count[TJ_TILES];
        int i, j;
        for (j = 0; j < TJ_TILES; j++) {
            int64_t which = tile + j < last ? tile + j : tile, row = which / tiles, column = which % tiles * TJ_LANES;
            x[j] = read + row * p->stride[1] * p->stride[2] * p->wide + column;
            at[j] = (row * p->step[1] + p->first[1]) * p->line + column * p->step[2] + p->first[2];
            count[j] = p->across - column < TJ_LANES ? p->across - column : TJ_LANES;
        }
        for (o = begin; o < end; o += channels) {
            TJ_WIDE(vector) made[TJ_TILES][TJ_MOST];
            TJ_WIDE(tiles)(x, p->offsets, y + o * p->taps, p->taps, channels, last - tile, made);
            for (j = 0; j < TJ_TILES && tile + j < last; j++) {
                for (i = 0; i < channels && o + i < p->to; i++) {
                    float* place = out + (o + i) * p->lead + at[j];
                    if (p->step[2] > 1) { for (k = 0; k < count[j]; k++) { place[k * p->step[2]] = made[j][i][k]; } }
                    else if (count[j] == TJ_LANES) { *(TJ_WIDE(vector)*)place = made[j][i]; }
                    else { tj_copy(place, (const float*)&made[j][i], count[j]); }
                }
            }
        }
    }
    free(room);
}

/* Add to `out`, for some taps and one or two vectors of channels of the kernel's gradient, what all places of an image give. grads: for each place the
   gradients of those channels. rows, vectors: constants, so that all is in registers. */
TJ_INLINE void TJ_WIDE(sums)(const tj_convolution* p, const float* x, const int64_t* offsets, const float* grads, float* out, int64_t lead,
                             const int rows, const int vectors) {
    TJ_WIDE(vector) sums[TJ_MOST_TAPS][2];
    const float* from[TJ_MOST_TAPS];
    int64_t row, at, line = p->stride[1] * p->stride[2] * p->wide;
    int i, j;
    TJ_ALL_OF for (i = 0; i < rows; i++) {
        from[i] = x + offsets[i];
        TJ_ALL_OF for (j = 0; j < vectors; j++) { sums[i][j] = (TJ_WIDE(vector)){0}; }
    }
    for (row = 0; row < p->down; row++) {
        for (at = row * line; at < row * line + p->across; at++, grads += vectors * TJ_LANES) {
            TJ_WIDE(vector) here[2];
            TJ_ALL_OF for (j = 0; j < vectors; j++) { here[j] = *(const TJ_WIDE(vector)*)(grads + j * TJ_LANES); }
            TJ_ALL_OF for (i = 0; i < rows; i++) { TJ_ALL_OF for (j = 0; j < vectors; j++) { sums[i][j] += here[j] * from[i][at]; } }
        }
    }
    TJ_ALL_OF for (i = 0; i < rows; i++) { TJ_ALL_OF for (j = 0; j < vectors; j++) { *(TJ_WIDE(vector)*)(out + i * lead + j * TJ_LANES) += sums[i][j]; } }
}

/* The kernel's gradient of one part of the batch, and of one of the bands of channels: y is the result's. `out` has room for each part's, tap by tap of
   all channels, some more of both. */
TJ_INLINE void TJ_WIDE(some)(const tj_convolution* p, int64_t piece, const int rows, const int vectors) {
    int64_t part = piece / p->bands, band = piece % p->bands, images = p->batch * p->slices, size = tj_pieces(images, p->parts), image = part * size;
    int64_t last = image + size < images ? image + size : images;
    int64_t wide = vectors * TJ_LANES, lead = tj_pieces(p->to, wide) * wide, o, k;
    float *out = p->out + part * (p->taps + TJ_MOST_TAPS) * lead, *room, *grads;
    if (image >= last) { return; }
    room = (float*)malloc((size_t)((p->each + p->places * wide) * 4) + TJ_ALIGNED);
    if (!room) { abort(); }
    grads = (float*)(((uintptr_t)(room + p->each) + TJ_ALIGNED - 1) / TJ_ALIGNED * TJ_ALIGNED);
    for (; image < last; image++) {
        const float* read = tj_image(p, image, 0, p->down, room);
        for (o = band * wide; o < p->to; o += p->bands * wide) {
            p->turn(grads, p->y + tj_made_at(p, image) + o * p->lead, p->lead, p->to - o < wide ? p->to - o : wide, wide, p->places);
            for (k = 0; k < p->taps; k += rows) {
                float* to = out + k * lead + o;
                if (p->taps - k <= rows / 3) { TJ_WIDE(sums)(p, read, p->offsets + k, grads, to, lead, rows / 3, vectors); }
                else if (p->taps - k <= rows / 3 * 2) { TJ_WIDE(sums)(p, read, p->offsets + k, grads, to, lead, rows / 3 * 2, vectors); }
                else { TJ_WIDE(sums)(p, read, p->offsets + k, grads, to, lead, rows, vectors); }
            }
        }
    }
    free(room);
}
TJ_INLINE void TJ_WIDE(part)(const tj_convolution* p, int64_t part, const int rows) {
    if (p->vectors == 1) { TJ_WIDE(some)(p, part, rows, 1); } else { TJ_WIDE(some)(p, part, rows, 2); }
}

/* Add to `out`, for some taps of one channel of the kernel's gradient, what all places of an image give. grads: those places' gradients. */
TJ_INLINE void TJ_WIDE(dots)(const tj_convolution* p, const float* x, const int64_t* offsets, const float* grads, float* out, const int rows) {
    TJ_WIDE(vector) sums[TJ_MOST_TAPS];
    int64_t row, at, line = p->stride[1] * p->stride[2] * p->wide, whole = p->across / TJ_LANES * TJ_LANES;
    int32_t mask[TJ_LANES];
    int i, j;
    for (j = 0; j < TJ_LANES; j++) { mask[j] = whole + j < p->across ? -1 : 0; }
    TJ_ALL_OF for (i = 0; i < rows; i++) { sums[i] = (TJ_WIDE(vector)){0}; }
    for (row = 0; row < p->down; row++, grads += p->across) {
        const float* from = x + row * line;
        for (at = 0; at < whole; at += TJ_LANES) {
            TJ_WIDE(vector) here = *(const TJ_WIDE(vector)*)(grads + at);
            TJ_ALL_OF for (i = 0; i < rows; i++) { sums[i] += here * *(const TJ_WIDE(vector)*)(from + offsets[i] + at); }
        }
        if (whole < p->across) { /* what is beyond counts for nothing, whatever it is */
            TJ_WIDE(vector) here = {0};
            tj_copy((float*)&here, grads + whole, p->across - whole);
            TJ_ALL_OF for (i = 0; i < rows; i++) {
                TJ_WIDE(bits) there = *(const TJ_WIDE(bits)*)(from + offsets[i] + whole) & *(const TJ_WIDE(bits)*)mask;
                sums[i] += here * (TJ_WIDE(vector))there;
            }
        }
    }
    TJ_ALL_OF for (i = 0; i < rows; i++) { for (j = 0; j < TJ_LANES; j++) { out[i] += sums[i][j]; } }
}

/* The kernel's gradient of one group of channels: y is the result's. */
TJ_INLINE void TJ_WIDE(group)(const tj_convolution* p, int64_t group, const int rows) {
    int64_t lead = p->taps + TJ_MOST_TAPS, image, o, k;
    float *room = (float*)malloc((size_t)(p->each * 4)), *out = (float*)calloc((size_t)(p->to * lead), 4);
    if (!room || !out) { abort(); }
    for (image = group * p->slices; image < p->batch * p->slices; image += image % p->slices < p->slices - 1 ? 1 : (p->groups - 1) * p->slices + 1) {
        const float* read = tj_image(p, image, 0, p->down, room);
        for (o = 0; o < p->to; o++) {
            const float* grads = p->y + tj_made_at(p, image) + o * p->lead;
            for (k = 0; k < p->taps; k += rows) {
                float* to = out + o * lead + k;
                if (p->taps - k <= rows / 3) { TJ_WIDE(dots)(p, read, p->offsets + k, grads, to, rows / 3); }
                else if (p->taps - k <= rows / 3 * 2) { TJ_WIDE(dots)(p, read, p->offsets + k, grads, to, rows / 3 * 2); }
                else { TJ_WIDE(dots)(p, read, p->offsets + k, grads, to, rows); }
            }
        }
    }
    for (o = 0; o < p->to; o++) { memcpy(p->out + (group * p->to + o) * p->taps, out + o * lead, (size_t)(p->taps * 4)); }
    free(out);
    free(room);
}
#undef TJ_LANES
#undef TJ_WIDE
