from cpython.pycapsule cimport PyCapsule_New

from torchgrad_jax.runtime.native cimport tiling
from torchgrad_jax.runtime.native.buffers cimport Buffers, hold, let_go

# An image is copied with zeros around it, and between its elements where it is dilated, so that each of the kernel's taps is so many elements further
# on, for all places alike; of strided convolutions every so manieth column lies together. Then 24 places of 4 channels are computed together, in
# registers, or of the kernel's gradient the sums of 6 taps of 16 channels; of 8 channels, or 12 taps, where the processor has twice as many registers.
# Of small images several are packed: what a tap reads for their places lies together. Of volumes each slice of the result is an image, of as many
# channels as the slices that it is made of have. Channels in groups, each with a kernel of its own, are as many images.
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
    enum { TJ_MOST = 8, TJ_TILES = 3, TJ_MOST_TAPS = 12, TJ_PARTS = 8, TJ_ENOUGH = 512, TJ_ALIGNED = 64, TJ_LITTLE = 1 << 19, TJ_LITTLE_HERE = 1 << 20,
           TJ_PACKING = 12, TJ_MOST_PACKED = 1 << 17, TJ_MERGED = 8, TJ_LARGE_KERNEL = 1 << 18, TJ_LAID_OUT_ALONE = 1 << 14 };

    /* x: (batch, channels, depth, height, width). to: the channels of what is made of it, or whose gradient is given: (batch, to, depth', height',
       width'), whose channels are `lead` apart. A tap (h, i, j) of the kernel reads, of columns, the one `stride[2] * column + dilation[2] * j - before[2]`
       of what has `apart[2] - 1` columns of zeros between those of x; so too of slices and rows. slices, down, across: of these (depth', height',
       width') those that are computed, each `step` behind the last, from `first` on; places: all of a slice. taps, offsets: those of all channels' that
       count for them, and where they read in the copied image, which has so many slices, `deep`, of so many `rows`, so `wide` for each of `stride[2]`
       columns that follow one another, and `each` elements. packed: how many images are packed together, into so many `columns` for each tap, which begin
       at `columns_at`; else 0. in_place: whether the image needs no copy. Where images are few, each is made in `bands`, and these in `cuts` of the
       channels; of a kernel's gradient the bands are of channels. Vectors have so many `lanes`. Images have `groups` of channels, which count as images:
       channels and to are those of one, which has so many `weights`. */
    typedef struct {
        const float *x, *y;
        float* out;
        int64_t batch, channels, depth, height, width, to, lead, slices, down, across, line, places, taps, deep, rows, wide, each, packed, columns;
        int64_t bands, cuts, in_place, lanes, parts, vectors, groups, weights;
        void (*turn)(void*, const void*, int64_t, int64_t, int64_t, int64_t);
        int64_t kernel[3], stride[3], before[3], apart[3], dilation[3], step[3], first[3];
        int64_t *offsets, *columns_at;
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

    typedef float tj_four __attribute__((vector_size(16), aligned(4), may_alias));
    typedef int32_t tj_four_places __attribute__((vector_size(16)));
    #ifdef __clang__
    #define TJ_FOUR_FROM(from, odd) __builtin_shufflevector(*(const tj_four*)(from), *(const tj_four*)((from) + 4), odd, odd + 2, odd + 4, odd + 6)
    #else
    #define TJ_FOUR_FROM(from, odd) \
        __builtin_shuffle(*(const tj_four*)(from), *(const tj_four*)((from) + 4), (tj_four_places){odd, odd + 2, odd + 4, odd + 6})
    #endif
    /* Every other of some floats: nothing is read behind the last of them. */
    TJ_INLINE void tj_copy_every_other(float* to, const float* from, int64_t count) {
        int64_t i;
        if (count < 5) {
            for (i = 0; i < count; i++) { to[i] = from[2 * i]; }
            return;
        }
        for (i = 0; i + 4 < count; i += 4) { *(tj_four*)(to + i) = TJ_FOUR_FROM(from + 2 * i, 0); }
        *(tj_four*)(to + count - 4) = TJ_FOUR_FROM(from + 2 * (count - 4) - 1, 1);
    }

    /* Some rows, so far from one to the next. */
    static void tj_copy_rows(const tj_convolution* p, const float* x, float* out, int64_t rows, int64_t leap) {
        int64_t stride = p->stride[2], apart = p->apart[2], before = p->before[2], first = before < 0 ? tj_pieces(-before, apart) : 0, row, i, k;
        for (k = 0; k < stride; k++, first++) { /* whoever comes `stride` elements later is `apart` places further */
            int64_t to = first * apart + before, place = to / stride, last = first + ((p->wide - 1 - place) / apart + 1) * stride, count;
            float* found = out + to % stride * p->wide + place;
            if (last > p->width) { last = p->width; }
            if (place >= p->wide || last <= first) { return; }
            count = (last - first + stride - 1) / stride;
            for (row = 0; row < rows; row++) {
                const float* from = x + row * p->width + first;
                float* there = found + row * leap;
                if (stride == 1 && apart == 1) { tj_copy(there, from, count); }
                else if (stride == 2 && apart == 1) { tj_copy_every_other(there, from, count); }
                else { for (i = 0; i < count; i++) { there[i * apart] = from[i * stride]; } }
            }
        }
    }

    /* The first row of an image that is at a row of its copy, or below. */
    TJ_INLINE int64_t tj_first_at(const tj_convolution* p, int64_t place) {
        return place > p->before[1] ? tj_pieces(place - p->before[1], p->apart[1]) : 0;
    }

    /* What the rows from `top` up to `bottom` of a slice of the result, one of those of all images', are made of: in `room`, or where it is. */
    static const float* tj_image(const tj_convolution* p, int64_t image, int64_t top, int64_t bottom, float* room) {
        int64_t first = image % p->slices * p->stride[0] - p->before[0], size = p->height * p->width, c, i, line = p->stride[2] * p->wide;
        if (p->in_place) { return p->x + image * p->each; }
        top *= p->stride[1];
        bottom = p->rows - (p->down - bottom) * p->stride[1];
        for (c = 0; c < p->channels; c++) {
            const float* volume = p->x + (image / p->slices * p->channels + c) * p->depth * size;
            for (i = 0; i < p->deep; i++) {
                int64_t slice = (first + i) / p->apart[0], row = tj_first_at(p, top), last = tj_first_at(p, bottom);
                const float* x = volume + slice * size;
                float* to = room + (c * p->deep + i) * p->rows * line;
                memset(to + top * line, 0, (size_t)((bottom - top) * line * 4));
                if (first + i < 0 || (first + i) % p->apart[0] || slice >= p->depth) { continue; }
                if (last > p->height) { last = p->height; }
                tj_copy_rows(p, x + row * p->width, to + (row * p->apart[1] + p->before[1]) * line, last - row, p->apart[1] * line);
            }
        }
        return room;
    }

    /* Where the result of an image begins. */
    TJ_INLINE int64_t tj_made_at(const tj_convolution* p, int64_t image) {
        return image / p->slices * p->to * p->lead + (image % p->slices * p->step[0] + p->first[0]) * p->places;
    }

    /* Copy, tap by tap, what the places of some images read next to each other, 8 at a time: what is too much is written over, or behind all there is. */
    static void tj_pack_images(const tj_convolution* p, const float* room, int64_t images, float* packed) {
        int64_t k, image, row, i, leap = p->stride[1] * p->stride[2] * p->wide;
        for (k = 0; k < p->taps; k++) {
            float* to = packed + k * p->columns;
            for (image = 0; image < images; image++) {
                const float* from = room + image * p->each + p->offsets[k];
                for (row = 0; row < p->down; row++, to += p->across, from += leap) {
                    for (i = 0; i < p->across; i += 8) { *(tj_copied*)(to + i) = *(const tj_copied*)(from + i); }
                }
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

    /* As a function of tiles for strips, for processors that have none. */
    static void tj_turn_plainly(void* made, const void* given, int64_t lead, int64_t count, int64_t places, int64_t terms) {
        float* to = (float*)made;
        const float* from = (const float*)given;
        int64_t i, t;
        for (t = 0; t < terms; t++, to += places) { for (i = 0; i < places; i++) { to[i] = from[(i < count ? i : count - 1) * lead + t]; } }
    }
    /* Whether a tap counts for the places from `first` on, and which place of x it reads for the first of them. */
    static int tj_counts(const tj_convolution* p, int i, int64_t tap, int64_t* place) {
        int64_t at = p->first[i] + tap * p->dilation[i] - p->before[i];
        *place = at / p->step[i];
        return at % p->step[i] == 0;
    }

    /* Weights to be laid out: of one of x's channels there are `count`, which the kernel has at places `counting`. */
    typedef struct {
        const tj_convolution* p;
        const float* y;
        float* weights;
        const int64_t* counting;
        int64_t channels, count, turned;
    } tj_layout;
    /* Of some of the result's channels, the weights tap by tap. */
    static void tj_lay_out(const void* layout, int64_t piece, tj_hand* hand) {
        const tj_layout* by = (const tj_layout*)layout;
        const tj_convolution* p = by->p;
        int64_t total = p->kernel[0] * p->kernel[1] * p->kernel[2], lead = by->turned ? total : p->channels * total, pieces = tj_pieces(p->to, by->channels);
        int64_t leap = by->turned ? p->to * total : total, o = piece % pieces * by->channels, some = p->to - o < by->channels ? p->to - o : by->channels, c, k, i;
        const float* from = by->y + piece / pieces * p->to * p->channels * total + o * lead;
        float* to = by->weights + piece / pieces * p->weights + o * p->taps;
        for (c = 0; c < p->channels; c++, to += by->count * by->channels, from += leap) {
            if (by->count == total && by->channels > 1) {
                p->turn(to, from, lead, some, by->channels, total);
                continue;
            }
            for (k = 0; k < by->count; k++) { for (i = 0; i < some; i++) { to[k * by->channels + i] = from[i * lead + by->counting[k]]; } }
        }
    }

    /* Choose the places from `first` on: the taps that count for them. `weights` become, for each `channels` channels, theirs tap by tap. turned: whether
       the kernel is to be read from its end, with both dimensions of channels exchanged. */
    static void tj_choose(const tj_call* call, tj_convolution* p, const int64_t* sizes, const float* y, int64_t channels, float* weights, int turned) {
        int64_t low[3] = {0, 0, 0}, high[3] = {0, 0, 0}, total = p->kernel[0] * p->kernel[1] * p->kernel[2], c, k, o, place[3], line, count = 0;
        int64_t* counting = p->offsets + p->channels * total + TJ_MOST_TAPS;
        int i;
        for (i = 0; i < 3; i++) {
            int found = 0;
            for (k = 0; k < p->kernel[i]; k++) {
                if (!tj_counts(p, i, k, place)) { continue; }
                if (!found || place[0] < low[i]) { low[i] = place[0]; }
                if (!found || place[0] > high[i]) { high[i] = place[0]; }
                found = 1;
            }
        }
        p->slices = tj_pieces(sizes[0] - p->first[0], p->step[0]);
        p->down = tj_pieces(sizes[1] - p->first[1], p->step[1]);
        p->across = tj_pieces(sizes[2] - p->first[2], p->step[2]);
        p->deep = high[0] - low[0] + 1;
        p->rows = (p->down - 1) * p->stride[1] + high[1] - low[1] + 1;
        p->lanes = TJ_HAS_512 && tj_pieces(p->across, 8) % 2 == 0 ? 16 : 8;
        p->wide = tj_pieces(p->across, p->lanes) * p->lanes + (high[2] - low[2]) / p->stride[2];
        line = p->stride[2] * p->wide;
        p->each = p->channels * p->deep * p->rows * line;
        for (o = 0; o < total; o++) { /* in the order of the kernel's numbers */
            int64_t column;
            k = turned ? total - 1 - o : o;
            if (!tj_counts(p, 0, k / (p->kernel[1] * p->kernel[2]), place) || !tj_counts(p, 1, k / p->kernel[2] % p->kernel[1], place + 1) ||
                !tj_counts(p, 2, k % p->kernel[2], place + 2)) { continue; }
            column = place[2] - low[2];
            p->offsets[count] = ((place[0] - low[0]) * p->rows + place[1] - low[1]) * line + column % p->stride[2] * p->wide + column / p->stride[2];
            counting[count++] = o;
        }
        for (c = p->channels - 1; c >= 0; c--) { for (k = 0; k < count; k++) { p->offsets[c * count + k] = c * p->deep * p->rows * line + p->offsets[k]; } }
        p->taps = p->channels * count;
        p->weights = tj_pieces(p->to, channels) * channels * p->taps;
        if (weights) {
            tj_layout layout = {p, y, weights, counting, channels, count, turned};
            tj_do(call, tj_lay_out, &layout, p->groups * tj_pieces(p->to, channels), p->groups * p->weights < TJ_LAID_OUT_ALONE);
        }
        for (i = 0; i < 3; i++) { p->before[i] = -low[i]; }
        p->in_place = p->kernel[0] * p->kernel[1] * p->kernel[2] == 1 && p->slices == 1 && p->depth == 1 && p->rows == p->height && p->wide == p->width &&
                      !p->before[1] && !p->before[2] && p->stride[2] == 1 && p->apart[1] * p->apart[2] == 1;
    }
    /* How many images are packed together, if that is quicker: whole vectors save so many places of each channel, and packing takes as long as TJ_PACKING
       channels of all places, however many there are. */
    static void tj_choose_packing(tj_convolution* p) {
        int64_t lanes = TJ_HAS_512 ? 16 : 8, count = p->down * p->across, images = p->batch * p->slices;
        int64_t together = p->groups > 1 || count >= TJ_TILES * lanes ? 1 : TJ_TILES * lanes / count, apart;
        if (together > images) { together = images; }
        apart = p->down * tj_pieces(p->across, p->lanes) * p->lanes;
        p->columns = tj_pieces(together * count, lanes) * lanes;
        p->packed = (apart - p->columns / together) * p->to > TJ_PACKING * count && p->columns * p->taps < TJ_MOST_PACKED ? together : 0;
        if (!p->packed) { return; }
        p->in_place = 0;
        p->lanes = lanes;
        p->columns_at = p->offsets + p->channels * p->kernel[0] * p->kernel[1] * p->kernel[2] + TJ_MOST_TAPS;
        for (apart = 0; apart < p->taps; apart++) { p->columns_at[apart] = apart * p->columns; }
    }

    /* The parts' sums, tap by tap of all channels. */
    typedef struct {
        const tj_convolution* p;
        const float* room;
        float* result;
        int64_t lead, each;
    } tj_sums_of_parts;
    /* Of TJ_MERGED channels of the kernel's gradient, the sum of all parts'. */
    static void tj_merge(const void* work, int64_t piece, tj_hand* hand) {
        const tj_sums_of_parts* by = (const tj_sums_of_parts*)work;
        int64_t taps = by->p->taps, o = piece * TJ_MERGED, wide = by->p->to - o < TJ_MERGED ? by->p->to - o : TJ_MERGED, k, i, j, t;
        for (k = 0; k < taps; k += TJ_MERGED) {
            int64_t high = taps - k < TJ_MERGED ? taps - k : TJ_MERGED;
            float sums[TJ_MERGED * TJ_MERGED];
            for (t = 0; t < high; t++) {
                const float* from = by->room + (k + t) * by->lead + o;
                memcpy(sums + t * TJ_MERGED, from, sizeof(float) * TJ_MERGED); /* what is too much is of the next tap, or room behind the last */
                for (i = 1; i < by->p->parts; i++) { for (j = 0; j < TJ_MERGED; j++) { sums[t * TJ_MERGED + j] += from[i * by->each + j]; } }
            }
            for (j = 0; j < wide; j++) { for (t = 0; t < high; t++) { by->result[(o + j) * taps + k + t] = sums[t * TJ_MERGED + j]; } }
        }
    }

    /* The kernel's gradient: each part's, added up. As few parts as keep eight threads busy, or as have enough places to sum over; one, if it is large. */
    static void tj_convolve_for_kernel(const tj_call* call, tj_convolution* p, const float* y, float* result, int alone) {
        int64_t parts = p->batch * p->lead / TJ_ENOUGH, wide, lead, each, bands, k;
        tj_sums_of_parts sums;
        float* room;
        if (p->groups > 1) {
            for (k = p->taps; k < p->taps + TJ_MOST_TAPS; k++) { p->offsets[k] = p->offsets[p->taps - 1]; } /* their sums are not read */
            p->y = y;
            p->out = result;
            tj_do(call, TJ_BEST(tj_convolve_group, p->lanes), p, p->groups, alone);
            return;
        }
        p->lanes = TJ_HAS_512 && p->to > 8 ? 16 : 8;
        p->vectors = p->to > p->lanes ? 2 : 1;
        wide = p->vectors * p->lanes;
        lead = tj_pieces(p->to, wide) * wide;
        each = (p->taps + TJ_MOST_TAPS) * lead;
        parts = parts < 2 ? 2 : parts > TJ_PARTS ? TJ_PARTS : parts;
        p->parts = each > TJ_LARGE_KERNEL ? 1 : parts < p->batch * p->slices ? parts : p->batch * p->slices;
        bands = alone ? 1 : tj_pieces(TJ_PIECES_EACH * tj_hands(call), p->parts);
        p->bands = bands < lead / wide ? bands : lead / wide;
        for (k = p->taps; k < p->taps + TJ_MOST_TAPS; k++) { p->offsets[k] = p->offsets[p->taps - 1]; } /* their sums are not read */
        room = (float*)calloc((size_t)(p->parts * each), 4);
        if (!room) { abort(); }
        p->y = y;
        p->out = room;
        tj_do(call, TJ_BEST(tj_convolve_part, p->lanes), p, p->parts * p->bands, alone);
        sums.p = p, sums.room = room, sums.result = result, sums.lead = lead, sums.each = each;
        tj_do(call, tj_merge, &sums, tj_pieces(p->to, TJ_MERGED), each < TJ_LAID_OUT_ALONE);
        free(room);
    }
    /* sizes: the places of the result. size: a kernel's weights of one channel of the result. */
    static void tj_convolve_forward(const tj_call* call, tj_convolution* p, const float* y, float* result, int64_t size, const int64_t* sizes, int turned,
                                    int alone) {
        int64_t apart[3], before[3], channels = p->to == 1 ? 1 : TJ_HAS_512 ? 8 : 4, i, k;
        float* room = (float*)malloc((size_t)((p->to + TJ_MOST) * p->groups * size * 4)); /* weights of channels that there are not are not read for any */
        if (!room) { abort(); }
        p->y = room;
        p->out = result;
        for (i = 0; i < 3; i++) {
            before[i] = p->before[i];
            apart[i] = p->apart[i];
            if (p->stride[0] * p->stride[1] * p->stride[2] == 1) { /* instead of reading zeros: for each place the taps that read none */
                p->step[i] = apart[i];
                p->apart[i] = 1;
            }
        }
        for (k = 0; k < p->step[0] * p->step[1] * p->step[2]; k++) {
            int64_t images, most;
            p->first[0] = k / (p->step[1] * p->step[2]);
            p->first[1] = k / p->step[2] % p->step[1];
            p->first[2] = k % p->step[2];
            for (i = 0; i < 3; i++) { p->before[i] = before[i]; }
            if (p->first[0] >= sizes[0] || p->first[1] >= sizes[1] || p->first[2] >= sizes[2]) { continue; }
            tj_choose(call, p, sizes, y, channels, room, turned);
            tj_choose_packing(p);
            images = p->batch * p->slices;
            p->bands = alone || p->packed ? 1 : tj_pieces(TJ_PARTS, images);
            most = tj_pieces(p->down * tj_pieces(p->across, p->lanes), TJ_TILES);
            if (p->bands > most) { p->bands = most; }
            most = tj_pieces(p->to, channels);
            p->cuts = alone || p->packed ? 1 : tj_pieces(TJ_PARTS, images * p->bands);
            if (p->cuts > most) { p->cuts = most; }
            images = p->packed ? tj_pieces(images, p->packed) : images * p->bands * p->cuts;
            tj_do(call, channels == 1 ? TJ_BEST(tj_convolve_plane, p->lanes) : TJ_BEST(tj_convolve_image, p->lanes), p, images, alone);
        }
        free(room);
    }
    /* What is given and the kernel, or the result's gradient where the kernel's is asked for. how: the kernel's sizes, strides, what is before x, how far its
       elements are apart, the kernel's dilations, each of slices, rows and columns; whether the kernel's gradient is asked for; groups of channels; and
       whether the kernel is turned. call: XLA's, or 0. */
    static void tj_convolve_images(const tj_call* call, const tj_buffer* given, const tj_buffer* kernel, const tj_buffer* result, const int64_t* how) {
        const tj_buffer* buffers[3] = {given, kernel, result};
        int64_t shapes[3][5], *x = shapes[0], *made = how[15] ? shapes[1] : shapes[2], k;
        const tj_tiles* tiles = tj_tiles_of(tj_vector_bits(), 0);
        tj_convolution whole;
        int64_t i, size, by_itself = 0;
        int alone;
        for (i = 0; i < 3; i++) { /* of lines and images as of volumes */
            for (k = 0; k < 5; k++) { shapes[i][k] = k < 2 ? buffers[i]->shape[k] : 1; }
            for (k = 2; k < buffers[i]->rank; k++) { shapes[i][5 - buffers[i]->rank + k] = buffers[i]->shape[k]; }
        }
        whole.x = (const float*)given->data;
        whole.turn = tiles ? tiles->strip : tj_turn_plainly;
        whole.groups = how[16];
        whole.batch = x[0] * how[16];
        whole.channels = x[1] / how[16];
        whole.depth = x[2];
        whole.height = x[3];
        whole.width = x[4];
        whole.to = made[1] / how[16];
        whole.line = made[4];
        whole.places = made[3] * made[4];
        whole.lead = made[2] * whole.places;
        for (i = 0; i < 3; i++) {
            whole.kernel[i] = how[i];
            whole.stride[i] = how[3 + i];
            whole.before[i] = how[6 + i];
            whole.apart[i] = how[9 + i];
            whole.dilation[i] = how[12 + i];
            whole.step[i] = 1;
            whole.first[i] = 0;
        }
        for (i = 0; i < 3; i++) { by_itself += how[i] * how[3 + i] * how[9 + i] == 1 && !how[6 + i] && x[2 + i] == made[2 + i]; }
        if (by_itself == 3 && whole.lead % 8 == 0) {
            whole.depth = whole.height = made[2] = made[3] = 1; /* each place by itself: as one line of them all, which needs no copy */
            whole.width = whole.line = whole.places = made[4] = whole.lead;
        }
        size = whole.channels * whole.kernel[0] * whole.kernel[1] * whole.kernel[2];
        alone = whole.batch * size * whole.to * whole.lead < (call ? TJ_LITTLE : TJ_LITTLE_HERE);
        whole.offsets = (int64_t*)malloc((size_t)((2 * size + TJ_MOST_TAPS) * sizeof(int64_t)));
        if (!whole.offsets) { abort(); }
        if (how[15]) {
            tj_choose(call, &whole, made + 2, 0, 1, 0, 0);
            tj_convolve_for_kernel(call, &whole, (const float*)kernel->data, (float*)result->data, alone);
        } else {
            tj_convolve_forward(call, &whole, (const float*)kernel->data, (float*)result->data, size, made + 2, (int)how[17], alone);
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
    /* For the interpreter, which lets go of Python's lock meanwhile. Arrays of three to five dimensions, float32, contiguous. */
    static int tj_convolve_here(const Py_buffer* x, const Py_buffer* y, const Py_buffer* out, const Py_buffer* how) {
        const Py_buffer* given[3] = {x, y, out};
        int64_t shapes[3][5];
        tj_buffer buffers[3];
        int i, k;
        for (i = 0; i < 3; i++) {
            buffers[i].rank = given[i]->ndim;
            for (k = 0; k < given[i]->ndim; k++) { shapes[i][k] = given[i]->shape[k]; }
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
