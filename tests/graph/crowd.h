/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sequences that come, grow, lose their blocks and go, at random, and the metadata of their steps. */
#ifndef TEST_GRAPH_CROWD_H
#define TEST_GRAPH_CROWD_H

#include <stdbool.h>

#include "attn/layer.h"

enum {
    CROWD_SEQS = 16,
    CROWD_LEN = 88,     /* most tokens of a sequence */
    CROWD_CHUNK = 6,    /* most new tokens of a prompt */
    CROWD_ROWS = 32,    /* most new tokens of a step */
    CROWD_GROUPS = 2,   /* cache groups */
    CROWD_TABLES = 3,   /* and the cross table */
    CROWD_BLOCKS = 24,  /* of a sequence that is too long, too */
    CROWD_ENCODER = 40, /* most tokens of an encoder's sequence */
    /* Pages of a group; page 0 is nobody's. */
    CROWD_PAGES = CROWD_SEQS * CROWD_BLOCKS + 8
};

/* Tokens per block of each table. */
extern const uint32_t crowd_block[CROWD_TABLES];

struct crowd_seq {
    uint32_t len;     /* in the cache */
    uint32_t new_len; /* query tokens of the step that comes */
    bool prompt;      /* they are a chunk of a prompt */
    uint32_t encoder_len;
    uint32_t count[CROWD_TABLES];
    int64_t blocks[CROWD_TABLES][CROWD_BLOCKS];
};

/* A row of a builder's tables, as it was given last. */
struct crowd_row {
    uint32_t count[CROWD_TABLES];
    int64_t blocks[CROWD_TABLES][CROWD_BLOCKS];
};

struct crowd {
    uint32_t random;
    bool cross;      /* decodes of an encoder/decoder model; without prompts */
    uint32_t tokens; /* of each decode: the last one and drafted ones, of which the model accepts some; 0: any
                        mix of prompts and decodes */
    bool drafts;     /* of a mix: decodes may have several tokens */
    uint32_t seqs;
    struct crowd_seq seq[CROWD_SEQS];
    uint32_t free_count[CROWD_TABLES];
    int64_t free_pages[CROWD_TABLES][CROWD_PAGES];
    uint32_t left;  /* preempted or finished so far */
    uint32_t moved; /* blocks of the last step that are others than before */
};

void crowd_init(struct crowd *crowd, uint32_t seed, bool cross, uint32_t tokens);
uint32_t crowd_random(struct crowd *crowd, uint32_t below);
/*
 * What happens before a step: some leave, some get other blocks, some come. Returns how many came: they are
 * the last ones, and their prompts are not computed yet.
 */
uint32_t crowd_change(struct crowd *crowd);
/* Whether everybody may have one more decode. */
bool crowd_fits(const struct crowd *crowd);
/* What everybody does in the step that comes, and room for it. */
void crowd_reserve(struct crowd *crowd);
/* Query tokens of that step. */
uint32_t crowd_rows(const struct crowd *crowd);
/* Everybody has the tokens of the step; where all decodes have several, some of them. */
void crowd_grow(struct crowd *crowd);

/* Builders of steps, with what their rows held. */
struct crowd_builder {
    struct attn_builder *builder;
    struct attn_builder_group groups[CROWD_TABLES];
    struct crowd_row rows[CROWD_SEQS];
};

/* `flavour` 0: the backend's. */
int32_t crowd_builder_init(struct crowd_builder *builder, struct attn_backend *backend, uint32_t flavour,
                           bool cross, struct attn_error *err);
/* Prompts of sequences [first, seqs), if there are any, else one token of each. */
int32_t crowd_prompts(struct crowd *crowd, struct crowd_builder *builder, uint32_t first,
                      struct attn_metadata **out, uint32_t *out_rows, struct attn_error *err);
/* A step of decodes, or of a mix; `pad` below 0: without a graph. The state pads steps of several tokens
 * each, and mixes. */
int32_t crowd_decodes(const struct crowd *crowd, struct crowd_builder *builder, int32_t pad,
                      struct attn_metadata **out, struct attn_error *err);

#endif
