/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-bench: measures attention, and what the library adds to it, next to what the machine can do. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "complete.h"
#include "core.h"
#include "machine.h"

static const struct mode {
    const char *name;
    const char *keys; /* own ones; "problem": those of the problem string too; NULL: files, no keys */
    int (*run)(struct bench *bench);
} modes[] = {
    {"decode", "seqs ctx q_len prefix skew layers threads reps cold problem", attention_mode},
    {"prefill", "seqs ctx q_len prefix skew layers threads reps cold problem", attention_mode},
    {"mixed", "seqs ctx q_len prefix skew layers threads reps cold problem", attention_mode},
    {"metadata", "seqs ctx reps", metadata_mode},
    {"dispatch", "reps", dispatch_mode},
    {"load", "reps", load_mode},
    {"ceilings", "threads reps cold", ceilings_mode},
    {"cp", "ranks transport pass seqs ctx q_len skew layers threads reps cold problem", cp_mode},
    {"serve", "trace requests seqs layers threads chunk blocks host_blocks reuse speed noop problem",
     serve_mode},
    {"compare", NULL, compare_mode},
};
enum { MODES = sizeof modes / sizeof *modes };

static const char doc[] =
    "Measures attention on the selected backend next to what the machine can do at that moment.\v"
    "Modes:\n"
    "  decode     few query tokens over a long cold cache\n"
    "  prefill    many query tokens\n"
    "  mixed      prefill chunks and decoding sequences in one batch\n"
    "  metadata   what the metadata of a step costs on the host, and a slot mapping\n"
    "  dispatch   cost of a plan run by itself, with a plugin that computes nothing\n"
    "  load       making a context with ten plugin files on the search path\n"
    "  ceilings   read bandwidth and arithmetic peak\n"
    "  cp         attention over keys of several ranks, next to one alone\n"
    "  serve      a recorded trace of requests, replayed through all layers\n"
    "  compare    two files of --json, row by row: compare A.json B.json\n"
    "Several measuring modes may be given with commas between them: decode,prefill,mixed.\n"
    "\n"
    "Keys: those of the problem string, and seqs, ctx (keys of a sequence), q_len (query tokens of a "
    "sequence), prefix (keys that all begin with), skew (LONG:COUNTxSHORT, uneven sequences), layers, "
    "threads, "
    "reps, cold (MiB). Without keys a mode runs its default cases; serve needs trace=FILE.csv and takes "
    "requests, chunk, blocks, host_blocks, reuse, speed and noop too, cp ranks=N (2), transport=NAME "
    "(local, mpi, nccl) and pass=WHAT (keys, queries, heads, cheaper: query tokens are spread). ATTN_BACKEND "
    "chooses the backend. "
    "Tables take the columns of the terminal, "
    "or COLUMNS; 200 shows all.\n"
    "\n"
    "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 a demanded thing is missing. See attn-bench(1).";

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct bench *bench = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &bench->common;
        return 0;
    case ARGP_KEY_ARG:
        if (bench->mode == NULL)
            bench->mode = arg;
        else
            bench->args[bench->arg_count++] = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        complain("no mode is given; accepted are decode, prefill, mixed, metadata, dispatch, load, ceilings, "
                 "cp, serve and compare");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&common_argp, 0, NULL, 0}, {0}};
static const struct argp argp = {NULL, parse_option, "MODE [KEY=VALUE...]", doc, children, NULL, NULL};

/* Modes, also behind a comma, then the keys of the first one. */
static void bench_offer(const struct command_line *line, const char *lead)
{
    (void)lead; /* no option has a value */
    if (line->count > 0) {
        size_t size = strcspn(line->words[0], ",");
        for (size_t i = 0; i < MODES; i++)
            if (strlen(modes[i].name) == size && strncmp(modes[i].name, line->words[0], size) == 0 &&
                modes[i].keys != NULL)
                keys_offer(line, modes[i].keys);
        return;
    }
    const char *comma = strrchr(line->typed, ',');
    struct command_line last = {.typed = comma != NULL ? comma + 1 : line->typed};
    char *before = need_format("%.*s", (int)(last.typed - line->typed), line->typed);
    for (size_t i = 0; i < MODES; i++)
        if (comma == NULL || modes[i].keys != NULL)
            complete_offer(&last, before, modes[i].name, "");
    free(before);
}

static const struct mode *mode_find(const char *name)
{
    const char *names[MODES];

    for (size_t i = 0; i < MODES; i++) {
        names[i] = modes[i].name;
        if (strcmp(modes[i].name, name) == 0)
            return &modes[i];
    }
    const char *nearest = attn__nearest(name, names, MODES);
    complain("unknown mode \"%s\"%s%s%s; accepted are decode, prefill, mixed, metadata, dispatch, load, "
             "ceilings, cp, serve and compare",
             name, nearest != NULL ? ", did you mean \"" : "", nearest != NULL ? nearest : "",
             nearest != NULL ? "\"?" : "");
    return NULL;
}

/* Sorts out "decode,prefill" and the keys of each mode; 0 after a message. */
static unsigned modes_parse(struct bench *bench, const struct mode **out)
{
    char *names = need_copy(bench->mode), *rest = names;
    unsigned count = 0;
    bool good = true;

    for (char *name; good && (name = strsep(&rest, ",")) != NULL;) {
        const struct mode *mode = mode_find(name);
        good = mode != NULL;
        for (unsigned i = 0; good && i < count; i++) {
            if (mode->keys == NULL || out[i]->keys == NULL)
                complain("mode compare cannot stand beside another mode; give it alone");
            else if (out[i] == mode)
                complain("mode %s is given twice; give it once", mode->name);
            else
                continue;
            good = false;
        }
        if (good && mode->keys != NULL) {
            bench->keys = (struct bench_keys){0};
            good = keys_parse(&bench->keys, mode->name, mode->keys, bench->args, bench->arg_count);
        }
        if (good)
            out[count++] = mode;
    }
    free(names);
    return good ? count : 0;
}

static int modes_run(struct bench *bench, const struct mode *const *list, unsigned count)
{
    int code = EXIT_YES;

    for (unsigned i = 0; i < count && code != EXIT_USAGE; i++) {
        bench->mode = list[i]->name;
        bench->keys = (struct bench_keys){0};
        bench->text.listed = false;
        bench->text.name = bench->text.batch = 0;
        keys_parse(&bench->keys, list[i]->name, list[i]->keys, bench->args, bench->arg_count);
        machine_set_cold_set((uint64_t)bench->keys.cold << 20);
        int one = list[i]->run(bench);
        code = one != EXIT_YES ? one : code;
    }
    return code;
}

static int run(struct bench *bench)
{
    const struct mode *list[MODES];
    unsigned count = modes_parse(bench, list);

    if (count == 0)
        return EXIT_USAGE;
    if (list[0]->keys == NULL)
        return list[0]->run(bench);
    if (bench->common.json) {
        bench->json = jsonout_create(bench->mode);
        machine_describe(bench->json);
        jsonout_array(bench->json, "rows");
    }
    int code = modes_run(bench, list, count);
    if (bench->json == NULL) {
        text_end(bench);
    } else {
        jsonout_close(bench->json);
        /* What was measured before a failure is worth printing; a wrong call has nothing to print. */
        if (!jsonout_finish(bench->json, code != EXIT_USAGE ? output_stream() : NULL))
            code = EXIT_NO;
    }
    return code;
}

int main(int argc, char **argv)
{
    output_init("attn-bench");
    struct bench bench = {.args = need_memory(NULL, (size_t)argc, sizeof(char *))};

    complete(&argp, argc, argv, bench_offer);
    common_parse(&argp, argc, argv, &bench);
    int code = run(&bench);
    free(bench.failure);
    free(bench.args);
    return output_finish(code);
}
