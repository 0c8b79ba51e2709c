/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Reads traces. Tokens follow this rule: each request belongs to a conversation, whose text is a row of
 * tokens drawn from its number; the request has the first of them. Half of the requests, drawn by their
 * number, look for an earlier conversation to go on with: of four among the last 512, the first whose latest
 * prompt and answer together are shorter than the new prompt. All others open a conversation, which begins
 * with one of 16 preambles of 32 to 272 tokens.
 */
#define _GNU_SOURCE
#include "serve-trace.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VOCABULARY = 32000, PREAMBLES = 16, PREAMBLE_STEP = 16, RECENT = 512, TRIES = 4 };

static const char title[] = "TIMESTAMP,ContextTokens,GeneratedTokens";

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) + b;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* ---------------------------------------------------------------- lines */

/* Digits at the start of a text; false if there are none, or too many. */
static bool take_digits(const char **text, unsigned most, uint64_t *out)
{
    const char *at = *text;

    *out = 0;
    while (isdigit((unsigned char)*at) && at - *text < (ptrdiff_t)most)
        *out = *out * 10 + (uint64_t)(*at++ - '0');
    if (at == *text || isdigit((unsigned char)*at))
        return false;
    *text = at;
    return true;
}

static bool take(const char **text, char wanted)
{
    if (**text != wanted)
        return false;
    ++*text;
    return true;
}

/* YYYY-MM-DD HH:MM:SS, with or without a fraction, as seconds. */
static bool take_time(const char **text, double *out)
{
    uint64_t part[6];

    for (unsigned i = 0; i < 6; i++)
        if ((i > 0 && !take(text, "--- ::"[i])) || !take_digits(text, i == 0 ? 4 : 2, &part[i]))
            return false;
    struct tm date = {.tm_year = (int)part[0] - 1900,
                      .tm_mon = (int)part[1] - 1,
                      .tm_mday = (int)part[2],
                      .tm_hour = (int)part[3],
                      .tm_min = (int)part[4],
                      .tm_sec = (int)part[5]};
    if (part[0] < 1970 || part[1] < 1 || part[1] > 12 || part[2] < 1 || part[2] > 31 || part[3] > 23 ||
        part[4] > 59 || part[5] > 60)
        return false;
    *out = (double)timegm(&date);
    if (!take(text, '.'))
        return true;
    double unit = 1;
    if (!isdigit((unsigned char)**text))
        return false;
    for (; isdigit((unsigned char)**text); ++*text)
        *out += (unit /= 10) * (**text - '0');
    return true;
}

/* A line without its end; false after a message that names what is wrong. */
static int parse(const char *path, uint32_t line, const char *text, struct serve_request *out,
                 struct failure *err)
{
    static const char *const names[] = {"ContextTokens", "GeneratedTokens"};
    uint64_t lengths[2];
    const char *at = text;

    *out = (struct serve_request){.line = line};
    if (!take_time(&at, &out->arrival) || *at != ',')
        return failure_set(err,
                           "%s:%" PRIu32 ": the line begins \"%.40s\"; accepted is YYYY-MM-DD "
                           "HH:MM:SS.FRACTION,%s,%s",
                           path, line, text, names[0], names[1]);
    for (unsigned i = 0; i < 2; i++) {
        const char *field = ++at;
        const int size = (int)strcspn(field, ",");
        if (!take_digits(&at, 9, &lengths[i]) || *at != (i == 0 ? ',' : '\0') || lengths[i] < 1 ||
            lengths[i] > SERVE_MOST_TOKENS)
            return failure_set(err,
                               "%s:%" PRIu32 ": %s is \"%.*s\"; accepted are whole numbers from 1 to %d%s",
                               path, line, names[i], size < 40 ? size : 40, field, SERVE_MOST_TOKENS,
                               i == 0 ? ", and a third column behind it" : " at the end of the line");
    }
    out->prompt = (uint32_t)lengths[0];
    out->answer = (uint32_t)lengths[1];
    return 0;
}

/* ---------------------------------------------------------------- files */

static int add(struct serve_trace *trace, uint32_t *room, const struct serve_request *request,
               struct failure *err)
{
    if (trace->count == *room) {
        uint32_t more = *room > 0 ? 2 * *room : 1024;
        void *requests = realloc(trace->requests, (size_t)more * sizeof *trace->requests);
        if (requests == NULL)
            return failure_set(err, "no memory for %" PRIu32 " requests", more);
        trace->requests = requests;
        *room = more;
    }
    trace->requests[trace->count++] = *request;
    if (request->prompt + request->answer > trace->longest)
        trace->longest = request->prompt + request->answer;
    return 0;
}

/* One more line of the file, without its end; 0 at the end of it. */
static int next_line(FILE *file, const char *path, uint32_t line, char **text, size_t *size,
                     struct failure *err)
{
    errno = 0;
    ssize_t length = getline(text, size, file);

    if (length < 0)
        return ferror(file) != 0 || errno == ENOMEM
                   ? failure_set(err, "%s:%" PRIu32 ": %s", path, line, strerror(errno))
                   : 0;
    if (strlen(*text) != (size_t)length)
        return failure_set(err, "%s:%" PRIu32 ": the line has a byte 0; text is accepted", path, line);
    while (length > 0 && ((*text)[length - 1] == '\n' || (*text)[length - 1] == '\r'))
        (*text)[--length] = '\0';
    return 1;
}

static int read_file(struct serve_trace *trace, FILE *file, const char *path, uint32_t limit, char **text,
                     struct failure *err)
{
    uint32_t line = 1, room = 0, blank = 0;
    size_t size = 0;
    double first = 0, last = 0;
    int more = next_line(file, path, line, text, &size, err);

    if (more == 0)
        return failure_set(err, "%s: the file is empty; a trace begins with the line %s", path, title);
    if (more > 0 && strcmp(*text, title) != 0)
        return failure_set(err, "%s:1: the line is \"%.60s\"; a trace begins with the line %s", path, *text,
                           title);
    while (more > 0 && (limit == 0 || trace->count < limit)) {
        struct serve_request request;
        more = next_line(file, path, ++line, text, &size, err);
        if (more > 0 && (*text)[0] == '\0') {
            blank = blank != 0 ? blank : line;
            continue;
        }
        if (more <= 0)
            break;
        if (blank != 0)
            return failure_set(err, "%s:%" PRIu32 ": the line is empty; only the end may have empty lines",
                               path, blank);
        if (parse(path, line, *text, &request, err) < 0)
            return -1;
        first = trace->count == 0 ? request.arrival : first;
        if (trace->count > 0 && request.arrival < last)
            return failure_set(err,
                               "%s:%" PRIu32 ": the request came before that of the line above it; sort "
                               "them by their time",
                               path, line);
        last = request.arrival;
        request.arrival -= first;
        if (add(trace, &room, &request, err) < 0)
            return -1;
    }
    if (more >= 0 && trace->count == 0)
        return failure_set(err, "%s: there is no request behind the first line", path);
    return more < 0 ? -1 : 0;
}

/* ---------------------------------------------------------------- tokens */

/* Gives each request its conversation. */
static int talk(struct serve_trace *trace, struct failure *err)
{
    uint32_t *lengths = calloc(trace->count, sizeof *lengths), conversations = 0;

    if (lengths == NULL)
        return failure_set(err, "no memory for %" PRIu32 " conversations", trace->count);
    for (uint32_t i = 0; i < trace->count; i++) {
        struct serve_request *request = &trace->requests[i];
        const uint32_t recent = conversations < RECENT ? conversations : RECENT;
        request->conversation = conversations;
        for (unsigned t = 0; t < TRIES && recent > 0 && mix(i, 1) % 2 == 0; t++) {
            const uint32_t other = conversations - 1 - (uint32_t)(mix(i, 2 + t) % recent);
            if (lengths[other] >= request->prompt)
                continue;
            request->conversation = other;
            break;
        }
        if (request->conversation == conversations)
            conversations++;
        lengths[request->conversation] = request->prompt + request->answer;
    }
    free(lengths);
    return 0;
}

void serve_trace_tokens(const struct serve_trace *trace, uint32_t request, uint32_t first, uint32_t count,
                        int32_t *out)
{
    const uint64_t conversation = trace->requests[request].conversation;
    const uint64_t preamble = mix(conversation, 0) % PREAMBLES;
    const uint64_t length = PREAMBLE_STEP * (preamble + 2);

    for (uint32_t i = 0; i < count; i++) {
        const uint64_t at = first + i;
        const uint64_t text = at < length ? preamble : PREAMBLES + conversation;
        out[i] = (int32_t)(mix(text, at) % VOCABULARY);
    }
}

int serve_trace_read(struct serve_trace *trace, const char *path, uint32_t limit, struct failure *err)
{
    char *text = NULL;
    FILE *file = fopen(path, "re");

    *trace = (struct serve_trace){.count = 0};
    if (file == NULL)
        return failure_set(err, "%s: %s; give a trace as trace=FILE.csv", path, strerror(errno));
    int status = read_file(trace, file, path, limit, &text, err);
    fclose(file);
    free(text);
    return status == 0 ? talk(trace, err) : status;
}

void serve_trace_finish(struct serve_trace *trace)
{
    free(trace->requests);
    *trace = (struct serve_trace){.count = 0};
}
