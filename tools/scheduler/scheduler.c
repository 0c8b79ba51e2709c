/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The life of requests: added, forked, continued, ended. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler-impl.h"

/* ---------------------------------------------------------------- making */

static int check_options(const struct scheduler_options *o, struct failure *err)
{
    if (o->block == 0 || o->max_seqs == 0 || o->chunk == 0)
        return failure_set(
            err, "block is %" PRIu32 ", max_seqs %" PRIu32 ", chunk %" PRIu32 "; none of them may be 0",
            o->block, o->max_seqs, o->chunk);
    if (o->groups == 0 || o->groups > SCHEDULER_GROUPS)
        return failure_set(err, "groups is %" PRIu32 "; 1 to %d are accepted", o->groups, SCHEDULER_GROUPS);
    if (o->reuse && (o->groups > 1 || o->group[0].window > 0))
        return failure_set(err, "reuse needs a single group that has no window");
    return 0;
}

/* Room for as many moves as one step can have: every block of every group once. */
static int make_moves(struct block_moves *moves, const struct scheduler_options *o, struct failure *err)
{
    uint64_t room = 0;
    /* A shared block moves once for each that holds it, but every move to the host takes a block there. */
    for (uint32_t g = 0; g < o->groups; g++)
        room += o->group[g].blocks > o->host_blocks ? o->group[g].blocks : o->host_blocks;
    moves->moves = calloc(room + 1, sizeof *moves->moves);
    return moves->moves ? 0 : failure_set(err, "no memory for %" PRIu64 " moves of blocks", room);
}

static int make_lists(struct scheduler *s, struct failure *err)
{
    uint32_t batch_slots = s->options.max_seqs;
    s->running = calloc(batch_slots, sizeof *s->running);
    s->batch_slots = calloc(batch_slots, sizeof *s->batch_slots);
    s->parts = calloc(batch_slots, sizeof *s->parts);
    if (!s->running || !s->batch_slots || !s->parts)
        return failure_set(err, "no memory for %" PRIu32 " sequences", batch_slots);
    while (s->slot_count < batch_slots) {
        s->batch_slots[s->slot_count] = batch_slots - 1 - s->slot_count;
        s->slot_count++;
    }
    s->step.parts = s->parts;
    if (make_moves(&s->step.copies, &s->options, err) < 0)
        return -1;
    if (s->options.host_blocks == 0)
        return 0;
    return make_moves(&s->step.out, &s->options, err) < 0 ? -1 : make_moves(&s->step.in, &s->options, err);
}

int scheduler_create(const struct scheduler_options *options, struct scheduler **out, struct failure *err)
{
    struct scheduler *s = NULL;
    int status = check_options(options, err);
    if (status == 0 && !(s = calloc(1, sizeof *s)))
        status = failure_set(err, "no memory for a scheduler");
    if (status == 0) {
        s->options = *options;
        status = make_lists(s, err) < 0 ? -1 : pool_make(s, err);
    }
    for (uint32_t g = 0; status == 0 && g < options->groups; g++) {
        status =
            blocks_init(&s->cache[g], options->group[g].blocks, options->reuse ? options->block : 0, err);
        if (status == 0)
            status = blocks_init(&s->host[g], options->host_blocks, 0, err);
    }
    if (status < 0) {
        scheduler_destroy(s);
        return -1;
    }
    *out = s;
    return 0;
}

static void free_queue(struct queue *queue)
{
    while (queue->first != NULL) {
        struct scheduled *sequence = queue->first;
        queue_remove(queue, sequence);
        scheduled_free(sequence);
    }
}

void scheduler_destroy(struct scheduler *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->running_count; i++)
        scheduled_free(s->running[i]);
    free_queue(&s->waiting);
    free_queue(&s->swapped);
    for (uint32_t g = 0; g < s->options.groups; g++) {
        blocks_finish(&s->cache[g]);
        blocks_finish(&s->host[g]);
    }
    pool_free(s);
    free(s->running);
    free(s->batch_slots);
    free(s->parts);
    free(s->step.out.moves);
    free(s->step.in.moves);
    free(s->step.copies.moves);
    free(s);
}

/* ---------------------------------------------------------------- requests */

/* Blocks that a sequence of so many tokens needs at once, whatever else runs. */
static uint64_t demand(const struct scheduler_options *o, uint32_t group, uint32_t tokens)
{
    uint64_t window = o->group[group].window;
    uint64_t all = (uint64_t)tokens / o->block + (tokens % o->block != 0);
    uint64_t seen = (window + o->chunk + o->lookahead) / o->block + 2;
    return window > 0 && seen < all ? seen : all;
}

static int check_request(const struct scheduler *s, uint32_t prompt, uint32_t most, struct failure *err)
{
    const struct scheduler_options *o = &s->options;
    if (prompt == 0 || most < prompt)
        return failure_set(err, "a request of %" PRIu32 " tokens that ends with %" PRIu32 "; %s", prompt,
                           most, prompt == 0 ? "one token is the least" : "it may not end before it begins");
    uint32_t end = most > prompt ? most - 1 : prompt;
    for (uint32_t g = 0; g < o->groups; g++) {
        if (demand(o, g, end) > o->group[g].blocks)
            return failure_set(err,
                               "a request of up to %" PRIu32 " tokens needs %" PRIu64 " blocks of %" PRIu32
                               " tokens, and the cache has %" PRIu32,
                               most, demand(o, g, end), o->block, o->group[g].blocks);
    }
    return 0;
}

struct scheduled *scheduler_add(struct scheduler *s, const int32_t *tokens, uint32_t prompt, uint32_t most,
                                void *user, struct failure *err)
{
    struct scheduled *sequence;
    if (check_request(s, prompt, most, err) < 0 || !(sequence = pool_take(s, most, user, err)))
        return NULL;
    memcpy(sequence->tokens, tokens, prompt * sizeof *tokens);
    sequence->count = sequence->prompt = prompt;
    sequence->order = s->arrivals++;
    queue_insert(&s->waiting, sequence);
    s->left++;
    return sequence;
}

struct scheduled *scheduler_fork(struct scheduler *s, struct scheduled *from, void *user, struct failure *err)
{
    struct scheduled *sequence;
    if (from->state != SEQUENCE_RUNS || from->computed != from->count) {
        failure_set(err, "only a sequence that runs, and whose tokens are all computed, has further samples");
        return NULL;
    }
    if (!(sequence = pool_take(s, from->most, user, err)))
        return NULL;
    memcpy(sequence->tokens, from->tokens, from->count * sizeof *from->tokens);
    sequence->count = from->count;
    sequence->prompt = from->prompt;
    sequence->order = from->order;
    s->left++;
    if (s->slot_count == 0) {
        sequence->state = SEQUENCE_WAITS;
        queue_insert(&s->waiting, sequence);
        return sequence;
    }
    sequence->computed = from->computed;
    /* Blocks for tokens to come are not shared. */
    sequence->held = from->computed / s->options.block + (from->computed % s->options.block != 0);
    sequence->published = from->published;
    sequence->chain = from->chain;
    from->ahead = 0; /* the last block is shared */
    sequence->shares = from->shares = true;
    for (uint32_t g = 0; g < s->options.groups; g++) {
        sequence->trimmed[g] = from->trimmed[g];
        memcpy(sequence->blocks[g], from->blocks[g], sequence->held * sizeof *from->blocks[g]);
        for (uint32_t i = from->trimmed[g]; i < sequence->held; i++)
            blocks_hold(&s->cache[g], from->blocks[g][i]);
    }
    running_insert(s, sequence);
    return sequence;
}

void scheduler_end(struct scheduler *s, struct scheduled *sequence)
{
    if (sequence->state == SEQUENCE_ENDED)
        return;
    sequence_drop(s, sequence);
    if (sequence->state == SEQUENCE_RUNS)
        running_remove(s, sequence);
    else
        queue_remove(sequence->state == SEQUENCE_WAITS ? &s->waiting : &s->swapped, sequence);
    sequence->state = SEQUENCE_ENDED;
    s->left--;
}

/* ---------------------------------------------------------------- steps */

const struct scheduler_step *scheduler_step(struct scheduler *s)
{
    step_compose(s);
    return &s->step;
}

void scheduler_commit(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->step.part_count; i++) {
        struct scheduled *sequence = s->parts[i].sequence;
        sequence->computed += s->parts[i].count;
        sequence->unchanged = sequence->held;
        sequence_publish(s, sequence);
        sequence_trim(s, sequence);
    }
    s->step.part_count = 0;
}

int scheduler_append(struct scheduled *sequence, const int32_t *tokens, uint32_t count, struct failure *err)
{
    if (count > sequence->most - sequence->count)
        return failure_set(
            err, "%" PRIu32 " tokens to append to %" PRIu32 "; up to %" PRIu32 " are accepted in all", count,
            sequence->count, sequence->most);
    if (count > 1 && (uint64_t)sequence->computed + count - 1 > sequence->ahead)
        return failure_set(err,
                           "%" PRIu32 " tokens at once behind %" PRIu32
                           " computed ones, and the last step went up "
                           "to %" PRIu32,
                           count, sequence->computed, sequence->ahead);
    memcpy(sequence->tokens + sequence->count, tokens, count * sizeof *tokens);
    sequence->count += count;
    sequence->computed += count > 0 ? count - 1 : 0;
    return 0;
}

uint32_t scheduler_left(const struct scheduler *s)
{
    return s->left;
}

const struct scheduler_counts *scheduler_get_counts(const struct scheduler *s)
{
    return &s->counts;
}

uint32_t scheduler_used(const struct scheduler *s, uint32_t group)
{
    return s->cache[group].count - s->cache[group].unheld;
}

static int check_blocks(const struct blocks *b, const char *side, uint32_t group, struct failure *err)
{
    for (uint32_t i = 0; i < b->count; i++) {
        if (blocks_references(b, (int32_t)i) != 0)
            return failure_set(
                err, "block %" PRIu32 " of group %" PRIu32 " %s is held %" PRIu32 " times, and nobody runs",
                i, group, side, blocks_references(b, (int32_t)i));
    }
    return b->unheld == b->count
               ? 0
               : failure_set(err, "group %" PRIu32 " %s has %" PRIu32 " free blocks of %" PRIu32, group, side,
                             b->unheld, b->count);
}

int scheduler_check_idle(const struct scheduler *s, struct failure *err)
{
    if (s->left > 0 || s->running_count > 0 || s->slot_count != s->options.max_seqs)
        return failure_set(err,
                           "%" PRIu32 " sequences have not ended, %" PRIu32 " run, %" PRIu32 " of %" PRIu32
                           " batch slots are free",
                           s->left, s->running_count, s->slot_count, s->options.max_seqs);
    for (uint32_t g = 0; g < s->options.groups; g++)
        if (check_blocks(&s->cache[g], "in the cache", g, err) < 0 ||
            check_blocks(&s->host[g], "on the host", g, err) < 0)
            return -1;
    return 0;
}
