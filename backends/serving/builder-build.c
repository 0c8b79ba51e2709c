/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Begins a step, and builds it: checks totals, pads for graphs, and says how much of each array the step has.
 */
#include <stdio.h>

#include "builder-add.h"
#include "builder-device.h"
#include "builder-part.h"
#include "fail.h"
#include "flashinfer.h"

void attn__builder_place(struct attn_builder_impl *b)
{
    for (uint32_t i = 0; i < b->place_count; i++) {
        const struct attn__array_place *place = &b->places[i];
        const bool kernels = place->offset < b->array_bytes && !b->host_only;
        place->array->dtype = place->dtype;
        place->array->host = b->blocks[b->copy] + place->offset;
        place->array->device.data = kernels ? b->device.data : NULL;
        place->array->device.byte_offset = kernels ? b->device.byte_offset + place->offset : 0;
    }
}

int32_t attn__builder_reset(struct attn_builder_impl *b, struct attn_error *err)
{
    struct attn_step *step = &b->whole.step;

    (void)err;
    b->hit = b->adds_stale = b->on_device = b->host_only = false;
    b->copy = (b->copy + 1) % b->params.steps;
    attn__builder_place(b);
    step->queries = step->prefills = step->prefill_tokens = step->first_row = 0;
    step->max_prefill_len = step->max_q = step->profile = 0;
    b->decode_tokens = b->max_decode_q = b->encoder_tokens = b->max_encoder = 0;
    for (uint32_t m = 0; m < b->params.modality_count; m++)
        b->map_rows[m] = step->map[m].sources.count = step->map[m].destinations.count = 0;
    for (uint32_t g = 0; g < b->params.groups; g++) {
        struct attn__group *group = &b->group[g];
        group->slots = group->longest = group->paged = group->indices = 0;
        group->step->max_decode_len = 0;
        group->total_blocks = 0;
        group->seq_start = 0;
        attn__ints(&group->step->seq_starts)[0] = 0;
        if (b->flavour->pages)
            attn__ints(&group->step->page_starts)[0] = 0;
    }
    attn__ints(&step->query_starts)[0] = 0;
    if (b->cross != NULL) {
        b->cross->slots = b->cross->longest = 0;
        attn__ints(&step->encoder.seq_starts)[0] = 0;
    }
    return ATTN_OK;
}

/* If any sequence has a prefix hit, the rows of all prompts show their blocks. */
static int32_t show_rows(struct attn_builder_impl *b, struct attn_error *err)
{
    const struct attn_step *step = &b->whole.step;

    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < b->params.groups * step->queries; i++) {
            struct attn__group *group = &b->group[i / step->queries];
            const uint32_t n = i % step->queries;
            struct attn__member *member = &group->members[n];
            if (member->shown != ATTN__SHOWN_ON_PREFIX_HIT)
                continue;
            if (pass == 1) {
                attn__table_set(&group->table, step->first_row + n, member->blocks, 0, member->count, 0);
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

    for (uint32_t i = 0; i < b->whole.step.queries && at + 8 < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, i > 0 ? ", 0" : "0");
    return attn__fail(err, ATTN_E_INVALID, 0, "query_len", "query_lens: [%s]; at least one is to be above 0",
                      list);
}

static int32_t check_step(const struct attn_builder_impl *b, const struct attn_builder_build_args *args,
                          struct attn_error *err)
{
    const struct attn_step *step = &b->whole.step;
    const uint64_t seqs = (uint64_t)step->queries + args->pad;
    const uint64_t tokens = (uint64_t)step->prefill_tokens + b->decode_tokens + args->pad;

    if (b->adds_stale)
        return attn__fail(err, ATTN_E_STATE, 0, "builder",
                          "the step advanced or was restored; the next one begins with attn_builder_reset");
    if (args->graph > 1 || (args->graph == 0 && args->pad > 0))
        return attn__fail(err, ATTN_E_INVALID, 0, args->graph > 1 ? "graph" : "pad",
                          "graph is %u and pad %u; graph is 0 or 1, and without one nothing is padded",
                          args->graph, args->pad);
    if (step->queries == 0 && !b->flavour->empty_steps)
        return attn__fail(err, ATTN_E_INVALID, 0, "seqs", "the step has no sequences");
    if (step->max_q == 0 && !b->flavour->empty_steps)
        return no_queries(b, err);
    if (seqs > b->params.max_seqs || tokens > b->params.max_tokens)
        return attn__fail(err, ATTN_E_SIZE, 0, "pad",
                          "with padding the step has %llu sequences and %llu tokens; the builder was made "
                          "for %u and %u",
                          (unsigned long long)seqs, (unsigned long long)tokens, b->params.max_seqs,
                          b->params.max_tokens);
    if (args->graph == 1 && step->first_row != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "row", "a graph's rows begin at 0; this step's at %u",
                          step->first_row);
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
    int64_t *slots = attn__longs(&group->step->slots);
    int32_t *lens = attn__ints(&group->step->seq_lens), *list = attn__ints(&group->step->seq_lens_list);
    int32_t *starts = attn__ints(&group->step->seq_starts), *own = attn__ints(&group->step->rank_lens);

    attn__slots_none(slots + group->slots, pad);
    for (uint32_t i = b->whole.step.queries; i < b->whole.step.queries + pad; i++) {
        lens[i] = list[i] = 1;
        starts[i + 1] = starts[i] + 1;
        if (own != NULL)
            own[i] = (int32_t)attn__cp_count(&b->shard, 1);
    }
    if (b->flavour->pages)
        attn__pages_end(b, group, pad);
}

/* Writes the padding sequences and tokens of a graph. */
static void pad_step(struct attn_builder_impl *b, const struct attn_builder_build_args *args, uint32_t rows)
{
    const struct attn_step *step = &b->whole.step;
    int32_t *starts = attn__ints(&step->query_starts);

    for (uint32_t g = 0; g < b->params.groups; g++) {
        pad_group(b, &b->group[g], args->pad);
        for (uint32_t row = step->queries; args->graph == 1 && row < rows; row++)
            attn__table_truncate(&b->group[g].table, row, 0);
    }
    for (uint32_t i = step->queries; i < step->queries + args->pad; i++)
        starts[i + 1] = starts[i] + 1;
    if (b->cross == NULL)
        return;
    int32_t *lens = attn__ints(&step->encoder.seq_lens);
    int32_t *list = attn__ints(&step->encoder.seq_lens_list);
    int32_t *encoder = attn__ints(&step->encoder.seq_starts);
    for (uint32_t i = step->queries; i < step->queries + args->pad; i++) {
        lens[i] = list[i] = 1;
        encoder[i + 1] = encoder[i] + 1;
    }
    for (uint32_t row = step->queries; b->cross->params.max_blocks > 0 && row < step->queries + args->pad;
         row++)
        attn__table_truncate(&b->cross->table, row, 0);
}

/* ---------------------------------------------------------------- sizes */

static void show_table(const struct attn_builder_impl *b, struct attn_step_array *array,
                       const struct attn__table *table, uint32_t rows, uint32_t width)
{
    const uint64_t first = b->whole.step.first_row;

    *array = (struct attn_step_array){.dtype = table->dtype,
                                      .width = width,
                                      .count = rows,
                                      .stride = table->device_stride,
                                      .host = table->cells + first * (uint64_t)table->stride};
    if (b->host_only)
        return;
    array->device = table->device;
    array->device.byte_offset += first * (uint64_t)table->device_stride;
}

static void show_group(struct attn_builder_impl *b, uint32_t g, uint32_t pad, uint32_t rows)
{
    const struct attn__group *group = &b->group[g];
    struct attn_step_group *out = group->step;
    const uint64_t seqs = b->whole.step.seqs, paged = group->paged + pad;

    out->slots.count = group->slots + (uint64_t)pad;
    out->seq_lens.count = out->seq_lens_list.count = seqs;
    out->seq_starts.count = seqs + 1;
    out->rank_lens.count = seqs;
    /* A rank without a key takes part too, and a table without columns is none. */
    const uint32_t longest = group->longest == 0 && b->shard.world != 0 ? 1 : group->longest;
    show_table(b, &out->table, &group->table, rows,
               b->whole.step.graph == 1 ? group->params.graph_blocks : longest);
    if (!b->flavour->pages)
        return;
    out->page_starts.count = paged + 1;
    out->page_indices.count = group->total_blocks;
    out->last_page_lens.count = out->pages_in_use.count = paged;
    memset(out->pages_in_use.host, 0, paged * sizeof(int32_t));
}

static void show_encoder(struct attn_builder_impl *b, uint32_t pad)
{
    struct attn_step *step = &b->whole.step;
    struct attn_step_encoder *out = &step->encoder;
    const struct attn__group *group = b->cross;
    const uint32_t width = step->prefills == step->queries ? 0
                           : step->graph == 1              ? group->params.graph_blocks
                                                           : group->longest;

    out->seq_lens.count = out->seq_lens_list.count = step->seqs;
    out->seq_starts.count = step->seqs + UINT64_C(1);
    out->max_len = b->max_encoder == 0 && pad > 0 ? 1 : b->max_encoder;
    out->num_tokens = (uint32_t)attn__ints(&out->seq_starts)[step->seqs];
    if (group->params.max_blocks == 0)
        return;
    out->slots.count = group->slots;
    show_table(b, &out->table, &group->table, step->seqs, width);
}

/* Prompts whose blocks are in no row. None where kernels read lists of pages, which have all blocks. */
static uint32_t count_prefills_without_table(const struct attn_builder_impl *b)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < b->whole.step.prefills && !b->flavour->pages && !b->on_device; i++)
        count += b->group->members[i].shown == ATTN__SHOWN_NONE ||
                 b->group->members[i].shown == ATTN__SHOWN_ON_PREFIX_HIT;
    return count;
}

void attn__builder_show(struct attn_builder_impl *b, const struct attn_builder_build_args *args,
                        uint32_t rows)
{
    struct attn_step *step = &b->whole.step;

    step->seqs = step->queries + args->pad;
    step->num_tokens = step->prefill_tokens + b->decode_tokens + args->pad;
    step->graph = args->graph;
    step->decode_tokens = step->graph == 0                        ? b->decode_tokens
                          : b->flavour->graph_prompts_are_decodes ? step->num_tokens
                                                                  : step->num_tokens - step->prefill_tokens;
    step->max_decode_q = b->flavour->no_decode_q          ? ATTN_STEP_NONE
                         : step->queries > step->prefills ? b->max_decode_q
                                                          : 1;
    step->prefills_without_table = count_prefills_without_table(b);
    step->query_starts.count = step->queries + UINT64_C(1);
    step->context_lens.count = step->queries;
    for (uint32_t g = 0; g < b->params.groups; g++)
        show_group(b, g, args->pad, rows);
    if (b->cross != NULL)
        show_encoder(b, args->pad);
}

/* ---------------------------------------------------------------- build */

static int32_t end_build(struct attn_builder_impl *b, int32_t status, struct attn_metadata_impl **out)
{
    b->whole.step.number++;
    *out = status == ATTN_OK ? &b->whole : NULL;
    return status;
}

int32_t attn__builder_build(struct attn_builder_impl *b, const struct attn_builder_build_args *args,
                            void *stream, struct attn_metadata_impl **out, struct attn_error *err)
{
    const struct attn_step *step = &b->whole.step;
    static const struct attn_builder_build_args none = {.struct_size = sizeof none};
    int32_t status;

    *out = NULL;
    args = args != NULL ? args : &none;
    status = check_step(b, args, err);
    if (status == ATTN_OK && b->on_device) {
        status = attn__builder_build_device(b, args, stream, err);
        return end_build(b, status, out);
    }
    if (status == ATTN_OK && b->hit && b->flavour->hit_shows_all)
        status = show_rows(b, err);
    if (status != ATTN_OK)
        return status;
    const uint32_t tokens = step->prefill_tokens + b->decode_tokens + args->pad;
    const uint32_t wanted = b->flavour->graph_rows_are_seqs ? step->queries + args->pad : tokens;
    const uint32_t rows = wanted < b->params.max_seqs ? wanted : b->params.max_seqs;
    const bool host_only = args->host_only == 1 && !b->direct;
    if (host_only != b->host_only) {
        b->host_only = host_only;
        attn__builder_place(b);
    }
    pad_step(b, args, rows);
    attn__builder_show(b, args, args->graph == 1 ? rows : step->queries);
    attn__parts_prepare(b, attn__ints(&step->query_starts));
    if (!b->direct && !b->host_only)
        status = attn__builder_flush(b, stream, err);
    return end_build(b, status, out);
}
