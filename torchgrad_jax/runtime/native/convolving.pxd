from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_New

from torchgrad_jax.runtime.native cimport sharing

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
        __attribute__((target(TJ_512))) static void name##_512(const void* work, int64_t i, tj_hand* hand) { body((const tj_convolution*)work, i, 8); } \\
        __attribute__((target("avx2,fma"))) static void name##_256(const void* work, int64_t i, tj_hand* hand) { body((const tj_convolution*)work, i, 4); } \\
        static void name(const void* work, int64_t i, tj_hand* hand) { body((const tj_convolution*)work, i, 4); }
    #define TJ_512 "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma"
    #define TJ_HAS_512 (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
    #define TJ_HAS_256 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    #define TJ_BEST(name) (TJ_HAS_512 ? name##_512 : TJ_HAS_256 ? name##_256 : name)
    #else
    #define TJ_FOR_PROCESSORS(name, body) static void name(const void* work, int64_t i, tj_hand* hand) { body((const tj_convolution*)work, i, 4); }
    #define TJ_HAS_512 0
    #define TJ_BEST(name) name
    #endif
    typedef float tj_eight __attribute__((vector_size(32), aligned(4), may_alias));
    typedef int32_t tj_mask __attribute__((vector_size(32)));
    enum { TJ_EIGHT = 8, TJ_MOST = 8, TJ_TILES = 3, TJ_TAPS = 3, TJ_PARTS = 8, TJ_PLACES = 1024, TJ_LITTLE = 1 << 19, TJ_LITTLE_HERE = 1 << 20 };

    /* x: (batch, channels, height, width). to: the channels of what is made of it, or whose gradient is given: (batch, to, height', width'). A tap
       (i, j) of the kernel reads the row `stride[0] * row + dilation[0] * i - before[0]` of what has `apart[0] - 1` rows of zeros between those of x.
       down, across: of these (height', width') those that are computed, each `step` behind the last, from `first` on; places: all. taps, offsets:
       those of all channels' that count for them, and where they read in the copied image, which has so many `rows`, so `wide` for each of `stride[1]`
       columns that follow one another, and `each` elements. Where images are few, each is made in `bands`. */
    typedef struct {
        const float *x, *y;
        float* out;
        int64_t batch, channels, height, width, to, down, across, step[2], first[2], line, places, taps, rows, wide, each, bands;
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

    /* A band of an image. y: for each so many channels, their weights tap by tap. */
    TJ_INLINE void tj_image(const tj_convolution* p, int64_t piece, const int channels) {
        int64_t image = piece / p->bands, band = piece % p->bands, tiles = tj_pieces(p->across, TJ_EIGHT), all = p->down * tiles, tile, o, k;
        int64_t last = all * (band + 1) / p->bands;
        float *room = (float*)malloc((size_t)(p->each * 4)), *out = p->out + image * p->to * p->places;
        if (!room) { abort(); }
        tj_copy_image(p, p->x + image * p->channels * p->height * p->width, room);
        for (tile = all * band / p->bands; tile < last; tile += TJ_TILES) {
            const float* x[TJ_TILES];
            int64_t at[TJ_TILES], count[TJ_TILES];
            int i, j;
            for (j = 0; j < TJ_TILES; j++) {
                int64_t which = tile + j < last ? tile + j : tile, row = which / tiles, column = which % tiles * TJ_EIGHT;
                x[j] = room + row * p->stride[0] * p->stride[1] * p->wide + column;
                at[j] = (row * p->step[0] + p->first[0]) * p->line + column * p->step[1] + p->first[1];
                count[j] = p->across - column < TJ_EIGHT ? p->across - column : TJ_EIGHT;
            }
            for (o = 0; o < p->to; o += channels) {
                tj_eight made[TJ_TILES][TJ_MOST];
                tj_tile(x, p->offsets, p->y + o * p->taps, p->taps, channels, made);
                for (j = 0; j < TJ_TILES && tile + j < last; j++) {
                    for (i = 0; i < channels && o + i < p->to; i++) {
                        float* place = out + (o + i) * p->places + at[j];
                        if (p->step[1] > 1) { for (k = 0; k < count[j]; k++) { place[k * p->step[1]] = made[j][i][k]; } }
                        else if (count[j] == TJ_EIGHT) { *(tj_eight*)place = made[j][i]; }
                        else { memcpy(place, &made[j][i], (size_t)(count[j] * 4)); }
                    }
                }
            }
        }
        free(room);
    }

    /* Add what 8 places give for some channels of the gradient and 3 taps. only: those of them that count; what is no number does not vanish by 0. */
    TJ_INLINE void tj_add(tj_eight sums[TJ_MOST][TJ_TAPS], const float* x, const int64_t* offsets, const float* const grads[TJ_MOST], int64_t at,
                          const int channels, const tj_mask* only) {
        tj_eight a[TJ_TAPS];
        int i, j;
        for (j = 0; j < TJ_TAPS; j++) {
            a[j] = *(const tj_eight*)(x + offsets[j]);
            if (only) { a[j] = (tj_eight)((tj_mask)a[j] & *only); }
        }
        for (i = 0; i < channels; i++) {
            tj_eight g = *(const tj_eight*)(grads[i] + at);
            for (j = 0; j < TJ_TAPS; j++) { sums[i][j] += g * a[j]; }
        }
    }

    /* The sums over all places of some images. */
    TJ_INLINE void tj_sums(const tj_convolution* p, const float* room, const float* const grads[TJ_MOST], const int64_t* offsets, int64_t images,
                           const int channels, float found[TJ_MOST][TJ_TAPS]) {
        tj_eight sums[TJ_MOST][TJ_TAPS];
        tj_mask only;
        int64_t image, row, column, at = 0, full = p->across / TJ_EIGHT * TJ_EIGHT, line = p->stride[0] * p->stride[1] * p->wide;
        int i, j, k;
        for (k = 0; k < TJ_EIGHT; k++) { only[k] = k < p->across - full ? -1 : 0; }
        for (i = 0; i < channels; i++) { for (j = 0; j < TJ_TAPS; j++) { sums[i][j] = (tj_eight){0}; } }
        for (image = 0; image < images; image++) {
            const float* x = room + image * p->each;
            for (row = 0; row < p->down; row++, x += line) {
                for (column = 0; column < full; column += TJ_EIGHT, at += TJ_EIGHT) { tj_add(sums, x + column, offsets, grads, at, channels, 0); }
                if (full < p->across) {
                    tj_add(sums, x + full, offsets, grads, at, channels, &only);
                    at += TJ_EIGHT;
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
                const float* y = p->y + (first + image) * p->to * p->places;
                tj_copy_image(p, p->x + (first + image) * p->channels * p->height * p->width, room + image * p->each);
                for (o = 0; o < p->to; o++) {
                    float* to = grads + (o * most + image) * plane;
                    for (row = 0; row < p->down; row++, y += p->across, to += tiles) {
                        memcpy(to, y, (size_t)(p->across * 4));
                        if (tiles > p->across) { memset(to + p->across, 0, (size_t)((tiles - p->across) * 4)); }
                    }
                }
            }
            for (o = 0; o < p->to; o += channels) {
                const float* planes[TJ_MOST];
                for (i = 0; i < channels; i++) { planes[i] = grads + (o + i < p->to ? o + i : p->to - 1) * most * plane; }
                for (k = 0; k < p->taps; k += TJ_TAPS) {
                    int64_t offsets[TJ_TAPS];
                    float found[TJ_MOST][TJ_TAPS];
                    for (j = 0; j < TJ_TAPS; j++) { offsets[j] = p->offsets[k + j < p->taps ? k + j : p->taps - 1]; }
                    tj_sums(p, room, planes, offsets, images, channels, found);
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

    /* Whether a tap counts for the places from `first` on, and which place of x it reads for the first of them. */
    static int tj_counts(const tj_convolution* p, int i, int64_t tap, int64_t* place) {
        int64_t at = p->first[i] + tap * p->dilation[i] - p->before[i];
        *place = at / p->step[i];
        return at % p->step[i] == 0;
    }

    /* Choose the places from `first` on: the taps that count for them. `weights` become, for each `channels` channels, theirs tap by tap. */
    static void tj_choose(tj_convolution* p, int64_t down, int64_t across, const float* y, int64_t channels, float* weights) {
        int64_t low[2] = {0, 0}, high[2] = {0, 0}, total = p->kernel[0] * p->kernel[1], c, k, place[2], o, line;
        int i;
        for (i = 0; i < 2; i++) {
            int found = 0;
            for (k = 0; k < p->kernel[i]; k++) {
                if (!tj_counts(p, i, k, place)) { continue; }
                if (!found || place[0] < low[i]) { low[i] = place[0]; }
                if (!found || place[0] > high[i]) { high[i] = place[0]; }
                found = 1;
            }
        }
        p->down = tj_pieces(down - p->first[0], p->step[0]);
        p->across = tj_pieces(across - p->first[1], p->step[1]);
        p->rows = (p->down - 1) * p->stride[0] + high[0] - low[0] + 1;
        p->wide = tj_pieces(p->across, TJ_EIGHT) * TJ_EIGHT + (high[1] - low[1]) / p->stride[1];
        line = p->stride[1] * p->wide;
        p->each = p->channels * p->rows * line;
        p->taps = 0;
        for (c = 0; c < p->channels; c++) {
            for (k = 0; k < total; k++) {
                if (!tj_counts(p, 0, k / p->kernel[1], place) || !tj_counts(p, 1, k % p->kernel[1], place + 1)) { continue; }
                place[1] -= low[1];
                p->offsets[p->taps++] = (c * p->rows + place[0] - low[0]) * line + place[1] % p->stride[1] * p->wide + place[1] / p->stride[1];
            }
        }
        for (o = 0; weights && o < p->to; o++) {
            float* to = weights + o / channels * channels * p->taps + o % channels;
            for (c = 0; c < p->channels; c++) {
                for (k = 0; k < total; k++) {
                    if (!tj_counts(p, 0, k / p->kernel[1], place) || !tj_counts(p, 1, k % p->kernel[1], place + 1)) { continue; }
                    *to = y[(o * p->channels + c) * total + k];
                    to += channels;
                }
            }
        }
        p->before[0] = -low[0];
        p->before[1] = -low[1];
    }

    /* The kernel's gradient: each part's, added up. */
    static void tj_convolve_for_kernel(const tj_call* call, tj_convolution* p, const float* y, float* result, int64_t size, int alone) {
        float* room = (float*)calloc((size_t)(TJ_PARTS * p->to * size), 4);
        int64_t i, k;
        if (!room) { abort(); }
        p->y = y;
        p->out = room;
        tj_do(call, TJ_BEST(tj_convolve_part), p, TJ_PARTS, alone);
        size *= p->to;
        memcpy(result, room, (size_t)(size * 4));
        for (i = 1; i < TJ_PARTS; i++) { for (k = 0; k < size; k++) { result[k] += room[i * size + k]; } }
        free(room);
    }
    /* (down, across): the places of the result. */
    static void tj_convolve_forward(const tj_call* call, tj_convolution* p, const float* y, float* result, int64_t size, const int64_t* places, int alone) {
        int64_t apart[2] = {p->apart[0], p->apart[1]}, before[2] = {p->before[0], p->before[1]}, channels = TJ_HAS_512 ? 8 : 4, i, k;
        float* room = (float*)calloc((size_t)((p->to + TJ_MOST) * size), 4);
        if (!room) { abort(); }
        p->y = room;
        p->out = result;
        p->bands = alone ? 1 : tj_pieces(TJ_PARTS, p->batch);
        if (p->stride[0] * p->stride[1] == 1) { /* instead of reading zeros: for each place the taps that read none */
            for (i = 0; i < 2; i++) {
                p->step[i] = apart[i];
                p->apart[i] = 1;
            }
        }
        for (k = 0; k < p->step[0] * p->step[1]; k++) {
            p->first[0] = k / p->step[1];
            p->first[1] = k % p->step[1];
            p->before[0] = before[0];
            p->before[1] = before[1];
            if (p->first[0] >= places[0] || p->first[1] >= places[1]) { continue; }
            tj_choose(p, places[0], places[1], y, channels, room);
            tj_do(call, TJ_BEST(tj_convolve_image), p, p->batch * p->bands, alone);
        }
        free(room);
    }
    /* x and the kernel, or the result's gradient where the kernel's is asked for: y. how: the kernel's sizes, strides, what is before x, how far its
       elements are apart, the kernel's dilations, each down and across; and whether the kernel's gradient is asked for. call: XLA's, or 0. */
    static void tj_convolve_images(const tj_call* call, const tj_buffer* x, const tj_buffer* y, const tj_buffer* out, const int64_t* how) {
        const int64_t* made = how[10] ? y->shape : out->shape;
        tj_convolution whole;
        int64_t i, size;
        int alone;
        whole.x = (const float*)x->data;
        whole.batch = x->shape[0];
        whole.channels = x->shape[1];
        whole.height = x->shape[2];
        whole.width = x->shape[3];
        whole.to = made[1];
        whole.line = made[3];
        whole.places = made[2] * made[3];
        for (i = 0; i < 2; i++) {
            whole.kernel[i] = how[i];
            whole.stride[i] = how[2 + i];
            whole.before[i] = how[4 + i];
            whole.apart[i] = how[6 + i];
            whole.dilation[i] = how[8 + i];
            whole.step[i] = 1;
            whole.first[i] = 0;
        }
        size = whole.channels * whole.kernel[0] * whole.kernel[1];
        alone = whole.batch * size * whole.to * whole.places < (call ? TJ_LITTLE : TJ_LITTLE_HERE);
        whole.offsets = (int64_t*)malloc((size_t)(size * sizeof(int64_t)));
        if (!whole.offsets) { abort(); }
        if (how[10]) {
            tj_choose(&whole, made[2], made[3], 0, 0, 0);
            tj_convolve_for_kernel(call, &whole, (const float*)y->data, (float*)out->data, size, alone);
        } else {
            tj_convolve_forward(call, &whole, (const float*)y->data, (float*)out->data, size, made + 2, alone);
        }
        free(whole.offsets);
    }
    static int tj_convolution_minor;
    static void* tj_convolve(tj_call* call) {
        void** operands = call->operands.items;
        if (tj_is_asked(call, tj_convolution_minor)) { return 0; }
        tj_convolve_images(call, (const tj_buffer*)operands[0], (const tj_buffer*)operands[1], (const tj_buffer*)call->results.items[0],
                           (const int64_t*)((const tj_numbers*)call->attributes.items[0])->values);
        return 0;
    }
    static void* tj_convolver(int minor) {
        tj_convolution_minor = minor;
        return (void*)&tj_convolve;
    }
    /* For the interpreter, which lets go of Python's lock meanwhile. Arrays of four dimensions, float32, contiguous. */
    static int tj_convolve_here(const Py_buffer* x, const Py_buffer* y, const Py_buffer* out, const Py_buffer* how) {
        const Py_buffer* given[3] = {x, y, out};
        int64_t shapes[3][4];
        tj_buffer buffers[3];
        int i, k;
        for (i = 0; i < 3; i++) {
            for (k = 0; k < 4; k++) { shapes[i][k] = given[i]->shape[k]; }
            buffers[i].data = given[i]->buf;
            buffers[i].shape = shapes[i];
        }
        Py_BEGIN_ALLOW_THREADS
        tj_convolve_images(0, buffers, buffers + 1, buffers + 2, (const int64_t*)how->buf);
        Py_END_ALLOW_THREADS
        return 1;
    }
    #else
    static void* tj_convolver(int minor) { return 0; }
    static int tj_convolve_here(const Py_buffer* x, const Py_buffer* y, const Py_buffer* out, const Py_buffer* how) { return 0; }
    #endif
    """
    void* tj_convolver(int minor) noexcept
    bint tj_convolve_here(Py_buffer* x, Py_buffer* y, Py_buffer* out, Py_buffer* how) noexcept


cdef inline object handler(int minor):
    cdef void* found = tj_convolver(minor)
    return None if found == NULL else PyCapsule_New(found, NULL, NULL)


cdef inline bint convolve(object x, object y, object out, object how) except *:
    cdef Py_buffer image, other, made, numbers
    PyObject_GetBuffer(x, &image, PyBUF_C_CONTIGUOUS)
    try:
        PyObject_GetBuffer(y, &other, PyBUF_C_CONTIGUOUS)
        try:
            PyObject_GetBuffer(out, &made, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
            try:
                PyObject_GetBuffer(how, &numbers, PyBUF_C_CONTIGUOUS)
                try:
                    return tj_convolve_here(&image, &other, &made, &numbers)
                finally:
                    PyBuffer_Release(&numbers)
            finally:
                PyBuffer_Release(&made)
        finally:
            PyBuffer_Release(&other)
    finally:
        PyBuffer_Release(&image)
