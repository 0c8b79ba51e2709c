/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * advance_edges.json: which malformed calls are refused. A row's tag names a field and what becomes of it:
 * FIELD_none, FIELD_stale, or FIELD_NUMBER; any other tag changes nothing. The change is made in the step's
 * bytes, which are restored then.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "steps.h"

/* Three decodes of lengths 6, 11 and 16 in blocks of 8. */
static void make_step(const json_t *row, struct step *step)
{
    static const int64_t lengths[] = {6, 11, 16};

    step->flavour = step_flavour(golden_text(row, "backend", ""));
    step->block = 8;
    step->window = -1;
    step->graph_blocks = 8;
    step->max_seqs = 8;
    step->pad = golden_int(row, "num_seqs", 0) - golden_int(row, "num_queries", 0);
    if (step->pad <= 0)
        step->pad = -1;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct step_sequence *sequence = step_add(step);
        sequence->context_len = lengths[i] - 1;
        sequence->query_len = sequence->tokens = 1;
        sequence->orig_len = sequence->seq_len = lengths[i];
        sequence->kind = ATTN_BLOCKS_LIST;
        sequence->count = 4;
        sequence->blocks = golden_memory(sequence->count, sizeof *sequence->blocks);
        for (size_t b = 0; b < sequence->count; b++)
            sequence->blocks[b] = (int64_t)(10 * i + b);
    }
}

/* The field that a tag begins with, and what follows it. */
static uint32_t field_of(const char *tag, const char **rest)
{
    uint32_t best = 0;
    size_t longest = 0;

    for (uint32_t i = 1; i < ATTN_FIELDS; i++) {
        const char *name = attn_field_name(i);
        size_t length = name != NULL ? strlen(name) : 0;
        /* context_lens stands for context_lens_tensor. */
        size_t whole = length;
        if (name != NULL && strncmp(tag, name, length) != 0 && length > 7 &&
            strcmp(name + length - 7, "_tensor") == 0)
            length -= 7;
        if (name == NULL || length < longest || strncmp(tag, name, length) != 0 || tag[length] != '_')
            continue;
        if (length == longest && whole != length)
            continue;
        longest = length;
        best = i;
    }
    *rest = tag + longest + 1;
    return best;
}

static struct attn_serialised_record *find(void *bytes, uint32_t field)
{
    struct attn_serialised_header *header = bytes;
    struct attn_serialised_record *records =
        (struct attn_serialised_record *)(void *)((char *)bytes + sizeof *header +
                                                  8 * (size_t)header->groups);

    for (uint32_t i = 0; i < header->records; i++)
        if (records[i].field == field)
            return &records[i];
    return NULL;
}

static void change(const char *tag, void *bytes)
{
    const char *rest;
    uint32_t field =
        strstr(tag, "without_graph") != NULL ? (uint32_t)ATTN_FIELD_USE_CUDA_GRAPH : field_of(tag, &rest);
    struct attn_serialised_record *record = field != 0 ? find(bytes, field) : NULL;
    int64_t value;

    if (record == NULL)
        return;
    if (field == ATTN_FIELD_USE_CUDA_GRAPH)
        record->value = 0;
    else if (strcmp(rest, "none") == 0)
        *record =
            (struct attn_serialised_record){.field = field, .index = record->index, .kind = ATTN_VIEW_NULL};
    else if (strcmp(rest, "stale") == 0)
        record->value--;
    else if (sscanf(rest, "%lld", (long long *)&value) == 1)
        record->value = value;
}

/* Through bytes and back, changed on the way. */
static int32_t restore(const char *tag, struct attn_builder *builder, struct attn_metadata **metadata,
                       struct attn_error *err)
{
    uint64_t size = 0;
    int32_t status = attn_metadata_serialise(*metadata, NULL, 0, &size, err);

    if (status != ATTN_E_SIZE)
        return status == ATTN_OK ? ATTN_E_STATE : status;
    uint64_t *bytes = golden_memory((size_t)size / 8 + 1, 8);
    status = attn_metadata_serialise(*metadata, bytes, size, &size, err);
    if (status == ATTN_OK) {
        change(tag, bytes);
        status = attn_builder_restore(builder, bytes, size, NULL, metadata, err);
    }
    free(bytes);
    return status;
}

static int32_t advance(const json_t *row, struct attn_metadata *metadata, struct attn_error *err)
{
    int64_t sampled[8] = {5, 6, 7};
    int64_t tokens[8] = {0};
    int64_t positions[8] = {0};
    struct attn_advance_args args;

    ATTN_INIT(&args);
    args.seqs = (uint32_t)golden_int(row, "num_seqs", 0);
    args.queries = (uint32_t)golden_int(row, "num_queries", 0);
    args.prefill_to_decode = golden_bool(row, "turn");
    const struct golden_lent lent[] = {golden_lend(sampled, sizeof sampled),
                                       golden_lend(tokens, sizeof tokens),
                                       golden_lend(positions, sizeof positions)};
    if (strcmp(golden_text(row, "tag", ""), "sampled_none") != 0)
        args.sampled = lent[0].buffer;
    args.tokens = lent[1].buffer;
    args.positions = lent[2].buffer;
    const int32_t status = attn_metadata_advance_step(metadata, &args, NULL, err);
    for (size_t i = 0; i < sizeof lent / sizeof *lent; i++)
        golden_return(&lent[i]);
    return status;
}

void check_advance_edges(struct golden *g, const json_t *data)
{
    size_t i;
    json_t *row;

    json_array_foreach(data, i, row)
    {
        const char *tag = golden_text(row, "tag", "");
        const json_t *exception = golden_exception(row);
        struct step step = {.backend = golden_device()};
        struct attn_builder *builder = NULL;
        struct attn_metadata *metadata = NULL;
        struct attn_error err;
        golden_begin(g, "[%zu] %s %s", i, tag, golden_text(row, "backend", ""));
        ATTN_INIT(&err);
        make_step(row, &step);
        int32_t status = step_build(&step, &builder, &metadata, &err);
        if (status == ATTN_OK)
            status = restore(tag, builder, &metadata, &err);
        /* A step without a value that it needs may be refused here already. */
        if (status == ATTN_OK)
            status = advance(row, metadata, &err);
        if (exception != NULL)
            golden_check_exception(g, exception, status, &err);
        else
            golden_ok(g, "advance_step", status, &err);
        golden_end(g);
        attn_builder_destroy(builder);
        step_finish(&step);
    }
}
