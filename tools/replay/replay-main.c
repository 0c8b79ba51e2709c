/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-replay: a recorded call on any backend, against what was recorded and against the oracle. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "complete.h"
#include "output.h"
#include "replay.h"

struct arguments {
    struct common_options common;
    const char *path;
    const char *backend; /* NULL: the recorded one */
};

static const struct argp_option options[] = {
    {"backend", 'b', "NAME", 0,
     "replay there: vendor/flavour, vendor, flavour or auto; default: where it was recorded", 0},
    {0},
};

static const char doc[] =
    "Repeats a call of attention that ATTN_RECORD=DIRECTORY wrote into a file, on the backend that made it "
    "or on "
    "another one, and holds both results against a double-precision oracle.\v"
    "Exit codes: 0 the replay is right; 1 it is wrong, or failed; 2 wrong usage, or the file is no record or "
    "a "
    "damaged one; 3 there is no such backend, or it does not serve the problem. See attn-replay(1).";

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *arguments = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &arguments->common;
        return 0;
    case 'b':
        arguments->backend = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (arguments->path != NULL)
            argp_error(state, "one record at a time, not %s and %s", arguments->path, arg);
        arguments->path = arg;
        return 0;
    case ARGP_KEY_END:
        if (arguments->path == NULL)
            argp_error(state, "the file of a record is wanted");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&common_argp, 0, NULL, 0}, {0}};
static const struct argp replay_argp = {options, parse_option, "FILE", doc, children, NULL, NULL};

static void replay_offer(const struct command_line *line, const char *lead)
{
    struct attn_context *context;

    if (line->option == NULL || strcmp(line->option, "backend") != 0 ||
        attn_context_create(NULL, &context, NULL) != ATTN_OK)
        return;
    complete_backends(line, lead, context);
    attn_context_destroy(context);
}

/*
 * A context as the program had it: threads of a CPU decide how work is split, and flags which kernels run.
 * The environment's own values come first.
 */
static struct attn_context *context_make(const struct record *record)
{
    const struct attn__call *call = &record->call;
    struct attn_context_options given;
    struct attn_context *context = NULL;
    struct attn_error err;
    char *threads = need_format("ATTN_THREADS=%llu", (unsigned long long)call->units);
    char *flags = need_format("ATTN_CPU_FLAGS=%s", call->cpu_flags);
    const char *variables[2];

    ATTN_INIT(&given);
    ATTN_INIT(&err);
    if (strncmp(call->device, "cpu:", 4) == 0 && call->units > 0 && getenv("ATTN_THREADS") == NULL)
        variables[given.variable_count++] = threads;
    if (call->cpu_flags[0] != '\0' && getenv("ATTN_CPU_FLAGS") == NULL)
        variables[given.variable_count++] = flags;
    given.variables = variables;
    if (attn_context_create(&given, &context, &err) != ATTN_OK)
        complain("%s", err.message);
    free(threads);
    free(flags);
    return context;
}

/* The backend, or NULL with a message. */
static struct attn_backend *backend_open(struct attn_context *context, const struct record *record,
                                         const char *wanted)
{
    struct attn_select_options given;
    struct attn_decision *decision = NULL;
    struct attn_backend *backend = NULL;
    struct attn_error err;

    ATTN_INIT(&given);
    ATTN_INIT(&err);
    given.backend = wanted != NULL ? wanted : record->call.backend;
    if (attn_select(context, &record->problem, 1, &given, &decision, &err) != ATTN_OK ||
        attn_backend_open(context, decision, NULL, &backend, &err) != ATTN_OK)
        complain("%s", err.message);
    attn_decision_destroy(decision);
    return backend;
}

static int replay(const struct record *record, struct attn_backend *backend, bool json)
{
    struct comparison comparison;
    struct rerun rerun;
    struct attn_error err;

    ATTN_INIT(&err);
    const int32_t status = rerun_make(&rerun, record, backend, &err);
    if (status != ATTN_OK) {
        complain("%s: %s", record->path, err.message);
        rerun_finish(&rerun);
        return status == ATTN_E_UNSUPPORTED ? EXIT_MISSING : EXIT_NO;
    }
    compare(&rerun, &comparison);
    bool good = rerun.status == ATTN_OK && comparison.replayed.right;
    if (json)
        good = print_json(&rerun, &comparison) && good;
    else
        print_text(&rerun, &comparison);
    rerun_finish(&rerun);
    return good ? EXIT_YES : EXIT_NO;
}

int main(int argc, char **argv)
{
    output_init("attn-replay");
    struct arguments arguments = {.path = NULL};
    struct record record;
    int code = EXIT_USAGE;

    signal(SIGPIPE, SIG_IGN); /* so that a reader that went away does not hide the exit code */
    complete(&replay_argp, argc, argv, replay_offer);
    common_parse(&replay_argp, argc, argv, &arguments);
    if (record_load(&record, arguments.path)) {
        struct attn_context *context = context_make(&record);
        struct attn_backend *backend =
            context != NULL ? backend_open(context, &record, arguments.backend) : NULL;
        code = backend != NULL ? replay(&record, backend, arguments.common.json) : EXIT_MISSING;
        attn_backend_destroy(backend);
        attn_context_destroy(context);
        record_finish(&record);
    }
    return output_finish(code);
}
