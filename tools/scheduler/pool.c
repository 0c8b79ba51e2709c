/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory of sequences: made in advance, or for each as it comes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler-impl.h"

/* Entries of a block list. */
static size_t list_room(const struct scheduler_options *o, uint32_t most)
{
    return (size_t)most / o->block + 1;
}

int pool_make(struct scheduler *s, struct failure *err)
{
    const struct scheduler_options *o = &s->options;
    const size_t lists = list_room(o, o->tokens) * o->groups;
    const size_t each = o->tokens + lists;

    if (o->requests == 0)
        return 0;
    s->made = calloc(o->requests, sizeof *s->made);
    s->made_memory = each <= SIZE_MAX / sizeof *s->made_memory / o->requests
                         ? malloc(each * o->requests * sizeof *s->made_memory)
                         : NULL;
    if (s->made == NULL || s->made_memory == NULL)
        return failure_set(err, "no memory for %" PRIu32 " requests of %" PRIu32 " tokens", o->requests,
                           o->tokens);
    /* Touched now, so that no step waits for pages. */
    memset(s->made_memory, 0, each * o->requests * sizeof *s->made_memory);
    for (uint32_t i = o->requests; i-- > 0;) {
        struct scheduled *sequence = &s->made[i];
        sequence->tokens = s->made_memory + i * each;
        for (uint32_t g = 0; g < o->groups; g++)
            sequence->blocks[g] = sequence->tokens + o->tokens + g * list_room(o, o->tokens);
        sequence->home = &s->idle;
        sequence->next = s->idle;
        s->idle = sequence;
    }
    return 0;
}

void pool_free(struct scheduler *s)
{
    free(s->made);
    free(s->made_memory);
}

/* Only the places of its memory stay. */
static struct scheduled *take(struct scheduler *s)
{
    struct scheduled *sequence = s->idle;
    struct scheduled fresh = {.tokens = sequence->tokens, .home = sequence->home};

    s->idle = sequence->next;
    for (uint32_t g = 0; g < SCHEDULER_GROUPS; g++)
        fresh.blocks[g] = sequence->blocks[g];
    *sequence = fresh;
    return sequence;
}

static struct scheduled *allocate(const struct scheduler *s, uint32_t most)
{
    struct scheduled *sequence = calloc(1, sizeof *sequence);
    bool good = sequence != NULL;

    if (good)
        good = (sequence->tokens = malloc((size_t)most * sizeof *sequence->tokens)) != NULL;
    for (uint32_t g = 0; good && g < s->options.groups; g++)
        good = (sequence->blocks[g] = malloc(list_room(&s->options, most) * sizeof *sequence->blocks[g])) !=
               NULL;
    if (good)
        return sequence;
    scheduled_free(sequence);
    return NULL;
}

struct scheduled *pool_take(struct scheduler *s, uint32_t most, void *user, struct failure *err)
{
    const bool made = s->idle != NULL && most <= s->options.tokens;
    struct scheduled *sequence = made ? take(s) : allocate(s, most);

    if (sequence == NULL) {
        failure_set(err, "no memory for a sequence of %" PRIu32 " tokens", most);
        return NULL;
    }
    sequence->user = user;
    sequence->most = most;
    return sequence;
}

void scheduled_free(struct scheduled *sequence)
{
    if (sequence == NULL)
        return;
    if (sequence->home != NULL) {
        sequence->next = *sequence->home;
        *sequence->home = sequence;
        return;
    }
    for (uint32_t g = 0; g < SCHEDULER_GROUPS; g++)
        free(sequence->blocks[g]);
    free(sequence->tokens);
    free(sequence);
}
