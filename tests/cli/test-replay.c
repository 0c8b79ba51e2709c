/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-replay as who reports a wrong result sees it: records of other programs, backends, damaged files. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

enum { FILES = 64, PATHS = 256 };

static const char *attn_replay;

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_record(const struct dirent *entry)
{
    return strstr(entry->d_name, ".record") != NULL;
}

/* Paths of the records in a directory, which stay; returns their number. */
static unsigned list(const char *directory, char *paths[FILES])
{
    static char made[PATHS][512];
    static unsigned made_count;
    struct dirent **entries;
    const int count = scandir(directory, &entries, is_record, by_name);
    unsigned kept = 0;

    for (int i = 0; i < count; i++) {
        if (made_count == PATHS)
            exit(2);
        snprintf(made[made_count], sizeof made[0], "%s/%s", directory, entries[i]->d_name);
        if (kept < FILES)
            paths[kept++] = made[made_count++];
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return kept;
}

/* Runs a tool that is recorded into a new directory. */
static unsigned record(const char *options, const char *program, const char *arguments, char *paths[FILES])
{
    const char *directory = directory_make();
    struct result result;
    char variables[512];

    snprintf(variables, sizeof variables, "ATTN_RECORD=%s/records%s", directory, options);
    run(&result, variables, program, arguments);
    check(result.code == 0, &result, "%s is recorded with \"%s\"", arguments, options);
    result_finish(&result);
    snprintf(variables, sizeof variables, "%s/records", directory);
    return list(variables, paths);
}

static void replay(struct result *result, const char *variables, const char *path, const char *options)
{
    char arguments[1024];

    snprintf(arguments, sizeof arguments, "%s %s --json", path, options);
    run(result, variables, attn_replay, arguments);
}

static void expect(const char *what, const char *variables, const char *path, const char *options, bool equal)
{
    struct result result;

    replay(&result, variables, path, options);
    check(result.code == 0 && is_text(&result, "recorded.result", "right") &&
              is_text(&result, "replayed.result", "right") && json_is_true(at(&result, "results.compared")),
          &result, "%s, %s%s: both results are right", what, variables, options);
    check(!equal || json_is_true(at(&result, "results.equal")), &result, "%s, %s%s: and equal in all bits",
          what, variables, options);
    check(json_integer_value(at(&result, "results.numbers")) > 0, &result, "numbers are compared");
    result_finish(&result);
}

/* Each record on the backend that made it, without vector instructions, and on another flavour. */
static void expect_all(const char *what, char *const *paths, unsigned count, unsigned wanted)
{
    check(count == wanted, NULL, "%s left %u records, wanted %u", what, count, wanted);
    for (unsigned i = 0; i < count; i++) {
        expect(what, "", paths[i], "", true);
        expect(what, "ATTN_CPU_FLAGS=none", paths[i], "", false);
        expect(what, "", paths[i], "--backend cpu/rocm-flash", false);
    }
}

static void test_bench(void)
{
    static const char *const cases[] = {
        "decode heads=8 kv_heads=2 head_dim=64 q=bf16 seqs=3 ctx=100 reps=1 layers=1 cold=16",
        "prefill heads=8 kv_heads=2 head_dim=64 q=f16 k=e4m3 v=e4m3 scales=token-head seqs=2 ctx=80 q_len=80 "
        "reps=1 layers=1 cold=16",
        "decode heads=8 kv_heads=2 head_dim=64 q=f16 k=q8_0 v=q8_0 seqs=2 ctx=70 reps=1 layers=1 cold=16",
        "decode heads=16 kv_heads=1 head_dim=576/512 mla=1 q=bf16 seqs=2 ctx=70 reps=1 layers=1 cold=16",
        "mixed heads=8 kv_heads=2 head_dim=64 q=f32 mask=f16 alibi=key sinks=1 addr=csr lse=1 seqs=2 ctx=70 "
        "reps=1 layers=1 cold=16"};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *paths[FILES];
        const unsigned count = record(",calls=1", places.attn_bench, cases[i], paths);
        expect_all(cases[i], paths, count, 1);
    }
}

/* attn-generate goes by builder, state and layers. Where it takes no graph every layer of every step comes
 * by. */
static void test_generate(void)
{
    struct result with, without;
    const char *directory = directory_make();
    char variables[512], *paths[FILES];

    if (places.attn_generate == NULL)
        return;
    run(&without, "", places.attn_generate, "--toy --graph=off -p hello -n 3");
    snprintf(variables, sizeof variables, "ATTN_RECORD=%s,skip=1,calls=5", directory);
    run(&with, variables, places.attn_generate, "--toy --graph=off -p hello -n 3");
    check(with.code == 0 && strcmp(with.out, without.out) == 0, &with, "a recorded program says the same");
    result_finish(&with);
    result_finish(&without);
    const unsigned count = list(directory, paths);
    expect_all("attn-generate", paths, count, 5);
}

static void test_hash(void)
{
    struct result result;
    char *paths[FILES];

    const unsigned count =
        record(",calls=1,tensors=hash", places.attn_bench,
               "decode heads=8 kv_heads=2 head_dim=64 q=bf16 seqs=3 ctx=100 reps=1 layers=1 cold=16", paths);
    check(count == 1, NULL, "one record");
    if (count == 0)
        return;
    replay(&result, "", paths[0], "");
    check(result.code == 0 && is_text(&result, "tensors", "hash") &&
              is_text(&result, "replayed.result", "right") && json_is_null(at(&result, "recorded.result")) &&
              json_is_false(at(&result, "results.compared")),
          &result, "numbers of hashes are judged, and not compared");
    result_finish(&result);
}

static char *read_file(const char *path, size_t *out_size)
{
    FILE *file = fopen(path, "re");
    char *data = malloc(1 << 20);

    if (file == NULL || data == NULL)
        exit(2);
    *out_size = fread(data, 1, 1 << 20, file);
    fclose(file);
    return data;
}

static void write_file(const char *path, const char *data, size_t size)
{
    FILE *file = fopen(path, "we");

    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        exit(2);
}

static void expect_refused(const char *path, const char *what, const char *said)
{
    struct result result;

    run(&result, "", attn_replay, path);
    check(result.code == 2 && result.out[0] == '\0' && strstr(result.err, said) != NULL &&
              strstr(result.err, path) != NULL,
          &result, "%s: exit 2, and says %s", what, said);
    result_finish(&result);
}

static void test_damage(void)
{
    struct result result;
    char *paths[FILES], arguments[1024];
    size_t size;

    if (record(",calls=1", places.attn_bench,
               "decode heads=8 kv_heads=2 head_dim=64 q=bf16 seqs=1 ctx=20 reps=1 layers=1 cold=16",
               paths) != 1)
        return;
    char *data = read_file(paths[0], &size);
    write_file(paths[0], data, 20);
    expect_refused(paths[0], "20 bytes", "size is 20; accepted: at least the bytes of a head, 40");
    write_file(paths[0], data, size - 1);
    expect_refused(paths[0], "a byte less", "accepted: the size of the file");
    data[size - 1] ^= 1;
    write_file(paths[0], data, size);
    expect_refused(paths[0], "a changed result", "hash of out is ");
    data[size - 1] ^= 1;
    data[8] = 9;
    write_file(paths[0], data, size);
    expect_refused(paths[0], "another version", "version is 9; accepted: 1");
    write_file(paths[0], "text", 4);
    expect_refused(paths[0], "a text", "accepted");
    write_file(paths[0], "text and more text and more text and more", 41);
    expect_refused(paths[0], "a longer text", "ATTN_RECORD makes them");
    expect_refused("/nowhere/a.record", "no file", "No such file");
    expect_refused("/tmp", "a directory", "/tmp is no file");
    data[8] = 1;
    write_file(paths[0], data, size);
    snprintf(arguments, sizeof arguments, "%s --backend nosuch", paths[0]);
    run(&result, "", attn_replay, arguments);
    check(result.code == 3 && strstr(result.err, "nosuch") != NULL, &result, "no such backend: exit 3");
    result_finish(&result);
    run(&result, "", attn_replay, "");
    check(result.code == 2 && strstr(result.err, "file of a record is wanted") != NULL, &result,
          "no file: exit 2");
    result_finish(&result);
    run(&result, "", attn_replay, paths[0]);
    check(result.code == 0 && strstr(result.out, "equal in all bits") != NULL && fits_terminal(result.out),
          &result, "as text");
    result_finish(&result);
    free(data);
}

/* The same record with another result, signed anew: the oracle tells which of the two is right. */
static void test_wrong_result(void)
{
    struct result result;
    char *paths[FILES], arguments[1024];

    /* A plugin that computes nothing leaves zeros. */
    const char *directory = directory_make();
    snprintf(arguments, sizeof arguments, "ATTN_RECORD=%s,calls=1 ATTN_PLUGIN_PATH=%s ATTN_PROBE=never",
             directory, places.noisy);
    run(&result, arguments, places.attn_bench,
        "decode heads=8 kv_heads=2 head_dim=64 q=bf16 seqs=1 ctx=20 reps=1 layers=1 cold=16");
    result_finish(&result);
    if (list(directory, paths) != 1) {
        check(false, NULL, "a plugin that computes nothing is recorded");
        return;
    }
    replay(&result, "", paths[0], "--backend cpu/flash-attn");
    check(result.code == 0 && is_text(&result, "recorded.result", "wrong") &&
              is_text(&result, "replayed.result", "right") && json_is_false(at(&result, "results.equal")) &&
              json_integer_value(at(&result, "results.differing")) > 0,
          &result, "a recorded result that is wrong, and a replay that is right");
    result_finish(&result);
}

int main(int argc, char **argv)
{
    cli_init(argc, argv);
    attn_replay = getenv("CLI_ATTN_REPLAY");
    if (attn_replay == NULL)
        return 2;
    test_bench();
    test_generate();
    test_hash();
    test_damage();
    test_wrong_result();
    return cli_finish();
}
