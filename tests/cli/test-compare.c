/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-bench compare: ratios, rows of one side, and files that are no results. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

/* Members that compare does not read are left out of most rows. */
static const char a_text[] =
    "{\"schema_version\": 1, \"command\": \"decode\", \"rows\": [\n"
    " {\"name\": \"decode_one\", \"mode\": \"decode\", \"us\": {\"min\": 90, \"median\": 100, \"max\": "
    "400},\n"
    "  \"roof_ratio\": 0.5, \"error\": 0.001},\n"
    " {\"name\": \"only_a\", \"us\": {\"median\": 7}, \"roof_ratio\": 0.25},\n"
    " {\"name\": \"no_numbers\", \"us\": {\"median\": null}, \"roof_ratio\": null},\n"
    " {\"name\": \"load_10_files\", \"us\": {\"median\": 4}, \"roof_ratio\": null}]}\n";
static const char b_text[] =
    "{\"schema_version\": 1, \"rows\": [\n"
    " {\"name\": \"load_10_files\", \"us\": {\"median\": 5}, \"roof_ratio\": null},\n"
    " {\"name\": \"a_row_whose_name_is_longer_than_any_that_a_default_case_has_today\",\n"
    "  \"us\": {\"median\": 123456.789}, \"roof_ratio\": 0.98765},\n"
    " {\"name\": \"no_numbers\", \"us\": {\"median\": 3}, \"roof_ratio\": 0.125},\n"
    " {\"name\": \"decode_one\", \"us\": {\"median\": 80}, \"roof_ratio\": 0.625}]}\n";

static const char *directory;

static void compare(struct result *result, const char *options, const char *a, const char *b)
{
    char text[512];

    snprintf(text, sizeof text, "compare %s %s/%s %s/%s", options, directory, a, directory, b);
    run(result, "", places.attn_bench, text);
}

static bool is_number(const struct result *result, const char *path, double wanted)
{
    const json_t *value = at(result, path);

    return json_is_number(value) && json_number_value(value) == wanted;
}

static bool is_null(const struct result *result, const char *path)
{
    return json_is_null(at(result, path));
}

static void test_json(void)
{
    struct result result;

    compare(&result, "--json", "a.json", "b.json");
    check(result.code == 0 && json_array_size(at(&result, "rows")) == 5 &&
              is_text(&result, "command", "compare"),
          &result, "every name has one row");
    check(is_text(&result, "rows.0.name", "decode_one") && is_number(&result, "rows.0.us_ratio", 0.8) &&
              is_number(&result, "rows.0.us_a", 100) && is_number(&result, "rows.0.us_b", 80) &&
              is_number(&result, "rows.0.roof_ratio_a", 0.5) &&
              is_number(&result, "rows.0.roof_ratio_b", 0.625) && is_null(&result, "rows.0.missing"),
          &result, "a row of both files, B by A, medians");
    check(is_text(&result, "rows.1.name", "only_a") && is_text(&result, "rows.1.missing", "b") &&
              is_null(&result, "rows.1.us_ratio") && is_number(&result, "rows.1.us_a", 7) &&
              is_null(&result, "rows.1.us_b") && is_null(&result, "rows.1.roof_ratio_b"),
          &result, "a row that B misses");
    check(is_null(&result, "rows.2.missing") && is_null(&result, "rows.2.us_ratio") &&
              is_number(&result, "rows.2.roof_ratio_b", 0.125),
          &result, "a number that is null makes no ratio");
    check(is_text(&result, "rows.3.name", "load_10_files") && is_number(&result, "rows.3.us_ratio", 1.25) &&
              is_null(&result, "rows.3.roof_ratio_a"),
          &result, "a row without a roof");
    check(is_text(&result, "rows.4.missing", "a") && is_null(&result, "rows.4.us_ratio"), &result,
          "a row that A misses");
    result_finish(&result);
}

/* The text, which depends on the files and the terminal's width alone. */
static void expect_text(const char *variables, const char *wanted)
{
    char text[512];
    struct result result;

    snprintf(text, sizeof text, "compare %s/a.json %s/b.json", directory, directory);
    run(&result, variables, places.attn_bench, text);
    check(result.code == 0 && strcmp(result.out, wanted) == 0, &result, "as text, with %s", variables);
    result_finish(&result);
}

static void test_text(void)
{
    struct result result;

    expect_text("COLUMNS=120", "case                                                                time A   "
                               "time B  B / A  share A  share B\n"
                               "decode_one                                                          100 us  "
                               "80.0 us  0.800     50 %     62 %\n"
                               "only_a                                                             7.00 us  "
                               "missing      -     25 %  missing\n"
                               "no_numbers                                                               -  "
                               "3.00 us      -        -     12 %\n"
                               "load_10_files                                                      4.00 us  "
                               "5.00 us  1.250        -        -\n"
                               "a_row_whose_name_is_longer_than_any_that_a_default_case_has_today  missing   "
                               "123 ms      -  missing     99 %\n"
                               "\n"
                               "B / A: the median time of B divided by that of A. share: what was reached of "
                               "the ceiling, to be looked at first where\n"
                               "the machine was shared or is another one.\n");
    expect_text("COLUMNS=80",
                "case                                    time A   time B  B / A  share A  share B\n"
                "decode_one                              100 us  80.0 us  0.800     50 %     62 %\n"
                "only_a                                 7.00 us  missing      -     25 %  missing\n"
                "no_numbers                                   -  3.00 us      -        -     12 %\n"
                "load_10_files                          4.00 us  5.00 us  1.250        -        -\n"
                "a_row_whose_name_..ult_case_has_today  missing   123 ms      -  missing     99 %\n"
                "\n"
                "B / A: the median time of B divided by that of A. share: what was reached of the\n"
                "ceiling, to be looked at first where the machine was shared or is another one.\n");
    expect_text("COLUMNS=60", "case                              B / A  share A  share B\n"
                              "decode_one                        0.800     50 %     62 %\n"
                              "only_a                                -     25 %  missing\n"
                              "no_numbers                            -        -     12 %\n"
                              "load_10_files                     1.250        -        -\n"
                              "a_row_whose_nam.._case_has_today      -  missing     99 %\n"
                              "\n"
                              "B / A: the median time of B divided by that of A. share:\n"
                              "what was reached of the ceiling, to be looked at first where\n"
                              "the machine was shared or is another one.\n");
    compare(&result, "", "a.json", "a.json");
    check(result.code == 0 && occurrences(result.out, "missing") == 0 &&
              occurrences(result.out, " 1.000 ") == 3,
          &result, "a file is equal to itself");
    result_finish(&result);
}

static void expect_malformed(const char *contents, const char *said)
{
    struct result result;

    file_write(directory, "bad.json", contents);
    compare(&result, "", "bad.json", "b.json");
    check(result.code == 2 && result.out[0] == '\0' && strstr(result.err, said) != NULL &&
              strstr(result.err, "bad.json") != NULL,
          &result, "%s: exits 2, names the file and says %s", contents, said);
    result_finish(&result);
    compare(&result, "--json", "a.json", "bad.json");
    check(result.code == 2 && result.out[0] == '\0' && strstr(result.err, said) != NULL, &result,
          "%s: the same as the second file", contents);
    result_finish(&result);
}

static void expect_usage(const char *arguments, const char *said)
{
    struct result result;

    run(&result, "", places.attn_bench, arguments);
    check(result.code == 2 && result.out[0] == '\0' && strstr(result.err, said) != NULL, &result,
          "\"%s\" exits 2 and speaks of %s", arguments, said);
    result_finish(&result);
}

int main(int argc, char **argv)
{
    cli_init(argc, argv);
    directory = directory_make();
    file_write(directory, "a.json", a_text);
    file_write(directory, "b.json", b_text);
    test_json();
    test_text();
    expect_malformed("", "line");
    expect_malformed("{\"rows\": [", "line");
    expect_malformed("[]", "schema_version");
    expect_malformed("{\"schema_version\": 2, \"rows\": []}", "schema_version");
    expect_malformed("{\"schema_version\": 1}", "rows");
    expect_malformed("{\"schema_version\": 1, \"rows\": [3]}", "rows[0] has no name");
    expect_malformed("{\"schema_version\": 1, \"rows\": [{\"name\": \"x\"}]}", "us.median");
    expect_malformed("{\"schema_version\": 1, \"rows\": [{\"name\": \"x\", \"us\": {\"median\": 0}}]}",
                     "us.median");
    expect_malformed("{\"schema_version\": 1, \"rows\": [{\"name\": \"x\", \"us\": {\"median\": 1}, "
                     "\"roof_ratio\": \"high\"}]}",
                     "roof_ratio");
    expect_malformed("{\"schema_version\": 1, \"rows\": [{\"name\": \"x\", \"us\": {\"median\": 1}, "
                     "\"roof_ratio\": 1}, {\"name\": \"x\", \"us\": {\"median\": 1}, \"roof_ratio\": 1}]}",
                     "earlier row");
    expect_usage("compare", "two files");
    expect_usage("compare one.json", "two files");
    expect_usage("compare a b c", "two files");
    expect_usage("compare /nowhere/a.json /nowhere/b.json", "/nowhere/a.json");
    return cli_finish();
}
