/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Metadata, its two parts, or an exception, against a recorded row. */
#include <string.h>

#include "rules.h"
#include "steps.h"

/* Whether a row of the block tables is longer than the graph's table. */
static bool has_long_row(const struct step *step)
{
    for (size_t i = 0; i < step->count; i++)
        if (step_own_cells(step, i) > step->graph_blocks)
            return true;
    return false;
}

/* Rule: the common builder truncates such a row instead of failing. */
static void check_truncated(struct golden *g, const struct step *step, const struct attn_metadata *metadata)
{
    json_t *like = json_object();
    json_t *expected = json_array();
    int64_t rows = step_tokens(step) + step->pad;

    for (int64_t r = 0; r < rows; r++) {
        const struct step_sequence *sequence = r < (int64_t)step->count ? &step->sequence[r] : NULL;
        int64_t own = sequence != NULL ? step_own_cells(step, (size_t)r) : 0;
        /* The last blocks of a window, cut at its end. */
        int64_t first = sequence != NULL ? (int64_t)sequence->count - own : 0;
        for (int64_t c = 0; c < step->graph_blocks; c++)
            json_array_append_new(expected,
                                  json_integer(c < own ? (json_int_t)sequence->blocks[first + c] : 0));
    }
    json_t *tensor = json_pack("{s:s, s:[I, I], s:o}", "d", "int32", "s", (json_int_t)rows,
                               (json_int_t)step->graph_blocks, "v", expected);
    json_t *actual = step_field(metadata, "block_tables", like);
    golden_same(g, "block_tables", tensor, actual, NULL);
    rules_hit(RULE_LONG_ROW);
    json_decref(like);
    json_decref(tensor);
    json_decref(actual);
}

/* A part is the whole, another object, or none. */
static void check_parts(struct golden *g, const struct step *step, const json_t *row,
                        struct attn_metadata *metadata)
{
    static const struct {
        const char *key;
        const char *self;
        uint32_t part;
    } parts[] = {{"prefill", "prefill_is_self", ATTN_PART_PREFILL},
                 {"decode", "decode_is_self", ATTN_PART_DECODE}};

    for (size_t i = 0; i < 2; i++) {
        const json_t *expected = json_object_get(row, parts[i].key);
        const json_t *self = json_object_get(row, parts[i].self);
        struct attn_metadata *part = NULL;
        struct attn_error err;
        size_t first = 0;
        if (expected == NULL && self == NULL)
            continue;
        ATTN_INIT(&err);
        if (!golden_ok(g, parts[i].key, attn_metadata_get_part(metadata, parts[i].part, &part, &err), &err))
            continue;
        for (size_t s = 0; s < step->count && parts[i].part == ATTN_PART_DECODE; s++)
            first += step->sequence[s].prompt;
        if (self != NULL) {
            if (step_same_presence(g, parts[i].key, self, part != NULL) && part != metadata)
                golden_differ(g, "%s is another object", parts[i].key);
        } else if (step_same_presence(g, parts[i].key, expected, part != NULL)) {
            step_check_fields(g, parts[i].key, step, first, expected, part);
        }
    }
}

void step_check_built(struct golden *g, const struct step *step, const json_t *row, int32_t status,
                      const struct attn_error *err, struct attn_metadata *metadata)
{
    const json_t *exception = golden_exception(row);
    const json_t *meta = json_object_get(row, "meta");

    if (exception != NULL && (step->flavour == ATTN_ROCM_FLASH || step->flavour == ATTN_XFORMERS) &&
        step->pad >= 0 && has_long_row(step)) {
        if (golden_ok(g, "the step", status, err))
            check_truncated(g, step, metadata);
        return;
    }
    if (exception != NULL) {
        golden_check_exception(g, exception, status, err);
        return;
    }
    if (meta == NULL) {
        golden_differ(g, "neither metadata nor an exception is recorded");
        return;
    }
    if (!golden_ok(g, "the step", status, err))
        return;
    step_check_fields(g, "meta", step, 0, meta, metadata);
    check_parts(g, step, row, metadata);
}
