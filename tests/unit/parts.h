/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Models of a few parts, decided in a world of mocks, for the tests of attn_select_parts. */
#ifndef UNIT_PARTS_H
#define UNIT_PARTS_H

#include <criterion/criterion.h>

#include "world.h"

#define SMALL   "heads=8 kv_heads=4 head_dim=64 q=bf16 "
#define LARGE   "heads=8 kv_heads=4 head_dim=256 q=bf16 "
#define HUGE    "heads=8 head_dim=512 q=bf16 "
#define PROMPTS "max_q=32 "
#define DECODES "max_q=1 graph=single "

enum { PARTS_MOST = 6 };

struct part {
    uint32_t layer_class;
    uint32_t phase;
    const char *problem;
    const char *backend;
};

/* attn_select_parts of problem strings. */
int32_t parts_ask(struct world *world, const struct part *parts, uint32_t count,
                  const struct attn_select_options *options, struct attn_parts **out);
/* "name device M C; ...": M and C are the parts that metadata and cache are shared with. */
const char *parts_list(const struct attn_parts *parts);
/* A model in a world that stays open for more questions; status and list are asserted. */
struct attn_parts *parts_expect(struct world *world, const char *mocks, const struct part *parts,
                                uint32_t count, int32_t status, const char *wanted);
/* Asserts what is said to differ from the parts before. */
void parts_expect_texts(const struct attn_parts *parts, uint32_t index, const char *metadata,
                        const char *cache);
const struct attn_decision_info *parts_info(const struct attn_parts *parts, uint32_t index);
/* Whether the text of a part's decision has these words. */
bool parts_say(const struct attn_parts *parts, uint32_t index, const char *words);
/* Destroys the parts and closes the world. */
void parts_done(struct world *world, struct attn_parts *parts);

#endif
