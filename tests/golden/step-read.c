/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A recorded step as plain C data, and what follows from it for the block tables. */
#include "steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t step_flavour(const char *name)
{
    static const struct {
        const char *name;
        uint32_t flavour;
    } flavours[] = {{"FLASH_ATTN", ATTN_FLASH_ATTN},
                    {"FLASHINFER", ATTN_FLASHINFER},
                    {"ROCM_FLASH", ATTN_ROCM_FLASH},
                    {"XFORMERS", ATTN_XFORMERS}};

    for (size_t i = 0; i < sizeof flavours / sizeof *flavours; i++)
        if (strcmp(name, flavours[i].name) == 0)
            return flavours[i].flavour;
    return 0;
}

struct step_sequence *step_add(struct step *step)
{
    if (step->count == step->room) {
        size_t room = step->room == 0 ? 16 : 2 * step->room;
        struct step_sequence *more = golden_memory(room, sizeof *more);
        if (step->count > 0)
            memcpy(more, step->sequence, step->count * sizeof *more);
        free(step->sequence);
        step->sequence = more;
        step->room = room;
    }
    return &step->sequence[step->count++];
}

void step_finish(struct step *step)
{
    for (size_t i = 0; i < step->count; i++)
        free(step->sequence[i].blocks);
    free(step->sequence);
}

void step_set_blocks(struct step_sequence *sequence, const json_t *tables, int64_t id)
{
    char key[24];

    snprintf(key, sizeof key, "%lld", (long long)id);
    const json_t *list = json_object_get(tables, key);
    if (json_is_array(list)) {
        sequence->kind = ATTN_BLOCKS_LIST;
        sequence->blocks = golden_ints(list, &sequence->count);
    } else if (json_is_object(tables)) {
        sequence->kind = ATTN_BLOCKS_NULL;
    }
}

int64_t step_tokens(const struct step *step)
{
    int64_t tokens = 0;

    for (size_t i = 0; i < step->count; i++)
        tokens += step->sequence[i].query_len;
    return tokens;
}

int64_t step_seqs(const struct step *step)
{
    return (int64_t)step->count + (step->pad > 0 ? step->pad : 0);
}

int64_t step_longest(const struct step *step)
{
    size_t longest = 1;

    for (size_t i = 0; i < step->count; i++)
        longest = step->sequence[i].count > longest ? step->sequence[i].count : longest;
    return (int64_t)longest;
}

int64_t step_own_cells(const struct step *step, size_t index)
{
    const struct step_sequence *sequence = &step->sequence[index];
    int64_t all = (int64_t)sequence->count;
    bool hit = sequence->hit;

    if (sequence->kind != ATTN_BLOCKS_LIST)
        return 0;
    for (size_t i = 0; i < step->count && step->flavour == ATTN_FLASH_ATTN; i++)
        hit = hit || step->sequence[i].hit;
    if (hit)
        return step->flavour == ATTN_FLASHINFER ? sequence->computed : all;
    if (sequence->prompt && !step->chunked)
        return 0;
    return sequence->window_blocks == 0 || sequence->window_blocks > all ? all : sequence->window_blocks;
}
