/* Parts of memory, by strides in bytes, that are changed in place, or set, by others of their shape, or by one number: strides of 0. Each element is
   rounded once, as NumPy rounds it; integers wrap. */
#ifndef TJ_CHANGED_PARTS
#define TJ_CHANGED_PARTS
#include <stdint.h>
enum { TJ_PART_ADD, TJ_PART_SUB, TJ_PART_MUL, TJ_PART_DIV, TJ_PART_SET, TJ_PART_DIMS = 8 };
#define TJ_PART_LOOP(real, expression)                                                                     \
    if (by == sizeof(real) && of == sizeof(real)) {                                                        \
        real* x = (real*)to;                                                                               \
        const real* y = (const real*)from;                                                                 \
        for (i = 0; i < n; i++) {                                                                          \
            const real a = x[i], b = y[i];                                                                 \
            x[i] = expression;                                                                             \
        }                                                                                                  \
    } else {                                                                                               \
        for (i = 0; i < n; i++, to += by, from += of) {                                                    \
            const real a = *(real*)to, b = *(const real*)from;                                             \
            *(real*)to = expression;                                                                       \
        }                                                                                                  \
    }                                                                                                      \
    break
#define TJ_PART_LINE(name, real, quotient)                                                                                  \
    static void name(int change, char* to, const char* from, int64_t n, int64_t by, int64_t of) {                           \
        int64_t i;                                                                                                          \
        switch (change) {                                                                                                   \
            case TJ_PART_ADD: TJ_PART_LOOP(real, a + b);                                                                    \
            case TJ_PART_SUB: TJ_PART_LOOP(real, a - b);                                                                    \
            case TJ_PART_MUL: TJ_PART_LOOP(real, a * b);                                                                    \
            case TJ_PART_DIV: TJ_PART_LOOP(real, quotient);                                                                 \
            default: TJ_PART_LOOP(real, ((void)a, b));                                                                      \
        }                                                                                                                   \
    }
TJ_PART_LINE(tj_part_single, float, a / b)
TJ_PART_LINE(tj_part_double, double, a / b)
TJ_PART_LINE(tj_part_int, uint32_t, a)
TJ_PART_LINE(tj_part_long, uint64_t, a)
TJ_PART_LINE(tj_part_byte, uint8_t, a)
TJ_PART_LINE(tj_part_half, uint16_t, a)

typedef void (*tj_part_line)(int, char*, const char*, int64_t, int64_t, int64_t);
/* What changes elements of a dtype, as NumPy has it, of so many bytes; 0 where nothing does. */
static tj_part_line tj_part_of(int change, char letter, int64_t size) {
    if (change == TJ_PART_SET) { return size == 1 ? tj_part_byte : size == 2 ? tj_part_half : size == 4 ? tj_part_int : size == 8 ? tj_part_long : 0; }
    if (letter == 'f' || letter == 'd') { return letter == 'f' ? tj_part_single : tj_part_double; }
    return change == TJ_PART_DIV ? 0 : letter == 'i' ? tj_part_int : letter == 'l' && size == 8 ? tj_part_long : 0;
}
static int tj_change_part(int change, char letter, char* to, const char* from, int ndim, int64_t size, const int64_t* shape, const int64_t* by,
                          const int64_t* of) {
    tj_part_line line = tj_part_of(change, letter, size);
    int64_t at[TJ_PART_DIMS] = {0};
    int inner = ndim - 1, d;
    if (!line || ndim > TJ_PART_DIMS) { return 0; }
    for (d = 0; d < ndim; d++) {
        if (!shape[d]) { return 1; }
        if (shape[d] > 4 * shape[inner]) { inner = d; } /* a loop over few elements takes as long to begin */
    }
    if (!ndim) {
        line(change, to, from, 1, 0, 0);
        return 1;
    }
    for (;;) {
        line(change, to, from, shape[inner], by[inner], of[inner]);
        for (d = ndim - 1; d >= 0; d--) {
            if (d == inner) { continue; }
            to += by[d];
            from += of[d];
            if (++at[d] < shape[d]) { break; }
            to -= by[d] * shape[d];
            from -= of[d] * shape[d];
            at[d] = 0;
        }
        if (d < 0) { return 1; }
    }
}
#endif
