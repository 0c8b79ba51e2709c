/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info: list, devices, caps, exists, env, and the common options. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static void test_list(void)
{
    struct result text, json, before;

    run(&text, "", places.attn_info, "");
    check(text.code == 0, &text, "without a command it lists, and succeeds");
    check(strncmp(text.out, "  BACKEND", 9) == 0 && strstr(text.out, "\n  cpu/flash-attn ") != NULL, &text,
          "the table names the CPU backend");
    check(fits_terminal(text.out), &text, "the list fits 80 columns");
    run(&json, "", places.attn_info, "list --json --stable");
    check(json.code == 0 && json.json != NULL, &json, "list --json is JSON");
    check(json_integer_value(at(&json, "schema_version")) == 1 && is_text(&json, "command", "list") &&
              json_is_string(at(&json, "libattn")),
          &json, "the object has schema_version, libattn and command");
    check(has_item(&json, "backends", "name", "cpu/flash-attn", NULL) &&
              is_text(&json, "backends.0.vendor", "cpu") && json_is_string(at(&json, "backends.0.flavour")) &&
              is_text(&json, "backends.0.state", "ready") && is_text(&json, "backends.0.device", "cpu:0") &&
              json_is_string(at(&json, "backends.0.file")),
          &json, "backends have name, vendor, flavour, state, device and file");
    check(is_text(&json, "files.0.stage", "ready") && json_is_null(at(&json, "files.0.reason")) &&
              json_is_null(at(&json, "files.0.advice")) && json_is_string(at(&json, "files.0.path")),
          &json, "files have path, stage, reason and advice");
    check(at(&json, "files.0.microseconds") == NULL, &json, "--stable leaves out times");
    run(&before, "", places.attn_info, "--stable --json list");
    check(before.code == 0 && strcmp(before.out, json.out) == 0, &before,
          "options may stand before the command");
    result_finish(&text);
    result_finish(&json);
    result_finish(&before);
    run(&json, "", places.attn_info, "--json");
    check(json_is_integer(at(&json, "files.0.microseconds")), &json, "without --stable times are there");
    result_finish(&json);
}

static void test_devices(void)
{
    struct result result;

    run(&result, "", places.attn_info, "devices --json");
    check(result.code == 0 && is_text(&result, "devices.0.device", "cpu:0") &&
              is_text(&result, "devices.0.type", "cpu") &&
              has_item(&result, "devices.0.backends", NULL, "cpu/flash-attn", NULL),
          &result, "devices names the CPU and its backends");
    const char *arch = json_string_value(at(&result, "devices.0.arch"));
    check(arch != NULL && (strncmp(arch, "x86-64", 6) == 0 || strncmp(arch, "aarch64", 7) == 0 ||
                           strncmp(arch, "generic", 7) == 0),
          &result, "and its architecture");
    const char *name = json_string_value(at(&result, "devices.0.name"));
    check(name != NULL && name[0] != 0 && strchr(name, '\n') == NULL, &result, "and its name");
    check(json_integer_value(at(&result, "devices.0.units")) > 0 &&
              json_integer_value(at(&result, "devices.0.memory_bytes")) > 0,
          &result, "and how much of it there is");
    result_finish(&result);
    run(&result, "", places.attn_info, "devices");
    check(result.code == 0 && strncmp(result.out, "cpu:0: ", 7) == 0 && fits_terminal(result.out), &result,
          "devices as text fits 80 columns");
    result_finish(&result);
}

static void test_caps(void)
{
    struct result result;

    run(&result, "", places.attn_info, "caps CPU/FLASH_ATTN --json");
    check(result.code == 0 && json_array_size(at(&result, "backends")) == 1 &&
              is_text(&result, "backends.0.name", "cpu/flash-attn"),
          &result, "caps NAME matches whatever the case and the hyphens");
    check(has_item(&result, "backends.0.dtypes", NULL, "f32", NULL) &&
              has_item(&result, "backends.0.dtypes", NULL, "f16", NULL) &&
              has_item(&result, "backends.0.dtypes", NULL, "bf16", NULL) &&
              has_item(&result, "backends.0.kv_dtypes", NULL, "f16", NULL),
          &result, "caps tells the types that the CPU serves");
    const char *dims = json_string_value(at(&result, "backends.0.head_dims.0"));
    check(dims != NULL && strchr(dims, '-') != NULL, &result, "head dims are ranges");
    check(json_array_size(at(&result, "backends.0.block_sizes")) > 0 &&
              has_item(&result, "backends.0.attn_types", NULL, "decoder", NULL) &&
              has_item(&result, "backends.0.features", NULL, "lse", NULL) &&
              json_is_string(at(&result, "backends.0.graph_level")),
          &result, "caps has block sizes, types, features and graph level");
    check(json_is_string(at(&result, "backends.0.speed")), &result, "caps tells how fast it is");
    result_finish(&result);
    run(&result, "ATTN_CPU_FLAGS=none", places.attn_info, "caps --json");
    check(has_item(&result, "backends.0.generic", NULL, "alibi=key", NULL) &&
              is_text(&result, "backends.0.speed", "generic"),
          &result, "and what generic kernels serve");
    result_finish(&result);
    run(&result, "", places.attn_info, "caps");
    check(result.code == 0 && strstr(result.out, "head dims:") != NULL && fits_terminal(result.out), &result,
          "caps as text fits 80 columns");
    result_finish(&result);
    run(&result, "", places.attn_info, "caps nosuch");
    check(result.code == 3 && strstr(result.err, "nosuch") != NULL, &result,
          "caps of an unknown name exits 3");
    result_finish(&result);
}

static void expect_exists(const char *name, int code)
{
    struct result result;
    char arguments[64];

    snprintf(arguments, sizeof arguments, "exists %s", name);
    run(&result, "", places.attn_info, arguments);
    check(result.code == code && result.out[0] == '\0', &result, "exists %s exits %d and prints nothing",
          name, code);
    result_finish(&result);
}

static void test_exists(void)
{
    expect_exists("cpu", 0);
    expect_exists("CPU/flash-attn", 0);
    expect_exists("FLASH_ATTN", 0);
    expect_exists("flash", 1);
    expect_exists("nosuch/flash-attn", 1);
    expect_exists("", 2);
}

static void test_env(void)
{
    struct result result;
    size_t index = 0;
    char path[64];

    run(&result, "ATTN_STRICT=maybe", places.attn_info, "env --json");
    check(result.code == 0 && has_item(&result, "variables", "name", "ATTN_BACKEND", NULL), &result,
          "env lists ATTN_BACKEND");
    check(has_item(&result, "variables", "name", "ATTN_STRICT", &index), &result, "env lists ATTN_STRICT");
    snprintf(path, sizeof path, "variables.%zu.problem", index);
    check(json_is_string(at(&result, path)), &result, "a bad value has a problem");
    snprintf(path, sizeof path, "variables.%zu.help", index);
    check(json_is_string(at(&result, path)), &result, "a variable has a help text");
    result_finish(&result);
    run(&result, "ATTN_BACKEND=cpu", places.attn_info, "env");
    check(result.code == 0 && strstr(result.out, "ATTN_BACKEND = cpu (environment)") != NULL &&
              fits_terminal(result.out),
          &result, "env tells value and origin, and fits 80 columns");
    result_finish(&result);
    run(&result, "ATTN_BAKEND=cpu", places.attn_info, "list --json");
    check(result.code == 0 && result.json != NULL && occurrences(result.err, "ATTN_BAKEND") == 1 &&
              strstr(result.err, "ATTN_BACKEND") != NULL,
          &result, "an unknown variable is reported once, with the nearest name");
    result_finish(&result);
}

static void test_doctor(void)
{
    struct result result;

    run(&result, "", places.attn_info, "doctor --json");
    check(result.code == 0 && json_is_true(at(&result, "well")) &&
              has_item(&result, "findings", "check", "selection", NULL),
          &result, "doctor finds nothing to mend");
    result_finish(&result);
    run(&result, "ATTN_CACHE_DIR=/proc/none", places.attn_info, "doctor");
    check(result.code == 1 && strstr(result.out, "mend  cache: /proc/none cannot be written to") != NULL &&
              strstr(result.out, "-> set ATTN_CACHE_DIR") != NULL &&
              strstr(result.out, "1 thing to mend") != NULL,
          &result, "a cache directory that cannot be made is told with its remedy");
    result_finish(&result);
    run(&result, "ATTN_BACKEND=none", places.attn_info, "doctor --json");
    check(result.code == 1 && json_is_false(at(&result, "well")), &result,
          "no wanted backend is to be mended");
    result_finish(&result);
}

static void test_one_variable(void)
{
    struct result result;

    run(&result, "ATTN_LOG=info", places.attn_info, "env ATTN_LOG --json");
    check(result.code == 0 && json_array_size(at(&result, "variables")) == 1 &&
              is_text(&result, "variables.0.value", "info") &&
              is_text(&result, "variables.0.default", "warn"),
          &result, "env NAME tells of one variable");
    result_finish(&result);
    run(&result, "", places.attn_info, "env ATTN_LOGG");
    check(result.code == 1 && result.out[0] == '\0' && strstr(result.err, "did you mean ATTN_LOG?") != NULL,
          &result, "an unknown name gets the nearest one");
    result_finish(&result);
}

static void test_help(void)
{
    struct result result;

    run(&result, "", places.attn_info, "help");
    check(result.code == 0 && strstr(result.out, "  doctor ") != NULL &&
              strstr(result.out, "--stable") != NULL,
          &result, "help is --help");
    result_finish(&result);
    run(&result, "", places.attn_info, "help caps");
    check(result.code == 0 && strncmp(result.out, "attn-info caps [NAME]\n", 22) == 0, &result,
          "help COMMAND tells of one");
    result_finish(&result);
    run(&result, "", places.attn_info, "version --json");
    check(result.code == 0 && is_text(&result, "plugins.0.name", "cpu") &&
              json_is_string(at(&result, "interface")),
          &result, "version has the plugins");
    result_finish(&result);
}

/* Seven fields in each line, on kernels of which there are several. */
static void test_trace(void)
{
    struct result result;

    run(&result, "ATTN_LOG=warn,trace:call", places.attn_bench,
        "decode heads=8 head_dim=64 q=bf16 ctx=64 seqs=2 layers=1 reps=1 cold=16");
    const char *line = strstr(result.err, " libattn trace    call: run,cpu/flash-attn,cpu:0,");
    unsigned commas = 0;
    for (const char *at = line; at != NULL && *at != '\n' && *at != '\0'; at++)
        commas += *at == ',';
    check(result.code == 0 && commas == 6, &result, "ATTN_LOG=trace:call writes a line per call");
    result_finish(&result);
}

static void test_usage(void)
{
    static const char *const wrong[] = {"lst",     "list extra", "why",        "exists",
                                        "explain", "--nosuch",   "list --all", "caps a b"};
    struct result result;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        run(&result, "", places.attn_info, wrong[i]);
        check(result.code == 2 && result.out[0] == '\0' && result.err[0] != '\0', &result,
              "\"%s\" is wrong usage", wrong[i]);
        result_finish(&result);
    }
    run(&result, "", places.attn_info, "lst");
    check(strstr(result.err, "\"list\"") != NULL, &result, "an unknown command gets a suggestion");
    result_finish(&result);
    run(&result, "", places.attn_info, "--help");
    check(result.code == 0 && strstr(result.out, "explain") != NULL && strstr(result.out, "--stable") != NULL,
          &result, "--help prints to standard output");
    result_finish(&result);
    run(&result, "", places.attn_info, "list --usage");
    check(result.code == 0 && strstr(result.out, "Usage: ") != NULL, &result, "--usage may follow a command");
    result_finish(&result);
    run(&result, "", places.attn_info, "--version");
    check(result.code == 0 && strncmp(result.out, "attn-info (libattn) ", 20) == 0 &&
              strstr(result.out, "\nplugin interface ") != NULL &&
              strstr(result.out, "\nplugin directory /") != NULL,
          &result, "--version has the versions of library and interface, and the plugin directory");
    result_finish(&result);
}

int main(int argc, char **argv)
{
    cli_init(argc, argv);
    test_list();
    test_devices();
    test_caps();
    test_exists();
    test_env();
    test_one_variable();
    test_doctor();
    test_help();
    test_trace();
    test_usage();
    return cli_finish();
}
