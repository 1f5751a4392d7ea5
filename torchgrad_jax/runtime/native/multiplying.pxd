from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_New

from torchgrad_jax.runtime.native cimport sharing

# A product is cut into blocks of at most 64 x 64 x 64, or 32 x 32 x 256 where those are quicker, which BLAS multiplies by the thread that asks: for
# more it would wake threads of its own, which wait by spinning at the expense of others. Where the blocks are many, threads share them: see `sharing`.
cdef extern from *:
    """
    /* Where a build of BLAS takes `int`, it finds it in the lower half of the 64 bits. */
    typedef void (*tj_sgemm)(int, int, int, int64_t, int64_t, int64_t, float, const float*, int64_t, const float*, int64_t, float, float*, int64_t);
    typedef void (*tj_dgemm)(int, int, int, int64_t, int64_t, int64_t, double, const double*, int64_t, const double*, int64_t, double, double*, int64_t);
    static tj_sgemm tj_single;
    static tj_dgemm tj_double;
    static int tj_minor, tj_narrow;
    enum { TJ_F64 = 12, TJ_ROWS = 101, TJ_AS_IT_IS = 111, TJ_TURNED = 112, TJ_SIDE = 64, TJ_NARROW = 32, TJ_BLOCK = 1 << 18, TJ_ALONE = 1 << 20, TJ_ALONE_HERE = 1 << 21 };

    /* Matrices that are multiplied: number i begins at start + i / inner * leap + i % inner * step. They lie row by row, `lead` elements from one to
       the next; turned: column by column. */
    typedef struct {
        const char* start;
        int64_t lead, inner, leap, step;
        int turned;
    } tj_matrices;
    /* The products (m, n) of matrices x (m, k) and y (k, n). Blocks are `rows` x `columns` of the result and `terms` of the sums; `down` x `across` of
       them in each matrix. */
    typedef struct {
        tj_matrices x, y;
        char* out;
        int64_t batch, m, n, k, rows, columns, terms, down, across;
        int wide;
    } tj_product;

    /* Where the matrix of a number has the element of this row and column. */
    static const char* tj_at(const tj_matrices* from, int64_t number, int64_t row, int64_t column, int64_t size) {
        const char* start = from->start + number / from->inner * from->leap + number % from->inner * from->step;
        return start + (from->turned ? column * from->lead + row : row * from->lead + column) * size;
    }
    static void tj_multiply_block(const void* product, int64_t block) {
        const tj_product* p = (const tj_product*)product;
        int64_t each = p->down * p->across, matrix = block / each, i = block % each % p->down * p->rows, j = block % each / p->down * p->columns, t;
        int64_t height = p->m - i < p->rows ? p->m - i : p->rows, width = p->n - j < p->columns ? p->n - j : p->columns, size = p->wide ? 8 : 4;
        int x_lies = p->x.turned ? TJ_TURNED : TJ_AS_IT_IS, y_lies = p->y.turned ? TJ_TURNED : TJ_AS_IT_IS;
        char* out = p->out + (matrix * p->m * p->n + i * p->n + j) * size;
        for (t = 0; t < p->k; t += p->terms) {
            int64_t depth = p->k - t < p->terms ? p->k - t : p->terms;
            const char *x = tj_at(&p->x, matrix, i, t, size), *y = tj_at(&p->y, matrix, t, j, size);
            if (p->wide) {
                tj_double(TJ_ROWS, x_lies, y_lies, height, width, depth, 1.0, (const double*)x, p->x.lead, (const double*)y, p->y.lead,
                          t ? 1.0 : 0.0, (double*)out, p->n);
            } else {
                tj_single(TJ_ROWS, x_lies, y_lies, height, width, depth, 1.0f, (const float*)x, p->x.lead, (const float*)y, p->y.lead,
                          t ? 1.0f : 0.0f, (float*)out, p->n);
            }
        }
    }
    /* Cut the products into blocks and carry them out. call: XLA's; 0 if it is the interpreter that asks. */
    static void tj_carry_out(const tj_call* call, tj_product* p) {
        int narrow = tj_narrow && p->y.turned && !p->x.turned && p->m * p->n > TJ_NARROW * TJ_NARROW, side = narrow ? TJ_NARROW : TJ_SIDE;
        p->rows = p->m;
        p->columns = p->n;
        p->terms = p->k;
        if (narrow || p->m * p->n * p->k > TJ_BLOCK) {
            p->rows = tj_pieces(p->m, tj_pieces(p->m, side));
            p->columns = tj_pieces(p->n, tj_pieces(p->n, side));
            p->terms = TJ_BLOCK / (p->rows * p->columns);
            p->terms = tj_pieces(p->k, tj_pieces(p->k, p->terms));
        }
        p->down = tj_pieces(p->m, p->rows);
        p->across = tj_pieces(p->n, p->columns);
        tj_do(call, tj_multiply_block, p, p->batch * p->down * p->across, p->batch * p->m * p->n * p->k < (call ? TJ_ALONE : TJ_ALONE_HERE));
    }
    static tj_matrices tj_whole(const tj_buffer* from, int turned, int wide) {
        tj_matrices found = {(const char*)from->data, from->shape[2], 1, from->shape[1] * from->shape[2] * (wide ? 8 : 4), 0, turned};
        return found;
    }
    /* Operands: (batch, m, k), or (batch, k, m) if the first bit of `how` says so; (batch, k, n), or (batch, n, k) if the second does. */
    static void* tj_multiply(tj_call* call) {
        const tj_buffer *x, *y, *out;
        int64_t how;
        tj_product whole;
        if (tj_is_asked(call, tj_minor)) { return 0; }
        x = (const tj_buffer*)call->operands.items[0];
        y = (const tj_buffer*)call->operands.items[1];
        out = (const tj_buffer*)call->results.items[0];
        how = *(const int64_t*)((const tj_scalar*)call->attributes.items[0])->value;
        whole.wide = out->dtype == TJ_F64;
        whole.x = tj_whole(x, how & 1, whole.wide);
        whole.y = tj_whole(y, how >> 1 & 1, whole.wide);
        whole.out = (char*)out->data;
        whole.batch = out->shape[0];
        whole.m = out->shape[1];
        whole.n = out->shape[2];
        whole.k = x->shape[whole.x.turned ? 1 : 2];
        tj_carry_out(call, &whole);
        return 0;
    }
    /* What `array` is as matrices, each its transpose if `turned`: false where it is none such. */
    static int tj_are_matrices(const Py_buffer* array, int turned, tj_matrices* found) {
        const Py_ssize_t *n = array->shape + array->ndim - 2, *apart = array->strides + array->ndim - 2, size = array->itemsize;
        int along = n[1] == 1 || apart[1] == size, lying = along && (n[0] == 1 || apart[0] >= n[1] * size), levels = 0, i;
        Py_ssize_t lead = n[0] == 1 ? n[1] * size : apart[0], count[2] = {1, 1}, step[2] = {0, 0};
        if (!lying) {
            if (!((n[0] == 1 || apart[0] == size) && (n[1] == 1 || apart[1] >= n[0] * size))) { return 0; }
            lead = n[1] == 1 ? n[0] * size : apart[1];
        }
        for (i = array->ndim - 3; i >= 0; i--) {
            if (array->shape[i] == 1) { continue; }
            if (levels && array->strides[i] == step[levels - 1] * count[levels - 1]) {
                count[levels - 1] *= array->shape[i];
                continue;
            }
            if (levels == 2) { return 0; }
            count[levels] = array->shape[i];
            step[levels++] = array->strides[i];
        }
        if (lead % size || array->len == 0) { return 0; }
        found->start = (const char*)array->buf;
        found->lead = lead / size;
        found->inner = count[0];
        found->step = step[0];
        found->leap = step[1];
        found->turned = turned != !lying;
        return 1;
    }
    /* For the interpreter, which lets go of Python's lock while it takes long. The arrays are of one dtype, and so long as they have to be. */
    static int tj_multiply_here(const Py_buffer* x, const Py_buffer* y, const Py_buffer* out, int left, int right) {
        const Py_ssize_t *of_x = x->shape + x->ndim - 2, *of_out = out->shape + out->ndim - 2;
        tj_product whole;
        if (!out->len || !tj_are_matrices(x, left, &whole.x) || !tj_are_matrices(y, right, &whole.y)) { return 0; }
        whole.wide = out->itemsize == 8;
        whole.out = (char*)out->buf;
        whole.m = of_out[0];
        whole.n = of_out[1];
        whole.k = of_x[left ? 0 : 1];
        whole.batch = out->len / (of_out[0] * of_out[1] * out->itemsize);
        if (whole.batch * whole.m * whole.n * whole.k < TJ_BLOCK) {
            tj_carry_out(0, &whole);
        } else {
            Py_BEGIN_ALLOW_THREADS
            tj_carry_out(0, &whole);
            Py_END_ALLOW_THREADS
        }
        return 1;
    }
    static void tj_use(size_t one, size_t other, int narrow) {
        tj_single = (tj_sgemm)one;
        tj_double = (tj_dgemm)other;
        tj_narrow = narrow;
    }
    static void* tj_multiplier(int minor) {
        tj_minor = minor;
        return (void*)&tj_multiply;
    }
    """
    void tj_use(size_t single, size_t double, int narrow) noexcept
    void* tj_multiplier(int minor) noexcept
    bint tj_multiply_here(Py_buffer* x, Py_buffer* y, Py_buffer* out, bint left, bint right) noexcept


cdef inline bint use(size_t single, size_t double, bint narrow) noexcept:
    tj_use(single, double, narrow)
    return True


cdef inline object handler(int minor):
    return PyCapsule_New(tj_multiplier(minor), NULL, NULL)


cdef inline bint multiply(object x, object y, object out, bint left, bint right) except *:
    cdef Py_buffer one, other, made
    PyObject_GetBuffer(x, &one, PyBUF_STRIDES)
    try:
        PyObject_GetBuffer(y, &other, PyBUF_STRIDES)
        try:
            PyObject_GetBuffer(out, &made, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
            try:
                return tj_multiply_here(&one, &other, &made, left, right)
            finally:
                PyBuffer_Release(&made)
        finally:
            PyBuffer_Release(&other)
    finally:
        PyBuffer_Release(&one)
