/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-bench serve: what it says of a made trace, what it is not to accept. Times are not judged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define TITLE "TIMESTAMP,ContextTokens,GeneratedTokens\n"

/* Of tests/bench/made-trace.csv. */
enum { REQUESTS = 80 };

static char made[4096];
static const char *directory;

static double number(const struct result *result, const char *path)
{
    return json_is_number(at(result, path)) ? json_number_value(at(result, path)) : -1;
}

static void serve(struct result *result, const char *arguments)
{
    char text[8192];

    snprintf(text, sizeof text, "serve --json trace=%s %s", made, arguments);
    run(result, "ATTN_BACKEND=cpu ATTN_THREADS=1", places.attn_bench, text);
}

/* The sum over the trace of a column, tokens of the first `count` requests. */
static double column(unsigned which, unsigned count)
{
    char line[128];
    double sum = 0;
    FILE *file = fopen(made, "re");

    for (unsigned i = 0; file != NULL && i <= count && fgets(line, sizeof line, file) != NULL; i++) {
        const char *at = line;
        for (unsigned c = 0; c < which && at != NULL; c++)
            at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL;
        sum += i > 0 && at != NULL ? atof(at) : 0;
    }
    if (file != NULL)
        fclose(file);
    return sum;
}

/* ---------------------------------------------------------------- what is served */

static void test_row(void)
{
    static const char *const parts[] = {"admit", "schedule", "input",  "builder",
                                        "state", "layers",   "commit", "total"};
    struct result result;
    char path[64];

    serve(&result, "seqs=8 chunk=64 layers=2");
    check(result.code == 0 && json_array_size(at(&result, "rows")) == 1 &&
              is_text(&result, "rows.0.name", "serve") &&
              is_text(&result, "rows.0.backend", "cpu/flash-attn") &&
              json_is_string(at(&result, "rows.0.kernel")),
          &result, "serve has a row that names backend and kernels");
    check(number(&result, "rows.0.requests") == REQUESTS && number(&result, "rows.0.layers") == 2 &&
              number(&result, "rows.0.seqs") == 8,
          &result, "all requests are served");
    check(number(&result, "rows.0.tokens_generated") == column(2, REQUESTS), &result,
          "every request has as many tokens as the trace says");
    /* The last token of an answer is not computed. */
    check(number(&result, "rows.0.tokens_computed") + number(&result, "rows.0.prefix_hits") ==
              column(1, REQUESTS) + column(2, REQUESTS) - REQUESTS,
          &result, "every token is computed once or found");
    check(number(&result, "rows.0.prefix_hits") > 0 && number(&result, "rows.0.prefix_hit_rate") > 0 &&
              number(&result, "rows.0.prefix_hit_rate") < 1,
          &result, "some prompts begin alike");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(path, sizeof path, "rows.0.host_us.%s.median", parts[i]);
        double median = number(&result, path);
        snprintf(path, sizeof path, "rows.0.host_us.%s.p99", parts[i]);
        check(median >= 0 && number(&result, path) >= median, &result, "%s has a median and a p99", parts[i]);
    }
    check(number(&result, "rows.0.steps_full") > 0 &&
              number(&result, "rows.0.host_us_full.total.median") > 0 &&
              number(&result, "rows.0.cache_use") > 0 &&
              number(&result, "rows.0.cache_use") <= number(&result, "rows.0.cache_use_most"),
          &result, "some steps have all batch slots taken");
    result_finish(&result);
}

static void copy_hash(const struct result *result, char *to, size_t size)
{
    const json_t *hash = at(result, "rows.0.schedule_hash");

    snprintf(to, size, "%s", json_is_string(hash) ? json_string_value(hash) : "none");
}

/* The schedule is the same whoever computes, and with as little room as serves. */
static void test_schedule(const char *keys, bool drives_out)
{
    struct result first, second;
    char text[256], a[32], b[32];

    snprintf(text, sizeof text, "%s noop=1", keys);
    serve(&first, text);
    serve(&second, text);
    copy_hash(&first, a, sizeof a);
    copy_hash(&second, b, sizeof b);
    check(first.code == 0 && strlen(a) == 16 && strcmp(a, b) == 0, &second, "%s: two runs, one schedule",
          keys);
    check((number(&first, "rows.0.preemptions") > 0) == drives_out, &first, "%s: %s are driven out", keys,
          drives_out ? "some" : "none");
    check(number(&first, "rows.0.tokens_generated") == column(2, REQUESTS), &first, "%s: all are answered",
          keys);
    result_finish(&second);
    serve(&second, keys);
    copy_hash(&second, b, sizeof b);
    check(second.code == 0 && strcmp(a, b) == 0, &second, "%s: the CPU has the schedule of the no-op plugin",
          keys);
    result_finish(&first);
    result_finish(&second);
}

static void test_keys(void)
{
    struct result all, some;
    char a[32], b[32];

    serve(&all, "noop=1 seqs=8");
    serve(&some, "noop=1 seqs=8 requests=13");
    copy_hash(&all, a, sizeof a);
    copy_hash(&some, b, sizeof b);
    check(some.code == 0 && number(&some, "rows.0.requests") == 13 && strcmp(a, b) != 0 &&
              number(&some, "rows.0.tokens_generated") == column(2, 13),
          &some, "requests=13 serves the first 13");
    check(is_text(&some, "rows.0.backend", "noop/flash-attn"), &some, "noop=1 serves with the no-op plugin");
    result_finish(&some);
    serve(&some, "noop=1 seqs=8 reuse=0");
    check(some.code == 0 && number(&some, "rows.0.prefix_hits") == 0, &some, "reuse=0 finds nothing");
    result_finish(&some);
    serve(&some, "noop=1 seqs=8 requests=20 speed=50");
    check(some.code == 0 && number(&some, "rows.0.requests") == 20 && number(&some, "rows.0.seconds") > 0.02,
          &some, "speed=50 waits for requests to arrive");
    result_finish(&some);
    serve(
        &some,
        "seqs=8 requests=20 layers=1 kv=int8 scales=token-head heads=2 head_dim=32 q=bf16 block=8 blocks=60 "
        "host_blocks=100");
    check(some.code == 0 && number(&some, "rows.0.swaps") > 0, &some,
          "8-bit caches with scales move to the host");
    result_finish(&some);
    result_finish(&all);
}

/* Other flavours have other metadata, and the same schedule. */
static void test_flavours(void)
{
    static const char *const names[] = {"cpu/flash-attn", "cpu/flashinfer", "cpu/rocm-flash"};
    char text[8192], environment[64], hash[3][32];

    for (unsigned i = 0; i < 3; i++) {
        struct result result;
        snprintf(text, sizeof text, "serve --json trace=%s requests=30 layers=1 seqs=6 threads=1", made);
        snprintf(environment, sizeof environment, "ATTN_BACKEND=%s", names[i]);
        run(&result, environment, places.attn_bench, text);
        copy_hash(&result, hash[i], sizeof hash[i]);
        check(result.code == 0 && is_text(&result, "rows.0.backend", names[i]) &&
                  strcmp(hash[0], hash[i]) == 0,
              &result, "%s serves the trace", names[i]);
        result_finish(&result);
    }
}

static void test_text(void)
{
    struct result result;
    char text[8192];

    snprintf(text, sizeof text, "serve trace=%s noop=1 seqs=8", made);
    run(&result, "", places.attn_bench, text);
    check(result.code == 0 && strncmp(result.out, "serve  (noop/flash-attn", 23) == 0 &&
              strstr(result.out, "steps/s") != NULL && strstr(result.out, "    builder ") != NULL &&
              strstr(result.out, "schedule ") != NULL && fits_terminal(result.out),
          &result, "serve as text, within 80 columns");
    result_finish(&result);
}

/* ---------------------------------------------------------------- what is refused */

static void refuse_keys(const char *arguments, const char *said)
{
    struct result result;

    run(&result, "ATTN_BACKEND=cpu", places.attn_bench, arguments);
    check(result.code == 2 && result.out[0] == '\0' && strstr(result.err, said) != NULL, &result,
          "\"%s\" exits 2 and speaks of %s", arguments, said);
    result_finish(&result);
}

static void refuse(const char *name, const char *contents, const char *said)
{
    struct result result;
    char text[4096];

    file_write(directory, "trace.csv", contents);
    snprintf(text, sizeof text, "serve trace=%s/trace.csv noop=1 blocks=100", directory);
    run(&result, "", places.attn_bench, text);
    check(result.code == 2 && result.out[0] == '\0' && strstr(result.err, said) != NULL, &result,
          "%s: exits 2 and says \"%s\"", name, said);
    result_finish(&result);
}

static void accept(const char *name, const char *contents, double requests)
{
    struct result result;
    char text[4096];

    file_write(directory, "trace.csv", contents);
    snprintf(text, sizeof text, "serve --json trace=%s/trace.csv noop=1 blocks=100", directory);
    run(&result, "", places.attn_bench, text);
    check(result.code == 0 && number(&result, "rows.0.requests") == requests, &result, "%s: %g requests",
          name, requests);
    result_finish(&result);
}

#define LINE "2024-02-29 23:59:59.25,10,5\n"

static void test_traces(void)
{
    refuse("an empty file", "", "the file is empty");
    refuse("a file of one line", TITLE, "no request");
    refuse("a file without its first line", LINE LINE, "trace.csv:1: ");
    refuse("a word for a number", TITLE LINE "2024-02-29 23:59:59,ten,5\n",
           "trace.csv:3: ContextTokens is \"ten\"");
    refuse("a negative length", TITLE "2024-02-29 23:59:59,10,-5\n",
           "trace.csv:2: GeneratedTokens is \"-5\"");
    refuse("a length of 0", TITLE "2024-02-29 23:59:59,0,5\n", "trace.csv:2: ContextTokens is \"0\"");
    refuse("a huge length", TITLE "2024-02-29 23:59:59,99999999999999999999,5\n",
           "trace.csv:2: ContextTokens is \"99999999999999999999\"");
    refuse("a length above the limit", TITLE "2024-02-29 23:59:59,16777217,5\n", "1 to 16777216");
    refuse("a column too few", TITLE "2024-02-29 23:59:59,10\n", "trace.csv:2: ");
    refuse("a column too many", TITLE "2024-02-29 23:59:59,10,5,1\n",
           "trace.csv:2: GeneratedTokens is \"5\"");
    refuse("a month too many", TITLE "2024-13-29 23:59:59,10,5\n", "trace.csv:2: ");
    refuse("a time that is none", TITLE "2024-02-29 23:59:5x,10,5\n", "YYYY-MM-DD");
    refuse("a fraction without digits", TITLE "2024-02-29 23:59:59.,10,5\n", "YYYY-MM-DD");
    refuse("a request that comes too early", TITLE LINE "2024-02-29 23:59:58,10,5\n", "trace.csv:3: ");
    refuse("an empty line in the middle", TITLE LINE "\n" LINE, "trace.csv:3: ");
    refuse("half a line", TITLE LINE "2024-02-29", "trace.csv:3: ");
    /* 1601 keys are computed; the last token of the answer is not. */
    refuse("a request longer than the cache", TITLE LINE "2024-02-29 23:59:59.25,1600,2\n", "trace.csv:3: ");
    accept("a request that just fits", TITLE LINE "2024-02-29 23:59:59.25,1600,1\n", 2);
    accept("no newline at the end", TITLE LINE "2024-02-29 23:59:59.25,10,5", 2);
    accept("empty lines at the end", TITLE LINE "\r\n\n", 1);
    accept("CR LF", "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-02-29 23:59:59,10,5\r\n", 1);
}

static void test_refusals(void)
{
    refuse_keys("serve", "trace=FILE.csv");
    refuse_keys("serve trace=", "trace");
    refuse_keys("serve trace=/nowhere/at/all.csv", "/nowhere/at/all.csv");
    refuse_keys("serve trace=/", "/");
    refuse_keys("serve trace=a trace=b", "twice");
    refuse_keys("serve trace=a noop=2", "noop");
    refuse_keys("serve trace=a noop=1 noop=1", "twice");
    refuse_keys("serve trace=a reuse=yes", "reuse");
    refuse_keys("serve trace=a speed=-1", "speed");
    refuse_keys("serve trace=a speed=1e3", "speed");
    refuse_keys("serve trace=a speed=nan", "speed");
    refuse_keys("serve trace=a requests=0", "requests");
    refuse_keys("serve trace=a ctx=3", "ctx");
    refuse_keys("serve trace=a mla=1 head_dim=96/64 q=bf16", "mla");
    refuse_keys("serve trace=a max_kv=3", "max_");
    refuse_keys("serve trace=a kv=int8 scales=head", "scales");
    refuse_keys("decode trace=a", "trace");
}

/* What fails before the first step is told, and nothing crashes. */
static void test_failures(void)
{
    struct result result;
    char text[8192];

    snprintf(text, sizeof text, "serve --json trace=%s", made);
    run(&result, "ATTN_BACKEND=cuda", places.attn_bench, text);
    check(result.code == 1 && result.json != NULL && json_array_size(at(&result, "rows")) == 0 &&
              strstr(result.err, "cuda") != NULL,
          &result, "a backend that is not there is a failure with a message");
    result_finish(&result);
    serve(&result, "layers=4096 blocks=1000000 heads=64 kv_heads=64 head_dim=256 q=f32");
    check(result.code == 1 && strstr(result.err, "fewer layers or blocks") != NULL, &result,
          "caches that find no memory are a failure with a message");
    result_finish(&result);
}

int main(int argc, char **argv)
{
    cli_init(argc, argv);
    directory = directory_make();
    snprintf(made, sizeof made, "%s/../../tests/bench/made-trace.csv", places.man);
    test_row();
    test_schedule("seqs=8 chunk=64 layers=1", false);
    test_schedule("seqs=8 chunk=64 layers=1 blocks=70", true);
    test_schedule("seqs=8 chunk=64 layers=1 blocks=70 reuse=0 host_blocks=90", true);
    test_schedule("seqs=3 chunk=7 layers=1 block=4", false);
    test_keys();
    test_flavours();
    test_text();
    test_traces();
    test_refusals();
    test_failures();
    return cli_finish();
}
