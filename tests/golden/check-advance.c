/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* advance_*.json: a step is built once, and then advanced in place by one token at a time. */
#include <stdlib.h>
#include <string.h>

#include "check-builder.h"
#include "device.h"
#include "rules.h"

/* The arrays beside the metadata. */
struct running {
    struct attn_metadata *metadata;
    int64_t *tokens;
    int64_t *positions;
    size_t rows; /* of tokens and positions */
    uint32_t seqs;
    uint32_t queries;
};

/* Names of a recorded step that are not those of fields. */
static const char *field_of(const char *key)
{
    static const char *const names[][2] = {{"context_lens", "context_lens_tensor"},
                                           {"indices", "paged_kv_indices"},
                                           {"indptr", "paged_kv_indptr"},
                                           {"last", "paged_kv_last_page_len"},
                                           {"bound", "block_table_bound"}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], key) == 0)
            return names[i][1];
    return key;
}

/* Rules: what depends on lengths is made anew, not left as it was before the step. */
static void mend(const json_t *expected, json_t *mended)
{
    const json_t *lens = json_object_get(expected, "seq_lens_tensor");
    const json_t *context = json_object_get(expected, "context_lens");

    if (!json_is_array(context))
        return;
    size_t queries = json_array_size(context);
    json_t *context_lens = json_array();
    json_t *query_starts = json_array();
    json_t *seq_starts = json_array();
    int64_t sum = 0;
    json_array_append_new(query_starts, json_integer(0));
    json_array_append_new(seq_starts, json_integer(0));
    for (size_t i = 0; i < json_array_size(lens); i++) {
        int64_t length = (int64_t)json_integer_value(json_array_get(lens, i));
        sum += length;
        json_array_append_new(seq_starts, json_integer((json_int_t)sum));
        if (i >= queries)
            continue;
        json_array_append_new(context_lens, json_integer((json_int_t)(length - 1)));
        json_array_append_new(query_starts, json_integer((json_int_t)i + 1));
    }
    if (!json_equal(context_lens, context))
        rules_hit(RULE_CONTEXT);
    if (!json_equal(query_starts, json_object_get(expected, "query_start_loc")) ||
        !json_equal(seq_starts, json_object_get(expected, "seq_start_loc")))
        rules_hit(RULE_STARTS);
    json_object_set_new(mended, "context_lens", context_lens);
    json_object_set_new(mended, "query_start_loc", query_starts);
    json_object_set_new(mended, "seq_start_loc", seq_starts);
}

static void compare(struct golden *g, const json_t *expected, const struct running *run)
{
    json_t *mended = json_copy((json_t *)expected);
    json_t *actual = json_object();
    const char *key;
    json_t *value;

    mend(expected, mended);
    json_object_foreach(mended, key, value)
    {
        if (strcmp(key, "sampled") == 0 || strcmp(key, "turn") == 0)
            json_object_set(actual, key, value); /* arguments */
        else if (strcmp(key, "input_tokens") == 0)
            json_object_set_new(actual, key, golden_list_i64(run->tokens, run->rows));
        else if (strcmp(key, "input_positions") == 0)
            json_object_set_new(actual, key, golden_list_i64(run->positions, run->rows));
        else
            json_object_set_new(actual, key, step_field(run->metadata, field_of(key), value));
    }
    golden_same(g, "step", mended, actual, NULL);
    json_decref(actual);
    json_decref(mended);
}

static bool advance(struct golden *g, const json_t *expected, struct running *run)
{
    struct attn_advance_args args;
    struct attn_error err;
    size_t count;
    int64_t *sampled = golden_ints(json_object_get(expected, "sampled"), &count);

    ATTN_INIT(&args);
    ATTN_INIT(&err);
    args.seqs = run->seqs;
    args.queries = run->queries;
    args.prefill_to_decode = golden_bool(expected, "turn");
    const struct golden_lent lent[] = {golden_lend(sampled, count * sizeof *sampled),
                                       golden_lend(run->tokens, run->rows * sizeof *run->tokens),
                                       golden_lend(run->positions, run->rows * sizeof *run->positions)};
    args.sampled = lent[0].buffer;
    args.tokens = lent[1].buffer;
    args.positions = lent[2].buffer;
    /* The rows of prompts end where they turn into decodes. */
    if (args.prefill_to_decode != 0)
        run->rows = run->seqs;
    int32_t status = attn_metadata_advance_step(run->metadata, &args, NULL, &err);
    for (size_t i = 0; i < sizeof lent / sizeof *lent; i++)
        golden_return(&lent[i]);
    free(sampled);
    return golden_ok(g, "attn_metadata_advance_step", status, &err);
}

static void run_steps(struct golden *g, const json_t *row, const struct step *step,
                      struct attn_metadata *metadata)
{
    struct running run = {
        .metadata = metadata, .seqs = (uint32_t)step_seqs(step), .queries = (uint32_t)step->count};
    size_t i;
    size_t count;
    json_t *expected;

    run.tokens = golden_ints(json_object_get(json_object_get(row, "input_tokens"), "v"), &run.rows);
    run.positions = golden_ints(json_object_get(json_object_get(row, "input_positions"), "v"), &count);
    json_array_foreach(json_object_get(row, "steps"), i, expected)
    {
        if (g->bad || !advance(g, expected, &run))
            break;
        compare(g, expected, &run);
    }
    free(run.tokens);
    free(run.positions);
}

void check_advance(struct golden *g, const json_t *data)
{
    uint32_t flavour = strcmp(g->file, "advance_flashinfer.json") == 0 ? ATTN_FLASHINFER
                       : strcmp(g->file, "advance_rocm.json") == 0     ? ATTN_ROCM_FLASH
                                                                       : ATTN_FLASH_ATTN;
    size_t i;
    json_t *row;

    json_array_foreach(data, i, row)
    {
        struct step step = {.flavour = flavour, .backend = golden_device()};
        struct attn_builder *builder = NULL;
        struct attn_metadata *metadata = NULL;
        struct attn_error err;
        golden_begin(g, "[%zu] %s", i, golden_text(json_object_get(row, "cfg"), "mode", ""));
        ATTN_INIT(&err);
        if (builder_prepare(g, row, &step)) {
            int32_t status = step_build(&step, &builder, &metadata, &err);
            step_check_built(g, &step, row, status, &err, metadata);
            if (status == ATTN_OK)
                run_steps(g, row, &step, metadata);
        }
        golden_end(g);
        attn_builder_destroy(builder);
        step_finish(&step);
    }
}
