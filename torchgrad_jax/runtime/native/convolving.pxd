from cpython.pycapsule cimport PyCapsule_New

from torchgrad_jax.runtime.native cimport tiling
from torchgrad_jax.runtime.native.buffers cimport Buffers, hold, let_go

# An image is copied with zeros around it, and between its elements where it is dilated, so that each of the kernel's taps is so many elements further
# on, for all places alike; of strided convolutions every so manieth column lies together. Then 24 places of 4 channels are computed together, in
# registers, or of the kernel's gradient the sums of 6 taps of 16 channels; of 8 channels, or 12 taps, where the processor has twice as many registers.
# Channels in groups, each with a kernel of its own, are as many images.
cdef extern from *:
    """
    #if defined(__GNUC__)
    #ifdef __clang__
    #define TJ_ALL_OF _Pragma("clang loop unroll(full)")
    #else
    #define TJ_ALL_OF _Pragma("GCC unroll 16")
    #endif
    /* A function for processors with these instructions, and for any: of vectors of 8, and of 16 where the processor has them. */
    #if defined(__x86_64__)
    #define TJ_FOR(name, instructions, body, channels)                                                                          \\
        __attribute__((target(instructions))) static void name(const void* work, int64_t i, tj_hand* hand) { body((const tj_convolution*)work, i, channels); }
    #define TJ_FOR_PROCESSORS(name, body, many, few)                                                                              \\
        TJ_FOR(name##_512, TJ_512, tj_sixteen_##body, many)                                                                       \\
        TJ_FOR(name##_512_of_8, TJ_512, tj_eight_##body, many)                                                                    \\
        TJ_FOR(name##_256, "avx2,fma", tj_eight_##body, few)                                                                      \\
        static void name(const void* work, int64_t i, tj_hand* hand) { tj_eight_##body((const tj_convolution*)work, i, few); }
    #define TJ_512 "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma"
    #define TJ_HAS_512 (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
    #define TJ_HAS_256 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    #define TJ_BEST(name, lanes) (TJ_HAS_512 ? (lanes == 16 ? name##_512 : name##_512_of_8) : TJ_HAS_256 ? name##_256 : name)
    #else
    #define TJ_FOR_PROCESSORS(name, body, many, few)                                                                              \\
        static void name(const void* work, int64_t i, tj_hand* hand) { tj_eight_##body((const tj_convolution*)work, i, few); }
    #define TJ_HAS_512 0
    #define TJ_BEST(name, lanes) name
    #endif
    enum { TJ_MOST = 8, TJ_TILES = 3, TJ_MOST_TAPS = 12, TJ_PARTS = 8, TJ_ENOUGH = 512, TJ_ALIGNED = 64, TJ_LITTLE = 1 << 19, TJ_LITTLE_HERE = 1 << 20 };

    /* x: (batch, channels, height, width). to: the channels of what is made of it, or whose gradient is given: (batch, to, height', width'). A tap
       (i, j) of the kernel reads the row `stride[0] * row + dilation[0] * i - before[0]` of what has `apart[0] - 1` rows of zeros between those of x.
       down, across: of these (height', width') those that are computed, each `step` behind the last, from `first` on; places: all. taps, offsets:
       those of all channels' that count for them, and where they read in the copied image, which has so many `rows`, so `wide` for each of `stride[1]`
       columns that follow one another, and `each` elements. Where images are few, each is made in `bands`. Vectors have so many `lanes`.
       Images have `groups` of channels, which count as images: channels and to are those of one, which has so many `weights`. */
    typedef struct {
        const float *x, *y;
        float* out;
        int64_t batch, channels, height, width, to, down, across, step[2], first[2], line, places, taps, rows, wide, each, bands, lanes, parts, vectors, groups, weights;
        void (*turn)(void*, const void*, int64_t, int, int64_t, int64_t, int64_t);
        int64_t kernel[2], stride[2], before[2], apart[2], dilation[2];
        int64_t* offsets;
    } tj_convolution;

    typedef float tj_copied __attribute__((vector_size(32), aligned(4), may_alias));
    /* As memcpy of so many floats: rows are short, and a call takes longer than they do. */
    TJ_INLINE void tj_copy(float* to, const float* from, int64_t count) {
        int64_t i;
        if (count < 8) {
            for (i = 0; i < count; i++) { memcpy(to + i, from + i, 4); }
            return;
        }
        for (i = 0; i + 8 <= count; i += 8) { *(tj_copied*)(to + i) = *(const tj_copied*)(from + i); }
        *(tj_copied*)(to + count - 8) = *(const tj_copied*)(from + count - 8);
    }

    static void tj_copy_row(const tj_convolution* p, const float* x, float* out) {
        int64_t stride = p->stride[1], apart = p->apart[1], before = p->before[1], first = before < 0 ? tj_pieces(-before, apart) : 0, i, k;
        for (k = 0; k < stride; k++, first++) { /* whoever comes `stride` elements later is `apart` places further */
            int64_t to = first * apart + before, place = to / stride, last = first + ((p->wide - 1 - place) / apart + 1) * stride;
            float* found = out + to % stride * p->wide;
            if (place >= p->wide) { return; }
            if (last > p->width) { last = p->width; }
            if (stride == 1 && apart == 1) {
                if (last > first) { tj_copy(found + place, x + first, last - first); }
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

    #define TJ_LANES 8
    #define TJ_WIDE(name) tj_eight_##name
    #include "torchgrad_jax/runtime/native/images.h"
    #define TJ_LANES 16
    #define TJ_WIDE(name) tj_sixteen_##name
    #include "torchgrad_jax/runtime/native/images.h"
    TJ_FOR_PROCESSORS(tj_convolve_image, image, 8, 4)
    TJ_FOR_PROCESSORS(tj_convolve_plane, image, 1, 1)
    TJ_FOR_PROCESSORS(tj_convolve_part, part, 12, 6)
    TJ_FOR_PROCESSORS(tj_convolve_group, group, 12, 6)

    /* Whether a tap counts for the places from `first` on, and which place of x it reads for the first of them. */
    static int tj_counts(const tj_convolution* p, int i, int64_t tap, int64_t* place) {
        int64_t at = p->first[i] + tap * p->dilation[i] - p->before[i];
        *place = at / p->step[i];
        return at % p->step[i] == 0;
    }

    /* Choose the places from `first` on: the taps that count for them. `weights` become, for each `channels` channels, theirs tap by tap. turned: whether
       the kernel is to be read from its end, with both dimensions of channels exchanged. */
    static void tj_choose(tj_convolution* p, int64_t down, int64_t across, const float* y, int64_t channels, float* weights, int turned) {
        int64_t low[2] = {0, 0}, high[2] = {0, 0}, total = p->kernel[0] * p->kernel[1], c, k, place[2], o, line, whole = p->to * p->channels * total;
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
        p->lanes = TJ_HAS_512 && tj_pieces(p->across, 8) % 2 == 0 ? 16 : 8;
        p->wide = tj_pieces(p->across, p->lanes) * p->lanes + (high[1] - low[1]) / p->stride[1];
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
        p->weights = tj_pieces(p->to, channels) * channels * p->taps;
        for (o = 0; weights && o < p->to * p->groups; o++) {
            int64_t group = o / p->to, at = o % p->to;
            float* to = weights + group * p->weights + at / channels * channels * p->taps + at % channels;
            for (c = 0; c < p->channels; c++) {
                for (k = 0; k < total; k++) {
                    if (!tj_counts(p, 0, k / p->kernel[1], place) || !tj_counts(p, 1, k % p->kernel[1], place + 1)) { continue; }
                    *to = y[group * whole + (turned ? (c * p->to + at) * total + total - 1 - k : (at * p->channels + c) * total + k)];
                    to += channels;
                }
            }
        }
        p->before[0] = -low[0];
        p->before[1] = -low[1];
    }

    /* As a function of tiles for strips, for processors that have none. */
    static void tj_turn_plainly(void* made, const void* given, int64_t lead, int turned, int64_t count, int64_t places, int64_t terms) {
        float* to = (float*)made;
        const float* from = (const float*)given;
        int64_t i, t;
        (void)turned;
        for (t = 0; t < terms; t++, to += places) { for (i = 0; i < places; i++) { to[i] = from[(i < count ? i : count - 1) * lead + t]; } }
    }
    /* The kernel's gradient: each part's, added up. As few parts as keep eight threads busy, or as have enough places to sum over. */
    static void tj_convolve_for_kernel(const tj_call* call, tj_convolution* p, const float* y, float* result, int alone) {
        const tj_tiles* tiles = tj_tiles_of(tj_vector_bits(), 0);
        int64_t parts = p->batch * p->places / TJ_ENOUGH, wide, lead, each, i, o, k;
        float* room;
        if (p->groups > 1) {
            for (k = p->taps; k < p->taps + TJ_MOST_TAPS; k++) { p->offsets[k] = p->offsets[p->taps - 1]; } /* their sums are not read */
            p->y = y;
            p->out = result;
            tj_do(call, TJ_BEST(tj_convolve_group, p->lanes), p, p->groups, alone);
            return;
        }
        p->lanes = TJ_HAS_512 && p->to > 8 ? 16 : 8;
        p->turn = tiles ? tiles->strip : tj_turn_plainly;
        p->parts = parts < 2 ? 2 : parts > TJ_PARTS ? TJ_PARTS : parts;
        p->vectors = p->to > p->lanes ? 2 : 1;
        wide = p->vectors * p->lanes;
        lead = tj_pieces(p->to, wide) * wide;
        each = (p->taps + TJ_MOST_TAPS) * lead;
        for (k = p->taps; k < p->taps + TJ_MOST_TAPS; k++) { p->offsets[k] = p->offsets[p->taps - 1]; } /* their sums are not read */
        room = (float*)calloc((size_t)(p->parts * each), 4);
        if (!room) { abort(); }
        p->y = y;
        p->out = room;
        tj_do(call, TJ_BEST(tj_convolve_part, p->lanes), p, p->parts, alone);
        for (i = 1; i < p->parts; i++) { for (k = 0; k < p->taps * lead; k++) { room[k] += room[i * each + k]; } }
        for (o = 0; o < p->to; o++) { for (k = 0; k < p->taps; k++) { result[o * p->taps + k] = room[k * lead + o]; } }
        free(room);
    }
    /* (down, across): the places of the result. */
    static void tj_convolve_forward(const tj_call* call, tj_convolution* p, const float* y, float* result, int64_t size, const int64_t* places, int turned,
                                    int alone) {
        int64_t apart[2] = {p->apart[0], p->apart[1]}, before[2] = {p->before[0], p->before[1]}, channels = p->to == 1 ? 1 : TJ_HAS_512 ? 8 : 4, i, k;
        float* room = (float*)calloc((size_t)((p->to + TJ_MOST) * p->groups * size), 4);
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
            tj_choose(p, places[0], places[1], y, channels, room, turned);
            tj_do(call, channels == 1 ? TJ_BEST(tj_convolve_plane, p->lanes) : TJ_BEST(tj_convolve_image, p->lanes), p, p->batch * p->bands, alone);
        }
        free(room);
    }
    /* x and the kernel, or the result's gradient where the kernel's is asked for: y. how: the kernel's sizes, strides, what is before x, how far its
       elements are apart, the kernel's dilations, each down and across; whether the kernel's gradient is asked for; groups of channels; and whether the
       kernel is turned. call: XLA's, or 0. */
    static void tj_convolve_images(const tj_call* call, const tj_buffer* x, const tj_buffer* y, const tj_buffer* out, const int64_t* how) {
        const int64_t* made = how[10] ? y->shape : out->shape;
        tj_convolution whole;
        int64_t i, size;
        int alone;
        whole.x = (const float*)x->data;
        whole.groups = how[11];
        whole.batch = x->shape[0] * how[11];
        whole.channels = x->shape[1] / how[11];
        whole.height = x->shape[2];
        whole.width = x->shape[3];
        whole.to = made[1] / how[11];
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
        whole.offsets = (int64_t*)malloc((size_t)((size + TJ_MOST_TAPS) * sizeof(int64_t)));
        if (!whole.offsets) { abort(); }
        if (how[10]) {
            tj_choose(&whole, made[2], made[3], 0, 1, 0, 0);
            tj_convolve_for_kernel(call, &whole, (const float*)y->data, (float*)out->data, alone);
        } else {
            tj_convolve_forward(call, &whole, (const float*)y->data, (float*)out->data, size, made + 2, (int)how[12], alone);
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
    cdef Buffers arrays
    arrays.held = 0
    try:
        hold(&arrays, (x, y, out, how), 2)
        return tj_convolve_here(&arrays.views[0], &arrays.views[1], &arrays.views[2], &arrays.views[3])
    finally:
        let_go(&arrays)
