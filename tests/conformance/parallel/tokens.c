/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Takes the query tokens of one rank out of a step, and puts their results back. */
#include "tokens.h"

#include <stdlib.h>

#include "need.h"

static int32_t q_len_of(const struct step *step, uint32_t n)
{
    return step->host.q_offsets[n + 1] - step->host.q_offsets[n];
}

bool tokens_allow(const struct step *step, uint32_t pass, uint32_t size)
{
    const struct attn_problem *p = &step->problem;

    for (uint32_t i = 0; i < step->the_case->page_entries; i++)
        if (step->the_case->pages[i] < 0)
            return false;
    for (uint32_t n = 0; n < step->seqs; n++)
        if (q_len_of(step, n) > step->host.kv_lens[n])
            return false;
    if (pass == ATTN_CP_PASS_HEADS &&
        (size < 2 || p->mla != 0 || p->heads % size != 0 || p->kv_heads % size != 0))
        return false;
    return p->positions == 0 && p->align != ATTN_ALIGN_START && p->mask == ATTN_MASK_NONE &&
           p->seq_causal == 0 && oracle_size(p->q_dtype) > 1 && step->tensors.q_rope.buffer.data == NULL &&
           p->q_scale == ATTN_SCALES_NONE &&
           (pass == ATTN_CP_PASS_QUERIES || pass == ATTN_CP_PASS_CHEAPER ||
            (oracle_size(p->k_dtype) > 0 && oracle_size(p->v_dtype) > 0));
}

static uint32_t position_of(const struct step *step, uint32_t n, uint32_t row)
{
    return row - (uint32_t)step->host.q_offsets[n] + (uint32_t)(step->host.kv_lens[n] - q_len_of(step, n));
}

uint32_t tokens_owner(const struct step *step, uint32_t row, uint32_t size, uint32_t interleave)
{
    uint32_t n = 0;

    while (row >= (uint32_t)step->host.q_offsets[n + 1])
        n++;
    return position_of(step, n, row) / interleave % size;
}

static void place(struct tokens *tokens, struct shard *shard, struct attn_tensor *tensor, const char *name,
                  uint32_t heads, uint32_t dim, uint32_t element)
{
    const uint32_t shape[3] = {tokens->count, heads, dim};
    struct rng rng = {mix(tokens->step->the_case->seed, 93 + element)};

    tensor_init(tensor, &shard->arena, name, shape, element, &tokens->step->layout, &rng, 0xff);
}

void tokens_init(struct tokens *tokens, struct shard *shard, const struct step *step, uint32_t rank,
                 uint32_t size, uint32_t interleave)
{
    const struct attn_problem *p = &step->problem;
    const uint32_t all = (uint32_t)step->host.q_offsets[step->seqs];

    *tokens = (struct tokens){.step = step, .rank = rank, .size = size, .interleave = interleave};
    tokens->rows = need(malloc((all + 1) * sizeof *tokens->rows));
    for (uint32_t row = 0; row < all; row++)
        if (tokens_owner(step, row, size, interleave) == rank)
            tokens->rows[tokens->count++] = row;
    for (uint32_t n = 0; n < step->seqs; n++)
        tokens->q_lens[n] = q_len_of(step, n);
    tokens->tensors = shard->tensors;
    place(tokens, shard, &tokens->tensors.q, "queries of a rank", p->heads, p->head_dim,
          oracle_size(p->q_dtype));
    place(tokens, shard, &tokens->tensors.out, "out of a rank", p->heads, p->head_dim_vo,
          oracle_size(p->out_dtype));
    place(tokens, shard, &tokens->tensors.lse, "lse of a rank", p->heads, 1, sizeof(float));
    for (uint32_t i = 0; i < tokens->count; i++)
        for (uint32_t head = 0; head < p->heads; head++)
            memcpy(tensor_at(&tokens->tensors.q, i, head), tensor_at(&step->tensors.q, tokens->rows[i], head),
                   (size_t)p->head_dim * oracle_size(p->q_dtype));
}

void tokens_finish(struct tokens *tokens)
{
    free(tokens->rows);
}

/* What the rank's own share of tokens is by the rule that engines ask. */
static bool counts_agree(const struct tokens *tokens)
{
    const struct step *step = tokens->step;
    int64_t sum = 0;

    for (uint32_t n = 0; n < step->seqs; n++)
        sum += attn_cp_tokens(tokens->rank, tokens->size, tokens->interleave, tokens->q_lens[n],
                              step->host.kv_lens[n], NULL, 0);
    return sum == tokens->count;
}

int32_t tokens_run(const struct tokens *tokens, const struct shard *shard, struct attn_cp *cp,
                   struct attn_error *err)
{
    const struct step *step = tokens->step;
    struct attn_cp_prefill_info info;
    struct attn_cp_step args;
    int32_t status = ATTN_OK;

    ATTN_INIT(&args);
    ATTN_INIT(&info);
    args.seqs = step->seqs;
    args.q_lens = tokens->q_lens;
    args.kv_lens = step->host.kv_lens;
    args.table = shard->host.table;
    args.table_width = shard->batch.table_width;
    for (int i = 0; i < 4 && status == ATTN_OK; i++) {
        if (i % 2 == 0)
            status = attn_cp_prefill_begin(cp, &args, NULL, err);
        if (status == ATTN_OK)
            status = attn_cp_prefill_run(cp, &tokens->tensors, NULL, err);
    }
    if (status == ATTN_OK)
        status = attn_cp_wait(cp, NULL, err);
    if (status == ATTN_OK)
        status = attn_cp_prefill_get_info(cp, &info, err);
    if (status != ATTN_OK || (info.tokens == tokens->count && counts_agree(tokens)))
        return status;
    snprintf(err->message, sizeof err->message, "the rank has %llu query tokens, not %u",
             (unsigned long long)info.tokens, tokens->count);
    return ATTN_E_STATE;
}

void tokens_take(const struct tokens *tokens)
{
    const struct step *step = tokens->step;
    const struct attn_problem *p = &step->problem;

    for (uint32_t i = 0; i < tokens->count; i++)
        for (uint32_t head = 0; head < p->heads; head++) {
            memcpy(tensor_at(&step->tensors.out, tokens->rows[i], head),
                   tensor_at(&tokens->tensors.out, i, head),
                   (size_t)p->head_dim_vo * oracle_size(p->out_dtype));
            memcpy(tensor_at(&step->tensors.lse, tokens->rows[i], head),
                   tensor_at(&tokens->tensors.lse, i, head), sizeof(float));
        }
}
