/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The blocks of one sequence: where they come from, and where they go. */
#include "scheduler-impl.h"

uint32_t sequence_end(const struct scheduled *sequence)
{
    return sequence->most > sequence->prompt ? sequence->most - 1 : sequence->prompt;
}

static uint32_t blocks_for(const struct scheduler *s, uint32_t tokens)
{
    return tokens / s->options.block + (tokens % s->options.block != 0);
}

uint32_t sequence_lacks(const struct scheduler *s, const struct scheduled *sequence, uint32_t tokens)
{
    uint32_t wanted = blocks_for(s, tokens);
    return wanted > sequence->held ? wanted - sequence->held : 0;
}

/* Entry of the block that the next token goes to, if others read it too; `held` otherwise. */
static uint32_t shared_entry(const struct scheduler *s, const struct scheduled *sequence, uint32_t group)
{
    uint32_t entry = sequence->computed / s->options.block;
    bool shared = sequence->computed % s->options.block != 0 &&
                  blocks_references(&s->cache[group], sequence->blocks[group][entry]) > 1;
    return shared ? entry : sequence->held;
}

static void add_move(struct block_moves *moves, uint32_t group, int32_t from, int32_t to)
{
    moves->moves[moves->count++] = (struct block_move){group, from, to};
}

static void copy_shared(struct scheduler *s, struct scheduled *sequence, uint32_t group, uint32_t entry)
{
    int32_t *block = &sequence->blocks[group][entry];
    int32_t own = blocks_take(&s->cache[group]);
    add_move(&s->step.copies, group, *block, own);
    blocks_drop(&s->cache[group], *block);
    *block = own;
    if (entry < sequence->unchanged)
        sequence->unchanged = entry;
    s->counts.copied++;
}

bool sequence_grow(struct scheduler *s, struct scheduled *sequence, uint32_t tokens)
{
    if (!sequence->shares && tokens <= (uint64_t)sequence->held * s->options.block)
        return true; /* as in most steps of a sequence that generates */
    uint32_t lacks = sequence_lacks(s, sequence, tokens);
    for (uint32_t g = 0; g < s->options.groups; g++) {
        uint32_t wanted = lacks + (shared_entry(s, sequence, g) < sequence->held);
        if (wanted > s->cache[g].unheld)
            return false;
    }
    for (uint32_t g = 0; g < s->options.groups; g++) {
        uint32_t entry = shared_entry(s, sequence, g);
        if (entry < sequence->held)
            copy_shared(s, sequence, g, entry);
        for (uint32_t i = 0; i < lacks; i++)
            sequence->blocks[g][sequence->held + i] = blocks_take(&s->cache[g]);
    }
    sequence->held += lacks;
    return true;
}

/* The last blocks first: they are of less use to others than those at the beginning. */
void sequence_drop(struct scheduler *s, struct scheduled *sequence)
{
    struct blocks *from = sequence->state == SEQUENCE_SWAPPED ? s->host : s->cache;
    for (uint32_t g = 0; g < s->options.groups; g++) {
        for (uint32_t i = sequence->held; i-- > sequence->trimmed[g];)
            blocks_drop(&from[g], sequence->blocks[g][i]);
        sequence->trimmed[g] = 0;
    }
    sequence->held = 0;
    sequence->computed = 0;
    sequence->published = 0;
    sequence->chain = 0;
}

/* Every block moves to one of the other side. */
static void move_all(struct scheduler *s, struct scheduled *sequence, struct blocks *from, struct blocks *to,
                     struct block_moves *moves)
{
    for (uint32_t g = 0; g < s->options.groups; g++) {
        for (uint32_t i = sequence->held; i-- > sequence->trimmed[g];) {
            int32_t *block = &sequence->blocks[g][i];
            int32_t other = blocks_take(&to[g]);
            add_move(moves, g, *block, other);
            blocks_drop(&from[g], *block);
            *block = other;
        }
    }
}

static bool has_room(const struct scheduler *s, const struct scheduled *sequence, const struct blocks *to,
                     uint32_t spare)
{
    for (uint32_t g = 0; g < s->options.groups; g++)
        if (sequence->held - sequence->trimmed[g] + spare > to[g].unheld)
            return false;
    return true;
}

bool sequence_swap_out(struct scheduler *s, struct scheduled *sequence)
{
    if (!has_room(s, sequence, s->host, 0))
        return false;
    move_all(s, sequence, s->cache, s->host, &s->step.out);
    return true;
}

bool sequence_swap_in(struct scheduler *s, struct scheduled *sequence, uint32_t spare)
{
    if (!has_room(s, sequence, s->cache, spare))
        return false;
    move_all(s, sequence, s->host, s->cache, &s->step.in);
    return true;
}

void sequence_find(struct scheduler *s, struct scheduled *sequence)
{
    uint32_t block = s->options.block;
    uint32_t most = (sequence->count - 1) / block;
    if (!s->options.reuse)
        return;
    for (uint32_t i = 0; i < most; i++) {
        int32_t found = blocks_find(&s->cache[0], sequence->chain, sequence->tokens + (size_t)i * block,
                                    &sequence->chain);
        if (found < 0)
            break;
        sequence->blocks[0][i] = found;
        sequence->held = i + 1;
    }
    sequence->published = sequence->held;
    sequence->computed = sequence->held * block;
}

void sequence_publish(struct scheduler *s, struct scheduled *sequence)
{
    uint32_t block = s->options.block;
    if (!s->options.reuse)
        return;
    for (; (sequence->published + UINT64_C(1)) * block <= sequence->computed; sequence->published++)
        sequence->chain =
            blocks_publish(&s->cache[0], sequence->blocks[0][sequence->published], sequence->chain,
                           sequence->tokens + (size_t)sequence->published * block);
}

void sequence_trim(struct scheduler *s, struct scheduled *sequence)
{
    for (uint32_t g = 0; g < s->options.groups; g++) {
        uint32_t window = s->options.group[g].window;
        if (window == 0 || sequence->computed + 1 <= window)
            continue;
        /* The next token sees itself and window - 1 before it. */
        uint32_t first = (sequence->computed + 1 - window) / s->options.block;
        for (; sequence->trimmed[g] < first; sequence->trimmed[g]++) {
            int32_t *block = &sequence->blocks[g][sequence->trimmed[g]];
            blocks_drop(&s->cache[g], *block);
            *block = -1;
        }
    }
}
