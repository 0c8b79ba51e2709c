/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Begins a step, and builds it: checks totals, pads for graphs, and sets the views. */
#include <stdio.h>

#include "builder-add.h"
#include "builder-device.h"
#include "fail.h"
#include "parts.h"

void attn__builder_next_copy(struct attn_builder_impl *b)
{
    const uint32_t groups = b->params.groups + (b->cross != NULL ? 1u : 0u);
    char *block;

    b->step = (b->step + 1) % b->params.steps;
    block = b->blocks[b->step];
    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t f = 0; f < ATTN_FIELDS; f++)
            if (b->group[g].arrays[f].kind != 0)
                b->group[g].arrays[f].host = block + b->group[g].arrays[f].offset;
    for (uint32_t m = 0; m < 2 * b->params.modality_count; m++)
        b->maps[m].host = block + b->maps[m].offset;
    b->decode_start.host = block + b->decode_start.offset;
    b->zeros.host = block + b->zeros.offset;
}

int32_t attn__builder_reset(struct attn_builder_impl *b, struct attn_error *err)
{
    (void)err;
    if (!b->direct || b->decode_start.host == NULL)
        attn__builder_next_copy(b);
    b->seqs = b->prefills = b->prompt_tokens = b->decode_tokens = 0;
    b->max_prefill = b->max_q = b->max_decode_q = b->first_row = 0;
    b->hit = b->profile = b->adds_stale = b->on_device = b->host_only = false;
    b->encoder_tokens = b->max_encoder = 0;
    for (uint32_t m = 0; m < b->params.modality_count; m++)
        b->map_rows[m] = b->map_count[m] = 0;
    for (uint32_t g = 0; g < b->params.groups; g++) {
        struct attn__group *group = &b->group[g];
        group->slots = group->longest = group->max_decode = group->paged = group->indices = 0;
        group->total_blocks = 0;
        group->seq_start = 0;
        attn__i32(group, ATTN_FIELD_SEQ_START_LOC)[0] = 0;
        if (b->infer)
            attn__i32(group, ATTN_FIELD_PAGED_KV_INDPTR)[0] = 0;
    }
    attn__i32(b->group, ATTN_FIELD_QUERY_START_LOC)[0] = 0;
    if (b->cross != NULL) {
        b->cross->slots = b->cross->longest = 0;
        attn__i32(b->cross, ATTN_FIELD_ENCODER_SEQ_START_LOC)[0] = 0;
    }
    return ATTN_OK;
}

/* FlashAttention: if any sequence has a prefix hit, the rows of all prompts show their blocks. */
static int32_t show_rows(struct attn_builder_impl *b, struct attn_error *err)
{
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < b->params.groups * b->seqs; i++) {
            struct attn__group *group = &b->group[i / b->seqs];
            const uint32_t n = i % b->seqs;
            struct attn__member *member = &group->members[n];
            if (member->shown != ATTN__SHOWN_ON_PREFIX_HIT)
                continue;
            if (pass == 1) {
                attn__table_set(&group->table, b->first_row + n, member->blocks, 0, member->count, 0);
                group->longest = member->count > group->longest ? member->count : group->longest;
                member->shown = ATTN__SHOWN_LIST;
                continue;
            }
            const uint32_t bad = attn__table_first_overflow(&group->table, member->blocks, member->count);
            if (member->count > group->params.max_blocks)
                return attn__fail(err, ATTN_E_SIZE, 0, "max_blocks",
                                  "sequence %u has %u blocks; the builder was made for %u", n, member->count,
                                  group->params.max_blocks);
            if (bad < member->count)
                return attn__fail(err, ATTN_E_INVALID, 0, "blocks",
                                  "block %lld of sequence %u does not fit a table of i32",
                                  (long long)member->blocks[bad], n);
        }
    }
    return ATTN_OK;
}

/* vLLM's assertion, which lists the lengths of all queries. */
static int32_t no_queries(const struct attn_builder_impl *b, struct attn_error *err)
{
    char list[256];
    size_t at = 0;

    for (uint32_t i = 0; i < b->seqs && at + 8 < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, i > 0 ? ", 0" : "0");
    return attn__fail(err, ATTN_E_INVALID, 0, "query_len", "query_lens: [%s]; at least one is to be above 0",
                      list);
}

static int32_t check_step(const struct attn_builder_impl *b, const struct attn_builder_build_args *args,
                          struct attn_error *err)
{
    const uint64_t seqs = (uint64_t)b->seqs + args->pad;
    const uint64_t tokens = (uint64_t)b->prompt_tokens + b->decode_tokens + args->pad;

    if (b->adds_stale)
        return attn__fail(err, ATTN_E_STATE, 0, "builder",
                          "the step advanced or was restored; the next one begins with attn_builder_reset");
    if (args->graph > 1 || (args->graph == 0 && args->pad > 0))
        return attn__fail(err, ATTN_E_INVALID, 0, args->graph > 1 ? "graph" : "pad",
                          "graph is %u and pad %u; graph is 0 or 1, and without one nothing is padded",
                          args->graph, args->pad);
    if (b->seqs == 0 && !b->infer)
        return attn__fail(err, ATTN_E_INVALID, 0, "seqs", "the step has no sequences");
    if (b->max_q == 0 && !b->infer)
        return no_queries(b, err);
    if (seqs > b->params.max_seqs || tokens > b->params.max_tokens)
        return attn__fail(err, ATTN_E_SIZE, 0, "pad",
                          "with padding the step has %llu sequences and %llu tokens; the builder was made "
                          "for %u and %u",
                          (unsigned long long)seqs, (unsigned long long)tokens, b->params.max_seqs,
                          b->params.max_tokens);
    if (args->graph == 1 && b->first_row != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "row", "a graph's rows begin at 0; this step's at %u",
                          b->first_row);
    if (args->host_only > 1 || (args->host_only == 1 && (args->graph == 0 || b->on_device)))
        return attn__fail(err, ATTN_E_INVALID, 0, "host_only",
                          "host_only is %u, graph %u%s; 1 is accepted for graphs of steps that the "
                          "host has",
                          args->host_only, args->graph, b->on_device ? " after set_device" : "");
    for (uint32_t g = 0; g < b->params.groups; g++)
        if (b->group[g].slots + (uint64_t)args->pad > b->params.max_tokens ||
            b->group[g].seq_start + args->pad > INT32_MAX)
            return attn__fail(err, ATTN_E_SIZE, 0, "pad",
                              "with padding the step has %llu slots; the "
                              "builder was made for %u",
                              (unsigned long long)b->group[g].slots + args->pad, b->params.max_tokens);
    return ATTN_OK;
}

static void pad_group(struct attn_builder_impl *b, struct attn__group *group, uint32_t pad)
{
    int64_t *slots = attn__i64(group, ATTN_FIELD_SLOT_MAPPING);
    int32_t *lens = attn__i32(group, ATTN_FIELD_SEQ_LENS_TENSOR),
            *list = attn__i32(group, ATTN_FIELD_SEQ_LENS);
    int32_t *starts = attn__i32(group, ATTN_FIELD_SEQ_START_LOC);

    attn__slots_none(slots + group->slots, pad);
    for (uint32_t i = b->seqs; i < b->seqs + pad; i++) {
        lens[i] = list[i] = 1;
        starts[i + 1] = starts[i] + 1;
    }
    if (!b->infer)
        return;
    int32_t *indptr = attn__i32(group, ATTN_FIELD_PAGED_KV_INDPTR);
    int32_t *last = attn__i32(group, ATTN_FIELD_PAGED_KV_LAST_PAGE_LEN);
    for (uint32_t i = group->paged; i < group->paged + pad; i++) {
        indptr[i + 1] = indptr[i];
        last[i] = 0;
    }
}

/* Writes the padding sequences and tokens of a graph. */
static void pad_step(struct attn_builder_impl *b, const struct attn_builder_build_args *args, uint32_t rows)
{
    int32_t *starts = attn__i32(b->group, ATTN_FIELD_QUERY_START_LOC);

    for (uint32_t g = 0; g < b->params.groups; g++) {
        pad_group(b, &b->group[g], args->pad);
        for (uint32_t row = b->seqs; args->graph == 1 && row < rows; row++)
            attn__table_truncate(&b->group[g].table, row, 0);
    }
    for (uint32_t i = b->seqs; i < b->seqs + args->pad; i++)
        starts[i + 1] = starts[i] + 1;
    if (b->cross == NULL)
        return;
    int32_t *lens = attn__i32(b->cross, ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR);
    int32_t *list = attn__i32(b->cross, ATTN_FIELD_ENCODER_SEQ_LENS);
    int32_t *encoder = attn__i32(b->cross, ATTN_FIELD_ENCODER_SEQ_START_LOC);
    for (uint32_t i = b->seqs; i < b->seqs + args->pad; i++) {
        lens[i] = list[i] = 1;
        encoder[i + 1] = encoder[i] + 1;
    }
    for (uint32_t row = b->seqs; b->cross->params.max_blocks > 0 && row < b->seqs + args->pad; row++)
        attn__table_truncate(&b->cross->table, row, 0);
}

/* FlashInfer's page indices are as long as all blocks of the sequences; those not in use yet are 0. */
static void pad_indices(struct attn_builder_impl *b)
{
    for (uint32_t g = 0; b->infer && g < b->params.groups; g++) {
        struct attn__group *group = &b->group[g];
        const uint64_t size = b->params.index_dtype == ATTN_INT64 ? 8 : 4;
        if (group->total_blocks > group->indices)
            memset(group->arrays[ATTN_FIELD_PAGED_KV_INDICES].host + group->indices * size, 0,
                   (size_t)((group->total_blocks - group->indices) * size));
    }
}

static int32_t end_build(struct attn_builder_impl *b, int32_t status, struct attn_metadata_impl **out)
{
    b->whole.step++;
    *out = status == ATTN_OK ? &b->whole : NULL;
    return status;
}

int32_t attn__builder_build(struct attn_builder_impl *b, const struct attn_builder_build_args *args,
                            void *stream, struct attn_metadata_impl **out, struct attn_error *err)
{
    static const struct attn_builder_build_args none = {.struct_size = sizeof none};
    int32_t status;

    *out = NULL;
    args = args != NULL ? args : &none;
    status = check_step(b, args, err);
    if (status == ATTN_OK && b->on_device) {
        status = attn__builder_build_device(b, args, stream, err);
        return end_build(b, status, out);
    }
    if (status == ATTN_OK && b->hit && b->flash)
        status = show_rows(b, err);
    if (status != ATTN_OK)
        return status;
    const uint32_t tokens = b->prompt_tokens + b->decode_tokens + args->pad;
    const uint32_t wanted = b->flash ? b->seqs + args->pad : tokens;
    const uint32_t rows = wanted < b->params.max_seqs ? wanted : b->params.max_seqs;
    b->host_only = args->host_only == 1 && !b->direct;
    pad_step(b, args, rows);
    pad_indices(b);
    attn__builder_show(b, args, args->graph == 1 ? rows : b->seqs);
    attn__parts_prepare(b);
    if (!b->direct && !b->host_only)
        status = attn__builder_flush(b, stream, err);
    return end_build(b, status, out);
}
