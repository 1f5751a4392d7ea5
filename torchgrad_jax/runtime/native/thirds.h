/* Products of float32 matrices by tiles of bfloat16 (Intel's AMX), to float32's precision: included by `tiling.pxd`.

   A float32 of 24 bits is the sum of three bfloat16 of 8, exactly. Of the nine products of two numbers' thirds the six largest are added up in float32;
   what is left out is at most 2**-24 of the product, as much as one rounding, and mostly an eighth of that. Where a product of float32 numbers is exact,
   this is, too.

   A strip has 32 rows or columns of a matrix: for each 32 terms a step, the thirds in turn, each as two tiles of 16 rows of 64 bytes. Rows of the left
   matrix's tiles have 32 terms of one row; rows of the right one's have two terms of 16 columns, in pairs. Numbers of which a third would be out of
   bfloat16's range (infinite, none, beyond it, or nearer to 0 than 2**-100) are not for this: a step that has one begins with TJ_NO_THIRDS. */
#define TJ_AMX __attribute__((target("avx512f,avx512vl,avx512bw,avx2,fma,amx-tile,amx-bf16")))
enum { TJ_SIDE_OF_TILE = 16, TJ_TILE = 1024, TJ_STEP = 6 * TJ_TILE, TJ_NO_THIRDS = 0x7fff };
enum { TJ_LEAST_OF_THIRDS = (127 - 100) << 23 };

/* What is found out about numbers on the way: `nearest` to 0 but for 0 itself, twice their bits less 1; and `finite`, no number if one of their thirds is not. */
typedef struct {
    __m512i nearest;
    __m512 finite;
} tj_found;
/* A float32 vector's thirds, each in the upper halves. */
TJ_INLINE TJ_AMX void tj_to_thirds(__m512 given, __m512i thirds[3], tj_found* found) {
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32((int)0xffff0000);
    __m512i bits = _mm512_castps_si512(given);
    __m512 rest;
    thirds[0] = _mm512_and_si512(_mm512_add_epi32(bits, half), upper);
    rest = _mm512_sub_ps(given, _mm512_castsi512_ps(thirds[0]));
    thirds[1] = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(rest), half), upper);
    rest = _mm512_sub_ps(rest, _mm512_castsi512_ps(thirds[1]));
    thirds[2] = _mm512_castps_si512(rest);
    found->nearest = _mm512_min_epu32(found->nearest, _mm512_sub_epi32(_mm512_add_epi32(bits, bits), _mm512_set1_epi32(1)));
    found->finite = _mm512_fmadd_ps(rest, _mm512_setzero_ps(), found->finite);
}
TJ_INLINE TJ_AMX tj_found tj_nothing_found(void) {
    tj_found found = {_mm512_set1_epi32(-1), _mm512_setzero_ps()};
    return found;
}
TJ_INLINE TJ_AMX int tj_has_none(const tj_found* found) {
    return _mm512_cmplt_epu32_mask(found->nearest, _mm512_set1_epi32((int)(2u * TJ_LEAST_OF_THIRDS - 1))) |
           _mm512_cmp_ps_mask(found->finite, found->finite, _CMP_UNORD_Q);
}
/* Rows become columns, of 16 x 16 pairs of bfloat16. */
TJ_INLINE TJ_AMX void tj_turn_pairs(__m512i rows[16]) {
    __m512i made[16];
    int i;
    TJ_UNROLLED for (i = 0; i < 16; i += 2) {
        made[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        made[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    TJ_UNROLLED for (i = 0; i < 16; i += 4) {
        rows[i] = _mm512_unpacklo_epi64(made[i], made[i + 2]);
        rows[i + 1] = _mm512_unpackhi_epi64(made[i], made[i + 2]);
        rows[i + 2] = _mm512_unpacklo_epi64(made[i + 1], made[i + 3]);
        rows[i + 3] = _mm512_unpackhi_epi64(made[i + 1], made[i + 3]);
    }
    TJ_UNROLLED for (i = 0; i < 4; i++) {
        made[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
        made[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xdd);
        made[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
        made[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xdd);
    }
    TJ_UNROLLED for (i = 0; i < 8; i++) {
        rows[i] = _mm512_shuffle_i32x4(made[i], made[i + 8], 0x88);
        rows[i + 8] = _mm512_shuffle_i32x4(made[i], made[i + 8], 0xdd);
    }
}
TJ_INLINE TJ_AMX void tj_keep_tiles(__m512i made[3][16], char* to, const int turned) {
    int third, i;
    TJ_UNROLLED for (third = 0; third < 3; third++) {
        if (turned) { tj_turn_pairs(made[third]); }
        TJ_UNROLLED for (i = 0; i < 16; i++) { _mm512_store_si512(to + third * 2 * TJ_TILE + i * 64, made[third][i]); }
    }
}
/* How many of 16 from `begin` on there are of `count`, as a mask. */
TJ_INLINE __mmask16 tj_so_many(int64_t count, int64_t begin) {
    return count - begin >= 16 ? 0xffff : count > begin ? (__mmask16)((1 << (count - begin)) - 1) : 0;
}
/* Half a step of `count` rows whose terms lie next to each other, or, turned, of as many columns of the right matrix. */
TJ_INLINE TJ_AMX int tj_half_of_rows(char* to, const float* from, int64_t lead, int64_t count, int64_t terms, const int turned) {
    const __m512i pick = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7,
                                          5, 3, 1);
    __mmask16 first = tj_so_many(terms, 0), second = tj_so_many(terms, 16);
    tj_found found = tj_nothing_found();
    __m512i made[3][16], low[3], high[3];
    int i, third;
    TJ_UNROLLED for (i = 0; i < 16; i++, from += lead) {
        __mmask16 there = i < count ? 0xffff : 0;
        tj_to_thirds(_mm512_maskz_loadu_ps(first & there, from), low, &found);
        tj_to_thirds(_mm512_maskz_loadu_ps(second & there, from + 16), high, &found);
        TJ_UNROLLED for (third = 0; third < 3; third++) { made[third][i] = _mm512_permutex2var_epi16(low[third], pick, high[third]); }
    }
    tj_keep_tiles(made, to, turned);
    return tj_has_none(&found);
}
/* Half a step of `count` columns that lie next to each other, or, turned, of as many rows of the left matrix. */
TJ_INLINE TJ_AMX int tj_half_of_columns(char* to, const float* from, int64_t lead, int64_t count, int64_t terms, const int turned) {
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    __mmask16 there = tj_so_many(count, 0);
    tj_found found = tj_nothing_found();
    __m512i made[3][16], low[3], high[3];
    int i, third;
    TJ_UNROLLED for (i = 0; i < 16; i++, from += 2 * lead) {
        tj_to_thirds(_mm512_maskz_loadu_ps(2 * i < terms ? there : 0, from), low, &found);
        tj_to_thirds(_mm512_maskz_loadu_ps(2 * i + 1 < terms ? there : 0, from + lead), high, &found);
        TJ_UNROLLED for (third = 0; third < 3; third++) {
            made[third][i] = _mm512_or_si512(_mm512_srli_epi32(low[third], 16), _mm512_and_si512(high[third], upper));
        }
    }
    tj_keep_tiles(made, to, turned);
    return tj_has_none(&found);
}
#define TJ_HALF(name, what, turned)                                                                                                  \
    TJ_AMX static int name(char* to, const float* from, int64_t lead, int64_t count, int64_t terms) {                                \
        return what(to, from, lead, count, terms, turned);                                                                           \
    }
TJ_HALF(tj_half_left_rows, tj_half_of_rows, 0)
TJ_HALF(tj_half_right_rows, tj_half_of_rows, 1)
TJ_HALF(tj_half_left_columns, tj_half_of_columns, 1)
TJ_HALF(tj_half_right_columns, tj_half_of_columns, 0)
#undef TJ_HALF
typedef int (*tj_half_step)(char*, const float*, int64_t, int64_t, int64_t);
/* A step of `count` rows or columns: the second 16 are so many elements `beside` the first. */
TJ_INLINE void tj_make_step(tj_half_step half, char* to, const float* from, int64_t lead, int64_t count, int64_t terms, int64_t beside) {
    int found = half(to, from, lead, count, terms);
    if (count > TJ_SIDE_OF_TILE) { found |= half(to + TJ_TILE, from + beside, lead, count - TJ_SIDE_OF_TILE, terms); }
    if (found) { *(uint16_t*)to = TJ_NO_THIRDS; }
}

/* Load a third of the tiles on the left, or on the right, and multiply those that are loaded. */
#define TJ_LEFT(third)                                                                   \
    _tile_loadd(4, x + third * 2 * TJ_TILE, 64);                                         \
    if (rows == 2) { _tile_loadd(5, x + third * 2 * TJ_TILE + TJ_TILE, 64); }
#define TJ_RIGHT(third)                                                                  \
    _tile_loadd(6, y + third * 2 * TJ_TILE, 64);                                         \
    if (columns == 2) { _tile_loadd(7, y + third * 2 * TJ_TILE + TJ_TILE, 64); }
#define TJ_MULTIPLY()                                                                    \
    _tile_dpbf16ps(0, 4, 6);                                                             \
    if (columns == 2) { _tile_dpbf16ps(1, 4, 7); }                                       \
    if (rows == 2) { _tile_dpbf16ps(2, 5, 6); }                                          \
    if (rows == 2 && columns == 2) { _tile_dpbf16ps(3, 5, 7); }
/* So many rows and columns of tiles, `lead` bytes from one row of `out` to the next, to which they are added if `onto`. */
TJ_INLINE TJ_AMX void tj_sum_of_thirds(int64_t terms, const char* x, const char* y, float* out, int64_t lead, int onto, const int rows, const int columns,
                                       const int mirrored) {
    float* below = out + TJ_SIDE_OF_TILE * (lead / 4);
    __asm__ volatile("" ::: "memory"); /* what was written before is read: not all compilers' functions for tiles say that they read memory */
    if (onto) {
        _tile_loadd(0, out, lead);
        if (columns == 2) { _tile_loadd(1, out + TJ_SIDE_OF_TILE, lead); }
        if (rows == 2) { _tile_loadd(2, below, lead); }
        if (rows == 2 && columns == 2) { _tile_loadd(3, below + TJ_SIDE_OF_TILE, lead); }
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (; terms > 0; terms -= TJ_TERMS_OF_STEP, x += TJ_STEP, y += TJ_STEP) {
        if (mirrored) {
            TJ_RIGHT(0) TJ_LEFT(2) TJ_MULTIPLY() TJ_LEFT(1) TJ_MULTIPLY() TJ_RIGHT(1) TJ_MULTIPLY() TJ_LEFT(0) TJ_MULTIPLY() TJ_RIGHT(2) TJ_MULTIPLY()
            TJ_RIGHT(0) TJ_MULTIPLY()
        } else {
            TJ_LEFT(0) TJ_RIGHT(2) TJ_MULTIPLY() TJ_RIGHT(1) TJ_MULTIPLY() TJ_LEFT(1) TJ_MULTIPLY() TJ_RIGHT(0) TJ_MULTIPLY() TJ_LEFT(2) TJ_MULTIPLY()
            TJ_LEFT(0) TJ_MULTIPLY()
        }
    }
    _tile_stored(0, out, lead);
    if (columns == 2) { _tile_stored(1, out + TJ_SIDE_OF_TILE, lead); }
    if (rows == 2) { _tile_stored(2, below, lead); }
    if (rows == 2 && columns == 2) { _tile_stored(3, below + TJ_SIDE_OF_TILE, lead); }
}
#undef TJ_LEFT
#undef TJ_RIGHT
#undef TJ_MULTIPLY
/* Eight tiles of 16 rows of 64 bytes: what a thread says before it multiplies, and that it has done so after. */
TJ_AMX static void tj_begin_thirds(void) {
    static const struct { uint8_t palette, row, none[14]; uint16_t bytes[16]; uint8_t rows[16]; } how = {
        1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&how);
}
TJ_AMX static void tj_end_thirds(void) { _tile_release(); }
/* Whether all steps of strips have thirds. */
static int tj_have_thirds(int64_t terms, const char* x, const char* y) {
    for (; terms > 0; terms -= TJ_TERMS_OF_STEP, x += TJ_STEP, y += TJ_STEP) {
        if (*(const uint16_t*)x == TJ_NO_THIRDS || *(const uint16_t*)y == TJ_NO_THIRDS) { return 0; }
    }
    return 1;
}
/* What a part of a result of `rows` and at most 32 columns is, where it lies: as of `tj_operands`. add: whether the sums are added to what is there, as
   they are; onto: whether they begin with it. mirrored: whether they are in the order that those of the transpose have. */
typedef struct {
    float* out;
    int64_t lead, rest_lead, rows, columns;
    int add, onto, mirrored;
    const float *bias, *rest;
} tj_part;
TJ_AMX static void tj_multiply_part(int64_t terms, const char* x, const char* y, const tj_part* p) {
    float room[32 * 32] __attribute__((aligned(64))), *out = room;
    int64_t lead = 32, i, j;
    if (p->rows == 32 && p->columns == 32 && !p->add && !p->bias && !p->rest) { out = p->out, lead = p->lead; }
    if (p->onto && out == room) {
        for (i = 0; i < p->rows; i++) {
            for (j = 0; j < p->columns; j += 16) {
                _mm512_store_ps(room + i * 32 + j, _mm512_maskz_loadu_ps(tj_so_many(p->columns, j), p->out + i * p->lead + j));
            }
        }
    }
    #define TJ_SUM(rows, columns)                                                                            \
        if (p->mirrored) { tj_sum_of_thirds(terms, x, y, out, lead * 4, p->onto, rows, columns, 1); }        \
        else { tj_sum_of_thirds(terms, x, y, out, lead * 4, p->onto, rows, columns, 0); }
    if (p->rows > TJ_SIDE_OF_TILE) {
        if (p->columns > TJ_SIDE_OF_TILE) { TJ_SUM(2, 2) } else { TJ_SUM(2, 1) }
    } else if (p->columns > TJ_SIDE_OF_TILE) { TJ_SUM(1, 2) } else { TJ_SUM(1, 1) }
    #undef TJ_SUM
    for (i = 0; out == room && i < p->rows; i++) {
        for (j = 0; j < p->columns; j += 16) {
            __mmask16 there = tj_so_many(p->columns, j);
            float* to = p->out + i * p->lead + j;
            __m512 sum = _mm512_load_ps(room + i * 32 + j);
            if (p->add) { sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(there, to)); }
            if (p->bias) { sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(there, p->bias + j)); }
            if (p->rest) { sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(there, p->rest + i * p->rest_lead + j)); }
            _mm512_mask_storeu_ps(to, there, sum);
        }
    }
}

/* A product by thirds: pieces are of `rows` x `columns` of the result, `down` x `across` of them. Of so many `terms` at a time the right matrix's
   strips are kept, and `abreast` of the left matrix, of each of which the first cache holds as many terms as are added up at once. */
enum { TJ_KEPT_OF_RIGHT = 3 << 18, TJ_BYTES_OF_TERM = 6 * 32, TJ_LEFT_ABREAST = 8 };
typedef struct {
    tj_operands of;
    int64_t terms, rows, columns, down, across, apart, abreast;
} tj_by_thirds;
/* which: of what the strips on the right are. */
typedef struct {
    int64_t which;
    char *left, *right;
} tj_kept_thirds;

/* Make strips, `apart` bytes from one to the next, of so many `terms` of rows of the left matrix, or of columns of the right one, from `begin` to before
   `end`: those that lie next to each other step by step, so that memory is read in a row. */
static void tj_keep(const tj_matrices* of, int right, int64_t begin, int64_t end, int64_t t, int64_t terms, int64_t apart, char* to) {
    int across = right ? !of->turned : of->turned;
    int64_t strips = tj_pieces(end - begin, 32), steps = tj_pieces(terms, TJ_TERMS_OF_STEP), i;
    int64_t beside = across ? TJ_SIDE_OF_TILE : TJ_SIDE_OF_TILE * of->lead;
    tj_half_step half = right ? (across ? tj_half_right_columns : tj_half_right_rows) : across ? tj_half_left_columns : tj_half_left_rows;
    for (i = 0; i < strips * steps; i++) {
        int64_t strip = across ? i % strips : i / steps, step = across ? i / strips : i % steps, s = step * TJ_TERMS_OF_STEP, place = begin + strip * 32;
        const float* from = (const float*)(right ? tj_at(of, 0, t + s, place, 4) : tj_at(of, 0, place, t + s, 4));
        tj_make_step(half, to + strip * apart + step * TJ_STEP, from, of->lead, end - place < 32 ? end - place : 32, terms - s, beside);
    }
}
/* A part without thirds, where a strip has numbers that have none: of what lies in the matrices, a few rows at a time. */
static void tj_multiply_plainly(const tj_by_thirds* p, int64_t row, int64_t column, int64_t t, int64_t terms, const tj_part* part) {
    const tj_matrices *x = &p->of.x, *y = &p->of.y;
    const tj_tiles* by = &tj_single_512_tiles;
    const char* from = tj_at(y, 0, t, column, 4);
    float room[TJ_TERMS * 32];
    int64_t i;
    if (y->turned) { by->strip(room, from, y->lead, part->columns, by->columns, terms); }
    else { by->strips(room, from, y->lead, part->columns, by->columns, by->columns, 0, terms); }
    for (i = 0; i < part->rows; i += by->rows) {
        by->tile(terms, tj_at(x, 0, row + i, t, 4), x->turned ? 1 : x->lead, x->turned ? x->lead : 1, room, by->columns, part->bias,
                 part->rest ? part->rest + i * part->rest_lead : 0, part->rest_lead, part->out + i * part->lead, part->lead, part->add || part->onto,
                 part->rows - i < by->rows ? part->rows - i : by->rows, part->columns);
    }
}
/* Add the products of a strip on the left, whose terms from `t` on are kept, with those on the right. */
static void tj_multiply_strip(const tj_by_thirds* p, int64_t row, int64_t begin, int64_t end, int64_t t, int64_t terms, const char* left,
                              const char* right) {
    const tj_operands* of = &p->of;
    tj_part part = {0};
    int64_t s, j;
    part.lead = of->out_lead ? of->out_lead : of->n;
    part.rest_lead = of->n;
    part.mirrored = of->mirrored;
    part.rows = of->m - row < 32 ? of->m - row : 32;
    for (s = 0; s < terms; s += TJ_TERMS) {
        int64_t some = terms - s < TJ_TERMS ? terms - s : TJ_TERMS;
        int last = t + s + some == of->k;
        part.onto = t + s > 0;
        part.add = of->add && !part.onto;
        for (j = begin; j < end; j += 32) {
            const char *x = left + s * TJ_BYTES_OF_TERM, *y = right + (j - begin) / 32 * p->apart + s * TJ_BYTES_OF_TERM;
            part.out = (float*)of->out + row * part.lead + j;
            part.columns = end - j < 32 ? end - j : 32;
            part.bias = of->bias && last ? (const float*)of->bias + j : 0;
            part.rest = of->rest && last ? (const float*)of->rest + row * of->n + j : 0;
            if (tj_have_thirds(some, x, y)) { tj_multiply_part(some, x, y, &part); }
            else { tj_multiply_plainly(p, row, j, t + s, some, &part); }
        }
    }
}
static void tj_piece_by_thirds(const void* work, int64_t piece, tj_hand* hand) {
    const tj_by_thirds* p = (const tj_by_thirds*)work;
    const tj_operands* of = &p->of;
    tj_kept_thirds* kept = (tj_kept_thirds*)hand->kept;
    int64_t block = piece / p->down, first = piece % p->down * p->rows, begin = block * p->columns, t, row;
    int64_t last = first + p->rows < of->m ? first + p->rows : of->m, end = begin + p->columns < of->n ? begin + p->columns : of->n, group, past;
    if (!kept) {
        int64_t of_left = p->abreast * p->apart;
        hand->kept = kept = (tj_kept_thirds*)malloc(sizeof(tj_kept_thirds) + TJ_LINE + (size_t)(of_left + p->columns / 32 * p->apart));
        if (!kept) { abort(); }
        kept->which = -1;
        kept->left = (char*)(((uintptr_t)(kept + 1) + TJ_LINE - 1) / TJ_LINE * TJ_LINE);
        kept->right = kept->left + of_left;
    }
    tj_begin_thirds();
    for (t = 0; t < of->k; t += p->terms) {
        int64_t terms = of->k - t < p->terms ? of->k - t : p->terms, which = block * of->k + t;
        if (kept->which != which) { tj_keep(&of->y, 1, begin, end, t, terms, p->apart, kept->right); }
        kept->which = which;
        for (group = first; group < last; group = past) {
            past = group + p->abreast * 32 < last ? group + p->abreast * 32 : last;
            tj_keep(&of->x, 0, group, past, t, terms, p->apart, kept->left);
            for (row = group; row < past; row += 32) {
                tj_multiply_strip(p, row, begin, end, t, terms, kept->left + (row - group) / 32 * p->apart, kept->right);
            }
        }
    }
    tj_end_thirds();
}
/* Cut one side for threads, the longer one: of what the other side has each makes all. If all terms are kept, each thread makes the right matrix's strips
   once for several pieces of rows. */
static void tj_cut_for_threads(tj_by_thirds* p, int64_t parts) {
    const tj_operands* of = &p->of;
    int kept = of->k <= p->terms;
    if (kept ? 2 * of->m >= of->n && of->m >= 128 : of->m >= of->n) { p->rows = tj_pieces(tj_pieces(of->m, kept ? 2 * parts : parts), 32) * 32; }
    else { p->columns = tj_pieces(tj_pieces(of->n, tj_pieces(of->n, p->columns) * parts), 32) * 32; }
}
static void tj_multiply_by_thirds(const tj_call* call, const tj_operands* of) {
    tj_by_thirds p = {*of};
    int64_t all = of->m * of->n * of->k, most = TJ_KEPT_OF_RIGHT / (of->n * 6), hands, units;
    int light = all < (call ? TJ_TILED_ALONE : TJ_TILED_ALONE_HERE), alone = of->alone || all < TJ_LIGHT;
    hands = alone ? 1 : tj_hands(call);
    if (most < TJ_TERMS || of->x.turned) { most = TJ_TERMS; }
    p.terms = of->k > most ? most / TJ_TERMS * TJ_TERMS : tj_pieces(of->k, 32) * 32;
    p.columns = tj_pieces(tj_pieces(of->n, tj_pieces(of->n, TJ_KEPT_OF_RIGHT / (p.terms * 6))), 32) * 32;
    p.rows = tj_pieces(of->m, 32) * 32;
    units = tj_pieces(of->n, p.columns);
    if (units < 2 * hands && hands > 1) { tj_cut_for_threads(&p, tj_pieces(hands, units)); }
    p.down = tj_pieces(of->m, p.rows);
    p.across = tj_pieces(of->n, p.columns);
    p.apart = p.terms * TJ_BYTES_OF_TERM + TJ_LINE;
    p.abreast = !of->x.turned ? 1 : p.rows / 32 < TJ_LEFT_ABREAST ? p.rows / 32 : TJ_LEFT_ABREAST;
    tj_do(call, tj_piece_by_thirds, &p, p.down * p.across, alone ? TJ_BY_ONE : light ? TJ_BY_NEAR : TJ_BY_ALL);
}
/* Whether the processor has such tiles and the system lets this process use them. */
static int tj_thirds_are_allowed(void) {
    enum { TJ_ASK_FOR_PERMISSION = 0x1023, TJ_TILE_DATA = 18, TJ_BF16_AND_TILES = 1 << 22 | 1 << 24 };
    unsigned a, b, c, d;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512bw")) { return 0; }
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & TJ_BF16_AND_TILES) != TJ_BF16_AND_TILES) { return 0; }
    return syscall(SYS_arch_prctl, TJ_ASK_FOR_PERMISSION, TJ_TILE_DATA) == 0;
}
