/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Every hostile plugin is found out by attn-check, by the check that is meant for it, and by no unrelated
 * one.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "expected.h"

static unsigned passed, failed;

static void tell(bool good, const char *name, const char *why)
{
    if (good)
        passed++;
    else
        failed++;
    printf("%sok %u - %s\n", good ? "" : "not ", passed + failed, name);
    if (!good)
        printf("# %s\n", why);
}

/* "not ok 3 - side-effects: umask seed 0": the name of the check. */
static void take_name(const char *line, char *name, size_t size)
{
    const char *begin = strstr(line, ": ");
    const char *end = strstr(line, " seed ");

    snprintf(name, size, "%.*s", begin != NULL && end > begin ? (int)(end - begin - 2) : 0,
             begin != NULL ? begin + 2 : "");
}

/* Whether a list "|one|two|" holds the name. */
static bool is_listed(const char *list, const char *name)
{
    char word[128 + 2];

    snprintf(word, sizeof word, "|%s|", name);
    return list != NULL && strstr(list, word) != NULL;
}

/* What a line says about being skipped, or NULL. */
static const char *find_skip(char *line)
{
    char *skip = strstr(line, " # SKIP ");

    line[strcspn(line, "\n")] = '\0';
    return skip != NULL ? skip + strlen(" # SKIP ") : NULL;
}

/* Reads the report; `why` says what is wrong with it, or that the very check cannot work here. */
static bool judge(FILE *report, const struct expected *expected, bool *out_skipped, char *why, size_t size)
{
    char line[2048], name[128] = "", text[2048] = "";
    bool found = expected->check == NULL, stray = false;

    snprintf(why, size, "no failure '%s'", expected->check != NULL ? expected->check : "");
    while (fgets(line, sizeof line, report) != NULL) {
        const char *skip = find_skip(line);
        take_name(line, name, sizeof name);
        if (skip != NULL && expected->check != NULL && strcmp(name, expected->check) == 0) {
            *out_skipped = true;
            snprintf(why, size, "%s", skip);
        }
        if (strncmp(line, "not ok ", 7) != 0)
            continue;
        if (fgets(text, sizeof text, report) == NULL)
            text[0] = '\0';
        if (expected->check != NULL && strcmp(name, expected->check) == 0) {
            found = strstr(text, expected->text) != NULL;
            if (!found)
                snprintf(why, size, "'%s' fails without \"%s\": %.300s", name, expected->text, text);
        } else if (!is_listed(expected->may, name)) {
            stray = true;
            snprintf(why, size, "'%s' fails too: %.300s", name, text);
        }
    }
    return found && !stray;
}

static void try_plugin(const char *check, const char *directory, const struct expected *expected)
{
    const char *wrapper = getenv("MESON_EXE_WRAPPER");
    char command[8192], why[1024];

    snprintf(command, sizeof command, "%s '%s' '%s/libattn-%s.so' --kind %s 2>/dev/null",
             wrapper != NULL ? wrapper : "", check, directory, expected->plugin, expected->kind);
    FILE *report = popen(command, "r");
    if (report == NULL) {
        tell(false, expected->plugin, "attn-check cannot be started");
        return;
    }
    bool skipped = false;
    bool good = judge(report, expected, &skipped, why, sizeof why);
    int status = pclose(report);
    if (skipped) {
        printf("ok %u - %s # SKIP %s\n", ++passed + failed, expected->plugin, why);
        return;
    }
    int wanted = expected->check != NULL ? 1 : 0;
    if (good && (!WIFEXITED(status) || WEXITSTATUS(status) != wanted)) {
        good = false;
        snprintf(why, sizeof why, "attn-check ends with status %d instead of %d",
                 WIFEXITED(status) ? WEXITSTATUS(status) : -1, wanted);
    }
    tell(good, expected->plugin, why);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "Usage: test-hostile ATTN-CHECK DIRECTORY\n");
        return 2;
    }
    for (size_t i = 0; i < expected_count; i++)
        try_plugin(argv[1], argv[2], &expected_failures[i]);
    printf("1..%u\n", passed + failed);
    return failed == 0 ? 0 : 1;
}
