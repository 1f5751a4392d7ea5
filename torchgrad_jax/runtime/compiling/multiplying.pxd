from cpython.pycapsule cimport PyCapsule_New

# XLA's foreign functions are called with one argument: what it points to is laid out as `XLA_FFI_CallFrame` of jaxlib's `xla/ffi/api/c_api.h`, in
# versions 0.3 and 0.4. A function is asked for the version it knows when it is registered.
#
# A product is cut into blocks of at most 64 x 64 x 64, or 32 x 32 x 256 where those are quicker, which BLAS multiplies by the thread that asks: for more it would wake threads of its own, which
# wait by spinning at the expense of XLA's. Where the blocks are many, XLA's threads help: whoever is free takes the next block of the result, so that
# each of its elements is summed by one thread in one order. Nobody waits for a helper that has not begun.
cdef extern from *:
    """
    #include <stdint.h>
    #include <stdlib.h>
    #ifdef _MSC_VER
    #define TJ_ADD(place, number) ((*(place) += (number)) - (number))
    #define TJ_READ(place) (*(place))
    #define TJ_REST() ((void)0)
    #else
    #include <sched.h>
    #define TJ_ADD(place, number) __atomic_fetch_add(place, number, __ATOMIC_ACQ_REL)
    #define TJ_READ(place) __atomic_load_n(place, __ATOMIC_ACQUIRE)
    #define TJ_REST() sched_yield()
    #endif
    typedef struct tj_extension { size_t size; int type; struct tj_extension* next; } tj_extension;
    typedef struct { size_t size; tj_extension* extension; int major, minor; } tj_version;
    typedef struct { size_t size; tj_version version; uint32_t traits; int64_t state; } tj_metadata;
    typedef struct { tj_extension base; tj_metadata* metadata; } tj_question;
    typedef struct { size_t size; tj_extension* extension; int dtype; void* data; int64_t rank; int64_t* shape; } tj_buffer;
    typedef struct { size_t size; tj_extension* extension; int64_t count; int* types; void** items; } tj_buffers;
    typedef struct { int dtype; void* value; } tj_scalar;
    typedef struct { size_t size; tj_extension* extension; int64_t count; int* types; void** names; void** items; } tj_attributes;
    typedef struct { size_t size; tj_extension* extension; void* context; int64_t* found; } tj_asking;
    typedef struct { size_t size; tj_extension* extension; void* context; void (*task)(void*); void* data; } tj_scheduling;
    typedef struct { size_t size; tj_extension* extension; void* error; } tj_forgetting;
    typedef struct {
        size_t size; tj_extension* extension; tj_version version; const void* internal;
        void *create, *message; void (*forget)(tj_forgetting*); void* others[8];
        void* (*schedule)(tj_scheduling*); void* (*threads)(tj_asking*);
    } tj_interface;
    typedef struct {
        size_t size; tj_extension* extension; const tj_interface* xla; void* context; int stage;
        tj_buffers operands, results; tj_attributes attributes;
    } tj_call;
    /* Where a build of BLAS takes `int`, it finds it in the lower half of the 64 bits. */
    typedef void (*tj_sgemm)(int, int, int, int64_t, int64_t, int64_t, float, const float*, int64_t, const float*, int64_t, float, float*, int64_t);
    typedef void (*tj_dgemm)(int, int, int, int64_t, int64_t, int64_t, double, const double*, int64_t, const double*, int64_t, double, double*, int64_t);
    static tj_sgemm tj_single;
    static tj_dgemm tj_double;
    static int tj_minor, tj_narrow;
    enum { TJ_F64 = 12, TJ_METADATA = 1, TJ_ROWS = 101, TJ_AS_IT_IS = 111, TJ_TURNED = 112, TJ_SIDE = 64, TJ_NARROW = 32, TJ_BLOCK = 1 << 18, TJ_ALONE = 1 << 20 };

    /* x: (batch, m, k), or (batch, k, m) if `left`; y: (batch, k, n), or (batch, n, k) if `right`. Blocks are `rows` x `columns` of the result and
       `terms` of the sums; `down` x `across` of them in each matrix. */
    typedef struct {
        const char *x, *y;
        char* out;
        int64_t m, n, k, rows, columns, terms, down, across, blocks, next, done, users;
        int left, right, wide;
    } tj_product;

    static void tj_multiply_block(const tj_product* p, int64_t block) {
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
    static void tj_leave(tj_product* p) {
        if (TJ_ADD(&p->users, -1) == 1) { free(p); }
    }
    static void tj_take_blocks(tj_product* p) {
        int64_t block;
        while ((block = TJ_ADD(&p->next, 1)) < p->blocks) {
            tj_multiply_block(p, block);
            TJ_ADD(&p->done, 1);
        }
    }
    static void tj_help(void* product) {
        tj_take_blocks((tj_product*)product);
        tj_leave((tj_product*)product);
    }
    static int64_t tj_threads(const tj_call* call) {
        int64_t found = 1;
        tj_asking asked = {sizeof(tj_asking), 0, call->context, &found};
        void* error = call->xla->threads(&asked);
        if (error) {
            tj_forgetting forgotten = {sizeof(tj_forgetting), 0, error};
            call->xla->forget(&forgotten);
            return 1;
        }
        return found;
    }
    static void tj_ask_for_help(const tj_call* call, tj_product* p) {
    #ifndef _MSC_VER
        int64_t helpers = tj_threads(call) - 1;
        if (helpers > p->blocks - 1) { helpers = p->blocks - 1; }
        for (; helpers > 0; helpers--) {
            tj_scheduling asked = {sizeof(tj_scheduling), 0, call->context, tj_help, p};
            void* error;
            TJ_ADD(&p->users, 1);
            error = call->xla->schedule(&asked);
            if (error) {
                tj_forgetting forgotten = {sizeof(tj_forgetting), 0, error};
                call->xla->forget(&forgotten);
                tj_leave(p);
                return;
            }
        }
    #endif
    }
    static int64_t tj_pieces(int64_t length, int64_t largest) {
        return (length + largest - 1) / largest;
    }
    static void* tj_multiply(tj_call* call) {
        const tj_buffer *x, *y, *out;
        int64_t how, batch, block;
        int narrow;
        tj_product whole, *p = &whole;
        if (call->extension && call->extension->type == TJ_METADATA) {
            tj_version* version = &((tj_question*)call->extension)->metadata->version;
            version->major = 0;
            version->minor = tj_minor;
            return 0;
        }
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
        whole.blocks = batch * whole.down * whole.across;
        whole.next = whole.done = 0;
        whole.users = 1;
        if (batch * whole.m * whole.n * whole.k < TJ_ALONE || whole.blocks == 1 || !(p = (tj_product*)malloc(sizeof(tj_product)))) {
            for (block = 0; block < whole.blocks; block++) { tj_multiply_block(&whole, block); }
            return 0;
        }
        *p = whole;
        tj_ask_for_help(call, p);
        tj_take_blocks(p);
        while (TJ_READ(&p->done) < p->blocks) { TJ_REST(); }
        tj_leave(p);
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
