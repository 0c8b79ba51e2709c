/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A make-believe engine for properties of builders: rows with block lists that grow, change and change hands
 * from step to step, device memory of its own behind guard pages, and a comparison of all fields.
 */
#ifndef ATTN_TEST_ENGINE_H
#define ATTN_TEST_ENGINE_H

#include "attn/serving.h"
#include "builder.h"

#define ENGINE_ROWS   8u
#define ENGINE_BLOCKS 6u
#define ENGINE_GROUPS 3u

/* splitmix64 */
uint64_t engine_random(uint64_t *state);
static inline uint32_t engine_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(engine_random(state) % n);
}

/* A list of one row in one group; `added` is what the row's last add had. */
struct engine_list {
    int64_t blocks[ENGINE_BLOCKS], added[ENGINE_BLOCKS];
    uint32_t count, added_count;
};

struct engine {
    uint64_t seed;
    struct attn_builder_params params;
    struct attn_builder_group group[ENGINE_GROUPS];
    struct engine_list lists[ENGINE_ROWS][ENGINE_GROUPS];
    /* The step. */
    uint32_t seqs, first_row;
    struct attn_builder_add_args add[ENGINE_ROWS];
    struct attn_blocks blocks[ENGINE_ROWS][ENGINE_GROUPS];
    struct attn_builder_build_args build;
};

/* Parameters, all random but the flavour. */
void engine_init(struct engine *engine, uint64_t seed, uint32_t flavour);
/* A random step; lists are full, nothing is said to be unchanged. */
void engine_step(struct engine *engine);
/* Says of every list what is unchanged since the row's last add, and remembers this one. */
void engine_say_unchanged(struct engine *engine);

/* How a step reaches a builder. */
int32_t engine_run(const struct engine *engine, struct attn_builder_impl *builder,
                   struct attn_metadata_impl **out, struct attn_error *err);

/* 1 if all fields of two steps are equal; else prints the first that is not. `device`: b's values there too.
 */
int engine_equal(const struct attn_metadata_impl *a, const struct attn_metadata_impl *b, int device);

/* The same of an earlier step and what the device of a builder holds now. */
int engine_equal_late(const struct attn_metadata_impl *want, const struct attn_builder_impl *builder);
/* 1 if all cells behind the blocks of a sequence, and those of padding, are 0. */
int engine_is_clean(const struct engine *engine, const struct attn_metadata_impl *built);

/* Memory of a device: apart from the host, between pages that cannot be touched. */
extern const struct attn_memory_table engine_memory;
/* Executes copies that still wait; `keep` of the newest steps stay waiting. */
void engine_pass(uint32_t keep);
/* Copies and bytes since the last call. */
void engine_copied(uint64_t *out_copies, uint64_t *out_bytes);

#endif
