/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info env and messages under values that nobody should set: origin, problem, suggestion, nothing raw.
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* No control character but line ends. */
static bool is_printable(const char *text)
{
    for (; *text != '\0'; text++)
        if (((unsigned char)*text < 0x20 && *text != '\n') || *text == 0x7f)
            return false;
    return true;
}

static const char *member(const struct result *result, const char *name, const char *key)
{
    size_t index;
    char path[64];
    if (!has_item(result, "variables", "name", name, &index))
        return "(no such variable)";
    snprintf(path, sizeof path, "variables.%zu.%s", index, key);
    const char *text = json_string_value(at(result, path));
    return text != NULL ? text : "(null)";
}

static bool is(const struct result *result, const char *name, const char *key, const char *text)
{
    return strcmp(member(result, name, key), text) == 0;
}

static void test_origins(void)
{
    struct result result;
    run(&result, "ATTN_STRICT=1 ATTN_THREADS=many ATTN_DISABLE= ATTN_CPU_SECRET=1 ATTN_BACKED=cpu",
        places.attn_info, "env --json");
    check(result.code == 0 && result.json != NULL, &result, "env is one JSON object");
    check(is(&result, "ATTN_STRICT", "origin", "environment") && is(&result, "ATTN_STRICT", "value", "1"),
          &result, "a given value");
    check(is(&result, "ATTN_THREADS", "origin", "default") && is(&result, "ATTN_THREADS", "value", "0") &&
              strstr(member(&result, "ATTN_THREADS", "problem"), "\"many\"") != NULL,
          &result, "a bad value: the default holds, and the problem names it");
    check(is(&result, "ATTN_DISABLE", "origin", "default") &&
              is(&result, "ATTN_DISABLE", "problem", "(null)"),
          &result, "an empty value is none");
    check(is(&result, "ATTN_CPU_SECRET", "type", "plugin") &&
              strstr(member(&result, "ATTN_CPU_SECRET", "help"), "plugin cpu") != NULL,
          &result, "a variable of a plugin");
    check(is(&result, "ATTN_BACKED", "type", "unknown") &&
              strstr(member(&result, "ATTN_BACKED", "help"), "did you mean ATTN_BACKEND?") != NULL,
          &result, "an unknown name has the nearest one");
    check(occurrences(result.err, "ATTN_BACKED:") == 1 && occurrences(result.err, "ATTN_THREADS") == 1 &&
              occurrences(result.err, "SECRET") == 0,
          &result, "warnings are said once, and not of a plugin's variable");
    result_finish(&result);
}

static void test_raw_bytes(void)
{
    static const char variables[] = "ATTN_FOO=\033]0;x\007 ATTN_B\033[31mAR=1 ATTN_BACKEND=\033[2Jcpu "
                                    "ATTN_THREADS=\x9b"
                                    "1 ATTN_DISABLE=\xff ATTN_PLUGIN_PATH_ADD=/nowhere/\xc2\x9b";
    static const char *const commands[] = {
        "env", "path", "list", "explain heads=8 head_dim=64", "why /nowhere/\033[31m.so", "exists \033[1m"};
    struct result result;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        run(&result, variables, places.attn_info, commands[i]);
        check(result.code < 128 && is_printable(result.out) && is_printable(result.err), &result,
              "%.8s prints no control character", commands[i]);
        result_finish(&result);
    }
    run(&result, variables, places.attn_info, "env");
    check(strstr(result.out, "ATTN_FOO = \\x1b]0;x\\x07") != NULL, &result, "they are written as escapes");
    result_finish(&result);
    run(&result, variables, places.attn_info, "env --json");
    check(result.json != NULL && is(&result, "ATTN_FOO", "value", "\033]0;x\007"), &result,
          "JSON has the bytes themselves, by its own rules");
    result_finish(&result);
}

/* Longer than a path, and than a line of the log. */
static void test_length(void)
{
    struct result result;
    char *variables = malloc(120000);
    if (variables == NULL)
        exit(2);
    strcpy(variables, "ATTN_PLUGIN_PATH_ADD=");
    memset(variables + strlen("ATTN_PLUGIN_PATH_ADD="), 'x', 100000);
    strcpy(variables + strlen("ATTN_PLUGIN_PATH_ADD=") + 100000, " ATTN_LONG=");
    size_t used = strlen(variables);
    memset(variables + used, 'y', 5000);
    variables[used + 5000] = '\0';
    run(&result, variables, places.attn_info, "env --json");
    check(result.code == 0 && strlen(result.err) < 2000 &&
              strstr(member(&result, "ATTN_PLUGIN_PATH_ADD", "problem"), "4096") != NULL,
          &result, "a value of 100,000 bytes is refused in a short line");
    check(strlen(member(&result, "ATTN_LONG", "value")) == 5000, &result, "an unknown one is kept as it is");
    result_finish(&result);
    free(variables);
}

int main(int argc, char **argv)
{
    cli_init(argc, argv);
    test_origins();
    test_raw_bytes();
    test_length();
    return cli_finish();
}
