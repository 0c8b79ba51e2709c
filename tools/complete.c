/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Candidates from the tables that the parser of a tool has, and from the library. */
#define _GNU_SOURCE
#include "complete.h"

#include <stdlib.h>
#include <string.h>

#include "attn/attn.h"
#include "common-options.h"
#include "output.h"

void complete_offer(const struct command_line *line, const char *lead, const char *text, const char *end)
{
    if (strncmp(text, line->typed, strlen(line->typed)) == 0)
        fprintf(output_stream(), "%s%s%s\n", lead, text, end);
}

/* Values that a text lists as "a|b|c (remark)". */
static void offer_list(const struct command_line *line, const char *lead, const char *list)
{
    size_t end = strcspn(list, " ");

    for (size_t at = 0; at < end;) {
        size_t size = strcspn(list + at, "| ");
        char *value = need_format("%.*s", (int)size, list + at);
        complete_offer(line, lead, value, "");
        free(value);
        at += size + 1;
    }
}

bool complete_is_given(const struct command_line *line, unsigned first, const char *key)
{
    size_t size = strlen(key);

    for (unsigned i = first; i < line->count; i++)
        if (strncmp(line->words[i], key, size) == 0 && line->words[i][size] == '=')
            return true;
    return false;
}

void complete_problem(const struct command_line *line, unsigned first)
{
    const char *key, *values, *sign = strchr(line->typed, '=');

    for (uint32_t i = 0; (key = attn_problem_key(i, NULL, &values)) != NULL; i++) {
        size_t size = strlen(key);
        if (sign == NULL && !complete_is_given(line, first, key)) {
            complete_offer(line, "", key, "=");
        } else if (sign == line->typed + size && strncmp(line->typed, key, size) == 0 &&
                   strchr(values, '|') != NULL) {
            struct command_line value = {.typed = sign + 1};
            char *lead = need_format("%s=", key);
            offer_list(&value, lead, values);
            free(lead);
        }
    }
}

void complete_backends(const struct command_line *line, const char *lead, struct attn_context *context)
{
    const struct attn_file_record *file;
    struct attn_report *report;

    if (attn_context_get_report(context, &report, NULL) != ATTN_OK)
        return;
    for (uint32_t i = 0; (file = attn_report_get_file(report, i)) != NULL; i++) {
        char *names = need_copy(file->backends), *rest = names, *name;
        if (file->reason == 0 && file->name[0] != '\0')
            complete_offer(line, lead, file->name, "");
        while (file->reason == 0 && (name = strsep(&rest, ",")) != NULL)
            complete_offer(line, lead, name, "");
        free(names);
    }
    attn_report_destroy(report);
}

static void offer_options(const struct command_line *line, const struct argp_option *const *list,
                          unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        bool value = list[i]->arg != NULL && (list[i]->flags & OPTION_ARG_OPTIONAL) == 0;
        char *name = need_format("--%s", list[i]->name);
        complete_offer(line, "", name, value ? "=" : "");
        free(name);
    }
}

/* Values of an option; `lead` is what stands before them in the same word. */
static void offer_values(const struct command_line *line, const char *lead, const struct argp_option *option,
                         void (*offer)(const struct command_line *line, const char *lead))
{
    if (option->arg != NULL && strchr(option->arg, '|') != NULL)
        offer_list(line, lead, option->arg);
    else if (offer != NULL)
        offer(line, lead);
}

/* The option that a word such as "--name=value" begins with, or NULL. */
static const struct argp_option *option_before_value(const char *word, const struct argp_option *const *list,
                                                     unsigned count)
{
    size_t size = strcspn(word, "=");

    for (unsigned i = 0; i < count; i++)
        if (word[size] == '=' && strlen(list[i]->name) + 2 == size && strncmp(word, "--", 2) == 0 &&
            strncmp(word + 2, list[i]->name, size - 2) == 0)
            return list[i];
    return NULL;
}

void complete(const struct argp *argp, int argc, char **argv,
              void (*offer)(const struct command_line *line, const char *lead))
{
    const struct argp_option *list[COMMON_OPTIONS_MOST], *option = NULL;
    unsigned count = common_options_list(argp, list);

    if (argc < 2 || strcmp(argv[1], "--complete") != 0)
        return;
    int first = argc > 2 && strcmp(argv[2], "--") == 0 ? 3 : 2;
    struct command_line line = {.typed = argc > first ? argv[argc - 1] : "",
                                .words = need_memory(NULL, (size_t)argc, sizeof *line.words)};
    for (int i = first; i + 1 < argc; i++) {
        option = argv[i][0] == '-' ? common_option_waits(argv[i], list, count) : NULL;
        if (option != NULL && i + 2 < argc) {
            option = NULL;
            i++;
        } else if (argv[i][0] != '-') {
            line.words[line.count++] = argv[i];
        }
    }
    const char *lead = "";
    if (option == NULL && (option = option_before_value(line.typed, list, count)) != NULL) {
        size_t size = strlen(option->name) + 3;
        lead = need_format("%.*s", (int)size, line.typed);
        line.typed += size;
    }
    if (option != NULL) {
        line.option = option->name;
        offer_values(&line, lead, option, offer);
    } else if (line.typed[0] == '-') {
        offer_options(&line, list, count);
    } else if (offer != NULL) {
        offer(&line, "");
    }
    exit(output_finish(EXIT_YES));
}
