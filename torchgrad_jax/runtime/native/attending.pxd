from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t

from torchgrad_jax.runtime.native cimport arrays, rowwise, tiling

# Scaled dot-product attention of several heads, float32, and its gradient: a block of queries at a time, whose scores stay in the cache between the two
# products. There is none for processors that have no tiles.
cdef extern from *:
    """
    /* One head of each sample at start + sample * of_samples + head * of_heads bytes: rows of `width` features next to each other, `lead` elements
       from one row to the next. */
    typedef struct {
        char* start;
        int64_t of_samples, of_heads, lead;
    } tj_heads;
    /* Queries of a block at most, and, where a query sees no key after itself, at least, as a quarter of them skips more keys; how many scores of a block
       are looked for in the cache; and of how many multiplications in all threads share them. */
    enum { TJ_QUERIES = 128, TJ_CAUSAL_QUERIES = 48, TJ_SCORES = 1 << 17, TJ_ATTENTION_SHARED = 1 << 18 };
    enum { TJ_GIVEN_MASKED = 4, TJ_GIVEN_BACK = 5 };
    /* What `how` may say beside numbers: scores are divided by the scale; the softmax is that of `rowwise` to the bit, also of a row that is masked
       altogether, where it else is 0, unless it is `safe`; the mask is of bytes, and where they are 1, or 0, scores are `fill`. */
    enum { TJ_SCORES_DIVIDED = 1, TJ_SCORES_AS_THEY_ARE = 2, TJ_SCORES_FILLED = 4, TJ_SCORES_KEPT = 8, TJ_SCORES_SAFE = 16 };
    /* What is added to the scores, or which of them are filled, of (samples, heads, queries, keys), so many elements from one to the next: 0 where all
       have the same. Neither: there is none. */
    typedef struct {
        const float* added;
        const signed char* bytes;
        int64_t of_samples, of_heads, of_queries, of_keys;
    } tj_mask;
    /* query, key, value and the gradient of the output; the output, or the gradients of the three; the weights (samples, heads, queries, keys), and by
       what they are multiplied before they are with the value, as many numbers, or 0. */
    typedef struct {
        const tj_call* call;
        tj_heads query, key, value, grad, out, of_query, of_key, of_value;
        tj_mask mask;
        float* weights;
        const float* drop;
        int64_t samples, heads, queries, keys, width, causal, block, blocks, told;
        float scale, fill;
        int alone;
    } tj_attention;

    static float* tj_head(const tj_heads* of, int64_t sample, int64_t head, int64_t row) {
        return (float*)(of->start + sample * of->of_samples + head * of->of_heads) + row * of->lead;
    }
    /* out (m, n), whose rows are `lead` apart, = x (m, k) @ y (k, n), or the sum of both. Each of x and y may be its transpose in memory. */
    static void tj_of_head(const tj_attention* p, const float* x, int64_t x_lead, int x_turned, const float* y, int64_t y_lead, int y_turned, float* out,
                           int64_t lead, int64_t m, int64_t n, int64_t k, int add) {
        tj_operands of = {{(const char*)x, x_lead, 1, 0, 0, x_turned}, {(const char*)y, y_lead, 1, 0, 0, y_turned}, (char*)out, 1, m, n, k, add, p->alone,
                          0, lead, 0, 1, 0};
        tj_tile_products(p->call, &of, tj_tiles_of(tj_vector_bits(), 0));
    }
    static tj_mask tj_mask_from(const tj_mask* of, int64_t sample, int64_t head, int64_t query) {
        tj_mask found = *of;
        int64_t at = sample * of->of_samples + head * of->of_heads + query * of->of_queries;
        if (of->added) { found.added += at; }
        if (of->bytes) { found.bytes += at; }
        return found;
    }
    /* So many scores become `fill` where a row of bytes, or one for all, says `filled`. */
    TJ_INLINE void tj_fill(float* TJ_ONLY scores, const signed char* TJ_ONLY bytes, int64_t of_keys, int64_t n, int filled, float fill) {
        int64_t j;
        if (of_keys) { for (j = 0; j < n; j++) { scores[j] = bytes[j] == filled ? fill : scores[j]; } }
        else if (bytes[0] == filled) { for (j = 0; j < n; j++) { scores[j] = fill; } }
    }
    TJ_INLINE void tj_scale(float* TJ_ONLY scores, int64_t n, float scale, int divided) {
        int64_t j;
        if (divided) { for (j = 0; j < n; j++) { scores[j] /= scale; } }
        else { for (j = 0; j < n; j++) { scores[j] *= scale; } }
    }
    /* The softmax of each row of `count` scores, scaled and masked from `mask` on: of its first `seen` elements, which are one more for each row if
       `causal`; 0 for the others, which are computed with up to a whole number of TJ_SUMS, as those are done at once, and for a row that is masked
       altogether, unless scores are taken as they are. */
    TJ_CLONES static void tj_weigh(const tj_attention* p, float* TJ_ONLY scores, int64_t count, float* TJ_ONLY weights, int64_t rows, int64_t seen,
                                   tj_mask mask) {
        const int64_t keys = p->keys;
        int64_t i, j;
        for (i = 0; i < rows; i++, scores += count, weights += keys, seen += p->causal && seen < keys) {
            int64_t n = (seen + TJ_SUMS - 1) / TJ_SUMS * TJ_SUMS;
            float most, sum;
            if (n > count) { n = count; }
            tj_scale(scores, n, p->scale, p->told & TJ_SCORES_DIVIDED);
            if (mask.added) {
                if (mask.of_keys) { for (j = 0; j < n; j++) { scores[j] += mask.added[j]; } }
                else { for (j = 0; j < n; j++) { scores[j] += mask.added[0]; } }
                mask.added += mask.of_queries;
            }
            if (mask.bytes) {
                tj_fill(scores, mask.bytes, mask.of_keys, n, !!(p->told & TJ_SCORES_FILLED), p->fill);
                mask.bytes += mask.of_queries;
            }
            for (j = seen; j < n; j++) { scores[j] = -INFINITY; }
            most = tj_most_of(scores, n);
            if ((p->told & TJ_SCORES_SAFE || (mask.added && !(p->told & TJ_SCORES_AS_THEY_ARE))) && tj_is_nothing(scores, most, n)) { n = 0; }
            sum = tj_sum_of_exp(scores, most, weights, n);
            tj_scale(weights, n, p->told & TJ_SCORES_AS_THEY_ARE ? sum : 1 / sum, p->told & TJ_SCORES_AS_THEY_ARE);
            memset(weights + n, 0, (size_t)(4 * (keys - n)));
        }
    }
    /* Of the gradient of weights that of scores, in its place: 0 where they were filled. */
    TJ_CLONES static void tj_weigh_back(const tj_attention* p, float* TJ_ONLY grad, int64_t count, const float* TJ_ONLY weights, int64_t rows,
                                        tj_mask mask) {
        int64_t i, j;
        for (i = 0; i < rows; i++, grad += count, weights += p->keys) {
            float sum = tj_sum_of_products(grad, weights, count);
            for (j = 0; j < count; j++) { grad[j] = weights[j] * (grad[j] - sum); }
            if (mask.bytes) {
                tj_fill(grad, mask.bytes, mask.of_keys, count, !!(p->told & TJ_SCORES_FILLED), 0);
                mask.bytes += mask.of_queries;
            }
            tj_scale(grad, count, p->scale, p->told & TJ_SCORES_DIVIDED);
        }
    }
    static float* tj_room_for_scores(const tj_attention* p, tj_hand* hand) {
        if (!hand->kept) { hand->kept = malloc((size_t)(4 * p->block * p->keys * (p->drop ? 2 : 1))); }
        if (!hand->kept) { abort(); }
        return (float*)hand->kept;
    }
    /* Keys that the queries before this one see. */
    static int64_t tj_seen(const tj_attention* p, int64_t query) { return p->causal && query < p->keys ? query : p->keys; }
    TJ_CLONES static void tj_times(const float* TJ_ONLY x, const float* TJ_ONLY y, float* TJ_ONLY out, int64_t n) {
        int64_t j;
        for (j = 0; j < n; j++) { out[j] = x[j] * y[j]; }
    }
    TJ_CLONES static void tj_scale_each(float* TJ_ONLY x, const float* TJ_ONLY by, int64_t n) {
        int64_t j;
        for (j = 0; j < n; j++) { x[j] *= by[j]; }
    }
    /* So many weights of each of a block's rows, as they are multiplied with values: themselves, or written to `room`. lead: from one
       row to the next. */
    static const float* tj_dropped(const tj_attention* p, int64_t row, int64_t rows, int64_t count, float* room, int64_t* lead) {
        const float *weights = p->weights + row * p->keys, *drop = p->drop ? p->drop + row * p->keys : 0;
        int64_t i;
        *lead = drop ? count : p->keys;
        if (!drop) { return weights; }
        for (i = 0; i < rows; i++) { tj_times(weights + i * p->keys, drop + i * p->keys, room + i * count, count); }
        return room;
    }
    static void tj_attend_piece(const void* attention, int64_t piece, tj_hand* hand) {
        const tj_attention* p = (const tj_attention*)attention;
        int64_t unit = piece / p->blocks, sample = unit / p->heads, head = unit % p->heads, first = piece % p->blocks * p->block;
        int64_t rows = p->queries - first < p->block ? p->queries - first : p->block, count = tj_seen(p, first + rows), d = p->width;
        float *scores = tj_room_for_scores(p, hand), *weights = p->weights + (unit * p->queries + first) * p->keys;
        const float* by;
        int64_t lead;
        tj_of_head(p, tj_head(&p->query, sample, head, first), p->query.lead, 0, tj_head(&p->key, sample, head, 0), p->key.lead, 1, scores, count, rows,
                   count, d, 0);
        tj_weigh(p, scores, count, weights, rows, tj_seen(p, first + 1), tj_mask_from(&p->mask, sample, head, first));
        by = tj_dropped(p, unit * p->queries + first, rows, count, scores, &lead);
        tj_of_head(p, by, lead, 0, tj_head(&p->value, sample, head, 0), p->value.lead, 0, tj_head(&p->out, sample, head, first), p->out.lead, rows, d,
                   count, 0);
    }
    static void tj_zero_head(const tj_heads* of, int64_t sample, int64_t head, int64_t rows, int64_t width) {
        int64_t i;
        for (i = 0; i < rows; i++) { memset(tj_head(of, sample, head, i), 0, (size_t)(4 * width)); }
    }
    static void tj_attend_back_piece(const void* attention, int64_t unit, tj_hand* hand) {
        const tj_attention* p = (const tj_attention*)attention;
        int64_t sample = unit / p->heads, head = unit % p->heads, d = p->width, first;
        float *room = tj_room_for_scores(p, hand), *of_key = tj_head(&p->of_key, sample, head, 0), *of_value = tj_head(&p->of_value, sample, head, 0);
        const float *key = tj_head(&p->key, sample, head, 0), *value = tj_head(&p->value, sample, head, 0);
        tj_zero_head(&p->of_key, sample, head, p->keys, d);
        tj_zero_head(&p->of_value, sample, head, p->keys, d);
        for (first = 0; first < p->queries; first += p->block) {
            int64_t rows = p->queries - first < p->block ? p->queries - first : p->block, count = tj_seen(p, first + rows);
            int64_t row = unit * p->queries + first, lead, i;
            const float *weights = p->weights + row * p->keys, *grad = tj_head(&p->grad, sample, head, first);
            const float* by = tj_dropped(p, row, rows, count, room + p->block * p->keys, &lead);
            tj_of_head(p, grad, p->grad.lead, 0, value, p->value.lead, 1, room, count, rows, count, d, 0);
            if (p->drop) { for (i = 0; i < rows; i++) { tj_scale_each(room + i * count, p->drop + (row + i) * p->keys, count); } }
            tj_weigh_back(p, room, count, weights, rows, tj_mask_from(&p->mask, sample, head, first));
            tj_of_head(p, room, count, 0, key, p->key.lead, 0, tj_head(&p->of_query, sample, head, first), p->of_query.lead, rows, d, count, 0);
            tj_of_head(p, room, count, 1, tj_head(&p->query, sample, head, first), p->query.lead, 0, of_key, p->of_key.lead, count, d, rows, 1);
            tj_of_head(p, by, lead, 1, grad, p->grad.lead, 0, of_value, p->of_value.lead, count, d, rows, 1);
        }
    }
    static int64_t tj_block_of(const tj_attention* p, int back) {
        int64_t most = p->keys > TJ_SCORES / TJ_QUERIES ? TJ_SCORES / p->keys : TJ_QUERIES;
        if (back && p->told & TJ_SCORES_AS_THEY_ARE) { return tj_pieces(p->queries, tj_pieces(p->queries, TJ_TERMS)); }  /* sums as of a product */
        if (p->causal && p->queries / 4 < most) { most = p->queries / 4; }
        if (most < TJ_CAUSAL_QUERIES) { most = TJ_CAUSAL_QUERIES; }
        return p->queries < most ? p->queries : most;
    }
    /* how: samples, heads, queries, keys, width, whether a query sees no key after itself, the bits of the scale, float32, what is told beside that, and
       the bits of what fills.
       given: query, key and value, and by itself the mask, if there is one; made: the output, and the weights. Or given: the output's gradient, query,
       key, value and, by itself, the weights; made: the gradients of the three. */
    static void tj_attend(const tj_call* call, const tj_heads* given, const tj_heads* made, float* weights, const tj_mask* mask, const float* drop,
                          int back, const int64_t* how) {
        tj_attention p = {call};
        int32_t scale = (int32_t)how[6], fill = (int32_t)how[8];
        int64_t units = how[0] * how[1];
        p.query = given[back];
        p.key = given[back + 1];
        p.value = given[back + 2];
        p.grad = given[0];
        p.out = p.of_query = made[0];
        p.of_key = made[1];
        p.of_value = made[2];
        p.weights = weights;
        p.drop = drop;
        p.mask = *mask;
        p.samples = how[0];
        p.heads = how[1];
        p.queries = how[2];
        p.keys = how[3];
        p.width = how[4];
        p.causal = how[5];
        p.told = how[7];
        memcpy(&p.scale, &scale, 4);
        memcpy(&p.fill, &fill, 4);
        p.block = tj_block_of(&p, back);
        p.blocks = tj_pieces(p.queries, p.block);
        if (!back) { units *= p.blocks; }
        p.alone = units > 1;
        tj_do(call, back ? tj_attend_back_piece : tj_attend_piece, &p, units,
              how[0] * how[1] * p.queries * p.keys * p.width < TJ_ATTENTION_SHARED ? TJ_BY_NEAR : TJ_BY_ALL);
    }
    /* Of (samples, heads, queries, keys) elements in one piece, each of which may be 1. */
    static tj_mask tj_mask_of(const void* start, const int64_t* shape, int bytes) {
        tj_mask found = {bytes ? 0 : (const float*)start, bytes ? (const signed char*)start : 0, 0, 0, 0, shape[3] != 1};
        if (shape[0] != 1) { found.of_samples = shape[1] * shape[2] * shape[3]; }
        if (shape[1] != 1) { found.of_heads = shape[2] * shape[3]; }
        if (shape[2] != 1) { found.of_queries = shape[3]; }
        return found;
    }
    static int tj_attending_minor;
    static void* tj_attend_for_xla(tj_call* call) {
        tj_heads given[4], made[3] = {{0}};
        tj_mask mask = {0};
        const int64_t* how;
        float* weights;
        int64_t count = call->operands.count, back = count == TJ_GIVEN_BACK, i;
        if (tj_is_asked(call, tj_attending_minor)) { return 0; }
        how = (const int64_t*)((const tj_numbers*)call->attributes.items[0])->values;
        for (i = 0; i < 3 + back + (back ? 3 : 1); i++) {
            int of_given = i < 3 + back;
            const tj_buffer* buffer = (const tj_buffer*)(of_given ? call->operands.items[i] : call->results.items[i - 3 - back]);
            tj_heads* found = of_given ? &given[i] : &made[i - 3 - back];
            int64_t rows = buffer->shape[2], width = buffer->shape[3];
            found->start = (char*)buffer->data;
            found->lead = width;
            found->of_heads = 4 * rows * width;
            found->of_samples = how[1] * found->of_heads;
        }
        weights = (float*)((const tj_buffer*)(back ? call->operands.items[4] : call->results.items[1]))->data;
        if (count == TJ_GIVEN_MASKED) {
            const tj_buffer* of = (const tj_buffer*)call->operands.items[3];
            mask = tj_mask_of(of->data, of->shape, 0);
        }
        tj_attend(call, given, made, weights, &mask, 0, (int)back, how);
        return 0;
    }
    static void* tj_attender(int minor) {
        tj_attending_minor = minor;
        return tj_tiles_of(tj_vector_bits(), 0) ? (void*)&tj_attend_for_xla : 0;
    }
    static tj_heads tj_heads_of(const Py_buffer* array) {
        tj_heads found = {(char*)array->buf, array->strides[0], array->strides[1], array->strides[2] / 4};
        return found;
    }
    /* For the interpreter, which lets go of Python's lock meanwhile. */
    static void tj_attend_here(const Py_buffer* given, const Py_buffer* made, const Py_buffer* weights, const Py_buffer* masked, const void* drop, int back,
                               const int64_t* how) {
        tj_heads from[4], to[3] = {{0}};
        tj_mask mask = {0};
        int i;
        for (i = 0; i < 3 + back; i++) { from[i] = tj_heads_of(given + i); }
        for (i = 0; i < (back ? 3 : 1); i++) { to[i] = tj_heads_of(made + i); }
        if (masked) {
            int64_t shape[4];
            for (i = 0; i < 4; i++) { shape[i] = masked->shape[i]; }
            mask = tj_mask_of(masked->buf, shape, masked->itemsize == 1);
        }
        Py_BEGIN_ALLOW_THREADS
        tj_attend(0, from, to, (float*)weights->buf, &mask, (const float*)drop, back, how);
        Py_END_ALLOW_THREADS
    }
    """
    void* tj_attender(int minor) noexcept
    void tj_attend_here(Py_buffer* given, Py_buffer* made, Py_buffer* weights, Py_buffer* masked, void* drop, bint back, int64_t* how) noexcept


cdef inline object handler(int minor):
    cdef void* found = tj_attender(minor)
    return None if found == NULL else PyCapsule_New(found, NULL, NULL)


cdef inline bint attend(list given, list made, object weights, object how, object mask, object drop) except *:
    cdef Py_buffer views[11]
    cdef Py_buffer* masked = NULL
    cdef void* dropped = NULL
    cdef int held = 0, count = len(given), results = len(made), i
    try:
        for i in range(count):
            arrays.view(given[i], &views[held], PyBUF_STRIDES)
            held += 1
        for i in range(results):
            arrays.view(made[i], &views[held], PyBUF_STRIDES | PyBUF_WRITABLE)
            held += 1
        arrays.view(weights, &views[held], PyBUF_C_CONTIGUOUS | (0 if count == 4 else PyBUF_WRITABLE))
        held += 1
        arrays.view(how, &views[held], PyBUF_C_CONTIGUOUS)
        held += 1
        if mask is not None:
            arrays.view(mask, &views[held], PyBUF_C_CONTIGUOUS)
            masked = &views[held]
            held += 1
        if drop is not None:
            arrays.view(drop, &views[held], PyBUF_C_CONTIGUOUS)
            dropped = views[held].buf
            held += 1
        tj_attend_here(views, views + count, &views[count + results], masked, dropped, count == 4,
                       <int64_t*>views[count + results + 1].buf)
        return True
    finally:
        while held > 0:
            held -= 1
            PyBuffer_Release(&views[held])
