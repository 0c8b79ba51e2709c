/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Keeps sequences in order of arrival. */
#include <string.h>

#include "scheduler-impl.h"

/* Whoever was there before comes back to the front, so the way is short; new ones go to the end. */
void queue_insert(struct queue *queue, struct scheduled *sequence)
{
    struct scheduled **at = &queue->first;
    if (queue->last != NULL && queue->last->order <= sequence->order)
        at = &queue->last->next;
    while (*at != NULL && (*at)->order <= sequence->order)
        at = &(*at)->next;
    sequence->next = *at;
    *at = sequence;
    if (sequence->next == NULL)
        queue->last = sequence;
    queue->count++;
}

void queue_remove(struct queue *queue, struct scheduled *sequence)
{
    struct scheduled *before = NULL;
    struct scheduled **at = &queue->first;
    while (*at != sequence) {
        before = *at;
        at = &before->next;
    }
    *at = sequence->next;
    if (queue->last == sequence)
        queue->last = before;
    sequence->next = NULL;
    queue->count--;
}

void running_insert(struct scheduler *s, struct scheduled *sequence)
{
    uint32_t at = s->running_count;
    while (at > 0 && s->running[at - 1]->order > sequence->order)
        at--;
    memmove(s->running + at + 1, s->running + at, (s->running_count - at) * sizeof *s->running);
    s->running[at] = sequence;
    s->running_count++;
    sequence->batch_slot = s->batch_slots[--s->slot_count];
    sequence->state = SEQUENCE_RUNS;
    sequence->unchanged = 0;
}

void running_remove(struct scheduler *s, struct scheduled *sequence)
{
    uint32_t at = 0;
    while (s->running[at] != sequence)
        at++;
    s->running_count--;
    memmove(s->running + at, s->running + at + 1, (s->running_count - at) * sizeof *s->running);
    s->batch_slots[s->slot_count++] = sequence->batch_slot;
}
