/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One step: those that run in order of arrival, then those that come back from the host, then new ones. */
#include "scheduler-impl.h"

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* All that is missing is the key of the newest token. */
static bool generates(const struct scheduled *sequence)
{
    return sequence->computed >= sequence->prompt && sequence->count - sequence->computed == 1;
}

/* The sequence that came last gives up its blocks. */
static void preempt(struct scheduler *s, struct scheduled *sequence)
{
    running_remove(s, sequence);
    if (s->options.host_blocks > 0 && sequence_swap_out(s, sequence)) {
        sequence->state = SEQUENCE_SWAPPED;
        queue_insert(&s->swapped, sequence);
        s->counts.swapped++;
        return;
    }
    sequence_drop(s, sequence);
    sequence->state = SEQUENCE_WAITS;
    queue_insert(&s->waiting, sequence);
    s->counts.recomputed++;
}

/* `tokens` is what there are blocks for now. */
static void add_part(struct scheduler *s, struct scheduled *sequence, uint32_t new_tokens, uint32_t tokens,
                     uint32_t *chunk)
{
    struct scheduler_step *step = &s->step;
    sequence->ahead = tokens;
    s->parts[step->part_count++] = (struct scheduled_part){sequence, sequence->computed, new_tokens};
    step->num_tokens += new_tokens;
    if (!generates(sequence)) {
        step->prompt_tokens += new_tokens;
        *chunk -= new_tokens;
    }
}

/* New tokens of a sequence in this step, and the tokens that it needs blocks for. */
static uint32_t count_tokens(const struct scheduler *s, const struct scheduled *sequence, uint32_t chunk,
                             uint32_t *out_tokens)
{
    uint32_t end = least(sequence->count, sequence_end(sequence));
    uint32_t new_tokens = least(end - sequence->computed, chunk);
    if (generates(sequence)) {
        new_tokens = end - sequence->computed;
        *out_tokens = end + least(s->options.lookahead, sequence_end(sequence) - end);
    } else {
        *out_tokens = sequence->computed + new_tokens;
    }
    return new_tokens;
}

/* True if a sequence had to give up its blocks. */
static bool compose_running(struct scheduler *s, uint32_t *chunk)
{
    bool tight = false;
    for (uint32_t i = 0; i < s->running_count; i++) {
        struct scheduled *sequence = s->running[i];
        uint32_t tokens;
        uint32_t new_tokens = count_tokens(s, sequence, *chunk, &tokens);
        if (new_tokens == 0)
            continue;
        while (sequence->state == SEQUENCE_RUNS && !sequence_grow(s, sequence, tokens)) {
            preempt(s, s->running[s->running_count - 1]);
            tight = true;
        }
        if (sequence->state == SEQUENCE_RUNS)
            add_part(s, sequence, new_tokens, tokens, chunk);
    }
    return tight;
}

/* Blocks that stay free when others run: or the first to need one would drive out whoever just came. */
static uint32_t spare(const struct scheduler *s)
{
    uint32_t most = 0;
    for (uint32_t g = 0; g < s->options.groups; g++)
        most = s->cache[g].count > most ? s->cache[g].count : most;
    return s->running_count > 0 ? 1 + most / 100 : 0;
}

static void compose_swapped(struct scheduler *s, uint32_t *chunk)
{
    while (s->swapped.first != NULL && s->slot_count > 0) {
        struct scheduled *sequence = s->swapped.first;
        uint32_t tokens;
        uint32_t new_tokens = count_tokens(s, sequence, *chunk, &tokens);
        if (new_tokens == 0 || !sequence_swap_in(s, sequence, sequence_lacks(s, sequence, tokens) + spare(s)))
            return;
        queue_remove(&s->swapped, sequence);
        running_insert(s, sequence);
        (void)sequence_grow(s, sequence, tokens); /* was asked for in advance, and nothing is shared */
        add_part(s, sequence, new_tokens, tokens, chunk);
    }
}

/* Whether all of its tokens find room now, so that it need not give up half-way. */
static bool fits(const struct scheduler *s, const struct scheduled *sequence)
{
    for (uint32_t g = 0; g < s->options.groups; g++) {
        uint32_t window = s->options.group[g].window;
        uint64_t tokens = sequence->count;
        uint64_t seen = (uint64_t)window + s->options.chunk + s->options.block;
        if (window > 0 && seen < tokens)
            tokens = seen;
        if ((uint64_t)sequence_lacks(s, sequence, (uint32_t)tokens) + spare(s) > s->cache[g].unheld)
            return false;
    }
    return true;
}

static void compose_waiting(struct scheduler *s, uint32_t *chunk)
{
    while (s->waiting.first != NULL && s->slot_count > 0 && *chunk > 0) {
        struct scheduled *sequence = s->waiting.first;
        uint32_t tokens;
        sequence_find(s, sequence);
        uint32_t found = sequence->computed;
        uint32_t new_tokens = count_tokens(s, sequence, *chunk, &tokens);
        if (!fits(s, sequence) || !sequence_grow(s, sequence, tokens)) {
            sequence_drop(s, sequence);
            return;
        }
        s->counts.asked_tokens += s->options.reuse ? sequence->count : 0;
        s->counts.hit_tokens += found;
        queue_remove(&s->waiting, sequence);
        running_insert(s, sequence);
        add_part(s, sequence, new_tokens, tokens, chunk);
    }
}

void step_compose(struct scheduler *s)
{
    struct scheduler_step *step = &s->step;
    uint32_t chunk = s->options.chunk;
    step->part_count = 0;
    step->num_tokens = 0;
    step->prompt_tokens = 0;
    step->out.count = 0;
    step->in.count = 0;
    step->copies.count = 0;
    if (compose_running(s, &chunk))
        return;
    compose_swapped(s, &chunk);
    if (s->swapped.first == NULL)
        compose_waiting(s, &chunk);
}
