/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info --complete: how the last word of a command line may go on, one candidate a line. */
#include <stdlib.h>
#include <string.h>

#include "info.h"
#include "key-values.h"

/* Prints `lead` and `text` in one if they begin with what was typed. */
static void offer(const char *typed, const char *lead, const char *text, const char *end)
{
    char *candidate = need_format("%s%s", lead, text);

    if (strncmp(candidate, typed, strlen(typed)) == 0)
        fprintf(output_stream(), "%s%s\n", candidate, end);
    free(candidate);
}

static void offer_options(const char *typed)
{
    const struct argp_option *list[COMMON_OPTIONS_MOST];
    unsigned count = common_options_list(&info_argp, list);

    for (unsigned i = 0; i < count; i++)
        offer(typed, "--", list[i]->name, "");
}

/* Whether one of the words before the last one gives the key. */
static bool is_given(const struct info *info, const char *key)
{
    size_t size = strlen(key);

    for (unsigned i = 0; i + 1 < info->arg_count; i++)
        if (strncmp(info->args[i], key, size) == 0 && info->args[i][size] == '=')
            return true;
    return false;
}

static void offer_problem(const struct info *info, const char *typed)
{
    const char *key, *sign = strchr(typed, '=');

    if (sign == NULL) {
        for (uint32_t i = 0; (key = attn_problem_key(i, NULL, NULL)) != NULL; i++)
            if (!is_given(info, key))
                offer(typed, "", key, "=");
        return;
    }
    struct words values = {0};
    char *name = need_format("%.*s", (int)(sign - typed), typed);
    char *lead = need_format("%s=", name);
    key_list(name, &values);
    for (unsigned i = 0; i < values.count; i++)
        offer(typed, lead, values.items[i], "");
    words_finish(&values);
    free(lead);
    free(name);
}

/* Names from the notes: nothing is loaded for a completion. */
static void offer_backends(const struct info *info, const char *typed)
{
    const struct attn_file_record *file;
    struct attn_report *report;

    if (attn_context_get_report(info->context, &report, NULL) != ATTN_OK)
        return;
    for (uint32_t i = 0; (file = attn_report_get_file(report, i)) != NULL; i++) {
        char *names = need_copy(file->backends), *rest = names, *name;
        if (file->reason == 0 && text_or_null(file->name) != NULL)
            offer(typed, "", file->name, "");
        while (file->reason == 0 && (name = strsep(&rest, ",")) != NULL)
            offer(typed, "", name, "");
        free(names);
    }
    attn_report_destroy(report);
}

/* The words that are no options, but for the last one, which is being typed. */
static unsigned plain_words(const struct info *info, const char **words)
{
    unsigned count = 0;

    if (info->command != NULL && (info->command[0] != '-' || info->arg_count == 0))
        words[count++] = info->command;
    for (unsigned i = 0; i < info->arg_count; i++)
        if (info->args[i][0] != '-' || i + 1 == info->arg_count)
            words[count++] = info->args[i];
    return count;
}

int complete_command(const struct info *info)
{
    const char **words = need_memory(NULL, (size_t)info->arg_count + 1, sizeof *words);
    unsigned count = plain_words(info, words);
    const char *typed = count > 0 ? words[count - 1] : "";
    const char *command = count > 1 ? words[0] : "";
    const struct attn_variable_record *variable;

    if (typed[0] == '-')
        offer_options(typed);
    else if (count <= 1 || (count == 2 && strcmp(command, "help") == 0))
        for (const struct command *known = commands; known->name != NULL; known++)
            offer(typed, "", known->name, "");
    else if (count == 2 && strcmp(command, "env") == 0)
        for (uint32_t i = 0; (variable = attn_context_get_variable(info->context, i)) != NULL; i++)
            offer(typed, "", variable->name, "");
    else if (strcmp(command, "explain") == 0)
        offer_problem(info, typed);
    else if (count == 2 && (strcmp(command, "caps") == 0 || strcmp(command, "exists") == 0))
        offer_backends(info, typed);
    free(words);
    return EXIT_YES;
}
