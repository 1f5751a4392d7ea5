from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer

# What `box_muller.py` says of arrays, in C: the same steps. A multiply-add is rounded once, on any processor; there it is rounded twice, which shows in
# one of some millions of samples.
cdef extern from *:
    """
    #include <math.h>
    #include <string.h>
    #if defined(__GNUC__)
    #define TJ_EACH static inline __attribute__((always_inline))
    #else
    #define TJ_EACH static inline
    #endif
    #define tj_mad fmaf
    TJ_EACH float tj_log_of_unit(float x) {
        int bits, e, small;
        float m, z, y, whole;
        memcpy(&bits, &x, 4);
        e = ((bits >> 23) & 255) - 126;
        bits = (bits & 0x7fffff) | 0x3f000000;
        memcpy(&m, &bits, 4);
        small = m < 0.7071067690849304f;
        m = (small ? m + m : m) - 1;
        whole = (float)(e - small);
        z = m * m;
        y = tj_mad(m, 0.07037683576345444f, -0.11514610052108765f);
        y = tj_mad(y, m, 0.11676998436450958f);
        y = tj_mad(y, m, -0.12420140951871872f);
        y = tj_mad(y, m, 0.14249323308467865f);
        y = tj_mad(y, m, -0.16668057441711426f);
        y = tj_mad(y, m, 0.2000071406364441f);
        y = tj_mad(y, m, -0.24999994039535522f);
        y = tj_mad(y, m, 0.3333333134651184f);
        y = tj_mad(y * m, z, whole * -0.00021219444170128554f);
        y = tj_mad(z, -0.5f, y);
        return tj_mad(whole, 0.693359375f, m + y);
    }
    TJ_EACH void tj_make_normals(const float* uniform, float* out, Py_ssize_t blocks) {
        Py_ssize_t i, j;
        for (i = 0; i < blocks; i++, uniform += 16, out += 16) {
            float cosines[8], sines[8];
            for (j = 0; j < 8; j++) {
                float radius = sqrtf(-2 * tj_log_of_unit(1 - uniform[j])), x = uniform[8 + j] * 6.2831854820251465f;
                int octant = ((int)(x * 1.2732394933700562f) + 1) & ~1;
                float y = (float)octant, r = tj_mad(y, -0.78515625f, x), z, sine, cosine, s, c;
                r = tj_mad(y, -0.00024187564849853516f, r);
                r = tj_mad(y, -3.774895063202166e-08f, r);
                z = r * r;
                cosine = tj_mad(tj_mad(z, 2.44331567955669e-05f, -0.0013887316454201937f), z, 0.04166664555668831f) * z;
                cosine = tj_mad(cosine, z, z * -0.5f) + 1;
                sine = tj_mad(tj_mad(z, -0.00019515295571181923f, 0.008332161232829094f), z, -0.16666655242443085f) * z;
                sine = tj_mad(sine, r, r);
                s = octant & 2 ? cosine : sine;
                c = octant & 2 ? sine : cosine;
                cosines[j] = radius * (((octant - 2) & 4) == 0 ? -c : c);
                sines[j] = radius * (octant & 4 ? -s : s);
            }
            memcpy(out, cosines, sizeof cosines);
            memcpy(out + 8, sines, sizeof sines);
        }
    }
    TJ_EACH void tj_scale_each(float* values, Py_ssize_t n, float by, float more) {
        Py_ssize_t i;
        for (i = 0; i < n; i++) { values[i] = tj_mad(values[i], by, more); }
    }
    #if defined(__GNUC__) && defined(__x86_64__)
    __attribute__((target("avx2,fma"))) static void tj_scale_by_vectors(float* values, Py_ssize_t n, float by, float more) {
        tj_scale_each(values, n, by, more);
    }
    static void tj_scale(float* values, Py_ssize_t n, float by, float more) {
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) { tj_scale_by_vectors(values, n, by, more); }
        else { tj_scale_each(values, n, by, more); }
    }
    __attribute__((target("avx2,fma"))) static void tj_normals_by_vectors(const float* uniform, float* out, Py_ssize_t blocks) {
        tj_make_normals(uniform, out, blocks);
    }
    static void tj_normals(const float* uniform, float* out, Py_ssize_t blocks) {
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) { tj_normals_by_vectors(uniform, out, blocks); }
        else { tj_make_normals(uniform, out, blocks); }
    }
    #else
    static void tj_scale(float* values, Py_ssize_t n, float by, float more) { tj_scale_each(values, n, by, more); }
    static void tj_normals(const float* uniform, float* out, Py_ssize_t blocks) { tj_make_normals(uniform, out, blocks); }
    #endif
    """
    void tj_normals(const float* uniform, float* out, Py_ssize_t blocks) noexcept nogil
    void tj_scale(float* values, Py_ssize_t n, float by, float more) noexcept nogil


cdef inline char* _memory(object array, Py_ssize_t length, bint written) except? NULL:
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_WRITABLE if written else PyBUF_SIMPLE)
    cdef char* found = <char*>view.buf
    cdef bint fits = view.len == length
    PyBuffer_Release(&view)  # the array is held by whoever asks, and never moves
    if not fits:
        raise BufferError
    return found


cdef inline int normals(object uniform, object out) except -1:
    cdef Py_ssize_t n = len(out)
    tj_normals(<float*>_memory(uniform, 4 * n, False), <float*>_memory(out, 4 * n, True), n // 16)
    return 0


cdef inline int scale(object values, double by, double more) except -1:
    cdef Py_ssize_t n = len(values)
    tj_scale(<float*>_memory(values, 4 * n, True), n, <float>by, <float>more)
    return 0
