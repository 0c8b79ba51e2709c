/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Several sequences in one set of caches: the attention of each is, bit for bit, what it is alone, whatever
 * its companions, its pages and its number, also where pages of ended sequences are used again. Usage:
 * test-sequences [--tap]
 */
#include "attention/attention.h"
#include "rng.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, HEADS = 4, KV_HEADS = 2, DIM = 64, Q_WIDTH = HEADS * DIM, KV_WIDTH = KV_HEADS * DIM };
enum { SEQUENCES = 7, LONGEST = 75, PARALLEL = 3 };

/* Lengths around the block sizes, and tokens of a step: the same alone and together. */
static const struct {
    uint32_t length;
    uint32_t chunk;
} sequences[SEQUENCES] = {{33, 7}, {16, 16}, {75, 64}, {1, 1}, {17, 5}, {64, 1}, {48, 31}};

static const struct attention_shape shape = {
    .layers = LAYERS, .heads = HEADS, .kv_heads = KV_HEADS, .head_dim = DIM};

struct config {
    const char *backend;
    const char *kv;
    uint32_t block;
    uint32_t threads;
};

/* Outputs of all layers: [layer, token, Q_WIDTH]. */
struct outputs {
    float *of[SEQUENCES];
};

/* Rows of queries, keys or values, the same for the same sequence, layer and place. Sizes differ from row to
 * row, so that the scale of another row does harm. */
static void fill(float *to, uint32_t width, int what, uint32_t seq, uint32_t layer, uint32_t first,
                 uint32_t count)
{
    for (uint32_t t = first; t < first + count; t++) {
        uint64_t state = (((uint64_t)what * SEQUENCES + seq) * LAYERS + layer) * LONGEST + t;
        double size = 0.25 + 4 * rng_unit(&state);
        for (uint32_t i = 0; i < width; i++)
            *to++ = (float)((rng_unit(&state) - 0.5) * size);
    }
}

/* One step; "ids" are the numbers by which the test knows the sequences. */
static int step(struct attention *a, const struct attention_part *parts, const uint32_t *ids, uint32_t count,
                struct outputs *out, struct failure *err)
{
    static float q[PARALLEL * LONGEST * Q_WIDTH];
    static float k[PARALLEL * LONGEST * KV_WIDTH];
    static float v[PARALLEL * LONGEST * KV_WIDTH];
    static float result[PARALLEL * LONGEST * Q_WIDTH];
    if (attention_begin(a, parts, count, err) < 0)
        return -1;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        uint32_t row = 0;
        for (uint32_t i = 0; i < count; row += parts[i++].count) {
            fill(q + row * Q_WIDTH, Q_WIDTH, 0, ids[i], layer, parts[i].past, parts[i].count);
            fill(k + row * KV_WIDTH, KV_WIDTH, 1, ids[i], layer, parts[i].past, parts[i].count);
            fill(v + row * KV_WIDTH, KV_WIDTH, 2, ids[i], layer, parts[i].past, parts[i].count);
        }
        if (attention_forward(a, layer, q, k, v, result, err) < 0)
            return -1;
        row = 0;
        for (uint32_t i = 0; i < count; row += parts[i++].count)
            memcpy(out->of[ids[i]] + ((size_t)layer * LONGEST + parts[i].past) * Q_WIDTH,
                   result + (size_t)row * Q_WIDTH, (size_t)parts[i].count * Q_WIDTH * sizeof(float));
    }
    return 0;
}

static struct attention_options options_of(const struct config *config)
{
    return (struct attention_options){
        .block = config->block,
        .max_tokens = LONGEST,
        .max_chunk = LONGEST,
        .threads = config->threads,
        .kv = config->kv,
        .backend = config->backend,
        .seed = config->block,
    };
}

static uint32_t rest_of(uint32_t id, uint32_t past)
{
    uint32_t rest = sequences[id].length - past;
    return rest < sequences[id].chunk ? rest : sequences[id].chunk;
}

static int run_alone(const struct config *config, struct outputs *out, struct failure *err)
{
    struct attention_options options = options_of(config);
    for (uint32_t id = 0; id < SEQUENCES; id++) {
        struct attention *a = NULL;
        int status = attention_create(&shape, &options, &a, err);
        for (uint32_t past = 0; status == 0 && past < sequences[id].length;) {
            struct attention_part part = {.past = past, .count = rest_of(id, past)};
            status = step(a, &part, &id, 1, out, err);
            past += part.count;
        }
        attention_destroy(a);
        if (status < 0)
            return -1;
    }
    return 0;
}

/* A sequence that runs, and its blocks. */
struct place {
    uint32_t id; /* SEQUENCES = free */
    uint32_t past;
    uint32_t count;
    int32_t blocks[LONGEST];
    uint32_t held;
};

static void grow(struct place *place, struct blocks *blocks, uint32_t block)
{
    while (place->held * block < place->past + place->count)
        place->blocks[place->held++] = blocks_take(blocks);
}

/* The first half of its blocks are moved elsewhere, within the cache or by way of the host. */
static int travel(struct attention *a, struct place *place, struct blocks *blocks, bool by_host,
                  struct failure *err)
{
    struct block_move list[2][LONGEST];
    struct block_moves moves[2] = {{list[0], 0, 0}, {list[1], 0, 0}};
    uint32_t count = place->held / 2;
    for (uint32_t i = 0; i < count; i++) {
        int32_t host = (int32_t)(count - 1 - i);
        int32_t to = blocks_take(blocks);
        list[0][i] = (struct block_move){0, place->blocks[i], by_host ? host : to};
        list[1][i] = (struct block_move){0, host, to};
        blocks_drop(blocks, place->blocks[i]);
        place->blocks[i] = to;
    }
    moves[0].count = moves[1].count = count;
    if (!by_host)
        return attention_copy(a, &moves[0], err);
    return attention_swap_out(a, &moves[0], err) < 0 ? -1 : attention_swap_in(a, &moves[1], err);
}

static uint32_t blocks_for(uint32_t tokens, uint32_t block)
{
    return (tokens + block - 1) / block;
}

/* Whoever has ended gives its blocks to others. */
static void end_part(struct place *place, struct blocks *blocks)
{
    while (place->held > 0)
        blocks_drop(blocks, place->blocks[--place->held]);
    place->id = SEQUENCES;
}

/* Sequences in the given order on PARALLEL places; each step a random part of those that run. */
static int run_steps(struct attention *a, const struct config *config, const uint32_t *order,
                     struct blocks *blocks, struct outputs *out, struct failure *err)
{
    struct place places[PARALLEL] = {{.id = SEQUENCES}, {.id = SEQUENCES}, {.id = SEQUENCES}};
    uint64_t state = config->block;
    uint32_t next = 0;
    uint32_t ended = 0;
    int status = 0;
    while (status == 0 && ended < SEQUENCES) {
        struct attention_part parts[PARALLEL];
        struct place *members[PARALLEL];
        uint32_t ids[PARALLEL];
        uint32_t count = 0;
        for (uint32_t i = 0; status == 0 && i < PARALLEL; i++) {
            struct place *p = &places[i];
            if (p->id == SEQUENCES && next < SEQUENCES)
                *p = (struct place){.id = order[next++]};
            if (p->id == SEQUENCES || rng_unit(&state) < 0.3)
                continue;
            p->count = rest_of(p->id, p->past);
            if (rng_unit(&state) < 0.4)
                status = travel(a, p, blocks, rng_unit(&state) < 0.5, err);
            grow(p, blocks, config->block);
            members[count] = p;
            ids[count] = p->id;
            parts[count++] = (struct attention_part){
                .blocks = {p->blocks}, .past = p->past, .count = p->count, .batch_slot = i};
        }
        status = status == 0 && count ? step(a, parts, ids, count, out, err) : status;
        for (uint32_t i = 0; i < count; i++) {
            members[i]->past += members[i]->count;
            if (members[i]->past == sequences[ids[i]].length) {
                end_part(members[i], blocks);
                ended++;
            }
        }
    }
    return status;
}

static int run_together(const struct config *config, const uint32_t *order, struct outputs *out,
                        struct failure *err)
{
    struct attention_options options = options_of(config);
    struct attention *a = NULL;
    struct blocks blocks = {0};
    options.max_seqs = PARALLEL;
    options.max_batch_tokens = PARALLEL * LONGEST;
    /* The longest three, and room for a journey of one of them. */
    options.blocks[0] = blocks_for(75, config->block) + blocks_for(64, config->block) +
                        blocks_for(48, config->block) + blocks_for(75, config->block);
    options.host_blocks = blocks_for(75, config->block);
    int status = blocks_init(&blocks, options.blocks[0], 0, err);
    if (status == 0)
        status = attention_create(&shape, &options, &a, err);
    if (status == 0)
        status = run_steps(a, config, order, &blocks, out, err);
    attention_destroy(a);
    blocks_finish(&blocks);
    return status;
}

static void test_config(const struct config *config, struct outputs *alone, struct outputs *together)
{
    static const uint32_t orders[][SEQUENCES] = {
        {0, 1, 2, 3, 4, 5, 6}, {6, 5, 4, 3, 2, 1, 0}, {2, 5, 3, 6, 0, 4, 1}};
    struct failure err = {0};
    if (run_alone(config, alone, &err) < 0) {
        tap_result(false, "%s, %s, block %u, alone: %s", config->backend, config->kv, config->block,
                   err.text);
        return;
    }
    for (size_t o = 0; o < sizeof orders / sizeof orders[0]; o++) {
        uint32_t wrong = 0;
        int status = run_together(config, orders[o], together, &err);
        for (uint32_t id = 0; id < SEQUENCES; id++)
            for (uint32_t layer = 0; layer < LAYERS; layer++)
                wrong += memcmp(alone->of[id] + (size_t)layer * LONGEST * Q_WIDTH,
                                together->of[id] + (size_t)layer * LONGEST * Q_WIDTH,
                                (size_t)sequences[id].length * Q_WIDTH * sizeof(float)) != 0;
        tap_result(status == 0 && wrong == 0,
                   "%s, cache %s, block %u, order %zu: %d sequences as alone, bit for bit (%u differ)%s%s",
                   config->backend, config->kv, config->block, o + 1, SEQUENCES, wrong, status < 0 ? " " : "",
                   status < 0 ? err.text : "");
        for (uint32_t id = 0; id < SEQUENCES; id++)
            memset(together->of[id], 0xff, (size_t)LAYERS * LONGEST * Q_WIDTH * sizeof(float));
    }
}

int main(void)
{
    static const char *const backends[] = {"cpu/flash-attn", "cpu/flashinfer"};
    static const char *const types[] = {"f16", "f32", "bf16", "int8", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz"};
    static const uint32_t blocks[] = {1, 16, 33};
    struct outputs alone = {0};
    struct outputs together = {0};
    bool memory = true;
    for (uint32_t id = 0; id < SEQUENCES; id++) {
        alone.of[id] = calloc((size_t)LAYERS * LONGEST * Q_WIDTH, sizeof(float));
        together.of[id] = calloc((size_t)LAYERS * LONGEST * Q_WIDTH, sizeof(float));
        memory = memory && alone.of[id] && together.of[id];
    }
    for (size_t t = 0; memory && t < sizeof types / sizeof types[0]; t++)
        for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
            struct config config = {backends[(t + b) % 2], types[t], blocks[b], 1 + (uint32_t)(b % 2)};
            test_config(&config, &alone, &together);
        }
    for (uint32_t id = 0; id < SEQUENCES; id++) {
        free(alone.of[id]);
        free(together.of[id]);
    }
    return tap_finish();
}
