/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Turns tokens into text on standard output or in memory, beside a line of progress at a terminal. */
#include "printer.h"
#include "output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---------------------------------------------------------------- texts */

static char bytes[TOKENIZER_MOST_BYTES];

static void print_token(struct printer *p, int32_t id)
{
    size_t size = tokenizer_decode(p->engine->tokenizer, id, bytes, sizeof bytes);
    for (size_t i = 0; i < size; i++) {
        char out[8];
        fwrite(out, 1, utf8_stream_push(&p->stream, bytes[i], out), output_stream());
    }
}

void printer_continue(struct printer *p)
{
    for (; p->current < p->count; p->current++) {
        const struct sequence *s = &p->sequences[p->current];
        if (p->whole && s->end == END_NONE)
            break;
        if (p->whole)
            progress_clear();
        if (p->numbered && !p->begun)
            fprintf(output_stream(), "%s=== %u ===\n", p->current ? "\n" : "", p->current + 1);
        p->begun = true;
        for (; p->printed < s->made.count; p->printed++)
            print_token(p, s->made.ids[p->printed]);
        if (s->end == END_NONE)
            break;
        char rest[8];
        fwrite(rest, 1, utf8_stream_end(&p->stream, rest), output_stream());
        fputc('\n', output_stream());
        p->begun = false;
        p->printed = 0;
        p->stream = (struct utf8_stream){0};
    }
    fflush(output_stream());
}

char *sequence_text(const struct engine *e, const struct sequence *s)
{
    struct utf8_stream stream = {0};
    size_t room = 0;
    size_t used = 0;
    char *text = NULL;
    for (size_t t = 0; t < s->made.count; t++) {
        size_t size = tokenizer_decode(e->tokenizer, s->made.ids[t], bytes, sizeof bytes);
        if (used + 8 * size + 9 > room) {
            room = 2 * room + 8 * size + 256;
            text = need_memory(text, room, 1);
        }
        for (size_t i = 0; i < size; i++)
            used += utf8_stream_push(&stream, bytes[i], text + used);
    }
    text = need_memory(text, used + 9, 1);
    used += utf8_stream_end(&stream, text + used);
    text[used] = 0;
    return text;
}

/* ---------------------------------------------------------------- progress */

static bool wanted;
static bool shown;
static double last;

bool progress_begin(void)
{
    const char *terminal = getenv("TERM");
    wanted = isatty(STDERR_FILENO) == 1 && terminal && terminal[0] && strcmp(terminal, "dumb") != 0;
    return wanted;
}

void progress_show(const struct batch_progress *p)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    double now = (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
    if (!wanted || (last > 0 && now - last < 0.1))
        return;
    last = now;
    shown = true;
    fprintf(stderr, "\r\033[K%u done, %u running, %u waiting; %.1f tokens/s; cache %.0f %%", p->done,
            p->running, p->waiting, p->seconds > 0 ? p->made_tokens / p->seconds : 0.0,
            p->blocks ? 100.0 * (double)p->used / (double)p->blocks : 0.0);
    fflush(stderr);
}

void progress_clear(void)
{
    if (!shown)
        return;
    shown = false;
    fputs("\r\033[K", stderr);
    fflush(stderr);
}
