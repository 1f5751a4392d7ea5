from cpython.pycapsule cimport PyCapsule_New

from torchgrad_jax.runtime.native cimport sharing
from torchgrad_jax.runtime.native.buffers cimport Buffers, hold, let_go

# Images of float32 at the points of a grid: the mean of the four pixels around each, by how near they are, or the nearest one. The coordinates are
# those of `operators/grid.py`. Some points at a time: where their pixels are first, then channel by channel what these are.
cdef extern from *:
    """
    enum { TJ_POINTS = 256, TJ_SAMPLES = 1 << 13, TJ_SAMPLED_ALONE = 1 << 15, TJ_PLANES = 4 };
    enum { TJ_VALUES, TJ_OF_IMAGE, TJ_OF_GRID };
    typedef struct {
        const float *image, *grid, *grad;
        float* out;
        int64_t batch, channels, height, width, points, of, nearest, padding, corners, together, planes;
    } tj_sampling;
    /* Of some points: where the pixels around each are, -1 outside; how much of each counts; how far the point is after the first one, and what its
       coordinates in the image have for slopes. */
    typedef struct {
        int32_t place[4][TJ_POINTS];
        float weight[4][TJ_POINTS], after[2][TJ_POINTS], slope[2][TJ_POINTS];
    } tj_around;

    TJ_INLINE float tj_in_pixels(float point, float size, int corners) {
        return corners ? (point + 1) / 2 * (size - 1) : (float)((double)(point + 1) * ((double)size / 2) - 0.5);
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
        beyond = fmodf(distance, span);
        if (fmodf(floorf(distance / span), 2) == 0) { return beyond + least; }
        *slope = -*slope;
        return span + least - beyond;
    }
    TJ_INLINE float tj_clipped(float at, float last, float* slope) {
        float inside = at > 0 ? (at < last ? at : last) : 0;
        *slope = (at > 0) & (at < last) ? *slope : 0;
        return inside;
    }
    /* Coordinates along one dimension: the first pixel of each, -2 where that and the next are outside. */
    TJ_INLINE void tj_first(const tj_sampling* s, const float* grid, int64_t count, float size, int padding, int corners, int nearest, int32_t* first,
                            float* after, float* slope) {
        int64_t j;
        for (j = 0; j < count; j++) {
            float at = tj_in_pixels(grid[2 * j], size, corners), turn = corners ? (size - 1) / 2 : size / 2, low;
            if (padding == 2) { at = tj_mirrored(at, size, corners, &turn); }
            if (padding) { at = tj_clipped(at, size - 1, &turn); }
            low = nearest ? rintf(at) : floorf(at);
            first[j] = (low >= -1) & (low < size) ? (int32_t)low : -2;
            after[j] = at - low;
            slope[j] = turn;
        }
    }
    #define TJ_FIRST(padding, corners, nearest) \\
        case padding * 4 + corners * 2 + nearest: tj_first(s, grid, count, size, padding, corners, nearest, first, after, slope); break;
    TJ_CLONES static void tj_first_along(const tj_sampling* s, const float* grid, int64_t count, float size, int32_t* first, float* after,
                                         float* slope) {
        switch (s->padding * 4 + s->corners * 2 + s->nearest) {
            TJ_FIRST(0, 0, 0) TJ_FIRST(0, 0, 1) TJ_FIRST(0, 1, 0) TJ_FIRST(0, 1, 1) TJ_FIRST(1, 0, 0) TJ_FIRST(1, 0, 1) TJ_FIRST(1, 1, 0)
            TJ_FIRST(1, 1, 1) TJ_FIRST(2, 0, 0) TJ_FIRST(2, 0, 1) TJ_FIRST(2, 1, 0) TJ_FIRST(2, 1, 1)
        }
    }
    #undef TJ_FIRST
    /* One of the pixels around each point, `right` and `below` pixels after the first one. */
    TJ_INLINE void tj_place_one(const int32_t* TJ_ONLY row, const int32_t* TJ_ONLY column, const float* TJ_ONLY down, const float* TJ_ONLY across,
                                int32_t height, int32_t width, int64_t count, int below, int right, int32_t* TJ_ONLY place, float* TJ_ONLY weight) {
        int64_t j;
        for (j = 0; j < count; j++) {
            int32_t y = row[j] + below, x = column[j] + right, inside = (y >= 0) & (y < height) & (x >= 0) & (x < width);
            place[j] = inside ? y * width + x : -1;
            weight[j] = (below ? down[j] : 1 - down[j]) * (right ? across[j] : 1 - across[j]);
        }
    }
    #define TJ_PLACE_ONE(k) \\
        tj_place_one(row, column, a->after[1], a->after[0], (int32_t)s->height, (int32_t)s->width, count, k >> 1, k & 1, a->place[k], a->weight[k]);
    TJ_CLONES static void tj_place_around(const tj_sampling* s, const float* grid, int64_t count, tj_around* a) {
        int32_t row[TJ_POINTS], column[TJ_POINTS];
        tj_first_along(s, grid, count, (float)s->width, column, a->after[0], a->slope[0]);
        tj_first_along(s, grid + 1, count, (float)s->height, row, a->after[1], a->slope[1]);
        TJ_PLACE_ONE(0)
        if (!s->nearest) { TJ_PLACE_ONE(1) TJ_PLACE_ONE(2) TJ_PLACE_ONE(3) }
    }
    #undef TJ_PLACE_ONE
    /* Read in any case, so that many are at once. */
    TJ_INLINE float tj_pixel(const float* image, int32_t place) {
        float found = image[place < 0 ? 0 : place];
        return place < 0 ? 0 : found;
    }
    TJ_CLONES static void tj_mean_around(const tj_around* TJ_ONLY a, const float* TJ_ONLY image, int64_t count, int nearest, float* TJ_ONLY out) {
        int64_t j;
        if (nearest) { for (j = 0; j < count; j++) { out[j] = tj_pixel(image, a->place[0][j]); } }
        else {
            for (j = 0; j < count; j++) {
                out[j] = tj_pixel(image, a->place[0][j]) * a->weight[0][j] + tj_pixel(image, a->place[1][j]) * a->weight[1][j]
                         + tj_pixel(image, a->place[2][j]) * a->weight[2][j] + tj_pixel(image, a->place[3][j]) * a->weight[3][j];
            }
        }
    }
    static void tj_add_around(const tj_around* a, const float* grad, int64_t count, int nearest, float* image) {
        int64_t j;
        int k, taps = nearest ? 1 : 4;
        for (j = 0; j < count; j++) {
            for (k = 0; k < taps; k++) {
                if (a->place[k][j] >= 0) { image[a->place[k][j]] += nearest ? grad[j] : grad[j] * a->weight[k][j]; }
            }
        }
    }
    /* What each point's two coordinates count for in one channel, added to what they do in others. */
    TJ_CLONES static void tj_lean_around(const tj_around* TJ_ONLY a, const float* TJ_ONLY image, const float* TJ_ONLY grad, int64_t count,
                                         float* TJ_ONLY across, float* TJ_ONLY down) {
        int64_t j;
        for (j = 0; j < count; j++) {
            float p = tj_pixel(image, a->place[0][j]), q = tj_pixel(image, a->place[1][j]), r = tj_pixel(image, a->place[2][j]);
            float s = tj_pixel(image, a->place[3][j]), x = a->after[0][j], y = a->after[1][j];
            across[j] += grad[j] * ((q - p) * (1 - y) + (s - r) * y);
            down[j] += grad[j] * ((r - p) * (1 - x) + (s - q) * x);
        }
    }
    /* Points of one image: their values, or the gradients of their coordinates. */
    static void tj_sample_points(const void* sampling, int64_t piece, tj_hand* hand) {
        const tj_sampling* s = (const tj_sampling*)sampling;
        int64_t pieces = tj_pieces(s->points, s->together), image = piece / pieces, at = piece % pieces * s->together, c, j, count;
        int64_t size = s->height * s->width, end = at + s->together < s->points ? at + s->together : s->points;
        tj_around around;
        float lean[2][TJ_POINTS];
        (void)hand;
        for (; at < end; at += count) {
            const float* grid = s->grid + (image * s->points + at) * 2;
            count = end - at < TJ_POINTS ? end - at : TJ_POINTS;
            tj_place_around(s, grid, count, &around);
            if (s->of == TJ_OF_GRID) { memset(lean, 0, sizeof lean); }
            for (c = image * s->channels; c < (image + 1) * s->channels; c++) {
                if (s->of == TJ_VALUES) { tj_mean_around(&around, s->image + c * size, count, (int)s->nearest, s->out + c * s->points + at); }
                else { tj_lean_around(&around, s->image + c * size, s->grad + c * s->points + at, count, lean[0], lean[1]); }
            }
            if (s->of == TJ_OF_GRID) {
                float* out = s->out + (image * s->points + at) * 2;
                for (j = 0; j < 2 * count; j++) { out[j] = lean[j % 2][j / 2] * around.slope[j % 2][j / 2]; }
            }
        }
    }
    /* Some channels of one image: their gradients. */
    static void tj_sample_planes(const void* sampling, int64_t piece, tj_hand* hand) {
        const tj_sampling* s = (const tj_sampling*)sampling;
        int64_t pieces = tj_pieces(s->channels, s->planes), image = piece / pieces, first = piece % pieces * s->planes, c, at, count;
        int64_t size = s->height * s->width, last = first + s->planes < s->channels ? first + s->planes : s->channels;
        tj_around around;
        (void)hand;
        first += image * s->channels, last += image * s->channels;
        memset(s->out + first * size, 0, (size_t)((last - first) * size * 4));
        for (at = 0; at < s->points; at += count) {
            count = s->points - at < TJ_POINTS ? s->points - at : TJ_POINTS;
            tj_place_around(s, s->grid + (image * s->points + at) * 2, count, &around);
            for (c = first; c < last; c++) { tj_add_around(&around, s->grad + c * s->points + at, count, (int)s->nearest, s->out + c * size); }
        }
    }
    /* how: points of an image, what is asked for, whether the nearest pixel, the padding, whether -1 and 1 are pixels' centres, the images' shape. */
    static void tj_sample(const tj_call* call, const float* image, const float* grid, const float* grad, float* out, const int64_t* how) {
        tj_sampling s = {image, grid, grad, out, how[5], how[6], how[7], how[8], how[0], how[1], how[2], how[3], how[4], 0, 0};
        int alone = s.batch * s.points * s.channels < TJ_SAMPLED_ALONE;
        if (s.of == TJ_OF_IMAGE) {
            s.planes = s.batch < TJ_PLANES ? tj_pieces(s.channels, TJ_PLANES) : s.channels;
            tj_do(call, tj_sample_planes, &s, s.batch * tj_pieces(s.channels, s.planes), alone);
        }
        else if (s.of == TJ_OF_GRID && s.nearest) { memset(out, 0, (size_t)(s.batch * s.points * 8)); }
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
