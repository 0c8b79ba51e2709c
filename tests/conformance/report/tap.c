/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The record of what was judged, in memory that outlives the process that judges, and its lines of TAP. */
#define _GNU_SOURCE
#include "tap.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "output.h"

struct tap *tap;

void tap_init(const char *program, const char *file, bool full, bool quiet)
{
    /* Pages that are never written to cost nothing. */
    tap = mmap(NULL, sizeof *tap, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (tap == MAP_FAILED) {
        complain("out of memory");
        exit(EXIT_NO);
    }
    setvbuf(output_stream(), NULL, _IOLBF, 0);
    snprintf(tap->program, sizeof tap->program, "%s", program);
    snprintf(tap->file, sizeof tap->file, "%s", file);
    tap->full = full;
    tap->quiet = quiet;
    tap_begin(NULL, "start", "", 0);
}

static uint32_t kind_number(const char *kind)
{
    uint32_t i = 0;

    while (i < tap->kind_count && strcmp(tap->kinds[i].name, kind) != 0)
        i++;
    if (i == tap->kind_count && i < MOST_KINDS) {
        snprintf(tap->kinds[i].name, sizeof tap->kinds[i].name, "%s", kind);
        tap->kind_count++;
    }
    return i < MOST_KINDS ? i : MOST_KINDS - 1;
}

void tap_begin(const struct target *target, const char *kind, const char *text, uint64_t seed)
{
    struct record *now = &tap->now;

    tap->beats++;
    now->state = STATE_RUNNING;
    snprintf(now->kind, sizeof now->kind, "%s", kind);
    snprintf(now->backend, sizeof now->backend, "%s", target != NULL ? target->name : "");
    snprintf(now->level, sizeof now->level, "%s", target != NULL ? target->level : "");
    snprintf(now->problem, sizeof now->problem, "%s", text);
    now->seed = seed;
    now->text[0] = '\0';
}

/* A word of a shell command. */
static void quote(char *to, size_t size, const char *from)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,=:+";
    size_t used = 0;

    if (*from != '\0' && from[strspn(from, plain)] == '\0') {
        snprintf(to, size, "%s", from);
        return;
    }
    to[used++] = '\'';
    for (; *from != '\0' && used + 6 < size; from++)
        if (*from == '\'')
            used += (size_t)snprintf(to + used, size - used, "'\\''");
        else
            to[used++] = *from;
    to[used++] = '\'';
    to[used] = '\0';
}

void record_title(const struct record *record, char *to, size_t size)
{
    snprintf(to, size, "%s%s%s%s%s: %s%sseed %llu", record->backend, *record->backend != '\0' ? " " : "",
             record->level, *record->level != '\0' ? " " : "", record->kind, record->problem,
             *record->problem != '\0' ? " " : "", (unsigned long long)record->seed);
}

void record_command(const struct record *record, char *to, size_t size)
{
    char program[PATH_SIZE], file[PATH_SIZE], filter[PROBLEM_TEXT + 16], level[80];
    int used;

    quote(program, sizeof program, tap->program);
    quote(file, sizeof file, tap->file);
    quote(filter, sizeof filter, record->problem);
    quote(level, sizeof level, record->level);
    used = snprintf(to, size, "%s %s%s%s", program, file, tap->full ? " --full" : "",
                    tap->device_memory ? " --device-memory" : "");
    if (*record->backend != '\0')
        used += snprintf(to + used, size - (size_t)used, " --backend %s --level %s", record->backend, level);
    used += snprintf(to + used, size - (size_t)used, " --kind %s --seed %llu", record->kind,
                     (unsigned long long)record->seed);
    if (*record->problem != '\0')
        snprintf(to + used, size - (size_t)used, " --filter %s", filter);
    else
        snprintf(to + used, size - (size_t)used, " --cases 1");
}

/* Counts the case and keeps it if there is more to say than that it passed. */
static void settle(enum record_state state)
{
    struct kind_count *kind = &tap->kinds[kind_number(tap->now.kind)];

    tap->now.state = state;
    kind->count[state]++;
    tap->count[state]++;
    if (state == STATE_PASSED)
        return;
    if (tap->record_count < MOST_RECORDS)
        tap->records[tap->record_count++] = tap->now;
    else
        tap->lost++;
}

uint32_t tap_number(void)
{
    return tap->count[STATE_PASSED] + tap->count[STATE_FAILED] + tap->count[STATE_SKIPPED];
}

static void print_line(const char *result, const char *directive, const char *why)
{
    char title[TITLE_SIZE];

    if (tap->quiet)
        return;
    record_title(&tap->now, title, sizeof title);
    fprintf(output_stream(), "%s%s %u - %s%s%s\n", tap->clear, result, tap_number(), title, directive, why);
}

/* What a plugin says may have several lines. */
static void keep_text(const char *text)
{
    snprintf(tap->now.text, sizeof tap->now.text, "%s", text);
    for (char *at = tap->now.text; *at != '\0'; at++)
        if (*at == '\n' || *at == '\r')
            *at = ' ';
}

void tap_pass(void)
{
    settle(STATE_PASSED);
    print_line("ok", "", "");
}

void tap_skip(const char *why)
{
    keep_text(why);
    settle(STATE_SKIPPED);
    print_line("ok", " # SKIP ", tap->now.text);
}

void tap_fail(const char *format, ...)
{
    va_list arguments;
    char text[TEXT_SIZE], again[COMMAND_SIZE];

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    keep_text(text);
    settle(STATE_FAILED);
    print_line("not ok", "", "");
    if (!tap->quiet) {
        record_command(&tap->now, again, sizeof again);
        fprintf(output_stream(), "%s# %s\n# again: %s\n", tap->clear, tap->now.text, again);
    }
    if (tap->judge == getpid()) {
        fflush(output_stream());
        tap->finished = tap->reported = true;
        _exit(EXIT_NO);
    }
}

void tap_note(const char *format, ...)
{
    va_list arguments;

    if (tap->quiet)
        return;
    fprintf(output_stream(), "%s# ", tap->clear);
    va_start(arguments, format);
    vfprintf(output_stream(), format, arguments);
    va_end(arguments);
    fputc('\n', output_stream());
}
