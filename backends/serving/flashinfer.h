/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Lists of pages, which the kernels of FlashInfer's flavour read in place of block tables. flashinfer.c has
 * what a builder writes of them, flashinfer-state.c what a state makes of them.
 */
#ifndef ATTN_SERVING_FLASHINFER_H
#define ATTN_SERVING_FLASHINFER_H

#include "builder-add.h"
#include "state-step.h"

/* ---------------------------------------------------------------- builder: flashinfer.c */

/* Checks that the pages of one more sequence fit. */
int32_t attn__pages_check(const struct attn__group *group, const struct attn_blocks *blocks,
                          const struct attn__wanted *wanted, struct attn_error *err);
/* Adds the pages of a sequence, and notes in `member` where they are. */
void attn__pages_add(struct attn_builder_impl *builder, struct attn__group *group, uint32_t row,
                     const struct attn_blocks *blocks, struct attn__member *member, uint32_t seq_len);
/* Checks and makes the change of attn_builder_set_row, after which the sequence has `count` blocks. */
int32_t attn__pages_check_change(const struct attn__group *group, const struct attn__member *member,
                                 uint32_t count, struct attn_error *err);
void attn__pages_change(struct attn_builder_impl *builder, struct attn__group *group,
                        const struct attn__member *member, const struct attn_builder_row_args *args,
                        uint32_t count);
/* Ends a step: `pad` sequences without pages, and 0 in indices that are not in use yet. */
void attn__pages_end(const struct attn_builder_impl *builder, struct attn__group *group, uint32_t pad);

/* ---------------------------------------------------------------- state: flashinfer-state.c */

/* Bytes of the sequence lengths of a step, i32 [groups][max_seqs], which follow from the pages. */
uint64_t attn__pages_workspace(const struct attn__state_core *core);
/* Fills the batch of a run from the pages; *out_found is false if the step has none. */
int32_t attn__pages_batch(const struct attn__step_view *step, uint32_t group, uint32_t seqs,
                          struct attn__run *run, bool *out_found, struct attn_error *err);

/* Makes plans for the size of a clone. Its graph reads them, while the core's are for the maxima. */
int32_t attn__pages_make_plans(struct attn_state_impl *clone, struct attn_error *err);
/* The arrays in the buffers of graphs: before the tables, behind them, and their first contents. */
bool attn__pages_lay_out_small(struct attn__capture_layout *layout, uint32_t group);
bool attn__pages_lay_out_indices(struct attn__capture_layout *layout);
void attn__pages_fill(const struct attn__capture_layout *layout, uint32_t group, char *image);
/* Checks the pages of a step against the buffers of its graph, and copies them there. */
struct attn__step_copy;
int32_t attn__pages_check_copy(struct attn__step_copy *copy, uint32_t group, struct attn_error *err);
void attn__pages_copy(struct attn__step_copy *copy, uint32_t group);

#endif
