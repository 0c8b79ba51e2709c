/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Part of tile-body.h: keys and values into shared memory, by way of registers: what the next turn needs is
 * asked for before the math of this one. A thread takes chunks of 8 columns, of one key or of the values of
 * four keys.
 */

/* Words of a chunk. */
#define TILE_CHUNK       (TILE_SIZE * 2)
#define TILE_KEY_CHUNKS  (GPU_TILE * (TILE_DK / 8))
#define TILE_KEY_TURNS   (TILE_KEY_CHUNKS / TILE_THREADS)
#define TILE_QUAD_CHUNKS (GPU_TILE / 4 * (TILE_DV / 8))
#define TILE_QUAD_TURNS  ((TILE_QUAD_CHUNKS + TILE_THREADS - 1) / TILE_THREADS)
#define TILE_AHEAD       (TILE_CHUNK * HIP_TILE_MORE(TILE_KEY_TURNS, 4 * TILE_QUAD_TURNS))
static_assert(TILE_KEY_CHUNKS % TILE_THREADS == 0, "every thread has as many chunks");

/* What a thread has on the way. */
struct tile_ahead {
    uint32_t x[TILE_AHEAD];
};

/* 4, 2 or 1 words of global memory, where they lie on their size. */
GPU_INLINE void tile_load_words(uint64_t at, uint32_t words, uint32_t *to)
{
    const unsigned char *from = GPU_GLOBAL(const unsigned char, at);

    if (words == 4)
        __builtin_memcpy(to, __builtin_assume_aligned(from, 16), 16);
    else if (words == 2)
        __builtin_memcpy(to, __builtin_assume_aligned(from, 8), 8);
    else
        __builtin_memcpy(to, __builtin_assume_aligned(from, 4), 4);
}

/*
 * Words of `count` vectors that lie anywhere, byte by byte, of rows from `row` on of a tile: words in
 * turn, so that this is here but once.
 */
GPU_INLINE void tile_gather(const struct gpu_run *run, const struct tile_shared *shared, uint32_t tile,
                            bool values, uint32_t row, uint32_t count, uint32_t chunk, uint32_t *to)
{
    const uint64_t present = tile_present(shared, tile);
    const uint32_t bytes = (values ? run->v.dim : run->k.dim) * TILE_SIZE;
    const uint32_t piece = values ? run->v.piece : run->k.piece;
    const int64_t stride = values ? run->v.piece_stride : run->k.piece_stride;

    GPU_LOOP
    for (uint32_t i = 0; i < count * TILE_CHUNK; i++) {
        const uint32_t own = row + i / TILE_CHUNK, first = (chunk * TILE_CHUNK + i % TILE_CHUNK) * 4;
        const bool cached = tile * GPU_TILE + own < shared->sequence.fresh;
        uint32_t word = 0;
        GPU_LOOP
        for (uint32_t b = first; b < first + 4 && b < bytes && (present >> own & 1) != 0; b++) {
            int64_t at = b;
            if (cached && stride != 0)
                at = (int64_t)(b / piece) * stride + b % piece;
            word |= (uint32_t)*GPU_U8(shared->at[values][tile % 2][own] + (uint64_t)at) << (b - first) * 8;
        }
        GPU_UNROLL
        for (uint32_t j = 0; j + 1 < count * TILE_CHUNK; j++)
            to[j] = to[j + 1];
        to[count * TILE_CHUNK - 1] = word;
    }
}

/* Which row, or four rows, and chunk of it a thread takes: neighbours lie next to each other in memory. */
GPU_INLINE uint32_t tile_row_at(const struct gpu_run *run, uint32_t u, uint32_t rows, uint32_t chunks)
{
    return run->whole == HIP_TILE_PIECES ? u % rows : u / chunks;
}
GPU_INLINE uint32_t tile_chunk_at(const struct gpu_run *run, uint32_t u, uint32_t rows, uint32_t chunks)
{
    return run->whole == HIP_TILE_PIECES ? u / rows : u % chunks;
}

/* The keys of a tile that are there. */
GPU_INLINE void tile_ask_keys(const struct gpu_run *run, const struct tile_shared *shared, uint32_t tile,
                              struct tile_ahead *ahead)
{
    const uint64_t present = tile_present(shared, tile);
    const uint32_t used = run->k.dim / 8, thread = tile_thread();
    const uint32_t step = run->whole == HIP_TILE_PIECES ? (uint32_t)run->k.piece_stride : 16;

    GPU_UNROLL
    for (uint32_t j = 0; j < TILE_KEY_TURNS; j++) {
        const uint32_t u = j * TILE_THREADS + thread, row = tile_row_at(run, u, GPU_TILE, TILE_DK / 8);
        const uint32_t chunk = tile_chunk_at(run, u, GPU_TILE, TILE_DK / 8), byte = chunk * TILE_CHUNK * 4;
        if (j % 2 == 0)
            TILE_TURN();
        GPU_UNROLL
        for (uint32_t i = 0; i < TILE_CHUNK; i++)
            ahead->x[j * TILE_CHUNK + i] = 0;
        if (chunk < used && (present >> row & 1) != 0)
            tile_load_words(shared->at[0][tile % 2][row] + (byte / 16 * step + byte % 16), TILE_CHUNK,
                            ahead->x + j * TILE_CHUNK);
    }
}

/* The values of a tile that are there: chunks of four rows, or four rows of each of eight columns. */
GPU_INLINE void tile_ask_values(const struct gpu_run *run, const struct tile_shared *shared, uint32_t tile,
                                struct tile_ahead *ahead)
{
    const uint64_t present = tile_present(shared, tile), *at = shared->at[1][tile % 2];
    const bool pieces = run->whole == HIP_TILE_PIECES;
    const uint32_t used = run->v.dim / 8, thread = tile_thread();
    const uint32_t step = pieces ? (uint32_t)run->v.piece_stride : 0;

    GPU_UNROLL
    for (uint32_t j = 0; j < TILE_QUAD_TURNS; j++) {
        const uint32_t u = j * TILE_THREADS + thread,
                       row = tile_row_at(run, u, GPU_TILE / 4, TILE_DV / 8) * 4;
        const uint32_t chunk = tile_chunk_at(run, u, GPU_TILE / 4, TILE_DV / 8);
        const uint32_t there =
            chunk < used && row < GPU_TILE ? (uint32_t)(present >> row % GPU_TILE) & 15 : 0;
        uint32_t *to = ahead->x + j * 4 * TILE_CHUNK;
        TILE_TURN();
        GPU_UNROLL
        for (uint32_t i = 0; i < 4 * TILE_CHUNK; i++)
            to[i] = 0;
        if (pieces) {
            if (there != 0) /* all four have room in the page */
                GPU_UNROLL
            for (uint32_t c = 0; c < 8; c++)
                tile_load_words(at[row] + (chunk * 8 + c) * step, TILE_CHUNK / 2, to + c * (TILE_CHUNK / 2));
        } else {
            GPU_UNROLL
            for (uint32_t i = 0; i < 4; i++)
                if ((there >> i & 1) != 0)
                    tile_load_words(at[row + i] + chunk * TILE_CHUNK * 4, TILE_CHUNK, to + i * TILE_CHUNK);
        }
    }
}

GPU_INLINE void tile_put_key(unsigned char *keys, uint32_t row, uint32_t chunk, uint32_t dtype, bool wide,
                             const uint32_t from[TILE_CHUNK])
{
    struct gpu_u128 out;

#if TILE_EIGHT
    tile_four8(dtype, from[0], wide, out.x);
    tile_four8(dtype, from[1], wide, out.x + 2);
#else
    (void)dtype, (void)wide;
    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        out.x[i] = from[i];
#endif
    gpu_store_u128(keys + row * HIP_TILE_PITCH(TILE_DK) + chunk * 16, out);
}

/* Keys that were asked for, or that have to be gathered. Codes are converted in a loop that stays one. */
GPU_INLINE void tile_put_keys(const struct gpu_run *run, const struct tile_shared *shared,
                              unsigned char *keys, uint32_t tile, bool wide, struct tile_ahead *ahead)
{
    const uint32_t thread = tile_thread(), each = TILE_EIGHT ? TILE_KEY_TURNS % 2 + 1 : TILE_KEY_TURNS;
    const uint32_t chunks = TILE_DK / 8, step = each * TILE_CHUNK;

    if (run->whole != 0) {
        GPU_LOOP
        for (uint32_t first = 0; first < TILE_KEY_TURNS; first += each) {
            GPU_UNROLL
            for (uint32_t j = 0; j < each; j++) {
                const uint32_t u = (first + j) * TILE_THREADS + thread;
                tile_put_key(keys, tile_row_at(run, u, GPU_TILE, chunks),
                             tile_chunk_at(run, u, GPU_TILE, chunks), run->k.dtype, wide,
                             ahead->x + j * TILE_CHUNK);
            }
            GPU_UNROLL
            for (uint32_t i = 0; i + step < TILE_KEY_TURNS * TILE_CHUNK; i++)
                ahead->x[i] = ahead->x[i + step];
        }
        return;
    }
    GPU_LOOP
    for (uint32_t u = thread; u < TILE_KEY_CHUNKS; u += TILE_THREADS) {
        uint32_t chunk[TILE_CHUNK] = {0};
        tile_gather(run, shared, tile, false, u / chunks, 1, u % chunks, chunk);
        tile_put_key(keys, u / chunks, u % chunks, run->k.dtype, wide, chunk);
    }
}

/* Elements of a word that are infinite or no number, a flag in the top bit of each. */
GPU_INLINE uint32_t tile_odd(uint32_t dtype, bool wide, uint32_t word)
{
    if (TILE_EIGHT)
        return tile_odd8(dtype, word);
    return ((word & 0x7fff7fffu) + (wide ? 0x00800080u : 0x04000400u)) & 0x80008000u;
}

/* Chunks of four rows become four elements of each of eight columns. */
GPU_INLINE void tile_turn(uint32_t quad[4 * TILE_CHUNK])
{
    uint32_t from[4][TILE_CHUNK];

    GPU_UNROLL
    for (uint32_t i = 0; i < 4 * TILE_CHUNK; i++)
        from[i / TILE_CHUNK][i % TILE_CHUNK] = quad[i];
    GPU_UNROLL
    for (uint32_t w = 0; w < TILE_CHUNK; w++) {
        uint32_t *to = quad + w * 4;
        if (TILE_EIGHT) {
            const uint32_t low[2] = {gpu_permute(from[0][w], from[1][w], 0x5140),
                                     gpu_permute(from[2][w], from[3][w], 0x5140)};
            const uint32_t high[2] = {gpu_permute(from[0][w], from[1][w], 0x7362),
                                      gpu_permute(from[2][w], from[3][w], 0x7362)};
            to[0] = gpu_permute(low[0], low[1], 0x5410);
            to[1] = gpu_permute(low[0], low[1], 0x7632);
            to[2] = gpu_permute(high[0], high[1], 0x5410);
            to[3] = gpu_permute(high[0], high[1], 0x7632);
        } else {
            GPU_UNROLL
            for (uint32_t i = 0; i < 4; i++)
                to[i] = gpu_permute(from[i % 2 * 2][w], from[i % 2 * 2 + 1][w], i < 2 ? 0x5410 : 0x7632);
        }
    }
}

/* Values that are no numbers become 0 and are noted; so do those of rows that are not `there`, a bit for
 * each. */
GPU_INLINE void tile_clean(const struct gpu_run *run, struct tile_shared *shared, uint32_t tile, uint32_t row,
                           uint32_t there, bool wide, uint32_t quad[4 * TILE_CHUNK])
{
    const uint32_t ones = TILE_EIGHT ? 0xff : 0xffff, width = TILE_EIGHT ? 8 : 16;
    uint32_t any = 0, mask[2] = {0, 0};

    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        mask[i * width / 32] |= (there >> i & 1) * (ones << i * width % 32);
    GPU_UNROLL
    for (uint32_t i = 0; i < 4 * TILE_CHUNK; i++) {
        quad[i] &= mask[TILE_EIGHT ? 0 : i % 2];
        const uint32_t odd = tile_odd(run->v.dtype, wide, quad[i]);
        any |= odd;
        quad[i] &= ~((odd >> (width - 1)) * ones);
    }
    /* A scale that is no number makes none of a whole vector, where P has gone under too. */
    if (tile_by_key(run->problem.v_scale))
        GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const float scale = shared->scale[1][tile % 2][row + i];
        any |= scale != scale;
    }
    if (any != 0)
        shared->odd_tile = tile + 1;
}

/* Four elements of each of eight columns. Codes are converted in a loop that stays one. */
GPU_INLINE void tile_put_quad(unsigned char *values, uint32_t row, uint32_t column, uint32_t dtype, bool wide,
                              uint32_t quad[4 * TILE_CHUNK])
{
    unsigned char *to = values + tile_quad_at(column, row / 4);

#if TILE_EIGHT
    GPU_LOOP
    for (uint32_t c = 0; c < 8; c += 2) {
        GPU_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            struct gpu_u64 out;
            tile_four8(dtype, quad[i], wide, out.x);
            tile_store_u64(to + (c + i) * HIP_TILE_COLUMN, out);
        }
        GPU_UNROLL
        for (uint32_t i = 0; i < 6; i++)
            quad[i] = quad[i + 2];
    }
#else
    (void)dtype, (void)wide;
    GPU_UNROLL
    for (uint32_t c = 0; c < 8; c++) {
        const struct gpu_u64 out = {{quad[2 * c], quad[2 * c + 1]}};
        tile_store_u64(to + c * HIP_TILE_COLUMN, out);
    }
#endif
}

/* Values that were asked for, or that have to be gathered. `plain`: every row of queries sees every one. */
GPU_INLINE void tile_put_values(const struct gpu_run *run, struct tile_shared *shared, unsigned char *values,
                                uint32_t tile, bool wide, bool plain, struct tile_ahead *ahead)
{
    const uint64_t present = tile_present(shared, tile);
    const uint32_t thread = tile_thread(), chunks = TILE_DV / 8, step = 4 * TILE_CHUNK;

    GPU_LOOP
    for (uint32_t u = thread; u < TILE_QUAD_CHUNKS; u += TILE_THREADS) {
        const uint32_t row = tile_row_at(run, u, GPU_TILE / 4, chunks) * 4;
        const uint32_t chunk = tile_chunk_at(run, u, GPU_TILE / 4, chunks);
        uint32_t quad[4 * TILE_CHUNK] = {0};
        if (run->whole == 0)
            tile_gather(run, shared, tile, true, row, 4, chunk, quad);
        else
            GPU_UNROLL
        for (uint32_t i = 0; i < step; i++)
            quad[i] = ahead->x[i];
        if (run->whole != HIP_TILE_PIECES)
            tile_turn(quad);
        if (!plain)
            tile_clean(run, shared, tile, row, (uint32_t)(present >> row) & 15, wide, quad);
        tile_put_quad(values, row, chunk * 8, run->v.dtype, wide, quad);
        GPU_UNROLL
        for (uint32_t i = 0; i + step < TILE_QUAD_TURNS * step; i++)
            ahead->x[i] = ahead->x[i + step];
    }
}
