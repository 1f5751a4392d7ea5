from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_GetPointer

# What `twister.py` says, on the memory of NumPy's engine: whole blocks of 624 words are made, tempered and turned into samples by vectors.
cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
    #define TJ_TWISTED __attribute__((target_clones("avx512f", "avx2", "default")))
    #else
    #define TJ_TWISTED
    #endif
    enum { TJ_WORDS = 624, TJ_MIDDLE = 397, TJ_AT_ONCE = 512 };
    /* As NumPy has it; and what a bit generator's capsule holds begins with where it is. */
    typedef struct { uint32_t key[TJ_WORDS]; int at; } tj_twister;
    typedef struct { tj_twister* state; } tj_bits;
    #define TJ_TWIST(i, next, other)                                                                                              \\
        do {                                                                                                                      \\
            uint32_t y = (key[i] & 0x80000000u) | (key[next] & 0x7fffffffu);                                                      \\
            key[i] = key[other] ^ (y >> 1) ^ ((0u - (y & 1u)) & 0x9908b0dfu);                                                     \\
        } while (0)
    TJ_TWISTED static void tj_twist(uint32_t* key) {
        int i;
        for (i = 0; i < TJ_WORDS - TJ_MIDDLE; i++) { TJ_TWIST(i, i + 1, i + TJ_MIDDLE); }
        for (; i < TJ_WORDS - 1; i++) { TJ_TWIST(i, i + 1, i - (TJ_WORDS - TJ_MIDDLE)); }
        TJ_TWIST(TJ_WORDS - 1, 0, TJ_MIDDLE - 1);
    }
    TJ_TWISTED static void tj_temper(const uint32_t* key, uint32_t* out, int n) {
        int i;
        for (i = 0; i < n; i++) {
            uint32_t y = key[i];
            y ^= y >> 11;
            y ^= (y << 7) & 0x9d2c5680u;
            y ^= (y << 15) & 0xefc60000u;
            out[i] = y ^ (y >> 18);
        }
    }
    static void tj_draw_words(tj_twister* twister, uint32_t* out, int n) {
        while (n > 0) {
            int some;
            if (twister->at >= TJ_WORDS) {
                tj_twist(twister->key);
                twister->at = 0;
            }
            some = TJ_WORDS - twister->at < n ? TJ_WORDS - twister->at : n;
            tj_temper(twister->key + twister->at, out, some);
            twister->at += some;
            out += some;
            n -= some;
        }
    }
    #define TJ_PAIR ((uint64_t)words[2 * i] << 32 | words[2 * i + 1])
    TJ_TWISTED static void tj_turn_words(const uint32_t* words, int kind, void* made, int n, uint64_t span, int64_t base) {
        int i;
        if (kind == 0) {
            float* out = (float*)made;
            for (i = 0; i < n; i++) { out[i] = (float)(int32_t)(words[i] & 0xffffff) * 5.9604644775390625e-08f; }
        } else if (kind == 1) {
            double* out = (double*)made;
            for (i = 0; i < n; i++) { out[i] = (double)(int64_t)(TJ_PAIR & 0x1fffffffffffffULL) * 1.1102230246251565e-16; }
        } else if (kind == 2) {
            unsigned char* out = (unsigned char*)made;
            for (i = 0; i < n; i++) { out[i] = TJ_PAIR << 11 < span; }
        } else if (kind == 3) {  /* the quotient by a reciprocal is at most one off */
            int64_t* out = (int64_t*)made;
            double inverse = 1.0 / (double)(int64_t)span;
            for (i = 0; i < n && span == 1; i++) { out[i] = base; }
            for (i = 0; i < n && span > 1; i++) {
                int64_t word = words[i], rest = word - (int64_t)(int32_t)((double)word * inverse) * (int64_t)span;
                rest += rest < 0 ? (int64_t)span : 0;
                out[i] = (rest >= (int64_t)span ? rest - (int64_t)span : rest) + base;
            }
        } else {
            uint64_t* out = (uint64_t*)made;
            for (i = 0; i < n; i++) { out[i] = (span ? TJ_PAIR % span : TJ_PAIR) + (uint64_t)base; }
        }
    }
    /* n samples of some kind. */
    static void tj_draw(const void* bits, int kind, char* out, int64_t n, int width, uint64_t span, int64_t base) {
        tj_twister* twister = ((const tj_bits*)bits)->state;
        uint32_t words[2 * TJ_AT_ONCE];
        int each = kind == 0 || kind == 3 ? 1 : 2;
        while (n > 0) {
            int some = n < TJ_AT_ONCE ? (int)n : TJ_AT_ONCE;
            tj_draw_words(twister, words, each * some);
            tj_turn_words(words, kind, out, some, span, base);
            out += (int64_t)some * width;
            n -= some;
        }
    }
    /* Exchange each of `order` with one that is drawn of those from it on. */
    static void tj_shuffle(const void* bits, long long* order, int64_t n) {
        tj_twister* twister = ((const tj_bits*)bits)->state;
        uint32_t words[2 * TJ_AT_ONCE];
        int64_t i;
        for (i = 0; i < n - 1; i++) {
            int64_t other;
            long long kept = order[i];
            int at = (int)(i % (2 * TJ_AT_ONCE));
            if (!at) { tj_draw_words(twister, words, n - 1 - i < 2 * TJ_AT_ONCE ? (int)(n - 1 - i) : 2 * TJ_AT_ONCE); }
            other = i + words[at] % (uint32_t)(n - i);
            order[i] = order[other];
            order[other] = kept;
        }
    }
    static int tj_is_twister(const void* bits, const uint32_t* key, int at) {
        const tj_twister* twister = ((const tj_bits*)bits)->state;
        return !memcmp(twister->key, key, sizeof(twister->key)) && twister->at == at;
    }
    """
    ctypedef unsigned int uint32_t
    void tj_draw(void* bits, int kind, char* out, long long n, int width, unsigned long long span, long long base) noexcept nogil
    void tj_shuffle(void* bits, long long* order, long long n) noexcept nogil
    bint tj_is_twister(void* bits, uint32_t* key, int at) noexcept nogil


cdef inline void* _bits(object source) except NULL:
    return PyCapsule_GetPointer(source.capsule, "BitGenerator")


cdef inline bint knows(object source, object key, int at) except *:
    cdef Py_buffer view
    PyObject_GetBuffer(key, &view, PyBUF_C_CONTIGUOUS)
    try:
        return view.len == 4 * 624 and tj_is_twister(_bits(source), <uint32_t*>view.buf, at)
    finally:
        PyBuffer_Release(&view)


cdef inline int draw(object source, int kind, object out, unsigned long long span, long long base) except -1:
    cdef Py_buffer view
    cdef void* bits = _bits(source)
    PyObject_GetBuffer(out, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
    try:
        if view.itemsize != (4 if kind == 0 else 1 if kind == 2 else 8):
            raise BufferError
        tj_draw(bits, kind, <char*>view.buf, view.len // view.itemsize, <int>view.itemsize, span, base)
    finally:
        PyBuffer_Release(&view)
    return 0


cdef inline int shuffle(object source, object order) except -1:
    cdef Py_buffer view
    cdef void* bits = _bits(source)
    PyObject_GetBuffer(order, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
    try:
        if view.itemsize != 8:
            raise BufferError
        tj_shuffle(bits, <long long*>view.buf, view.len // 8)
    finally:
        PyBuffer_Release(&view)
    return 0
