from cpython.pycapsule cimport PyCapsule_New

from torchgrad_jax.runtime.native cimport sharing
from torchgrad_jax.runtime.native.buffers cimport Buffers, hold, let_go

# Loops over arrays (outer, n, inner), float32 or float64: scans along the dimension n (`scans.h`); what is read and written at places, and the element at a
# place of the order (`along.h`); groups of n channels (`groups.h`); paths of n samples (`spelling.h`). Which it is has a number (`baseline/loops.py`).
cdef extern from *:
    """
    #include "torchgrad_jax/runtime/native/functions.h"
    enum { TJ_SUMS_SO_FAR, TJ_PRODUCTS_SO_FAR, TJ_PRODUCT_GRADS, TJ_LOG_SUMS, TJ_LOG_SUM_GRADS, TJ_LARGEST_SO_FAR, TJ_SMALLEST_SO_FAR, TJ_PICK, TJ_PUT, TJ_SELECT,
           TJ_FIRST_LARGEST, TJ_FIRST_SMALLEST, TJ_GROUP, TJ_GROUP_GRAD, TJ_SPELL, TJ_SPELL_GRAD };
    enum { TJ_PUT_LAST, TJ_PUT_SUM, TJ_PUT_MOST, TJ_PUT_LEAST };
    enum { TJ_AT_PLACE, TJ_MEDIAN, TJ_MEDIAN_OF_NUMBERS };
    /* TJ_OWN: where in `how` that begins which one loop alone is told. */
    enum { TJ_OWN = 5, TJ_SIDE_BY_SIDE = 64, TJ_AT_ONCE = 32, TJ_OF_LOOPS = 1 << 12, TJ_LOOPS_ALONE = 1 << 13, TJ_MOST_ARRAYS = 16, TJ_FIRSTS = 16 };
    /* The operands, and behind these the results. how: which loop, the size of an element, outer, n, inner. */
    typedef struct {
        void* const* arrays;
        const int64_t* how;
        int64_t of, outer, n, inner, together;
    } tj_looping;
    /* What a thread works in, which it keeps from one unit to the next. Without memory there is no result. */
    static void* tj_room(tj_hand* hand, size_t size) {
        if (!hand->kept) { hand->kept = malloc(size); }
        if (!hand->kept) { abort(); }
        return hand->kept;
    }
    #define TJ_REAL float
    #define TJ_KEY int32_t
    #define TJ_MOST_KEY INT32_MAX
    #define TJ_QUICK_EXP tj_exp
    #define TJ_LOG tj_log
    #define TJ_NAMED(name) name##_one
    #include "torchgrad_jax/runtime/native/scans.h"
    #include "torchgrad_jax/runtime/native/along.h"
    #include "torchgrad_jax/runtime/native/groups.h"
    #include "torchgrad_jax/runtime/native/spelling.h"
    #undef TJ_REAL
    #undef TJ_KEY
    #undef TJ_MOST_KEY
    #undef TJ_QUICK_EXP
    #undef TJ_LOG
    #undef TJ_NAMED
    #define TJ_REAL double
    #define TJ_KEY int64_t
    #define TJ_MOST_KEY INT64_MAX
    #define TJ_QUICK_EXP exp
    #define TJ_LOG log
    #define TJ_NAMED(name) name##_two
    #include "torchgrad_jax/runtime/native/scans.h"
    #include "torchgrad_jax/runtime/native/along.h"
    #include "torchgrad_jax/runtime/native/groups.h"
    #include "torchgrad_jax/runtime/native/spelling.h"
    #undef TJ_REAL
    #undef TJ_KEY
    #undef TJ_MOST_KEY
    #undef TJ_QUICK_EXP
    #undef TJ_LOG
    #undef TJ_NAMED

    #define TJ_OF_TYPE(l, name) ((l)->how[1] == 4 ? name##_one : name##_two)
    static void tj_looping_unit(const tj_looping* l, int64_t unit, tj_hand* hand) {
        int64_t blocks = tj_pieces(l->inner, TJ_SIDE_BY_SIDE), outer = unit / blocks, first = unit % blocks * TJ_SIDE_BY_SIDE, rest = l->inner - first;
        int64_t count = rest < TJ_SIDE_BY_SIDE ? rest : TJ_SIDE_BY_SIDE;
        switch (l->of) {
            case TJ_PICK: case TJ_PUT: case TJ_SELECT: TJ_OF_TYPE(l, tj_at_places_of)(l, outer, first, l->inner, count, hand); break;
            case TJ_FIRST_LARGEST: case TJ_FIRST_SMALLEST: TJ_OF_TYPE(l, tj_first_places)(l, outer, first, count); break;
            case TJ_GROUP: TJ_OF_TYPE(l, tj_group)(l, unit); break;
            case TJ_GROUP_GRAD: TJ_OF_TYPE(l, tj_group_grad)(l, unit); break;
            case TJ_SPELL: TJ_OF_TYPE(l, tj_spell)(l, unit, hand); break;
            case TJ_SPELL_GRAD: TJ_OF_TYPE(l, tj_spell_grad)(l, unit, hand); break;
            default: TJ_OF_TYPE(l, tj_scan_columns)(l, outer * l->n * l->inner + first, l->n, l->inner, count);
        }
    }
    /* What one thread does at once, of which there are `units`: some columns, a group, a sample. And how much work that is, in elements. */
    static int64_t tj_units(const int64_t* how) {
        return how[0] >= TJ_SPELL ? how[3] : how[0] >= TJ_GROUP ? how[2] : how[2] * tj_pieces(how[4], TJ_SIDE_BY_SIDE);
    }
    static int64_t tj_unit(const int64_t* how) {
        int64_t many = how[0] == TJ_PICK || how[0] == TJ_PUT ? how[TJ_OWN] : 0, length = how[3] > many ? how[3] : many;
        if (how[0] >= TJ_SPELL) { return 8 * how[2] * (2 * how[TJ_OWN] + 1); }
        return length * (how[0] >= TJ_GROUP || how[4] < TJ_SIDE_BY_SIDE ? how[4] : TJ_SIDE_BY_SIDE);
    }
    static int tj_is_small(const int64_t* how) { return tj_units(how) * tj_unit(how) < TJ_LOOPS_ALONE; }
    /* Rows, one after another by one call, as many as are a piece; whether they go so. */
    static int tj_looping_rows(const tj_looping* l, int64_t at, int64_t end, tj_hand* hand) {
        if (l->inner != 1 || l->of >= TJ_GROUP) { return 0; }
        switch (l->of) {
            case TJ_FIRST_LARGEST: case TJ_FIRST_SMALLEST: TJ_OF_TYPE(l, tj_first_places)(l, at, 0, end - at); break;
            case TJ_PICK: case TJ_PUT: case TJ_SELECT: TJ_OF_TYPE(l, tj_rows_at_places)(l, at, end, hand); break;
            default: TJ_OF_TYPE(l, tj_scan_rows)(l, at, end);
        }
        return 1;
    }
    static void tj_looping_piece(const void* work, int64_t piece, tj_hand* hand) {
        const tj_looping* l = (const tj_looping*)work;
        int64_t units = tj_units(l->how), at = piece * l->together, end = at + l->together < units ? at + l->together : units;
        if (tj_looping_rows(l, at, end, hand)) { return; }
        for (; at < end; at++) { tj_looping_unit(l, at, hand); }
    }
    static void tj_loop(const tj_call* call, void* const* arrays, const int64_t* how) {
        tj_looping l = {arrays, how, how[0], how[2], how[3], how[4], tj_pieces(TJ_OF_LOOPS, tj_unit(how))};
        tj_do(call, tj_looping_piece, &l, tj_pieces(tj_units(how), l.together), tj_is_small(how));
    }
    static int tj_looping_minor;
    static void* tj_loop_for_xla(tj_call* call) {
        void* arrays[TJ_MOST_ARRAYS];
        int64_t i, given = call->operands.count;
        if (tj_is_asked(call, tj_looping_minor)) { return 0; }
        for (i = 0; i < given; i++) { arrays[i] = ((const tj_buffer*)call->operands.items[i])->data; }
        for (i = 0; i < call->results.count; i++) { arrays[given + i] = ((const tj_buffer*)call->results.items[i])->data; }
        tj_loop(call, arrays, (const int64_t*)((const tj_numbers*)call->attributes.items[0])->values);
        return 0;
    }
    static void* tj_looper(int minor) {
        tj_looping_minor = minor;
        return (void*)&tj_loop_for_xla;
    }
    /* For the interpreter, which lets go of Python's lock meanwhile where that is longer. */
    static void tj_loop_here(const Py_buffer* views, int count) {
        void* arrays[TJ_MOST_ARRAYS];
        const int64_t* how = (const int64_t*)views[count].buf;
        int i;
        for (i = 0; i < count; i++) { arrays[i] = views[i].buf; }
        if (tj_is_small(how)) {
            tj_loop(0, arrays, how);
            return;
        }
        Py_BEGIN_ALLOW_THREADS
        tj_loop(0, arrays, how);
        Py_END_ALLOW_THREADS
    }
    """
    void* tj_looper(int minor) noexcept
    void tj_loop_here(Py_buffer* views, int count) noexcept


cdef inline object handler(int minor):
    return PyCapsule_New(tj_looper(minor), NULL, NULL)


cdef inline bint loop(object given, object made, object how) except *:
    cdef Buffers arrays
    arrays.held = 0
    try:
        hold(&arrays, (*given, *made, how), len(given))
        tj_loop_here(&arrays.views[0], len(given) + len(made))
        return True
    finally:
        let_go(&arrays)
