/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The crowd: two cache groups of other block sizes, and an encoder's blocks. */
#include "crowd.h"

const uint32_t crowd_block[CROWD_TABLES] = {8, 4, 8};

uint32_t crowd_random(struct crowd *crowd, uint32_t below)
{
    crowd->random = crowd->random * UINT32_C(1664525) + UINT32_C(1013904223);
    return (crowd->random >> 8) % below;
}

void crowd_init(struct crowd *crowd, uint32_t seed, bool cross, uint32_t tokens)
{
    memset(crowd, 0, sizeof *crowd);
    crowd->random = seed;
    crowd->cross = cross;
    crowd->tokens = tokens;
    for (uint32_t t = 0; t < CROWD_TABLES; t++)
        for (uint32_t page = 1; page < CROWD_PAGES; page++)
            crowd->free_pages[t][crowd->free_count[t]++] = page;
}

static int64_t take_page(struct crowd *crowd, uint32_t table)
{
    const uint32_t at = crowd_random(crowd, crowd->free_count[table]);
    const int64_t page = crowd->free_pages[table][at];

    crowd->free_pages[table][at] = crowd->free_pages[table][--crowd->free_count[table]];
    return page;
}

static void give_page(struct crowd *crowd, uint32_t table, int64_t page)
{
    crowd->free_pages[table][crowd->free_count[table]++] = page;
}

/* Blocks for `tokens` tokens in a table. */
static void reserve(struct crowd *crowd, struct crowd_seq *seq, uint32_t table, uint32_t tokens)
{
    const uint32_t needed = (tokens + crowd_block[table] - 1) / crowd_block[table];

    while (seq->count[table] < needed)
        seq->blocks[table][seq->count[table]++] = take_page(crowd, table);
}

static void leave(struct crowd *crowd, uint32_t i)
{
    struct crowd_seq *seq = &crowd->seq[i];

    for (uint32_t t = 0; t < CROWD_TABLES; t++)
        for (uint32_t k = 0; k < seq->count[t]; k++)
            give_page(crowd, t, seq->blocks[t][k]);
    *seq = crowd->seq[--crowd->seqs];
    crowd->left++;
}

/* Another page in place of one: what is in it is as good as anything. */
static void move_block(struct crowd *crowd, struct crowd_seq *seq)
{
    const uint32_t t = crowd_random(crowd, crowd->cross ? CROWD_TABLES : CROWD_GROUPS);

    if (seq->count[t] == 0)
        return;
    int64_t *block = &seq->blocks[t][crowd_random(crowd, seq->count[t])];
    const int64_t page = take_page(crowd, t);
    give_page(crowd, t, *block);
    *block = page;
    crowd->moved++;
}

/* The fewest tokens of a sequence in a step. */
static uint32_t least(const struct crowd *crowd)
{
    return crowd->tokens != 0 ? crowd->tokens : 1;
}

uint32_t crowd_change(struct crowd *crowd)
{
    const uint32_t tokens = least(crowd);
    uint32_t came = 0;

    crowd->moved = 0;
    for (uint32_t i = crowd->seqs; i-- > 0;)
        if (crowd->seq[i].len + tokens > CROWD_LEN || crowd_random(crowd, 40) == 0)
            leave(crowd, i);
    if (crowd->seqs > 0 && crowd_random(crowd, 60) == 0) /* everybody but one */
        while (crowd->seqs > 1)
            leave(crowd, crowd->seqs - 1);
    for (uint32_t i = 0; i < crowd->seqs; i++)
        if (crowd_random(crowd, 8) == 0)
            move_block(crowd, &crowd->seq[i]);
    const uint32_t wanted = crowd_random(crowd, 6) == 0 ? 4 : crowd_random(crowd, 4) == 0;
    while ((crowd->seqs + 1) * tokens <= CROWD_ROWS && crowd->seqs < CROWD_SEQS &&
           (came < wanted || crowd->seqs == 0)) {
        struct crowd_seq *seq = &crowd->seq[crowd->seqs++];
        memset(seq, 0, sizeof *seq);
        /* Some begin at once, some with most of their tokens found in the cache. */
        seq->len =
            crowd_random(crowd, 3) == 0 ? 0 : crowd_random(crowd, CROWD_LEN - CROWD_CHUNK + 1 - tokens);
        seq->encoder_len = crowd->cross ? 1 + crowd_random(crowd, CROWD_ENCODER) : 0;
        reserve(crowd, seq, CROWD_GROUPS, seq->encoder_len);
        came++;
    }
    return came;
}

bool crowd_fits(const struct crowd *crowd)
{
    for (uint32_t i = 0; i < crowd->seqs; i++)
        if (crowd->seq[i].len + least(crowd) > CROWD_LEN)
            return false;
    return true;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Some prompts first, with chunks of one token and more, then decodes; who is full begins anew. */
static void draw_mix(struct crowd *crowd)
{
    const uint32_t prompts = crowd_random(crowd, 4) == 0 ? 0 : crowd_random(crowd, crowd->seqs + 1);
    uint32_t left = CROWD_ROWS - crowd->seqs;

    for (uint32_t i = 0; i < crowd->seqs; i++) {
        struct crowd_seq *seq = &crowd->seq[i];
        if (seq->len >= CROWD_LEN)
            seq->len = 0;
        seq->prompt = i < prompts;
        const uint32_t room = smaller(CROWD_LEN - seq->len, CROWD_CHUNK) - 1;
        const uint32_t most = seq->prompt ? room : crowd->drafts ? smaller(room, 2) : 0;
        const uint32_t more = smaller(crowd_random(crowd, most + 1), left);
        seq->new_len = 1 + more;
        left -= more;
    }
}

void crowd_reserve(struct crowd *crowd)
{
    for (uint32_t i = 0; i < crowd->seqs; i++)
        crowd->seq[i].new_len = crowd->tokens;
    if (crowd->tokens == 0)
        draw_mix(crowd);
    for (uint32_t i = 0; i < crowd->seqs; i++)
        for (uint32_t g = 0; g < CROWD_GROUPS; g++)
            reserve(crowd, &crowd->seq[i], g, crowd->seq[i].len + crowd->seq[i].new_len);
}

uint32_t crowd_rows(const struct crowd *crowd)
{
    uint32_t rows = 0;

    for (uint32_t i = 0; i < crowd->seqs; i++)
        rows += crowd->seq[i].new_len;
    return rows;
}

void crowd_grow(struct crowd *crowd)
{
    for (uint32_t i = 0; i < crowd->seqs; i++)
        crowd->seq[i].len += crowd->tokens == 0   ? crowd->seq[i].new_len
                             : crowd->tokens == 1 ? 1
                                                  : 1 + crowd_random(crowd, crowd->tokens);
}

/* ---------------------------------------------------------------- builders */

int32_t crowd_builder_init(struct crowd_builder *builder, struct attn_backend *backend, uint32_t flavour,
                           bool cross, struct attn_error *err)
{
    struct attn_builder_params params;

    memset(builder, 0, sizeof *builder);
    for (uint32_t t = 0; t < CROWD_TABLES; t++) { /* a graph sees fewer columns than a row has */
        builder->groups[t].block = crowd_block[t];
        builder->groups[t].max_blocks = CROWD_BLOCKS + 3;
        builder->groups[t].graph_blocks = CROWD_LEN / crowd_block[t];
    }
    ATTN_INIT(&params);
    params.flavour = flavour;
    params.groups = CROWD_GROUPS;
    params.group = builder->groups;
    params.chunked = 1;
    params.max_seqs = CROWD_SEQS;
    params.max_tokens = CROWD_ROWS;
    params.steps = 4;
    params.cross = cross ? &builder->groups[CROWD_GROUPS] : NULL;
    params.max_encoder_tokens = cross ? CROWD_SEQS * CROWD_ENCODER : 0;
    return attn_builder_create(backend, &params, &builder->builder, err);
}

/* Leading blocks that the row has already. */
static uint32_t unchanged(struct crowd_row *row, const struct crowd_seq *seq, uint32_t table)
{
    uint32_t same = 0;

    while (same < seq->count[table] && same < row->count[table] &&
           row->blocks[table][same] == seq->blocks[table][same])
        same++;
    memcpy(row->blocks[table], seq->blocks[table], sizeof row->blocks[table]);
    row->count[table] = seq->count[table];
    return same;
}

/* A prompt whose tokens so far fill their blocks may as well have found them in a prefix cache. */
static int32_t add(struct crowd_builder *builder, const struct crowd_seq *seq, uint32_t row, uint32_t tokens,
                   bool prompt, struct attn_error *err)
{
    const bool hit = prompt && seq->prompt && seq->len > 0 && seq->len % crowd_block[0] == 0;
    struct attn_blocks blocks[CROWD_TABLES];
    struct attn_builder_add_args args;

    memset(blocks, 0, sizeof blocks);
    for (uint32_t t = 0; t < CROWD_TABLES; t++) {
        blocks[t].kind = ATTN_BLOCKS_LIST;
        blocks[t].blocks = seq->blocks[t];
        blocks[t].count = seq->count[t];
        blocks[t].unchanged = unchanged(&builder->rows[row], seq, t);
        blocks[t].computed = hit && t < CROWD_GROUPS ? seq->len / crowd_block[t] : 0;
    }
    ATTN_INIT(&args);
    args.prompt = prompt;
    args.prefix_hit = hit;
    args.context_len = seq->len;
    args.query_len = tokens;
    args.blocks = blocks;
    args.encoder_len = seq->encoder_len;
    args.cross = seq->encoder_len > 0 ? &blocks[CROWD_GROUPS] : NULL;
    return attn_builder_add(builder->builder, &args, err);
}

int32_t crowd_prompts(struct crowd *crowd, struct crowd_builder *builder, uint32_t first,
                      struct attn_metadata **out, uint32_t *out_rows, struct attn_error *err)
{
    int32_t status = attn_builder_reset(builder->builder, err);

    *out_rows = 0;
    for (uint32_t i = first; i < crowd->seqs && status == ATTN_OK; i++) {
        struct crowd_seq *seq = &crowd->seq[i];
        const uint32_t tokens = 1 + crowd_random(crowd, CROWD_CHUNK);
        for (uint32_t g = 0; g < CROWD_GROUPS; g++)
            reserve(crowd, seq, g, seq->len + tokens);
        status = add(builder, seq, i - first, tokens, true, err);
        seq->len += tokens;
        *out_rows += tokens;
    }
    return status == ATTN_OK ? attn_builder_build(builder->builder, NULL, NULL, out, err) : status;
}

int32_t crowd_decodes(const struct crowd *crowd, struct crowd_builder *builder, int32_t pad,
                      struct attn_metadata **out, struct attn_error *err)
{
    struct attn_builder_build_args build;
    int32_t status = attn_builder_reset(builder->builder, err);

    for (uint32_t i = 0; i < crowd->seqs && status == ATTN_OK; i++)
        status = add(builder, &crowd->seq[i], i, crowd->seq[i].new_len, crowd->seq[i].prompt, err);
    ATTN_INIT(&build);
    build.graph = build.host_only = pad >= 0;
    build.pad = pad >= 0 && crowd->tokens == 1 ? (uint32_t)pad : 0;
    return status == ATTN_OK ? attn_builder_build(builder->builder, &build, NULL, out, err) : status;
}
