/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* builder_*.json: from a scheduler's groups over the prepared input to every field of the metadata. */
#include <stdlib.h>
#include <string.h>

#include "check-builder.h"
#include "device.h"
#include "plans.h"

static void read_rules(const json_t *cfg, struct attn_input_rules *rules)
{
    ATTN_INIT(rules);
    rules->block = (uint32_t)golden_int(cfg, "bs", 0);
    if (json_is_integer(json_object_get(cfg, "sw"))) {
        rules->given = ATTN_GIVEN_INPUT_WINDOW;
        rules->window = (uint32_t)golden_int(cfg, "sw", 0);
    }
    rules->max_seqs = (uint32_t)golden_int(cfg, "max_seqs", 0);
    rules->max_capture_len = (uint32_t)golden_int(cfg, "cap_len", 0);
    rules->chunked_prefill = golden_bool(cfg, "chunked");
    rules->multi_step = golden_bool(cfg, "ms");
    rules->eager = golden_bool(cfg, "eager");
}

/* One sequence of a group: [id, all tokens, computed tokens]. */
static bool prepare(struct golden *g, const struct attn_input_rules *rules, const json_t *group,
                    const json_t *row, struct step *step)
{
    struct attn_input_request request;
    struct attn_input input;
    struct attn_error err;

    ATTN_INIT(&request);
    ATTN_INIT(&input);
    ATTN_INIT(&err);
    request.prompt = golden_bool(group, "prompt");
    request.total_len = (uint32_t)json_integer_value(json_array_get(row, 1));
    request.computed_len = (uint32_t)json_integer_value(json_array_get(row, 2));
    request.chunk = (uint32_t)golden_int(group, "chunk", 1);
    request.cached_blocks = (uint32_t)json_array_size(json_object_get(group, "cbn"));
    if (!golden_ok(g, "attn_input_prepare", attn_input_prepare(rules, &request, &input, &err), &err))
        return false;
    struct step_sequence *sequence = step_add(step);
    sequence->prompt = request.prompt != 0;
    sequence->hit = input.prefix_hit != 0;
    sequence->context_len = input.context_len;
    sequence->query_len = input.query_len;
    sequence->orig_len = input.orig_seq_len;
    sequence->seq_len = input.seq_len;
    sequence->window_blocks = input.window_blocks;
    sequence->computed = request.cached_blocks;
    sequence->tokens = input.query_len;
    step_set_blocks(sequence, json_object_get(group, "bt"), json_integer_value(json_array_get(row, 0)));
    return true;
}

static void append(json_t *object, const char *key, int64_t value)
{
    json_array_append_new(json_object_get(object, key), json_integer((json_int_t)value));
}

/* What was recorded of a group, from the sequences that were prepared for it. */
static void check_group(struct golden *g, const json_t *expected, const struct step_sequence *sequence,
                        size_t count)
{
    static const char *const ignored[] = {"ids", NULL};
    json_t *actual =
        json_pack("{s:b, s:b, s:[], s:[], s:[], s:[], s:[], s:[]}", "prompt", (int)sequence->prompt, "hit",
                  (int)sequence->hit, "seq_lens", "orig", "q", "ctx", "csw", "ntok");

    for (size_t i = 0; i < count; i++) {
        append(actual, "seq_lens", sequence[i].seq_len);
        append(actual, "orig", sequence[i].orig_len);
        append(actual, "q", sequence[i].query_len);
        append(actual, "ctx", sequence[i].context_len);
        append(actual, "csw", sequence[i].window_blocks);
        append(actual, "ntok", sequence[i].tokens);
    }
    golden_same(g, "inter", expected, actual, ignored);
    json_decref(actual);
}

static bool choose_padding(struct golden *g, const struct attn_input_rules *rules, struct step *step)
{
    struct attn_input_step given;
    struct attn_error err;
    int32_t pad = -1;

    ATTN_INIT(&given);
    ATTN_INIT(&err);
    given.seqs = (uint32_t)step->count;
    for (size_t i = 0; i < step->count; i++) {
        const struct step_sequence *sequence = &step->sequence[i];
        given.prompts += sequence->prompt;
        if (!sequence->prompt && sequence->seq_len > given.max_decode_len)
            given.max_decode_len = (uint32_t)sequence->seq_len;
    }
    int32_t status = attn_graph_pad(rules, &given, &pad, &err);
    step->pad = pad;
    return golden_ok(g, "attn_graph_pad", status, &err);
}

static void check_arguments(struct golden *g, const json_t *expected, const struct step *step)
{
    int64_t padding = step->pad > 0 ? step->pad : 0;
    json_t *actual = json_pack("{s:[], s:[], s:I, s:I}", "seq_lens", "query_lens", "pad",
                               (json_int_t)step->pad, "batch", (json_int_t)(step_tokens(step) + padding));

    for (size_t i = 0; i < step->count; i++) {
        append(actual, "seq_lens", step->sequence[i].seq_len);
        append(actual, "query_lens", step->sequence[i].query_len);
    }
    for (int64_t i = 0; i < padding; i++)
        append(actual, "seq_lens", 1);
    golden_same(g, "build_args", expected, actual, NULL);
    json_decref(actual);
}

/* Token `p` of sequence s had the id 1000 + 10 s + p in a prompt, and 2000 more in a decode. */
static void check_tokens(struct golden *g, const json_t *row, const struct step *step)
{
    const json_t *tokens = json_object_get(row, "input_tokens");
    int64_t padding = step->pad > 0 ? step->pad : 0;
    json_t *ids = json_array();
    json_t *positions = json_array();
    size_t group;
    json_t *entry;
    size_t index = 0;

    json_array_foreach(json_object_get(row, "groups"), group, entry)
    {
        const json_t *seqs = json_object_get(entry, "seqs");
        for (size_t i = 0; i < json_array_size(seqs); i++, index++) {
            const struct step_sequence *sequence = &step->sequence[index];
            int64_t first = (sequence->prompt ? 1000 : 3000) +
                            10 * (int64_t)json_integer_value(json_array_get(json_array_get(seqs, i), 0));
            for (int64_t p = sequence->context_len; p < sequence->orig_len; p++) {
                json_array_append_new(ids, json_integer((json_int_t)(first + p)));
                json_array_append_new(positions, json_integer((json_int_t)p));
            }
        }
    }
    for (int64_t i = 0; i < padding; i++) {
        json_array_append_new(ids, json_integer(0));
        json_array_append_new(positions, json_integer(0));
    }
    golden_same(g, "input_tokens", json_object_get(tokens, "v"), ids, NULL);
    golden_same(g, "input_positions", json_object_get(json_object_get(row, "input_positions"), "v"),
                positions, NULL);
    json_decref(ids);
    json_decref(positions);
}

bool builder_prepare(struct golden *g, const json_t *row, struct step *step)
{
    const json_t *cfg = json_object_get(row, "cfg");
    struct attn_input_rules rules;
    size_t i;
    json_t *group;

    read_rules(cfg, &rules);
    step->block = rules.block;
    step->window = rules.given != 0 ? (int64_t)rules.window : -1;
    step->chunked = rules.chunked_prefill != 0;
    step->graph_blocks = (rules.max_capture_len + rules.block - 1) / (rules.block != 0 ? rules.block : 1);
    step->max_seqs = attn_graph_largest(rules.max_seqs);
    json_array_foreach(json_object_get(row, "groups"), i, group)
    {
        const json_t *seqs = json_object_get(group, "seqs");
        size_t before = step->count;
        for (size_t j = 0; j < json_array_size(seqs); j++)
            if (!prepare(g, &rules, group, json_array_get(seqs, j), step))
                return false;
        check_group(g, json_array_get(json_object_get(row, "inter"), i), &step->sequence[before],
                    step->count - before);
    }
    if (!choose_padding(g, &rules, step))
        return false;
    check_arguments(g, json_object_get(row, "build_args"), step);
    if (json_object_get(row, "input_tokens") != NULL)
        check_tokens(g, row, step);
    return true;
}

static uint32_t flavour_of(const char *file)
{
    static const struct {
        const char *file;
        uint32_t flavour;
    } files[] = {{"builder_flash_attn.json", ATTN_FLASH_ATTN},
                 {"builder_flashinfer.json", ATTN_FLASHINFER},
                 {"builder_common_rocm.json", ATTN_ROCM_FLASH},
                 {"builder_common_xformers.json", ATTN_XFORMERS}};

    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        if (strcmp(file, files[f].file) == 0)
            return files[f].flavour;
    return 0;
}

static void check_row(struct golden *g, const json_t *row, struct step *step)
{
    struct attn_builder *builder = NULL;
    struct attn_metadata *metadata = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    if (!builder_prepare(g, row, step))
        return;
    int32_t status = step_build(step, &builder, &metadata, &err);
    step_check_built(g, step, row, status, &err, metadata);
    if (status == ATTN_OK && step->backend != NULL && golden_device() == NULL)
        check_plans(g, json_object_get(row, "begin_forward_calls"), step, step->backend, metadata);
    attn_builder_destroy(builder);
}

void check_builder(struct golden *g, const json_t *data)
{
    const uint32_t flavour = flavour_of(g->file);
    struct attn_backend *backend = NULL, *device = golden_device();

    if (device == NULL && flavour == ATTN_FLASHINFER) {
        backend =
            golden_backend(g, plans_backend(flavour), "heads=8 kv_heads=2 head_dim=128 q=bf16 addr=csr");
        if (backend == NULL)
            golden_broken(g, "the recording plugin cannot be opened");
    }
    for (size_t i = 0; i < json_array_size(data); i++) {
        const json_t *row = json_array_get(data, i);
        struct step step = {.flavour = flavour, .backend = device != NULL ? device : backend};
        golden_begin(g, "[%zu] %s", i, golden_text(json_object_get(row, "cfg"), "mode", ""));
        check_row(g, row, &step);
        golden_end(g);
        step_finish(&step);
    }
    attn_backend_destroy(backend);
}
