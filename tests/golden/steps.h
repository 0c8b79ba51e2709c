/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A recorded step, and its way through a builder. */
#ifndef GOLDEN_STEPS_H
#define GOLDEN_STEPS_H

#include "attn/layer.h"
#include "golden.h"

struct step_sequence {
    bool prompt;
    bool hit; /* of its group: leading blocks were found in the prefix cache */
    int64_t context_len;
    int64_t query_len;
    int64_t orig_len; /* all tokens, never trimmed to the window */
    int64_t seq_len;  /* trimmed */
    int64_t window_blocks;
    int64_t computed; /* blocks that were found */
    int64_t tokens;   /* of the input */
    uint32_t kind;    /* enum attn_blocks_kind; 0 = no table */
    int64_t *blocks;
    size_t count;
};

struct step {
    uint32_t flavour; /* enum attn_flavour */
    int64_t block;
    int64_t window; /* -1 = none */
    bool chunked;
    int64_t graph_blocks;         /* columns of the graph's block table */
    int64_t max_seqs;             /* sequences that graphs are captured for */
    int64_t pad;                  /* -1 = no graph */
    struct attn_backend *backend; /* NULL = host memory */
    struct step_sequence *sequence;
    size_t count;
    size_t room;
};

/* "FLASH_ATTN" and so on; 0 if it has no builder here. */
uint32_t step_flavour(const char *name);
struct step_sequence *step_add(struct step *step);
void step_finish(struct step *step);
/* Reads table `id` of a map of tables into a sequence. */
void step_set_blocks(struct step_sequence *sequence, const json_t *tables, int64_t id);

int64_t step_tokens(const struct step *step);
/* Sequences of the step, padding included. */
int64_t step_seqs(const struct step *step);
/* Columns of the longest table. */
int64_t step_longest(const struct step *step);
/* Cells that a sequence's own blocks take in its row of the block tables. */
int64_t step_own_cells(const struct step *step, size_t index);

/*
 * Makes a builder, runs another step through it that fills every cell, and builds this one.
 * The builder is made even if the step fails.
 */
int32_t step_build(const struct step *step, struct attn_builder **builder, struct attn_metadata **out,
                   struct attn_error *err);

/* Members of `like`, read from metadata and written as they were recorded. */
json_t *step_fields(const struct attn_metadata *metadata, const json_t *like);
/* A view as JSON of the kind that `like` has. */
json_t *step_view(const struct attn_view *view, const json_t *like);
/* One field by its name. */
json_t *step_field(const struct attn_metadata *metadata, const char *name, const json_t *like);

/* Compares metadata with a recorded object; clears cells of the block tables that are nobody's own first. */
void step_check_fields(struct golden *g, const char *what, const struct step *step, size_t first_row,
                       const json_t *expected, const struct attn_metadata *metadata);
/* A null on one side wants none on the other. */
bool step_same_presence(struct golden *g, const char *what, const json_t *expected, bool actual);

/* Metadata, its parts, and the exception instead of them: what all builder files have in common. */
void step_check_built(struct golden *g, const struct step *step, const json_t *row, int32_t status,
                      const struct attn_error *err, struct attn_metadata *metadata);

#endif
