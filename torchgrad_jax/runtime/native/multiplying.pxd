from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release
from cpython.pycapsule cimport PyCapsule_New

from torchgrad_jax.runtime.native cimport arrays, tiling

# A product goes by our own functions where the processor's instructions are ones that they are for: see `tiling`. Else it is cut into blocks of at most
# 64 x 64 x 64, or 32 x 32 x 256 where those are quicker, which BLAS multiplies by the thread that asks: for more it would wake threads of its own,
# which wait by spinning at the expense of others. Where the blocks are many, threads share them: see `sharing`.
cdef extern from *:
    """
    #include "torchgrad_jax/runtime/native/functions.h"
    /* Where a build of BLAS takes `int`, it finds it in the lower half of the 64 bits. */
    typedef void (*tj_sgemm)(int, int, int, int64_t, int64_t, int64_t, float, const float*, int64_t, const float*, int64_t, float, float*, int64_t);
    typedef void (*tj_dgemm)(int, int, int, int64_t, int64_t, int64_t, double, const double*, int64_t, const double*, int64_t, double, double*, int64_t);
    static tj_sgemm tj_single;
    static tj_dgemm tj_double;
    static int tj_minor, tj_narrow;
    /* BLAS has functions for vectors, too, which are the quicker ones where the matrix has more elements or rows, until threads share it. */
    enum { TJ_BLAS_ELEMENTS = 1 << 16, TJ_BLAS_ROWS = 128 };
    enum { TJ_F64 = 12, TJ_ROWS_FIRST = 101, TJ_AS_IT_IS = 111, TJ_TURNED = 112, TJ_SIDE = 64, TJ_NARROW = 32, TJ_BLOCK = 1 << 18, TJ_ALONE = 1 << 20, TJ_ALONE_HERE = 1 << 21, TJ_THIN = 4, TJ_OF_FEW_ROWS = 64, TJ_FEW_COLUMNS = 32 };
    static const tj_tiles* tj_tiled[2]; /* of single and double numbers: 0 where BLAS multiplies */

    /* Blocks are `rows` x `columns` of the result and `terms` of the sums; `down` x `across` of them in each matrix. */
    typedef struct {
        tj_operands of;
        int64_t rows, columns, terms, down, across;
        int wide;
    } tj_product;

    static void tj_multiply_block(const void* product, int64_t block, tj_hand* hand) {
        const tj_product* p = (const tj_product*)product;
        const tj_operands* of = &p->of;
        int64_t each = p->down * p->across, matrix = block / each, i = block % each % p->down * p->rows, j = block % each / p->down * p->columns, t;
        int64_t height = of->m - i < p->rows ? of->m - i : p->rows, width = of->n - j < p->columns ? of->n - j : p->columns, size = p->wide ? 8 : 4;
        int x_lies = of->x.turned ? TJ_TURNED : TJ_AS_IT_IS, y_lies = of->y.turned ? TJ_TURNED : TJ_AS_IT_IS;
        char* out = of->out + (matrix * of->m * of->n + i * of->n + j) * size;
        for (t = 0; t < of->k; t += p->terms) {
            int64_t depth = of->k - t < p->terms ? of->k - t : p->terms;
            const char *x = tj_at(&of->x, matrix, i, t, size), *y = tj_at(&of->y, matrix, t, j, size);
            if (p->wide) {
                tj_double(TJ_ROWS_FIRST, x_lies, y_lies, height, width, depth, 1.0, (const double*)x, of->x.lead, (const double*)y, of->y.lead,
                          t ? 1.0 : 0.0, (double*)out, of->n);
            } else {
                tj_single(TJ_ROWS_FIRST, x_lies, y_lies, height, width, depth, 1.0f, (const float*)x, of->x.lead, (const float*)y, of->y.lead,
                          t ? 1.0f : 0.0f, (float*)out, of->n);
            }
        }
    }
    /* A vector of k numbers times a matrix: by_rows: (n, k), as products with its rows, four at a time; by_terms: (k, n), as the sum of its rows, each
       times a number, four at a time. Rows begin `lead` numbers after one another. */
    enum { TJ_VECTOR = 16, TJ_MOST_TERMS = 2048 };
    #define TJ_TIMES_MATRIX(name, type)                                                                                                               \\
    TJ_CLONES static void tj_by_rows_##name(const type* TJ_ONLY x, const type* TJ_ONLY y, int64_t lead, type* TJ_ONLY out, int64_t k, int64_t n) {    \\
        int64_t i, j, whole = k - k % TJ_VECTOR;                                                                                                      \\
        int l, r;                                                                                                                                     \\
        if (n == 1) { /* the same order */                                                                                                            \\
            type lane[TJ_VECTOR] = {0}, sum;                                                                                                          \\
            for (i = 0; i < whole; i += TJ_VECTOR) { for (l = 0; l < TJ_VECTOR; l++) { lane[l] += x[i + l] * y[i + l]; } }                            \\
            for (l = 0; l < 8; l++) { lane[l] += lane[l + 8]; }                                                                                       \\
            for (l = 0; l < 4; l++) { lane[l] += lane[l + 4]; }                                                                                       \\
            sum = (lane[0] + lane[1]) + (lane[2] + lane[3]);                                                                                          \\
            for (i = whole; i < k; i++) { sum += x[i] * y[i]; }                                                                                       \\
            out[0] = sum;                                                                                                                             \\
            return;                                                                                                                                   \\
        }                                                                                                                                             \\
        for (j = 0; j < n; j += 4) {                                                                                                                  \\
            int many = n - j < 4 ? (int)(n - j) : 4;                                                                                                  \\
            const type *a = y + j * lead, *b = a + (many > 1) * lead, *c = b + (many > 2) * lead, *d = c + (many > 3) * lead;                         \\
            type lanes[4][TJ_VECTOR] = {{0}}, sums[4];                                                                                                \\
            for (i = 0; i < whole; i += TJ_VECTOR) {                                                                                                  \\
                for (l = 0; l < TJ_VECTOR; l++) {                                                                                                     \\
                    type z = x[i + l];                                                                                                                \\
                    lanes[0][l] += z * a[i + l];                                                                                                      \\
                    lanes[1][l] += z * b[i + l];                                                                                                      \\
                    lanes[2][l] += z * c[i + l];                                                                                                      \\
                    lanes[3][l] += z * d[i + l];                                                                                                      \\
                }                                                                                                                                     \\
            }                                                                                                                                         \\
            for (r = 0; r < 4; r++) { for (l = 0; l < 8; l++) { lanes[r][l] += lanes[r][l + 8]; } }                                                   \\
            for (r = 0; r < 4; r++) { for (l = 0; l < 4; l++) { lanes[r][l] += lanes[r][l + 4]; } }                                                   \\
            for (r = 0; r < 4; r++) { sums[r] = (lanes[r][0] + lanes[r][1]) + (lanes[r][2] + lanes[r][3]); }                                          \\
            for (i = whole; i < k; i++) { sums[0] += x[i] * a[i], sums[1] += x[i] * b[i], sums[2] += x[i] * c[i], sums[3] += x[i] * d[i]; }           \\
            for (r = 0; r < many; r++) { out[j + r] = sums[r]; }                                                                                      \\
        }                                                                                                                                             \\
    }                                                                                                                                                 \\
    TJ_CLONES static void tj_by_terms_##name(const type* TJ_ONLY x, const type* TJ_ONLY y, int64_t lead, type* TJ_ONLY out, int64_t k, int64_t n) {   \\
        int64_t i, j;                                                                                                                                 \\
        for (j = 0; j < n; j++) { out[j] = 0; }                                                                                                       \\
        for (i = 0; i + 4 <= k; i += 4) {                                                                                                             \\
            const type *a = y + i * lead, *b = a + lead, *c = b + lead, *d = c + lead;                                                                \\
            type p = x[i], q = x[i + 1], r = x[i + 2], s = x[i + 3];                                                                                  \\
            for (j = 0; j < n; j++) { out[j] = out[j] + p * a[j] + q * b[j] + r * c[j] + s * d[j]; }                                                  \\
        }                                                                                                                                             \\
        for (; i < k; i++) { for (j = 0; j < n; j++) { out[j] += x[i] * y[i * lead + j]; } }                                                          \\
    }                                                                                                                                                 \\
    static void tj_vector_##name(const type* x, int64_t step, const tj_matrices* y, const char* start, char* out, int64_t k, int64_t n) {             \\
        type room[TJ_MOST_TERMS];                                                                                                                     \\
        int64_t i;                                                                                                                                    \\
        if (step != 1) {                                                                                                                              \\
            for (i = 0; i < k; i++) { room[i] = x[i * step]; }                                                                                        \\
            x = room;                                                                                                                                 \\
        }                                                                                                                                             \\
        if (y->turned) { tj_by_rows_##name(x, (const type*)start, y->lead, (type*)out, k, n); }                                                       \\
        else { tj_by_terms_##name(x, (const type*)start, y->lead, (type*)out, k, n); }                                                                \\
    }
    TJ_TIMES_MATRIX(one, float)
    TJ_TIMES_MATRIX(two, double)
    #undef TJ_TIMES_MATRIX
    #define TJ_REAL float
    #define TJ_NAMED(name) name##_one
    #include "torchgrad_jax/runtime/native/small.h"
    #undef TJ_REAL
    #undef TJ_NAMED
    #define TJ_REAL double
    #define TJ_NAMED(name) name##_two
    #include "torchgrad_jax/runtime/native/small.h"
    #undef TJ_REAL
    #undef TJ_NAMED
    enum { TJ_FEW = 4, TJ_SMALL_PIECE = 1 << 16 }; /* of a small matrix's rows and columns; multiply-adds */
    typedef struct { const tj_operands* of; int64_t each; int wide; } tj_small_products;
    static void tj_small_piece(const void* work, int64_t piece, tj_hand* hand) {
        const tj_small_products* p = (const tj_small_products*)work;
        int64_t first = piece * p->each, last = first + p->each < p->of->batch ? first + p->each : p->of->batch;
        if (p->wide) { tj_small_two(p->of, first, last); }
        else { tj_small_one(p->of, first, last); }
    }
    static void tj_of_small(const tj_call* call, const tj_operands* of, int wide) {
        int64_t each = of->m * of->n * of->k;
        tj_small_products p = {of, tj_pieces(TJ_SMALL_PIECE, each), wide};
        tj_do(call, tj_small_piece, &p, tj_pieces(of->batch, p.each), of->batch * each < TJ_BLOCK ? TJ_BY_ONE : TJ_BY_ALL);
    }
    /* A single column is a vector from the right: the operands as if it were the row. */
    static void tj_row_first(tj_matrices* x, tj_matrices* y, int64_t* rows, int64_t* columns) {
        tj_matrices column = *y;
        *y = *x, *x = column;
        x->turned = !x->turned, y->turned = !y->turned;
        *columns = *rows, *rows = 1;
    }
    /* Whether the products are of few vectors and small matrices; then they have been carried out. */
    static int tj_of_vectors(const tj_operands* of, int wide) {
        int64_t matrix, i, size = wide ? 8 : 4, rows = of->m, columns = of->n;
        tj_matrices x = of->x, y = of->y;
        if (rows >= TJ_THIN) {
            if (columns > 1) { return 0; }
            tj_row_first(&x, &y, &rows, &columns);
        }
        if (columns == 1 && !y.turned && y.lead == 1) { y.turned = 1, y.lead = of->k; } /* what lies in a row is read as one */
        if (of->k > TJ_MOST_TERMS || of->k * columns > TJ_BLOCK / 4 || of->batch * of->m * of->n * of->k > TJ_ALONE_HERE) { return 0; }
        for (matrix = 0; matrix < of->batch; matrix++) {
            const char* start = tj_at(&y, matrix, 0, 0, size);
            for (i = 0; i < rows; i++) {
                const char* row = tj_at(&x, matrix, i, 0, size);
                char* out = of->out + (matrix * rows + i) * columns * size;
                if (wide) { tj_vector_two((const double*)row, x.turned ? x.lead : 1, &y, start, out, of->k, columns); }
                else { tj_vector_one((const float*)row, x.turned ? x.lead : 1, &y, start, out, of->k, columns); }
            }
        }
        return 1;
    }
    /* A vector times a large matrix, which takes what reading the matrix takes. Pieces are `each` of its rows or columns; where they are of the sums'
       terms, each has sums of its own, which are added up in their order. */
    enum { TJ_SHARED_ELEMENTS = 1 << 18, TJ_PIECE_ELEMENTS = 1 << 16, TJ_WIDE_ROWS = 1 << 12, TJ_MOST_SUMS = 16 };
    typedef struct {
        const char *x, *y;
        char* out;
        int64_t k, n, lead, each;
        int wide, by_rows, by_terms;
    } tj_large_vector;
    static void tj_large_vector_piece(const void* work, int64_t piece, tj_hand* hand) {
        const tj_large_vector* p = (const tj_large_vector*)work;
        int64_t size = p->wide ? 8 : 4, first = piece * p->each, length = p->by_terms ? p->k : p->n, count = length - first < p->each ? length - first : p->each;
        int64_t terms = p->by_terms ? count : p->k, columns = p->by_terms ? p->n : count;
        const char *x = p->x + (p->by_terms ? first * size : 0), *y = p->y + (p->by_rows || p->by_terms ? first * p->lead : first) * size;
        char* out = p->out + (p->by_terms ? piece * p->n : first) * size;
        if (p->wide) { (p->by_rows ? tj_by_rows_two : tj_by_terms_two)((const double*)x, (const double*)y, p->lead, (double*)out, terms, columns); }
        else { (p->by_rows ? tj_by_rows_one : tj_by_terms_one)((const float*)x, (const float*)y, p->lead, (float*)out, terms, columns); }
    }
    /* Whether the product is of one vector and has been carried out. */
    static int tj_of_large_vector(const tj_call* call, const tj_operands* of, int wide) {
        int64_t size = wide ? 8 : 4, rows = of->m, columns = of->n, elements, pieces, i, j;
        tj_matrices x = of->x, y = of->y;
        tj_large_vector p = {0};
        char *vector = 0, *sums = 0;
        if (of->batch > 1 || (rows > 1 && columns > 1)) { return 0; }
        if (rows > 1) { tj_row_first(&x, &y, &rows, &columns); }
        elements = of->k * columns;
        p.x = x.start, p.y = y.start, p.out = of->out;
        p.k = of->k, p.n = columns, p.lead = y.lead;
        p.wide = wide, p.by_rows = y.turned, p.by_terms = !y.turned && columns < TJ_WIDE_ROWS;
        if (x.turned && x.lead != 1) {
            vector = (char*)malloc(of->k * size);
            if (!vector) { return 0; }
            for (i = 0; i < of->k; i++) { memcpy(vector + i * size, x.start + i * x.lead * size, size); }
            p.x = vector;
        }
        pieces = tj_pieces(elements, TJ_PIECE_ELEMENTS);
        if (p.by_terms) {
            pieces = pieces < TJ_MOST_SUMS ? pieces : TJ_MOST_SUMS;
            sums = (char*)malloc(pieces * columns * size);
            if (!sums) {
                free(vector);
                return 0;
            }
            p.out = sums;
        }
        p.each = tj_pieces(p.by_terms ? of->k : columns, pieces);
        if (p.by_rows) { p.each = tj_pieces(p.each, 4) * 4; }
        else { p.each = tj_pieces(p.each, TJ_VECTOR) * TJ_VECTOR; }
        pieces = tj_pieces(p.by_terms ? of->k : columns, p.each);
        tj_do(call, tj_large_vector_piece, &p, pieces, elements < TJ_SHARED_ELEMENTS);
        if (sums) {
            memcpy(of->out, sums, columns * size);
            for (i = 1; i < pieces; i++) {
                if (wide) { for (j = 0; j < columns; j++) { ((double*)of->out)[j] += ((double*)sums)[i * columns + j]; } }
                else { for (j = 0; j < columns; j++) { ((float*)of->out)[j] += ((float*)sums)[i * columns + j]; } }
            }
            free(sums);
        }
        free(vector);
        return 1;
    }
    /* Add a vector to each row. */
    #define TJ_ADD_TO_ROWS(name, type)                                                                    \\
    TJ_CLONES static void name(type* TJ_ONLY out, const type* TJ_ONLY bias, int64_t rows, int64_t n) {    \\
        int64_t j;                                                                                        \\
        for (; rows > 0; rows--, out += n) { for (j = 0; j < n; j++) { out[j] += bias[j]; } }             \\
    }
    TJ_ADD_TO_ROWS(tj_add_to_rows_one, float)
    TJ_ADD_TO_ROWS(tj_add_to_rows_two, double)
    #undef TJ_ADD_TO_ROWS
    /* Add what there is to be added: a bias to each row, and the rest, as one row. */
    static void tj_add_all(const tj_operands* of, int wide, const char* bias) {
        int64_t rows = of->batch * of->m, all = rows * of->n;
        if (wide) {
            if (bias) { tj_add_to_rows_two((double*)of->out, (const double*)bias, rows, of->n); }
            if (of->rest) { tj_add_to_rows_two((double*)of->out, (const double*)of->rest, 1, all); }
        } else {
            if (bias) { tj_add_to_rows_one((float*)of->out, (const float*)bias, rows, of->n); }
            if (of->rest) { tj_add_to_rows_one((float*)of->out, (const float*)of->rest, 1, all); }
        }
    }
    /* Cut the products into blocks that BLAS multiplies, and carry them out. call: XLA's; 0 if it is the interpreter that asks. */
    static void tj_carry_out_blocks(const tj_call* call, const tj_operands* of, int wide) {
        int narrow = tj_narrow && of->y.turned && !of->x.turned && of->m * of->n > TJ_NARROW * TJ_NARROW, side = narrow ? TJ_NARROW : TJ_SIDE;
        tj_product p = {*of, of->m, of->n, of->k, 0, 0, wide};
        if (narrow || of->m * of->n * of->k > TJ_BLOCK) {
            p.rows = tj_pieces(of->m, tj_pieces(of->m, side));
            p.columns = tj_pieces(of->n, tj_pieces(of->n, side));
            p.terms = TJ_BLOCK / (p.rows * p.columns);
            p.terms = tj_pieces(of->k, tj_pieces(of->k, p.terms));
        }
        p.down = tj_pieces(of->m, p.rows);
        p.across = tj_pieces(of->n, p.columns);
        tj_do(call, tj_multiply_block, &p, of->batch * p.down * p.across, of->batch * of->m * of->n * of->k < (call ? TJ_ALONE : TJ_ALONE_HERE));
    }
    /* Whether few columns were multiplied by the transpose of a long matrix, as a narrow layer's weights' gradient is: the transpose of the result is
       computed, for which the matrix is read as it lies, and turned round. */
    static int tj_of_few_columns(const tj_call* call, const tj_operands* of, int wide) {
        int64_t size = wide ? 8 : 4, i, j;
        tj_operands turned = *of;
        if (!of->x.turned || of->y.turned || of->add || of->batch > 1 || of->n > TJ_FEW_COLUMNS || of->m < 4 * of->n || of->m * of->k < TJ_BLOCK) { return 0; }
        turned.x = of->y, turned.y = of->x;
        turned.x.turned = 1, turned.y.turned = 0;
        turned.m = of->n, turned.n = of->m;
        turned.bias = turned.rest = 0;
        turned.out = (char*)malloc(of->m * of->n * size);
        if (!turned.out) { return 0; }
        tj_tile_products(call, &turned, tj_tiled[wide]);
        for (i = 0; i < of->m; i++) {
            for (j = 0; j < of->n; j++) { memcpy(of->out + (i * of->n + j) * size, turned.out + (j * of->m + i) * size, size); }
        }
        free(turned.out);
        tj_add_all(of, wide, of->bias);
        return 1;
    }
    static void tj_carry_out(const tj_call* call, const tj_operands* of, int wide) {
        if (of->k <= TJ_FEW && of->n <= TJ_FEW && !of->add && !of->out_lead) {
            tj_of_small(call, of, wide);
            tj_add_all(of, wide, of->bias);
            return;
        }
        if (tj_tiled[wide] && tj_of_few_rows(call, of, tj_tiled[wide])) {
            tj_add_all(of, wide, 0);
            return;
        }
        if (tj_tiled[wide] && of->m >= TJ_THIN && of->n >= TJ_THIN) {
            if (!tj_of_few_columns(call, of, wide)) { tj_tile_products(call, of, tj_tiled[wide]); }
            return;
        }
        if (!tj_of_vectors(of, wide) && !tj_of_large_vector(call, of, wide)) { tj_carry_out_blocks(call, of, wide); }
        tj_add_all(of, wide, of->bias);
    }
    static tj_matrices tj_whole(const tj_buffer* from, int turned, int wide) {
        tj_matrices found = {(const char*)from->data, from->shape[2], 1, from->shape[1] * from->shape[2] * (wide ? 8 : 4), 0, turned};
        return found;
    }
    /* Operands: (batch, m, k), or (batch, k, m) if the first bit of `how` says so; (batch, k, n), or (batch, n, k) if the second does. */
    static void* tj_multiply(tj_call* call) {
        const tj_buffer *x, *y, *out;
        int64_t how;
        int wide;
        tj_operands whole;
        if (tj_is_asked(call, tj_minor)) { return 0; }
        x = (const tj_buffer*)call->operands.items[0];
        y = (const tj_buffer*)call->operands.items[1];
        out = (const tj_buffer*)call->results.items[0];
        how = *(const int64_t*)((const tj_scalar*)call->attributes.items[0])->value;
        wide = out->dtype == TJ_F64;
        whole.x = tj_whole(x, how & 1, wide);
        whole.y = tj_whole(y, how >> 1 & 1, wide);
        whole.out = (char*)out->data;
        whole.batch = out->shape[0];
        whole.m = out->shape[1];
        whole.n = out->shape[2];
        whole.k = x->shape[whole.x.turned ? 1 : 2];
        whole.add = whole.alone = whole.plain = whole.mirrored = 0;
        whole.out_lead = 0;
        whole.bias = whole.rest = 0;
        tj_carry_out(call, &whole, wide);
        return 0;
    }
    /* What `array` is as matrices, each its transpose if `turned`: false where it is none such. */
    static int tj_are_matrices(const Py_buffer* array, int turned, tj_matrices* found) {
        const Py_ssize_t *n = array->shape + array->ndim - 2, *apart = array->strides + array->ndim - 2, size = array->itemsize;
        int along = n[1] == 1 || apart[1] == size, lying = along && (n[0] == 1 || apart[0] >= n[1] * size), levels = 0, i;
        Py_ssize_t lead = n[0] == 1 ? n[1] * size : apart[0], count[2] = {1, 1}, step[2] = {0, 0};
        if (!lying) {
            if (!((n[0] == 1 || apart[0] == size) && (n[1] == 1 || apart[1] >= n[0] * size))) { return 0; }
            lead = n[1] == 1 ? n[0] * size : apart[1];
        }
        for (i = array->ndim - 3; i >= 0; i--) {
            if (array->shape[i] == 1) { continue; }
            if (levels && array->strides[i] == step[levels - 1] * count[levels - 1]) {
                count[levels - 1] *= array->shape[i];
                continue;
            }
            if (levels == 2) { return 0; }
            count[levels] = array->shape[i];
            step[levels++] = array->strides[i];
        }
        if (lead % size || array->len == 0) { return 0; }
        found->start = (const char*)array->buf;
        found->lead = lead / size;
        found->inner = count[0];
        found->step = step[0];
        found->leap = step[1];
        found->turned = turned != !lying;
        return 1;
    }
    /* Where many matrices of few rows are multiplied by one and the same, as a layer does whose batch is not its first dimension, let them be one
       matrix: of the rows where they lie if those are equally far apart, else of a copy, which is returned and to be freed. */
    static char* tj_as_one(tj_operands* of, int64_t size) {
        int64_t rows = of->batch * of->m, length = of->k * size, i;
        char* room = 0;
        if (of->batch == 1 || of->m > TJ_OF_FEW_ROWS || of->x.turned || of->y.step || of->y.leap || rows * of->n * of->k < TJ_BLOCK) { return 0; }
        if (of->x.inner != of->batch || of->x.step != of->m * of->x.lead * size) {
            room = (char*)malloc(rows * length);
            if (!room) { return 0; }
            for (i = 0; i < rows; i++) { memcpy(room + i * length, tj_at(&of->x, i / of->m, i % of->m, 0, size), length); }
            of->x.start = room;
            of->x.lead = of->k;
        }
        of->x.inner = of->y.inner = of->batch = 1;
        of->x.step = of->x.leap = 0;
        of->m = rows;
        return room;
    }
    /* For the interpreter, which lets go of Python's lock while it takes long. The arrays are of one dtype, and so long as they have to be. add: to what is
       in `out`, by tiles which have each sum in registers before. */
    static int tj_multiply_here(const Py_buffer* x, const Py_buffer* y, const Py_buffer* out, int left, int right, const void* bias, const void* rest,
                                int add, int mirrored) {
        const Py_ssize_t *of_x = x->shape + x->ndim - 2, *of_out = out->shape + out->ndim - 2;
        int wide = out->itemsize == 8;
        tj_operands whole;
        char* room;
        if (!out->len || !tj_are_matrices(x, left, &whole.x) || !tj_are_matrices(y, right, &whole.y)) { return 0; }
        whole.out = (char*)out->buf;
        whole.m = of_out[0];
        whole.n = of_out[1];
        whole.k = of_x[left ? 0 : 1];
        whole.add = add;
        whole.alone = 0;
        whole.plain = out->ndim > 2; /* a batch, if of one: as in attention's loop */
        whole.mirrored = mirrored;
        whole.out_lead = 0;
        whole.bias = (const char*)bias;
        whole.rest = (const char*)rest;
        whole.batch = out->len / (of_out[0] * of_out[1] * out->itemsize);
        if (add && (!tj_tiled[wide] || whole.batch != 1 || whole.m <= TJ_ROWS_OF_DOTS || whole.n < TJ_THIN || whole.k > TJ_TERMS)) { return 0; }
        if (whole.batch * whole.m * whole.n * whole.k < TJ_BLOCK) {
            tj_carry_out(0, &whole, wide);
        } else {
            Py_BEGIN_ALLOW_THREADS
            room = tj_as_one(&whole, out->itemsize);
            tj_carry_out(0, &whole, wide);
            free(room);
            Py_END_ALLOW_THREADS
        }
        return 1;
    }
    static void tj_use(size_t one, size_t other, int narrow, int bits, int thirds) {
        tj_single = (tj_sgemm)one;
        tj_double = (tj_dgemm)other;
        tj_narrow = narrow;
        tj_tiled[0] = tj_tiles_of(bits, 0);
        tj_tiled[1] = tj_tiles_of(bits, 1);
        tj_thirds = thirds && bits == 512 && tj_thirds_are_allowed();
    }
    static void* tj_multiplier(int minor) {
        tj_minor = minor;
        return (void*)&tj_multiply;
    }
    """
    enum: TJ_BLAS_ELEMENTS, TJ_BLAS_ROWS, TJ_SHARED_ELEMENTS
    void tj_use(size_t single, size_t double, int narrow, int bits, bint thirds) noexcept
    void* tj_multiplier(int minor) noexcept
    bint tj_multiply_here(Py_buffer* x, Py_buffer* y, Py_buffer* out, bint left, bint right, const void* bias, const void* rest, bint add,
                          bint mirrored) noexcept


cdef inline int vector_bits() noexcept:
    return tiling.tj_vector_bits()


cdef inline bint use(size_t single, size_t double, bint narrow, int bits, bint thirds) noexcept:
    tj_use(single, double, narrow, bits, thirds)
    return True


cdef inline bint by_thirds() noexcept:
    return tiling.tj_thirds


cdef inline object handler(int minor):
    return PyCapsule_New(tj_multiplier(minor), NULL, NULL)


cdef inline object multiplied(object x, object y, bint left, bint right, object bias, object rest, bint mirrored):
    cdef Py_buffer one, other, made, added, more
    cdef Py_ssize_t shape[64]
    cdef Py_ssize_t rows, columns
    cdef int i
    if not arrays.tj_view(x, &one, PyBUF_STRIDES) or not arrays.tj_view(y, &other, PyBUF_STRIDES):
        return None
    if one.ndim < 2 or other.ndim < 2:
        return None
    rows, columns = one.shape[one.ndim - (1 if left else 2)], other.shape[other.ndim - (2 if right else 1)]
    if (rows == 1 and other.shape[other.ndim - 1] * other.shape[other.ndim - 2] > TJ_BLAS_ELEMENTS) or (columns == 1 and rows > TJ_BLAS_ROWS):
        if one.ndim > 2 or other.ndim > 2 or max(one.len, other.len) // one.itemsize < TJ_SHARED_ELEMENTS:
            return None
    for i in range(one.ndim - 2):
        shape[i] = one.shape[i]
    shape[one.ndim - 2] = rows
    shape[one.ndim - 1] = columns
    out = arrays.tj_empty_like(one.ndim, shape, x)
    arrays.view(out, &made, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
    if bias is None and rest is None:
        return out if tj_multiply_here(&one, &other, &made, left, right, NULL, NULL, False, mirrored) else None
    added.buf = more.buf = NULL
    if bias is not None:
        arrays.view(bias, &added, PyBUF_C_CONTIGUOUS)
    try:
        if rest is not None:
            arrays.view(rest, &more, PyBUF_C_CONTIGUOUS)
        return out if tj_multiply_here(&one, &other, &made, left, right, added.buf, more.buf, False, mirrored) else None
    finally:
        if more.buf != NULL:
            PyBuffer_Release(&more)
        if added.buf != NULL:
            PyBuffer_Release(&added)


cdef inline object added(object x, object y, bint left, bint right, object onto, bint mirrored):
    cdef Py_buffer one, other, made
    if not arrays.tj_view(x, &one, PyBUF_STRIDES) or not arrays.tj_view(y, &other, PyBUF_STRIDES):
        return None
    if one.ndim != 2 or other.ndim != 2 or not arrays.tj_view(onto, &made, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE):
        return None
    return onto if tj_multiply_here(&one, &other, &made, left, right, NULL, NULL, True, mirrored) else None
