/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* check-kernels: runs the conformance cases on the backends of a plugin path and reports in TAP. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>

#include "conform.h"

struct arguments {
    struct run_options run;
    const char *plugins;
    const char *backend;
    const char *level;
};

static const struct argp_option argp_options[] = {
    {"quick", 'q', NULL, 0, "a selection of cases (default)", 0},
    {"full", 'f', NULL, 0, "many more and larger cases", 0},
    {"plugins", 'p', "DIRECTORIES", 0, "plugin path, over ATTN_PLUGIN_PATH", 0},
    {"backend", 'b', "NAME", 0, "this backend only", 0},
    {"level", 'l', "FLAGS", 0, "one kernel level: all, none, or a value of ATTN_CPU_FLAGS", 0},
    {"kind", 'k', "KIND", 0, "attention, det, write, merge or query only", 0},
    {"filter", 'F', "PROBLEM", 0, "this problem string only", 0},
    {"seed", 's', "N", 0, "first seed; with --filter the very one", 0},
    {"cases", 'n', "N", 0, "number of cases of each kind", 0},
    {0}};

static uint64_t parse_number(const char *text, struct argp_state *state)
{
    char *end;
    uint64_t number = strtoull(text, &end, 10);

    if (*text == '\0' || *end != '\0')
        argp_error(state, "'%s' is not a number", text);
    return number;
}

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct arguments *arguments = state->input;

    switch (key) {
    case 'q':
        arguments->run.full = false;
        return 0;
    case 'f':
        arguments->run.full = true;
        return 0;
    case 'p':
        arguments->plugins = value;
        return 0;
    case 'b':
        arguments->backend = value;
        return 0;
    case 'l':
        arguments->level = value;
        return 0;
    case 'k':
        arguments->run.kind = value;
        return 0;
    case 'F':
        arguments->run.filter = value;
        return 0;
    case 's':
        arguments->run.seed = parse_number(value, state);
        arguments->run.seed_given = true;
        return 0;
    case 'n':
        arguments->run.cases = (uint32_t)parse_number(value, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

uint32_t options_cases(const struct run_options *options, uint32_t quick, uint32_t full)
{
    if (options->cases > 0)
        return options->cases;
    if (options->filter != NULL && options->seed_given)
        return 1;
    return options->full ? full : quick;
}

bool options_problem(const struct run_options *options, uint32_t n, uint64_t salt,
                     struct attn_problem *out_problem, uint64_t *out_seed)
{
    struct attn_error err;

    ATTN_INIT(&err);
    *out_seed = options->filter != NULL ? options->seed + n : mix(options->seed + salt, n) >> 32;
    if (options->filter == NULL) {
        problem_generate(out_problem, *out_seed);
        if (attn_problem_resolve(out_problem, out_problem, &err) == ATTN_OK)
            return true;
    } else if (attn_problem_parse(options->filter, out_problem, &err) == ATTN_OK) {
        const char *key;
        out_problem->max_seqs = out_problem->max_q = out_problem->max_kv = out_problem->max_rows = 0;
        if (problem_covered(out_problem, &key))
            return true;
        snprintf(err.message, sizeof err.message, "key %s is not covered", key);
    }
    fprintf(stderr, "check-kernels: %s\n", err.message);
    exit(2);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*check)(struct target_list *list, const struct run_options *options);
    } kinds[] = {{"query", check_query}, {"faults", check_faults},     {"write", check_write},
                 {"merge", check_merge}, {"det", check_deterministic}, {"attention", check_attention}};
    const struct argp argp = {
        argp_options, parse_option, NULL, "Checks attention kernels against the oracle.", NULL, NULL, NULL};
    static struct arguments arguments = {.run = {.seed = 1}};
    static struct target_list list;
    bool known = false;

    argp_parse(&argp, argc, argv, 0, NULL, &arguments);
    tap_start();
    if (!targets_open(&list, arguments.plugins, arguments.backend, arguments.level))
        return 2;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (arguments.run.kind != NULL && strcmp(arguments.run.kind, kinds[i].name) != 0)
            continue;
        known = true;
        kinds[i].check(&list, &arguments.run);
    }
    targets_close(&list);
    if (!known) {
        fprintf(stderr, "check-kernels: no kind %s\n", arguments.run.kind);
        return 2;
    }
    return tap_finish();
}
