/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Several clips at once: who ends leaves its seat to the next, whose prompt joins the decodes of the others.
 */
#include "speech.h"

#include <inttypes.h>
#include <stdlib.h>

enum { PROMPT = 2 };

struct run {
    struct speech *speech;
    struct clip *clips;
    uint32_t count;
    uint32_t started; /* clips 0 to started - 1 have had a seat */
    uint32_t seats;
    bool *taken;
    uint32_t *of; /* clip of each part of the step */
    struct whisper_part *parts;
    float *logits;
};

static int check_clips(const struct speech *s, const struct clip *clips, uint32_t count, struct failure *err)
{
    const struct whisper_shape *m = &s->model.shape;
    for (uint32_t i = 0; i < count; i++)
        if (clips[i].rows == 0 || clips[i].rows > m->encoder_rows || clips[i].most == 0 || !clips[i].mel)
            return failure_set(err,
                               "clip %" PRIu32 ": %" PRIu32 " rows, %" PRIu32
                               " tokens; accepted are 1 to %" PRIu32 " rows, 1 and more tokens",
                               i, clips[i].rows, clips[i].most, m->encoder_rows);
    return 0;
}

static void add_part(struct run *r, uint32_t *count, uint32_t clip, const int32_t *prompt)
{
    struct clip *c = &r->clips[clip];
    r->of[*count] = clip;
    r->parts[(*count)++] = (struct whisper_part){
        .place = {.seat = c->seat, .past = c->past, .count = prompt ? PROMPT : 1, .encoder = c->rows},
        .tokens = prompt ? prompt : &c->next,
        .mel = prompt ? c->mel : NULL,
    };
}

/* Prompts for free seats, then a token of every clip that has one. */
static uint32_t gather(struct run *r, const int32_t *prompt)
{
    uint32_t before = r->started;
    uint32_t count = 0;
    for (uint32_t seat = 0; seat < r->seats && r->started < r->count; seat++) {
        if (r->taken[seat])
            continue;
        r->taken[seat] = true;
        r->clips[r->started].seat = seat;
        add_part(r, &count, r->started++, prompt);
    }
    for (uint32_t i = 0; i < before; i++)
        if (!r->clips[i].done)
            add_part(r, &count, i, NULL);
    return count;
}

static int32_t largest(const float *logits, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

static int take(struct run *r, const struct whisper_part *part, struct clip *c, const float *logits,
                struct failure *err)
{
    const struct whisper_shape *m = &r->speech->model.shape;
    c->past += part->place.count;
    c->next = largest(logits, m->vocab);
    c->ended = c->next == m->end;
    if (!c->ended && tokens_add(&c->made, c->next, err) < 0)
        return -1;
    c->done = c->ended || c->made.count >= c->most || c->past >= m->context;
    if (c->done)
        r->taken[c->seat] = false;
    return 0;
}

static int loop(struct run *r, speech_step_fn on_step, void *user, struct failure *err)
{
    const struct whisper_shape *m = &r->speech->model.shape;
    const int32_t prompt[PROMPT] = {m->begin, m->plain};
    for (;;) {
        uint32_t count = gather(r, prompt);
        if (count == 0)
            return 0;
        if (whisper_forward_run(r->speech->forward, r->speech->attention, r->parts, count, r->logits, err) <
            0)
            return -1;
        for (uint32_t i = 0; i < count; i++) {
            const float *logits = r->logits + (size_t)i * m->vocab;
            if (on_step)
                on_step(user, r->of[i], logits);
            if (take(r, &r->parts[i], &r->clips[r->of[i]], logits, err) < 0)
                return -1;
        }
    }
}

int speech_run(struct speech *s, struct clip *clips, uint32_t count, speech_step_fn on_step, void *user,
               struct failure *err)
{
    struct run r = {.speech = s, .clips = clips, .count = count, .seats = encoding_seats(s->attention)};
    int status;
    if (check_clips(s, clips, count, err) < 0)
        return -1;
    r.taken = calloc(r.seats, sizeof *r.taken);
    r.of = calloc(r.seats, sizeof *r.of);
    r.parts = calloc(r.seats, sizeof *r.parts);
    r.logits = calloc((size_t)r.seats * s->model.shape.vocab, sizeof *r.logits);
    if (r.taken && r.of && r.parts && r.logits)
        status = loop(&r, on_step, user, err);
    else
        status = failure_set(err, "no memory for %" PRIu32 " clips at once", r.seats);
    free(r.taken);
    free(r.of);
    free(r.parts);
    free(r.logits);
    return status;
}
