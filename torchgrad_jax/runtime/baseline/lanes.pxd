# cython: cdivision=True
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_STRIDED_RO, PyBUF_WRITABLE, PyBuffer_Release
from libc.math cimport NAN, sqrt
from libc.stdint cimport int64_t, uint16_t
from libc.stdlib cimport abort, calloc, free, malloc
from libc.string cimport memcpy

from torchgrad_jax.runtime.native cimport arrays
from torchgrad_jax.runtime.native.handlers cimport share
from torchgrad_jax.runtime.native.sharing cimport tj_hand

# What the numbers mean is in `lanes.py`.
# The loops are C: compiled for processors with AVX-512 and AVX2, too, and chosen between as the module is loaded, where GCC and the
# system can do that. (An element takes 0.38 ns with AVX-512 for `erf`, 0.31 for `exp`, and with AVX2 twice that: its loops do without FMA.)
cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    /* An operand may be where the result is, element by element. */
    #if defined(__clang__)
    #define TJ_APART _Pragma("clang loop vectorize(assume_safety)")
    #elif defined(__GNUC__)
    #define TJ_APART _Pragma("GCC ivdep")
    #elif defined(_MSC_VER)
    #define TJ_APART __pragma(loop(ivdep))
    #else
    #define TJ_APART
    #endif
    #include "torchgrad_jax/runtime/native/functions.h"
    #include "torchgrad_jax/runtime/native/doubles.h"
    #include "torchgrad_jax/runtime/native/halves.h"
    #define TJ_LOOP(which, result) case which: TJ_APART for (i = 0; i < n; i++) { out[i] = (result); } break;
    #define TJ_FROM(which, first, to, result) case which: TJ_APART for (i = (first); i < n; i++) { (to)[i] = (result); } break;
    #define TJ_WAVE(which, quarters, magnitude, near, wave, of_large) case which: {                                          \\
        int large = 0;                                                                                                       \\
        for (i = 0; i < n; i++) { large |= !(magnitude(a[i]) < near); }                                                      \\
        if (large) {                                                                                                         \\
            for (i = 0; i < n; i++) { out[i] = magnitude(a[i]) < near ? wave(a[i], quarters) : of_large(a[i], quarters); }   \\
            break;                                                                                                           \\
        }                                                                                                                    \\
        TJ_APART for (i = 0; i < n; i++) { out[i] = wave(a[i], quarters); }                                                  \\
        break; }
    #define TJ_DOUBLE                                                                                                         \\
        TJ_LOOP(22, tj_exp_double(a[i]))                                                                                      \\
        TJ_LOOP(23, tj_tanh_double(a[i]))                                                                                     \\
        TJ_LOOP(24, 1 / (1 + tj_exp_double(-a[i])))                                                                           \\
        TJ_LOOP(26, tj_log_with_double(a[i], 0))                                                                              \\
        TJ_LOOP(27, tj_log1p_double(a[i]))                                                                                    \\
        TJ_WAVE(28, 0, fabs, TJ_NEAR_DOUBLE, tj_wave_double, tj_wave_of_large_double)                                         \\
        TJ_WAVE(29, 1, fabs, TJ_NEAR_DOUBLE, tj_wave_double, tj_wave_of_large_double)
    #define TJ_SINGLE                                                                                                         \\
        TJ_LOOP(22, tj_exp(a[i]))                                                                                             \\
        TJ_LOOP(23, tj_tanh(a[i]))                                                                                            \\
        TJ_LOOP(24, 1 / (1 + tj_exp(-a[i])))                                                                                  \\
        TJ_LOOP(25, tj_erf(a[i]))                                                                                             \\
        TJ_LOOP(26, tj_log(a[i]))                                                                                             \\
        TJ_LOOP(27, tj_log1p(a[i]))                                                                                           \\
        TJ_WAVE(28, 0, fabsf, TJ_NEAR, tj_wave, tj_wave_of_large)                                                             \\
        TJ_WAVE(29, 1, fabsf, TJ_NEAR, tj_wave, tj_wave_of_large)                                                             \\
        TJ_FROM(30, tj_wide_halves((const uint16_t*)a, out, n), out, tj_wide_half(((const uint16_t*)a)[i]))                   \\
        TJ_FROM(31, 0, out, tj_wide_brain(((const uint16_t*)a)[i]))                                                           \\
        TJ_FROM(32, tj_narrow_halves(a, (uint16_t*)out, n), ((uint16_t*)out), tj_narrow_half(a[i]))                           \\
        TJ_FROM(33, 0, ((uint16_t*)out), tj_narrow_brain(a[i]))                                                               \\
        TJ_FROM(34, tj_round_halves(a, out, n), out, tj_wide_half(tj_narrow_half(a[i])))                                      \\
        TJ_LOOP(35, tj_round_brain(a[i]))                                                                                     \\
        TJ_LOOP(36, a[i])
    #define TJ_LANES(name, real, root, magnitude, more)                                                                        \\
    TJ_CLONES static void name(int which, const real* a, const real* b, const real* c, real* out, Py_ssize_t n) {             \\
        Py_ssize_t i;                                                                                                         \\
        switch (which) {                                                                                                      \\
            TJ_LOOP(0, a[i] + b[i])                                                                                           \\
            TJ_LOOP(1, a[i] - b[i])                                                                                           \\
            TJ_LOOP(2, a[i] * b[i])                                                                                           \\
            TJ_LOOP(3, a[i] / b[i])                                                                                           \\
            TJ_LOOP(4, -a[i])                                                                                                 \\
            TJ_LOOP(5, magnitude(a[i]))                                                                                       \\
            TJ_LOOP(6, root(a[i]))                                                                                            \\
            TJ_LOOP(7, a[i] * a[i])                                                                                           \\
            TJ_LOOP(8, 1 / root(a[i]))                                                                                        \\
            TJ_LOOP(9, a[i] == b[i] && a[i] == 0 ? a[i] + b[i] : a[i] > b[i] || a[i] != a[i] ? a[i] : b[i])                   \\
            TJ_LOOP(10, a[i] == b[i] && a[i] == 0 ? -(-a[i] - b[i]) : a[i] < b[i] || a[i] != a[i] ? a[i] : b[i])              \\
            TJ_LOOP(11, a[i] > 0 ? 1 : a[i] < 0 ? -1 : a[i])                                                                  \\
            TJ_LOOP(12, a[i] > b[i] ? (real)1 : (real)0)                                                                      \\
            TJ_LOOP(13, a[i] >= b[i] ? (real)1 : (real)0)                                                                     \\
            TJ_LOOP(14, a[i] < b[i] ? (real)1 : (real)0)                                                                      \\
            TJ_LOOP(15, a[i] <= b[i] ? (real)1 : (real)0)                                                                     \\
            TJ_LOOP(16, a[i] == b[i] ? (real)1 : (real)0)                                                                     \\
            TJ_LOOP(17, a[i] != b[i] ? (real)1 : (real)0)                                                                     \\
            TJ_LOOP(18, a[i] != 0 ? c[i] : b[i])                                                                              \\
            case 19: for (i = 0; i < n; i++) { out[i] = ((const unsigned char*)a)[i]; } break;                                \\
            case 20: for (i = 0; i < n; i++) { ((unsigned char*)out)[i] = a[i] != 0; } break;                                 \\
            more                                                                                                              \\
        }                                                                                                                     \\
    }
    /* Two operations, each rounded, where the rest of the file may round a product and a sum at once. `number` is all of b. */
    #if defined(__clang__)
    #define TJ_NOT_FUSED
    #define TJ_EACH_ROUNDED _Pragma("clang fp contract(off)")
    #elif defined(__GNUC__)
    #define TJ_NOT_FUSED __attribute__((optimize("fp-contract=off")))
    #define TJ_EACH_ROUNDED
    #else
    #define TJ_NOT_FUSED
    #define TJ_EACH_ROUNDED
    #endif
    #define TJ_PAIRS(name, real, root)                                                                                         \\
    TJ_CLONES TJ_NOT_FUSED static void name(int which, const real* a, const real* b, const real* c, real* out, Py_ssize_t n) {  \\
        TJ_EACH_ROUNDED                                                                                                       \\
        const real number = b[0];                                                                                             \\
        Py_ssize_t i;                                                                                                         \\
        switch (which) {                                                                                                      \\
            TJ_LOOP(37, a[i] * b[i] + c[i])                                                                                   \\
            TJ_LOOP(38, c[i] - a[i] * b[i])                                                                                   \\
            TJ_LOOP(39, a[i] * number + c[i])                                                                                 \\
            TJ_LOOP(40, c[i] - a[i] * number)                                                                                 \\
            TJ_LOOP(41, root(a[i]) + b[i])                                                                                    \\
        }                                                                                                                     \\
    }
    TJ_PAIRS(tj_pair_float, float, sqrtf)
    TJ_PAIRS(tj_pair_double, double, sqrt)
    /* Memory of whoever has Python's lock: for one chain at a time. */
    static void* tj_scratch_work(void) { static int64_t room[32]; return room; }
    static char** tj_scratch_starts(void) { static char* starts[128]; return starts; }
    static Py_ssize_t* tj_scratch_steps(void) { static Py_ssize_t steps[128]; return steps; }
    static char* tj_scratch_room(size_t size) {
        static char* room;
        static size_t has;
        if (size > has) {
            char* more = (char*)realloc(room, size);
            if (!more) { return 0; }
            room = more;
            has = size;
        }
        return room;
    }
    #define TJ_REAL float
    #define TJ_NAMED(name) name##_single
    #include "torchgrad_jax/runtime/native/spreading.h"
    #undef TJ_REAL
    #undef TJ_NAMED
    #define TJ_REAL double
    #define TJ_NAMED(name) name##_double
    #include "torchgrad_jax/runtime/native/spreading.h"
    #undef TJ_REAL
    #undef TJ_NAMED
    #define TJ_REAL unsigned char
    #define TJ_NAMED(name) name##_mask
    #include "torchgrad_jax/runtime/native/spreading.h"
    #undef TJ_REAL
    #undef TJ_NAMED
    #define TJ_REAL uint16_t
    #define TJ_NAMED(name) name##_half
    #include "torchgrad_jax/runtime/native/spreading.h"
    #undef TJ_REAL
    #undef TJ_NAMED
    #include "torchgrad_jax/runtime/native/gathering.h"
    #include "torchgrad_jax/runtime/native/triangular.h"
    TJ_TRIANGULAR(one, float, sqrtf)
    TJ_TRIANGULAR(two, double, sqrt)
    TJ_LANES(tj_lane_float, float, sqrtf, fabsf, TJ_SINGLE)
    TJ_LANES(tj_lane_double, double, sqrt, fabs, TJ_DOUBLE)
    #define TJ_REAL float
    #define TJ_BITS uint32_t
    #define TJ_NAMED(name) name##_single
    #define TJ_MAGNITUDE fabsf
    #define TJ_FLOOR floorf
    #define TJ_SIGNED copysignf
    #define TJ_WHOLE truncf
    #define TJ_MODULO fmodf
    #define TJ_MOST_TIMES 134217728.0f
    #define TJ_MOST INFINITY
    #include "torchgrad_jax/runtime/native/remainders.h"
    #undef TJ_REAL
    #undef TJ_BITS
    #undef TJ_NAMED
    #undef TJ_MAGNITUDE
    #undef TJ_FLOOR
    #undef TJ_SIGNED
    #undef TJ_WHOLE
    #undef TJ_MODULO
    #undef TJ_MOST_TIMES
    #undef TJ_MOST
    #define TJ_REAL double
    #define TJ_BITS uint64_t
    #define TJ_NAMED(name) name##_double
    #define TJ_MAGNITUDE fabs
    #define TJ_FLOOR floor
    #define TJ_SIGNED copysign
    #define TJ_WHOLE trunc
    #define TJ_MODULO fmod
    #define TJ_MOST_TIMES 33554432.0
    #define TJ_MOST 1e300
    #include "torchgrad_jax/runtime/native/remainders.h"
    #undef TJ_REAL
    #undef TJ_BITS
    #undef TJ_NAMED
    #undef TJ_MAGNITUDE
    #undef TJ_FLOOR
    #undef TJ_SIGNED
    #undef TJ_WHOLE
    #undef TJ_MODULO
    #undef TJ_MOST_TIMES
    #undef TJ_MOST
    """
    void tj_lane_float(int which, float* a, float* b, float* c, float* out, Py_ssize_t n) noexcept nogil
    void tj_lane_double(int which, double* a, double* b, double* c, double* out, Py_ssize_t n) noexcept nogil
    void tj_pair_float(int which, float* a, float* b, float* c, float* out, Py_ssize_t n) noexcept nogil
    void tj_pair_double(int which, double* a, double* b, double* c, double* out, Py_ssize_t n) noexcept nogil
    void tj_lane_of_bits_single(int which, float* a, float* b, float* c, float* out, Py_ssize_t n) noexcept nogil
    void tj_lane_of_bits_double(int which, double* a, double* b, double* c, double* out, Py_ssize_t n) noexcept nogil
    void tj_factorize_one(float* a, int* pivots, int* order, int64_t rows, int64_t columns) noexcept nogil
    void tj_factorize_two(double* a, int* pivots, int* order, int64_t rows, int64_t columns) noexcept nogil
    int64_t tj_cholesky_one(float* a, int64_t size) noexcept nogil
    int64_t tj_cholesky_two(double* a, int64_t size) noexcept nogil
    void tj_substitute_one(float* a, float* x, int64_t size, int64_t columns, int turned, int lower, int unit) noexcept nogil
    void tj_substitute_two(double* a, double* x, int64_t size, int64_t columns, int turned, int lower, int unit) noexcept nogil
    void* tj_scratch_work() noexcept
    char** tj_scratch_starts() noexcept
    Py_ssize_t* tj_scratch_steps() noexcept
    char* tj_scratch_room(size_t size) noexcept
    void tj_spread_single(
        const float* source, int64_t size, int64_t times, int64_t inner, int64_t gap, int64_t begin, float* to, int64_t n
    ) noexcept nogil
    void tj_spread_double(
        const double* source, int64_t size, int64_t times, int64_t inner, int64_t gap, int64_t begin, double* to, int64_t n
    ) noexcept nogil
    void tj_spread_mask(
        const unsigned char* source, int64_t size, int64_t times, int64_t inner, int64_t gap, int64_t begin, unsigned char* to, int64_t n
    ) noexcept nogil
    void tj_spread_half(
        const uint16_t* source, int64_t size, int64_t times, int64_t inner, int64_t gap, int64_t begin, uint16_t* to, int64_t n
    ) noexcept nogil
    int tj_slices(int ndim, const Py_ssize_t* shape, const Py_ssize_t* strides, Py_ssize_t elements, Py_ssize_t* where) noexcept
    void tj_gather(Py_ssize_t bytes, const char* source, const Py_ssize_t* where, Py_ssize_t begin, char* to, Py_ssize_t n) noexcept nogil
    float tj_wide_half(uint16_t x) noexcept nogil
    float tj_wide_brain(uint16_t x) noexcept nogil

cdef enum:
    LOAD = 19
    SPREAD = 21
    WIDEN_HALF = 30
    WIDEN_BRAIN = 31
    MUL_ADD = 37
    REM = 42
    SLICED = 54
    PATTERN = 5
    LINE = 64
    SPREAD_AT_ONCE = 512

ctypedef fused real:
    float
    double


cdef inline char* memory(object array, Py_ssize_t length, int letter, bint written) except? NULL:
    cdef Py_buffer view
    arrays.view(array, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (PyBUF_WRITABLE if written else 0))
    cdef char* found = <char*>view.buf
    cdef bint fits = view.len == length and view.format[0] == letter and view.format[1] == 0
    PyBuffer_Release(&view)  # the array is held by whoever asks, and never moves
    if not fits:
        raise BufferError
    return found


cdef inline bint slices(object array, Py_ssize_t length, int letter, Py_ssize_t* patterns, int which) except -1:
    cdef Py_buffer view
    cdef Py_ssize_t* where = patterns + PATTERN * which
    cdef Py_ssize_t size = length // width(letter)
    arrays.view(array, &view, PyBUF_STRIDED_RO | PyBUF_FORMAT)
    cdef bint fits = view.len == length and view.format[0] == letter and view.format[1] == 0
    cdef bint reads = fits and tj_slices(view.ndim, view.shape, view.strides, size, where)
    PyBuffer_Release(&view)
    if not fits:
        raise BufferError
    if not reads:
        where[0], where[1], where[2], where[3], where[4] = size, width(letter), 1, 0, 0
    return reads


cdef inline char* begin_of(object array) except NULL:
    cdef Py_buffer view
    arrays.view(array, &view, PyBUF_STRIDED_RO)
    cdef char* found = <char*>view.buf
    PyBuffer_Release(&view)
    return found


cdef inline int width(int letter) noexcept nogil:
    return 1 if letter == 63 else 2 if letter == 101 or letter == 72 else 4 if letter == 102 else 8


cdef inline char** starts(int count) except NULL:
    return <char**>_allocated(count * sizeof(void*))


cdef inline Py_ssize_t* steps(int count) except NULL:
    return <Py_ssize_t*>_allocated(count * sizeof(Py_ssize_t))


cdef inline Py_ssize_t* copied_patterns(Py_ssize_t* patterns, Py_ssize_t operands) except NULL:
    cdef Py_ssize_t* found = <Py_ssize_t*>_allocated((operands * PATTERN + 1) * sizeof(Py_ssize_t))
    memcpy(found, patterns, operands * PATTERN * sizeof(Py_ssize_t))
    return found


cdef inline char* room(Py_ssize_t registers, Py_ssize_t length, int letter) except NULL:
    return <char*>_allocated(registers * length + LINE)


cdef inline void* _allocated(size_t length) except NULL:
    cdef void* found = malloc(length)
    if found is NULL:
        raise MemoryError
    return found


# Registers begin where lines of the cache do, so that none of a vector's loads takes two.
cdef inline char* register(char* room, Py_ssize_t which, Py_ssize_t length) noexcept nogil:
    return <char*>((<size_t>room + LINE - 1) // LINE * LINE) + which * length


cdef inline char* at(char* start, Py_ssize_t step, Py_ssize_t begin) noexcept nogil:
    return start + step * begin


cdef inline void _fill(real x, real* out, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = x


cdef inline void fill(int letter, int kind, char* source, char* out, Py_ssize_t n) noexcept nogil:
    if letter == 102:
        _fill(_number(kind, source), <float*>out, n)
    else:
        _fill((<unsigned char*>source)[0] if kind == 63 else (<double*>source)[0], <double*>out, n)


cdef inline float _number(int kind, char* source) noexcept nogil:
    if kind == 63:
        return (<unsigned char*>source)[0]
    if kind == 101:
        return tj_wide_half((<uint16_t*>source)[0])
    return tj_wide_brain((<uint16_t*>source)[0]) if kind == 72 else (<float*>source)[0]


cdef inline void lane(int letter, int which, char* a, char* b, char* c, char* out, Py_ssize_t n) noexcept nogil:
    if which >= REM:
        if letter == 102:
            tj_lane_of_bits_single(which, <float*>a, <float*>b, <float*>c, <float*>out, n)
        else:
            tj_lane_of_bits_double(which, <double*>a, <double*>b, <double*>c, <double*>out, n)
    elif which >= MUL_ADD:
        if letter == 102:
            tj_pair_float(which, <float*>a, <float*>b, <float*>c, <float*>out, n)
        else:
            tj_pair_double(which, <double*>a, <double*>b, <double*>c, <double*>out, n)
    elif letter == 102:
        tj_lane_float(which, <float*>a, <float*>b, <float*>c, <float*>out, n)
    else:
        tj_lane_double(which, <double*>a, <double*>b, <double*>c, <double*>out, n)


# Masks and half precision are gathered, and spread, as they are, and then made numbers, a block at a time.
cdef inline void gather(int letter, int kind, char* source, Py_ssize_t* where, Py_ssize_t begin, char* out, Py_ssize_t n) noexcept nogil:
    cdef uint16_t kept[SPREAD_AT_ONCE]
    cdef Py_ssize_t k
    if kind == letter:
        tj_gather(width(letter), source, where, begin, out, n)
        return
    while n > 0:
        k = min(n, <Py_ssize_t>SPREAD_AT_ONCE)
        tj_gather(width(kind), source, where, begin, <char*>kept, k)
        lane(letter, LOAD if kind == 63 else WIDEN_HALF if kind == 101 else WIDEN_BRAIN, <char*>kept, out, out, out, k)
        begin += k
        out += k * width(letter)
        n -= k


cdef inline void spread(
    int letter, int kind, char* source, Py_ssize_t size, Py_ssize_t* pattern, Py_ssize_t begin, char* out, Py_ssize_t n
) noexcept nogil:
    cdef uint16_t kept[SPREAD_AT_ONCE]
    cdef Py_ssize_t times = pattern[0], inner = pattern[1], gap = pattern[2], k
    if kind == letter:
        if letter == 102:
            tj_spread_single(<float*>source, size, times, inner, gap, begin, <float*>out, n)
        else:
            tj_spread_double(<double*>source, size, times, inner, gap, begin, <double*>out, n)
        return
    while n > 0:
        k = min(n, <Py_ssize_t>SPREAD_AT_ONCE)
        if kind == 63:
            tj_spread_mask(<unsigned char*>source, size, times, inner, gap, begin, <unsigned char*>kept, k)
            lane(letter, LOAD, <char*>kept, out, out, out, k)
        else:
            tj_spread_half(<uint16_t*>source, size, times, inner, gap, begin, kept, k)
            lane(letter, WIDEN_HALF if kind == 101 else WIDEN_BRAIN, <char*>kept, out, out, out, k)
        begin += k
        out += k * width(letter)
        n -= k


cdef inline void run(
    int letter, int* code, int operations, int* letters, Py_ssize_t* sizes, Py_ssize_t* patterns, char** start, Py_ssize_t* step,
    Py_ssize_t begin, Py_ssize_t end, Py_ssize_t most
) noexcept nogil:
    cdef Py_ssize_t n
    cdef int k, out, a, b, c
    while begin < end:
        n = min(most, end - begin)
        for k in range(0, 5 * operations, 5):
            out, a, b, c = code[k + 1], code[k + 2], code[k + 3], code[k + 4]
            if code[k] == SPREAD:
                spread(letter, letters[a], start[a], sizes[a], patterns + PATTERN * a, begin, start[out], n)
            elif code[k] == SLICED:
                gather(letter, letters[a], start[a], patterns + PATTERN * a, begin, start[out], n)
            else:
                lane(
                    letter, code[k], at(start[a], step[a], begin), at(start[b], step[b], begin), at(start[c], step[c], begin),
                    at(start[out], step[out], begin), n,
                )
        begin += n


# A chain with its arrays. start, step, room: memory of its own. first, registers: the slots that each thread has registers of its own for.
cdef struct Work:
    int letter, operations, first, registers
    int* code
    int* letters
    Py_ssize_t* sizes
    Py_ssize_t* patterns
    char** start
    Py_ssize_t* step
    char* room
    Py_ssize_t size, most, kept


cdef enum:
    BLOCKS_OF_A_PIECE = 16
    SLOTS = 128  # of operands, results and registers, twice as many as a chain may have


cdef inline Work* scratch(Py_ssize_t registers, Py_ssize_t length, int letter) except NULL:
    cdef Work* found = <Work*>tj_scratch_work()
    found.start, found.step, found.room = tj_scratch_starts(), tj_scratch_steps(), tj_scratch_room(registers * length + LINE)
    if found.room is NULL:
        raise MemoryError
    return found


cdef inline Work* works(int count) except NULL:
    cdef Work* found = <Work*>calloc(count, sizeof(Work))
    if found is NULL:
        raise MemoryError
    return found


cdef inline Work* nth(Work* work, int which) noexcept:
    return work + which


cdef inline Work* first(Work* work) noexcept:
    return work


cdef inline void let_go(Work* work, int count) noexcept:
    cdef int i
    for i in range(count):
        free(work[i].room)
        free(work[i].start)
        free(work[i].step)
        free(work[i].patterns)
    free(work)


cdef inline void run_alone(Work* work) noexcept nogil:
    run(work.letter, work.code, work.operations, work.letters, work.sizes, work.patterns, work.start, work.step, 0, work.size, work.most)


cdef inline void _run_part(Work* work, Py_ssize_t begin, Py_ssize_t end, tj_hand* hand) noexcept nogil:
    cdef Py_ssize_t length = work.most * (4 if work.letter == 102 else 8)
    cdef char* start[SLOTS]
    cdef char* room
    cdef int i
    if hand.kept is NULL:
        hand.kept = malloc(work.kept + LINE)
        if hand.kept is NULL:
            abort()
    room = <char*>hand.kept
    memcpy(start, work.start, (work.first + work.registers) * sizeof(void*))
    for i in range(work.registers):
        start[work.first + i] = register(room, i, length)
    run(work.letter, work.code, work.operations, work.letters, work.sizes, work.patterns, start, work.step, begin, end, work.most)


cdef inline void _run_piece(const void* all, int64_t number, tj_hand* hand) noexcept nogil:
    cdef Work* work = <Work*>all
    cdef Py_ssize_t begin = number * BLOCKS_OF_A_PIECE * work.most
    _run_part(work, begin, min(work.size, begin + BLOCKS_OF_A_PIECE * work.most), hand)


cdef inline void run_shared(Work* work) noexcept:
    work.kept = work.registers * work.most * (4 if work.letter == 102 else 8)
    share(_run_piece, work, (work.size + BLOCKS_OF_A_PIECE * work.most - 1) // (BLOCKS_OF_A_PIECE * work.most), False)


# One operation by itself.
cdef struct Single:
    int letter, which
    char* a
    char* out
    Py_ssize_t size


cdef enum:
    ELEMENTS_OF_A_PIECE = 8192


cdef inline void _lane_piece(const void* single, int64_t number, tj_hand* hand) noexcept nogil:
    cdef Single* one = <Single*>single
    cdef Py_ssize_t begin = number * ELEMENTS_OF_A_PIECE
    cdef char* a = one.a + begin * width(one.letter)
    lane(one.letter, one.which, a, a, a, one.out + begin * width(one.letter), min(one.size - begin, <Py_ssize_t>ELEMENTS_OF_A_PIECE))


cdef inline void lane_shared(int letter, int which, char* a, char* out, Py_ssize_t n) noexcept:
    cdef Single one
    one.letter, one.which, one.a, one.out, one.size = letter, which, a, out, n
    share(_lane_piece, &one, (n + ELEMENTS_OF_A_PIECE - 1) // ELEMENTS_OF_A_PIECE, False)


# One operation of up to three operands by itself, each of all elements or of one.
cdef struct Several:
    int letter, which
    char* given[3]
    Py_ssize_t step[3]
    char* out
    Py_ssize_t size


cdef inline void _operation_part(Several* one, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t n, size = width(one.letter)
    while begin < end:
        n = min(<Py_ssize_t>SPREAD_AT_ONCE, end - begin)
        lane(
            one.letter, one.which, at(one.given[0], one.step[0], begin), at(one.given[1], one.step[1], begin),
            at(one.given[2], one.step[2], begin), at(one.out, size, begin), n,
        )
        begin += n


cdef inline void _operation_piece(const void* several, int64_t number, tj_hand* hand) noexcept nogil:
    cdef Several* one = <Several*>several
    cdef Py_ssize_t begin = number * ELEMENTS_OF_A_PIECE
    _operation_part(one, begin, min(one.size, begin + ELEMENTS_OF_A_PIECE))


cdef inline void operation(
    int letter, int which, char* a, Py_ssize_t of_a, char* b, Py_ssize_t of_b, char* c, Py_ssize_t of_c, char* out, Py_ssize_t n, bint shared
) noexcept:
    cdef double numbers[3][SPREAD_AT_ONCE]
    cdef Several one
    cdef Py_ssize_t sizes[3]
    cdef int i
    sizes[0], sizes[1], sizes[2] = of_a, of_b, of_c
    one.given[0], one.given[1], one.given[2] = a, b, c
    one.letter, one.which, one.out, one.size = letter, which, out, n
    for i in range(3):
        one.step[i] = width(letter)
        if sizes[i] < n:
            fill(letter, letter, one.given[i], <char*>numbers[i], min(<Py_ssize_t>SPREAD_AT_ONCE, n))
            one.given[i], one.step[i] = <char*>numbers[i], 0
    if shared:
        share(_operation_piece, &one, (n + ELEMENTS_OF_A_PIECE - 1) // ELEMENTS_OF_A_PIECE, False)
    else:
        _operation_part(&one, 0, n)


cdef inline void _run_one(const void* all, int64_t number, tj_hand* hand) noexcept nogil:
    cdef Work* work = <Work*>all + number
    _run_part(work, 0, work.size, hand)


cdef inline void run_together(Work* work, int count) noexcept:
    cdef int i
    cdef Py_ssize_t most = 0
    for i in range(count):
        most = max(most, work[i].registers * work[i].most * 8)
    for i in range(count):
        work[i].kept = most
    share(_run_one, work, count, False)


cdef inline void _add_at(real* rows, long long* places, real* updates, Py_ssize_t count, Py_ssize_t most, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef real* row
    for i in range(count):
        if 0 <= places[i] < most:
            row = rows + places[i] * length
            for j in range(length):
                row[j] += updates[j]
        updates += length


cdef inline void add_at(int letter, char* rows, char* places, char* updates, Py_ssize_t count, Py_ssize_t most, Py_ssize_t length) noexcept nogil:
    if letter == 102:
        _add_at(<float*>rows, <long long*>places, <float*>updates, count, most, length)
    else:
        _add_at(<double*>rows, <long long*>places, <double*>updates, count, most, length)


cdef inline void factorize(int letter, char* a, char* pivots, char* order, Py_ssize_t rows, Py_ssize_t columns) noexcept nogil:
    if letter == 102:
        tj_factorize_one(<float*>a, <int*>pivots, <int*>order, rows, columns)
    else:
        tj_factorize_two(<double*>a, <int*>pivots, <int*>order, rows, columns)


cdef inline Py_ssize_t _first_zero(real* a, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        if a[i * size + i] == 0:
            return i + 1
    return 0


cdef inline Py_ssize_t first_zero(int letter, char* a, Py_ssize_t size) noexcept nogil:
    return _first_zero(<float*>a, size) if letter == 102 else _first_zero(<double*>a, size)


cdef inline void cholesky(int letter, char* a, Py_ssize_t size) noexcept nogil:
    if letter == 102:
        if tj_cholesky_one(<float*>a, size) < size:
            _fill(<float>NAN, <float*>a, size * size)
    elif tj_cholesky_two(<double*>a, size) < size:
        _fill(<double>NAN, <double*>a, size * size)


cdef inline void substitute(int letter, char* a, char* x, Py_ssize_t size, Py_ssize_t columns, bint turned, bint lower, bint unit) noexcept nogil:
    if letter == 102:
        tj_substitute_one(<float*>a, <float*>x, size, columns, turned, lower, unit)
    else:
        tj_substitute_two(<double*>a, <double*>x, size, columns, turned, lower, unit)
