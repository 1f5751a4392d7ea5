from cpython.pycapsule cimport PyCapsule_New

from torchgrad_jax.runtime.native cimport sharing
from torchgrad_jax.runtime.native.buffers cimport Buffers, hold, let_go

# The largest elements of windows of volumes, and of images, which have one slice, float32 and float64: first down, row by row, as many columns at once as a
# vector has, then across. For the gradient each window is searched again; windows of 2 x 2 that lie side by side, which most are, many at a time.
cdef extern from *:
    """
    enum { TJ_ELEMENTS = 1 << 14, TJ_POOLED_ALONE = 1 << 17 };
    enum { TJ_POOLED, TJ_POOLED_PLACES, TJ_POOLED_GRADIENT, TJ_POOLED_ADDED, TJ_POOLED_PUT, TJ_POOLED_TAKEN };
    /* Of `volumes` of some `size`, in slices, rows and columns, is asked, `made` being how many windows there are in each dimension: their largest elements;
       these and their flat places; given the largest elements' gradient, that of the volume; or, given elements and their places, as many as windows, what
       they are in the volume, added up or put there; or the volume's elements at places. Windows have `kernel` elements, `dilation` apart, each `stride` from
       the last, the first `before` the volume's edge; or where there are `bounds`, each begins and ends there, the next volume's `leap` numbers
       further on. `together` volumes are a piece. */
    typedef struct {
        const void* given[2];
        void* out[2];
        int64_t of, volumes, size[3], made[3], kernel[3], stride[3], before[3], dilation[3], together, leap;
        const int64_t* bounds[3];
    } tj_pooling;

    /* Where a window begins in a dimension, and ends: both within, unless it is empty. */
    TJ_INLINE void tj_window(const tj_pooling* p, int i, int64_t at, int64_t* first, int64_t* end) {
        if (p->bounds[i]) {
            *first = p->bounds[i][2 * at];
            *end = p->bounds[i][2 * at + 1];
            return;
        }
        *first = at * p->stride[i] - p->before[i];
        *end = *first + (p->kernel[i] - 1) * p->dilation[i] + 1;
        if (*end > p->size[i]) { *end = p->size[i]; }
        if (*first < 0) { *first += tj_pieces(-*first, p->dilation[i]) * p->dilation[i]; }
    }

    /* What is no number is larger than all others; the first of equal ones is the largest. */
    static inline float tj_larger(float best, float other) { return ((other > best) | (other != other)) ? other : best; }
    static inline double tj_larger_double(double best, double other) { return ((other > best) | (other != other)) ? other : best; }
    #define TJ_NUMBER float
    #define TJ_PLACE int32_t
    #define TJ_NOWHERE INT32_MAX
    #define TJ_LARGER tj_larger
    #define TJ_OF(name) tj_single_##name
    #include "torchgrad_jax/runtime/native/windows.h"
    #define TJ_NUMBER double
    #define TJ_PLACE int64_t
    #define TJ_NOWHERE INT64_MAX
    #define TJ_LARGER tj_larger_double
    #define TJ_OF(name) tj_double_##name
    #include "torchgrad_jax/runtime/native/windows.h"

    /* Two rows that have windows of 2 x 2 side by side: the largest elements; or, for their gradient, that of each element: 0 where it is not the largest. */
    static void tj_pool_pair(const float* x, const float* lower, const float* grad, float* out, float* below, int64_t j) {
        float a = x[2 * j], b = x[2 * j + 1], c = lower[2 * j], d = lower[2 * j + 1], above = tj_larger(a, b), beneath = tj_larger(c, d);
        int right = (b > a) | (b != b), right_too = (d > c) | (d != d), down = (beneath > above) | (beneath != beneath);
        if (!grad) {
            out[j] = down ? beneath : above;
            return;
        }
        out[2 * j] = (right | down) ? 0 : grad[j];
        out[2 * j + 1] = (right & !down) ? grad[j] : 0;
        below[2 * j] = (right_too | !down) ? 0 : grad[j];
        below[2 * j + 1] = (right_too & down) ? grad[j] : 0;
    }
    #if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 12)
    #define TJ_SHUFFLED(lanes, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
    #elif defined(__GNUC__)
    #define TJ_SHUFFLED(lanes, a, b, ...) __builtin_shuffle(a, b, (tj_bits_##lanes){__VA_ARGS__})
    #endif
    #ifdef TJ_SHUFFLED
    #define TJ_EVEN_8 0, 2, 4, 6, 8, 10, 12, 14
    #define TJ_ODD_8 1, 3, 5, 7, 9, 11, 13, 15
    #define TJ_LOW_8 0, 8, 1, 9, 2, 10, 3, 11
    #define TJ_HIGH_8 4, 12, 5, 13, 6, 14, 7, 15
    #define TJ_EVEN_4 0, 2, 4, 6
    #define TJ_ODD_4 1, 3, 5, 7
    #define TJ_LOW_4 0, 4, 1, 5
    #define TJ_HIGH_4 2, 6, 3, 7
    #define TJ_CHOSEN(wins, other, best) ((best & ~(wins)) | (other & (wins)))
    /* So many windows at once, of which the last ones are made twice where the row is no multiple of that. */
    #define TJ_POOL_PAIRS(lanes)                                                                                                  \\
        typedef float tj_pair_##lanes __attribute__((vector_size(4 * lanes), aligned(4), may_alias));                             \\
        typedef int32_t tj_bits_##lanes __attribute__((vector_size(4 * lanes), aligned(4), may_alias));                           \\
        TJ_CLONES static void tj_pool_pairs_##lanes(const float* x, const float* lower, const float* grad, float* out, float* below, int64_t count) { \\
            int64_t k, j;                                                                                                         \\
            for (k = 0; k < count; k += lanes) {                                                                                  \\
                tj_pair_##lanes first, second, third, fourth;                                                                     \\
                tj_bits_##lanes a, b, c, d, g, right, right_too, down;                                                            \\
                j = k + lanes <= count ? k : count - lanes;                                                                       \\
                first = *(const tj_pair_##lanes*)(x + 2 * j), second = *(const tj_pair_##lanes*)(x + 2 * j + lanes);              \\
                third = *(const tj_pair_##lanes*)(lower + 2 * j), fourth = *(const tj_pair_##lanes*)(lower + 2 * j + lanes);      \\
                a = (tj_bits_##lanes)TJ_SHUFFLED(lanes, first, second, TJ_EVEN_##lanes);                                     \\
                b = (tj_bits_##lanes)TJ_SHUFFLED(lanes, first, second, TJ_ODD_##lanes);                                      \\
                c = (tj_bits_##lanes)TJ_SHUFFLED(lanes, third, fourth, TJ_EVEN_##lanes);                                     \\
                d = (tj_bits_##lanes)TJ_SHUFFLED(lanes, third, fourth, TJ_ODD_##lanes);                                      \\
                right = TJ_WINS(lanes, a, b), right_too = TJ_WINS(lanes, c, d);                                                   \\
                a = TJ_CHOSEN(right, b, a), c = TJ_CHOSEN(right_too, d, c);                                                       \\
                down = TJ_WINS(lanes, a, c);                                                                                      \\
                if (!grad) {                                                                                                      \\
                    *(tj_bits_##lanes*)(out + j) = TJ_CHOSEN(down, c, a);                                                         \\
                    continue;                                                                                                     \\
                }                                                                                                                 \\
                g = *(const tj_bits_##lanes*)(grad + j);                                                                          \\
                a = g & ~down & ~right, b = g & ~down & right, c = g & down & ~right_too, d = g & down & right_too;               \\
                *(tj_bits_##lanes*)(out + 2 * j) = TJ_SHUFFLED(lanes, a, b, TJ_LOW_##lanes);                                 \\
                *(tj_bits_##lanes*)(out + 2 * j + lanes) = TJ_SHUFFLED(lanes, a, b, TJ_HIGH_##lanes);                        \\
                *(tj_bits_##lanes*)(below + 2 * j) = TJ_SHUFFLED(lanes, c, d, TJ_LOW_##lanes);                               \\
                *(tj_bits_##lanes*)(below + 2 * j + lanes) = TJ_SHUFFLED(lanes, c, d, TJ_HIGH_##lanes);                      \\
            }                                                                                                                     \\
        }
    #define TJ_WINS(lanes, best, other)                                                                                           \\
        (((tj_pair_##lanes)(other) > (tj_pair_##lanes)(best)) | ((tj_pair_##lanes)(other) != (tj_pair_##lanes)(other)))
    TJ_POOL_PAIRS(8)
    TJ_POOL_PAIRS(4)
    #endif
    static void tj_pool_pairs(const float* x, const float* lower, const float* grad, float* out, float* below, int64_t count) {
        int64_t j;
    #ifdef TJ_SHUFFLED
        if (count >= 4) {
            (count >= 8 ? tj_pool_pairs_8 : tj_pool_pairs_4)(x, lower, grad, out, below, count);
            return;
        }
    #endif
        for (j = 0; j < count; j++) { tj_pool_pair(x, lower, grad, out, below, j); }
    }
    /* Whether they are windows of 2 x 2 side by side, of float32. */
    static int tj_pools_pairs(const tj_pooling* p) {
        int i;
        for (i = 0; i < 3; i++) {
            int64_t size = i ? 2 : 1;
            if (p->kernel[i] != size || p->stride[i] != size || p->before[i] || p->dilation[i] != 1 || p->made[i] * size > p->size[i]) { return 0; }
        }
        return p->of == TJ_POOLED || p->of == TJ_POOLED_GRADIENT;
    }
    /* Some volumes of such windows: slices are images. */
    static void tj_pair_piece(const void* work, int64_t piece, tj_hand* hand) {
        const tj_pooling* p = (const tj_pooling*)work;
        int64_t image = piece * p->together * p->size[0], last = image + p->together * p->size[0], row, j, width = p->size[2], across = p->made[2];
        const float* grad = (const float*)p->given[1] + image * p->made[1] * across;
        (void)hand;
        for (last = last < p->volumes * p->size[0] ? last : p->volumes * p->size[0]; image < last; image++) {
            const float* x = (const float*)p->given[0] + image * p->size[1] * width;
            float* out = (float*)p->out[0] + image * (p->of == TJ_POOLED ? p->made[1] * across : p->size[1] * width);
            for (row = 0; row < p->made[1]; row++, x += 2 * width, grad += across) {
                if (p->of == TJ_POOLED) {
                    tj_pool_pairs(x, x + width, 0, out, 0, across);
                    out += across;
                    continue;
                }
                tj_pool_pairs(x, x + width, grad, out, out + width, across);
                for (j = 2 * across; j < width; j++) { out[j] = out[width + j] = 0; }
                out += 2 * width;
            }
            if (p->of == TJ_POOLED_GRADIENT) { memset(out, 0, (size_t)((p->size[1] - 2 * p->made[1]) * width * 4)); }
        }
    }
    /* how: an element's bytes, what is asked for, how many volumes; the three sizes of a volume and of what is made of it; of each dimension the kernel's
       size, stride, what is before, and dilation; and, of those where the size
       is 0, all windows' bounds, two each, unless they are an operand, each volume's. */
    static void tj_pool(const tj_call* call, tj_pooling* p, const int64_t* how) {
        int within = how[1] == TJ_POOLED_PLACES && p->given[1];
        const int64_t *first = within ? (const int64_t*)p->given[1] : how + 21, *bounds = first;
        int64_t size;
        int i;
        p->of = how[1];
        p->volumes = how[2];
        for (i = 0; i < 3; i++) {
            p->size[i] = how[3 + i];
            p->made[i] = how[6 + i];
            p->kernel[i] = how[9 + 4 * i];
            p->stride[i] = how[10 + 4 * i];
            p->before[i] = how[11 + 4 * i];
            p->dilation[i] = how[12 + 4 * i];
            p->bounds[i] = p->kernel[i] ? 0 : bounds;
            bounds += p->kernel[i] ? 0 : 2 * p->made[i];
        }
        p->leap = within ? bounds - first : 0;
        size = p->size[0] * p->size[1] * p->size[2];
        p->together = tj_pieces(TJ_ELEMENTS, size);
        tj_do(call, how[0] == 8 ? tj_double_piece : tj_pools_pairs(p) ? tj_pair_piece : tj_single_piece, p, tj_pieces(p->volumes, p->together),
              p->volumes * size < TJ_POOLED_ALONE);
    }
    static int tj_pooling_minor;
    static void* tj_pool_for_xla(tj_call* call) {
        tj_pooling p;
        int64_t i;
        if (tj_is_asked(call, tj_pooling_minor)) { return 0; }
        for (i = 0; i < 2; i++) {
            p.given[i] = i < call->operands.count ? ((const tj_buffer*)call->operands.items[i])->data : 0;
            p.out[i] = i < call->results.count ? ((const tj_buffer*)call->results.items[i])->data : 0;
        }
        tj_pool(call, &p, (const int64_t*)((const tj_numbers*)call->attributes.items[0])->values);
        return 0;
    }
    static void* tj_pooler(int minor) {
        tj_pooling_minor = minor;
        return (void*)&tj_pool_for_xla;
    }
    /* For the interpreter, which lets go of Python's lock meanwhile. */
    static void tj_pool_here(const Py_buffer* arrays, int given, int made) {
        tj_pooling p;
        int i;
        for (i = 0; i < 2; i++) {
            p.given[i] = i < given ? arrays[i].buf : 0;
            p.out[i] = i < made ? arrays[given + i].buf : 0;
        }
        Py_BEGIN_ALLOW_THREADS
        tj_pool(0, &p, (const int64_t*)arrays[given + made].buf);
        Py_END_ALLOW_THREADS
    }
    """
    void* tj_pooler(int minor) noexcept
    void tj_pool_here(Py_buffer* arrays, int given, int made) noexcept


cdef inline object handler(int minor):
    return PyCapsule_New(tj_pooler(minor), NULL, NULL)


cdef inline bint pool(object given, object made, object how) except *:
    cdef Buffers arrays
    arrays.held = 0
    try:
        hold(&arrays, (*given, *made, how), len(given))
        tj_pool_here(&arrays.views[0], len(given), len(made))
        return True
    finally:
        let_go(&arrays)
