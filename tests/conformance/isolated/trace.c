/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Compares the process with what it was before, stage by stage. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>

#include "life.h"
#include "trace.h"

enum { MOST_TRAITS = 32, STATE = 65536 };

/* Of the one life that this process watches. */
static char states[MOST_TRAITS][STATE];
static char found[MOST_TRAITS][ISOLATED_TEXT];
static const void *plugin_from, *plugin_to;

void add_line(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
    used = strlen(text);
    if (used + 1 < size) {
        text[used] = '\n';
        text[used + 1] = '\0';
    }
}

/* The first line of `text` that `other` does not hold; its length is 0 if there is none. */
static int find_new_line(const char *text, const char *other, const char **out)
{
    char line[512];

    for (const char *p = text; *p != '\0';) {
        int length = (int)strcspn(p, "\n");
        snprintf(line, sizeof line, "%.*s\n", length < 500 ? length : 500, p);
        if (length < 500 && strstr(other, line) == NULL) {
            *out = p;
            return length;
        }
        p += length;
        p += *p == '\n';
    }
    *out = "";
    return 0;
}

static void say(uint32_t trait, const char *stage, const char *before, const char *after)
{
    const char *gone, *come;
    int gone_length = find_new_line(before, after, &gone);
    int come_length = find_new_line(after, before, &come);

    const bool at_end = trait < process_trait_count && process_traits[trait].time == TRAIT_END;

    snprintf(found[trait], sizeof found[trait], "%s: changed in stage '%s':%s%.*s%s%.*s",
             at_end ? "ATTN_P15" : "ATTN_P13", stage, gone_length > 0 ? " was " : "",
             gone_length < 250 ? gone_length : 250, gone, gone_length > 0 && come_length > 0 ? ", is " : " ",
             come_length < 250 ? come_length : 250, come);
}

static void compare(uint32_t trait, const char *stage, bool keep)
{
    static char now[STATE];

    now[0] = '\0';
    process_traits[trait].read(now, sizeof now);
    if (strcmp(now, states[trait]) == 0)
        return;
    if (found[trait][0] == '\0')
        say(trait, stage, states[trait], now);
    if (keep)
        memcpy(states[trait], now, sizeof now);
}

static void read_handlers(struct life *life, const char *stage)
{
    static char before[ISOLATED_TEXT];
    char now[ISOLATED_TEXT] = "";
    const uint32_t place = MOST_TRAITS - 1;

    if (plugin_to == NULL && (life->entry == NULL || !life_range(life, &plugin_from, &plugin_to)))
        return;
    handlers_list(plugin_from, plugin_to, now, sizeof now);
    if (strcmp(now, before) != 0 && found[place][0] == '\0')
        say(place, stage, before, now);
    memcpy(before, now, sizeof now);
}

void trace_begin(void)
{
    files_begin();
    for (uint32_t i = 0; i < process_trait_count; i++)
        process_traits[i].read(states[i], sizeof states[i]);
}

void trace_stage(struct life *life, const char *stage, bool during)
{
    for (uint32_t i = 0; i < process_trait_count; i++)
        if (process_traits[i].time == TRAIT_WITHIN || (process_traits[i].time == TRAIT_STAGE && !during))
            compare(i, stage, !during);
    read_handlers(life, stage);
}

void trace_restart(void)
{
    files_restart();
    for (uint32_t i = 0; i < process_trait_count; i++) {
        if (process_traits[i].time == TRAIT_END)
            compare(i, "restart", true);
        if (process_traits[i].time == TRAIT_END)
            found[i][0] = '\0';
    }
}

void trace_end(struct isolated *isolated)
{
    for (uint32_t i = 0; i < process_trait_count; i++) {
        if (process_traits[i].time == TRAIT_END)
            compare(i, "finish", true);
        isolated_judge(isolated, process_traits[i].name, found[i]);
    }
    isolated_judge(isolated, "exit handlers", found[MOST_TRAITS - 1]);
}
