/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* builder_edges.json: builders called with data made by hand, exceptions among them. */
#include <stdlib.h>

#include "device.h"
#include "steps.h"

static int64_t nth(const json_t *object, const char *key, size_t index)
{
    return (int64_t)json_integer_value(json_array_get(json_object_get(object, key), index));
}

static void add_group(struct step *step, const json_t *group)
{
    size_t count = json_array_size(json_object_get(group, "seq_ids"));

    for (size_t i = 0; i < count; i++) {
        struct step_sequence *sequence = step_add(step);
        sequence->prompt = golden_bool(group, "is_prompt");
        sequence->hit = golden_bool(group, "prefix_cache_hit");
        sequence->orig_len = nth(group, "orig_seq_lens", i);
        sequence->seq_len = nth(group, "seq_lens", i);
        sequence->query_len = nth(group, "query_lens", i);
        sequence->context_len = nth(group, "context_lens", i);
        sequence->window_blocks = nth(group, "curr_sliding_window_blocks", i);
        sequence->computed = (int64_t)json_array_size(json_object_get(group, "computed_block_nums"));
        sequence->tokens =
            (int64_t)json_array_size(json_array_get(json_object_get(group, "input_tokens"), i));
        step_set_blocks(sequence, json_object_get(group, "block_tables"), nth(group, "seq_ids", i));
    }
}

/* The graph's block table was 8 columns wide and had 4 rows. */
void check_edges(struct golden *g, const json_t *data)
{
    size_t i;
    json_t *row;

    json_array_foreach(data, i, row)
    {
        const char *backend = golden_text(row, "backend", "");
        struct step step = {.flavour = step_flavour(backend),
                            .backend = golden_device(),
                            .block = golden_int(row, "bs", 0),
                            .window = golden_int(row, "sw", -1),
                            .chunked = golden_bool(row, "chunked"),
                            .graph_blocks = 8,
                            .max_seqs = 4,
                            .pad = json_integer_value(json_array_get(json_object_get(row, "args"), 2))};
        struct attn_builder *builder = NULL;
        struct attn_metadata *metadata = NULL;
        struct attn_error err;
        size_t j;
        json_t *group;
        golden_begin(g, "[%zu] %s %s", i, golden_text(row, "tag", ""), backend);
        ATTN_INIT(&err);
        json_array_foreach(json_object_get(row, "inter"), j, group) add_group(&step, group);
        int32_t status = step_build(&step, &builder, &metadata, &err);
        step_check_built(g, &step, row, status, &err, metadata);
        golden_end(g);
        attn_builder_destroy(builder);
        step_finish(&step);
    }
}
