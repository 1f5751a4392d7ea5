from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_IsContiguous, PyBuffer_Release
from libc.stdint cimport int64_t, uint64_t

from torchgrad_jax.runtime.native cimport arrays, sharing

# What the function does is in `ordering.py`. An element becomes an integer that is ordered as it is; what is asked for are those with the least ones.
# Few are kept in their order while the others pass by; else some are merged, runs of twice the length at a time, and many are put into buckets, by
# one byte of their integers after the other.
cdef extern from *:
    """
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    enum { TJ_FEW_PLACES = 64, TJ_SHORT = 16, TJ_MOST_MERGED = 96, TJ_ORDERED = 1 << 14, TJ_ORDERED_ALONE = 1 << 16, TJ_SOUGHT = 1 << 11 };
    /* Keys: integers that are ordered as the elements are, NaN being the largest, and both zeros one. */
    #define TJ_KEY_OF_INTEGER(x, bits, most) (bits)
    #define TJ_KEY_OF_FLOAT(x, bits, most) ((x) != (x) ? INT64_MAX : (x) == 0 ? 0 : (bits) < 0 ? (bits) ^ (most) : (bits))
    #define TJ_ORDERS(letter, type, integer, key_of, most)                                                                    \\
    static inline int64_t tj_key_##letter(const type* x) {                                                                    \\
        integer bits;                                                                                                         \\
        memcpy(&bits, x, sizeof bits);                                                                                        \\
        return (int64_t)(key_of(*x, bits, most));                                                                             \\
    }                                                                                                                         \\
    static void tj_keys_##letter(const void* row, int64_t n, int64_t turned, int64_t* keys) {                                 \\
        const type* x = (const type*)row;                                                                                     \\
        int64_t i;                                                                                                            \\
        for (i = 0; i < n; i++) { keys[i] = tj_key_##letter(x + i) ^ turned; }                                                \\
    }                                                                                                                         \\
    /* Of short rows all, each put before those that are larger. */                                                           \\
    static void tj_short_##letter(const void* row, int64_t n, int64_t turned, int64_t* keys, int64_t* places) {               \\
        const type* x = (const type*)row;                                                                                     \\
        int64_t i, j;                                                                                                         \\
        for (i = 0; i < n; i++) {                                                                                             \\
            int64_t key = tj_key_##letter(x + i) ^ turned;                                                                    \\
            for (j = i; j > 0 && keys[j - 1] > key; j--) { keys[j] = keys[j - 1], places[j] = places[j - 1]; }                \\
            keys[j] = key, places[j] = i;                                                                                     \\
        }                                                                                                                     \\
    }                                                                                                                         \\
    /* Most elements are told by one comparison that they are not among the k. */                                             \\
    static void tj_few_##letter(const void* row, int64_t n, int64_t k, int64_t turned, int64_t* places) {                     \\
        const type* x = (const type*)row;                                                                                     \\
        int64_t least[TJ_FEW_PLACES], i, j, held = 0;                                                                         \\
        type limit = x[0];                                                                                                    \\
        for (i = 0; i < n; i++) {                                                                                             \\
            int64_t key;                                                                                                      \\
            if (held == k && (turned ? x[i] <= limit : x[i] >= limit)) { continue; }                                          \\
            key = tj_key_##letter(x + i) ^ turned;                                                                            \\
            if (held == k) {                                                                                                  \\
                if (key >= least[k - 1]) { continue; }                                                                        \\
                held--;                                                                                                       \\
            }                                                                                                                 \\
            for (j = held++; j > 0 && least[j - 1] > key; j--) {                                                              \\
                least[j] = least[j - 1];                                                                                      \\
                places[j] = places[j - 1];                                                                                    \\
            }                                                                                                                 \\
            least[j] = key;                                                                                                   \\
            places[j] = i;                                                                                                    \\
            limit = x[places[held - 1]];                                                                                      \\
        }                                                                                                                     \\
    }                                                                                                                         \\
    static void tj_search_##letter(const void* row, int64_t n, const void* sought, int64_t count, int right, int64_t* places) {\\
        const type *x = (const type*)row, *values = (const type*)sought;                                                      \\
        int64_t i;                                                                                                            \\
        for (i = 0; i < count; i++) {                                                                                         \\
            type value = values[i];                                                                                           \\
            int64_t start = 0, end = n;                                                                                       \\
            while (start < end) {                                                                                             \\
                int64_t middle = start + (end - start) / 2;                                                                   \\
                int before = right ? x[middle] > value : x[middle] >= value;                                                  \\
                end = before ? middle : end;                                                                                  \\
                start = before ? start : middle + 1;                                                                          \\
            }                                                                                                                 \\
            places[i] = start;                                                                                                \\
        }                                                                                                                     \\
    }
    TJ_ORDERS(f, float, int32_t, TJ_KEY_OF_FLOAT, INT32_MAX)
    TJ_ORDERS(d, double, int64_t, TJ_KEY_OF_FLOAT, INT64_MAX)
    TJ_ORDERS(i, int32_t, int32_t, TJ_KEY_OF_INTEGER, 0)
    TJ_ORDERS(l, int64_t, int64_t, TJ_KEY_OF_INTEGER, 0)
    #define TJ_OF_KIND(kind, name) ((kind) == 'f' ? name##f : (kind) == 'd' ? name##d : (kind) == 'i' ? name##i : name##l)
    static void tj_merge_all(const int64_t* keys, int64_t n, int64_t* places, int64_t* others) {
        int64_t length, i, *from = places, *to = others, *swapped;
        for (i = 0; i < n; i++) { places[i] = i; }
        for (length = 1; length < n; length *= 2) {
            for (i = 0; i < n; i += 2 * length) {
                int64_t a = i, middle = i + length < n ? i + length : n, b = middle, end = middle + length < n ? middle + length : n, at = i;
                while (a < middle && b < end) { to[at++] = keys[from[b]] < keys[from[a]] ? from[b++] : from[a++]; }
                while (a < middle) { to[at++] = from[a++]; }
                while (b < end) { to[at++] = from[b++]; }
            }
            swapped = from;
            from = to;
            to = swapped;
        }
        if (from != places) { memcpy(places, from, n * sizeof *places); }
    }
    /* Of 32 bits a key and its place are one integer, of 64 bits two. (A NaN's key is larger than an integer of 32 bits.) */
    typedef struct { uint64_t key; int64_t place; } tj_placed;
    #define TJ_SHORTER(key) ((uint32_t)((key) > INT32_MAX ? INT32_MAX : (key)))
    #define TJ_BUCKETS(name, type, digit, first, count)                                                                       \
    static type* tj_buckets_##name(type* from, type* to, int64_t n) {                                                         \
        int64_t counts[count][256], i;                                                                                        \
        int b;                                                                                                                \
        memset(counts, 0, sizeof counts);                                                                                     \
        for (i = 0; i < n; i++) {                                                                                             \
            uint64_t key = digit(from[i]) >> first;                                                                           \
            for (b = 0; b < count; b++) { counts[b][key >> 8 * b & 255]++; }                                                  \
        }                                                                                                                     \
        for (b = 0; b < count; b++) {                                                                                         \
            int64_t *at = counts[b], sum = 0;                                                                                 \
            type* swapped = from;                                                                                             \
            int j, shift = first + 8 * b;                                                                                     \
            if (at[digit(from[0]) >> shift & 255] == n) { continue; } /* all have it */                                       \
            for (j = 0; j < 256; j++) { int64_t here = at[j]; at[j] = sum, sum += here; }                                    \
            for (i = 0; i < n; i++) { type x = from[i]; to[at[digit(x) >> shift & 255]++] = x; }                              \
            from = to, to = swapped;                                                                                          \
        }                                                                                                                     \
        return from;                                                                                                          \
    }                                                                                                                         \
    /* Keep of n those among which the k least are, told by 12 bits: how many. */                                             \
    static int64_t tj_least_##name(type* x, int64_t n, int64_t k) {                                                           \
        int64_t counts[4096], kept = 0, i;                                                                                    \
        uint64_t last = 0;                                                                                                    \
        memset(counts, 0, sizeof counts);                                                                                     \
        for (i = 0; i < n; i++) { counts[digit(x[i]) >> 52]++; }                                                              \
        while ((k -= counts[last]) > 0) { last++; }                                                                           \
        for (i = 0; i < n; i++) {                                                                                             \
            x[kept] = x[i];                                                                                                   \
            kept += digit(x[i]) >> 52 <= last;                                                                                \
        }                                                                                                                     \
        return kept;                                                                                                          \
    }
    #define TJ_ITSELF(x) (x)
    #define TJ_KEY(x) ((x).key)
    TJ_BUCKETS(single, uint64_t, TJ_ITSELF, 32, 4)
    TJ_BUCKETS(double, tj_placed, TJ_KEY, 0, 8)
    #define TJ_PLACES_OF(letter, type)                                                                                        \
    static void tj_many_##letter(const void* row, int64_t n, int64_t k, int64_t turned, void* room, int64_t* places) {        \
        const type* x = (const type*)row;                                                                                     \
        int64_t i;                                                                                                            \
        if (sizeof(type) == 4) {                                                                                              \
            uint64_t *made = (uint64_t*)room, *sorted;                                                                        \
            uint32_t turned32 = (uint32_t)turned;                                                                             \
            for (i = 0; i < n; i++) {                                                                                         \
                int64_t key = tj_key_##letter(x + i);                                                                         \
                made[i] = (uint64_t)(TJ_SHORTER(key) ^ turned32 ^ 0x80000000u) << 32 | (uint64_t)i;                           \
            }                                                                                                                 \
            sorted = tj_buckets_single(made, made + n, 4 * k < n ? tj_least_single(made, n, k) : n);                          \
            for (i = 0; i < k; i++) { places[i] = (int64_t)(sorted[i] & 0xFFFFFFFFu); }                                       \
        } else {                                                                                                              \
            tj_placed *made = (tj_placed*)room, *sorted;                                                                      \
            for (i = 0; i < n; i++) {                                                                                         \
                made[i].key = (uint64_t)(tj_key_##letter(x + i) ^ turned) ^ 0x8000000000000000u, made[i].place = i;           \
            }                                                                                                                 \
            sorted = tj_buckets_double(made, made + n, 4 * k < n ? tj_least_double(made, n, k) : n);                          \
            for (i = 0; i < k; i++) { places[i] = sorted[i].place; }                                                          \
        }                                                                                                                     \
    }
    TJ_PLACES_OF(f, float)
    TJ_PLACES_OF(d, double)
    TJ_PLACES_OF(i, int32_t)
    TJ_PLACES_OF(l, int64_t)
    typedef struct { const char* x; char* values; int64_t* places; int64_t rows, n, k, turned, together; int size, failed; char kind; } tj_ordering;
    static void tj_order_piece(const void* work, int64_t piece, tj_hand* hand) {
        tj_ordering* o = (tj_ordering*)work;
        int64_t row = piece * o->together, end = row + o->together < o->rows ? row + o->together : o->rows, j, n = o->n, k = o->k;
        int few = (k <= TJ_FEW_PLACES && k < n) || n <= TJ_SHORT;
        int64_t* room = few ? 0 : (int64_t*)malloc((size_t)(4 * n) * sizeof *room);
        (void)hand;
        if (!few && !room) {
            o->failed = 1;
            return;
        }
        for (; row < end; row++) {
            const char* x = o->x + row * n * o->size;
            int64_t* places = o->places + row * k;
            if (n <= TJ_SHORT) {
                int64_t keys[TJ_SHORT], all[TJ_SHORT];
                TJ_OF_KIND(o->kind, tj_short_)(x, n, o->turned, keys, all);
                memcpy(places, all, k * sizeof *places);
            } else if (few) { TJ_OF_KIND(o->kind, tj_few_)(x, n, k, o->turned, places); }
            else if (n > TJ_MOST_MERGED) { TJ_OF_KIND(o->kind, tj_many_)(x, n, k, o->turned, room, places); }
            else {
                TJ_OF_KIND(o->kind, tj_keys_)(x, n, o->turned, room);
                tj_merge_all(room, n, room + n, room + 2 * n);
                memcpy(places, room + n, k * sizeof *places);
            }
            if (o->values && o->size == 4) { for (j = 0; j < k; j++) { memcpy(o->values + (row * k + j) * 4, x + places[j] * 4, 4); } }
            else if (o->values) { for (j = 0; j < k; j++) { memcpy(o->values + (row * k + j) * 8, x + places[j] * 8, 8); } }
        }
        free(room);
    }
    /* Returns whether there was memory for it. */
    static int tj_order(const char* x, char kind, int size, int64_t rows, int64_t n, int64_t k, int largest, int64_t* places, char* values) {
        tj_ordering o = {x, values, places, rows, n, k, largest ? -1 : 0, tj_pieces(TJ_ORDERED, n), size, 0, kind};
        int64_t pieces = tj_pieces(rows, o.together);
        if (rows * n < TJ_ORDERED_ALONE) { tj_do(0, tj_order_piece, &o, pieces, 1); }
        else {
            Py_BEGIN_ALLOW_THREADS
            tj_do(0, tj_order_piece, &o, pieces, 0);
            Py_END_ALLOW_THREADS
        }
        return !o.failed;
    }
    /* `together` of the values sought in one row are a piece, of which each row has `parts`. */
    typedef struct { const char *x, *sought; int64_t* places; int64_t n, count, together, parts; int size, right; char kind; } tj_searching;
    static void tj_search_piece(const void* work, int64_t piece, tj_hand* hand) {
        const tj_searching* s = (const tj_searching*)work;
        int64_t row = piece / s->parts, first = piece % s->parts * s->together, at = row * s->count + first, rest = s->count - first;
        (void)hand;
        TJ_OF_KIND(s->kind, tj_search_)(s->x + row * s->n * s->size, s->n, s->sought + at * s->size, rest < s->together ? rest : s->together, s->right,
                                        s->places + at);
    }
    static void tj_search(const char* x, char kind, int size, int64_t rows, int64_t n, const char* sought, int64_t count, int right, int64_t* places) {
        tj_searching s = {x, sought, places, n, count, TJ_SOUGHT, tj_pieces(count, TJ_SOUGHT), size, right, kind};
        if (rows * count < TJ_SOUGHT) { tj_do(0, tj_search_piece, &s, rows * s.parts, 1); }
        else {
            Py_BEGIN_ALLOW_THREADS
            tj_do(0, tj_search_piece, &s, rows * s.parts, 0);
            Py_END_ALLOW_THREADS
        }
    }
    """
    void tj_search(
        const char* x, char kind, int size, int64_t rows, int64_t n, const char* sought, int64_t count, int right, int64_t* places
    ) noexcept
    int tj_order(const char* x, char kind, int size, int64_t rows, int64_t n, int64_t k, int largest, int64_t* places, char* values) noexcept


cdef inline bint order(object x, object places, object values, bint largest) except *:
    cdef Py_buffer given, made, read
    cdef int64_t n, k, rows
    cdef char kind
    cdef bint done = False
    arrays.view(x, &given, PyBUF_STRIDES | PyBUF_FORMAT)
    try:
        kind = given.format[0]
        if not given.ndim or not PyBuffer_IsContiguous(&given, b"C") or kind not in b"fdil" or given.format[1] != 0:
            return False
        n = given.shape[given.ndim - 1]
        if not given.len or given.itemsize != (4 if kind in b"fi" else 8):
            return False
        rows = given.len // given.itemsize // n
        arrays.view(places, &made, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        try:
            k = made.len // 8 // rows
            if made.len != 8 * k * rows or not 0 < k <= n or n >= 1 << 32:
                return False
            if values is None:
                return tj_order(<char*>given.buf, kind, <int>given.itemsize, rows, n, k, largest, <int64_t*>made.buf, NULL)
            arrays.view(values, &read, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
            if read.len == given.itemsize * k * rows:
                done = tj_order(<char*>given.buf, kind, <int>given.itemsize, rows, n, k, largest, <int64_t*>made.buf, <char*>read.buf)
            PyBuffer_Release(&read)
        finally:
            PyBuffer_Release(&made)
    finally:
        PyBuffer_Release(&given)
    return done


cdef inline bint search(object x, object sought, object places, bint right) except *:
    cdef Py_buffer given, asked, made
    cdef int64_t n, rows
    cdef char kind
    cdef bint fits
    arrays.view(x, &given, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
    try:
        kind = given.format[0]
        if not given.ndim or not given.len or kind not in b"fdil" or given.format[1] != 0 or given.itemsize != (4 if kind in b"fi" else 8):
            return False
        n = given.shape[given.ndim - 1]
        rows = given.len // given.itemsize // n
        arrays.view(sought, &asked, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        try:
            arrays.view(places, &made, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
            fits = asked.format[0] == kind and asked.format[1] == 0 and made.len // 8 == asked.len // given.itemsize
            if fits:
                tj_search(
                    <char*>given.buf, kind, <int>given.itemsize, rows, n, <char*>asked.buf, made.len // 8 // rows, right, <int64_t*>made.buf,
                )
            PyBuffer_Release(&made)
        finally:
            PyBuffer_Release(&asked)
    finally:
        PyBuffer_Release(&given)
    return fits


cdef inline bint are_within(object index, int64_t low, int64_t size) except *:
    cdef Py_buffer given
    cdef int64_t* places
    cdef int64_t i, count
    cdef bint outside = False
    arrays.view(index, &given, PyBUF_C_CONTIGUOUS)
    places = <int64_t*>given.buf
    count = given.len // 8
    for i in range(count):
        outside |= <uint64_t>places[i] - <uint64_t>low >= <uint64_t>size  # smaller ones are large then
    PyBuffer_Release(&given)
    return not outside
