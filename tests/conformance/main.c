/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-check: runs the conformance cases on one plugin and reports in TAP. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "complete.h"
#include "mirror.h"
#include "options.h"
#include "output.h"
#include "tap.h"

static const struct {
    const char *name;
    void (*check)(struct target_list *list, const struct run_options *options);
    bool shared; /* divides its cases among the processes of --share; the others belong to the first */
    bool asked;  /* only on request: a plugin need not pass */
    bool host;   /* hands its own memory to the plugin, so not for backends whose memory is elsewhere */
    /* Or a kind that wants a process that has not loaded the plugin: these come first. */
    void (*check_apart)(const struct run_options *options);
} kinds[] = {
    /* clang-format off */
    {"side-effects", NULL, false, false, false, check_side_effects},
    {"abi", NULL, false, false, false, check_abi},
    {"query", check_query, true, false, false, NULL},
    {"axes", check_axes, false, false, false, NULL},
    {"faults", check_faults, false, false, true, NULL},
    {"distrust", check_distrust, false, true, true, NULL},
    {"huge", check_huge, true, false, true, NULL},
    {"concurrency", check_concurrency, false, false, true, NULL},
    {"streams", check_streams, false, false, false, NULL},
    {"replay", check_replays, false, false, false, NULL},
    {"exhausted", check_exhausted, false, false, false, NULL},
    {"write", check_write, true, false, false, NULL},
    {"cache", check_cache, true, false, false, NULL},
    {"merge", check_merge, true, false, false, NULL},
    {"graph", check_replay, true, false, false, NULL},
    {"cascade", check_cascade, true, false, false, NULL},
    {"cp", check_parallel, true, false, true, NULL},
    {"det", check_deterministic, true, false, false, NULL},
    {"serving", check_serving, true, false, false, NULL},
    {"nan", check_nan, false, false, false, NULL},
    {"long", check_long, false, false, false, NULL},
    {"attention", check_attention, true, false, false, NULL},
    /* clang-format on */
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

void kinds_offer(const struct command_line *line, const char *lead)
{
    if (line->option == NULL || strcmp(line->option, "kind") != 0)
        return;
    const char *comma = strrchr(line->typed, ',');
    struct command_line last = {.typed = comma != NULL ? comma + 1 : line->typed};
    char *before = need_format("%s%.*s", lead, (int)(last.typed - line->typed), line->typed);
    for (size_t i = 0; i < KINDS; i++)
        complete_offer(&last, before, kinds[i].name, "");
    free(before);
}

/* Whether a list of names has this one. */
static bool is_named(const char *list, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == '\0' || at[length] == ','))
            return true;
    }
    return false;
}

static bool is_wanted(const struct run_options *options, size_t kind)
{
    if (!kinds[kind].shared && options->share != 0)
        return false;
    /* It takes the memory that the others need. */
    if (options->shares > 1 && options->kind == NULL && kinds[kind].check == check_exhausted)
        return false;
    return options->kind == NULL ? !kinds[kind].asked : is_named(options->kind, kinds[kind].name);
}

static void refuse_unknown_kind(const struct run_options *options)
{
    char names[512] = "";
    size_t used = 0;

    for (size_t i = 0; i < KINDS; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? "," : "", kinds[i].name);
    for (const char *at = options->kind; at != NULL; at = strchr(at, ',')) {
        char name[64];
        at += *at == ',';
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        if (is_named(names, name))
            continue;
        complain("no kind %s; there are %s", name, names);
        exit(EXIT_USAGE);
    }
}

static uint32_t count_wanted(const struct run_options *options)
{
    uint32_t count = 0;

    for (size_t i = 0; i < KINDS; i++)
        count += is_wanted(options, i);
    return count;
}

static void judge_apart(struct run_options *options)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (!is_wanted(options, i) || kinds[i].check_apart == NULL)
            continue;
        options->running = kinds[i].name;
        tap->kinds_begun++;
        kinds[i].check_apart(options);
    }
}

/* Such a kind says more about a file that cannot be used than that it cannot. */
static bool only_apart(const struct run_options *options)
{
    for (size_t i = 0; i < KINDS; i++)
        if (is_wanted(options, i) && kinds[i].check != NULL)
            return false;
    return true;
}

/* Everything that loads the plugin, in the child process. */
static int judge(void *arg)
{
    static struct target_list list;
    struct arguments *arguments = arg;

    mirror_all(arguments->device_memory);
    tap->judge = arguments->fail_fast ? (int32_t)getpid() : 0;
    judge_apart(&arguments->run);
    if (only_apart(&arguments->run))
        return 0;
    int code = targets_open(&list, plugin_path(), arguments->file, arguments->backend, arguments->level);
    for (size_t i = 0; i < KINDS && code == 0; i++) {
        if (!is_wanted(&arguments->run, i) || kinds[i].check == NULL)
            continue;
        arguments->run.running = kinds[i].name;
        tap->kinds_begun++;
        if (kinds[i].host && targets_mirrored(&list)) {
            tap_begin(&list.targets[0], kinds[i].name, "", arguments->run.seed);
            tap_skip("the memory of the backend is out of the host's reach");
            continue;
        }
        kinds[i].check(&list, &arguments->run);
    }
    targets_close(&list);
    return code;
}

/* Whether there is anything to judge: nobody wants the side effects of a file that cannot be loaded. */
static int try_out(void *arg)
{
    static struct target_list list;
    const struct arguments *arguments = arg;

    mirror_all(arguments->device_memory);
    int code = targets_open(&list, plugin_path(), arguments->file, arguments->backend, arguments->level);
    targets_close(&list);
    return code;
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char **argv)
{
    static struct arguments arguments;
    double began = now();

    output_init("attn-check");
    options_parse(&arguments, argc, argv);
    refuse_unknown_kind(&arguments.run);
    int code = plugin_path_make(arguments.file);
    if (code != 0)
        return output_finish(code);
    arguments.run.plugin = plugin_path_file();
    arguments.run.plugin_path = plugin_path();
    tap_init(argc > 0 ? argv[0] : "attn-check", arguments.file, arguments.run.full, arguments.common.json);
    tap->device_memory = arguments.device_memory;
    tap->kinds_wanted = count_wanted(&arguments.run);
    progress_init();
    if (only_apart(&arguments.run) || process_try(try_out, &arguments))
        process_run(judge, &arguments);
    progress_end();
    plugin_path_remove();
    double seconds = arguments.stable ? -1 : now() - began;
    return output_finish(report_finish(arguments.common.json, seconds));
}
