from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t

from torchgrad_jax.runtime.native cimport arrays, sharing
from torchgrad_jax.runtime.native.buffers cimport Buffers, hold, let_go

# Softmax of rows, their standardization, and the gradients of both, float32: a row is read from memory once, as it stays in the cache for what is done to it
# again. Sums are of TJ_SUMS elements at once, so that they are the more exact and many are added at once.
cdef extern from *:
    """
    #include "torchgrad_jax/runtime/native/functions.h"
    enum { TJ_SUMS = 32, TJ_OF_ROWS = 1 << 13, TJ_ROWS_ALONE = 1 << 14, TJ_OF_COLUMNS = 64 };
    enum { TJ_SOFTMAX, TJ_LOG_SOFTMAX, TJ_SOFTMAX_GRAD, TJ_LOG_SOFTMAX_GRAD, TJ_LAYER, TJ_LAYER_GRAD, TJ_LAYER_WEIGHT, TJ_MOMENTS, TJ_CHANNELS,
           TJ_CHANNELS_GRAD, TJ_SAFE_SOFTMAX };
    typedef struct {
        const float* given[6];
        float* made[3];
        int64_t rows, n, inner, together;
        int of, weight, bias, rest;
        float eps;
    } tj_rowwise;

    /* TJ_SUMS elements as one, halved each time: as loops of so many turns, which compilers write out. */
    #define TJ_HALVED(count, joined) { int h; for (h = 0; h < (count); h++) { float a = lanes[h], b = lanes[h + (count)]; lanes[h] = (joined); } }
    #define TJ_JOINED(joined) \\
        TJ_HALVED(16, joined) TJ_HALVED(8, joined) TJ_HALVED(4, joined) TJ_HALVED(2, joined) TJ_HALVED(1, joined)
    #define TJ_SUM_OF(term)                                                                                                      \\
        float lanes[TJ_SUMS] = {0};                                                                                              \\
        int64_t i, whole = n / TJ_SUMS * TJ_SUMS;                                                                                \\
        int k;                                                                                                                   \\
        for (i = 0; i < whole; i += TJ_SUMS) { for (k = 0; k < TJ_SUMS; k++) { int64_t j = i + k; lanes[k] += (term); } }        \\
        for (k = 0; i + k < n; k++) { int64_t j = i + k; lanes[k] += (term); }                                                   \\
        TJ_JOINED(a + b)                                                                                                         \\
        return lanes[0];
    TJ_INLINE float tj_sum_of(const float* x, int64_t n) { TJ_SUM_OF(x[j]) }
    TJ_INLINE float tj_sum_of_products(const float* x, const float* y, int64_t n) { TJ_SUM_OF(x[j] * y[j]) }
    TJ_INLINE float tj_sum_of_squares(const float* x, float mean, int64_t n) { TJ_SUM_OF((x[j] - mean) * (x[j] - mean)) }
    TJ_INLINE float tj_sum_weighed(const float* g, const float* w, int64_t n) { TJ_SUM_OF(g[j] * w[j]) }
    TJ_INLINE float tj_sum_standardized(const float* g, const float* x, float mean, float rstd, int64_t n) { TJ_SUM_OF(g[j] * ((x[j] - mean) * rstd)) }
    TJ_INLINE float tj_sum_both(const float* g, const float* w, const float* x, float mean, float rstd, int64_t n) {
        TJ_SUM_OF(g[j] * w[j] * ((x[j] - mean) * rstd))
    }
    #undef TJ_SUM_OF
    /* The last elements of a row, fewer than TJ_SUMS, as that many: one by one they take as long as many. */
    TJ_INLINE void tj_filled(const float* x, int64_t count, float* room) {
        int k;
        for (k = 0; k < TJ_SUMS; k++) { room[k] = -INFINITY; }
        memcpy(room, x, (size_t)(count * 4));
    }
    TJ_INLINE float tj_most_of(const float* x, int64_t n) {
        float lanes[TJ_SUMS];
        int64_t i, whole = n / TJ_SUMS * TJ_SUMS;
        int k;
        tj_filled(x + whole, n - whole, lanes);
        for (i = 0; i < whole; i += TJ_SUMS) { for (k = 0; k < TJ_SUMS; k++) { lanes[k] = x[i + k] > lanes[k] ? x[i + k] : lanes[k]; } }
        TJ_JOINED(b > a ? b : a)
        return lanes[0];
    }
    /* The sum of exp(x - most), each written to y, if it is there. */
    TJ_INLINE float tj_sum_of_exp(const float* TJ_ONLY x, float most, float* TJ_ONLY y, int64_t n) {
        float lanes[TJ_SUMS] = {0}, last[TJ_SUMS];
        int64_t i, whole = n / TJ_SUMS * TJ_SUMS;
        int k;
        if (y) { for (i = 0; i < whole; i += TJ_SUMS) { for (k = 0; k < TJ_SUMS; k++) { lanes[k] += y[i + k] = tj_exp(x[i + k] - most); } } }
        else { for (i = 0; i < whole; i += TJ_SUMS) { for (k = 0; k < TJ_SUMS; k++) { lanes[k] += tj_exp(x[i + k] - most); } } }
        if (whole < n) {
            tj_filled(x + whole, n - whole, last);
            for (k = 0; k < TJ_SUMS; k++) { lanes[k] += last[k] = tj_exp(last[k] - most); }
            if (y) { memcpy(y + whole, last, (size_t)((n - whole) * 4)); }
        }
        TJ_JOINED(a + b)
        return lanes[0];
    }
    #undef TJ_JOINED
    #undef TJ_HALVED
    /* What is no number is so for the whole row: by the sum. */
    TJ_INLINE void tj_softmax_row(const float* TJ_ONLY x, float* TJ_ONLY y, int64_t n) {
        float sum = tj_sum_of_exp(x, tj_most_of(x, n), y, n);
        int64_t j;
        for (j = 0; j < n; j++) { y[j] /= sum; }
    }
    /* Whether all of so many elements, the largest of which is `most`, are minus infinity, and none is no number. */
    TJ_INLINE int tj_is_nothing(const float* TJ_ONLY x, float most, int64_t n) { return most == -INFINITY && tj_sum_of(x, n) == -INFINITY; }
    /* 0 where that is so. */
    TJ_INLINE void tj_safe_softmax_row(const float* TJ_ONLY x, float* TJ_ONLY y, int64_t n) {
        if (tj_is_nothing(x, tj_most_of(x, n), n)) { memset(y, 0, (size_t)(4 * n)); }
        else { tj_softmax_row(x, y, n); }
    }
    TJ_INLINE void tj_log_softmax_row(const float* TJ_ONLY x, float* TJ_ONLY y, int64_t n) {
        float most = tj_most_of(x, n), log = logf(tj_sum_of_exp(x, most, 0, n));
        int64_t j;
        for (j = 0; j < n; j++) { y[j] = x[j] - most - log; }
    }
    TJ_INLINE void tj_softmax_grad_row(const float* TJ_ONLY g, const float* TJ_ONLY y, float* TJ_ONLY out, int64_t n) {
        float sum = tj_sum_of_products(g, y, n);
        int64_t j;
        for (j = 0; j < n; j++) { out[j] = y[j] * (g[j] - sum); }
    }
    TJ_INLINE void tj_log_softmax_grad_row(const float* TJ_ONLY g, const float* TJ_ONLY y, float* TJ_ONLY out, int64_t n) {
        float sum = tj_sum_of(g, n), last[TJ_SUMS];
        int64_t j, whole = n / TJ_SUMS * TJ_SUMS;
        int k;
        for (j = 0; j < whole; j++) { out[j] = g[j] - tj_exp(y[j]) * sum; }
        if (whole == n) { return; }
        tj_filled(y + whole, n - whole, last);
        for (k = 0; k < TJ_SUMS; k++) { last[k] = tj_exp(last[k]); }
        for (k = 0; whole + k < n; k++) { out[whole + k] = g[whole + k] - last[k] * sum; }
    }
    TJ_INLINE void tj_layer_row(const float* TJ_ONLY x, const float* TJ_ONLY w, const float* TJ_ONLY b, float eps, float* TJ_ONLY y, float* mean,
                                float* rstd, int64_t n) {
        float centre = tj_sum_of(x, n) * (1 / (float)n), scale = 1 / sqrtf(tj_sum_of_squares(x, centre, n) * (1 / (float)n) + eps);
        int64_t j;
        if (w && b) { for (j = 0; j < n; j++) { y[j] = (x[j] - centre) * scale * w[j] + b[j]; } }
        else if (w) { for (j = 0; j < n; j++) { y[j] = (x[j] - centre) * scale * w[j]; } }
        else { for (j = 0; j < n; j++) { y[j] = (x[j] - centre) * scale; } }
        *mean = centre;
        *rstd = scale;
    }
    TJ_INLINE void tj_layer_grad_row(const float* TJ_ONLY g, const float* TJ_ONLY x, float mean, float rstd, const float* TJ_ONLY w,
                                     const float* TJ_ONLY rest, float* TJ_ONLY out, int64_t n) {
        float first = (w ? tj_sum_weighed(g, w, n) : tj_sum_of(g, n)) / (float)n;
        float second = (w ? tj_sum_both(g, w, x, mean, rstd, n) : tj_sum_standardized(g, x, mean, rstd, n)) / (float)n;
        int64_t j;
        if (w) { for (j = 0; j < n; j++) { out[j] = rstd * (g[j] * w[j] - first - (x[j] - mean) * rstd * second); } }
        else { for (j = 0; j < n; j++) { out[j] = rstd * (g[j] - first - (x[j] - mean) * rstd * second); } }
        if (rest) { for (j = 0; j < n; j++) { out[j] += rest[j]; } }
    }
    #define TJ_EACH_ROW(name, row) \\
        TJ_CLONES static void name(const tj_rowwise* r, int64_t at, int64_t end, int64_t n) { for (; at < end; at++) { row; } }
    #define TJ_ROW_OF(array) (array + at * n)
    TJ_EACH_ROW(tj_softmax_rows, tj_softmax_row(TJ_ROW_OF(r->given[0]), TJ_ROW_OF(r->made[0]), n))
    TJ_EACH_ROW(tj_safe_softmax_rows, tj_safe_softmax_row(TJ_ROW_OF(r->given[0]), TJ_ROW_OF(r->made[0]), n))
    TJ_EACH_ROW(tj_log_softmax_rows, tj_log_softmax_row(TJ_ROW_OF(r->given[0]), TJ_ROW_OF(r->made[0]), n))
    TJ_EACH_ROW(tj_softmax_grad_rows, tj_softmax_grad_row(TJ_ROW_OF(r->given[0]), TJ_ROW_OF(r->given[1]), TJ_ROW_OF(r->made[0]), n))
    TJ_EACH_ROW(tj_log_softmax_grad_rows, tj_log_softmax_grad_row(TJ_ROW_OF(r->given[0]), TJ_ROW_OF(r->given[1]), TJ_ROW_OF(r->made[0]), n))
    TJ_EACH_ROW(tj_layer_rows, tj_layer_row(TJ_ROW_OF(r->given[0]), r->weight ? r->given[1] : 0, r->bias ? r->given[2] : 0, r->eps,
                                            TJ_ROW_OF(r->made[0]), r->made[1] + at, r->made[2] + at, n))
    TJ_EACH_ROW(tj_layer_grad_rows, tj_layer_grad_row(TJ_ROW_OF(r->given[0]), TJ_ROW_OF(r->given[1]), r->given[2][at], r->given[3][at],
                                                      r->weight ? r->given[4] : 0, r->rest ? TJ_ROW_OF(r->given[4 + r->weight]) : 0,
                                                      TJ_ROW_OF(r->made[0]), n))
    #undef TJ_EACH_ROW
    #undef TJ_ROW_OF
    /* Softmax along a dimension that others follow: `count` columns of n elements, `inner` from one another. */
    TJ_INLINE void tj_softmax_of_columns(const tj_rowwise* r, int64_t at, int64_t count, const int of) {
        const float* TJ_ONLY x = r->given[0] + at;
        const float* TJ_ONLY y = of == TJ_SOFTMAX_GRAD || of == TJ_LOG_SOFTMAX_GRAD ? r->given[1] + at : 0;
        float* TJ_ONLY out = r->made[0] + at;
        float most[TJ_OF_COLUMNS], sum[TJ_OF_COLUMNS];
        int64_t i, j, step = r->inner, end = r->n * step;
        for (j = 0; j < count; j++) { most[j] = x[j], sum[j] = 0; }
        if (!y) {
            for (i = step; i < end; i += step) { for (j = 0; j < count; j++) { most[j] = x[i + j] > most[j] ? x[i + j] : most[j]; } }
        }
        for (i = 0; i < end; i += step) {
            if (of == TJ_SOFTMAX) { for (j = 0; j < count; j++) { sum[j] += out[i + j] = tj_exp(x[i + j] - most[j]); } }
            else if (of == TJ_LOG_SOFTMAX) { for (j = 0; j < count; j++) { sum[j] += tj_exp(x[i + j] - most[j]); } }
            else if (of == TJ_SOFTMAX_GRAD) { for (j = 0; j < count; j++) { sum[j] += x[i + j] * y[i + j]; } }
            else { for (j = 0; j < count; j++) { sum[j] += x[i + j]; } }
        }
        if (of == TJ_LOG_SOFTMAX) { for (j = 0; j < count; j++) { sum[j] = logf(sum[j]); } }
        for (i = 0; i < end; i += step) {
            if (of == TJ_SOFTMAX) { for (j = 0; j < count; j++) { out[i + j] /= sum[j]; } }
            else if (of == TJ_LOG_SOFTMAX) { for (j = 0; j < count; j++) { out[i + j] = x[i + j] - most[j] - sum[j]; } }
            else if (of == TJ_SOFTMAX_GRAD) { for (j = 0; j < count; j++) { out[i + j] = y[i + j] * (x[i + j] - sum[j]); } }
            else { for (j = 0; j < count; j++) { out[i + j] = x[i + j] - tj_exp(y[i + j]) * sum[j]; } }
        }
    }
    #define TJ_SOFTMAX_OF(kind) case kind: tj_softmax_of_columns(r, at, count, kind); break;
    TJ_CLONES static void tj_softmax_columns(const tj_rowwise* r, int64_t at, int64_t count) {
        switch (r->of) { TJ_SOFTMAX_OF(TJ_SOFTMAX) TJ_SOFTMAX_OF(TJ_LOG_SOFTMAX) TJ_SOFTMAX_OF(TJ_SOFTMAX_GRAD) TJ_SOFTMAX_OF(TJ_LOG_SOFTMAX_GRAD) }
    }
    #undef TJ_SOFTMAX_OF
    static void tj_softmax_piece(const void* work, int64_t piece, tj_hand* hand) {
        const tj_rowwise* r = (const tj_rowwise*)work;
        int64_t blocks = tj_pieces(r->inner, TJ_OF_COLUMNS), at = piece * r->together, end = at + r->together;
        (void)hand;
        for (; at < end && at < r->rows * blocks; at++) {
            int64_t first = at % blocks * TJ_OF_COLUMNS;
            tj_softmax_columns(r, at / blocks * r->n * r->inner + first, r->inner - first < TJ_OF_COLUMNS ? r->inner - first : TJ_OF_COLUMNS);
        }
    }
    /* Channels of images (rows, inner, n): mean and variance; what is made of those and of a weight and a bias; the gradients of that. */
    TJ_CLONES static void tj_moments(const tj_rowwise* r, int64_t channel) {
        int64_t image, n = r->n, count = r->rows * n;
        double sum = 0, squares = 0;
        float mean;
        for (image = 0; image < r->rows; image++) { sum += tj_sum_of(r->given[0] + (image * r->inner + channel) * n, n); }
        mean = (float)(sum / (double)count);
        for (image = 0; image < r->rows; image++) { squares += tj_sum_of_squares(r->given[0] + (image * r->inner + channel) * n, mean, n); }
        r->made[0][channel] = mean;
        r->made[1][channel] = (float)(squares / (double)count);
    }
    TJ_CLONES static void tj_channel(const tj_rowwise* r, int64_t channel) {
        int64_t image, j, n = r->n;
        float mean = r->given[1][channel], rstd = r->given[2][channel], weight = r->given[3][channel], bias = r->given[4][channel];
        for (image = 0; image < r->rows; image++) {
            const float* TJ_ONLY x = r->given[0] + (image * r->inner + channel) * n;
            float* TJ_ONLY y = r->made[0] + (image * r->inner + channel) * n;
            for (j = 0; j < n; j++) { y[j] = (x[j] - mean) * rstd * weight + bias; }
        }
    }
    TJ_CLONES static void tj_channel_grad(const tj_rowwise* r, int64_t channel) {
        int64_t image, j, n = r->n, count = r->rows * n;
        float mean = r->given[2][channel], rstd = r->given[3][channel], scale = rstd * r->given[4][channel], first, second;
        double sum = 0, weighed = 0;
        for (image = 0; image < r->rows; image++) {
            int64_t at = (image * r->inner + channel) * n;
            sum += tj_sum_of(r->given[0] + at, n);
            weighed += tj_sum_standardized(r->given[0] + at, r->given[1] + at, mean, rstd, n);
        }
        first = (float)(sum / (double)count), second = (float)(weighed / (double)count);
        r->made[1][channel] = (float)weighed;
        r->made[2][channel] = (float)sum;
        for (image = 0; image < r->rows; image++) {
            int64_t at = (image * r->inner + channel) * n;
            const float* TJ_ONLY g = r->given[0] + at;
            const float* TJ_ONLY x = r->given[1] + at;
            float* TJ_ONLY out = r->made[0] + at;
            for (j = 0; j < n; j++) { out[j] = scale * (g[j] - first - (x[j] - mean) * rstd * second); }
        }
    }
    static void tj_channel_piece(const void* work, int64_t piece, tj_hand* hand) {
        const tj_rowwise* r = (const tj_rowwise*)work;
        int64_t at = piece * r->together, end = at + r->together < r->inner ? at + r->together : r->inner;
        (void)hand;
        for (; at < end; at++) { (r->of == TJ_MOMENTS ? tj_moments : r->of == TJ_CHANNELS ? tj_channel : tj_channel_grad)(r, at); }
    }
    static void tj_row_piece(const void* work, int64_t piece, tj_hand* hand) {
        const tj_rowwise* r = (const tj_rowwise*)work;
        int64_t at = piece * r->together, end = at + r->together < r->rows ? at + r->together : r->rows;
        (void)hand;
        switch (r->of) {
            case TJ_SOFTMAX: tj_softmax_rows(r, at, end, r->n); break;
            case TJ_SAFE_SOFTMAX: tj_safe_softmax_rows(r, at, end, r->n); break;
            case TJ_LOG_SOFTMAX: tj_log_softmax_rows(r, at, end, r->n); break;
            case TJ_SOFTMAX_GRAD: tj_softmax_grad_rows(r, at, end, r->n); break;
            case TJ_LOG_SOFTMAX_GRAD: tj_log_softmax_grad_rows(r, at, end, r->n); break;
            case TJ_LAYER: tj_layer_rows(r, at, end, r->n); break;
            default: tj_layer_grad_rows(r, at, end, r->n);
        }
    }
    /* The gradient of a weight: some columns' sums over all rows, 64 rows at a time, of g * (x - mean) * rstd. */
    TJ_CLONES static void tj_layer_weight(const tj_rowwise* r, int64_t first, int64_t count) {
        const float *g = r->given[0] + first, *x = r->given[1] + first;
        float whole[TJ_OF_COLUMNS] = {0};
        int64_t row, end, j;
        for (row = 0; row < r->rows;) {
            float part[TJ_OF_COLUMNS] = {0};
            for (end = row + 64 < r->rows ? row + 64 : r->rows; row < end; row++) {
                const float *grads = g + row * r->n, *values = x + row * r->n;
                float mean = r->given[2][row], rstd = r->given[3][row];
                for (j = 0; j < count; j++) { part[j] += grads[j] * ((values[j] - mean) * rstd); }
            }
            for (j = 0; j < count; j++) { whole[j] += part[j]; }
        }
        memcpy(r->made[0] + first, whole, (size_t)(count * 4));
    }
    static void tj_column_piece(const void* work, int64_t piece, tj_hand* hand) {
        const tj_rowwise* r = (const tj_rowwise*)work;
        int64_t first = piece * TJ_OF_COLUMNS;
        (void)hand;
        tj_layer_weight(r, first, r->n - first < TJ_OF_COLUMNS ? r->n - first : TJ_OF_COLUMNS);
    }
    /* how: what is asked for, the rows and their length, the bits of eps, whether there is a weight (1), a bias (2) and what is added to the gradient (4),
       and how far a row's elements are from one another, with as many rows there; or how many channels. */
    static void tj_by_rows(const tj_call* call, tj_rowwise* r, const int64_t* how) {
        uint32_t bits = (uint32_t)how[3];
        int alone = how[1] * how[2] * how[5] < TJ_ROWS_ALONE;
        r->of = (int)how[0];
        r->rows = how[1];
        r->n = how[2];
        memcpy(&r->eps, &bits, 4);
        r->weight = (int)(how[4] & 1);
        r->bias = (int)(how[4] >> 1 & 1);
        r->rest = (int)(how[4] >> 2);
        r->inner = how[5];
        r->together = tj_pieces(TJ_OF_ROWS, r->n);
        if (r->of >= TJ_MOMENTS && r->of <= TJ_CHANNELS_GRAD) {
            r->together = tj_pieces(TJ_OF_ROWS, r->rows * r->n);
            tj_do(call, tj_channel_piece, r, tj_pieces(r->inner, r->together), alone);
        }
        else if (r->inner > 1) {
            int64_t blocks = r->rows * tj_pieces(r->inner, TJ_OF_COLUMNS);
            r->together = tj_pieces(TJ_OF_ROWS, r->n * (r->inner < TJ_OF_COLUMNS ? r->inner : TJ_OF_COLUMNS));
            tj_do(call, tj_softmax_piece, r, tj_pieces(blocks, r->together), alone);
        }
        else if (r->of == TJ_LAYER_WEIGHT) { tj_do(call, tj_column_piece, r, tj_pieces(r->n, TJ_OF_COLUMNS), alone); }
        else { tj_do(call, tj_row_piece, r, tj_pieces(r->rows, r->together), alone); }
    }
    static int tj_rowwise_minor;
    static void* tj_by_rows_for_xla(tj_call* call) {
        tj_rowwise r;
        int64_t i;
        if (tj_is_asked(call, tj_rowwise_minor)) { return 0; }
        for (i = 0; i < call->operands.count && i < 5; i++) { r.given[i] = (const float*)((const tj_buffer*)call->operands.items[i])->data; }
        for (i = 0; i < call->results.count && i < 3; i++) { r.made[i] = (float*)((const tj_buffer*)call->results.items[i])->data; }
        tj_by_rows(call, &r, (const int64_t*)((const tj_numbers*)call->attributes.items[0])->values);
        return 0;
    }
    static void* tj_row_handler(int minor) {
        tj_rowwise_minor = minor;
        return (void*)&tj_by_rows_for_xla;
    }
    /* For the interpreter, which lets go of Python's lock meanwhile where that is longer. */
    static void tj_by_rows_here(const Py_buffer* arrays, int given, int made) {
        tj_rowwise r;
        const int64_t* how = (const int64_t*)arrays[given + made].buf;
        int i;
        for (i = 0; i < given; i++) { r.given[i] = (const float*)arrays[i].buf; }
        for (i = 0; i < made; i++) { r.made[i] = (float*)arrays[given + i].buf; }
        if (how[1] * how[2] * how[5] < TJ_ROWS_ALONE) {
            tj_by_rows(0, &r, how);
            return;
        }
        Py_BEGIN_ALLOW_THREADS
        tj_by_rows(0, &r, how);
        Py_END_ALLOW_THREADS
    }
    /* Minus the element of each row at its class, 0 where that is to be ignored: of rows that lie beside one another, `inner` at a time. How many are
       not; -1 where one is no class. */
    #define TJ_OF_CLASSES(letter, type)                                                                                                           \\
    static int64_t tj_classes_##letter(const type* x, const int64_t* classes, type* out, int64_t outer, int64_t n, int64_t inner,                 \\
                                       int64_t ignored) {                                                                                         \\
        int64_t i, j, kept = 0;                                                                                                                   \\
        for (i = 0; i < outer; i++, x += n * inner, classes += inner, out += inner) {                                                             \\
            for (j = 0; j < inner; j++) {                                                                                                         \\
                int64_t c = classes[j];                                                                                                           \\
                if (c != ignored && (uint64_t)c >= (uint64_t)n) { return -1; }                                                                    \\
                out[j] = c == ignored ? 0 : -x[c * inner + j];                                                                                    \\
                kept += c != ignored;                                                                                                             \\
            }                                                                                                                                     \\
        }                                                                                                                                         \\
        return kept;                                                                                                                              \\
    }
    TJ_OF_CLASSES(f, float)
    TJ_OF_CLASSES(d, double)
    """
    int64_t tj_classes_f(const float* x, const int64_t* classes, float* out, int64_t outer, int64_t n, int64_t inner, int64_t ignored) noexcept
    int64_t tj_classes_d(const double* x, const int64_t* classes, double* out, int64_t outer, int64_t n, int64_t inner, int64_t ignored) noexcept
    void* tj_row_handler(int minor) noexcept
    void tj_by_rows_here(Py_buffer* arrays, int given, int made) noexcept


cdef inline object handler(int minor):
    return PyCapsule_New(tj_row_handler(minor), NULL, NULL)


cdef inline bint by_rows(object given, object made, object how) except *:
    cdef Buffers arrays
    arrays.held = 0
    try:
        hold(&arrays, (*given, *made, how), len(given))
        tj_by_rows_here(&arrays.views[0], len(given), len(made))
        return True
    finally:
        let_go(&arrays)


# x: (rows, n, ...) of float32 or float64; classes: (rows, ...) of int64; losses: as many, of x's dtype. All in row-major order.
cdef inline int64_t of_classes(object x, object classes, object losses, int64_t ignored) except -2:
    cdef Py_buffer given, places, made
    cdef int64_t kept = -1, inner
    arrays.view(x, &given, PyBUF_C_CONTIGUOUS)
    try:
        arrays.view(classes, &places, PyBUF_C_CONTIGUOUS)
        try:
            arrays.view(losses, &made, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
            inner = places.len // 8 // places.shape[0]
            if given.itemsize == 4:
                kept = tj_classes_f(<float*>given.buf, <int64_t*>places.buf, <float*>made.buf, places.shape[0], given.shape[1], inner, ignored)
            else:
                kept = tj_classes_d(<double*>given.buf, <int64_t*>places.buf, <double*>made.buf, places.shape[0], given.shape[1], inner, ignored)
            PyBuffer_Release(&made)
        finally:
            PyBuffer_Release(&places)
    finally:
        PyBuffer_Release(&given)
    return kept
