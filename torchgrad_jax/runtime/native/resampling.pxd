from cpython.pycapsule cimport PyCapsule_New

from torchgrad_jax.runtime.native cimport sharing
from torchgrad_jax.runtime.native.buffers cimport Buffers, hold, let_go

# Each new element of a dimension is a weighted sum of a few old ones, float32: interpolation, windows of unequal lengths, padding with what is there. Along
# the last dimension many new elements are made at once, along others whole rows.
cdef extern from *:
    """
    enum { TJ_RESAMPLED = 1 << 14, TJ_RESAMPLED_ALONE = 1 << 15 };
    /* x (outer, n, inner) becomes out (outer, made, inner). Of each new element there are `taps` places, -1 for none, all elements' first ones first; and as
       many weights, the bits of float32, or none where all are 1. */
    typedef struct {
        const float* x;
        float* out;
        int64_t outer, n, inner, made, taps, together;
        const int64_t *places, *weights;
    } tj_resampling;
    TJ_INLINE float tj_weight(const tj_resampling* r, int64_t which) {
        uint32_t bits = (uint32_t)r->weights[which];
        float found;
        memcpy(&found, &bits, 4);
        return found;
    }
    TJ_CLONES static void tj_resample_last(const tj_resampling* r, const float* TJ_ONLY x, float* TJ_ONLY out) {
        int64_t j, k;
        for (j = 0; j < r->made; j++) {
            int64_t place = r->places[j];
            out[j] = place < 0 ? 0 : r->weights ? x[place] * tj_weight(r, j) : x[place];
        }
        for (k = 1; k < r->taps; k++) {
            const int64_t* places = r->places + k * r->made;
            for (j = 0; j < r->made; j++) {
                int64_t place = places[j];
                float there = x[place < 0 ? 0 : place];
                there = r->weights ? there * tj_weight(r, k * r->made + j) : there;
                out[j] += place < 0 ? 0 : there;
            }
        }
    }
    TJ_CLONES static void tj_resample_rows(const tj_resampling* r, const float* TJ_ONLY x, float* TJ_ONLY out) {
        int64_t i, j, k, inner = r->inner;
        for (j = 0; j < r->made; j++, out += inner) {
            int begun = 0;
            for (k = 0; k < r->taps; k++) {
                int64_t place = r->places[k * r->made + j];
                const float* row = x + place * inner;
                float weight = r->weights ? tj_weight(r, k * r->made + j) : 1;
                if (place < 0) { continue; }
                if (begun) { for (i = 0; i < inner; i++) { out[i] += row[i] * weight; } }
                else { for (i = 0; i < inner; i++) { out[i] = row[i] * weight; } }
                begun = 1;
            }
            if (!begun) { memset(out, 0, (size_t)(inner * 4)); }
        }
    }
    static void tj_resample_piece(const void* work, int64_t piece, tj_hand* hand) {
        const tj_resampling* r = (const tj_resampling*)work;
        int64_t at = piece * r->together, end = at + r->together < r->outer ? at + r->together : r->outer;
        (void)hand;
        for (; at < end; at++) {
            const float* x = r->x + at * r->n * r->inner;
            float* out = r->out + at * r->made * r->inner;
            if (r->inner == 1) { tj_resample_last(r, x, out); } else { tj_resample_rows(r, x, out); }
        }
    }
    /* how: outer, n, inner, made, taps, whether there are weights, and then the places and the weights. */
    static void tj_resample(const tj_call* call, const float* x, float* out, const int64_t* how) {
        tj_resampling r = {x, out, how[0], how[1], how[2], how[3], how[4], 0, how + 6, how[5] ? how + 6 + how[3] * how[4] : 0};
        int64_t each = (r.n > r.made ? r.n : r.made) * r.inner;
        r.together = tj_pieces(TJ_RESAMPLED, each);
        tj_do(call, tj_resample_piece, &r, tj_pieces(r.outer, r.together), r.outer * each < TJ_RESAMPLED_ALONE);
    }
    static int tj_resampling_minor;
    static void* tj_resample_for_xla(tj_call* call) {
        if (tj_is_asked(call, tj_resampling_minor)) { return 0; }
        tj_resample(call, (const float*)((const tj_buffer*)call->operands.items[0])->data, (float*)((const tj_buffer*)call->results.items[0])->data,
                    (const int64_t*)((const tj_numbers*)call->attributes.items[0])->values);
        return 0;
    }
    static void* tj_resampler(int minor) {
        tj_resampling_minor = minor;
        return (void*)&tj_resample_for_xla;
    }
    /* For the interpreter, which lets go of Python's lock meanwhile. */
    static void tj_resample_here(const Py_buffer* x, const Py_buffer* out, const Py_buffer* how) {
        Py_BEGIN_ALLOW_THREADS
        tj_resample(0, (const float*)x->buf, (float*)out->buf, (const int64_t*)how->buf);
        Py_END_ALLOW_THREADS
    }
    """
    void* tj_resampler(int minor) noexcept
    void tj_resample_here(Py_buffer* x, Py_buffer* out, Py_buffer* how) noexcept


cdef inline object handler(int minor):
    return PyCapsule_New(tj_resampler(minor), NULL, NULL)


cdef inline bint resample(object x, object out, object how) except *:
    cdef Buffers arrays
    arrays.held = 0
    try:
        hold(&arrays, (x, out, how), 1)
        tj_resample_here(&arrays.views[0], &arrays.views[1], &arrays.views[2])
        return True
    finally:
        let_go(&arrays)
