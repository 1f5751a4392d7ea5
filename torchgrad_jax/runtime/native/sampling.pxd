from cpython.pycapsule cimport PyCapsule_New

from torchgrad_jax.runtime.native cimport sharing
from torchgrad_jax.runtime.native.buffers cimport Buffers, hold, let_go

# Images and volumes of float32 at the points of a grid: the mean of the four pixels around each, or of the eight, by how near they are, or the
# nearest one. The coordinates are those of `operators/grid.py`. Some points at a time: where their pixels are first, then channel by channel what
# these are.
cdef extern from *:
    """
    enum { TJ_POINTS = 256, TJ_SAMPLES = 1 << 13, TJ_SAMPLED_ALONE = 1 << 15, TJ_PLANES = 4 };
    enum { TJ_VALUES, TJ_OF_IMAGE, TJ_OF_GRID };
    /* Of `dims` dimensions, the last ones of `size`: depth, height and width; `pixels` in all. */
    typedef struct {
        const float *image, *grid, *grad;
        float* out;
        int64_t dims, batch, channels, size[3], points, of, nearest, padding, corners, pixels, together, planes;
    } tj_sampling;
    /* Of some points: what their coordinates in the image have for slopes, the width's first. Of the `count` ones that are `kept`, which those are;
       where the pixels around each are, -1 outside; how much of each counts; and how far the point is after the first one. */
    typedef struct {
        int64_t count;
        int32_t kept[TJ_POINTS], place[8][TJ_POINTS];
        float weight[8][TJ_POINTS], after[3][TJ_POINTS], slope[3][TJ_POINTS];
    } tj_around;

    TJ_INLINE float tj_in_pixels(float point, float size, int dims, int corners) {
        if (corners) { return (point + 1) / 2 * (size - 1); }
        return dims == 2 ? (float)((double)(point + 1) * ((double)size / 2) - 0.5) : (float)(((double)((point + 1) * size) - 1) / 2);
    }
    /* Mirrored at the edges as often as is needed; the slope is turned with it. */
    static float tj_mirrored(float at, float size, int corners, float* slope) {
        float least = corners ? 0.0f : -0.5f, span = corners ? size - 1 : size, distance, beyond;
        if (span == 0) {
            *slope = 0;
            return 0;
        }
        distance = at < least ? least - at : at - least;
        if (at < least) { *slope = -*slope; }
        beyond = distance < span ? distance : fmodf(distance, span);
        if (fmodf(floorf(distance / span), 2) == 0) { return beyond + least; }
        *slope = -*slope;
        return span + least - beyond;
    }
    TJ_INLINE float tj_clipped(float at, float last, float* slope) {
        float inside = at > 0 ? (at < last ? at : last) : 0;
        *slope = (at > 0) & (at < last) ? *slope : 0;
        return inside;
    }
    /* Coordinates along one dimension: the first pixel of each, -2 where that and the next are outside. What is no number is, of volumes, outside too,
       or of values that are padded at the last pixel. */
    TJ_INLINE void tj_first(const tj_sampling* s, const float* grid, int64_t count, float size, int dims, int padding, int corners, int nearest,
                            int32_t* first, float* after, float* slope) {
        float lost = s->of == TJ_VALUES ? size - 1 : NAN;
        int64_t j;
        for (j = 0; j < count; j++) {
            float at = tj_in_pixels(grid[dims * j], size, dims, corners), turn = corners ? (size - 1) / 2 : size / 2, low;
            int32_t inside;
            if (padding == 2) { at = tj_mirrored(at, size, corners, &turn); }
            if (padding) {
                float clipped = tj_clipped(at, size - 1, &turn);
                at = dims == 2 || at == at ? clipped : lost;
            }
            low = nearest ? rintf(at) : floorf(at);
            inside = (low >= -1) & (low < size);
            first[j] = inside ? (int32_t)low : -2;
            after[j] = dims == 2 || inside ? at - low : 0;
            slope[j] = turn;
        }
    }
    #define TJ_FIRST(dims, padding, corners, nearest)                                                      \\
        case (dims * 3 + padding) * 4 + corners * 2 + nearest:                                             \\
            tj_first(s, grid, count, size, dims, padding, corners, nearest, first, after, slope);          \\
            break;
    #define TJ_FIRSTS(dims, padding) \\
        TJ_FIRST(dims, padding, 0, 0) TJ_FIRST(dims, padding, 0, 1) TJ_FIRST(dims, padding, 1, 0) TJ_FIRST(dims, padding, 1, 1)
    TJ_CLONES static void tj_first_along(const tj_sampling* s, const float* grid, int64_t count, float size, int32_t* first, float* after,
                                         float* slope) {
        switch ((s->dims * 3 + s->padding) * 4 + s->corners * 2 + s->nearest) {
            TJ_FIRSTS(2, 0) TJ_FIRSTS(2, 1) TJ_FIRSTS(2, 2) TJ_FIRSTS(3, 0) TJ_FIRSTS(3, 1) TJ_FIRSTS(3, 2)
        }
    }
    #undef TJ_FIRSTS
    #undef TJ_FIRST
    /* One of the pixels around each point: the bits of k tell whether it is right of the first one, below, and behind. */
    TJ_INLINE void tj_place_one(const tj_sampling* s, int32_t first[3][TJ_POINTS], tj_around* a, int64_t count, int dims, int k) {
        const int32_t *TJ_ONLY column = first[0], *TJ_ONLY row = first[1], *TJ_ONLY slice = first[2];
        const float *TJ_ONLY across = a->after[0], *TJ_ONLY down = a->after[1], *TJ_ONLY away = a->after[2];
        int32_t depth = (int32_t)s->size[0], height = (int32_t)s->size[1], width = (int32_t)s->size[2], *TJ_ONLY place = a->place[k];
        float* TJ_ONLY weight = a->weight[k];
        int right = k & 1, below = k >> 1 & 1, behind = k >> 2;
        int64_t j;
        for (j = 0; j < count; j++) {
            int32_t y = row[j] + below, x = column[j] + right, inside = (y >= 0) & (y < height) & (x >= 0) & (x < width), at = y * width + x;
            float part = (below ? down[j] : 1 - down[j]) * (right ? across[j] : 1 - across[j]);
            if (dims == 3) {
                int32_t z = slice[j] + behind;
                inside &= (z >= 0) & (z < depth);
                at += z * height * width;
                part *= behind ? away[j] : 1 - away[j];
            }
            place[j] = inside ? at : -1;
            weight[j] = part;
        }
    }
    /* Leave out points of volumes all around which is outside: often there are many, and PyTorch passes over them. */
    static void tj_keep_points(int32_t first[3][TJ_POINTS], tj_around* a, int64_t count) {
        int64_t j, kept = 0;
        int d;
        for (j = 0; j < count; j++) {
            a->kept[kept] = (int32_t)j;
            kept += (first[0][j] != -2) & (first[1][j] != -2) & (first[2][j] != -2);
        }
        a->count = kept;
        for (d = 0; d < 3 && kept < count; d++) {
            for (j = 0; j < kept; j++) {
                first[d][j] = first[d][a->kept[j]];
                a->after[d][j] = a->after[d][a->kept[j]];
            }
        }
    }
    #define TJ_PLACE(dims, k) tj_place_one(s, first, a, a->count, dims, k);
    TJ_CLONES static void tj_place_around(const tj_sampling* s, const float* grid, int64_t count, tj_around* a) {
        int32_t first[3][TJ_POINTS];
        int64_t d;
        for (d = 0; d < s->dims; d++) { tj_first_along(s, grid + d, count, (float)s->size[2 - d], first[d], a->after[d], a->slope[d]); }
        a->count = count;
        if (s->dims == 2) {
            TJ_PLACE(2, 0)
            if (!s->nearest) { TJ_PLACE(2, 1) TJ_PLACE(2, 2) TJ_PLACE(2, 3) }
        } else {
            tj_keep_points(first, a, count);
            TJ_PLACE(3, 0)
            if (!s->nearest) { TJ_PLACE(3, 1) TJ_PLACE(3, 2) TJ_PLACE(3, 3) TJ_PLACE(3, 4) TJ_PLACE(3, 5) TJ_PLACE(3, 6) TJ_PLACE(3, 7) }
        }
    }
    #undef TJ_PLACE
    /* Read in any case, so that many are at once. */
    TJ_INLINE float tj_pixel(const float* image, int32_t place) {
        float found = image[place < 0 ? 0 : place];
        return place < 0 ? 0 : found;
    }
    #define TJ_PIXEL(k) tj_pixel(image, a->place[k][j])
    #define TJ_PART(k) TJ_PIXEL(k) * a->weight[k][j]
    /* Of `taps` pixels around each point. */
    TJ_CLONES static void tj_mean_around(const tj_around* TJ_ONLY a, const float* TJ_ONLY image, int64_t count, int taps, float* TJ_ONLY out) {
        int64_t j;
        if (taps == 1) { for (j = 0; j < count; j++) { out[j] = TJ_PIXEL(0); } }
        else if (taps == 4) { for (j = 0; j < count; j++) { out[j] = TJ_PART(0) + TJ_PART(1) + TJ_PART(2) + TJ_PART(3); } }
        else {
            for (j = 0; j < count; j++) {
                out[j] = TJ_PART(0) + TJ_PART(1) + TJ_PART(2) + TJ_PART(3) + TJ_PART(4) + TJ_PART(5) + TJ_PART(6) + TJ_PART(7);
            }
        }
    }
    #undef TJ_PART
    static void tj_add_around(const tj_around* a, const float* grad, int64_t count, int taps, float* image) {
        int64_t j;
        int k;
        for (j = 0; j < count; j++) {
            for (k = 0; k < taps; k++) {
                if (a->place[k][j] >= 0) { image[a->place[k][j]] += taps == 1 ? grad[j] : grad[j] * a->weight[k][j]; }
            }
        }
    }
    /* What each point's coordinates count for in one channel, added to what they do in others. */
    TJ_CLONES static void tj_lean_around(const tj_around* TJ_ONLY a, const float* TJ_ONLY image, const float* TJ_ONLY grad, int64_t count,
                                         float* TJ_ONLY across, float* TJ_ONLY down) {
        int64_t j;
        for (j = 0; j < count; j++) {
            float p = TJ_PIXEL(0), q = TJ_PIXEL(1), r = TJ_PIXEL(2), s = TJ_PIXEL(3), x = a->after[0][j], y = a->after[1][j];
            across[j] += grad[j] * ((q - p) * (1 - y) + (s - r) * y);
            down[j] += grad[j] * ((r - p) * (1 - x) + (s - q) * x);
        }
    }
    TJ_CLONES static void tj_lean_within(const tj_around* TJ_ONLY a, const float* TJ_ONLY image, const float* TJ_ONLY grad, int64_t count,
                                         float* TJ_ONLY across, float* TJ_ONLY down, float* TJ_ONLY away) {
        int64_t j;
        for (j = 0; j < count; j++) {
            float p = TJ_PIXEL(0), q = TJ_PIXEL(1), r = TJ_PIXEL(2), s = TJ_PIXEL(3);
            float t = TJ_PIXEL(4), u = TJ_PIXEL(5), v = TJ_PIXEL(6), w = TJ_PIXEL(7);
            float x = a->after[0][j], y = a->after[1][j], z = a->after[2][j], left = 1 - x, above = 1 - y, before = 1 - z;
            across[j] += grad[j] * (((q - p) * above + (s - r) * y) * before + ((u - t) * above + (w - v) * y) * z);
            down[j] += grad[j] * (((r - p) * left + (s - q) * x) * before + ((v - t) * left + (w - u) * x) * z);
            away[j] += grad[j] * (((t - p) * left + (u - q) * x) * above + ((v - r) * left + (w - s) * x) * y);
        }
    }
    #undef TJ_PIXEL
    static int tj_taps(const tj_sampling* s) { return s->nearest ? 1 : 1 << s->dims; }
    /* What there is of `count` points, of those that are kept. */
    static const float* tj_of_kept(const tj_around* a, const float* from, int64_t count, float* room) {
        int64_t j;
        if (a->count == count) { return from; }
        for (j = 0; j < a->count; j++) { room[j] = from[a->kept[j]]; }
        return room;
    }
    static void tj_values_around(const tj_around* a, const float* image, int64_t count, int taps, float* out) {
        float room[TJ_POINTS];
        int64_t j;
        if (a->count == count) {
            tj_mean_around(a, image, count, taps, out);
            return;
        }
        tj_mean_around(a, image, a->count, taps, room);
        memset(out, 0, (size_t)count * 4);
        for (j = 0; j < a->count; j++) { out[a->kept[j]] = room[j]; }
    }
    static void tj_leans_around(const tj_around* a, const float* image, const float* grad, int64_t count, int64_t dims, float lean[3][TJ_POINTS]) {
        float room[TJ_POINTS];
        grad = tj_of_kept(a, grad, count, room);
        if (dims == 2) { tj_lean_around(a, image, grad, count, lean[0], lean[1]); }
        else { tj_lean_within(a, image, grad, a->count, lean[0], lean[1], lean[2]); }
    }
    /* What the points' coordinates count for in all channels, as gradients of the grid. */
    static void tj_put_leans(const tj_around* a, float lean[3][TJ_POINTS], int64_t count, int64_t dims, float* out) {
        int64_t j, d;
        if (a->count < count) { memset(out, 0, (size_t)(count * dims * 4)); }
        for (j = 0; j < a->count; j++) {
            int64_t at = a->count < count ? a->kept[j] : j;
            for (d = 0; d < dims; d++) { out[at * dims + d] = lean[d][j] * a->slope[d][at]; }
        }
    }
    /* Points of one image: their values, or the gradients of their coordinates. */
    static void tj_sample_points(const void* sampling, int64_t piece, tj_hand* hand) {
        const tj_sampling* s = (const tj_sampling*)sampling;
        int64_t pieces = tj_pieces(s->points, s->together), image = piece / pieces, at = piece % pieces * s->together, dims = s->dims, c, count;
        int64_t size = s->pixels, end = at + s->together < s->points ? at + s->together : s->points;
        tj_around around;
        float lean[3][TJ_POINTS];
        (void)hand;
        for (; at < end; at += count) {
            const float* grid = s->grid + (image * s->points + at) * dims;
            count = end - at < TJ_POINTS ? end - at : TJ_POINTS;
            tj_place_around(s, grid, count, &around);
            if (s->of == TJ_OF_GRID) { memset(lean, 0, sizeof lean); }
            for (c = image * s->channels; c < (image + 1) * s->channels; c++) {
                if (s->of == TJ_VALUES) { tj_values_around(&around, s->image + c * size, count, tj_taps(s), s->out + c * s->points + at); }
                else { tj_leans_around(&around, s->image + c * size, s->grad + c * s->points + at, count, dims, lean); }
            }
            if (s->of == TJ_OF_GRID) { tj_put_leans(&around, lean, count, dims, s->out + (image * s->points + at) * dims); }
        }
    }
    /* Some channels of one image: their gradients. */
    static void tj_sample_planes(const void* sampling, int64_t piece, tj_hand* hand) {
        const tj_sampling* s = (const tj_sampling*)sampling;
        int64_t pieces = tj_pieces(s->channels, s->planes), image = piece / pieces, first = piece % pieces * s->planes, c, at, count;
        int64_t size = s->pixels, last = first + s->planes < s->channels ? first + s->planes : s->channels;
        tj_around around;
        float room[TJ_POINTS];
        (void)hand;
        first += image * s->channels, last += image * s->channels;
        memset(s->out + first * size, 0, (size_t)((last - first) * size * 4));
        for (at = 0; at < s->points; at += count) {
            count = s->points - at < TJ_POINTS ? s->points - at : TJ_POINTS;
            tj_place_around(s, s->grid + (image * s->points + at) * s->dims, count, &around);
            for (c = first; c < last; c++) {
                const float* grad = tj_of_kept(&around, s->grad + c * s->points + at, count, room);
                tj_add_around(&around, grad, around.count, tj_taps(s), s->out + c * size);
            }
        }
    }
    /* how: points of an image, what is asked for, whether the nearest pixel, the padding, whether -1 and 1 are pixels' centres, how many dimensions
       the images have, and their shape with three. */
    static void tj_sample(const tj_call* call, const float* image, const float* grid, const float* grad, float* out, const int64_t* how) {
        tj_sampling s = {image, grid, grad, out, how[5], how[6], how[7], {how[8], how[9], how[10]}, how[0], how[1], how[2], how[3], how[4]};
        int alone = (s.batch * s.points * s.channels << (s.dims - 2)) < TJ_SAMPLED_ALONE;
        s.pixels = s.size[0] * s.size[1] * s.size[2];
        if (s.of == TJ_OF_IMAGE) {
            s.planes = s.batch < TJ_PLANES ? tj_pieces(s.channels, TJ_PLANES) : s.channels;
            tj_do(call, tj_sample_planes, &s, s.batch * tj_pieces(s.channels, s.planes), alone);
        }
        else if (s.of == TJ_OF_GRID && s.nearest) { memset(out, 0, (size_t)(s.batch * s.points * s.dims * 4)); }
        else {
            s.together = tj_pieces(tj_pieces(TJ_SAMPLES, s.channels), TJ_POINTS) * TJ_POINTS;
            tj_do(call, tj_sample_points, &s, s.batch * tj_pieces(s.points, s.together), alone);
        }
    }
    static int tj_sampling_minor;
    /* Operands: the images, the points, and the gradient of what they gave, if that of either is asked for. */
    static void* tj_sample_for_xla(tj_call* call) {
        const tj_buffer *image, *grid, *grad, *out;
        if (tj_is_asked(call, tj_sampling_minor)) { return 0; }
        image = (const tj_buffer*)call->operands.items[0];
        grid = (const tj_buffer*)call->operands.items[1];
        grad = call->operands.count > 2 ? (const tj_buffer*)call->operands.items[2] : 0;
        out = (const tj_buffer*)call->results.items[0];
        tj_sample(call, (const float*)image->data, (const float*)grid->data, grad ? (const float*)grad->data : 0, (float*)out->data,
                  (const int64_t*)((const tj_numbers*)call->attributes.items[0])->values);
        return 0;
    }
    static void* tj_sampler(int minor) {
        tj_sampling_minor = minor;
        return (void*)&tj_sample_for_xla;
    }
    /* For the interpreter, which lets go of Python's lock meanwhile. */
    static void tj_sample_here(const Py_buffer* image, const Py_buffer* grid, const Py_buffer* grad, const Py_buffer* out, const Py_buffer* how) {
        Py_BEGIN_ALLOW_THREADS
        tj_sample(0, (const float*)image->buf, (const float*)grid->buf, grad ? (const float*)grad->buf : 0, (float*)out->buf,
                  (const int64_t*)how->buf);
        Py_END_ALLOW_THREADS
    }
    """
    void* tj_sampler(int minor) noexcept
    void tj_sample_here(Py_buffer* image, Py_buffer* grid, Py_buffer* grad, Py_buffer* out, Py_buffer* how) noexcept


cdef inline object handler(int minor):
    return PyCapsule_New(tj_sampler(minor), NULL, NULL)


cdef inline bint sample(object image, object grid, object grad, object out, object how) except *:
    cdef Buffers arrays
    cdef int first = 2 if grad is None else 3
    arrays.held = 0
    try:
        hold(&arrays, (image, grid, out, how) if grad is None else (image, grid, grad, out, how), first)
        tj_sample_here(
            &arrays.views[0], &arrays.views[1], NULL if grad is None else &arrays.views[2], &arrays.views[first], &arrays.views[first + 1]
        )
        return True
    finally:
        let_go(&arrays)
