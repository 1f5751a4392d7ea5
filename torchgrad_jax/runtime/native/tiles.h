/* Strips and tiles of matrices of TJ_NUMBER, for processors with TJ_TARGET's instructions and vectors of TJ_LANES: included by `tiling.pxd` for each.

   A tile of the result is TJ_ROWS x 2 vectors, sums in registers, over as many terms as its two strips have. A strip has for each term the elements of
   TJ_ROOM rows of the left matrix, or of 2 vectors of columns of the right one, next to each other. */
#define TJ_WIDTH (2 * TJ_LANES)
typedef TJ_NUMBER TJ_NAME(vector) __attribute__((vector_size(TJ_LANES * sizeof(TJ_NUMBER)), aligned(sizeof(TJ_NUMBER)), may_alias));

/* The sums of the products of `rows` elements on the left, `x_row` apart, and of `vectors` on the right, to which `bias` is added if there is one, and then
   the `rest`, rows of `rest_lead`. rows, vectors, and whether rows are apart: constants, so that all is in registers, of which each address serves three
   rows. */
TJ_INLINE TJ_TARGET void TJ_NAME(sum)(int64_t terms, const TJ_NUMBER* x, int64_t x_row, int64_t x_step, const TJ_NUMBER* y, int64_t y_step,
                                      const TJ_NUMBER* bias, const TJ_NUMBER* rest, int64_t rest_lead, TJ_NUMBER* out, int64_t lead, int add,
                                      const int rows, const int vectors, const int apart) {
    TJ_NAME(vector) sums[TJ_ROWS][2], beside[2];
    const TJ_NUMBER* threes[TJ_ROWS / 3];
    int i, j;
    TJ_UNROLLED for (i = 0; i < rows; i++) { TJ_UNROLLED for (j = 0; j < vectors; j++) { sums[i][j] = (TJ_NAME(vector)){0}; } }
    TJ_UNROLLED for (i = 0; apart && i < rows; i += 3) { threes[i / 3] = x + i * x_row; }
    for (; terms > 0; terms--, x += x_step, y += y_step) {
        TJ_UNROLLED for (j = 0; j < vectors; j++) { beside[j] = *(const TJ_NAME(vector)*)(y + j * TJ_LANES); }
        TJ_UNROLLED for (i = 0; i < rows; i++) {
            TJ_NUMBER number = apart ? threes[i / 3][i % 3 * x_row] : x[i];
            TJ_UNROLLED for (j = 0; j < vectors; j++) { sums[i][j] += beside[j] * number; }
        }
        TJ_UNROLLED for (i = 0; apart && i < rows; i += 3) { threes[i / 3]++; }
    }
    TJ_UNROLLED for (i = 0; i < rows; i++) {
        TJ_UNROLLED for (j = 0; j < vectors; j++) {
            TJ_NAME(vector)* to = (TJ_NAME(vector)*)(out + i * lead + j * TJ_LANES);
            if (add) { sums[i][j] += *to; }
            if (bias) { sums[i][j] += *(const TJ_NAME(vector)*)(bias + j * TJ_LANES); }
            if (rest) { sums[i][j] += *(const TJ_NAME(vector)*)(rest + i * rest_lead + j * TJ_LANES); }
            *to = sums[i][j];
        }
    }
}
#define TJ_SUM(rows, vectors, apart) TJ_NAME(sum)(terms, x, x_row, x_step, y, y_step, bias, rest, rest_lead, out, lead, add, rows, vectors, apart)
#define TJ_CASE(rows)                                     \
    case rows:                                            \
        if (x_row != 1) {                                 \
            if (vectors == 2) { TJ_SUM(rows, 2, 1); }     \
            else { TJ_SUM(rows, 1, 1); }                  \
        } else if (vectors == 2) { TJ_SUM(rows, 2, 0); }  \
        else { TJ_SUM(rows, 1, 0); }                      \
        break;
TJ_TARGET static void TJ_NAME(sums)(int64_t terms, const TJ_NUMBER* x, int64_t x_row, int64_t x_step, const TJ_NUMBER* y, int64_t y_step,
                                    const TJ_NUMBER* bias, const TJ_NUMBER* rest, int64_t rest_lead, TJ_NUMBER* out, int64_t lead, int add, int64_t rows,
                                    int vectors) {
    switch (rows) {
        TJ_CASE(1) TJ_CASE(2) TJ_CASE(3) TJ_CASE(4) TJ_CASE(5) TJ_CASE(6)
#if TJ_ROWS == 12
        TJ_CASE(7) TJ_CASE(8) TJ_CASE(9) TJ_CASE(10) TJ_CASE(11) TJ_CASE(12)
#endif
    }
}
#undef TJ_CASE
#undef TJ_SUM
/* A tile of `rows` x `columns`: written to `out`, or added to what is there. bias: 0, or what is added to each row; rest: 0, or what is added then, of as many
   rows and columns. */
TJ_TARGET static void TJ_NAME(tile)(int64_t terms, const void* x, int64_t x_row, int64_t x_step, const void* y, int64_t y_step, const void* bias,
                                    const void* rest, int64_t rest_lead, void* out, int64_t lead, int add, int64_t rows, int64_t columns) {
    int vectors = columns > TJ_LANES ? 2 : 1;
    TJ_NUMBER made[TJ_ROWS * TJ_WIDTH], *to = (TJ_NUMBER*)out;
    int64_t i, j;
    if (columns == vectors * TJ_LANES) {
        TJ_NAME(sums)(terms, (const TJ_NUMBER*)x, x_row, x_step, (const TJ_NUMBER*)y, y_step, (const TJ_NUMBER*)bias, (const TJ_NUMBER*)rest,
                      rest_lead, to, lead, add, rows, vectors);
        return;
    }
    TJ_NAME(sums)(terms, (const TJ_NUMBER*)x, x_row, x_step, (const TJ_NUMBER*)y, y_step, 0, 0, 0, made, TJ_WIDTH, 0, rows, vectors);
    for (i = 0; i < rows; i++) {
        for (j = 0; j < columns; j++) {
            TJ_NUMBER found = add ? to[i * lead + j] + made[i * TJ_WIDTH + j] : made[i * TJ_WIDTH + j];
            if (bias) { found += ((const TJ_NUMBER*)bias)[j]; }
            to[i * lead + j] = rest ? found + ((const TJ_NUMBER*)rest)[i * rest_lead + j] : found;
        }
    }
}
/* Make a strip of `count` rows or columns of which the terms lie next to each other, for each of `terms` so many `places`. What is in further places does not
   matter, but that it be a number of the matrix, or 0. */
TJ_TARGET static void TJ_NAME(strip)(void* made, const void* given, int64_t lead, int64_t count, int64_t places, int64_t terms) {
    TJ_NUMBER* to = (TJ_NUMBER*)made;
    const TJ_NUMBER *from = (const TJ_NUMBER*)given, *rows[8];
    int64_t i, j, t, together;
    for (i = 0; i < places; i += together) {
        together = sizeof(TJ_NUMBER) == 4 && i + 8 <= places ? 8 : 4;
        for (j = 0; j < together; j++) { rows[j] = from + (i + j < count ? i + j : count - 1) * lead; }
        for (t = 0; t + TJ_TURNED_AT_ONCE <= terms; t += TJ_TURNED_AT_ONCE) {
            if (together == 8) { TJ_TURN_EIGHT(rows, t, to + t * places + i, places); } else { TJ_TURN_FOUR(rows, t, to + t * places + i, places); }
        }
        for (; t < terms; t++) { for (j = 0; j < together; j++) { to[t * places + i + j] = rows[j][t]; } }
    }
}
/* Make strips, `apart` elements from one to the next, of `count` rows or columns which lie next to each other, `each` of them for one strip: so that memory is
   read in a row. */
TJ_TARGET static void TJ_NAME(strips)(void* made, const void* given, int64_t lead, int64_t count, int64_t each, int64_t places, int64_t apart,
                                      int64_t terms) {
    TJ_NUMBER* to = (TJ_NUMBER*)made;
    const TJ_NUMBER* from = (const TJ_NUMBER*)given;
    int64_t i, j, t;
    for (t = 0; t < terms; t++, to += places, from += lead) {
        TJ_NUMBER* strip = to;
        for (i = 0; i + each <= count; i += each, strip += apart) {
            if (each == TJ_WIDTH) { memcpy(strip, from + i, TJ_WIDTH * sizeof(TJ_NUMBER)); }
            else if (each == TJ_ROWS) { memcpy(strip, from + i, TJ_ROWS * sizeof(TJ_NUMBER)); }
            else { for (j = 0; j < each; j++) { strip[j] = from[i + j]; } }
        }
        if (i < count) {
            for (j = 0; i + j < count; j++) { strip[j] = from[i + j]; }
            for (; j < places; j++) { strip[j] = 0; }
        }
    }
}
/* The products of `rows` rows on the left and of `columns` rows of the right matrix's transpose, constants both, for which nothing is copied. */
#define TJ_AT(from) (*(const TJ_NAME(vector)*)(from))
TJ_INLINE TJ_TARGET void TJ_NAME(dot)(int64_t terms, const TJ_NUMBER* x, int64_t x_row, const TJ_NUMBER* y, int64_t y_row, const TJ_NUMBER* bias,
                                      TJ_NUMBER* out, int64_t lead, const int rows, const int columns) {
    TJ_NAME(vector) sums[TJ_FEW][4], beside[4];
    int64_t t;
    int i, j;
    TJ_UNROLLED for (i = 0; i < rows; i++) { TJ_UNROLLED for (j = 0; j < 4; j++) { sums[i][j] = (TJ_NAME(vector)){0}; } }
    for (t = 0; t + TJ_LANES <= terms; t += TJ_LANES) {
        TJ_UNROLLED for (j = 0; j < columns; j++) { beside[j] = TJ_AT(y + j * y_row + t); }
        TJ_UNROLLED for (i = 0; i < rows; i++) {
            TJ_NAME(vector) row = TJ_AT(x + i * x_row + t);
            TJ_UNROLLED for (j = 0; j < columns; j++) { sums[i][j] += row * beside[j]; }
        }
    }
    for (i = 0; i < rows; i++) {
        TJ_NUMBER four[4];
        TJ_ADD_UP(sums[i], four);
        for (j = 0; j < columns; j++) {
            int64_t rest = t;
            for (; rest < terms; rest++) { four[j] += x[i * x_row + rest] * y[j * y_row + rest]; }
            out[i * lead + j] = bias ? four[j] + bias[j] : four[j];
        }
    }
}
TJ_TARGET static void TJ_NAME(dots)(int64_t terms, const void* x, int64_t x_row, const void* y, int64_t y_row, const void* bias, void* out, int64_t lead,
                                    int64_t rows, int64_t columns) {
    const TJ_NUMBER *left = (const TJ_NUMBER*)x, *right = (const TJ_NUMBER*)y, *added = (const TJ_NUMBER*)bias;
    TJ_NUMBER* to = (TJ_NUMBER*)out;
    int64_t i, j, high, wide;
    #define TJ_DOT(rows, columns)                                                                                                                  \
        TJ_NAME(dot)(terms, left + i * x_row, x_row, right + j * y_row, y_row, added ? added + j : 0, to + i * lead + j, lead, rows, columns)
    for (j = 0; j < columns; j += wide) {
        wide = j + 4 <= columns ? 4 : 1;
        for (i = 0; i < rows; i += high) {
            high = i + TJ_FEW <= rows ? TJ_FEW : 1;
            if (wide == 4) { if (high == 1) { TJ_DOT(1, 4); } else { TJ_DOT(TJ_FEW, 4); } }
            else { if (high == 1) { TJ_DOT(1, 1); } else { TJ_DOT(TJ_FEW, 1); } }
        }
    }
    #undef TJ_DOT
}
static const tj_tiles TJ_NAME(tiles) = {TJ_ROWS, TJ_ROOM, TJ_WIDTH, sizeof(TJ_NUMBER), TJ_NAME(tile), TJ_NAME(strip), TJ_NAME(strips), TJ_NAME(dots)};
#undef TJ_AT
#undef TJ_ADD_UP
#undef TJ_FEW
#undef TJ_WIDTH
#undef TJ_NUMBER
#undef TJ_LANES
#undef TJ_ROWS
#undef TJ_ROOM
#undef TJ_NAME
#undef TJ_TARGET
#undef TJ_TURN_FOUR
#undef TJ_TURN_EIGHT
#undef TJ_TURNED_AT_ONCE
