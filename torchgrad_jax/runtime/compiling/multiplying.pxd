from cpython.pycapsule cimport PyCapsule_New

from torchgrad_jax.runtime.compiling cimport sharing

# A product is cut into blocks of at most 64 x 64 x 64, or 32 x 32 x 256 where those are quicker, which BLAS multiplies by the thread that asks: for
# more it would wake threads of its own, which wait by spinning at the expense of XLA's. Where the blocks are many, XLA's threads share them.
cdef extern from *:
    """
    /* Where a build of BLAS takes `int`, it finds it in the lower half of the 64 bits. */
    typedef void (*tj_sgemm)(int, int, int, int64_t, int64_t, int64_t, float, const float*, int64_t, const float*, int64_t, float, float*, int64_t);
    typedef void (*tj_dgemm)(int, int, int, int64_t, int64_t, int64_t, double, const double*, int64_t, const double*, int64_t, double, double*, int64_t);
    static tj_sgemm tj_single;
    static tj_dgemm tj_double;
    static int tj_minor, tj_narrow;
    enum { TJ_F64 = 12, TJ_ROWS = 101, TJ_AS_IT_IS = 111, TJ_TURNED = 112, TJ_SIDE = 64, TJ_NARROW = 32, TJ_BLOCK = 1 << 18, TJ_ALONE = 1 << 20 };

    /* x: (batch, m, k), or (batch, k, m) if `left`; y: (batch, k, n), or (batch, n, k) if `right`. Blocks are `rows` x `columns` of the result and
       `terms` of the sums; `down` x `across` of them in each matrix. */
    typedef struct {
        const char *x, *y;
        char* out;
        int64_t m, n, k, rows, columns, terms, down, across;
        int left, right, wide;
    } tj_product;

    static void tj_multiply_block(const void* product, int64_t block) {
        const tj_product* p = (const tj_product*)product;
        int64_t each = p->down * p->across, matrix = block / each, i = block % each % p->down * p->rows, j = block % each / p->down * p->columns, t;
        int64_t height = p->m - i < p->rows ? p->m - i : p->rows, width = p->n - j < p->columns ? p->n - j : p->columns, size = p->wide ? 8 : 4;
        int64_t own = p->left ? p->m : p->k, other = p->right ? p->k : p->n;
        int x_lies = p->left ? TJ_TURNED : TJ_AS_IT_IS, y_lies = p->right ? TJ_TURNED : TJ_AS_IT_IS;
        char* out = p->out + (matrix * p->m * p->n + i * p->n + j) * size;
        for (t = 0; t < p->k; t += p->terms) {
            int64_t depth = p->k - t < p->terms ? p->k - t : p->terms;
            const char* x = p->x + (matrix * p->m * p->k + (p->left ? t * own + i : i * own + t)) * size;
            const char* y = p->y + (matrix * p->k * p->n + (p->right ? j * other + t : t * other + j)) * size;
            if (p->wide) {
                tj_double(TJ_ROWS, x_lies, y_lies, height, width, depth, 1.0, (const double*)x, own, (const double*)y, other, t ? 1.0 : 0.0,
                          (double*)out, p->n);
            } else {
                tj_single(TJ_ROWS, x_lies, y_lies, height, width, depth, 1.0f, (const float*)x, own, (const float*)y, other, t ? 1.0f : 0.0f,
                          (float*)out, p->n);
            }
        }
    }
    static void* tj_multiply(tj_call* call) {
        const tj_buffer *x, *y, *out;
        int64_t how, batch;
        int narrow;
        tj_product whole;
        if (tj_is_asked(call, tj_minor)) { return 0; }
        x = (const tj_buffer*)call->operands.items[0];
        y = (const tj_buffer*)call->operands.items[1];
        out = (const tj_buffer*)call->results.items[0];
        how = *(const int64_t*)((const tj_scalar*)call->attributes.items[0])->value;
        whole.x = (const char*)x->data;
        whole.y = (const char*)y->data;
        whole.out = (char*)out->data;
        whole.left = how & 1;
        whole.right = how >> 1 & 1;
        whole.wide = out->dtype == TJ_F64;
        batch = out->shape[0];
        whole.m = out->shape[1];
        whole.n = out->shape[2];
        whole.k = x->shape[whole.left ? 1 : 2];
        whole.rows = whole.m;
        whole.columns = whole.n;
        whole.terms = whole.k;
        narrow = tj_narrow && whole.right && !whole.left && whole.m * whole.n > TJ_NARROW * TJ_NARROW;
        if (narrow || whole.m * whole.n * whole.k > TJ_BLOCK) {
            whole.rows = tj_pieces(whole.m, tj_pieces(whole.m, narrow ? TJ_NARROW : TJ_SIDE));
            whole.columns = tj_pieces(whole.n, tj_pieces(whole.n, narrow ? TJ_NARROW : TJ_SIDE));
            whole.terms = TJ_BLOCK / (whole.rows * whole.columns);
            whole.terms = tj_pieces(whole.k, tj_pieces(whole.k, whole.terms));
        }
        whole.down = tj_pieces(whole.m, whole.rows);
        whole.across = tj_pieces(whole.n, whole.columns);
        tj_do(call, tj_multiply_block, &whole, batch * whole.down * whole.across, batch * whole.m * whole.n * whole.k < TJ_ALONE);
        return 0;
    }
    static void tj_use(size_t one, size_t other, int minor, int narrow) {
        tj_single = (tj_sgemm)one;
        tj_double = (tj_dgemm)other;
        tj_minor = minor;
        tj_narrow = narrow;
    }
    """
    void tj_use(size_t single, size_t double, int minor, int narrow) noexcept
    void* tj_multiply(void* call) noexcept nogil


cdef inline object handler(size_t single, size_t double, int minor, bint narrow):
    tj_use(single, double, minor, narrow)
    return PyCapsule_New(<void*>&tj_multiply, NULL, NULL)
