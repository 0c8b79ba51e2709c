/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the command line of attn-check says, and which cases it asks for. */
#include "options.h"

#include <argp.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

#include "common-options.h"
#include "complete.h"
#include "output.h"
#include "pairs.h"

enum {
    OPTION_CASES = 300,
    OPTION_STABLE,
    OPTION_FAIL_FAST,
    OPTION_DEVICE_MEMORY,
    OPTION_SHARE,
    OPTION_TRANSPORT
};

static const struct argp_option argp_options[] = {
    {"quick", 'q', NULL, 0, "a selection of cases, below a minute on two cores (default)", 0},
    {"full", 'f', NULL, 0, "many more and larger cases", 0},
    {"backend", 'b', "NAME", 0, "judge this backend only", 0},
    {"level", 'l', "FLAGS", 0, "judge one kernel level only: all, none, or a value of ATTN_CPU_FLAGS", 0},
    {"kind", 'k', "KIND", 0, "this kind of checks only, or several with commas between", 0},
    {"filter", 'F', "PROBLEM", 0, "this problem only, or the cases whose name fits a pattern with * ? [", 0},
    {"seed", 's', "N", 0, "first seed; with a problem in --filter that of the case", 0},
    {"cases", OPTION_CASES, "N", 0, "number of cases of each kind", 0},
    {"share", OPTION_SHARE, "K/N", 0, "every Nth case from the Kth on: N processes do all of them", 0},
    {"transport", OPTION_TRANSPORT, "NAME", 0,
     "ranks of kind cp are the processes that were started together, connected by this: mpi", 0},
    {"device-memory", OPTION_DEVICE_MEMORY, NULL, 0, "go through the backend's own memory even on a CPU", 0},
    {"stable", OPTION_STABLE, NULL, 0, "leave times out of JSON", 0},
    {"fail-fast", OPTION_FAIL_FAST, NULL, 0, "end with the first failure", 0},
    {0}};

static uint64_t parse_number(const char *text, struct argp_state *state)
{
    char *end;
    uint64_t number = strtoull(text, &end, 10);

    if (*text < '0' || *text > '9' || *end != '\0')
        argp_error(state, "'%s' is not a number", text);
    return number;
}

static void parse_share(struct run_options *run, const char *text, struct argp_state *state)
{
    char *end;
    const uint64_t share = strtoull(text, &end, 10);
    const uint64_t shares = *end == '/' ? parse_number(end + 1, state) : 0;

    if (*text < '0' || *text > '9' || share == 0 || share > shares || shares > 1000)
        argp_error(state, "--share is '%s', K/N with K from 1 to N and N up to 1000 is accepted", text);
    run->share = (uint32_t)share - 1;
    run->shares = (uint32_t)shares;
}

/* A problem must be one: a filter that fits nothing would look like a plugin without faults. */
static void parse_filter(struct run_options *run, const char *value)
{
    struct attn_error err;
    const char *key;

    run->filter = value;
    run->filter_kind = strpbrk(value, "*?[") != NULL ? FILTER_PATTERN
                       : strchr(value, '=') != NULL  ? FILTER_PROBLEM
                                                     : FILTER_NAME;
    if (run->filter_kind != FILTER_PROBLEM)
        return;
    ATTN_INIT(&err);
    if (attn_problem_parse(value, &run->problem, &err) != ATTN_OK) {
        complain("--filter: %s", err.message);
        exit(EXIT_USAGE);
    }
    run->problem.max_seqs = run->problem.max_q = run->problem.max_kv = run->problem.max_rows = 0;
    run->random = problem_covered(&run->problem, &key);
}

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct arguments *arguments = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &arguments->common;
        return 0;
    case 'q':
    case 'f':
        arguments->run.full = key == 'f';
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
        parse_filter(&arguments->run, value);
        return 0;
    case 's':
        arguments->run.seed = parse_number(value, state);
        arguments->run.seed_given = true;
        return 0;
    case OPTION_CASES:
        arguments->run.cases = (uint32_t)parse_number(value, state);
        return 0;
    case OPTION_SHARE:
        parse_share(&arguments->run, value, state);
        return 0;
    case OPTION_TRANSPORT:
        arguments->run.transport = value;
        return 0;
    case OPTION_DEVICE_MEMORY:
        arguments->device_memory = true;
        return 0;
    case OPTION_STABLE:
        arguments->stable = true;
        return 0;
    case OPTION_FAIL_FAST:
        arguments->fail_fast = true;
        return 0;
    case ARGP_KEY_ARG:
        if (arguments->file != NULL)
            argp_error(state, "one plugin file at a time, not %s and %s", arguments->file, value);
        arguments->file = value;
        return 0;
    case ARGP_KEY_END:
        if (arguments->file == NULL)
            argp_error(state, "a plugin file is wanted");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void options_parse(struct arguments *arguments, int argc, char **argv)
{
    static const struct argp_child children[] = {{&common_argp, 0, NULL, 0}, {0}};
    const struct argp argp = {argp_options,
                              parse_option,
                              "PLUGIN.so",
                              "Checks that a plugin computes what libattn defines, refuses what it does not "
                              "claim, and leaves its process as it was. Reports in TAP.",
                              children,
                              NULL,
                              NULL};

    memset(arguments, 0, sizeof *arguments);
    arguments->run.seed = 1;
    arguments->run.shares = 1;
    arguments->run.transport = "local";
    complete(&argp, argc, argv, kinds_offer);
    common_parse(&argp, argc, argv, arguments);
#ifndef HAVE_JSON
    if (arguments->common.json) {
        complain("there is no --json: this program was built without jansson");
        exit(EXIT_USAGE);
    }
#endif
}

bool options_wants(const struct run_options *options, const char *text)
{
    char name[PROBLEM_TEXT + 64];
    struct attn_problem problem;

    if (options->filter == NULL)
        return true;
    if (options->filter_kind == FILTER_PROBLEM)
        return attn_problem_parse(text, &problem, NULL) == ATTN_OK &&
               memcmp(&problem, &options->problem, sizeof problem) == 0;
    snprintf(name, sizeof name, "%s%s%s", options->running, *text != '\0' ? " " : "", text);
    if (options->filter_kind == FILTER_NAME)
        return strcmp(options->filter, text) == 0 || strcmp(options->filter, name) == 0;
    return fnmatch(options->filter, name, 0) == 0;
}

uint32_t options_cases(const struct run_options *options, uint32_t quick, uint32_t full)
{
    if (options->cases > 0)
        return options->cases;
    if (options->filter_kind == FILTER_PROBLEM && options->seed_given)
        return 1;
    return options->full ? full : quick;
}

bool options_mine(const struct run_options *options, uint64_t n)
{
    return n % options->shares == options->share;
}

void problem_through_text(struct attn_problem *problem)
{
    char text[PROBLEM_TEXT];
    struct attn_error err;

    ATTN_INIT(&err);
    if (attn_problem_resolve(problem, problem, &err) == ATTN_OK &&
        attn_problem_format(problem, text, sizeof text, NULL, &err) == ATTN_OK &&
        attn_problem_parse(text, problem, &err) == ATTN_OK)
        return;
    complain("a generated problem is not one: %s", err.message);
    exit(EXIT_NO);
}

/* `list` is NULL where problems need not be served. */
static bool next_problem(const struct run_options *options, const struct target_list *list, uint32_t n,
                         uint64_t salt, struct attn_problem *out_problem, uint64_t *out_seed)
{
    char text[PROBLEM_TEXT];

    if (options->filter_kind == FILTER_PROBLEM) {
        *out_seed = options->seed + n;
        *out_problem = options->problem;
        return options->random;
    }
    *out_seed = mix(options->seed + salt, n) >> 32;
    problem_generate(out_problem, *out_seed);
    problem_through_text(out_problem);
    if (list != NULL) {
        pairs_approach(list, out_problem, *out_seed);
        problem_through_text(out_problem);
    }
    return attn_problem_format(out_problem, text, sizeof text, NULL, NULL) == ATTN_OK &&
           options_wants(options, text);
}

bool options_problem(const struct run_options *options, uint32_t n, uint64_t salt,
                     struct attn_problem *out_problem, uint64_t *out_seed)
{
    return next_problem(options, NULL, n, salt, out_problem, out_seed);
}

bool options_served(const struct run_options *options, const struct target_list *list, uint32_t n,
                    uint64_t salt, struct attn_problem *out_problem, uint64_t *out_seed)
{
    return next_problem(options, list, n, salt, out_problem, out_seed);
}
