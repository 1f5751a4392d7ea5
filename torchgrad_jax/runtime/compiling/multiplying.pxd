from cpython.pycapsule cimport PyCapsule_New

# XLA's foreign functions are called with one argument: what it points to is laid out as `XLA_FFI_CallFrame` of jaxlib's `xla/ffi/api/c_api.h`, in
# versions 0.3 and 0.4. A function is asked for the version it knows when it is registered.
cdef extern from *:
    """
    #include <stdint.h>
    typedef struct tj_extension { size_t size; int type; struct tj_extension* next; } tj_extension;
    typedef struct { size_t size; tj_extension* extension; int major, minor; } tj_version;
    typedef struct { size_t size; tj_version version; uint32_t traits; int64_t state; } tj_metadata;
    typedef struct { tj_extension base; tj_metadata* metadata; } tj_question;
    typedef struct { size_t size; tj_extension* extension; int dtype; void* data; int64_t rank; int64_t* shape; } tj_buffer;
    typedef struct { size_t size; tj_extension* extension; int64_t count; int* types; void** items; } tj_buffers;
    typedef struct { int dtype; void* value; } tj_scalar;
    typedef struct { size_t size; tj_extension* extension; int64_t count; int* types; void** names; void** items; } tj_attributes;
    typedef struct {
        size_t size; tj_extension* extension; const void* api; void* context; int stage;
        tj_buffers operands, results; tj_attributes attributes;
    } tj_call;
    /* Where a build of BLAS takes `int`, it finds it in the lower half of the 64 bits. */
    typedef void (*tj_sgemm)(int, int, int, int64_t, int64_t, int64_t, float, const float*, int64_t, const float*, int64_t, float, float*, int64_t);
    typedef void (*tj_dgemm)(int, int, int, int64_t, int64_t, int64_t, double, const double*, int64_t, const double*, int64_t, double, double*, int64_t);
    static tj_sgemm tj_single;
    static tj_dgemm tj_double;
    static int tj_minor;
    enum { TJ_F64 = 12, TJ_METADATA = 1, TJ_ROWS = 101, TJ_AS_IT_IS = 111, TJ_TURNED = 112 };

    /* Products of matrices (batch, m, k) and (batch, k, n); an attribute says by its bits which of them lie turned: (batch, k, m), (batch, n, k). */
    static void* tj_multiply(tj_call* call) {
        const tj_buffer *x, *y, *out;
        int64_t how, batch, m, n, k, i;
        int left, right;
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
        left = how & 1 ? TJ_TURNED : TJ_AS_IT_IS;
        right = how & 2 ? TJ_TURNED : TJ_AS_IT_IS;
        batch = out->shape[0];
        m = out->shape[1];
        n = out->shape[2];
        k = x->shape[how & 1 ? 1 : 2];
        for (i = 0; i < batch; i++) {
            if (out->dtype == TJ_F64) {
                tj_double(TJ_ROWS, left, right, m, n, k, 1.0, (const double*)x->data + i * m * k, how & 1 ? m : k,
                          (const double*)y->data + i * k * n, how & 2 ? k : n, 0.0, (double*)out->data + i * m * n, n);
            } else {
                tj_single(TJ_ROWS, left, right, m, n, k, 1.0f, (const float*)x->data + i * m * k, how & 1 ? m : k,
                          (const float*)y->data + i * k * n, how & 2 ? k : n, 0.0f, (float*)out->data + i * m * n, n);
            }
        }
        return 0;
    }
    static void tj_use(size_t one, size_t other, int minor) {
        tj_single = (tj_sgemm)one;
        tj_double = (tj_dgemm)other;
        tj_minor = minor;
    }
    """
    void tj_use(size_t single, size_t double, int minor) noexcept
    void* tj_multiply(void* call) noexcept nogil


cdef inline object handler(size_t single, size_t double, int minor):
    tj_use(single, double, minor)
    return PyCapsule_New(<void*>&tj_multiply, NULL, NULL)
