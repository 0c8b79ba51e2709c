/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-bench's tables: what is in them at which width. Times themselves are not judged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static size_t widest_line(const char *text)
{
    size_t widest = 0;

    for (; *text != '\0'; text += strcspn(text, "\n"), text += *text == '\n')
        widest = strcspn(text, "\n") > widest ? strcspn(text, "\n") : widest;
    return widest;
}

/* The line of a text that begins with this; "" if there is none. */
static const char *line_of(const char *text, const char *beginning)
{
    while (*text != '\0' && strncmp(text, beginning, strlen(beginning)) != 0)
        text = strchr(text, '\n') != NULL ? strchr(text, '\n') + 1 : "";
    return text;
}

/* Where a word is in its line. */
static size_t column_of(const char *line, const char *word)
{
    const char *end = line + strcspn(line, "\n"), *at = strstr(line, word);

    return at != NULL && at < end ? (size_t)(at - line) : 0;
}

/* A table has the columns that fit, in the order that the manual page gives, and cells below their titles. */
static void test_text(const char *mode, unsigned columns, const char *titles, const char *missing)
{
    struct result result;
    char variables[64], text[128];

    snprintf(variables, sizeof variables, "ATTN_BACKEND=cpu COLUMNS=%u", columns);
    snprintf(text, sizeof text, "%s heads=4 head_dim=64 q=f16 ctx=100 layers=1 reps=3 threads=1 cold=16",
             mode);
    run(&result, variables, places.attn_bench, text);
    const char *title = line_of(result.out, "batch "), *cells = strchr(title, '\n');
    check(result.code == 0 && strncmp(result.out, mode, strlen(mode)) == 0 &&
              strstr(result.out, " on cpu/flash-attn, 1 thread\nproblem: heads=4 ") != NULL &&
              strncmp(title, titles, strlen(titles)) == 0,
          &result, "%s at %u columns: backend, threads, problem and %s", mode, columns, titles);
    for (const char *word = missing; *word != '\0'; word += strlen(word) + 1)
        check(column_of(title, word) == 0, &result, "%s at %u columns has no %s", mode, columns, word);
    check(widest_line(result.out) <= columns, &result, "%s fits %u columns", mode, columns);
    check(
        cells != NULL && strchr("0123456789", cells[1]) != NULL && strstr(cells, "s  ") != NULL &&
            strstr(cells, column_of(title, "rounds") != 0 ? "   3  " : "s  ") != NULL &&
            (column_of(cells + 1, " % memory") != 0 || column_of(cells + 1, " % compute") != 0) &&
            (column_of(title, "kernel") == 0 || column_of(cells + 1, "paged") == column_of(title, "kernel")),
        &result, "%s at %u columns: a time, a share with its bound, the kernel below its title", mode,
        columns);
    check(strstr(result.out, "of 3 rounds. of") != NULL || strstr(result.out, "of 3\nrounds. of") != NULL,
          &result, "%s tells of how many rounds", mode);
    check((strstr(result.out, "Columns were left") != NULL) == (missing[0] != '\0'), &result,
          "%s at %u columns tells whether columns are left out", mode, columns);
    check(strstr(result.out, "roof") == NULL && strstr(result.out, "balance") == NULL, &result,
          "%s has no word of the JSON alone", mode);
    result_finish(&result);
}

/* The cases of a list are told by their names, one below the other. */
static void test_cases(void)
{
    struct result result;

    run(&result, "ATTN_BACKEND=cpu COLUMNS=80", places.attn_bench, "decode reps=1 threads=1 cold=64");
    const char *title = line_of(result.out, "case ");
    check(result.code == 0 && strncmp(result.out, "decode on cpu/flash-attn, 1 thread\ncase ", 40) == 0 &&
              occurrences(result.out, "\nf16_gqa4_d128_2048 ") == 1 &&
              occurrences(result.out, "\nbf16_gqa4_d128_2048 ") == 1 &&
              occurrences(result.out, "paged_dec") == 5 &&
              strstr(result.out, " of 1 round. of ceiling") != NULL,
          &result, "a line for each case, without the mode that stands above");
    check(column_of(title, "kernel") != 0 &&
              column_of(line_of(result.out, "f16_gqa4_d64"), "paged_") == column_of(title, "kernel") &&
              column_of(line_of(result.out, "bf16_"), "paged_") == column_of(title, "kernel") &&
              widest_line(result.out) <= 80,
          &result, "their cells are in columns");
    result_finish(&result);
    run(&result, "ATTN_BACKEND=cpu COLUMNS=80", places.attn_bench, "ceilings reps=2 threads=1 cold=16");
    check(result.code == 0 && strstr(result.out, "\nread_bandwidth ") != NULL &&
              column_of(line_of(result.out, "read_bandwidth"), "B/s") != 0 &&
              column_of(line_of(result.out, "arithmetic_plain"), "FLOP/s") != 0 &&
              strstr(result.out, " of 16 MiB,") != NULL && widest_line(result.out) <= 80,
          &result, "ceilings have a median and a range");
    result_finish(&result);
}

/* Reading one key after the other takes longer than one multiply-add with it; the same keys for 16,000 rows
 * of queries not, by a factor of 20 even where tiles multiply: other processes may take most of a machine. */
static void test_bounds(void)
{
    static const char *const cases[][2] = {
        {"decode heads=4 head_dim=64 q=f32 ctx=4000 reps=3 threads=1 cold=256", " % memory"},
        {"prefill heads=2 kv_heads=1 head_dim=64 q=bf16 causal=0 q_len=8000 reps=3 threads=1 cold=256",
         " % compute"}};
    struct result result;

    for (size_t i = 0; i < 2; i++) {
        run(&result, "ATTN_BACKEND=cpu COLUMNS=80", places.attn_bench, cases[i][0]);
        check(result.code == 0 && strstr(result.out, cases[i][1]) != NULL, &result, "%s:%s is the bound",
              cases[i][0], cases[i][1]);
        result_finish(&result);
    }
}

/* On a device a copy is the ceiling of memory; arithmetic has none. */
static void test_device(void)
{
    struct result result;
    char variables[512];

    snprintf(variables, sizeof variables, "COLUMNS=60 ATTN_PLUGIN_PATH=%s/..", getenv("CLI_DEVICE_MEMORY"));
    run(&result, variables, places.attn_bench,
        "decode heads=4 head_dim=64 q=f32 ctx=100 layers=1 reps=1 cold=16");
    const char *title = line_of(result.out, "batch ");
    check(result.code == 0 && strncmp(result.out, "decode on device-memory/", 24) == 0 &&
              column_of(title, "memory") != 0 && column_of(title, "of ceiling") == 0 &&
              strstr(result.out, " of ") != NULL && strstr(result.out, "a copy on") != NULL &&
              strstr(result.out, "gpu-bench") != NULL && widest_line(result.out) <= 60,
          &result, "on a device a rate is beside that of a copy, and where others are measured is said");
    result_finish(&result);
}

int main(int argc, char **argv)
{
    cli_init(argc, argv);
    test_text("decode", 60, "batch", "rounds\0error\0memory\0compute\0");
    test_text("decode", 80, "batch", "error\0memory\0compute\0");
    test_text("prefill", 80, "batch", "error\0memory\0compute\0");
    test_text("decode", 160, "batch", "");
    test_text("mixed", 60, "batch", "rounds\0error\0memory\0");
    test_text("mixed", 200, "batch", "");
    test_cases();
    test_bounds();
    test_device();
    return cli_finish();
}
