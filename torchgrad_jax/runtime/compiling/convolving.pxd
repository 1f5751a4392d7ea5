from cpython.pycapsule cimport PyCapsule_New

from torchgrad_jax.runtime.compiling cimport sharing

# An image is copied with zeros around it, and between its elements where it is dilated, so that each of the kernel's taps is so many elements further
# on, for all places alike; of strided convolutions every so manieth column lies together. Then 24 places of 4 channels are computed together, in
# registers, or of the kernel's gradient the sums of 3 taps of 4 channels; of 8 channels where the processor has twice as many registers.
cdef extern from *:
    """
    #if defined(__GNUC__)
    #define TJ_INLINE static inline __attribute__((always_inline))
    /* A function three times: for processors with these instructions, and for any. */
    #if defined(__x86_64__)
    #define TJ_FOR_PROCESSORS(name, body)                                                                                         \\
        __attribute__((target(TJ_512))) static void name##_512(const void* work, int64_t i) { body((const tj_convolution*)work, i, 8); } \\
        __attribute__((target("avx2,fma"))) static void name##_256(const void* work, int64_t i) { body((const tj_convolution*)work, i, 4); } \\
        static void name(const void* work, int64_t i) { body((const tj_convolution*)work, i, 4); }
    #define TJ_512 "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma"
    #define TJ_HAS_512 (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
    #define TJ_HAS_256 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    #define TJ_BEST(name) (TJ_HAS_512 ? name##_512 : TJ_HAS_256 ? name##_256 : name)
    #else
    #define TJ_FOR_PROCESSORS(name, body) static void name(const void* work, int64_t i) { body((const tj_convolution*)work, i, 4); }
    #define TJ_HAS_512 0
    #define TJ_BEST(name) name
    #endif
    typedef float tj_eight __attribute__((vector_size(32), aligned(4), may_alias));
    enum { TJ_EIGHT = 8, TJ_MOST = 8, TJ_TILES = 3, TJ_TAPS = 3, TJ_PARTS = 8, TJ_PLACES = 1024, TJ_LITTLE = 1 << 19 };

    /* x: (batch, channels, height, width). to: the channels of what is made of it, or whose gradient is given: (batch, to, down, across). A tap (i, j)
       of the kernel reads the row `stride[0] * row + dilation[0] * i - before[0]` of what has `apart[0] - 1` rows of zeros between those of x.
       rows, wide: of the copied image, of which each `phase` of columns lies together; offsets: of each tap of each channel there. */
    typedef struct {
        const float *x, *y;
        float* out;
        int64_t batch, channels, height, width, to, down, across, taps, rows, wide, each;
        int64_t kernel[2], stride[2], before[2], apart[2], dilation[2];
        int64_t* offsets;
    } tj_convolution;

    static void tj_copy_row(const tj_convolution* p, const float* x, float* out) {
        int64_t stride = p->stride[1], apart = p->apart[1], before = p->before[1], first = before < 0 ? tj_pieces(-before, apart) : 0, i, k;
        for (k = 0; k < stride; k++, first++) { /* whoever comes `stride` elements later is `apart` places further */
            int64_t to = first * apart + before, place = to / stride, last = first + ((p->wide - 1 - place) / apart + 1) * stride;
            float* found = out + to % stride * p->wide;
            if (place >= p->wide) { return; }
            if (last > p->width) { last = p->width; }
            if (stride == 1 && apart == 1) {
                if (last > first) { memcpy(found + place, x + first, (size_t)((last - first) * 4)); }
                return;
            }
            for (i = first; i < last; i += stride, place += apart) { found[place] = x[i]; }
        }
    }

    static void tj_copy_image(const tj_convolution* p, const float* x, float* room) {
        int64_t c, row;
        memset(room, 0, (size_t)(p->each * 4));
        for (c = 0; c < p->channels; c++) {
            for (row = 0; row < p->height; row++, x += p->width) {
                int64_t at = row * p->apart[0] + p->before[0];
                if (at >= 0 && at < p->rows) { tj_copy_row(p, x, room + (c * p->rows + at) * p->stride[1] * p->wide); }
            }
        }
    }

    /* 3 x 8 places of some channels: `weights` has so many for each tap. */
    TJ_INLINE void tj_tile(const float* const x[TJ_TILES], const int64_t* offsets, const float* weights, int64_t taps, const int channels,
                           tj_eight made[TJ_TILES][TJ_MOST]) {
        tj_eight sums[TJ_TILES][TJ_MOST];
        const float *one = x[0], *two = x[1], *three = x[2];
        int64_t k;
        int i, j;
        for (j = 0; j < TJ_TILES; j++) { for (i = 0; i < channels; i++) { sums[j][i] = (tj_eight){0}; } }
        for (k = 0; k < taps; k++, weights += channels) {
            tj_eight a = *(const tj_eight*)(one + offsets[k]), b = *(const tj_eight*)(two + offsets[k]), c = *(const tj_eight*)(three + offsets[k]);
            for (i = 0; i < channels; i++) {
                sums[0][i] += a * weights[i];
                sums[1][i] += b * weights[i];
                sums[2][i] += c * weights[i];
            }
        }
        for (j = 0; j < TJ_TILES; j++) { for (i = 0; i < channels; i++) { made[j][i] = sums[j][i]; } }
    }

    /* One image. y: for each so many channels, their weights tap by tap. */
    TJ_INLINE void tj_image(const tj_convolution* p, int64_t image, const int channels) {
        int64_t tiles = tj_pieces(p->across, TJ_EIGHT), places = p->down * p->across, tile, o;
        float *room = (float*)malloc((size_t)(p->each * 4)), *out = p->out + image * p->to * places;
        if (!room) { abort(); }
        tj_copy_image(p, p->x + image * p->channels * p->height * p->width, room);
        for (tile = 0; tile < p->down * tiles; tile += TJ_TILES) {
            const float* x[TJ_TILES];
            int64_t at[TJ_TILES], count[TJ_TILES];
            int i, j;
            for (j = 0; j < TJ_TILES; j++) {
                int64_t which = tile + j < p->down * tiles ? tile + j : tile, row = which / tiles, column = which % tiles * TJ_EIGHT;
                x[j] = room + row * p->stride[0] * p->stride[1] * p->wide + column;
                at[j] = row * p->across + column;
                count[j] = p->across - column < TJ_EIGHT ? p->across - column : TJ_EIGHT;
            }
            for (o = 0; o < p->to; o += channels) {
                tj_eight made[TJ_TILES][TJ_MOST];
                tj_tile(x, p->offsets, p->y + o * p->taps, p->taps, channels, made);
                for (j = 0; j < TJ_TILES && tile + j < p->down * tiles; j++) {
                    for (i = 0; i < channels && o + i < p->to; i++) {
                        float* place = out + (o + i) * places + at[j];
                        if (count[j] == TJ_EIGHT) { *(tj_eight*)place = made[j][i]; }
                        else { memcpy(place, &made[j][i], (size_t)(count[j] * 4)); }
                    }
                }
            }
        }
        free(room);
    }

    /* The sums over all places of some images, for some channels of the gradient, with 3 taps. */
    TJ_INLINE void tj_sums(const tj_convolution* p, const float* room, const float* const grads[TJ_MOST], const int64_t* offsets, int64_t images,
                           int64_t next, const int channels, float found[TJ_MOST][TJ_TAPS]) {
        tj_eight sums[TJ_MOST][TJ_TAPS];
        int64_t image, row, column, tiles = tj_pieces(p->across, TJ_EIGHT) * TJ_EIGHT;
        int i, j, k;
        for (i = 0; i < channels; i++) { for (j = 0; j < TJ_TAPS; j++) { sums[i][j] = (tj_eight){0}; } }
        for (image = 0; image < images; image++) {
            for (row = 0; row < p->down; row++) {
                const float* x = room + image * p->each + row * p->stride[0] * p->stride[1] * p->wide;
                int64_t at = image * next + row * tiles;
                for (column = 0; column < tiles; column += TJ_EIGHT) {
                    tj_eight a[TJ_TAPS];
                    for (j = 0; j < TJ_TAPS; j++) { a[j] = *(const tj_eight*)(x + offsets[j] + column); }
                    for (i = 0; i < channels; i++) {
                        tj_eight g = *(const tj_eight*)(grads[i] + at + column);
                        for (j = 0; j < TJ_TAPS; j++) { sums[i][j] += g * a[j]; }
                    }
                }
            }
        }
        for (i = 0; i < channels; i++) {
            for (j = 0; j < TJ_TAPS; j++) {
                float sum = 0;
                for (k = 0; k < TJ_EIGHT; k++) { sum += sums[i][j][k]; }
                found[i][j] = sum;
            }
        }
    }

    /* The kernel's gradient of one part of the batch: y is the result's, `out` has room for each part's (to, taps). */
    TJ_INLINE void tj_part(const tj_convolution* p, int64_t part, const int channels) {
        int64_t size = tj_pieces(p->batch, TJ_PARTS), first = part * size, last = first + size < p->batch ? first + size : p->batch;
        int64_t tiles = tj_pieces(p->across, TJ_EIGHT) * TJ_EIGHT, plane = p->down * tiles, most = tj_pieces(TJ_PLACES, plane), o, k, image, row;
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
                const float* y = p->y + (first + image) * p->to * p->down * p->across;
                float* to = grads + image * p->to * plane;
                tj_copy_image(p, p->x + (first + image) * p->channels * p->height * p->width, room + image * p->each);
                for (row = 0; row < p->to * p->down; row++, y += p->across, to += tiles) {
                    memcpy(to, y, (size_t)(p->across * 4));
                    if (tiles > p->across) { memset(to + p->across, 0, (size_t)((tiles - p->across) * 4)); }
                }
            }
            for (o = 0; o < p->to; o += channels) {
                const float* planes[TJ_MOST];
                for (i = 0; i < channels; i++) { planes[i] = grads + (o + i < p->to ? o + i : p->to - 1) * plane; }
                for (k = 0; k < p->taps; k += TJ_TAPS) {
                    int64_t offsets[TJ_TAPS];
                    float found[TJ_MOST][TJ_TAPS];
                    for (j = 0; j < TJ_TAPS; j++) { offsets[j] = p->offsets[k + j < p->taps ? k + j : p->taps - 1]; }
                    tj_sums(p, room, planes, offsets, images, p->to * plane, channels, found);
                    for (i = 0; i < channels && o + i < p->to; i++) {
                        for (j = 0; j < TJ_TAPS && k + j < p->taps; j++) { out[(o + i) * p->taps + k + j] += found[i][j]; }
                    }
                }
            }
        }
        free(room);
    }

    TJ_FOR_PROCESSORS(tj_convolve_image, tj_image)
    TJ_FOR_PROCESSORS(tj_convolve_part, tj_part)

    static int tj_plan(tj_convolution* p, const tj_buffer* x, const int64_t* how) {
        int64_t c, i, j, k = 0, line;
        p->x = (const float*)x->data;
        p->batch = x->shape[0];
        p->channels = x->shape[1];
        p->height = x->shape[2];
        p->width = x->shape[3];
        for (i = 0; i < 2; i++) {
            p->kernel[i] = how[i];
            p->stride[i] = how[2 + i];
            p->before[i] = how[4 + i];
            p->apart[i] = how[6 + i];
            p->dilation[i] = how[8 + i];
        }
        p->taps = p->channels * p->kernel[0] * p->kernel[1];
        p->rows = (p->down - 1) * p->stride[0] + (p->kernel[0] - 1) * p->dilation[0] + 1;
        p->wide = tj_pieces(p->across, TJ_EIGHT) * TJ_EIGHT + (p->kernel[1] - 1) * p->dilation[1] / p->stride[1];
        line = p->stride[1] * p->wide;
        p->each = p->channels * p->rows * line;
        p->offsets = (int64_t*)malloc((size_t)(p->taps * sizeof(int64_t)));
        if (!p->offsets) { return 0; }
        for (c = 0; c < p->channels; c++) {
            for (i = 0; i < p->kernel[0]; i++) {
                for (j = 0; j < p->kernel[1]; j++) {
                    int64_t to = j * p->dilation[1];
                    p->offsets[k++] = (c * p->rows + i * p->dilation[0]) * line + to % p->stride[1] * p->wide + to / p->stride[1];
                }
            }
        }
        return 1;
    }

    /* Operands: x (batch, channels, height, width), and the weights (to, taps), or the result's gradient where the kernel's is asked for. */
    static int tj_convolution_minor;
    static void* tj_convolve(tj_call* call) {
        const tj_buffer *x, *y, *out;
        const int64_t* how;
        tj_convolution whole;
        int64_t o, k, part, groups, size, channels = TJ_HAS_512 ? 8 : 4;
        float* room;
        if (tj_is_asked(call, tj_convolution_minor)) { return 0; }
        x = (const tj_buffer*)call->operands.items[0];
        y = (const tj_buffer*)call->operands.items[1];
        out = (const tj_buffer*)call->results.items[0];
        how = (const int64_t*)((const tj_numbers*)call->attributes.items[0])->values;
        whole.to = (how[10] ? y : out)->shape[1];
        whole.down = (how[10] ? y : out)->shape[2];
        whole.across = (how[10] ? y : out)->shape[3];
        if (!tj_plan(&whole, x, how)) { abort(); }
        size = whole.to * whole.taps;
        groups = how[10] ? TJ_PARTS : 1;
        room = (float*)calloc((size_t)(groups * (whole.to + TJ_MOST) * whole.taps), 4);
        if (!room) { abort(); }
        if (how[10]) {
            float* result = (float*)out->data;
            whole.y = (const float*)y->data;
            whole.out = room;
            tj_do(call, TJ_BEST(tj_convolve_part), &whole, TJ_PARTS, whole.batch * size * whole.down * whole.across < TJ_LITTLE);
            memcpy(result, room, (size_t)(size * 4));
            for (part = 1; part < TJ_PARTS; part++) { for (k = 0; k < size; k++) { result[k] += room[part * size + k]; } }
        } else {
            const float* weights = (const float*)y->data;
            for (o = 0; o < whole.to; o++) {
                float* to = room + o / channels * channels * whole.taps + o % channels;
                for (k = 0; k < whole.taps; k++) { to[k * channels] = weights[o * whole.taps + k]; }
            }
            whole.y = room;
            whole.out = (float*)out->data;
            tj_do(call, TJ_BEST(tj_convolve_image), &whole, whole.batch, whole.batch * size * whole.down * whole.across < TJ_LITTLE);
        }
        free(room);
        free(whole.offsets);
        return 0;
    }
    static void* tj_convolver(int minor) {
        tj_convolution_minor = minor;
        return (void*)&tj_convolve;
    }
    #else
    static void* tj_convolver(int minor) { return 0; }
    #endif
    """
    void* tj_convolver(int minor) noexcept


cdef inline object handler(int minor):
    cdef void* found = tj_convolver(minor)
    return None if found == NULL else PyCapsule_New(found, NULL, NULL)
