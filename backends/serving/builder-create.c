/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Creates builders: checks their parameters and allocates all memory that steps will need. */
#include <stdlib.h>

#include "builder-memory.h"
#include "builder.h"
#include "fail.h"
#include "flavour.h"

#define COUNT_MAX UINT32_C(0x7fffffff)
#define BLOCK_MAX (UINT32_C(1) << 20)

static int32_t check_range(const char *name, uint64_t value, uint64_t min, uint64_t max,
                           struct attn_error *err)
{
    if (value >= min && value <= max)
        return ATTN_OK;
    return attn__fail(err, ATTN_E_INVALID, 0, name, "%s is %llu; accepted: %llu to %llu", name,
                      (unsigned long long)value, (unsigned long long)min, (unsigned long long)max);
}

static int32_t check_params(const struct attn_builder_params *p, struct attn_error *err)
{
    const struct {
        const char *name;
        uint64_t value, min, max;
    } ranges[] = {{"groups", p->groups, 0, 64},
                  {"chunked", p->chunked, 0, 1},
                  {"max_seqs", p->max_seqs, 1, COUNT_MAX - 1},
                  {"max_tokens", p->max_tokens, 1, COUNT_MAX - 1},
                  {"steps", p->steps, 0, 64},
                  {"max_encoder_tokens", p->max_encoder_tokens, 0, COUNT_MAX - 1},
                  {"modality_count", p->modality_count, 0, 64},
                  {"max_map", p->max_map, 0, COUNT_MAX}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const int32_t status =
            check_range(ranges[i].name, ranges[i].value, ranges[i].min, ranges[i].max, err);
        if (status != ATTN_OK)
            return status;
    }
    if (p->index_dtype != 0 && p->index_dtype != ATTN_INT32 && p->index_dtype != ATTN_INT64)
        return attn__fail(err, ATTN_E_INVALID, 0, "index_dtype",
                          "index_dtype is 0x%x; ATTN_INT32 and ATTN_INT64 are accepted", p->index_dtype);
    if (p->group == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "group", "group is NULL; one per cache group is needed");
    if (p->cross != NULL && p->max_encoder_tokens == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "cross", "cross is given, but max_encoder_tokens is 0");
    if (p->modality_count > 0 && p->modalities == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "modalities", "modalities is NULL; %u names are needed",
                          p->modality_count);
    return ATTN_OK;
}

static int32_t check_group(const struct attn_builder_group *g, uint32_t max_seqs, uint32_t cell,
                           const char *name, struct attn_error *err)
{
    const int64_t row_bytes = (int64_t)g->max_blocks * cell;
    int32_t status = check_range("block", g->block, 1, BLOCK_MAX, err);

    if (status == ATTN_OK)
        status = check_range("max_blocks", g->max_blocks, 1, COUNT_MAX, err);
    if (status == ATTN_OK)
        status = check_range("graph_blocks", g->graph_blocks, 0, g->max_blocks, err);
    if (status == ATTN_OK)
        status = check_range("window", g->window, 0, COUNT_MAX, err);
    if (status != ATTN_OK)
        return status;
    if (g->table.buffer.data == NULL && g->table_stride != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "table_stride",
                          "table_stride of %s is %lld, but it has no table; 0 is accepted", name,
                          (long long)g->table_stride);
    if (g->table.buffer.data == NULL)
        return ATTN_OK;
    if (g->table_stride != 0 && (g->table_stride < row_bytes || g->table_stride % cell != 0))
        return attn__fail(err, ATTN_E_INVALID, 0, "table_stride",
                          "table_stride of %s is %lld; multiples of %u from %lld on are accepted", name,
                          (long long)g->table_stride, cell, (long long)row_bytes);
    const uint64_t stride = (uint64_t)(g->table_stride != 0 ? g->table_stride : row_bytes);
    if (g->table.size < stride * (max_seqs - 1) + (uint64_t)row_bytes)
        return attn__fail(err, ATTN_E_SIZE, 0, "table", "table of %s has %llu bytes; %llu are needed", name,
                          (unsigned long long)g->table.size,
                          (unsigned long long)(stride * (max_seqs - 1) + (uint64_t)row_bytes));
    return ATTN_OK;
}

/* Keys on several ranks: what of the parameters that needs, and what it excludes. */
static int32_t check_ranks(const struct attn_builder_params *p, const struct attn__flavour *flavour,
                           struct attn_error *err)
{
    if (p->cp_world == 0)
        return (p->cp_rank | p->cp_interleave) == 0
                   ? ATTN_OK
                   : attn__fail(err, ATTN_E_INVALID, 0, "cp_world",
                                "cp_world is 0, cp_rank %u and cp_interleave %u; accepted: all 0, or 1 rank "
                                "and more",
                                p->cp_rank, p->cp_interleave);
    if (p->cp_rank >= p->cp_world)
        return attn__fail(err, ATTN_E_INVALID, 0, "cp_rank", "cp_rank is %u; accepted: below cp_world, %u",
                          p->cp_rank, p->cp_world);
    if (p->chunked != 1)
        return attn__fail(
            err, ATTN_E_INVALID, 0, "chunked",
            "chunked is 0 and cp_world %u; with ranks prompts are read from the caches too: 1 is "
            "accepted",
            p->cp_world);
    if (p->max_encoder_tokens != 0)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "max_encoder_tokens",
                          "max_encoder_tokens is %u and cp_world %u; encoders and cross-attention have no "
                          "ranks: 0 is accepted",
                          p->max_encoder_tokens, p->cp_world);
    return !flavour->pages ? ATTN_OK
                           : attn__fail(err, ATTN_E_UNSUPPORTED, 0, "flavour",
                                        "flavour is %s and cp_world %u; with ranks flavours whose kernels "
                                        "read block tables are accepted: flash-attn, rocm-flash, xformers",
                                        flavour->name, p->cp_world);
}

static int32_t check_rank_group(const struct attn_builder_params *p, const struct attn_builder_group *g,
                                struct attn_error *err)
{
    if (p->cp_world == 0)
        return ATTN_OK;
    if (p->cp_interleave == 0 || g->block % p->cp_interleave != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "cp_interleave",
                          "cp_interleave is %u; accepted: divisors of the block of each cache group, %u",
                          p->cp_interleave, g->block);
    return (g->given & ATTN_GIVEN_WINDOW) == 0
               ? ATTN_OK
               : attn__fail(err, ATTN_E_UNSUPPORTED, 0, "window",
                            "window is %u and cp_world %u; with ranks no rows are trimmed to a window: none "
                            "is accepted, and layers have theirs",
                            g->window, p->cp_world);
}

/* Takes over the cache groups, with defaults filled in. */
static int32_t take_groups(struct attn_builder_impl *b, const struct attn_builder_params *p,
                           struct attn_error *err)
{
    const uint32_t cell = b->params.index_dtype == ATTN_INT64 ? 8 : 4;

    for (uint32_t g = 0; g < b->params.groups; g++) {
        struct attn_builder_group *group = &b->group[g].params;
        int32_t status = check_group(&p->group[g], p->max_seqs, cell, "a cache group", err);
        if (status == ATTN_OK)
            status = check_rank_group(p, &p->group[g], err);
        if (status != ATTN_OK)
            return status;
        *group = p->group[g];
        group->graph_blocks = group->graph_blocks != 0 ? group->graph_blocks : group->max_blocks;
        const uint64_t blocks = (uint64_t)group->max_blocks * p->max_seqs;
        group->max_indices = group->max_indices != 0 ? group->max_indices
                             : blocks < COUNT_MAX    ? (uint32_t)blocks
                                                     : COUNT_MAX;
    }
    if (b->cross == NULL || p->cross == NULL)
        return ATTN_OK;
    const int32_t status = check_group(p->cross, p->max_seqs, cell, "the cross group", err);
    b->cross->params = *p->cross;
    if (b->cross->params.graph_blocks == 0)
        b->cross->params.graph_blocks = b->cross->params.max_blocks;
    return status;
}

static void take_params(struct attn_builder_impl *b, const struct attn_builder_params *p)
{
    b->params = *p;
    b->params.groups = p->groups != 0 ? p->groups : 1;
    b->params.steps = p->steps != 0 ? p->steps : 1;
    b->params.index_dtype = p->index_dtype != 0 ? p->index_dtype : (uint32_t)ATTN_INT32;
    b->params.flavour = b->flavour->number;
    b->shard = (struct attn_cp_shard){p->cp_rank, p->cp_world, p->cp_interleave};
}

int32_t attn__builder_create(const struct attn_serving_host *host, const struct attn_builder_params *params,
                             struct attn_builder_impl **out, struct attn_error *err)
{
    const struct attn__flavour *flavour = NULL;
    int32_t status = attn__flavour_choose(host, params->flavour, &flavour, err);

    *out = NULL;
    if (status == ATTN_OK)
        status = check_params(params, err);
    if (status == ATTN_OK)
        status = check_ranks(params, flavour, err);
    if (status != ATTN_OK)
        return status;
    struct attn_builder_impl *b = calloc(1, sizeof *b);
    if (b == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "builder", "no memory for a builder");
    b->backend = host->impl;
    b->memory = host->memory;
    b->kv = host->kv;
    b->direct = host->memory == NULL || host->device_type == ATTN_DEVICE_CPU;
    b->flavour = flavour;
    take_params(b, params);
    const uint32_t groups = b->params.groups + (params->max_encoder_tokens > 0 ? 1u : 0u);
    b->group = calloc(groups, sizeof *b->group);
    if (b->group == NULL) {
        attn__builder_destroy(b);
        return attn__fail(err, ATTN_E_MEMORY, 0, "groups", "no memory for a builder");
    }
    b->cross = groups > b->params.groups ? &b->group[b->params.groups] : NULL;
    status = take_groups(b, params, err);
    if (status == ATTN_OK)
        status = attn__builder_allocate(b, err);
    if (status == ATTN_OK)
        status = attn__builder_reset(b, err);
    if (status != ATTN_OK) {
        attn__builder_destroy(b);
        return status;
    }
    *out = b;
    return ATTN_OK;
}
