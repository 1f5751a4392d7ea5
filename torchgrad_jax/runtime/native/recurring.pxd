from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t

from torchgrad_jax.runtime.native cimport tiling
from torchgrad_jax.runtime.native.buffers cimport Buffers, hold, let_go

# The loop over time of an LSTM, float32, and of its gradient: at each step one product, by tiles, and one pass over the gates. There is none for
# processors that have no tiles.
cdef extern from *:
    """
    #include "torchgrad_jax/runtime/native/functions.h"
    static inline float tj_logistic(float x) { return 1 / (1 + tj_exp(-x)); }

    /* One sequence's step: the cells and states that four rows of sums give. */
    TJ_CLONES static void tj_cell(const float* TJ_ONLY sums, const float* TJ_ONLY before, float* TJ_ONLY cell, float* TJ_ONLY state, int64_t width) {
        int64_t j;
        for (j = 0; j < width; j++) {
            float i = tj_logistic(sums[j]), f = tj_logistic(sums[width + j]), g = tj_tanh(sums[2 * width + j]), o = tj_logistic(sums[3 * width + j]);
            float c = f * before[j] + i * g;
            cell[j] = c;
            state[j] = o * tj_tanh(c);
        }
    }
    /* Of its gradient: of_state that of the state, and of_cell that of the cell, which becomes that of the cell before. given: of the state too, or 0. */
    TJ_CLONES static void tj_cell_back(const float* TJ_ONLY sums, const float* TJ_ONLY before, const float* TJ_ONLY cell, const float* TJ_ONLY given,
                                            float* TJ_ONLY of_state, float* TJ_ONLY of_cell, float* TJ_ONLY of_sums, int64_t width) {
        int64_t j;
        if (given) { for (j = 0; j < width; j++) { of_state[j] += given[j]; } }
        for (j = 0; j < width; j++) {
            float i = tj_logistic(sums[j]), f = tj_logistic(sums[width + j]), g = tj_tanh(sums[2 * width + j]), o = tj_logistic(sums[3 * width + j]);
            float squashed = tj_tanh(cell[j]), h = of_state[j], c = of_cell[j] + h * (o * (1 - squashed * squashed));
            of_sums[j] = c * (i * (1 - i) * g);
            of_sums[width + j] = c * (f * (1 - f) * before[j]);
            of_sums[2 * width + j] = c * (i * (1 - g * g));
            of_sums[3 * width + j] = h * (o * (1 - o) * squashed);
            of_cell[j] = c * f;
        }
    }
    /* How many sequences a part has, but of so many parts at most; and how much work is worth to be shared. */
    enum { TJ_SEQUENCES = 8, TJ_MOST_PARTS = 8, TJ_LONG = 1 << 19 };
    /* An LSTM's steps, or their gradient. Sequences do not know of each other, so each of `parts` is some of them at all times. strips: of the matrix that
       all steps multiply by.
       given: sums of the inputs (times, batch, 4 width), weights (4 width, width), the first state and cell (batch, width); made: states and the last
       one, the last cell, sums, cells.
       Or given: sums, cells, weights, the first cell, gradients of the last state and cell, and of all states or nothing; made: gradients of the first
       state and cell, and of the sums. */
    typedef struct {
        const tj_call* call;
        float *const *given, *const *made;
        const tj_tiles* by;
        float* strips;
        int64_t count, times, batch, width, reverse, parts;
    } tj_recurrence;

    /* Room for the strips of some rows, which are read where they lie unless they are whole pages apart; else 0. */
    static float* tj_room_for_rows(const tj_recurrence* p, int64_t terms) {
        float* room = terms * 4 % TJ_PAGE ? 0 : (float*)malloc((size_t)(p->by->room * terms * 4));
        if (!room && terms * 4 % TJ_PAGE == 0) { abort(); }
        return room;
    }
    /* Some rows, times the matrix of the strips, plus the `rest`, if there is one. */
    static void tj_product_of_step(const tj_recurrence* p, const float* x, const float* rest, float* out, int64_t rows, int64_t terms, int64_t columns,
                                   float* room) {
        const tj_tiles* by = p->by;
        int64_t each = tj_pieces(rows, tj_pieces(rows, by->rows)), i, j;
        for (i = 0; i < rows; i += each) {
            int64_t high = rows - i < each ? rows - i : each;
            const float* from = room ? room : x + i * terms;
            if (room) { by->strip(room, x + i * terms, terms, high, by->room, terms); }
            for (j = 0; j < columns; j += by->columns) {
                int64_t wide = columns - j < by->columns ? columns - j : by->columns, at = i * columns + j;
                by->tile(terms, from, room ? 1 : terms, room ? by->room : 1, p->strips + j * terms, by->columns, 0, rest ? rest + at : 0, columns,
                         out + at, columns, 0, high, wide);
            }
        }
    }
    static void tj_recur_part(const void* recurrence, int64_t part, tj_hand* hand) {
        const tj_recurrence* p = (const tj_recurrence*)recurrence;
        int64_t each = tj_pieces(p->batch, p->parts), first = part * each, rows = p->batch - first < each ? p->batch - first : each, width = p->width, t, i;
        int64_t size = p->batch * width, skipped = first * width;
        float *const *given = p->given, *const *made = p->made;
        const float *state = given[2] + skipped, *cell = given[3] + skipped;
        float* room;
        if (rows <= 0) { return; }
        room = tj_room_for_rows(p, width);
        for (t = 0; t < p->times; t++) {
            int64_t at = (p->reverse ? p->times - 1 - t : t) * size + skipped;
            float* sums = made[3] + 4 * at;
            tj_product_of_step(p, state, given[0] + 4 * at, sums, rows, width, 4 * width, room);
            for (i = 0; i < rows * width; i += width) { tj_cell(sums + 4 * i, cell + i, made[4] + at + i, made[0] + at + i, width); }
            state = made[0] + at;
            cell = made[4] + at;
        }
        free(room);
        memcpy(made[1] + skipped, state, (size_t)(4 * rows * width));
        memcpy(made[2] + skipped, cell, (size_t)(4 * rows * width));
    }
    static void tj_recur_back_part(const void* recurrence, int64_t part, tj_hand* hand) {
        const tj_recurrence* p = (const tj_recurrence*)recurrence;
        int64_t each = tj_pieces(p->batch, p->parts), first = part * each, rows = p->batch - first < each ? p->batch - first : each, width = p->width, t, i;
        int64_t size = p->batch * width, skipped = first * width;
        float *const *given = p->given, *of_state = p->made[0] + skipped, *of_cell = p->made[1] + skipped, *room;
        if (rows <= 0) { return; }
        room = tj_room_for_rows(p, 4 * width);
        memcpy(of_state, given[4] + skipped, (size_t)(4 * rows * width));
        memcpy(of_cell, given[5] + skipped, (size_t)(4 * rows * width));
        for (t = p->times - 1; t >= 0; t--) {
            int64_t at = (p->reverse ? p->times - 1 - t : t) * size + skipped;
            const float* before = t ? given[1] + (p->reverse ? at + size : at - size) : given[3] + skipped;
            float* of_sums = p->made[2] + 4 * at;
            for (i = 0; i < rows * width; i += width) {
                tj_cell_back(given[0] + 4 * (at + i), before + i, given[1] + at + i, p->count > 6 ? given[6] + at + i : 0, of_state + i, of_cell + i,
                             of_sums + 4 * i, width);
            }
            tj_product_of_step(p, of_sums, 0, of_state, rows, 4 * width, width, room);
        }
        free(room);
    }
    /* how: times, batch, width, and whether the last time comes first. */
    static void tj_recur(const tj_call* call, float* const* given, int64_t count, float* const* made, int64_t results, const int64_t* how) {
        tj_recurrence p = {call, given, made, tj_tiles_of(tj_vector_bits(), 0), 0, count, how[0], how[1], how[2], how[3], 1};
        int64_t width = how[2], terms = results == 3 ? 4 * width : width, columns = results == 3 ? width : 4 * width, wide = p.by->columns, j;
        float* room = (float*)malloc((size_t)(tj_pieces(columns, wide) * wide * terms * 4 + TJ_LINE));
        if (!room) { abort(); }
        p.strips = (float*)(((uintptr_t)room + TJ_LINE - 1) / TJ_LINE * TJ_LINE);
        if (p.times * p.batch * width * width >= TJ_LONG) {
            p.parts = tj_pieces(p.batch, TJ_SEQUENCES);
            if (p.parts > TJ_MOST_PARTS) { p.parts = TJ_MOST_PARTS; }
        }
        if (results == 3) {
            p.by->strips(p.strips, given[2], width, columns, wide, wide, wide * terms, terms);
            tj_do(call, tj_recur_back_part, &p, p.parts, 0);
        } else {
            for (j = 0; j < columns; j += wide) {
                p.by->strip(p.strips + j * terms, given[1] + j * width, width, columns - j < wide ? columns - j : wide, wide, terms);
            }
            tj_do(call, tj_recur_part, &p, p.parts, 0);
        }
        free(room);
    }
    enum { TJ_MOST_GIVEN = 8 };
    static int tj_recurring_minor;
    static void* tj_recur_for_xla(tj_call* call) {
        float *given[TJ_MOST_GIVEN], *made[TJ_MOST_GIVEN];
        const int64_t* how;
        int64_t i;
        if (tj_is_asked(call, tj_recurring_minor)) { return 0; }
        how = (const int64_t*)((const tj_numbers*)call->attributes.items[0])->values;
        for (i = 0; i < call->operands.count; i++) { given[i] = (float*)((const tj_buffer*)call->operands.items[i])->data; }
        for (i = 0; i < call->results.count; i++) { made[i] = (float*)((const tj_buffer*)call->results.items[i])->data; }
        tj_recur(call, given, call->operands.count, made, call->results.count, how);
        return 0;
    }
    static void* tj_recurrer(int minor) {
        tj_recurring_minor = minor;
        return tj_tiles_of(tj_vector_bits(), 0) ? (void*)&tj_recur_for_xla : 0;
    }
    /* For the interpreter, which lets go of Python's lock meanwhile. */
    static void tj_recur_here(float* const* given, int64_t count, float* const* made, int64_t results, const int64_t* how) {
        Py_BEGIN_ALLOW_THREADS
        tj_recur(0, given, count, made, results, how);
        Py_END_ALLOW_THREADS
    }
    """
    enum: TJ_MOST_GIVEN
    void* tj_recurrer(int minor) noexcept
    void tj_recur_here(float** given, int64_t count, float** made, int64_t results, int64_t* how) noexcept


cdef inline object handler(int minor):
    cdef void* found = tj_recurrer(minor)
    return None if found == NULL else PyCapsule_New(found, NULL, NULL)


cdef inline bint recur(object given, object made, object how) except *:
    cdef Buffers arrays
    cdef float* pointers[2 * TJ_MOST_GIVEN + 1]
    cdef int i, count = len(given)
    arrays.held = 0
    try:
        hold(&arrays, (*given, *made, how), count)
        for i in range(arrays.held):
            pointers[i] = <float*>arrays.views[i].buf
        tj_recur_here(pointers, count, pointers + count, len(made), <int64_t*>pointers[arrays.held - 1])
        return True
    finally:
        let_go(&arrays)
