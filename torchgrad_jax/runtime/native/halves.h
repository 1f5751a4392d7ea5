/* Half precision and float32. Rounded to the nearest, ties to even; what is no number stays so, with its sign, and is quiet. By operations on bits, of
   which compilers make vectors; float16 by x86 processors' own conversions where they have AVX2, which are four times as fast. */
#ifndef TJ_HALVES
#define TJ_HALVES
#include <stdint.h>
#include <string.h>
static inline uint32_t tj_bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}
static inline float tj_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static inline float tj_wide_half(uint16_t x) {
    uint32_t size = (x & 0x7fffu) << 13, normal = size + (112u << 23), special = size + (224u << 23);
    uint32_t small = tj_bits_of(tj_of_bits(size + (113u << 23)) - 6.103515625e-05f);  /* below 2 ** -14, whose digits are added and taken away */
    uint32_t bits = size < (1u << 23) ? small : size < (31u << 23) ? normal : size > (31u << 23) ? special | 0x400000u : special;
    return tj_of_bits(bits | (x & 0x8000u) << 16);
}
static inline uint16_t tj_narrow_half(float x) {
    uint32_t bits = tj_bits_of(x), size = bits & 0x7fffffffu, even = size >> 13 & 1;
    uint32_t normal = (size + 0xfffu + even - (112u << 23)) >> 13;
    uint32_t small = tj_bits_of(tj_of_bits(size) + 0.5f) - (126u << 23);  /* the last digit of 0.5 is the smallest float16 */
    uint32_t number = size < (113u << 23) ? small : normal < 0x7c00u ? normal : 0x7c00u;
    return (uint16_t)((size > (255u << 23) ? 0x7e00u | (size >> 13 & 0x3ffu) : number) | (bits >> 16 & 0x8000u));
}
static inline float tj_wide_brain(uint16_t x) {
    return tj_of_bits((uint32_t)x << 16);
}
static inline uint32_t tj_brain_bits(float x) {
    uint32_t bits = tj_bits_of(x), rounded = bits + 0x7fffu + (bits >> 16 & 1);
    return (bits & 0x7fffffffu) > (255u << 23) ? (bits & 0x80000000u) | 0x7fc00000u : rounded;
}
static inline uint16_t tj_narrow_brain(float x) {
    return (uint16_t)(tj_brain_bits(x) >> 16);
}
static inline float tj_round_brain(float x) {
    return tj_of_bits(tj_brain_bits(x) & 0xffff0000u);
}

/* By vectors of 8: how many of n elements are done. An operand may be where the result is. */
#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#define TJ_EIGHTS(name, of, to, result)                                                                                          \
    __attribute__((target("avx2,f16c"))) static int64_t name##_by_vectors(const of* x, to* out, int64_t n) {                     \
        int64_t i;                                                                                                               \
        for (i = 0; i + 8 <= n; i += 8) { result; }                                                                              \
        return i;                                                                                                                \
    }                                                                                                                            \
    static int64_t name(const of* x, to* out, int64_t n) { return __builtin_cpu_supports("avx2") ? name##_by_vectors(x, out, n) : 0; }
#define TJ_NARROWED _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT)
TJ_EIGHTS(tj_wide_halves, uint16_t, float, _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(x + i)))))
TJ_EIGHTS(tj_narrow_halves, float, uint16_t, _mm_storeu_si128((__m128i*)(out + i), TJ_NARROWED))
TJ_EIGHTS(tj_round_halves, float, float, _mm256_storeu_ps(out + i, _mm256_cvtph_ps(TJ_NARROWED)))
#else
static int64_t tj_wide_halves(const uint16_t* x, float* out, int64_t n) { return 0; }
static int64_t tj_narrow_halves(const float* x, uint16_t* out, int64_t n) { return 0; }
static int64_t tj_round_halves(const float* x, float* out, int64_t n) { return 0; }
#endif
#endif
