/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The body of a matrix kernel, included once for each combination of
 *
 *   MMA(name)    a name of this combination
 *   MMA_DK       columns of keys, padded: 64, 128, 192, 256
 *   MMA_DV       columns of values, padded
 *   MMA_RB       groups of warps that share rows: 1, 2, 4
 *   MMA_MI       blocks of 16 rows of a warp
 *   MMA_EIGHT    1: keys and values are of 8 bits
 *   MMA_BF16     1: queries are bf16, else f16; 16-bit keys and values are of the same type
 *   MMA_STAGES   tiles of keys in shared memory
 *
 * Four warps. Warps of a row group have the same MMA_MI * 16 rows and each a share of a tile's keys; with
 * four groups each warp has all keys. A row is a query token and a head of the group. Scores, sums and maxima
 * are f32 in base 2; P is rounded to the queries' type, or bf16 with 8-bit values, for its product with V,
 * the row sum is of P before.
 */
#define MMA_ROWS  (MMA_RB * MMA_MI * 16)
#define MMA_KG    (4 / MMA_RB)
#define MMA_KEYS  (64 / MMA_KG)
#define MMA_KB    (MMA_DK * (MMA_EIGHT ? 1 : 2)) /* bytes of a key's row */
#define MMA_VB    (MMA_DV * (MMA_EIGHT ? 1 : 2))
#define MMA_STAGE (64 * (MMA_KB + MMA_VB))

/* Byte of a 16-byte chunk of a row of `bytes`; neighbouring rows begin in other banks. */
#define MMA_AT(row, chunk, bytes)                                                                            \
    ((uint32_t)(row) * (uint32_t)(bytes) +                                                                   \
     (((uint32_t)(chunk) ^ ((bytes) % 128 == 0 ? (uint32_t)(row)&7u : (uint32_t)(row) / 2 & 3u)) * 16u))

struct MMA(shared) {
    struct gpu_sequence sequence;
    struct gpu_piece piece;
    uint32_t last;   /* this CTA merges */
    uint32_t row_lo; /* rows see all keys of [row_lo, row_hi) */
    uint32_t row_hi;
    float max[4][MMA_MI * 16];
    float sum[4][MMA_MI * 16];
    float scale[MMA_ROWS]; /* score of a product, per row */
    float total[MMA_ROWS];
    float peak[MMA_ROWS];
    float k_scale[MMA_STAGES][64];
    float v_scale[MMA_STAGES][64];
    unsigned char exists[MMA_STAGES][64];
    unsigned char odd[64][MMA_DV / 8]; /* a bit for every value of a tile that is no number */
    uint32_t odd_tile;                 /* the last tile with such a value, and one more */
    struct gpu_row row[MMA_ROWS];
};

#define MMA_FIXED  GPU_MMA_FIXED(MMA_ROWS, MMA_MI, MMA_STAGES)
#define MMA_SHARED (MMA_FIXED + MMA_ROWS * MMA_DK * 2 + MMA_STAGES * MMA_STAGE)

/* Floats between rows of results, which take the place of the tiles. */
#define MMA_PITCH (MMA_DV + (MMA_ROWS * (MMA_DV + 4) * 4 <= MMA_STAGES * MMA_STAGE ? 4 : 0))
static_assert(sizeof(struct MMA(shared)) <= MMA_FIXED, "the host reserves less");
static_assert(MMA_ROWS * MMA_PITCH * 4 <= MMA_STAGES * MMA_STAGE, "results do not fit");

/* Scales that may differ from key to key. What decides is the problem, so that strides never change a bit. */
GPU_INLINE bool MMA(by_key)(uint32_t granularity)
{
    return MMA_EIGHT && granularity >= ATTN_SCALES_HEAD;
}

/* Elements of a 16-byte chunk of a vector, one by one; what lies behind it is zero. */
GPU_INLINE struct gpu_u128 MMA(gather)(const struct gpu_cache *cache, uint64_t vector, uint32_t chunk)
{
    struct gpu_u128 out = {{0, 0, 0, 0}};
    const uint32_t size = cache->size, each = 16 / size;

    for (uint32_t e = 0; e < each; e++) {
        const uint32_t d = chunk * each + e;
        if (d >= cache->dim)
            break;
        const unsigned char *at = GPU_U8(vector + (uint64_t)gpu_column(cache, d));
        for (uint32_t b = 0; b < size; b++)
            out.x[(e * size + b) / 4] |= (uint32_t)at[b] << (8 * ((e * size + b) % 4));
    }
    return out;
}

GPU_INLINE struct gpu_u128 MMA(zero)(void)
{
    struct gpu_u128 out = {{0, 0, 0, 0}};
    return out;
}

/* 16 bytes of a key or value on their way to shared memory. */
GPU_INLINE void MMA(fetch)(const struct gpu_cache *cache, const struct gpu_place *place, bool exists,
                           bool whole, uint32_t head, uint32_t chunk, unsigned char *to)
{
    const uint64_t vector = exists ? gpu_vector(cache, place->page, place->token, head) : cache->base;

    if (whole)
        gpu_copy_async16(to, (const void *)(vector + (exists ? chunk * 16u : 0u)),
                         exists && chunk * 16u < cache->dim * cache->size ? 16 : 0);
    else if (exists)
        gpu_store_u128(to, MMA(gather)(cache, vector, chunk));
    else
        gpu_store_u128(to, MMA(zero)());
}

/* Keys and values of a tile. `whole`: vectors lie on 16 bytes in one piece. */
GPU_INLINE void MMA(load)(const struct gpu_run *run, struct MMA(shared) * shared, unsigned char *stage,
                          uint32_t slot, uint32_t tile, uint32_t kv_head, bool whole)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t wide = MMA_KB > MMA_VB ? MMA_KB / 16 : MMA_VB / 16;

    for (uint32_t i = gpu_thread(); i < 64 * wide; i += 128) {
        const uint32_t row = i / wide, chunk = i % wide, key = tile * GPU_TILE + row;
        struct gpu_place place;
        const bool exists = key < s->kv_len && gpu_locate(run, s, key, &place);
        const struct gpu_cache *k = exists && place.fresh ? &run->k_new : &run->k;
        const struct gpu_cache *v = exists && place.fresh ? &run->v_new : &run->v;
        if (chunk < MMA_KB / 16)
            MMA(fetch)(k, &place, exists, whole, kv_head, chunk, stage + MMA_AT(row, chunk, MMA_KB));
        if (chunk < MMA_VB / 16)
            MMA(fetch)
            (v, &place, exists, whole, kv_head, chunk, stage + 64 * MMA_KB + MMA_AT(row, chunk, MMA_VB));
        if (chunk != 0)
            continue;
        shared->exists[slot][row] = exists;
        if (MMA(by_key)(run->problem.k_scale))
            shared->k_scale[slot][row] =
                exists ? gpu_scale_at(&k->scale, place.outer, place.token, kv_head) : 1;
        if (MMA(by_key)(run->problem.v_scale))
            shared->v_scale[slot][row] =
                exists ? gpu_scale_at(&v->scale, place.outer, place.token, kv_head) : 1;
    }
}

/* Token and head of a row of the sequence; false behind its last one. */
GPU_INLINE bool MMA(row_of)(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t row,
                            uint32_t kv_head, uint32_t *token, uint32_t *head)
{
    *token = row / run->group;
    *head = kv_head * run->group + row % run->group;
    return *token < s->q_len;
}

/* Queries into shared memory. With 8-bit keys the columns of 16 are in the order in which codes come. */
GPU_INLINE void MMA(load_queries)(const struct gpu_run *run, const struct gpu_sequence *s, unsigned char *to,
                                  uint32_t row0, uint32_t kv_head)
{
    const uint32_t dim = run->problem.head_dim;

    for (uint32_t i = gpu_thread(); i < MMA_ROWS * (MMA_DK / 2); i += 128) {
        const uint32_t row = i / (MMA_DK / 2), pair = i % (MMA_DK / 2), group = pair / 8, in = pair % 8;
        uint32_t token, head, d = pair * 2;
        if (MMA_EIGHT)
            d = group * 16 + (in % 4) * 4 + in / 4 * 2;
        uint32_t word = 0;
        if (MMA(row_of)(run, s, row0 + row, kv_head, &token, &head)) {
            const uint16_t *q =
                (const uint16_t *)(run->q.base + (uint64_t)((int64_t)(s->row + token) * run->q.token_stride +
                                                            (int64_t)head * run->q.head_stride));
            word = (d < dim ? q[d] : 0u) | (d + 1 < dim ? (uint32_t)q[d + 1] << 16 : 0u);
        }
        *(uint32_t *)(void *)(to + MMA_AT(row, pair / 4, MMA_DK * 2) + pair % 4 * 4) = word;
    }
}

/* What the rows see, and what their scores are multiplied with. */
GPU_INLINE void MMA(load_rows)(const struct gpu_run *run, struct MMA(shared) * shared, uint32_t row0,
                               uint32_t kv_head)
{
    const struct gpu_sequence *s = &shared->sequence;
    const bool by_key = MMA(by_key)(run->problem.k_scale);

    for (uint32_t row = gpu_thread(); row < MMA_ROWS; row += 128) {
        uint32_t token, head;
        shared->scale[row] = 0;
        shared->row[row].lo = shared->row[row].hi = 0;
        if (!MMA(row_of)(run, s, row0 + row, kv_head, &token, &head))
            continue;
        shared->row[row] = gpu_row(run, s, token, head);
        shared->scale[row] = run->softmax_scale;
        if (MMA_EIGHT && !by_key)
            shared->scale[row] *= gpu_scale_at(&run->k.scale, 0, 0, kv_head);
    }
}

/* The keys that every row sees without being asked. */
GPU_INLINE void MMA(find_plain)(const struct gpu_run *run, struct MMA(shared) * shared)
{
    if (gpu_thread() != 0)
        return;
    shared->odd_tile = 0;
    uint32_t lo = 0, hi = 0xffffffffu;
    for (uint32_t row = 0; row < MMA_ROWS; row++) {
        if (shared->scale[row] == 0)
            continue;
        lo = shared->row[row].lo > lo ? shared->row[row].lo : lo;
        hi = shared->row[row].hi < hi ? shared->row[row].hi : hi;
    }
    shared->row_lo = lo;
    shared->row_hi = run->mask.base != 0 ? 0 : hi;
}

/* ---------------------------------------------------------------- one tile */

GPU_INLINE void MMA(multiply)(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    if (MMA_BF16)
        gpu_mma_bf16(d, a, b);
    else
        gpu_mma_f16(d, a, b);
}

/* P: in bf16 beside 8-bit values, whose scales f16 would not hold. */
GPU_INLINE uint32_t MMA(pack)(float low, float high)
{
    return MMA_BF16 || MMA_EIGHT ? gpu_pack_bf16(low, high) : gpu_pack_f16(low, high);
}

/* Products of the warp's rows with its keys. */
GPU_INLINE void MMA(scores)(const struct gpu_run *run, const unsigned char *queries,
                            const unsigned char *keys, uint32_t row_group, uint32_t key0,
                            float s[MMA_MI][MMA_KEYS / 8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, matrix = lane / 8, in = lane % 8;

    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t n = 0; n < MMA_KEYS / 8; n++)
        s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
    GPU_UNROLL
    for (uint32_t kk = 0; kk < MMA_DK / 16; kk += 2) {
        uint32_t a[2][MMA_MI][4];
        GPU_UNROLL
        for (uint32_t j = 0; j < 2; j++)
            GPU_UNROLL
        for (uint32_t m = 0; m < MMA_MI; m++) {
            const uint32_t row = (row_group * MMA_MI + m) * 16 + (matrix & 1) * 8 + in;
            gpu_load_matrix4(a[j][m], queries + MMA_AT(row, (kk + j) * 2 + (matrix >> 1), MMA_DK * 2));
        }
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_KEYS / 16; n++) {
            uint32_t r[4], b[2];
            if (MMA_EIGHT) {
                const uint32_t row = key0 + n * 16 + (matrix & 1) * 8 + in;
                gpu_load_matrix4(r, keys + MMA_AT(row, kk + (matrix >> 1), MMA_KB));
            }
            GPU_UNROLL
            for (uint32_t j = 0; j < 2; j++) {
                if (!MMA_EIGHT) {
                    const uint32_t row = key0 + n * 16 + (matrix >> 1) * 8 + in;
                    gpu_load_matrix4(r, keys + MMA_AT(row, (kk + j) * 2 + (matrix & 1), MMA_KB));
                }
                GPU_UNROLL
                for (uint32_t h = 0; h < 2; h++) {
                    if (MMA_EIGHT) {
                        b[0] = gpu_pair8(run->k.dtype, r[2 * j + h], 0, 1, MMA_BF16);
                        b[1] = gpu_pair8(run->k.dtype, r[2 * j + h], 2, 3, MMA_BF16);
                    } else {
                        b[0] = r[2 * h];
                        b[1] = r[2 * h + 1];
                    }
                    GPU_UNROLL
                    for (uint32_t m = 0; m < MMA_MI; m++)
                        MMA(multiply)(s[m][2 * n + h], a[j][m], b);
                }
            }
        }
    }
}

/* A score in base 2, minus infinity for a key that the row does not see. */
GPU_INLINE float MMA(rule)(const struct gpu_run *run, const struct MMA(shared) * shared, uint32_t slot,
                           uint32_t row, uint32_t tile, uint32_t key, float score, bool special)
{
    const struct gpu_row *r = &shared->row[row];
    const uint32_t at = tile * GPU_TILE + key;
    double bias;

    if (at < r->lo || at >= r->hi || shared->exists[slot][key] == 0)
        return -GPU_INFINITY;
    if (!special)
        return score * GPU_LOG2E;
    const float cap = run->problem.softcap;
    if (cap > 0)
        score = cap * gpu_tanh(score / cap);
    if (run->mask.base == 0 && run->slopes == 0)
        return score * GPU_LOG2E;
    if (!gpu_sees(run, &shared->sequence, r, at, &bias))
        return -GPU_INFINITY;
    return (float)(((double)score + bias) * (double)GPU_LOG2E);
}

/* Scores in base 2, in place. True if every row sees every key of the tile. */
GPU_INLINE bool MMA(apply_rules)(const struct gpu_run *run, const struct MMA(shared) * shared, uint32_t slot,
                                 uint32_t row_group, uint32_t tile, uint32_t key0,
                                 float s[MMA_MI][MMA_KEYS / 8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    const bool special = run->problem.softcap > 0 || run->slopes != 0 || run->mask.base != 0;
    const bool by_key = MMA(by_key)(run->problem.k_scale);
    const bool plain = !special && tile * GPU_TILE >= shared->row_lo &&
                       (tile + 1) * GPU_TILE <= shared->row_hi && run->batch.addressing == ATTN_DENSE;
    bool all = !special && tile * GPU_TILE >= shared->row_lo && (tile + 1) * GPU_TILE <= shared->row_hi;

    if (!plain && all) /* holes of a table */
        all = gpu_ballot(shared->exists[slot][lane] != 0 && shared->exists[slot][lane + 32] != 0) ==
              0xffffffffu;
    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t n = 0; n < MMA_KEYS / 8; n++)
        GPU_UNROLL
    for (uint32_t e = 0; e < 4; e++) {
        const uint32_t row = (row_group * MMA_MI + m) * 16 + lane / 4 + e / 2 * 8;
        const uint32_t key = key0 + n * 8 + lane % 4 * 2 + e % 2;
        float x = s[m][n][e] * shared->scale[row];
        if (by_key)
            x *= shared->k_scale[slot][key];
        s[m][n][e] = all ? x * GPU_LOG2E : MMA(rule)(run, shared, slot, row, tile, key, x, special);
    }
    return all;
}

/* ---------------------------------------------------------------- values that are no numbers */

/* Whether an element of 16 or 8 bits is an infinity or no number. */
GPU_INLINE bool MMA(is_odd)(uint32_t dtype, uint32_t code)
{
    if (!MMA_EIGHT)
        return MMA_BF16 ? (code & 0x7f80) == 0x7f80 : (code & 0x7c00) == 0x7c00;
    if (dtype == ATTN_INT8)
        return false;
    const float x = gpu_decode8(dtype, code);
    return !(x - x == 0);
}

/*
 * A row that does not see a key must not get its NaN, which a product with 0 would be. In tiles that some row
 * does not see whole, such values become 0 and are noted; rows that see them get theirs from mark.
 */
GPU_INLINE void MMA(clean)(const struct gpu_run *run, struct MMA(shared) * shared, unsigned char *values,
                           uint32_t tile)
{
    const uint32_t each = MMA_EIGHT ? 16 : 8, bits = MMA_EIGHT ? 8 : 16;

    for (uint32_t i = gpu_thread(); i < 64 * (MMA_VB / 16); i += 128) {
        const uint32_t row = i / (MMA_VB / 16), chunk = i % (MMA_VB / 16);
        unsigned char *at = values + MMA_AT(row, chunk, MMA_VB);
        struct gpu_u128 word = gpu_load_u128(at);
        uint32_t odd = 0;
        for (uint32_t e = 0; e < each; e++) {
            const uint32_t shift = e * bits % 32, mask = (1u << bits) - 1;
            if (!MMA(is_odd)(run->v.dtype, word.x[e * bits / 32] >> shift & mask))
                continue;
            odd |= 1u << e;
            word.x[e * bits / 32] &= ~(mask << shift);
        }
        for (uint32_t b = 0; b < each / 8; b++)
            shared->odd[row][chunk * (each / 8) + b] = (unsigned char)(odd >> 8 * b);
        if (odd == 0)
            continue;
        gpu_store_u128(at, word);
        shared->odd_tile = tile + 1;
    }
    gpu_barrier();
}

GPU_INLINE uint32_t MMA(odd_bit)(const struct MMA(shared) * shared, uint32_t key, uint32_t d)
{
    return shared->odd[key][d / 8] >> d % 8 & 1;
}

/* Results of rows that see a value that is no number. */
GPU_INLINE void MMA(mark)(const struct MMA(shared) * shared, uint32_t key0, float s[MMA_MI][MMA_KEYS / 8][4],
                          float o[MMA_MI][MMA_DV / 8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, one = MMA_BF16 ? 0x3f80 : 0x3c00;

    for (uint32_t n = 0; n < MMA_DV / 8; n++) {
        const uint32_t d = MMA_EIGHT ? n / 2 * 16 + lane / 4 * 2 + n % 2 : n * 8 + lane / 4;
        float seen[MMA_MI][4];
        GPU_UNROLL
        for (uint32_t m = 0; m < MMA_MI; m++)
            seen[m][0] = seen[m][1] = seen[m][2] = seen[m][3] = 0;
        GPU_UNROLL
        for (uint32_t k = 0; k < MMA_KEYS / 16; k++) {
            uint32_t b[2], a[4];
            GPU_UNROLL
            for (uint32_t h = 0; h < 2; h++) {
                const uint32_t key = key0 + k * 16 + h * 8 + lane % 4 * 2;
                b[h] = MMA(odd_bit)(shared, key, d) * one | MMA(odd_bit)(shared, key + 1, d) * one << 16;
            }
            GPU_UNROLL
            for (uint32_t m = 0; m < MMA_MI; m++) {
                GPU_UNROLL
                for (uint32_t i = 0; i < 4; i++)
                    a[i] = (s[m][2 * k + i / 2][i % 2 * 2] != -GPU_INFINITY ? one : 0u) |
                           (s[m][2 * k + i / 2][i % 2 * 2 + 1] != -GPU_INFINITY ? one << 16 : 0u);
                MMA(multiply)(seen[m], a, b);
            }
        }
        GPU_UNROLL
        for (uint32_t j = 0; j < MMA_DV / 8; j++)
            GPU_UNROLL
        for (uint32_t m = 0; m < MMA_MI; m++)
            GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            if (j == n && seen[m][e] > 0)
                o[m][j][e] = GPU_NAN;
    }
}

/* P in place of the scores; maxima, sums and results so far follow. */
GPU_INLINE void MMA(softmax)(float s[MMA_MI][MMA_KEYS / 8][4], float max[MMA_MI][2], float sum[MMA_MI][2],
                             float o[MMA_MI][MMA_DV / 8][4])
{
    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float peak = max[m][h];
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_KEYS / 8; n++)
            peak = fmaxf(peak, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
        peak = fmaxf(peak, gpu_shuffle_xor_f32(peak, 1));
        peak = fmaxf(peak, gpu_shuffle_xor_f32(peak, 2));
        const float base = peak == -GPU_INFINITY ? 0 : peak; /* NaN scores stay NaN */
        const float down = gpu_exp2(max[m][h] - base);
        float total = sum[m][h] * down;
        max[m][h] = peak;
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_KEYS / 8; n++)
            GPU_UNROLL
        for (uint32_t e = 2 * h; e < 2 * h + 2; e++) {
            s[m][n][e] = gpu_exp2(s[m][n][e] - base);
            total += s[m][n][e];
        }
        sum[m][h] = total;
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_DV / 8; n++) {
            o[m][n][2 * h] *= down;
            o[m][n][2 * h + 1] *= down;
        }
    }
}

/* P times V. Columns of 8-bit values come even ones first within 16. */
GPU_INLINE void MMA(values)(const struct gpu_run *run, const struct MMA(shared) * shared,
                            const unsigned char *values, uint32_t slot, uint32_t key0,
                            float p[MMA_MI][MMA_KEYS / 8][4], float o[MMA_MI][MMA_DV / 8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, matrix = lane / 8, in = lane % 8;
    const bool by_key = MMA(by_key)(run->problem.v_scale);

    if (by_key)
        GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t n = 0; n < MMA_KEYS / 8; n++)
        GPU_UNROLL
    for (uint32_t e = 0; e < 4; e++)
        if (p[m][n][e] != 0)
            p[m][n][e] *= shared->v_scale[slot][key0 + n * 8 + lane % 4 * 2 + e % 2];
    GPU_UNROLL
    for (uint32_t k = 0; k < MMA_KEYS / 16; k++) {
        uint32_t a[MMA_MI][4];
        GPU_UNROLL
        for (uint32_t m = 0; m < MMA_MI; m++)
            GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            a[m][i] = MMA(pack)(p[m][2 * k + i / 2][i % 2 * 2], p[m][2 * k + i / 2][i % 2 * 2 + 1]);
        const uint32_t row = key0 + k * 16 + (matrix & 1) * 8 + in;
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_DV / 16; n++) {
            uint32_t r[4], b[2];
            if (!MMA_EIGHT)
                gpu_load_matrix4_trans(r, values + MMA_AT(row, n * 2 + (matrix >> 1), MMA_VB));
            else if (n % 2 == 0)
                gpu_load_matrix4_trans(r, values + MMA_AT(row, n + (matrix >> 1), MMA_VB));
            GPU_UNROLL
            for (uint32_t h = 0; h < 2; h++) {
                if (MMA_EIGHT) {
                    b[0] = gpu_pair8(run->v.dtype, r[n % 2 * 2], h, h + 2, true);
                    b[1] = gpu_pair8(run->v.dtype, r[n % 2 * 2 + 1], h, h + 2, true);
                } else {
                    b[0] = r[2 * h];
                    b[1] = r[2 * h + 1];
                }
                GPU_UNROLL
                for (uint32_t m = 0; m < MMA_MI; m++) {
                    if (MMA_EIGHT)
                        gpu_mma_bf16(o[m][2 * n + h], a[m], b);
                    else
                        MMA(multiply)(o[m][2 * n + h], a[m], b);
                }
            }
        }
    }
}

/* ---------------------------------------------------------------- the end of a piece */

/* Sums of the four lanes of a row, and what the warps of a row group have together, into shared memory. */
GPU_INLINE void MMA(join)(struct MMA(shared) * shared, float *to, uint32_t row_group, uint32_t key_group,
                          float max[MMA_MI][2], float sum[MMA_MI][2], float o[MMA_MI][MMA_DV / 8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;

    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float total = sum[m][h];
        total += gpu_shuffle_xor_f32(total, 1);
        total += gpu_shuffle_xor_f32(total, 2);
        if (lane % 4 == 0) {
            shared->max[warp][m * 16 + h * 8 + lane / 4] = max[m][h];
            shared->sum[warp][m * 16 + h * 8 + lane / 4] = total;
        }
    }
    gpu_barrier(); /* and the last tile has been read */
    for (uint32_t g = 0; g < MMA_KG; g++) {
        if (g == key_group)
            GPU_UNROLL
        for (uint32_t m = 0; m < MMA_MI; m++)
            GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t in = m * 16 + h * 8 + lane / 4, row = row_group * MMA_MI * 16 + in;
            float peak = -GPU_INFINITY, total = 0;
            for (uint32_t w = 0; w < MMA_KG; w++)
                peak = fmaxf(peak, shared->max[row_group * MMA_KG + w][in]);
            const float base = peak == -GPU_INFINITY ? 0 : peak;
            for (uint32_t w = 0; w < MMA_KG; w++)
                total += shared->sum[row_group * MMA_KG + w][in] *
                         gpu_exp2(shared->max[row_group * MMA_KG + w][in] - base);
            const float share = gpu_exp2(max[m][h] - base);
            if (lane % 4 == 0 && g == 0) {
                shared->peak[row] = peak;
                shared->total[row] = total;
            }
            GPU_UNROLL
            for (uint32_t n = 0; n < MMA_DV / 8; n++)
                GPU_UNROLL
            for (uint32_t e = 0; e < 2; e++) {
                const uint32_t c = lane % 4 * 2 + e;
                const uint32_t d = MMA_EIGHT ? n / 2 * 16 + c * 2 + n % 2 : n * 8 + c;
                float *at = to + row * MMA_PITCH + d;
                const float x = o[m][n][2 * h + e] * share;
                *at = g == 0 ? x : *at + x;
            }
        }
        gpu_barrier();
    }
}

/* A row's last word: the sink, the division, the output's type. `peak` and `total` in base 2. */
GPU_INLINE void MMA(emit)(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t token,
                          uint32_t head, uint32_t kv_head, float peak, float total,
                          const float values[MMA_DV / 32], uint32_t lane)
{
    const float sink = gpu_sink(run, head) * GPU_LOG2E;
    const float top = fmaxf(peak, sink), base = top == -GPU_INFINITY ? 0 : top;
    const float share = gpu_exp2(peak - base), whole = total * share + gpu_exp2(sink - base);
    const uint32_t dtype = run->problem.out_dtype;
    const int64_t row = (int64_t)s->row + token;
    const uint64_t to =
        run->out.base + (uint64_t)(row * run->out.token_stride + (int64_t)head * run->out.head_stride);
    const float v_scale =
        MMA_EIGHT && !MMA(by_key)(run->problem.v_scale) ? gpu_scale_at(&run->v.scale, 0, 0, kv_head) : 1;
    const bool scaled = run->problem.out_scale > ATTN_SCALES_UNIT;

    GPU_UNROLL
    for (uint32_t j = 0; j < MMA_DV / 32; j++) {
        const uint32_t d = j * 32 + lane;
        float x = total == 0 ? 0 : values[j] * share / whole * v_scale;
        if (scaled)
            x = gpu_divide(x, gpu_scale_at(&run->out_scale, s->index, row, head));
        if (d < run->problem.head_dim_vo)
            gpu_store(dtype, (unsigned char *)(to + d * GPU_SIZE(dtype)), x);
    }
    if (lane == 0 && run->lse.base != 0)
        *(float *)(run->lse.base +
                   (uint64_t)(row * run->lse.token_stride + (int64_t)head * run->lse.head_stride)) =
            whole == 0   ? -GPU_INFINITY
            : total == 0 ? gpu_sink(run, head)
                         : (float)(((double)base + gpu_log_f64((double)whole) * 1.4426950408889634) *
                                   0.6931471805599453);
}

/* Rows of shared memory into the output, or as a part of one. */
GPU_INLINE void MMA(finish)(const struct gpu_run *run, struct MMA(shared) * shared, const float *from,
                            uint32_t row0, uint32_t kv_head, bool part, uint32_t slot)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;

    for (uint32_t row = warp; row < MMA_ROWS; row += 4) {
        uint32_t token, head;
        if (!MMA(row_of)(run, s, row0 + row, kv_head, &token, &head))
            break;
        float values[MMA_DV / 32];
        GPU_UNROLL
        for (uint32_t j = 0; j < MMA_DV / 32; j++)
            values[j] = from[row * MMA_PITCH + j * 32 + lane];
        if (!part) {
            MMA(emit)(run, s, token, head, kv_head, shared->peak[row], shared->total[row], values, lane);
            continue;
        }
        const uint64_t at = (uint64_t)slot * MMA_ROWS + row;
        float *out = (float *)run->part_out + at * MMA_DV;
        GPU_UNROLL
        for (uint32_t j = 0; j < MMA_DV / 32; j++)
            out[j * 32 + lane] = values[j];
        if (lane == 0) {
            ((float *)run->part_lse)[2 * at] = shared->peak[row];
            ((float *)run->part_lse)[2 * at + 1] = shared->total[row];
        }
    }
}

/* All tiles of a piece. */
GPU_INLINE void MMA(attend)(const struct gpu_run *run, struct MMA(shared) * shared, unsigned char *queries,
                            unsigned char *stages, uint32_t row0, uint32_t kv_head, uint32_t first,
                            uint32_t end, bool whole)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, row_group = warp / MMA_KG, key_group = warp % MMA_KG;
    const uint32_t key0 = key_group * MMA_KEYS;
    float o[MMA_MI][MMA_DV / 8][4], max[MMA_MI][2], sum[MMA_MI][2];

    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++) {
        max[m][0] = max[m][1] = -GPU_INFINITY;
        sum[m][0] = sum[m][1] = 0;
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_DV / 8; n++)
            o[m][n][0] = o[m][n][1] = o[m][n][2] = o[m][n][3] = 0;
    }
    for (uint32_t i = 0; i < MMA_STAGES - 1; i++) {
        if (first + i < end)
            MMA(load)(run, shared, stages + i * MMA_STAGE, i, first + i, kv_head, whole);
        gpu_copy_commit();
    }
    MMA(load_queries)(run, &shared->sequence, queries, row0, kv_head);
    MMA(load_rows)(run, shared, row0, kv_head);
    gpu_barrier();
    MMA(find_plain)(run, shared);
    for (uint32_t tile = first; tile < end; tile++) {
        const uint32_t slot = (tile - first) % MMA_STAGES, next = tile + MMA_STAGES - 1;
        unsigned char *stage = stages + slot * MMA_STAGE;
        float s[MMA_MI][MMA_KEYS / 8][4];
        GPU_COPY_WAIT(MMA_STAGES - 2);
        gpu_barrier(); /* the tile is there, and the one before has been read */
        if (next < end)
            MMA(load)
            (run, shared, stages + (next - first) % MMA_STAGES * MMA_STAGE, (next - first) % MMA_STAGES, next,
             kv_head, whole);
        gpu_copy_commit();
        MMA(scores)(run, queries, stage, row_group, key0, s);
        const bool all = MMA(apply_rules)(run, shared, slot, row_group, tile, key0, s);
        if (!all)
            MMA(clean)(run, shared, stage + 64 * MMA_KB, tile);
        if (!all && shared->odd_tile == tile + 1)
            MMA(mark)(shared, key0, s, o);
        MMA(softmax)(s, max, sum, o);
        MMA(values)(run, shared, stage + 64 * MMA_KB, slot, key0, s, o);
    }
    GPU_COPY_WAIT(0);
    MMA(join)(shared, (float *)(void *)stages, row_group, key_group, max, sum, o);
}

/* ---------------------------------------------------------------- work */

/* True for the CTA that comes last of those that have parts of a sequence and head. */
GPU_INLINE bool MMA(comes_last)(const struct gpu_run *run, struct MMA(shared) * shared,
                                const struct gpu_piece *p)
{
    gpu_fence();
    gpu_barrier();
    if (gpu_thread() == 0) {
        uint32_t *counter = (uint32_t *)run->counters + (uint64_t)p->seq * run->problem.kv_heads + p->kv_head;
        shared->last = gpu_atomic_add(counter, 1) + 1 == p->parts;
        if (shared->last)
            *counter = 0;
    }
    gpu_barrier();
    gpu_fence();
    return shared->last != 0;
}

/* Parts in their order into one. */
GPU_INLINE void MMA(merge)(const struct gpu_run *run, const struct MMA(shared) * shared,
                           const struct gpu_piece *p)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;
    const volatile float *lse = (const volatile float *)run->part_lse;

    for (uint32_t row = warp; row < MMA_ROWS; row += 4) {
        uint32_t token, head;
        if (!MMA(row_of)(run, s, row, p->kv_head, &token, &head))
            break;
        float peak = -GPU_INFINITY, total = 0, values[MMA_DV / 32];
        for (uint32_t i = 0; i < p->parts; i++)
            peak = fmaxf(peak, lse[2 * ((uint64_t)gpu_slot(p, i) * MMA_ROWS + row)]);
        const float base = peak == -GPU_INFINITY ? 0 : peak;
        GPU_UNROLL
        for (uint32_t j = 0; j < MMA_DV / 32; j++)
            values[j] = 0;
        for (uint32_t i = 0; i < p->parts; i++) {
            const uint64_t at = (uint64_t)gpu_slot(p, i) * MMA_ROWS + row;
            const float share = gpu_exp2(lse[2 * at] - base);
            const volatile float *out = (const volatile float *)run->part_out + at * MMA_DV;
            total += lse[2 * at + 1] * share;
            GPU_UNROLL
            for (uint32_t j = 0; j < MMA_DV / 32; j++)
                values[j] += out[j * 32 + lane] * share;
        }
        MMA(emit)(run, s, token, head, p->kv_head, peak, total, values, lane);
    }
}

/* Vectors that lie on 16 bytes, in one piece and in whole chunks. */
GPU_INLINE bool MMA(is_whole)(const struct gpu_cache *cache)
{
    return ((cache->base | (uint64_t)cache->page_stride | (uint64_t)cache->token_stride |
             (uint64_t)cache->head_stride | cache->dim * cache->size) &
            15) == 0 &&
           cache->piece_stride == 0;
}

/* The tile of rows of a sequence of many rows; those that see the most keys, its last ones, come first. */
GPU_INLINE struct gpu_piece MMA(tile_at)(const struct gpu_run *run, uint64_t at, struct gpu_sequence *s)
{
    const uint32_t *sums = gpu_sums(run);
    const struct gpu_cuts cuts = gpu_cuts_of(&run->problem, GPU_MANY_ROWS, MMA_ROWS);
    const uint32_t heads = run->problem.kv_heads;
    const uint64_t place = (uint64_t)sums[run->batch.seqs] * heads - 1 - at;
    struct gpu_piece p;

    p.seq = gpu_find_sum(sums, run->batch.seqs, place / heads);
    const uint32_t inside = (uint32_t)(place - (uint64_t)sums[p.seq] * heads);
    p.kv_head = inside % heads;
    p.row0 = inside / heads * MMA_ROWS;
    *s = gpu_sequence(run, p.seq);
    const uint32_t last = (p.row0 + MMA_ROWS - 1) / run->group;
    p.end = gpu_key_tiles(&cuts, &s->visible, p.row0 / run->group, last < s->q_len ? last : s->q_len - 1,
                          s->kv_len, &p.first);
    p.end += p.first;
    p.next = at + gpu_ctas();
    p.parts = 1;
    p.part = p.first_slot = p.rest_slot = p.slot_step = 0;
    return p;
}

/*
 * Sequences of few rows: this CTA's piece of the line of tiles, or with det=1 its share of fixed cuts.
 * Sequences of many rows: its share of tiles of rows.
 */
GPU_KERNEL(MMA(mma), 128, MMA_CTAS)(GPU_ARGUMENT(struct gpu_run, run))
{
    unsigned char *memory = gpu_shared();
    struct MMA(shared) *shared = (struct MMA(shared) *)(void *)memory;
    unsigned char *queries = memory + MMA_FIXED, *stages = queries + MMA_ROWS * MMA_DK * 2;
    const uint64_t all = (uint64_t)gpu_sums(&run)[run.batch.seqs] * run.problem.kv_heads;
    const bool many = run.phase == GPU_MANY_ROWS, line = !many && run.problem.det == 0;
    const bool whole = MMA(is_whole)(&run.k) && MMA(is_whole)(&run.v) && MMA(is_whole)(&run.k_new) &&
                       MMA(is_whole)(&run.v_new);
    const uint32_t ctas = all < gpu_ctas() ? (uint32_t)all : gpu_ctas(); /* none with an empty piece */
    if (gpu_cta() >= ctas)
        return;
    const uint64_t end = line ? gpu_line_begin(all, gpu_cta() + 1, ctas) : all;
    uint64_t at = line ? gpu_line_begin(all, gpu_cta(), ctas) : gpu_cta();

    while (at < end) {
        gpu_barrier(); /* the piece before is done */
        if (gpu_thread() == 0)
            shared->piece = many ? MMA(tile_at)(&run, at, &shared->sequence)
                                 : gpu_piece_at(&run, at, end, gpu_cta(), ctas, &shared->sequence);
        gpu_barrier();
        const struct gpu_piece *p = &shared->piece;
        MMA(attend)(&run, shared, queries, stages, p->row0, p->kv_head, p->first, p->end, whole);
        MMA(finish)
        (&run, shared, (const float *)(void *)stages, p->row0, p->kv_head, p->parts > 1,
         gpu_slot(p, p->part));
        if (p->parts > 1 && MMA(comes_last)(&run, shared, p))
            MMA(merge)(&run, shared, p);
        at = p->next;
    }
}

#undef MMA_ROWS
#undef MMA_KG
#undef MMA_KEYS
#undef MMA_KB
#undef MMA_VB
#undef MMA_STAGE
#undef MMA_AT
#undef MMA_FIXED
#undef MMA_SHARED
#undef MMA_PITCH
