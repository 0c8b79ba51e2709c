/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info on directories and files that are not as they should be, and on outputs that fail. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

static void run_in(struct result *result, const char *directory, const char *arguments)
{
    char variables[256];

    snprintf(variables, sizeof variables, "ATTN_PLUGIN_PATH=%s", directory);
    run(result, variables, places.attn_info, arguments);
}

static void test_missing_directory(void)
{
    struct result result;

    run_in(&result, "/nonexistent/attn", "path --json");
    check(result.code == 0 && is_text(&result, "directories.0.path", "/nonexistent/attn") &&
              json_is_false(at(&result, "directories.0.trusted")) &&
              json_is_string(at(&result, "directories.0.reason")),
          &result, "path tells why a directory that is not there is not used");
    check(is_text(&result, "directories.0.origin", "ATTN_PLUGIN_PATH"), &result,
          "path tells where a directory comes from");
    result_finish(&result);
    run_in(&result, "/nonexistent/attn", "path");
    check(result.code == 0 && strstr(result.out, "from:         ATTN_PLUGIN_PATH\n") != NULL &&
              strstr(result.out, "trust:        not used\n") != NULL,
          &result, "path as text");
    result_finish(&result);
    run_in(&result, "/nonexistent/attn", "list --json");
    check(result.code == 3 && result.json != NULL && json_array_size(at(&result, "backends")) == 0, &result,
          "list without any plugin exits 3 and is still JSON");
    result_finish(&result);
    run_in(&result, "/nonexistent/attn", "explain heads=8 head_dim=64");
    check(result.code == 1, &result, "explain without any plugin exits 1");
    result_finish(&result);
}

static void test_text_file(void)
{
    const char *directory = directory_make();
    struct result result;
    char arguments[256];

    file_write(directory, "libattn-x.so", "this is no shared object\n");
    run_in(&result, directory, "list --json");
    check(result.code == 3 && is_text(&result, "files.0.reason", "NOT_ELF") &&
              json_is_string(at(&result, "files.0.advice")),
          &result, "a text file is refused as NOT_ELF, and nothing is usable");
    result_finish(&result);
    run_in(&result, directory, "list");
    check(result.code == 3 && strstr(result.out, "NOT_ELF") != NULL &&
              strstr(result.out, "libattn-x.so (refused)") != NULL &&
              strstr(result.out, "advice: ") != NULL && fits_terminal(result.out),
          &result, "the list as text tells file, reason and advice");
    result_finish(&result);
    snprintf(arguments, sizeof arguments, "why %s/libattn-x.so --json", directory);
    run(&result, "", places.attn_info, arguments);
    check(result.code == 1 && is_text(&result, "files.0.reason", "NOT_ELF"), &result,
          "why FILE exits 1 for it");
    result_finish(&result);
    file_copy(directory, "libattn-noop.so", places.noop);
    run_in(&result, directory, "list --json");
    check(result.code == 0 && has_item(&result, "backends", "name", "noop/flash-attn", NULL) &&
              has_item(&result, "files", "reason", "NOT_ELF", NULL),
          &result, "a bad file does not keep a good one from being used");
    result_finish(&result);
}

static void test_untrusted_directory(void)
{
    const char *directory = directory_make();
    struct result result;

    file_copy(directory, "libattn-noop.so", places.noop);
    if (chmod(directory, 0777) != 0)
        exit(2);
    run_in(&result, directory, "path --json");
    check(is_text(&result, "directories.0.reason", "UNTRUSTED_MODE") &&
              json_is_false(at(&result, "directories.0.trusted")),
          &result, "a directory that all may write to is not trusted");
    result_finish(&result);
    run_in(&result, directory, "exists noop");
    check(result.code == 1, &result, "and its plugins are not used");
    result_finish(&result);
    if (chmod(directory, 0700) != 0)
        exit(2);
    run_in(&result, directory, "exists noop");
    check(result.code == 0, &result, "until that is mended");
    result_finish(&result);
}

static void test_why(void)
{
    struct result result;
    char arguments[1024];

    snprintf(arguments, sizeof arguments, "--json --stable why %s", places.noop);
    run(&result, "", places.attn_info, arguments);
    check(result.code == 0 && is_text(&result, "files.0.stage", "ready") &&
              is_text(&result, "files.0.note.name", "noop") &&
              has_item(&result, "backends", "name", "noop/flash-attn", NULL),
          &result, "why tells stage, note and backends of a good file");
    result_finish(&result);
    snprintf(arguments, sizeof arguments, "why %s", places.noop);
    run(&result, "", places.attn_info, arguments);
    check(result.code == 0 && strstr(result.out, "usable") != NULL, &result, "why as text");
    result_finish(&result);
    run(&result, "", places.attn_info, "why /nonexistent/libattn-x.so");
    check(result.code == 1, &result, "why of a file that is not there exits 1");
    result_finish(&result);
}

static void test_clean_output(void)
{
    struct result result;

    run_in(&result, places.noisy, "list --json");
    check(result.code == 0 && result.out[0] == '{' && result.json != NULL, &result,
          "what a plugin prints does not get into the output");
    check(is_text(&result, "files.0.stage", "ready") && is_text(&result, "files.0.reason", "SIDE_EFFECTS"),
          &result, "a plugin that prints is told of side effects, and is usable");
    check(strstr(result.err, "noise through stdio") != NULL && strstr(result.err, "raw noise") != NULL,
          &result, "it goes to standard error");
    result_finish(&result);
}

/* The tools write through a shell here, for outputs that a test cannot hold. */
static void test_failing_output(void)
{
    struct result result;
    const char *script = directory_make();
    char path[128], *body;

    if (asprintf(&body,
                 "\"%s\" list > /dev/full; echo $?; \"%s\" list >&-; echo $?; \"%s\" --help > /dev/full; "
                 "echo $?\n",
                 places.attn_info, places.attn_info, places.attn_info) < 0)
        exit(2);
    file_write(script, "script", body);
    free(body);
    snprintf(path, sizeof path, "%s/script", script);
    run(&result, "", "/bin/sh", path);
    check(strcmp(result.out, "1\n1\n1\n") == 0 && strstr(result.err, "standard output") != NULL, &result,
          "output that cannot be written is a failure");
    result_finish(&result);
}

int main(int argc, char **argv)
{
    cli_init(argc, argv);
    test_missing_directory();
    test_text_file();
    test_untrusted_directory();
    test_why();
    test_clean_output();
    test_failing_output();
    return cli_finish();
}
