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
    /* The products (m, n) of matrices x (m, k) and y (k, n); bias: what is added to each row, or 0; rest: what is added then, as many elements as there are,
       or 0. Added to what is there, if `add`, by this thread alone, if `alone`, and each row of the result `out_lead` elements behind the one before, if
       that is not 0: what tiles can. plain: whether not by thirds, however large they are; mirrored: to the bits of
       the product of the transposes in the other order, which matters for thirds alone. */
    typedef struct {
        tj_matrices x, y;
        char* out;
        int64_t batch, m, n, k;
        int add, alone;
        const char* bias;
        int64_t out_lead;
        const char* rest;
        int plain, mirrored;
    } tj_operands;

    /* Where the matrix of a number has the element of this row and column. */
    static const char* tj_at(const tj_matrices* from, int64_t number, int64_t row, int64_t column, int64_t size) {
        const char* start = from->start + number / from->inner * from->leap + number % from->inner * from->step;
        return start + (from->turned ? column * from->lead + row : row * from->lead + column) * size;
    }

    /* A tile has at most so many rows, strips of the left matrix `room` for them, and so many columns, of `size` bytes each. */
    typedef struct {
        int64_t rows, room, columns, size;
        void (*tile)(int64_t, const void*, int64_t, int64_t, const void*, int64_t, const void*, const void*, int64_t, void*, int64_t, int, int64_t,
                     int64_t);
        void (*strip)(void*, const void*, int64_t, int64_t, int64_t, int64_t);
        void (*strips)(void*, const void*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);
        void (*dots)(int64_t, const void*, int64_t, const void*, int64_t, const void*, void*, int64_t, int64_t, int64_t);
    } tj_tiles;
    #if defined(__GNUC__) && defined(__x86_64__)
    #include <immintrin.h>
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
    /* The sums of four vectors' numbers. */
    TJ_INLINE TJ_AVX2 void tj_add_up_singles(__m256 a, __m256 b, __m256 c, __m256 d, float* to) {
        __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
        _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
    }
    TJ_INLINE TJ_AVX2 void tj_add_up_doubles(__m256d a, __m256d b, __m256d c, __m256d d, double* to) {
        __m256d first = _mm256_hadd_pd(a, b), second = _mm256_hadd_pd(c, d);
        _mm256_storeu_pd(to, _mm256_add_pd(_mm256_permute2f128_pd(first, second, 0x20), _mm256_permute2f128_pd(first, second, 0x31)));
    }
    TJ_INLINE TJ_AVX512 __m256 tj_half_singles(__m512 a) {
        return _mm256_add_ps(_mm512_castps512_ps256(a), _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1)));
    }
    TJ_INLINE TJ_AVX512 __m256d tj_half_doubles(__m512d a) {
        return _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    }
    #define TJ_OF_FOUR(v, type, half) half((type)v[0]), half((type)v[1]), half((type)v[2]), half((type)v[3])
    #define TJ_WHOLE(a) a
    #define TJ_NUMBER float
    #define TJ_TURN_FOUR tj_turn_single
    #define TJ_TURN_EIGHT tj_turn_eight
    #define TJ_TURNED_AT_ONCE 8
    #define TJ_LANES 16
    #define TJ_ROWS 12
    #define TJ_ROOM 12
    #define TJ_ADD_UP(v, to) tj_add_up_singles(TJ_OF_FOUR(v, __m512, tj_half_singles), to)
    #define TJ_FEW 4
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
    #define TJ_ADD_UP(v, to) tj_add_up_doubles(TJ_OF_FOUR(v, __m512d, tj_half_doubles), to)
    #define TJ_FEW 4
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
    #define TJ_ADD_UP(v, to) tj_add_up_singles(TJ_OF_FOUR(v, __m256, TJ_WHOLE), to)
    #define TJ_FEW 2
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
    #define TJ_ADD_UP(v, to) tj_add_up_doubles(TJ_OF_FOUR(v, __m256d, TJ_WHOLE), to)
    #define TJ_FEW 2
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

    /* Terms whose sums are in registers. Bytes: of rows that are read where they lie, a piece of each for a tile; of those that are whole pages apart, and so
       in few places of the caches; of the left matrix that a thread keeps. Rows and strips that are too few for copies to pay, but of a matrix of more
       than so many bytes (TJ_FAR), which no second cache holds; strips of which blocks are made at once, as memory comes sooner if it is read in a row. */
    enum { TJ_TERMS = 256, TJ_NARROW_ROWS = 512, TJ_PAGE = 4096, TJ_KEPT = 1 << 20, TJ_FAR = 1 << 22, TJ_FEW_ROWS = 24, TJ_FEW_STRIPS = 4,
           TJ_ABREAST = 8, TJ_LINE = 64 };
    /* Rows that a thread keeps at least and at most; pieces at least for each thread, each of so many multiplications; and below how many multiplications one
       thread is quicker than two unless those are near, and of how many it is in any case. */
    enum { TJ_FEWEST_ROWS = 48, TJ_MOST_ROWS = 256, TJ_PIECES_EACH = 2, TJ_PIECE = 1 << 18, TJ_TILED_ALONE = 3 << 19, TJ_TILED_ALONE_HERE = 1 << 21,
           TJ_LIGHT_PIECE = 1 << 16, TJ_LIGHT = 3 << 16 };
    /* Products cut into tiles: a matrix on the left has `down` strips of `height` rows, in `groups` of `group`; on the right `across`. A piece is
       `together` times the tiles of one group by one strip: of some strips abreast, block by block of so many `terms`. left_lies, right_lies: those are read
       where they lie in the matrix, but for what is not as wide as a tile on the right. left_strip, right_strip: how far copies are apart, in elements. */
    typedef struct {
        tj_operands of;
        const tj_tiles* by;
        int64_t height, down, across, terms, groups, group, together, all, left_strip, right_strip;
        int left_lies, right_lies;
    } tj_tiling;
    /* What a thread keeps: the group whose strips it has made, `left`, and room for blocks of the right matrix. */
    typedef struct {
        int64_t group;
        char *right, *left;
    } tj_kept_strips;

    static void tj_make_left_strips(const tj_tiling* p, int64_t matrix, int64_t first, int64_t last, char* to) {
        const tj_operands* of = &p->of;
        int64_t i = first * p->height, end = last * p->height < of->m ? last * p->height : of->m, size = p->by->size;
        const char* from = tj_at(&of->x, matrix, i, 0, size);
        if (of->x.turned) {
            p->by->strips(to, from, of->x.lead, end - i, p->height, p->by->room, p->left_strip, of->k);
            return;
        }
        for (; i < end; i += p->height, to += p->left_strip * size, from += p->height * of->x.lead * size) {
            p->by->strip(to, from, of->x.lead, end - i < p->height ? end - i : p->height, p->by->room, of->k);
        }
    }
    /* So many `terms` of strips of the right matrix, from column j to before `end`. */
    static void tj_make_right_strips(const tj_tiling* p, int64_t matrix, int64_t t, int64_t terms, int64_t j, int64_t end, char* to) {
        const tj_operands* of = &p->of;
        int64_t size = p->by->size, columns = p->by->columns;
        const char* from = tj_at(&of->y, matrix, t, j, size);
        if (!of->y.turned) {
            p->by->strips(to, from, of->y.lead, end - j, columns, columns, p->right_strip, terms);
            return;
        }
        for (; j < end; j += columns, to += p->right_strip * size, from += columns * of->y.lead * size) {
            p->by->strip(to, from, of->y.lead, end - j < columns ? end - j : columns, columns, terms);
        }
    }
    /* Add so many `terms` to the tiles of some strips on the left and of one on the right. */
    static void tj_make_tiles(const tj_tiling* p, int64_t matrix, int64_t first, int64_t last, int64_t t, int64_t terms, int64_t strip, const char* left,
                              const char* right) {
        const tj_operands* of = &p->of;
        int64_t size = p->by->size, columns = p->by->columns, j = strip * columns, wide = of->n - j < columns ? of->n - j : columns, i;
        int64_t left_row = p->left_lies && !of->x.turned ? of->x.lead : 1;
        int64_t left_step = !p->left_lies ? p->by->room : of->x.turned ? of->x.lead : 1;
        int64_t out_lead = of->out_lead ? of->out_lead : of->n;
        int lies = p->right_lies && wide == columns;
        const char* bias = of->bias && t + terms == of->k ? of->bias + j * size : 0;
        const char* rest = of->rest && t + terms == of->k ? of->rest + (matrix * of->m * of->n + j) * size : 0;
        const char* beside = lies ? tj_at(&of->y, matrix, t, j, size) : right;
        for (i = first; i < last; i++) {
            int64_t row = i * p->height, high = of->m - row < p->height ? of->m - row : p->height;
            const char* rows = p->left_lies ? tj_at(&of->x, matrix, row, t, size) : left + ((i - first) * p->left_strip + t * p->by->room) * size;
            p->by->tile(terms, rows, left_row, left_step, beside, lies ? of->y.lead : columns, bias, rest ? rest + row * of->n * size : 0, of->n,
                        of->out + ((matrix * of->m + row) * out_lead + j) * size, out_lead, of->add || t > 0, high, wide);
        }
    }
    /* The tiles of one group by strips from `begin` to before `past`. */
    static void tj_make_group(const tj_tiling* p, int64_t which, int64_t begin, int64_t past, tj_kept_strips* kept) {
        int64_t matrix = which / p->groups, first = which % p->groups * p->group, size = p->by->size, columns = p->by->columns, n = p->of.n, t, strip;
        int64_t last = first + p->group < p->down ? first + p->group : p->down, end = past * columns < n ? past * columns : n;
        if (!p->left_lies && kept->group != which) {
            tj_make_left_strips(p, matrix, first, last, kept->left);
            kept->group = which;
        }
        for (t = 0; t < p->of.k; t += p->terms) {
            int64_t terms = p->of.k - t < p->terms ? p->of.k - t : p->terms;
            int64_t made = !p->right_lies ? begin : n % columns && past == p->across ? past - 1 : past; /* the strips from there on */
            if (made < past) { tj_make_right_strips(p, matrix, t, terms, made * columns, end, kept->right + (made - begin) * p->right_strip * size); }
            for (strip = begin; strip < past; strip++) {
                tj_make_tiles(p, matrix, first, last, t, terms, strip, kept->left, kept->right + (strip - begin) * p->right_strip * size);
            }
        }
    }
    static void tj_tile_piece(const void* tiling, int64_t piece, tj_hand* hand) {
        const tj_tiling* p = (const tj_tiling*)tiling;
        tj_kept_strips* kept = (tj_kept_strips*)hand->kept;
        int64_t place = piece * p->together, end = place + p->together < p->all ? place + p->together : p->all, stop;
        if (!kept) {
            int64_t of_right = (p->together < TJ_ABREAST ? p->together : TJ_ABREAST) * p->right_strip * p->by->size;
            int64_t of_left = p->left_lies ? 0 : p->group * p->left_strip * p->by->size;
            hand->kept = kept = (tj_kept_strips*)malloc(sizeof(tj_kept_strips) + TJ_LINE + (size_t)(of_left + of_right));
            if (!kept) { abort(); }
            kept->group = -1;
            kept->right = (char*)(((uintptr_t)(kept + 1) + TJ_LINE - 1) / TJ_LINE * TJ_LINE);
            kept->left = kept->right + of_right;
        }
        for (; place < end; place = stop) {
            int64_t which = place / p->across, begin = place % p->across;
            stop = (which + 1) * p->across < end ? (which + 1) * p->across : end;
            if (stop > place + TJ_ABREAST) { stop = place + TJ_ABREAST; }
            tj_make_group(p, which, begin, begin + stop - place, kept);
        }
    }
    /* Whether a row of each of a tile's, whole pages apart, can be in the first cache at once: all are in one of its sets, which has so many ways. */
    static int tj_has_ways(int64_t rows) {
    #ifdef _SC_LEVEL1_DCACHE_ASSOC
        static int64_t found = -1;
        if (found < 0) { found = (int64_t)sysconf(_SC_LEVEL1_DCACHE_ASSOC); }
        return found >= rows;
    #else
        return rows <= 8;
    #endif
    }
    /* Terms of a step of thirds, the least there must be; and the least product of both sides over their sum. */
    enum { TJ_TERMS_OF_STEP = 32, TJ_SIDES_OF_THIRDS = 50 };
    static int tj_thirds = 0; /* whether products of single numbers may be by thirds */
    #if defined(__linux__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
    #include <cpuid.h>
    #include <sys/syscall.h>
    #include "torchgrad_jax/runtime/native/thirds.h"
    #else
    static int tj_thirds_are_allowed(void) { return 0; }
    static void tj_multiply_by_thirds(const tj_call* call, const tj_operands* of) { abort(); }
    #endif
    /* Whether one product of matrices of these sizes is quicker by thirds: to make their strips takes time that few multiplications do not make good. Those
       of a batch have the bits that attention's loop gives them, which has blocks too small for this. */
    static int tj_thirds_pay(const tj_operands* of) {
        return tj_thirds && !of->plain && of->batch == 1 && of->k >= TJ_TERMS_OF_STEP && of->m * of->n >= TJ_SIDES_OF_THIRDS * (of->m + of->n);
    }
    static void tj_tile_products(const tj_call* call, const tj_operands* of, const tj_tiles* by) {
        tj_tiling p = {*of, by};
        int64_t most = TJ_KEPT / (of->k * by->size), all = of->batch * of->m * of->n * of->k, least, pieces;
        int light = all < (call ? TJ_TILED_ALONE : TJ_TILED_ALONE_HERE), alone = of->alone || all < TJ_LIGHT;
        if (by->size == 4 && tj_thirds_pay(of)) {
            tj_multiply_by_thirds(call, of);
            return;
        }
        p.height = tj_pieces(tj_pieces(of->m, tj_pieces(of->m, by->rows)), 4) * 4;
        if (p.height > by->rows) { p.height = by->rows; }
        p.down = tj_pieces(of->m, p.height);
        p.across = tj_pieces(of->n, by->columns);
        p.terms = tj_pieces(of->k, tj_pieces(of->k, TJ_TERMS));
        if (most < TJ_FEWEST_ROWS) { most = TJ_FEWEST_ROWS; }
        p.groups = tj_pieces(of->m, most > TJ_MOST_ROWS ? TJ_MOST_ROWS : most);
        least = alone ? 1 : TJ_PIECES_EACH * tj_hands(call);
        p.left_lies = of->x.turned ? p.across <= TJ_FEW_STRIPS && of->x.lead * by->size <= TJ_NARROW_ROWS
                                   : (p.across <= TJ_FEW_STRIPS && tj_has_ways(by->rows)) || of->x.lead * by->size % TJ_PAGE != 0;
        /* Of strips that are copied each is copied once, if there are groups enough for that. */
        if (!p.left_lies && p.groups < least && of->m / least >= TJ_FEWEST_ROWS) { p.groups = least; }
        if (of->batch * p.across * p.groups < least) { p.groups = tj_pieces(least, of->batch * p.across); }
        p.group = tj_pieces(p.down, p.groups);
        p.groups = tj_pieces(p.down, p.group);
        p.all = of->batch * p.groups * p.across;
        pieces = of->batch * p.groups < least ? least : of->batch * p.groups;
        p.together = tj_pieces(light ? TJ_LIGHT_PIECE : TJ_PIECE, p.group * p.height * by->columns * of->k);
        if (p.together < p.all / pieces) { p.together = p.all / pieces; }
        if (alone) { p.together = p.all; }
        p.right_lies = !of->y.turned && ((p.group * p.height <= TJ_FEW_ROWS && of->k * of->n * by->size <= TJ_FAR) || of->y.lead * by->size <= TJ_NARROW_ROWS);
        p.left_strip = of->k * by->room + TJ_LINE / by->size;
        p.right_strip = p.terms * by->columns + TJ_LINE / by->size;
        tj_do(call, tj_tile_piece, &p, tj_pieces(p.all, p.together), alone ? TJ_BY_ONE : light ? TJ_BY_NEAR : TJ_BY_ALL);
    }
    /* Products of few rows and a transpose, `each` columns of that at a time, in so many pieces for each matrix. */
    typedef struct {
        tj_operands of;
        const tj_tiles* by;
        int64_t each, pieces;
    } tj_few;
    static void tj_few_piece(const void* few, int64_t piece, tj_hand* hand) {
        const tj_few* p = (const tj_few*)few;
        const tj_operands* of = &p->of;
        int64_t size = p->by->size, matrix = piece / p->pieces, j = piece % p->pieces * p->each, wide = of->n - j < p->each ? of->n - j : p->each;
        p->by->dots(of->k, tj_at(&of->x, matrix, 0, 0, size), of->x.lead, tj_at(&of->y, matrix, 0, j, size), of->y.lead,
                    of->bias ? of->bias + j * size : 0, of->out + (matrix * of->m * of->n + j) * size, of->n, of->m, wide);
    }
    /* Rows at most, and terms and columns at least, for which dot products are quicker than tiles: of the matrix on the right nothing is copied. Elements of
       a piece; and of how many in all threads share them. */
    enum { TJ_ROWS_OF_DOTS = 8, TJ_TERMS_OF_DOTS = 32, TJ_COLUMNS_OF_DOTS = 4, TJ_DOTS_PIECE = 1 << 14, TJ_DOTS_SHARED = 1 << 18 };
    /* Whether they are such products; then they have been carried out. */
    static int tj_of_few_rows(const tj_call* call, const tj_operands* of, const tj_tiles* by) {
        tj_few p = {*of, by};
        int64_t elements = of->batch * of->k * of->n;
        if (of->x.turned || !of->y.turned || of->add || of->m < 2 || of->m > TJ_ROWS_OF_DOTS) { return 0; }
        if (of->k < TJ_TERMS_OF_DOTS || of->n < TJ_COLUMNS_OF_DOTS) { return 0; }
        p.each = tj_pieces(tj_pieces(TJ_DOTS_PIECE, of->k), 4) * 4;
        p.pieces = tj_pieces(of->n, p.each);
        tj_do(call, tj_few_piece, &p, of->batch * p.pieces,
              of->alone || elements < TJ_LIGHT_PIECE ? TJ_BY_ONE : elements < TJ_DOTS_SHARED ? TJ_BY_NEAR : TJ_BY_ALL);
        return 1;
    }
    #else
    static int tj_of_few_rows(const tj_call* call, const tj_operands* of, const tj_tiles* by) { return 0; }
    static int tj_vector_bits(void) { return 0; }
    static const tj_tiles* tj_tiles_of(int bits, int wide) { return 0; }
    static void tj_tile_products(const tj_call* call, const tj_operands* of, const tj_tiles* by) { abort(); } /* nobody has tiles */
    #endif
    """
    int tj_thirds
    int tj_vector_bits() noexcept
