from libc.stdint cimport int64_t

from torchgrad_jax.runtime.native cimport sharing

# Matrix products by functions of our own, on processors with AVX-512, or AVX2 and FMA. One thread multiplies at the processor's full speed from 32 x 32 x
# 32 on, and two at twice that: BLAS, cut into blocks so that it does not wake threads of its own, reaches half of it. An element's sum is in the order
# of its terms, whatever the product's other sizes and whoever computes it.
cdef extern from *:
    """
    /* Matrices that are multiplied: number i begins at start + i / inner * leap + i % inner * step. They lie row by row, `lead` elements from one to
       the next; turned: column by column. */
    typedef struct {
        const char* start;
        int64_t lead, inner, leap, step;
        int turned;
    } tj_matrices;
    /* The products (m, n) of matrices x (m, k) and y (k, n); bias: what is added to each row, or 0. Added to what is there, if `add`, and by this thread
       alone, if `alone`: what tiles can. */
    typedef struct {
        tj_matrices x, y;
        char* out;
        int64_t batch, m, n, k;
        int add, alone;
        const char* bias;
    } tj_operands;

    /* Where the matrix of a number has the element of this row and column. */
    static const char* tj_at(const tj_matrices* from, int64_t number, int64_t row, int64_t column, int64_t size) {
        const char* start = from->start + number / from->inner * from->leap + number % from->inner * from->step;
        return start + (from->turned ? column * from->lead + row : row * from->lead + column) * size;
    }

    /* A tile has at most so many rows, strips of the left matrix `room` for them, and so many columns, of `size` bytes each. */
    typedef struct {
        int64_t rows, room, columns, size;
        void (*tile)(int64_t, const void*, int64_t, int64_t, const void*, int64_t, void*, const void*, void*, int64_t, int, int64_t, int64_t);
        void (*strip)(void*, const void*, int64_t, int, int64_t, int64_t, int64_t);
    } tj_tiles;
    #if defined(__GNUC__) && defined(__x86_64__)
    #include <immintrin.h>
    #define TJ_AHEAD 8
    #define TJ_FETCH(place) __builtin_prefetch(place, 0, 2)
    #ifdef __clang__
    #define TJ_UNROLLED _Pragma("clang loop unroll(full)")
    #else
    #define TJ_UNROLLED _Pragma("GCC unroll 16")
    #endif
    #define TJ_AVX2 __attribute__((target("avx2,fma")))
    #define TJ_AVX512 __attribute__((target("avx512f,avx512vl,avx2,fma")))
    /* Of four rows, 8 terms from t on: for each term, four elements next to each other. */
    TJ_INLINE TJ_AVX2 void tj_turn_single(const float* const rows[4], int64_t t, float* to, int64_t places) {
        __m256 a = _mm256_loadu_ps(rows[0] + t), b = _mm256_loadu_ps(rows[1] + t), c = _mm256_loadu_ps(rows[2] + t), d = _mm256_loadu_ps(rows[3] + t);
        __m256d low = _mm256_castps_pd(_mm256_unpacklo_ps(a, b)), low_too = _mm256_castps_pd(_mm256_unpacklo_ps(c, d));
        __m256d high = _mm256_castps_pd(_mm256_unpackhi_ps(a, b)), high_too = _mm256_castps_pd(_mm256_unpackhi_ps(c, d));
        __m256 made[4];
        int i;
        made[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, low_too));
        made[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, low_too));
        made[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high, high_too));
        made[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high, high_too));
        TJ_UNROLLED for (i = 0; i < 4; i++) {
            _mm_storeu_ps(to + i * places, _mm256_castps256_ps128(made[i]));
            _mm_storeu_ps(to + (i + 4) * places, _mm256_extractf128_ps(made[i], 1));
        }
    }
    /* Of eight rows. */
    TJ_INLINE TJ_AVX2 void tj_turn_eight(const float* const rows[8], int64_t t, float* to, int64_t places) {
        __m256 given[8], pairs[8], fours[8];
        int i;
        TJ_UNROLLED for (i = 0; i < 8; i++) { given[i] = _mm256_loadu_ps(rows[i] + t); }
        TJ_UNROLLED for (i = 0; i < 8; i += 2) {
            pairs[i] = _mm256_unpacklo_ps(given[i], given[i + 1]);
            pairs[i + 1] = _mm256_unpackhi_ps(given[i], given[i + 1]);
        }
        TJ_UNROLLED for (i = 0; i < 8; i += 4) {
            fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
            fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
            fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
            fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
        }
        TJ_UNROLLED for (i = 0; i < 4; i++) {
            _mm256_storeu_ps(to + i * places, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20));
            _mm256_storeu_ps(to + (i + 4) * places, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31));
        }
    }
    /* Of 4 terms. */
    TJ_INLINE TJ_AVX2 void tj_turn_double(const double* const rows[4], int64_t t, double* to, int64_t places) {
        __m256d a = _mm256_loadu_pd(rows[0] + t), b = _mm256_loadu_pd(rows[1] + t), c = _mm256_loadu_pd(rows[2] + t), d = _mm256_loadu_pd(rows[3] + t);
        __m256d low = _mm256_unpacklo_pd(a, b), low_too = _mm256_unpacklo_pd(c, d), high = _mm256_unpackhi_pd(a, b), high_too = _mm256_unpackhi_pd(c, d);
        _mm256_storeu_pd(to, _mm256_permute2f128_pd(low, low_too, 0x20));
        _mm256_storeu_pd(to + places, _mm256_permute2f128_pd(high, high_too, 0x20));
        _mm256_storeu_pd(to + 2 * places, _mm256_permute2f128_pd(low, low_too, 0x31));
        _mm256_storeu_pd(to + 3 * places, _mm256_permute2f128_pd(high, high_too, 0x31));
    }
    #define TJ_NUMBER float
    #define TJ_TURN_FOUR tj_turn_single
    #define TJ_TURN_EIGHT tj_turn_eight
    #define TJ_TURNED_AT_ONCE 8
    #define TJ_LANES 16
    #define TJ_ROWS 12
    #define TJ_ROOM 12
    #define TJ_NAME(name) tj_single_512_##name
    #define TJ_TARGET TJ_AVX512
    #include "torchgrad_jax/runtime/native/tiles.h"
    #define TJ_NUMBER double
    #define TJ_TURN_FOUR tj_turn_double
    #define TJ_TURN_EIGHT(rows, t, to, places)
    #define TJ_TURNED_AT_ONCE 4
    #define TJ_LANES 8
    #define TJ_ROWS 12
    #define TJ_ROOM 12
    #define TJ_NAME(name) tj_double_512_##name
    #define TJ_TARGET TJ_AVX512
    #include "torchgrad_jax/runtime/native/tiles.h"
    #define TJ_NUMBER float
    #define TJ_TURN_FOUR tj_turn_single
    #define TJ_TURN_EIGHT tj_turn_eight
    #define TJ_TURNED_AT_ONCE 8
    #define TJ_LANES 8
    #define TJ_ROWS 6
    #define TJ_ROOM 8
    #define TJ_NAME(name) tj_single_256_##name
    #define TJ_TARGET TJ_AVX2
    #include "torchgrad_jax/runtime/native/tiles.h"
    #define TJ_NUMBER double
    #define TJ_TURN_FOUR tj_turn_double
    #define TJ_TURN_EIGHT(rows, t, to, places)
    #define TJ_TURNED_AT_ONCE 4
    #define TJ_LANES 4
    #define TJ_ROWS 6
    #define TJ_ROOM 8
    #define TJ_NAME(name) tj_double_256_##name
    #define TJ_TARGET TJ_AVX2
    #include "torchgrad_jax/runtime/native/tiles.h"
    /* How wide the processor's vectors are that there are tiles for, in bits; 0 if there are none. */
    static int tj_vector_bits(void) {
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) { return 512; }
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 256 : 0;
    }
    static const tj_tiles* tj_tiles_of(int bits, int wide) {
        if (bits == 512) { return wide ? &tj_double_512_tiles : &tj_single_512_tiles; }
        return bits == 256 ? (wide ? &tj_double_256_tiles : &tj_single_256_tiles) : 0;
    }

    /* Terms whose sums are in registers. Bytes: of a right strip that is near where it lies, unless its rows are whole pages apart; of a right matrix from
       which on the next block is fetched; of the left matrix that a thread keeps. Rows and strips that are too few for copies to pay. */
    enum { TJ_TERMS = 256, TJ_NEAR = 1 << 15, TJ_PAGE = 4096, TJ_FAR = 1 << 18, TJ_KEPT = 1 << 20, TJ_FEW_ROWS = 24, TJ_FEW_STRIPS = 4, TJ_LINE = 64 };
    /* Rows that a thread keeps at least and at most; pieces at least for each thread, each of so many multiplications; and below how many multiplications one
       thread is quicker than two unless those are near, and of how many it is in any case. */
    enum { TJ_FEWEST_ROWS = 48, TJ_MOST_ROWS = 256, TJ_PIECES_EACH = 2, TJ_PIECE = 1 << 18, TJ_TILED_ALONE = 3 << 19, TJ_TILED_ALONE_HERE = 1 << 21,
           TJ_LIGHT_PIECE = 1 << 16, TJ_LIGHT = 3 << 16 };
    /* Products cut into tiles: a matrix on the left has `down` strips of `height` rows, in `groups` of `group`; on the right `across`. A piece is
       `together` times the tiles of one group by one strip: block by block of so many `terms`, each by all its strips. left_lies, right_lies: those strips
       are read where they lie in the matrix, but for what is not as wide as a tile on the right. */
    typedef struct {
        tj_operands of;
        const tj_tiles* by;
        int64_t height, down, across, terms, groups, group, together, all;
        int left_lies, right_lies, far;
    } tj_tiling;
    /* What a thread keeps: the group whose strips it has made, `left`, and room for a block of the right matrix. */
    typedef struct {
        int64_t group;
        char *right, *left;
    } tj_kept_strips;

    static void tj_make_left_strips(const tj_tiling* p, int64_t matrix, int64_t first, int64_t last, char* to) {
        const tj_operands* of = &p->of;
        for (; first < last && !p->left_lies; first++, to += p->by->room * of->k * p->by->size) {
            int64_t i = first * p->height, count = of->m - i < p->height ? of->m - i : p->height;
            p->by->strip(to, tj_at(&of->x, matrix, i, 0, p->by->size), of->x.lead, !of->x.turned, count, p->by->room, of->k);
        }
    }
    /* A block of the right matrix: what a strip has of so many terms. */
    typedef struct {
        const char* start;
        int64_t terms, lines;
    } tj_block;
    static tj_block tj_block_of(const tj_tiling* p, int64_t matrix, int64_t t, int64_t strip) {
        int64_t terms = p->of.k - t < p->terms ? p->of.k - t : p->terms, size = p->by->size;
        tj_block found = {tj_at(&p->of.y, matrix, t, strip * p->by->columns, size), terms, tj_pieces(p->by->columns * terms * size, TJ_LINE)};
        return found;
    }
    /* Let some of its lines be brought near. */
    static void tj_fetch(const tj_tiling* p, const tj_block* block, int64_t line, int64_t last) {
        int64_t lines = p->of.y.turned ? tj_pieces(block->terms * p->by->size, TJ_LINE) : p->by->columns * p->by->size / TJ_LINE;
        if (last > block->lines) { last = block->lines; }
        for (; line < last; line++) { TJ_FETCH(block->start + line / lines * p->of.y.lead * p->by->size + line % lines * TJ_LINE); }
    }
    /* The tiles of some strips of the left matrix by one block of a strip of the right one; `next` is the block after it. */
    static void tj_make_tiles(const tj_tiling* p, int64_t matrix, int64_t first, int64_t last, int64_t t, int64_t strip, const char* left, char* right,
                              const tj_block* next) {
        const tj_operands* of = &p->of;
        int64_t size = p->by->size, room = p->by->room, columns = p->by->columns, j = strip * columns, line = 0, i;
        int64_t left_row = p->left_lies && !of->x.turned ? of->x.lead : 1, left_step = !p->left_lies ? room : of->x.turned ? of->x.lead : 1;
        int64_t wide = of->n - j < columns ? of->n - j : columns, some = tj_pieces(next->lines, last - first);
        tj_block block = tj_block_of(p, matrix, t, strip);
        int whole = !of->y.turned && wide == columns, lies = whole && p->right_lies;
        int copied = whole && !lies && (first + 1) * p->height <= of->m && p->height == p->by->rows; /* by the first of the tiles */
        const char* bias = of->bias && t + block.terms == of->k ? of->bias + j * size : 0;
        if (!lies && !copied) { p->by->strip(right, block.start, of->y.lead, of->y.turned, wide, columns, block.terms); }
        for (i = first; i < last; i++) {
            int64_t row = i * p->height, high = of->m - row < p->height ? of->m - row : p->height;
            const char* rows = p->left_lies ? tj_at(&of->x, matrix, row, t, size) : left + ((i - first) * of->k + t) * room * size;
            int copies = copied && i == first, there = lies || copies;
            p->by->tile(block.terms, rows, left_row, left_step, there ? block.start : right, there ? of->y.lead : columns, copies ? right : 0, bias,
                        of->out + ((matrix * of->m + row) * of->n + j) * size, of->n, of->add || t > 0, high, wide);
            if (p->far) { tj_fetch(p, next, line, line + some); }
            line += some;
        }
    }
    static void tj_tile_piece(const void* tiling, int64_t piece, tj_hand* hand) {
        const tj_tiling* p = (const tj_tiling*)tiling;
        tj_kept_strips* strips = (tj_kept_strips*)hand->kept;
        int64_t place = piece * p->together, end = place + p->together < p->all ? place + p->together : p->all, stop, strip, t;
        if (!strips) {
            int64_t of_right = p->by->columns * p->terms * p->by->size, of_left = p->left_lies ? 0 : p->group * p->by->room * p->of.k * p->by->size;
            hand->kept = strips = (tj_kept_strips*)malloc(sizeof(tj_kept_strips) + TJ_LINE + (size_t)(of_left + of_right));
            if (!strips) { abort(); }
            strips->group = -1;
            strips->right = (char*)(((uintptr_t)(strips + 1) + TJ_LINE - 1) / TJ_LINE * TJ_LINE);
            strips->left = strips->right + of_right;
        }
        for (; place < end; place = stop) {
            int64_t which = place / p->across, matrix = which / p->groups, first = which % p->groups * p->group, begin = place % p->across;
            int64_t last = first + p->group < p->down ? first + p->group : p->down, past;
            stop = (which + 1) * p->across < end ? (which + 1) * p->across : end;
            past = begin + stop - place;
            if (strips->group != which) {
                tj_make_left_strips(p, matrix, first, last, strips->left);
                strips->group = which;
            }
            for (t = 0; t < p->of.k; t += p->terms) {
                for (strip = begin; strip < past; strip++) {
                    tj_block next = {0, 0, 0};
                    if (p->far && strip + 1 < past) {
                        next = tj_block_of(p, matrix, t, strip + 1);
                    } else if (p->far && t + p->terms < p->of.k) {
                        next = tj_block_of(p, matrix, t + p->terms, begin);
                    } else if (p->far) {
                        int64_t later = stop < end ? stop : tj_take(hand) * p->together;
                        if (later < p->all) { next = tj_block_of(p, later / p->across / p->groups, 0, later % p->across); }
                    }
                    tj_make_tiles(p, matrix, first, last, t, strip, strips->left, strips->right, &next);
                }
            }
        }
    }
    static void tj_tile_products(const tj_call* call, const tj_operands* of, const tj_tiles* by) {
        tj_tiling p = {*of, by};
        int64_t most = TJ_KEPT / (of->k * by->size), all = of->batch * of->m * of->n * of->k, least, pieces;
        int near = of->k * by->columns * by->size <= TJ_NEAR;
        int light = all < (call ? TJ_TILED_ALONE : TJ_TILED_ALONE_HERE), alone = of->alone || all < TJ_LIGHT;
        p.height = tj_pieces(tj_pieces(of->m, tj_pieces(of->m, by->rows)), 4) * 4;
        if (p.height > by->rows) { p.height = by->rows; }
        p.down = tj_pieces(of->m, p.height);
        p.across = tj_pieces(of->n, by->columns);
        p.terms = tj_pieces(of->k, tj_pieces(of->k, TJ_TERMS));
        if (most < TJ_FEWEST_ROWS) { most = TJ_FEWEST_ROWS; }
        p.groups = tj_pieces(of->m, most > TJ_MOST_ROWS ? TJ_MOST_ROWS : most);
        least = alone ? 1 : TJ_PIECES_EACH * tj_hands(call);
        if (of->batch * p.across * p.groups < least) { p.groups = tj_pieces(least, of->batch * p.across); }
        p.group = tj_pieces(p.down, p.groups);
        p.groups = tj_pieces(p.down, p.group);
        p.all = of->batch * p.groups * p.across;
        pieces = of->batch * p.groups < least ? least : of->batch * p.groups;
        p.together = tj_pieces(light ? TJ_LIGHT_PIECE : TJ_PIECE, p.group * p.height * by->columns * of->k);
        if (p.together < p.all / pieces) { p.together = p.all / pieces; }
        if (alone) { p.together = p.all; }
        p.left_lies = of->x.turned ? p.across <= TJ_FEW_STRIPS && of->x.lead * by->size < TJ_PAGE
                                   : p.across <= TJ_FEW_STRIPS || of->x.lead * by->size % TJ_PAGE != 0;
        p.right_lies = !of->y.turned && (p.group * p.height <= TJ_FEW_ROWS || (near && of->y.lead * by->size < TJ_PAGE));
        p.far = of->k * of->n * by->size > TJ_FAR;
        tj_do(call, tj_tile_piece, &p, tj_pieces(p.all, p.together), alone ? TJ_BY_ONE : light ? TJ_BY_NEAR : TJ_BY_ALL);
    }
    #else
    static int tj_vector_bits(void) { return 0; }
    static const tj_tiles* tj_tiles_of(int bits, int wide) { return 0; }
    static void tj_tile_products(const tj_call* call, const tj_operands* of, const tj_tiles* by) { abort(); } /* nobody has tiles */
    #endif
    """
    int tj_vector_bits() noexcept
