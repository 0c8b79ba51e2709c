/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-check as a kernel author sees it: usage, files that are none, filters, reports, and planted faults. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const char *attn_check, *device_memory;

static void check_file(struct result *result, const char *file, const char *arguments)
{
    char *text = NULL;

    if (asprintf(&text, "%s %s", file, arguments) < 0)
        exit(2);
    run(result, "", attn_check, text);
    free(text);
}

static const char *cpu_file(void)
{
    static char path[1024];

    snprintf(path, sizeof path, "%s/libattn-cpu.so", places.plugins);
    return path;
}

static void test_usage(void)
{
    static const struct {
        const char *arguments, *part;
    } wrong[] = {{"", "a plugin file is wanted"},
                 {"a.so b.so", "one plugin file"},
                 {"a.so --seed=x", "not a number"},
                 {"a.so --kind=speed", "no kind speed; there are "},
                 {"a.so --filter=head=3", "did you mean 'heads'"},
                 {"a.so --filter=heads=3", "head_dim"},
                 {"a.so --nothing", "--nothing"}};
    struct result result;

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        run(&result, "", attn_check, wrong[i].arguments);
        check(result.code == 2 && result.out[0] == '\0' && strstr(result.err, wrong[i].part) != NULL, &result,
              "'%s' is wrong usage and says why", wrong[i].arguments);
        result_finish(&result);
    }
}

static void test_not_loadable(void)
{
    const char *directory = directory_make();
    struct result result;
    char path[1024];

    run(&result, "", attn_check, "/nonexistent/plugin.so");
    check(result.code == 3 && result.out[0] == '\0', &result, "a file that is not there ends with 3");
    result_finish(&result);
    file_write(directory, "plugin.so", "this is no shared object\n");
    snprintf(path, sizeof path, "%s/plugin.so", directory);
    run(&result, "", attn_check, path);
    check(result.code == 3 && strstr(result.err, "NOT_ELF") != NULL &&
              strstr(result.err, "advice: ") != NULL && strstr(result.err, path) != NULL &&
              result.out[0] == '\0',
          &result, "a file that is no plugin ends with 3, the library's reason and advice");
    result_finish(&result);
    check_file(&result, cpu_file(), "--backend=cpu/nothing");
    check(result.code == 3 && strstr(result.err, "cpu/nothing") != NULL, &result,
          "a backend that the file does not offer ends with 3");
    result_finish(&result);
}

/* Only the file that was named is judged, whatever it is called. */
static void test_any_name(void)
{
    const char *directory = directory_make();
    struct result result;
    char path[1024];

    file_copy(directory, "kernels.v2", cpu_file());
    snprintf(path, sizeof path, "%s/kernels.v2", directory);
    check_file(&result, path, "--kind=query --cases=2");
    check(result.code == 0 && strstr(result.out, "cpu/flash-attn all query: ") != NULL &&
              strstr(result.out, "cpu/flash-attn none query: ") != NULL &&
              strstr(result.out, " noop/") == NULL,
          &result, "a file of any name is judged, at two levels, and nothing else");
    const char *last = strstr(result.out, " passed, 0 failed, 0 skipped\n");
    check(last != NULL && last[strlen(" passed, 0 failed, 0 skipped\n")] == '\0', &result,
          "the closing line is the last one");
    result_finish(&result);
}

static void test_filters(void)
{
    struct result result;

    run(&result, "", attn_check, "--help");
    check(result.code == 0 && strstr(result.out, "--filter") != NULL && fits_terminal(result.out), &result,
          "--help fits a terminal");
    result_finish(&result);
    check_file(&result, cpu_file(), "--kind=attention --level=none --cases=60 --filter=*kv_source=new*");
    check(result.code == 0 && strstr(result.out, "kv_source=new") != NULL &&
              occurrences(result.out, "kv_source=new") == occurrences(result.out, "ok "),
          &result, "a pattern picks the cases whose name fits");
    result_finish(&result);
    check_file(&result, cpu_file(), "--kind=attention --filter=heads=3,*");
    check(result.code == 1 && strstr(result.err, "no case was judged") != NULL, &result,
          "a pattern that nothing fits is no success");
    result_finish(&result);
}

static void test_json(void)
{
    struct result result, again;

    check_file(&result, cpu_file(),
               "--json --stable --backend=cpu/flash-attn --level=none --kind=merge --cases=9");
    check_file(&again, cpu_file(),
               "--json --stable --backend=cpu/flash-attn --level=none --kind=merge --cases=9");
    check(result.code == 0 && json_is_integer(at(&result, "schema_version")) &&
              is_text(&result, "command", "check") && json_is_true(at(&result, "finished")) &&
              json_integer_value(at(&result, "summary.passed")) > 9 &&
              json_integer_value(at(&result, "summary.failed")) == 0 &&
              has_item(&result, "kinds", "kind", "merge", NULL) && json_is_null(at(&result, "pairs")) &&
              json_array_size(at(&result, "failures")) == 0 && at(&result, "seconds") == NULL,
          &result, "--json is one object with counts");
    check(strcmp(result.out, again.out) == 0, &result, "with --stable two runs say the same");
    result_finish(&result);
    result_finish(&again);
}

/* What a command line prints, run by a shell as a reader would run it. */
static int by_shell(const char *command, char *out, size_t size)
{
    FILE *pipe = popen(command, "r");
    size_t used = pipe != NULL ? fread(out, 1, size - 1, pipe) : 0;

    out[used] = '\0';
    return pipe != NULL ? pclose(pipe) : -1;
}

/* Failures of a plugin with a planted fault say how to see them again, and the line does that. */
static void test_again(void)
{
    static const char *const kinds[] = {"attention", "det"};
    static char out[1 << 16];
    struct result result;
    char path[1024], arguments[128], *closing;

    snprintf(path, sizeof path, "%s/libattn-device-memory-beyond.so", device_memory);
    for (size_t i = 0; i < 2; i++) {
        snprintf(arguments, sizeof arguments, "--json --kind=%s --cases=4", kinds[i]);
        check_file(&result, path, arguments);
        const char *command = json_string_value(at(&result, "failures.0.command"));
        const char *problem = json_string_value(at(&result, "failures.0.problem"));
        check(result.code == 1 && command != NULL && problem != NULL &&
                  json_is_integer(at(&result, "failures.0.seed")) &&
                  json_is_string(at(&result, "failures.0.text")),
              &result, "%s: a failure has problem, seed, text and command", kinds[i]);
        int status = by_shell(command != NULL ? command : "false", out, sizeof out);
        closing = strstr(out, "\n0 passed, 1 failed, 0 skipped\n");
        check(status > 0 && strncmp(out, "not ok 1 - ", 11) == 0 && strstr(out, problem) != NULL &&
                  closing != NULL,
              &result, "%s: its command fails in the same case alone", kinds[i]);
        result_finish(&result);
    }
}

/* Faults of memory on a device, and of the device itself. */
static void test_device_memory(void)
{
    static const struct {
        const char *file, *part;
    } planted[] = {{"device-memory-beyond", "wrote outside of out"},
                   {"device-memory-input", "wrote outside of q"},
                   {"device-memory-copy", "not ok "},
                   {"device-memory-stream", "not ok "}};
    struct result result;
    char path[1024];

    for (size_t i = 0; i < sizeof planted / sizeof planted[0]; i++) {
        snprintf(path, sizeof path, "%s/libattn-%s.so", device_memory, planted[i].file);
        check_file(&result, path, "--kind=attention --cases=10");
        check(result.code == 1 && strstr(result.out, planted[i].part) != NULL, &result, "%s is found",
              planted[i].file);
        check(strstr(result.out, "# failed:\n") != NULL, &result, "%s: the failures are repeated",
              planted[i].file);
        result_finish(&result);
    }
    check_file(&result, cpu_file(), "--device-memory --level=none --kind=attention --cases=20");
    check(result.code == 0 && strstr(result.out, " 0 failed, ") != NULL, &result,
          "the CPU plugin passes through its memory table too");
    result_finish(&result);
}

static void test_noisy(void)
{
    struct result result;
    char path[1024];

    snprintf(path, sizeof path, "%s/libattn-noisy.so", places.noisy);
    check_file(&result, path, "--kind=query --cases=2 --json");
    check(result.json != NULL && strstr(result.out, "noise") == NULL, &result,
          "what a plugin prints does not reach standard output");
    result_finish(&result);
}

int main(int argc, char **argv)
{
    attn_check = getenv("CLI_ATTN_CHECK");
    device_memory = getenv("CLI_DEVICE_MEMORY");
    cli_init(argc, argv);
    if (attn_check == NULL || device_memory == NULL)
        return 2;
    test_usage();
    test_not_loadable();
    test_any_name();
    test_filters();
    test_json();
    test_again();
    test_device_memory();
    test_noisy();
    return cli_finish();
}
