/* Where the elements of an array lie in memory, and those of a part of it, one behind the other. */
#ifndef TJ_GATHERING
#define TJ_GATHERING
/* Dimensions that follow one another in memory as one: how many there are then, -1 where one has nothing. */
static int tj_together(int ndim, const Py_ssize_t* shape, const Py_ssize_t* strides, Py_ssize_t* count, Py_ssize_t* stride) {
    int n = 0, d;
    for (d = 0; d < ndim; d++) {
        if (shape[d] == 0) { return -1; }
        if (shape[d] == 1) { continue; }
        if (n && stride[n - 1] == strides[d] * shape[d]) { count[n - 1] *= shape[d]; stride[n - 1] = strides[d]; continue; }
        count[n] = shape[d];
        stride[n++] = strides[d];
    }
    return n;
}
/* An array as `where`: runs of so many elements, each so many bytes behind the one before; so many runs, likewise; and how far what follows those is.
   Whether it is worth to be read so: of what is large elements that are far from each other, and short runs, are better copied. */
enum { TJ_FEW_SLICED = 4096, TJ_NEAR_ENOUGH = 64, TJ_LONG_ENOUGH = 16, TJ_SLICED_DIMENSIONS = 64 };
static int tj_slices(int ndim, const Py_ssize_t* shape, const Py_ssize_t* strides, Py_ssize_t elements, Py_ssize_t* where) {
    Py_ssize_t count[TJ_SLICED_DIMENSIONS], stride[TJ_SLICED_DIMENSIONS], near;
    int n;
    if (ndim > TJ_SLICED_DIMENSIONS) { return 0; }
    n = tj_together(ndim, shape, strides, count, stride);
    if (n < 1 || n > 3) { return 0; }
    where[0] = count[n - 1];
    where[1] = stride[n - 1];
    where[2] = n > 1 ? count[n - 2] : 1;
    where[3] = n > 1 ? stride[n - 2] : 0;
    where[4] = n > 2 ? stride[0] : 0;
    near = where[1] < 0 ? -where[1] : where[1];
    return elements <= TJ_FEW_SLICED || n == 1 || (near <= TJ_NEAR_ENOUGH && where[0] >= TJ_LONG_ENOUGH);
}
#define TJ_GATHER(bytes, type)                                                                                                \
    static void tj_gather##bytes(const char* from, const Py_ssize_t* where, Py_ssize_t begin, type* TJ_ONLY to, Py_ssize_t n) { \
        Py_ssize_t column = begin % where[0], row = begin / where[0] % where[2], run, i;                                      \
        const Py_ssize_t step = where[1];                                                                                     \
        from += begin / where[0] / where[2] * where[4];                                                                       \
        for (; n > 0; n -= run, to += run) {                                                                                  \
            const char* first = from + row * where[3] + column * step;                                                        \
            run = where[0] - column < n ? where[0] - column : n;                                                              \
            if (step == bytes && run >= 8) { memcpy(to, first, run * bytes); }                                                \
            else if (step == 2 * bytes) { for (i = 0; i < run; i++) { to[i] = ((const type*)first)[2 * i]; } }                 \
            else { for (i = 0; i < run; i++) { to[i] = *(const type*)(first + i * step); } }                                  \
            column = 0;                                                                                                       \
            if (++row == where[2]) {                                                                                          \
                row = 0;                                                                                                      \
                from += where[4];                                                                                             \
            }                                                                                                                 \
        }                                                                                                                     \
    }
TJ_GATHER(1, uint8_t)
TJ_GATHER(2, uint16_t)
TJ_GATHER(4, uint32_t)
TJ_GATHER(8, uint64_t)
#undef TJ_GATHER
static void tj_gather(Py_ssize_t bytes, const char* from, const Py_ssize_t* where, Py_ssize_t begin, char* to, Py_ssize_t n) {
    switch (bytes) {
        case 1: tj_gather1(from, where, begin, (uint8_t*)to, n); break;
        case 2: tj_gather2(from, where, begin, (uint16_t*)to, n); break;
        case 4: tj_gather4(from, where, begin, (uint32_t*)to, n); break;
        default: tj_gather8(from, where, begin, (uint64_t*)to, n);
    }
}
#endif
