/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The library prints nothing but its log: not around a callback, not with silence, and a warning once. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "attn/attn.h"
#include "malformed.h"

static struct malformed malformed;
static int saved[2];
static char said[65536];
static unsigned lines;

static void hear(void *user, uint32_t level, const char *subsystem, const char *text)
{
    size_t used = strlen(said);

    cr_assert_eq(user, &lines);
    cr_assert(level >= ATTN_LOG_ERROR && level <= ATTN_LOG_DEBUG && subsystem[0] != '\0' && text[0] != '\0');
    snprintf(said + used, sizeof said - used, "%u %s: %s\n", level, subsystem, text);
    lines++;
}

/* Output and errors of the process go to files until `release`. */
static void capture(void)
{
    static const char *const names[] = {"stdout", "stderr"};

    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        saved[i] = dup(STDOUT_FILENO + i);
        int fd = open(malformed_path(&malformed, names[i]),
                      O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
        cr_assert(saved[i] >= 0 && fd >= 0 && dup2(fd, STDOUT_FILENO + i) >= 0);
        close(fd);
    }
}

static void release(char *out, char *err, size_t size)
{
    char *const texts[] = {out, err};
    static const char *const names[] = {"stdout", "stderr"};

    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        dup2(saved[i], STDOUT_FILENO + i);
        close(saved[i]);
        FILE *file = fopen(malformed_path(&malformed, names[i]), "re");
        cr_assert_not_null(file);
        texts[i][fread(texts[i], 1, size - 1, file)] = '\0';
        fclose(file);
    }
}

/* A plugin of nearly every fault, and variables that are wrong. */
static void prepare(void)
{
    static const char *const kinds[] = {
        "no-note",  "bad-note",     "too-new",       "no-entry",  "entry-fails", "short-table", "no-run",
        "mismatch", "needs-symbol", "needs-library", "no-driver", "many",        "good",        "second"};
    char name[64];

    malformed_create(&malformed);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        snprintf(name, sizeof name, "libattn-%02zu-%s.so", i, kinds[i]);
        malformed_add(&malformed, kinds[i], name);
    }
    malformed_write(&malformed, "libattn-text.so", "text", 4);
    setenv("ATTN_BAKEND", "cpu", 1);
    setenv("ATTN_STRICT", "perhaps", 1);
    setenv("ATTN_BACKEND", "nosuch,auto", 1);
    said[0] = '\0';
    lines = 0;
}

/* Nearly everything that a context can be asked, three times. */
static void use(const struct attn_context_options *options)
{
    struct attn_context *context;
    struct attn_problem problem;

    cr_assert_eq(attn_context_create(options, &context, NULL), ATTN_OK);
    cr_assert_eq(attn_problem_parse("heads=8 head_dim=64 q=bf16", &problem, NULL), ATTN_OK);
    for (int i = 0; i < 3; i++) {
        struct attn_report *report = NULL;
        struct attn_decision *decision = NULL;
        (void)attn_select(context, &problem, 1, NULL, &decision, NULL);
        attn_decision_destroy(decision);
        cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
        cr_assert_eq(attn_context_get_report(context, &report, NULL), ATTN_OK);
        attn_report_destroy(report);
        cr_assert_eq(attn_context_rescan(context, NULL), ATTN_OK);
    }
    attn_context_destroy(context);
}

static void options_init(struct attn_context_options *options)
{
    static char path[64];

    ATTN_INIT(options);
    snprintf(path, sizeof path, "%s", malformed.path);
    options->plugin_path = path;
    options->log_user = &lines;
}

Test(silence, a_null_callback_silences_everything)
{
    struct attn_context_options options;
    char out[4096], err[4096];

    prepare();
    setenv("ATTN_LOG", "debug", 1);
    setenv("ATTN_LOG_FILE", malformed_path(&malformed, "log"), 1);
    options_init(&options);
    options.given = ATTN_GIVEN_LOG;
    capture();
    use(&options);
    release(out, err, sizeof out);
    cr_assert_str_eq(out, "");
    cr_assert_str_eq(err, "");
    cr_assert_eq(access(malformed_path(&malformed, "log"), F_OK), -1, "no file is made for silence");
    malformed_remove(&malformed);
}

Test(silence, a_callback_gets_everything)
{
    struct attn_context_options options;
    char out[4096], err[4096];

    prepare();
    setenv("ATTN_LOG", "debug", 1);
    options_init(&options);
    options.log = hear;
    capture();
    use(&options);
    release(out, err, sizeof out);
    cr_assert_str_eq(out, "");
    cr_assert_str_eq(err, "");
    cr_assert_gt(lines, 20);
    malformed_remove(&malformed);
}

/* Whether a line stands in a text twice. */
static const char *repeated(const char *text)
{
    static char line[2048];

    for (; *text != '\0'; text += strcspn(text, "\n") + 1) {
        size_t size = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s\n", (int)size, text);
        if (strstr(text + size, line) != NULL)
            return line;
        if (text[size] == '\0')
            break;
    }
    return NULL;
}

Test(silence, warnings_are_said_once)
{
    static const char *const once[] = {
        "ATTN_BAKEND",  "ATTN_STRICT=\"perhaps\"", "libattn-text.so: NOT_ELF", "NO_NOTE",
        "ENTRY_FAILED", "MISSING_LIBRARY"};
    struct attn_context_options options;

    prepare();
    setenv("ATTN_LOG", "warn", 1);
    options_init(&options);
    options.log = hear;
    use(&options);
    const char *twice = repeated(said);
    cr_assert_null(twice, "said twice: %s", twice);
    for (size_t i = 0; i < sizeof once / sizeof once[0]; i++)
        cr_assert_not_null(strstr(said, once[i]), "%s in\n%s", once[i], said);
    malformed_remove(&malformed);
}

Test(silence, without_a_callback_only_errors_is_written_to)
{
    struct attn_context_options options;
    char out[4096], err[65536];

    prepare();
    options_init(&options);
    capture();
    use(&options);
    release(out, err, sizeof out);
    cr_assert_str_eq(out, "");
    cr_assert_neq(err[0], '\0');
    for (const char *line = err; *line != '\0'; line = strchr(line, '\n') + 1)
        cr_assert_eq(strncmp(line + strcspn(line, " "), " libattn ", 9), 0, "%s", line);
    malformed_remove(&malformed);
}

Test(silence, levels_by_subsystem_hold_for_the_whole_library)
{
    struct attn_context_options options;

    prepare();
    setenv("ATTN_LOG", "error,debug:env", 1);
    options_init(&options);
    options.log = hear;
    use(&options);
    cr_assert_not_null(strstr(said, " env: "), "%s", said);
    for (const char *line = said; *line != '\0'; line = strchr(line, '\n') + 1)
        cr_assert(strncmp(line, "1 ", 2) == 0 || strncmp(line + 1, " env: ", 6) == 0, "%s", line);
    malformed_remove(&malformed);
}
