from cpython.pycapsule cimport PyCapsule_New

from torchgrad_jax.runtime.native cimport sharing
from torchgrad_jax.runtime.native.buffers cimport Buffers, hold, let_go

# The largest elements of windows of images, float32: first down, row by row, as many columns at once as a vector has, then across. For the gradient
# each window is searched again; windows of 2 x 2 that lie side by side, which most are, many at a time.
cdef extern from *:
    """
    enum { TJ_ELEMENTS = 1 << 14, TJ_POOLED_ALONE = 1 << 17 };
    /* Images of (height, width) have windows of `kernel` elements, `dilation` apart, each `stride` from the last, the first `before` the image's edge:
       (down, across) of them. `together` images are a piece. */
    typedef struct {
        const float *x, *grad;
        float* out;
        int64_t images, height, width, down, across, kernel[2], stride[2], before[2], dilation[2], together;
    } tj_pooling;

    /* What is no number is larger than all others; the first of equal ones is the largest. */
    static inline float tj_larger(float best, float other) { return ((other > best) | (other != other)) ? other : best; }

    /* Rows that windows have, as one: the largest of each column, with what is less than all others around. */
    static inline void tj_pool_rows(const tj_pooling* p, const float* x, int64_t row, float* made) {
        int64_t k, j;
        int begun = 0;
        for (k = 0; k < p->kernel[0]; k++) {
            int64_t at = row * p->stride[0] - p->before[0] + k * p->dilation[0];
            const float* from = x + at * p->width;
            if (at < 0 || at >= p->height) { continue; }
            if (begun) { for (j = 0; j < p->width; j++) { made[j] = tj_larger(made[j], from[j]); } }
            else { memcpy(made, from, (size_t)(p->width * 4)); }
            begun = 1;
        }
        for (j = 0; j < p->width && !begun; j++) { made[j] = -INFINITY; }
    }
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
    /* Elements of a row that windows have at the same place: where they are the largest so far. from: of the first window; at: which that is. */
    #define TJ_COMPARE(stride)                                                                                                    \\
        for (j = 0; j < count; j++) {                                                                                             \\
            float other = from[j * (stride)];                                                                                     \\
            int wins = (other > best[j]) | (other != other);                                                                        \\
            best[j] = wins ? other : best[j];                                                                                     \\
            place[j] = wins ? at + (int32_t)j * (int32_t)(stride) : place[j];                                                     \\
        }
    TJ_CLONES static void tj_compare(const float* TJ_ONLY from, int64_t stride, int32_t at, float* TJ_ONLY best, int32_t* TJ_ONLY place,
                                          int64_t count) {
        int64_t j;
        if (stride == 1) { TJ_COMPARE(1) }
        else if (stride == 2) { TJ_COMPARE(2) }
        else { TJ_COMPARE(stride) }
    }
    #undef TJ_COMPARE
    static int tj_pools_pairs(const tj_pooling* p) {
        int i;
        for (i = 0; i < 2; i++) { if (p->kernel[i] != 2 || p->stride[i] != 2 || p->before[i] || p->dilation[i] != 1) { return 0; } }
        return p->down * 2 <= p->height && p->across * 2 <= p->width;
    }
    TJ_CLONES static void tj_pool_image(const tj_pooling* p, const float* x, float* out, float* room) {
        int64_t row, k, j, count = p->across, stride = p->stride[1];
        if (tj_pools_pairs(p)) {
            for (row = 0; row < p->down; row++, x += 2 * p->width, out += count) { tj_pool_pairs(x, x + p->width, 0, out, 0, count); }
            return;
        }
        for (row = 0; row < p->down; row++, out += count) {
            const float* rows = room;
            tj_pool_rows(p, x, row, room + p->before[1]);
            if (stride == 2) { for (j = 0; j < count; j++) { out[j] = rows[2 * j]; } }
            else { for (j = 0; j < count; j++) { out[j] = rows[j * stride]; } }
            for (k = 1; k < p->kernel[1]; k++) {
                rows += p->dilation[1];
                if (stride == 2) { for (j = 0; j < count; j++) { out[j] = tj_larger(out[j], rows[2 * j]); } }
                else { for (j = 0; j < count; j++) { out[j] = tj_larger(out[j], rows[j * stride]); } }
            }
        }
    }
    static void tj_pool_back(const tj_pooling* p, const float* x, const float* grad, float* out, float* room, int64_t wide) {
        int64_t row, i, j;
        if (tj_pools_pairs(p)) {
            for (row = 0; row < p->down; row++, grad += p->across) {
                int64_t at = 2 * row * p->width, end = at + p->width;
                tj_pool_pairs(x + at, x + end, grad, out + at, out + end, p->across);
                for (j = 2 * p->across; j < p->width; j++) { out[at + j] = out[end + j] = 0; }
            }
            memset(out + 2 * p->down * p->width, 0, (size_t)((p->height - 2 * p->down) * p->width * 4));
            return;
        }
        memset(out, 0, (size_t)(p->height * p->width * 4));
        for (row = 0; row < p->down; row++, grad += p->across) {
            float* best = room + wide;
            int32_t* place = (int32_t*)(best + p->across);
            int64_t first = row * p->stride[0] - p->before[0];
            i = first < 0 ? tj_pieces(-first, p->dilation[0]) : 0;
            for (j = 0; j < p->across; j++) {
                int64_t column = j * p->stride[1] - p->before[1];
                if (column < 0) { column += tj_pieces(-column, p->dilation[1]) * p->dilation[1]; }
                best[j] = -INFINITY;
                place[j] = column < p->width ? (int32_t)((first + i * p->dilation[0]) * p->width + column) : -1;
            }
            for (; i < p->kernel[0] && first + i * p->dilation[0] < p->height; i++) {
                int64_t at = (first + i * p->dilation[0]) * p->width;
                memcpy(room + p->before[1], x + at, (size_t)(p->width * 4));
                for (j = 0; j < p->kernel[1]; j++) {
                    tj_compare(room + j * p->dilation[1], p->stride[1], (int32_t)(at - p->before[1] + j * p->dilation[1]), best, place, p->across);
                }
            }
            for (j = 0; j < p->across; j++) { if (place[j] >= 0 && place[j] < p->height * p->width) { out[place[j]] += grad[j]; } }
        }
    }
    static void tj_pool_piece(const void* pooling, int64_t piece, tj_hand* hand) {
        const tj_pooling* p = (const tj_pooling*)pooling;
        int64_t image = piece * p->together, last = image + p->together < p->images ? image + p->together : p->images;
        int64_t size = p->height * p->width, made = p->down * p->across, wide = (p->across - 1) * p->stride[1] + (p->kernel[1] - 1) * p->dilation[1] + 1, j;
        float* room = (float*)hand->kept;
        if (wide < p->before[1] + p->width) { wide = p->before[1] + p->width; }
        if (!room) {
            hand->kept = room = (float*)malloc((size_t)((wide + 2 * p->across) * 4));
            if (!room) { abort(); }
            for (j = 0; j < wide; j++) { room[j] = -INFINITY; }
        }
        for (; image < last; image++) {
            if (p->grad) { tj_pool_back(p, p->x + image * size, p->grad + image * made, p->out + image * size, room, wide); }
            else { tj_pool_image(p, p->x + image * size, p->out + image * made, room); }
        }
    }
    /* how: height, width, down, across, and for each of both dimensions the kernel's size, stride, what is before, and dilation. */
    static void tj_pool(const tj_call* call, const float* x, const float* grad, float* out, int64_t images, const int64_t* how) {
        tj_pooling p = {x, grad, out, images, how[0], how[1], how[2], how[3], {how[4], how[8]}, {how[5], how[9]}, {how[6], how[10]}, {how[7], how[11]}, 0};
        int64_t size = p.height * p.width;
        p.together = tj_pieces(TJ_ELEMENTS, size);
        tj_do(call, tj_pool_piece, &p, tj_pieces(images, p.together), images * size < TJ_POOLED_ALONE);
    }
    static int tj_pooling_minor;
    /* Operands: the images, and the gradient of what they gave, if theirs is asked for. */
    static void* tj_pool_for_xla(tj_call* call) {
        const tj_buffer *x, *grad, *out;
        const int64_t* how;
        int64_t images = 1, i;
        if (tj_is_asked(call, tj_pooling_minor)) { return 0; }
        x = (const tj_buffer*)call->operands.items[0];
        grad = call->operands.count > 1 ? (const tj_buffer*)call->operands.items[1] : 0;
        out = (const tj_buffer*)call->results.items[0];
        how = (const int64_t*)((const tj_numbers*)call->attributes.items[0])->values;
        for (i = 0; i < x->rank - 2; i++) { images *= x->shape[i]; }
        tj_pool(call, (const float*)x->data, grad ? (const float*)grad->data : 0, (float*)out->data, images, how);
        return 0;
    }
    static void* tj_pooler(int minor) {
        tj_pooling_minor = minor;
        return (void*)&tj_pool_for_xla;
    }
    /* For the interpreter, which lets go of Python's lock meanwhile. */
    static void tj_pool_here(const Py_buffer* x, const Py_buffer* grad, const Py_buffer* out, const Py_buffer* how) {
        const int64_t* numbers = (const int64_t*)how->buf;
        Py_BEGIN_ALLOW_THREADS
        tj_pool(0, (const float*)x->buf, grad ? (const float*)grad->buf : 0, (float*)out->buf, x->len / (4 * numbers[0] * numbers[1]), numbers);
        Py_END_ALLOW_THREADS
    }
    """
    void* tj_pooler(int minor) noexcept
    void tj_pool_here(Py_buffer* x, Py_buffer* grad, Py_buffer* out, Py_buffer* how) noexcept


cdef inline object handler(int minor):
    return PyCapsule_New(tj_pooler(minor), NULL, NULL)


cdef inline bint pool(object x, object grad, object out, object how) except *:
    cdef Buffers arrays
    cdef int first = 1 if grad is None else 2
    arrays.held = 0
    try:
        hold(&arrays, (x, out, how) if grad is None else (x, grad, out, how), first)
        tj_pool_here(&arrays.views[0], NULL if grad is None else &arrays.views[1], &arrays.views[first], &arrays.views[first + 1])
        return True
    finally:
        let_go(&arrays)
