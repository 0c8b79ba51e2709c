/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-generate on the toy model: what it prints where, and what it refuses with what words. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

static void refuses(const char *arguments, int code, const char *text)
{
    struct result result;
    run(&result, "", places.attn_generate, arguments);
    check(result.code == code && strstr(result.err, text) != NULL && result.out[0] == '\0', &result,
          "%s: exit code %d and \"%s\"", arguments, code, text);
    result_finish(&result);
}

static void test_usage(void)
{
    refuses("--toy -p a --kv foo", 2,
            "--kv is 'foo'; accepted: f32, f16, bf16, e4m3, e5m2, e4m3fnuz, e5m2fnuz, int8");
    refuses("--toy -p a --parallel 0", 2, "--parallel is '0'; accepted: 1 to 1024");
    refuses("--toy -p a --parallel 1025", 2, "--parallel is '1025'; accepted: 1 to 1024");
    refuses("--toy -p a --parallel -1", 2, "--parallel is '-1'; accepted: 1 to 1024");
    refuses("--toy -p a --parallel 2x", 2, "--parallel is '2x'; accepted: 1 to 1024");
    refuses("--toy -p a --chunk 0", 2, "--chunk is '0'; accepted: 1 to 65536");
    refuses("--toy -p a --batch b", 2, "-p and --batch exclude each other");
    refuses("--toy", 2, "no prompt: give -p TEXT, or --batch FILE");
    refuses("-p a", 2, "no model: give -m FILE.gguf, or --toy");
}

static void test_more_usage(void)
{
    refuses("--toy -p a --graph maybe", 2, "--graph is 'maybe'; accepted: on, off");
    refuses("--toy -p a --steps 65", 2, "--steps is '65'; accepted: 1 to 64");
    refuses("--toy -p a --ranks 0", 2, "--ranks is '0'; accepted: 1 to 64");
    refuses("--toy -p a --ranks 65", 2, "--ranks is '65'; accepted: 1 to 64");
    refuses("--toy-window 0 -p a", 2, "--toy-window is '0'; accepted: 1 to 2147483647");
}

/* A prompt that cannot be served says why; the others are answered. */
static void test_refused_prompts(void)
{
    const char *directory = directory_make();
    struct result alone, result;
    char arguments[512];

    refuses("--toy --ids -p 104,257", 1, "token 2 of the prompt is 257; accepted are 0 to 256");
    refuses("--toy --ids -p -1,104", 1, "token 1 of the prompt is -1; accepted are 0 to 256");
    refuses("--toy --ids -p 104,x1", 1, "number 2 of the prompt is 'x1'; accepted are numbers of tokens");
    refuses("--toy --ids -p ,", 1, "the prompt has no tokens; accepted are 1 to 4095");
    refuses("--toy -p hello -n 100 --block 4 --blocks 10", 1,
            "a request of up to 105 tokens needs 26 blocks of 4 tokens, and the cache has 10");
    file_write(directory, "ids", "104 101 108 108 111\n104 300\n104 101 y\n104 101 108 108 111\n");
    run(&alone, "", places.attn_generate, "--toy --raw -p hello -n 6");
    snprintf(arguments, sizeof arguments, "--toy --ids --batch %s/ids -n 6 --json", directory);
    run(&result, "", places.attn_generate, arguments);
    const char *first = json_string_value(at(&result, "sequences.0.text"));
    const char *last = json_string_value(at(&result, "sequences.3.text"));
    check(
        result.code == 1 && first != NULL && last != NULL && strlen(alone.out) == strlen(first) + 1 &&
            strncmp(alone.out, first, strlen(first)) == 0 && strcmp(first, last) == 0 &&
            is_text(&result, "sequences.1.end", "refused") &&
            is_text(&result, "sequences.1.refusal", "token 2 of the prompt is 300; accepted are 0 to 256") &&
            json_is_null(at(&result, "sequences.0.refusal")),
        &result, "the other prompts have the texts that they have alone");
    check(strstr(result.err, "line 2: token 2 of the prompt is 300") != NULL &&
              strstr(result.err, "line 3: number 3 of the prompt is 'y'") != NULL &&
              strstr(result.err, "2 of 4 prompts were refused") != NULL,
          &result, "the messages name their lines");
    result_finish(&result);
    result_finish(&alone);
}

/* The same text by other ways, and the report says that they were taken. */
static void test_ways(void)
{
    struct result alone, result;

    run(&alone, "", places.attn_generate, "--toy-window 24 -p hello -n 24 --parallel 3");
    run(&result, "", places.attn_generate,
        "--toy-window 24 -p hello -n 24 --parallel 3 --graph on --steps 4 --stats");
    check(result.code == 0 && alone.code == 0 && strcmp(alone.out, result.out) == 0 &&
              strstr(alone.err, "graphs:") == NULL && strstr(alone.err, "time:") == NULL,
          &alone, "graphs and steps give the same texts");
    check(strstr(result.err, "graphs: 3 sizes; ") != NULL && strstr(result.err, "advanced: ") != NULL &&
              strstr(result.err, "time: ") != NULL && strstr(result.err, "\033") == NULL,
          &result, "the report tells of them, without a line of progress");
    result_finish(&result);
    result_finish(&alone);
}

/*
 * `arguments` with each number of ranks give the texts of `plain` on one, and the report has `line`. All
 * ranks together have `blocks` pages; 0: as many as the texts want.
 */
static void same_on_ranks(const char *arguments, const char *plain, uint32_t blocks, const char *line)
{
    struct result alone, result;
    char all[1024], own[64] = "", wanted[32];

    run(&alone, "", places.attn_generate, plain);
    check(alone.code == 0 && alone.out[0] != '\0' && strstr(alone.err, "ranks: ") == NULL, &alone,
          "%s: texts of one rank", plain);
    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        if (blocks > 0)
            snprintf(own, sizeof own, "--blocks %u ", blocks / ranks);
        snprintf(all, sizeof all, "%s %s--ranks %u", arguments, own, ranks);
        snprintf(wanted, sizeof wanted, "\nranks: %u\n", ranks);
        run(&result, "", places.attn_generate, all);
        check(result.code == 0 && strcmp(alone.out, result.out) == 0 && strstr(result.err, line) != NULL &&
                  (strstr(result.err, wanted) != NULL) == (ranks > 1),
              &result, "%s: the same texts", all);
        result_finish(&result);
    }
    result_finish(&alone);
}

/* Ranks that hold the keys together: chunks, shared and copied blocks, blocks that are given up, windows,
 * steps that advance. */
static void test_ranks(void)
{
    static const char prompts[] = "the beginning that all of them have, and then something else\n"
                                  "the beginning that all of them have, and then something new\n"
                                  "x\n"
                                  "the beginning that all of them have\n"
                                  "another one that has nothing in common with those before\n";
    const char *directory = directory_make();
    char batch[512], plain[600], arguments[700];
    struct result result;

    file_write(directory, "prompts", prompts);
    snprintf(batch, sizeof batch, "--batch %s/prompts --raw -n 40 --parallel 4 --chunk 20", directory);
    snprintf(plain, sizeof plain, "--toy %s", batch);
    snprintf(arguments, sizeof arguments, "%s --block 2", plain);
    same_on_ranks(arguments, plain, 52, "gave up their blocks: ");
    snprintf(arguments, sizeof arguments, "%s --block 2 --host-blocks 60 --no-reuse", plain);
    same_on_ranks(arguments, plain, 52, " of them to the host");
    snprintf(arguments, sizeof arguments, "%s --block 3 --steps 4", plain);
    same_on_ranks(arguments, plain, 0, "\nreused: ");
    same_on_ranks(arguments, plain, 0, "\nadvanced: ");
    snprintf(plain, sizeof plain, "--toy-window 24 %s", batch);
    snprintf(arguments, sizeof arguments, "%s --block 4", plain);
    same_on_ranks(arguments, plain, 0, "backend: ");
    same_on_ranks("--toy -p hello -n 24 --parallel 3 --temp 0.8 --block 4",
                  "--toy -p hello -n 24 --parallel 3 --temp 0.8", 0, "\ncopied: ");
    refuses("--toy -p a --ranks 2 --graph on", 1,
            "graph is on with 2 ranks, whose steps are not captured; accepted is off");
    refuses("--toy -p a --ranks 2 --backend cpu/flashinfer", 1,
            "flavour is flashinfer and cp_world 2; with ranks flavours whose kernels read block tables are "
            "accepted: flash-attn, rocm-flash, xformers");
    run(&result, "", places.small_models, directory);
    result_finish(&result);
    snprintf(arguments, sizeof arguments, "-m %s/whisper.gguf --audio %s/clip.wav --ranks 2", directory,
             directory);
    refuses(arguments, 1, "--ranks is 2; speech models run on one rank: accepted is 1");
}

/* A backend that stands for one without graphs. */
static void test_no_graphs(void)
{
    const char *directory = directory_make();
    struct result result;
    char variables[512];

    file_copy(directory, "libattn-noop.so", places.noop);
    snprintf(variables, sizeof variables, "ATTN_PLUGIN_PATH=%s ATTN_BACKEND=noop", directory);
    run(&result, variables, places.attn_generate, "--toy -p hello -n 3 --graph on");
    check(result.code == 1 && result.out[0] == '\0' &&
              strstr(result.err, "graph is on, and backend noop/flash-attn has no graphs: ") != NULL &&
              strstr(result.err, "; accepted is off\n") != NULL,
          &result, "a backend without graphs is refused");
    result_finish(&result);
}

/* The option goes before the variable, and nothing else serves in its place. */
static void test_backend(void)
{
    struct result result;
    run(&result, "ATTN_BACKEND=cpu/flash-attn", places.attn_generate,
        "--toy -p hello -n 3 --backend cpu/flashinfer");
    check(result.code == 0 && strstr(result.err, "\nbackend: cpu/flashinfer (cpu:0, ") != NULL, &result,
          "--backend is what runs");
    result_finish(&result);
    run(&result, "ATTN_BACKEND=cpu/flash-attn", places.attn_generate, "--toy -p hello -n 3 --backend noise");
    check(result.code == 1 && result.out[0] == '\0' &&
              strstr(result.err, "NO_SUCH_BACKEND: no plugin of vendor or flavour 'noise'") != NULL,
          &result, "a backend that is not there is an error");
    result_finish(&result);
}

/* The message is about the kind of layers that is refused, which is the second one here. */
static void test_narrow_backend(void)
{
    const char *directory = directory_make();
    struct result result;
    char from[512], variables[512];

    snprintf(from, sizeof from, "%s/narrow/libattn-template.so", places.noisy);
    file_copy(directory, "libattn-template.so", from);
    snprintf(variables, sizeof variables, "ATTN_PLUGIN_PATH=%s", directory);
    run(&result, variables, places.attn_generate, "--toy -p hello -n 3 --kv f32 --backend template");
    check(result.code == 0 &&
              strstr(result.err,
                     "\nkernels: attention_f32_plain (attention_f32_plain is generic: many times") != NULL,
          &result, "somebody's plugin runs the model that it serves");
    result_finish(&result);
    run(&result, variables, places.attn_generate,
        "--toy-window 20 -p hello -n 3 --kv f32 --backend template");
    check(result.code == 1 && result.out[0] == '\0' &&
              strstr(result.err, " WINDOW: window: only -1 is served") &&
              strstr(result.err, "attn-info explain heads=4 head_dim=64 kv_heads=2 q=f32 window=19 "),
          &result, "and refuses windowed layers by name");
    result_finish(&result);
}

static void test_files(void)
{
    const char *directory = directory_make();
    char arguments[512], text[512];
    static char line[5001];

    refuses("--toy --batch no-such-file", 3, "--batch no-such-file: No such file or directory");
    refuses("-m no-such-file -p a", 3, "No such file or directory");
    snprintf(arguments, sizeof arguments, "--toy --batch %s", directory);
    refuses(arguments, 1, "Is a directory");
    file_write(directory, "empty", "");
    snprintf(arguments, sizeof arguments, "--toy --batch %s/empty", directory);
    refuses(arguments, 1, "there is no prompt in it");
    file_write(directory, "latin", "good\ncaf\xe9\n");
    snprintf(arguments, sizeof arguments, "--toy --batch %s/latin", directory);
    refuses(arguments, 1, "line 2, byte 4 is 0xe9; accepted is text in UTF-8");
    memset(line, 'x', sizeof line - 1);
    file_write(directory, "long", line);
    snprintf(arguments, sizeof arguments, "--toy --batch %s/long", directory);
    snprintf(text, sizeof text,
             "--batch %s/long: line 1: the prompt has 5000 tokens; the model accepts up to 4095", directory);
    refuses(arguments, 1, text);
    snprintf(arguments, sizeof arguments, "--toy --batch %s", places.attn_generate);
    refuses(arguments, 1, "accepted is text in UTF-8");
}

static void test_batch(void)
{
    const char *directory = directory_make();
    struct result alone, result;
    char arguments[512];

    file_write(directory, "prompts", "hello\n\nwhat is this\nthe third one is longer than the others\n");
    run(&alone, "", places.attn_generate, "--toy -p hello -n 6");
    snprintf(arguments, sizeof arguments, "--toy --batch %s/prompts -n 6 --parallel 2", directory);
    run(&result, "", places.attn_generate, arguments);
    check(result.code == 0 && strncmp(result.out, "=== 1 ===\n", 10) == 0 &&
              strncmp(result.out + 10, alone.out, strlen(alone.out)) == 0 &&
              strncmp(result.out + 10 + strlen(alone.out), "\n=== 2 ===\n", 11) == 0 &&
              strstr(result.out, "\n\n=== 3 ===\n") != NULL && occurrences(result.out, "===") == 6,
          &result, "three texts behind their numbers, the first as it is alone");
    check(strstr(result.err, "sequences: 3, up to 2 at once\n") != NULL &&
              strstr(result.err, "backend: cpu/flash-attn") != NULL,
          &result, "the report counts sequences");
    result_finish(&result);
    result_finish(&alone);
    snprintf(arguments, sizeof arguments, "--toy --batch %s/prompts -n 6 --kv int8 --compare-kv --json",
             directory);
    run(&result, "", places.attn_generate, arguments);
    check(result.code == 0 && json_array_size(at(&result, "sequences")) == 3 &&
              is_text(&result, "sequences.2.end", "length") && is_text(&result, "kv", "int8") &&
              is_text(&result, "sequences.1.prompt", "what is this") &&
              json_integer_value(at(&result, "sequences.1.line")) == 3 &&
              json_integer_value(at(&result, "sequences.1.number")) == 2 &&
              json_integer_value(at(&result, "sequences.1.prompt_tokens")) == 12 &&
              json_integer_value(at(&result, "parallel")) == 3 && is_text(&result, "command", "generate"),
          &result, "JSON has every sequence");
    check(json_number_value(at(&result, "compare_kv.max_difference")) > 0 &&
              json_number_value(at(&result, "compare_kv.max_difference")) < 1 &&
              json_integer_value(at(&result, "compare_kv.positions")) == 18,
          &result, "JSON has the comparison with an f32 cache");
    check(strstr(result.err, "compare-kv: int8 to f32: largest difference of logits ") != NULL, &result,
          "and so have the lines");
    result_finish(&result);
}

static void test_copies(void)
{
    struct result result;

    run(&result, "", places.attn_generate, "--toy -p hello -n 6 --parallel 2 --json");
    const char *first = json_string_value(at(&result, "sequences.0.text"));
    const char *second = json_string_value(at(&result, "sequences.1.text"));
    check(result.code == 0 && first != NULL && second != NULL && first[0] != '\0' &&
              strcmp(first, second) == 0 && json_is_null(at(&result, "compare_kv")) &&
              json_is_null(at(&result, "sequences.0.line")),
          &result, "greedy texts of one prompt are equal");
    result_finish(&result);
    run(&result, "", places.attn_generate, "--toy -p hello -n 20 --parallel 2 --temp 1 --json");
    first = json_string_value(at(&result, "sequences.0.text"));
    second = json_string_value(at(&result, "sequences.1.text"));
    check(result.code == 0 && first != NULL && second != NULL && strcmp(first, second) != 0, &result,
          "drawn texts of one prompt are not");
    result_finish(&result);
}

static void test_refusals(void)
{
    struct result result;

    run(&result, "ATTN_BACKEND=no/such", places.attn_generate, "--toy -p hello --kv int8");
    check(result.code == 1 && strstr(result.err, "ATTN_E_NO_BACKEND") != NULL &&
              strstr(result.err, "attn-info explain heads=4 head_dim=64 ") != NULL &&
              strstr(result.err, "kv=int8") != NULL && strstr(result.err, "scales=token-head") != NULL,
          &result, "without a backend the error names the problem to ask about");
    result_finish(&result);
}

int main(int argc, char **argv)
{
    cli_init(argc, argv);
    test_usage();
    test_more_usage();
    test_refused_prompts();
    test_ways();
    test_ranks();
    test_no_graphs();
    test_backend();
    test_narrow_backend();
    test_files();
    test_batch();
    test_copies();
    test_refusals();
    return cli_finish();
}
