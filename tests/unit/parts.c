/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Decides models in a world of mocks, and says what came of it. */
#include "parts.h"

#include <stdio.h>

int32_t parts_ask(struct world *world, const struct part *parts, uint32_t count,
                  const struct attn_select_options *options, struct attn_parts **out)
{
    struct attn_model_part given[PARTS_MOST];
    struct attn_problem problems[PARTS_MOST];
    for (uint32_t i = 0; i < count; i++) {
        cr_assert_eq(attn_problem_parse(parts[i].problem, &problems[i], &world->err), ATTN_OK, "%s",
                     world->err.message);
        ATTN_INIT(&given[i]);
        given[i].layer_class = parts[i].layer_class;
        given[i].phase = parts[i].phase;
        given[i].problem = &problems[i];
        given[i].backend = parts[i].backend;
    }
    return attn_select_parts(world->context, given, count, options, out, &world->err);
}

const struct attn_decision_info *parts_info(const struct attn_parts *parts, uint32_t index)
{
    return attn_decision_get_info(attn_parts_get_decision(parts, index)->decision);
}

const char *parts_list(const struct attn_parts *parts)
{
    static char text[1024];
    size_t used = 0;
    const struct attn_part_decision *part;
    for (uint32_t i = 0; (part = attn_parts_get_decision(parts, i)) != NULL; i++) {
        const struct attn_decision_info *info = attn_decision_get_info(part->decision);
        cr_assert_eq(part->status == ATTN_OK || info->effective == NULL, true);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s %u %u", i > 0 ? "; " : "",
                                 info->effective != NULL ? info->effective : "-",
                                 info->device != NULL ? info->device : "-", part->metadata_part,
                                 part->cache_part);
    }
    return text;
}

struct attn_parts *parts_expect(struct world *world, const char *mocks, const struct part *parts,
                                uint32_t count, int32_t status, const char *wanted)
{
    struct attn_parts *out;
    world_open(world, mocks, NULL);
    const int32_t got = parts_ask(world, parts, count, NULL, &out);
    cr_assert_eq(got, status, "%s: %s", attn_status_name(got), world->err.message);
    cr_assert_not_null(out);
    cr_assert_str_eq(parts_list(out), wanted);
    for (uint32_t i = 0; i < count; i++) {
        cr_assert_eq(attn_parts_get_decision(out, i)->layer_class, parts[i].layer_class);
        cr_assert_eq(attn_parts_get_decision(out, i)->phase, parts[i].phase);
        cr_assert_gt(world_said(world, parts_info(out, i)->text), 0, "the log has the decision's text");
    }
    cr_assert_null(attn_parts_get_decision(out, count));
    return out;
}

void parts_done(struct world *world, struct attn_parts *parts)
{
    attn_parts_destroy(parts);
    world_close(world);
}

void parts_expect_texts(const struct attn_parts *parts, uint32_t index, const char *metadata,
                        const char *cache)
{
    const struct attn_part_decision *part = attn_parts_get_decision(parts, index);
    cr_assert_str_eq(part->metadata_text, metadata);
    cr_assert_str_eq(part->cache_text, cache);
}

bool parts_say(const struct attn_parts *parts, uint32_t index, const char *words)
{
    return strstr(parts_info(parts, index)->text, words) != NULL;
}
